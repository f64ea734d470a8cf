"""Kernels that are forked from one process in which the packages of the notebooks are imported.

A kernel takes three seconds of processor time to start and to import them, a forked one a quarter of
a second. It is as new as a started one: no cell has run in it, and no service was called.

The process (`python -m workbench.run.kernels`) reads a request from each line of its input, and
answers with the pid of a kernel. The third request imports the packages. The process ends with
the runner, and so do its kernels.
"""

import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
from threading import Lock
from typing import Any, Optional

from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from ..base.environment import replace_all

PRELOADED = (
    "ipykernel.kernelapp",
    "pyspark.sql.connect.session",
    "workbench.display.draw",
    "workbench.operate",
    "workbench.run.notebooks",
    "workbench.walkthroughs",
)
_lock = Lock()
_servers: dict[Optional[str], "subprocess.Popen[str]"] = {}  # by the root of the project


class _ForkedProcess:
    """A kernel, with those parts of subprocess.Popen that a provisioner uses."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> Optional[int]:
        """Return None while the process lives; its exit code is not known."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 1
        return None

    wait = poll

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class _ForkingProvisioner(LocalProvisioner):
    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Fork a kernel in place of starting the command."""
        arguments = cmd[cmd.index("ipykernel_launcher") + 1 :]
        request = {"arguments": arguments, "folder": kwargs["cwd"], "environment": kwargs["env"]}
        pid = _fork(request)
        self.process: Any = _ForkedProcess(pid)
        self.pid = self.pgid = pid
        return self.connection_info


class KernelManager(AsyncKernelManager):
    """A kernel manager that forks its kernel, and shuts it down without interrupting it first.

    A kernel that is interrupted while it reads a message prints an error to the terminal.
    """

    async def _async_pre_start_kernel(self, **kwargs: Any) -> Any:
        self.provisioner = self.provisioner or _ForkingProvisioner(
            kernel_id=self.kernel_id or "", kernel_spec=self.kernel_spec, parent=self
        )
        return await super()._async_pre_start_kernel(**kwargs)

    async def _async_interrupt_kernel(self) -> None:
        pass

    interrupt_kernel = _async_interrupt_kernel


def _fork(request: dict[str, Any]) -> int:
    """Return the pid of a new kernel."""
    with _lock:
        server = _server()
        if server.stdin is None or server.stdout is None:
            raise RuntimeError("the process that forks kernels has no pipes")
        server.stdin.write(f"{json.dumps(request)}\n")
        server.stdin.flush()
        return int(server.stdout.readline())


def _server() -> "subprocess.Popen[str]":
    """Return the process that forks kernels; the caller holds the lock.

    It is another one if the root of the project has changed, which modules read when they are imported.
    """
    root = os.environ.get("WORKBENCH_ROOT")
    if root not in _servers or _servers[root].poll() is not None:
        while _servers:
            _servers.popitem()[1].communicate()  # closes its input, which ends it
        _servers[root] = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C in the terminal is for the runner
            # as a kernel sets it, before it imports matplotlib: a cell shows its figures
            env={"MPLBACKEND": "module://matplotlib_inline.backend_inline", **os.environ},
        )
    return _servers[root]


def _serve() -> None:
    if sys.path[0] == os.getcwd():  # by -m
        del sys.path[0]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no kernel stays as a zombie
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for number, line in enumerate(sys.stdin):
        if number == 2:  # it pays off only for several notebooks
            _preload()
        pid = os.fork()
        if pid == 0:
            answers.close()
            _run_kernel(**json.loads(line))
        answers.write(f"{pid}\n")
        answers.flush()


def _preload() -> None:
    for name in PRELOADED:
        # a notebook that needs the module shows why it cannot be imported
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.freeze()  # the memory stays shared


def _run_kernel(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """Become a kernel, until this process ends."""
    from ipykernel.kernelapp import IPKernelApp  # the runner need not import it

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    replace_all(environment)
    os.chdir(folder)
    sys.argv[1:] = arguments
    IPKernelApp.launch_instance(argv=arguments, parent_handle=os.getppid())
    os._exit(0)


if __name__ == "__main__":
    _serve()
