"""Break the data behind a notebook's checks, and see each check fail.

A check that no break turns red proves nothing. The breaks are in breaks_….py, one file for each
walkthrough (those of the museum continue in breaks_travel.py). `BREAKS` there has the runs of each
notebook. A run executes a copy of the notebook with breaks that do not hide each other:

    "13_hudi_ingest": [
        Run(Break(
            before="source_rows = outbox.flow.rows(world)",
            code='spark.sql("DELETE FROM datalake.cdc_events WHERE order_id = 10300")',
            red={"lake = source, row by row": "order_id=10300: missing"},
            also_red=("rows = orders in the input",)), reset_from="13_hudi_ingest")]

before      text of exactly one cell, code or heading; `code` runs before this cell
undo        code that runs right after the cell, to restore the data. Both codes have the notebook's
            variables
red         {claim of a check that must go red: a text (or several, as a tuple) that its line must
            contain: the row, the file, the value}. A check against published figures from which
            other data differ is not red, but shown: its texts contain "≠"
also_red    claims of checks that may go red, too, and prove nothing here
reset_from  the step from which the track is reset after the run, if the notebook's own clean
            start does not undo the breaks; or the name of the track, for all of it
parameters  parameters of the notebook

A break changes data: rows in PostgreSQL, messages, files, tables of the lake, entries of the
catalog, grants. Only if nothing else can, it changes a function (`landing.run = lambda *a, **k:
None`). For `check.expect_failure` it makes the refused operation possible.

In the copy a red check is shown, but does not stop the notebook. Any other error does, and is
reported. `find_problems` also reports a check that went red although no break of the run names it,
and one that was red in no run: a new check needs a break. Each run shows all checks of its notebook,
so no run without breaks is needed. The output that a notebook stores for nbval counts as a check
with the claim "the kept output"; its line is the printed text.
"""

import re
from dataclasses import dataclass, field

import nbformat
from workbench.base.paths import ROOT
from workbench.checks import check
from workbench.run import execute
from workbench.tracks import ALL, reset

# each table is read without its last row, in the order of its record keys
SHORTER = """
_read = hudi.read


def _shorter(spark, table):
    rows = _read(spark, table)
    return rows.orderBy("_hoodie_record_key").limit(max(0, rows.count() - 1))


hudi.read = _shorter"""
WHOLE = "hudi.read = _read"
# A failing check shows its red line before it raises. Inside `expect_failure` it must raise.
CONTINUE_ON_RED = """
import functools
from workbench.base.errors import CheckFailed as _CheckFailed
from workbench.checks import check as _check

def _continue_on_red(call):
    @functools.wraps(call)
    def checked(*args, **kwargs):
        try:
            return call(*args, **kwargs)
        except _CheckFailed:
            if _check._quiet.get():
                raise
    return checked

for _name in set(_check.__all__) - {"MIME"}:
    setattr(_check, _name, _continue_on_red(getattr(_check, _name)))
"""


# claim for the stored output of cells; nbval compares it, and a break changes it
STORED_OUTPUT = "the kept output"


@dataclass(frozen=True)
class Break:
    """One change of the data behind checks; the module's docstring describes the fields."""

    before: str
    code: str
    red: dict
    undo: str = ""
    also_red: tuple = ()


class Run:
    """One execution of a notebook with breaks that do not hide each other."""

    def __init__(self, *breaks: Break, reset_from: str = "", parameters: dict = None) -> None:
        self.breaks, self.reset_from, self.parameters = breaks, reset_from, parameters or {}


@dataclass
class Observations:
    """The checks and problems of the runs of a notebook."""

    checks: set = field(default_factory=set)
    red: set = field(default_factory=set)
    problems: list = field(default_factory=list)


