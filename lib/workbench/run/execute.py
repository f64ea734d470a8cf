"""One notebook, executed headless by papermill in a fresh kernel of this environment (see run.py for many).

papermill's own engine is used with three additions: the executed notebook stays at hand when the kernel dies, one
time limit holds for the whole notebook, and a busy kernel is ended at once when somebody stops the run. Nothing is
written here: the runner masks secrets first.
"""
from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import nbformat
import papermill
from jupyter_client.manager import AsyncKernelManager
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, NotebookExecutionManager, papermill_engines
from papermill.execute import remove_error_markers
from papermill.log import logger
from traitlets.config import Config

ENGINE = "workbench"


@dataclass(frozen=True)
class Executed:
    """What came out: the notebook with outputs, the cell that was started last, and why it ended early ("" if not)."""

    book: Any
    at: int
    why: str


class Stop:
    """Whether somebody asked to stop (Ctrl-C, TERM). As a signal handler it ends the kernel that is running."""

    def __init__(self) -> None:
        self.asked = False
        self.watch: Optional[_Watch] = None

    def __call__(self, *_: Any) -> None:
        self.asked = True
        if self.watch:  # between two notebooks there is nothing to interrupt: the runner looks at `asked`
            self.watch.end_kernel()
            raise KeyboardInterrupt


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """Handle SIGINT and SIGTERM by a `Stop` (in the main thread; no other can handle signals)."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def notebook(path: Path, values: dict, timeout: float, stop: Stop, on_cell: Callable[[int, list], None]) -> Executed:
    """Execute a notebook in its own folder.

    Args:
        values: parameters; they are injected below the parameters cell.
        timeout: seconds for the whole notebook.
        on_cell: called with index and cells before each cell.

    Raises:
        nothing of the notebook's: an error of a cell stands in its output, any other reason in `why`.
    """
    watch = _Watch(timeout, on_cell)
    stop.watch, why = watch, ""
    logger.setLevel("CRITICAL")  # it reports on the terminal what is told better here
    try:
        papermill.execute_notebook(
            path, None, values, engine_name=ENGINE, kernel_name="python3", language="python", progress_bar=False,
            cwd=path.parent, watch=watch)
    except papermill.PapermillExecutionError:
        pass  # stands in the cell's output
    except KeyboardInterrupt:
        stop.asked, why = True, "stopped by the user"
    except TimeoutError:
        why = f"the notebook took longer than {timeout:g} s and was ended"
    except Exception as e:  # noqa: BLE001 - a kernel ends in many ways; each is this notebook's failure, not the run's
        why = "the kernel died: its process was killed from outside, ran out of memory, or crashed" \
            if "Kernel died" in str(e) else f"{type(e).__name__}: {e}"
    finally:
        stop.watch = None
    book = remove_error_markers(watch.book or nbformat.read(path, as_version=4))
    return Executed(book, watch.at, why)


class _Watch:
    """What the runner keeps of an execution that is going on."""

    def __init__(self, timeout: float, on_cell: Callable[[int, list], None]) -> None:
        self.book: Any = None
        self.client: Any = None
        self.at = -1
        self.on_cell = on_cell
        self.deadline = time.monotonic() + timeout

    def left(self, _cell: Any = None) -> int:
        return max(1, int(self.deadline - time.monotonic()))  # 0 would mean no limit

    def end_kernel(self) -> None:
        """Kill the kernel. Asking it to shut down would wait five seconds for a busy one."""
        provisioner = getattr(getattr(self.client, "km", None), "provisioner", None)
        if getattr(provisioner, "pid", None):
            with contextlib.suppress(ProcessLookupError):
                os.kill(provisioner.pid, signal.SIGKILL)


class _Manager(NotebookExecutionManager):
    watch: _Watch

    def cell_start(self, cell: Any, cell_index: Any = None, **kwargs: Any) -> None:
        self.watch.at = cell_index
        self.watch.on_cell(cell_index, self.nb.cells)
        super().cell_start(cell, cell_index, **kwargs)


class _Kernel(AsyncKernelManager):
    """Before it asks a kernel to shut down, jupyter_client interrupts it. One that is just reading a message then says
    so in the terminal, as an error. Nothing here needs it: a busy kernel is killed."""

    async def _async_interrupt_kernel(self) -> None:
        pass

    interrupt_kernel = _async_interrupt_kernel


class _Client(PapermillNotebookClient):
    def papermill_execute_cells(self) -> None:
        try:
            super().papermill_execute_cells()
        except BaseException:
            self.nb_man.watch.end_kernel()
            raise


class _Engine(NBClientEngine):
    @classmethod
    def execute_notebook(cls, nb: Any, kernel_name: str, watch: _Watch, **_: Any) -> Any:
        manager = _Manager(nb, progress_bar=False, autosave_cell_every=0)
        manager.watch, watch.book = watch, nb
        watch.client = _Client(
            manager, kernel_manager_class=_Kernel, kernel_name=kernel_name, log=logger, startup_timeout=60,
            timeout_func=watch.left,
            config=Config(KernelManager={"transport_encryption": "auto"}))  # what cells say goes over loopback ports
        manager.notebook_start()
        try:
            watch.client.execute()
        finally:
            manager.notebook_complete()
        return manager.nb


papermill_engines.register(ENGINE, _Engine)
