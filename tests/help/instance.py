"""An instance of the stack for one run of tests or benchmarks, removed at its end."""

import contextlib
import os
import shutil
import subprocess
import sys

import psutil
import pytest
import worlds
from workbench import stack
from workbench.base import params, paths, pidfiles
from workbench.base.errors import StackError
from workbench.base.wait import file_lock
from workbench.stack import artifacts, process


def exclusive_run():
    """Lock this instance for one run.

    Raises:
        StackError: on entering, another run has the lock; names its process.
    """
    return file_lock(
        paths.state_dir().with_suffix(".lock"),
        lambda pid: StackError(
            f"another run uses the instance {paths.instance_name()}",
            location=f"process {pid}",
            hint="wait until it is done",
        ),
    )


@contextlib.contextmanager
def world_of_its_own(name, ports, services=()):
    """Yield a world whose services run in an instance of their own, removed at the end.

    Args:
        name: name of the world.
        ports: its first port, above that of the tests.
        services: the services to start, by default those of the world.
    """
    artifacts.install(print, *{name} & {*artifacts.OPTIONAL_SERVICES})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_PORT_BASE", str(int(os.environ["WORKBENCH_PORT_BASE"]) + ports))
        patch.setenv("WORKBENCH_INSTANCE", f"{os.environ['WORKBENCH_INSTANCE']}-{name}")
        stack.down()
        shutil.rmtree(paths.state_dir(), ignore_errors=True)
        stop_with_process(os.getpid(), remove=True)
        world = params.load(name)
        try:
            with worlds.activated(world):
                stack.up(world, services)
                yield world
        finally:
            stack.down()
            shutil.rmtree(paths.state_dir(), ignore_errors=True)


def stop_with_process(pid, *, remove):
    """Stop this instance when process `pid` has ended, in whatever way.

    Args:
        pid: id of the process.
        remove: also delete the instance's folder.
    """
    nowhere = subprocess.DEVNULL
    subprocess.Popen(
        [sys.executable, __file__, str(pid), "remove" if remove else "keep"],
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        start_new_session=True,
    )


def watchers():
    """The processes that `down_with` has started and that have not done yet what they are there
    for."""
    return [p for p in psutil.process_iter(["cmdline"]) if __file__ in (p.info["cmdline"] or ())]


def find_service_processes(start):
    """Return the running processes whose service id starts with a text, with their service ids.

    A service id is `<folder of the instance>:<service>`.
    """
    found = (
        (p, (p.info["environ"] or {}).get(process.SERVICE_ID_ENV, ""))
        for p in psutil.process_iter(["environ"])
    )
    return [(p, seen) for p, seen in found if seen.startswith(start) and pidfiles.is_alive(p)]


if __name__ == "__main__":
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(sys.argv[1])).wait()
    stack.down()
    if sys.argv[2] == "remove":
        shutil.rmtree(paths.state_dir(), ignore_errors=True)