def find_problems(world, name, runs, tmp_path):
    """Execute the runs of a notebook, and return the problems, one sentence each."""
    observations = Observations()
    (path,) = (ROOT / "notebooks").rglob(f"{name}.ipynb")
    for number, run in enumerate(runs, 1):
        lines, errors = _execute_with_breaks(path, run, tmp_path)
        observations.problems += [
            f"run {number}: {problem}" for problem in [*errors, *_find_differences(run, lines)]
        ]
        observations.checks |= {line["what"] for line in lines}
        observations.red |= {what for one in run.breaks for what in one.red}
        if run.reset_from:
            (track,) = (each for each in ALL if each.folder == path.parent)
            reset(world, track, since="" if run.reset_from == track.name else run.reset_from)
    unbroken = sorted(observations.checks - observations.red)
    return observations.problems + [f"no break turns this check red: {what}" for what in unbroken]


def has_anchor(source, before):
    """Return whether a cell holds an anchor's text, apart from the formatter's additions.

    The formatter adds line breaks, commas before a closing bracket, and parentheses.
    """
    return _unformatted(before) in _unformatted(source)


def _unformatted(code):
    without_breaks = re.sub(r"\s+", "", code)
    return re.sub(r"[(),]", "", without_breaks)


def _find_differences(run, lines):
    """Return the differences between the lines of a run and the expectations of its breaks."""
    expected = {claim: text for one in run.breaks for claim, text in one.red.items()}
    allowed = {*expected, *(claim for one in run.breaks for claim in one.also_red)}
    claims = [line["what"] for line in lines]
    red = {line["what"]: check.as_text(line) for line in lines if not line["ok"]}
    problems = [
        f"red, and no break names it: {text}" for claim, text in red.items() if claim not in allowed
    ]
    for claim, texts in expected.items():
        texts = (texts,) if isinstance(texts, str) else texts
        if claim not in red:
            problem = "did not go red" if claim in claims else "was not shown at all"
            problems.append(f"{problem}: {claim}")
            continue
        line = red[claim]
        problems += [f"does not contain {text!r}: {line}" for text in texts if text not in line]
        if line.startswith("≠") and "≠" not in texts:
            problems.append(f"shown, and not red: {line}")
    repeated = sorted({claim for claim in claims if claims.count(claim) > 1})
    return problems + [f"two checks with the same claim: {claim}" for claim in repeated]


def _execute_with_breaks(path, run, tmp_path):
    """Execute a copy of a notebook with the breaks of a run.

    Returns:
        The lines of its checks, and its errors.
    """
    book = nbformat.read(path, as_version=4)
    for one in run.breaks:
        anchors = [i for i, cell in enumerate(book.cells) if has_anchor(cell.source, one.before)]
        if len(anchors) != 1:
            return [], [f"{len(anchors)} cells contain {one.before!r}, and not exactly one"]
        (anchor,) = anchors
        if one.undo:
            book.cells.insert(anchor + 1, nbformat.v4.new_code_cell(one.undo))
        book.cells.insert(anchor, nbformat.v4.new_code_cell(one.code))
    stored = {cell.id: _stdout(cell) for cell in book.cells if _has_tag(cell, "keep_output")}
    parameters = next(i for i, cell in enumerate(book.cells) if _has_tag(cell, "parameters"))
    book.cells.insert(parameters + 1, nbformat.v4.new_code_cell(CONTINUE_ON_RED))
    copy = tmp_path / path.name
    nbformat.write(book, copy)
    result = execute.execute_notebook(copy, {"world": "local", **run.parameters})
    cells = [cell for cell in result.notebook.cells if cell.cell_type == "code"]
    printed = {cell.id: _stdout(cell) for cell in cells}
    outputs = [output for cell in cells for output in cell.outputs]
    errors = [f"{o.ename}: {o.evalue}" for o in outputs if o.output_type == "error"]
    lines = [o["data"][check.MIME] for o in outputs if check.MIME in o.get("data", {})]
    for id, text in stored.items():
        line = {"ok": printed[id] == text, "what": STORED_OUTPUT, "detail": printed[id]}
        sides = {"left": "printed", "right": "stored"}
        labels = {"left_label": "output", "right_label": "output"}
        lines.append({**line, **sides, **labels})
    return lines, [*errors, *([result.reason] if result.reason else [])]


def _has_tag(cell, tag):
    return tag in cell.metadata.get("tags", [])


def _stdout(cell):
    return "".join(o["text"] for o in cell.outputs if o.output_type == "stream")
