"""Breaks the data behind a notebook's checks, and sees each check red: one that nothing turns red
proves nothing.

What is broken is written down in breaks_….py, a file for each walkthrough (the museum's goes on in
breaks_travel.py). `BREAKS` there names each notebook with its runs; a run is one execution of a
copy of the notebook with a list of breaks that do not hide each other:

    "13_hudi_ingest": [
        Run(Break(
            before="source_rows = outbox.flow.rows(world)",
            code='spark.sql("DELETE FROM datalake.cdc_events WHERE order_id = 10300")',
            red={"lake = source, row by row": "order_id=10300: missing"},
            also=("rows = orders in the input",)), harms="13_hudi_ingest")]

before   text that stands in exactly one cell, code or heading; `code` runs before that cell, and
`back`, if there is
         something to put back, right after it. Both see the notebook's variables.
red      the `what` of each check that must go red, with a text (or several, as a tuple) that its
line must hold: the
         row, the file, the value
         A check against published figures that own data differ from is not red, but shown: its
         texts hold "≠"
also     checks that may go red with them and prove nothing here
harms    the step from which the notebook's walkthrough is cleared after the run, where the
notebook's own clean start
         does not undo the breaks; `values`, beside it, are the notebook's parameters

A break changes data: rows in PostgreSQL, messages, files, tables of the lake, entries of the
catalog, grants. Only where nothing else can, it changes what is asked (`landing.run = lambda *a,
**k: None`). For `check.expect_failure` it makes the refused thing possible.

In the copy a red check is shown and does not stop it; any other error does, and is reported.
`problems` also tells of a check that went red though no break of the run names it, and of one that
was red in no run: a new check needs a break. Every run shows all checks of its notebook, so the
whole list needs no run without breaks. The output that a notebook stores for nbval counts as a
check called "the kept output", and what is printed as its line.
"""

import re
from dataclasses import dataclass, field

import nbformat
from workbench.base.paths import ROOT
from workbench.results import check
from workbench.run import execute
from workbench.walkthroughs import ALL

# A check that fails shows its red line before it raises. One inside `expect_failure` is asked to
# raise, and does.
CONTINUE_ON_RED = """
import functools
from workbench.base.errors import CheckFailed as _CheckFailed
from workbench.results import check as _check

def _goes_on(call):
    @functools.wraps(call)
    def checked(*args, **kwargs):
        try:
            return call(*args, **kwargs)
        except _CheckFailed:
            if _check._quiet.get():
                raise
    return checked

for _name in set(_check.__all__) - {"MIME"}:
    setattr(_check, _name, _goes_on(getattr(_check, _name)))
"""


# of a notebook that stores what a cell prints; nbval compares it, a break changes it
STORED_OUTPUT = "the kept output"


@dataclass(frozen=True)
class Break:
    """One change of the data behind checks; the module's docstring tells each field."""

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
    """What the runs of a notebook have shown so far."""

    checks: set = field(default_factory=set)
    red: set = field(default_factory=set)
    problems: list = field(default_factory=list)


def find_problems(world, name, runs, tmp_path):
    """Execute the runs of a notebook; return what is not as it should be, one sentence each."""
    seen = Observations()
    (path,) = (ROOT / "notebooks").rglob(f"{name}.ipynb")
    for number, run in enumerate(runs, 1):
        lines, errors = _execute_with_breaks(path, run, tmp_path)
        seen.problems += [
            f"run {number}: {problem}" for problem in [*errors, *_find_differences(run, lines)]
        ]
        seen.checks |= {line["what"] for line in lines}
        seen.red |= {what for one in run.breaks for what in one.red}
        if run.reset_from:
            (walkthrough,) = (each for each in ALL if each.folder == path.parent)
            walkthrough.reset(world, run.reset_from)
    never = [f"no break turns this check red: {what}" for what in sorted(seen.checks - seen.red)]
    return seen.problems + never


def has_anchor(source, before):
    """Return whether a cell holds an anchor's text, apart from the formatter's additions.

    The formatter adds line breaks, commas before a closing bracket, and parentheses.
    """
    return _unformatted(before) in _unformatted(source)


def _unformatted(code):
    without_breaks = re.sub(r"\s+", "", code)
    return re.sub(r"[(),]", "", without_breaks)


def _find_differences(run, lines):
    """What the lines of a run say that its breaks do not."""
    expected = {
        what: (text,) if isinstance(text, str) else text
        for b in run.breaks
        for what, text in b.red.items()
    }
    allowed = {*expected, *(what for b in run.breaks for what in b.also_red)}
    said = {line["what"]: check.as_text(line) for line in lines if not line["ok"]}
    found = [
        f"red, and no break names it: {text}" for what, text in said.items() if what not in allowed
    ]
    for what, texts in expected.items():
        if what not in said:
            shown = what in {line["what"] for line in lines}
            found.append(f"{'did not go red' if shown else 'was not shown at all'}: {what}")
        found += [
            f"does not say {text!r}: {said[what]}"
            for text in texts
            if what in said and text not in said[what]
        ]
        if said.get(what, "").startswith("≠") and "≠" not in texts:
            found.append(f"shown, and not red: {said[what]}")
    whats = [line["what"] for line in lines]
    return found + [
        f"two checks of one name: {what}"
        for what in sorted({w for w in whats if whats.count(w) > 1})
    ]


def _execute_with_breaks(path, run, tmp_path):
    """Execute a copy of a notebook with the run's breaks in it; return the lines of its checks, and
    its errors."""
    book = nbformat.read(path, as_version=4)
    for one in run.breaks:
        at = [i for i, cell in enumerate(book.cells) if has_anchor(cell.source, one.before)]
        if len(at) != 1:
            return [], [f"{len(at)} cells hold {one.before!r}; it has to be one"]
        if one.undo:
            book.cells.insert(at[0] + 1, nbformat.v4.new_code_cell(one.undo))
        book.cells.insert(at[0], nbformat.v4.new_code_cell(one.code))
    kept = [
        (cell.id, _stdout(cell))
        for cell in book.cells
        if "keep_output" in cell.metadata.get("tags", [])
    ]
    parameters = next(
        i for i, cell in enumerate(book.cells) if "parameters" in cell.metadata.get("tags", [])
    )
    book.cells.insert(parameters + 1, nbformat.v4.new_code_cell(CONTINUE_ON_RED))
    changed = tmp_path / path.name
    nbformat.write(book, changed)
    done = execute.execute_notebook(changed, {"world": "local", **run.parameters})
    printed = {cell.id: _stdout(cell) for cell in done.notebook.cells if cell.cell_type == "code"}
    outputs = [o for cell in done.notebook.cells if cell.cell_type == "code" for o in cell.outputs]
    errors = [f"{o.ename}: {o.evalue}" for o in outputs if o.output_type == "error"]
    lines = [o["data"][check.MIME] for o in outputs if check.MIME in o.get("data", {})]
    lines += [
        {
            "ok": printed[id] == text,
            "what": STORED_OUTPUT,
            "left": "printed",
            "right": "stored",
            "left_label": "output",
            "right_label": "output",
            "detail": printed[id],
        }
        for id, text in kept
    ]
    return lines, [*errors, *([done.reason] if done.reason else [])]


def _stdout(cell):
    return "".join(o["text"] for o in cell.outputs if o.output_type == "stream")
