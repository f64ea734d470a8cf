"""Kernels that are forked from one process in which the packages of the notebooks are imported.

A kernel of its own takes three seconds to start and to import them. A forked one is as new: it has
run no cell, and shares no state with another kernel.
"""

import multiprocessing
import os
import threading
from multiprocessing.process import BaseProcess
from typing import Any

from ipykernel.kernelapp import IPKernelApp
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner

PRELOADED = (
    __name__,
    "workbench.cli.main",
    "workbench.walkthroughs",
    "workbench.display.draw",
    "workbench.operate",
    "workbench.run.notebooks",
    "pyspark.sql.connect.session",
)


class _Process:
    """A forked process with the interface of subprocess.Popen that a provisioner uses."""

    stdin = stdout = stderr = None

    def __init__(self, process: BaseProcess) -> None:
        self._process = process
        self.pid = process.pid
        self.kill = process.kill
        self.terminate = process.terminate

    def poll(self) -> Any:
        return self._process.exitcode

    def wait(self) -> Any:
        self._process.join()
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self._process.pid or 0, number)


class _Provisioner(LocalProvisioner):
    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Fork a kernel in place of starting the command."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))
        arguments = cmd[cmd.index("ipykernel_launcher") + 1 :]
        process = context.Process(
            target=_run_kernel, args=(arguments, kwargs.get("cwd"), kwargs["env"])
        )
        process.start()
        self.process: Any = _Process(process)
        self.pid = self.pgid = process.pid
        return self.connection_info


def _run_kernel(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """Become a kernel, which ends with the runner."""
    threading.Thread(target=_end_with_runner, daemon=True).start()
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    IPKernelApp.launch_instance(argv=arguments, parent_handle=os.getppid())


def _end_with_runner() -> None:
    runner = multiprocessing.parent_process()
    if runner:
        runner.join()
    os._exit(1)


class KernelManager(AsyncKernelManager):
    """A kernel manager that forks its kernel, and shuts it down without interrupting it first.

    A kernel that is interrupted while it reads a message prints an error to the terminal.
    """

    async def _async_pre_start_kernel(self, **kwargs: Any) -> Any:
        self.provisioner = self.provisioner or _Provisioner(
            kernel_id=self.kernel_id, kernel_spec=self.kernel_spec, parent=self
        )
        return await super()._async_pre_start_kernel(**kwargs)

    pre_start_kernel = _async_pre_start_kernel

    async def _async_interrupt_kernel(self) -> None:
        pass

    interrupt_kernel = _async_interrupt_kernel
