"""One notebook, executed headless by papermill in a fresh kernel of this environment (see runner.py
for many).

Nothing is written here: the runner masks secrets first.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from jupyter_client.manager import AsyncKernelManager
from papermill.engines import NBClientEngine
from papermill.iorw import load_notebook_node
from papermill.log import logger
from papermill.parameterize import parameterize_notebook
from traitlets.config import Config


@dataclass
class ExecutionResult:
    """What came out: the notebook with outputs, the cell that was started last (-1: none), why it
    ended early ("" if it did not), and whether it was the user who ended it.
    """

    notebook: Any
    last_cell: int = -1
    reason: str = ""
    interrupted: bool = False


class _KernelManager(AsyncKernelManager):
    """Before it ends a kernel, jupyter_client interrupts it. One that is just reading a message
    then says so in the terminal, as an error. Nothing here needs it: a kernel is killed.
    """

    async def _async_interrupt_kernel(self) -> None:
        pass

    interrupt_kernel = _async_interrupt_kernel


def execute_notebook(
    path: Path,
    values: dict,
    timeout: float = 600,
    on_cell: Callable[[int, list], None] = lambda at, cells: None,
) -> ExecutionResult:
    """Execute a notebook in its own folder.

    Args:
        values: parameters; they are injected below the parameters cell.
        timeout: seconds for the whole notebook.
        on_cell: called with index and cells before each cell.

    Raises:
        nothing of the notebook's: an error of a cell stands in its output, any other reason in
        `why`.
    """
    deadline = time.monotonic() + timeout
    logger.setLevel("CRITICAL")  # it reports on the terminal what is told better here
    book = parameterize_notebook(
        load_notebook_node(str(path)), values, kernel_name="python3", language="python"
    )
    done = ExecutionResult(book)

    def started(cell: Any, cell_index: int) -> None:
        done.last_cell = cell_index
        on_cell(cell_index, book.cells)

    try:
        NBClientEngine.execute_notebook(
            book,
            "python3",
            progress_bar=False,
            kernel_manager_class=_KernelManager,
            on_cell_start=started,
            shutdown_kernel="immediate",  # a busy one that is asked to end has five seconds
            timeout_func=lambda cell: max(
                1, int(deadline - time.monotonic())
            ),  # 0 would mean no limit
            resources={"metadata": {"path": str(path.parent)}},
            config=Config(KernelManager={"transport_encryption": "auto"}),
        )  # what cells say goes over loopback ports
    except KeyboardInterrupt:
        done.interrupted, done.reason = True, "stopped by the user"
    except TimeoutError:
        done.reason = f"the notebook took longer than {timeout:g} s and was ended"
    except Exception as e:  # noqa: BLE001 - a kernel ends in many ways; each is this notebook's failure, not the run's
        done.reason = (
            "the kernel died: its process was killed from outside, ran out of memory, or crashed"
            if "Kernel died" in str(e)
            else f"{type(e).__name__}: {e}"
        )
    return done
