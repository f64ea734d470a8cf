"""Execute one notebook headless with papermill, in a new kernel of this environment.

`runner` executes several notebooks. This module writes no files; the runner masks secrets before it
writes the executed notebooks. So it calls papermill's engine: `papermill.execute_notebook` loses
the outputs of a notebook that fails, unless it writes them to a file.
"""

import re
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Optional

from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine
from papermill.iorw import load_notebook_node
from papermill.log import logger
from papermill.parameterize import parameterize_notebook

from ..checks.check import MIME
from . import kernels, notebooks


@dataclass
class ExecutionResult:
    """The result of executing a notebook.

    Attributes:
        notebook: the notebook with its outputs.
        last_cell: index of the last started cell; -1 if none was started.
        reason: why the execution ended early, "" if it was complete.
        interrupted: whether the user ended the execution.
    """

    notebook: Any
    last_cell: int = -1
    reason: str = ""
    interrupted: bool = False

    def located_cells(self) -> list[tuple[dict[str, Any], Any]]:
        """Return each cell after its location, {"cell": index, "section": heading above it}."""
        cells = self.notebook.cells
        return [
            ({"cell": index, "section": section}, cells[index])
            for index, section in enumerate(notebooks.sections(cells))
        ]

    def failure(self) -> Optional[dict[str, Any]]:
        """Return why the notebook failed, None if it passed.

        The reason is an early end, or else the first error or failed check, also one that the
        notebook caught.

        Returns:
            The location and the source of the cell, name, message and traceback. The location of an
            early end before the first cell is None.
        """
        located = self.located_cells()
        if self.reason:
            early_end = {"name": "", "message": self.reason}
            if self.last_cell < 0:
                return {"cell": None, **early_end}
            location, cell = located[self.last_cell]
            return {**location, "source": cell.source, **early_end}
        for location, cell in located:
            error = _error(cell)
            if error:
                return {**location, "source": cell.source, **error}
        return None


def _error(cell: Any) -> Optional[dict[str, Any]]:
    """Return the error of a cell, or else its first failed check."""
    may_fail = "raises-exception" in cell.metadata.get("tags", [])  # Jupyter's tag
    for output in cell.get("outputs", []):
        if output.output_type == "error" and not may_fail:
            traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output.traceback))
            return {"name": output.ename, "message": output.evalue, "traceback": traceback}
    for check in checks(cell):
        if check["ok"] is False:
            message = f"check failed: {check['what']}"
            return {"name": "CheckFailed", "message": message, "traceback": check["detail"]}
    return None


def checks(cell: Any) -> list[dict[str, Any]]:
    """Return the results of the checks in the outputs of a cell."""
    return [o["data"][MIME] for o in cell.get("outputs", []) if MIME in o.get("data", {})]


class _Engine(Engine):  # type: ignore[misc]
    """Papermill's engine for a kernel that is running already; the client shuts it down."""

    @classmethod
    def execute_managed_notebook(cls, managed: Any, kernel_name: str, **options: Any) -> None:
        client = PapermillNotebookClient(managed, kernel_name=kernel_name, log=logger, **options)
        client.owns_km = True
        client.execute()


def execute_notebook(
    path: Path,
    values: dict[str, Any],
    timeout: float = 600,
    on_cell: Callable[[int, list[Any]], None] = lambda index, cells: None,
    on_stderr: Callable[[str], object] = str,
    start_kernel: Callable[[Path], AsyncKernelManager] = kernels.start,
) -> ExecutionResult:
    """Execute a notebook; the working directory is the folder of the notebook.

    Args:
        path: the notebook.
        values: {parameter: value}, injected below the parameters cell as papermill does.
        timeout: seconds for the whole notebook.
        on_cell: called before each cell, with its index and the list of all cells.
        on_stderr: called with what the notebook writes to standard error, while it does; by default
            nothing comes of it.
        start_kernel: returns the manager of the kernel for the notebook; this function ends it.

    Returns:
        The result. The error of a cell is in its outputs. `reason` has any other failure: a timeout,
        an interrupt, or a kernel that died.
    """
    deadline = time.monotonic() + timeout
    logger.setLevel("CRITICAL")  # papermill's messages repeat what the runner reports
    notebook = parameterize_notebook(
        load_notebook_node(str(path)), values, kernel_name="python3", language="python"
    )
    result = ExecutionResult(notebook)

    def on_cell_start(cell: Any, cell_index: int) -> None:
        result.last_cell = cell_index
        on_cell(cell_index, notebook.cells)

    def remaining_seconds(cell: Any) -> int:
        return max(1, int(deadline - time.monotonic()))  # 0 means no limit

    try:
        _Engine.execute_notebook(
            notebook,
            "python3",
            progress_bar=False,
            km=start_kernel(path),
            on_cell_start=on_cell_start,
            stderr_file=SimpleNamespace(write=on_stderr, flush=lambda: None),
            shutdown_kernel="immediate",  # a graceful shutdown waits five seconds for a busy kernel
            timeout_func=remaining_seconds,
        )
    except KeyboardInterrupt:
        result.interrupted, result.reason = True, "stopped by the user"
    except TimeoutError:
        result.reason = f"the notebook took longer than {timeout:g} s and was ended"
    except DeadKernelError:
        result.reason = "the kernel died: its process was killed, ran out of memory, or crashed"
    except Exception as e:  # noqa: BLE001 - a kernel fails in many ways; none of them ends the run
        result.reason = f"{type(e).__name__}: {e}"
    last = notebook.cells[result.last_cell]
    outputs = last.get("outputs", [])
    is_failed = last.metadata.get("papermill", {}).get("exception")
    if is_failed and not any(output.output_type == "error" for output in outputs):
        # IPython prints an error in the use of a magic, such as an unknown one
        result.reason = "".join(output.get("text", "") for output in outputs).strip()
    return result
