"""A service is killed under a waiting step of a notebook: the notebook ends in time with an error
that names it. When the service runs again, the same notebook passes."""

import time
from typing import NamedTuple

import nbformat
import pytest
from workbench import stack
from workbench.base.paths import ROOT
from workbench.run import execute

LIMIT = 20  # seconds from the kill until the execution has ended, with the kernel's own end in them
KILLED = """
import sys
import time
from pathlib import Path

sys.path.insert(0, {tests!r})
from lake_help import kill_service


def killed(service):
    Path({noted!r}).write_text(str(time.time()))
    kill_service(service)
"""


class Case(NamedTuple):
    """notebook; service: that is killed before the line that begins with `line`; first: a statement
    before the kill;
    without: headings, the first and the first behind, between which no cell is executed: the step
        needs none of it."""

    notebook: str
    service: str
    line: str
    first: str = "pass"
    without: tuple = ()


CASES = [
    Case(
        "44_compatibility",
        "kafka",
        'check.eventually("the pending change arrives"',
        without=("## 2. Nine changes", "## 4. A mode"),
    ),
    Case(
        "45_dead_letters",
        "kafka",
        'check.eventually("the sink in Connect has written"',
        "rows += 1",
    ),  # one more than it will write: it may be done before Kafka is killed
    Case("73_disturbances", "orders", "load.run("),
    Case("73_disturbances", "postgres", "load.run("),
    Case("74_outbox", "connect", "check.expect_failure(claim, lambda: change_email("),
    Case("74_outbox", "postgres", "load.run(world, operations)"),
]


def original(case):
    (path,) = (ROOT / "notebooks").rglob(f"{case.notebook}.ipynb")
    return path


def changed(case, noted):
    """A copy of the notebook in which the service is killed."""
    book = nbformat.read(original(case), as_version=4)
    if case.without:
        begin, end = (
            next(i for i, c in enumerate(book.cells) if text in c.source) for text in case.without
        )
        del book.cells[begin:end]
    ((cell, line),) = (
        (c, line)
        for c in book.cells
        for line in c.source.splitlines()
        if c.cell_type == "code" and line.strip().startswith(case.line)
    )
    space = line[: len(line) - len(line.lstrip())]
    cell.source = cell.source.replace(
        line, f'{space}{case.first}\n{space}killed("{case.service}")\n{line}'
    )
    parameters = next(
        i for i, c in enumerate(book.cells) if "parameters" in c.metadata.get("tags", [])
    )
    code = KILLED.format(tests=str(ROOT / "tests" / "stack"), noted=str(noted))
    book.cells.insert(parameters + 1, nbformat.v4.new_code_cell(code))
    return book


def errors(path):
    """What ended the execution of a notebook; nothing where it passed."""
    done = execute.execute_notebook(path, {"world": "local"})
    outputs = [o for cell in done.notebook.cells if cell.cell_type == "code" for o in cell.outputs]
    return [f"{o.ename}: {o.evalue}" for o in outputs if o.output_type == "error"] + (
        [done.reason] if done.reason else []
    )


@pytest.mark.drill
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.notebook}-{case.service}")
def test_a_notebook_names_a_killed_service_in_time_and_passes_when_it_is_repeated(
    world, tmp_path, case
):
    path, noted = tmp_path / "changed.ipynb", tmp_path / "killed"
    nbformat.write(changed(case, noted), path)
    try:
        seen = errors(path)
        ended = time.time()
        assert noted.exists(), seen
        seconds = ended - float(noted.read_text())
        print(f"{case.notebook}, {case.service}: named after {seconds:.1f} s")
        assert len(seen) == 1 and seen[0].startswith(
            f"ServiceLost: the service {case.service} died"
        ), seen
        assert seconds < LIMIT, f"{seconds:.1f} s"
    finally:
        stack.ensure_running(world, "postgres", "kafka", "connect")
    assert errors(original(case)) == []
