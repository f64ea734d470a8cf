"""Execute one notebook headless with papermill, in a new kernel of this environment (see `kernels`).

`runner` executes several notebooks. This module writes no files; the runner masks secrets before it
writes the executed notebooks.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from papermill.engines import NBClientEngine
from papermill.iorw import load_notebook_node
from papermill.log import logger
from papermill.parameterize import parameterize_notebook
from traitlets.config import Config

from .kernels import KernelManager


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


def execute_notebook(
    path: Path,
    values: dict[str, Any],
    timeout: float = 600,
    on_cell: Callable[[int, list[Any]], None] = lambda index, cells: None,
) -> ExecutionResult:
    """Execute a notebook; the working directory is the folder of the notebook.

    Args:
        path: the notebook.
        values: {parameter: value}, injected below the parameters cell as papermill does.
        timeout: seconds for the whole notebook.
        on_cell: called before each cell, with its index and the list of all cells.

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
        NBClientEngine.execute_notebook(
            notebook,
            "python3",
            progress_bar=False,
            kernel_manager_class=KernelManager,
            on_cell_start=on_cell_start,
            shutdown_kernel="immediate",  # a graceful shutdown waits five seconds for a busy kernel
            timeout_func=remaining_seconds,
            resources={"metadata": {"path": str(path.parent)}},
            # encrypts the messages of the kernel, which pass through loopback ports
            config=Config(KernelManager={"transport_encryption": "auto"}),
        )
    except KeyboardInterrupt:
        result.interrupted, result.reason = True, "stopped by the user"
    except TimeoutError:
        result.reason = f"the notebook took longer than {timeout:g} s and was ended"
    except Exception as e:  # noqa: BLE001 - a kernel fails in many ways; none of them ends the run
        result.reason = f"{type(e).__name__}: {e}"
        if "Kernel died" in str(e):
            result.reason = "the kernel died: its process was killed, ran out of memory, or crashed"
    last = notebook.cells[result.last_cell]
    outputs = last.get("outputs", [])
    is_failed = last.metadata.get("papermill", {}).get("exception")
    if is_failed and not any(output.output_type == "error" for output in outputs):
        # IPython prints an error in the use of a magic, such as an unknown one
        result.reason = "".join(output.get("text", "") for output in outputs).strip()
    return result
