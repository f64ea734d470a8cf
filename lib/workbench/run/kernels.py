"""The kernels of headless notebooks: the next one starts while a notebook runs."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync
from traitlets.config import Config

# What most notebooks import. A name of a notebook is defined by its own import alone: the statement
# runs in a namespace of its own.
_IMPORTS = "import pandas, matplotlib.pyplot, pyspark.sql.connect.session, workbench.tracks"
_ARGUMENTS = [
    f"--IPKernelApp.exec_lines=exec('{_IMPORTS}', {{}})",
    "--HistoryManager.hist_file=:memory:",  # as nbclient does: no file for the history
]


class _KernelManager(AsyncKernelManager):
    """A kernel manager that shuts a kernel down without interrupting it first.

    A kernel that is interrupted while it reads a message prints an error to the terminal.
    """

    async def _async_interrupt_kernel(self) -> None:
        pass

    interrupt_kernel = _async_interrupt_kernel


def start(path: Path) -> AsyncKernelManager:
    """Start a kernel of this environment in the folder of a notebook, and do not wait for it.

    Returns:
        The manager of the kernel. Its user shuts the kernel down.
    """
    # encrypts the messages of the kernel, which pass through loopback ports
    config = Config(KernelManager={"transport_encryption": "auto"})
    manager = _KernelManager(kernel_name="python3", config=config)
    run_sync(manager.start_kernel)(extra_arguments=_ARGUMENTS, cwd=str(path.parent))
    return manager


@dataclass
class Kernels:
    """Start the kernel of each notebook while the notebook before it runs.

    A kernel takes two seconds until it has imported what most notebooks import.

    Attributes:
        paths: the notebooks, in their order.
    """

    paths: list[Path]
    _waiting: Optional[tuple[Path, AsyncKernelManager]] = None

    def take(self, path: Path) -> AsyncKernelManager:
        """Return the kernel of a notebook, and start that of the next one. Its user shuts it down."""
        waiting, self._waiting = self._waiting, None
        if waiting and waiting[0] == path and run_sync(waiting[1].is_alive)():
            kernel = waiting[1]
        else:
            _shut_down(waiting)
            kernel = start(path)
        following = self.paths[self.paths.index(path) + 1 :]
        with contextlib.suppress(Exception):  # otherwise it starts when its notebook does
            if following:
                self._waiting = (following[0], start(following[0]))
        return kernel

    def close(self) -> None:
        """Shut down the kernel that waits for its notebook, if there is one."""
        _shut_down(self._waiting)
        self._waiting = None


def _shut_down(waiting: Optional[tuple[Path, AsyncKernelManager]]) -> None:
    if waiting:
        run_sync(waiting[1].shutdown_kernel)(now=True)
