"""The kernels of headless notebooks: the next ones start while a notebook runs."""

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

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


AHEAD = 2  # kernels that wait for their notebooks


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
    """Start the kernels of the next notebooks while a notebook runs.

    A kernel takes two seconds until it has imported what most notebooks import, longer than the shortest
    notebooks run.

    Attributes:
        paths: the notebooks, in their order.
    """

    paths: list[Path]
    _waiting: dict[Path, AsyncKernelManager] = field(default_factory=dict)

    def take(self, path: Path) -> AsyncKernelManager:
        """Return the kernel of a notebook, and start those of the next ones. Its user shuts it down."""
        kernel = self._waiting.pop(path, None)
        if not kernel or not run_sync(kernel.is_alive)():
            kernel = start(path)
        position = self.paths.index(path) + 1
        following = self.paths[position : position + AHEAD]
        for skipped in self._waiting.keys() - {*following}:
            _shut_down(self._waiting.pop(skipped))
        with contextlib.suppress(Exception):  # otherwise a kernel starts when its notebook does
            for each in following:
                if each not in self._waiting:
                    self._waiting[each] = start(each)
        return kernel

    def close(self) -> None:
        """Shut down the kernels that wait for their notebooks."""
        while self._waiting:
            _shut_down(self._waiting.popitem()[1])


def _shut_down(kernel: AsyncKernelManager) -> None:
    run_sync(kernel.shutdown_kernel)(now=True)
