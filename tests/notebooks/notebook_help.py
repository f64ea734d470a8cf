"""Running notebooks in tests: tracks, copies with one more cell, and what a red run says."""

import json
import os
from pathlib import Path

import nbformat
from workbench import connect
from workbench.base import secrets
from workbench.base.paths import ROOT
from workbench.run import execute, runner
from workbench.topic import topics
from workbench.tracks import moma

NOTEBOOKS = ROOT / "notebooks"
FIRST_TRACKS = ("00_start_here", "10_outbox")
MUSEUM_TRACKS = ("50_time_travel", "90_your_own")  # notebook 92 explores the museum's tables
OPERATIONS = "80_operations"
TEARDOWN = "99_teardown"


def failures(result):
    """What a reader of a red run looks for, as text: pytest shortens the message of an assert if it
    is a list."""
    lines = []
    for notebook in result.notebooks:
        error = notebook.error or {}
        if notebook.status != "passed":
            lines.append(f"{notebook.path} {notebook.status} in {error.get('section')!r}")
            lines.append(f"{error.get('name', '')}: {error.get('message', '')}")
            lines += str(error.get("traceback") or "").splitlines()[-20:]
    return "\n".join(lines)


def execute_changed(name, cell, *, before="## Check", **values):
    """Execute a copy of a notebook with one more cell; return the texts of its errors."""
    (path,) = NOTEBOOKS.rglob(f"{name}.ipynb")
    book = nbformat.read(path, as_version=4)
    at = next(
        i
        for i, c in enumerate(book.cells)
        if c.cell_type == "markdown" and c.source.startswith(before)
    )
    book.cells.insert(at, nbformat.v4.new_code_cell(cell))
    return book, values


def errors(book, values, tmp_path):
    path = tmp_path / "changed.ipynb"
    nbformat.write(book, path)
    done = execute.execute_notebook(path, {"world": "local", **values})
    return [
        o.evalue
        for c in done.notebook.cells
        if c.cell_type == "code"
        for o in c.outputs
        if o.output_type == "error"
    ]


def check_refused_first(world, tmp_path, track, count_rows, name, given):
    """A parameter that cannot be used is refused before anything is removed.

    Past the runner, as papermill or a person in JupyterLab would: the set-up cell looks before the next one clears.
    """

    def what_is_there():
        lake = track.resources.remaining(world)["tables in the lake"]
        return [connect.names(world), topics.names(world), lake, count_rows()]

    before = what_is_there()
    (tmp_path / "files").mkdir()
    header = (moma.DATA / "Artists.csv").read_text(encoding="utf-8").split()[0]
    (tmp_path / "files" / "Artists.csv").write_text(
        f"{header}\n1,Robert Arneson,American,male,c. 1930,1992\n"
    )
    header = (moma.DATA / "Artworks.csv").read_text(encoding="utf-8").partition("\n")[0]
    (tmp_path / "files" / "Artworks.csv").write_text(f"{header}\n")
    (tmp_path / "files" / "northwind.sql").write_text(
        "CREATE TABLE orders (order_id smallint);\nSELECT 1;\n"
    )
    given = {k: str(tmp_path / v) if k == "from_dir" else v for k, v in given.items()}
    (path,) = NOTEBOOKS.rglob(f"{name}.ipynb")
    (seen,) = errors(nbformat.read(path, as_version=4), given, tmp_path)
    assert any(
        text in seen
        for text in ("does not exist", "c. 1930", "scale is", "'bogus'", "must not contain")
    ), seen
    assert what_is_there() == before


def holding_a_secret(folder):
    """Files below the run's folder in which the value of a secret stands."""
    values = [v.encode() for v in secrets.read().values()]
    paths = [p for p in folder.rglob("*") if p.is_file()]
    assert len(values) >= 2 and len(paths) >= 3
    return [str(p.relative_to(folder)) for p in paths if any(v in p.read_bytes() for v in values)]


def picture_faults():
    """Texts that overlap or leave the canvas in the pictures that kernels have shown (help/kernel_startup.py)."""
    path = Path(os.environ["WORKBENCH_PICTURE_FAULTS"])
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def check_track(name):
    """Run a track, which has to pass with all its checks, keep secrets, show its pictures without a fault in their texts,
    and print its kept tables.

    What it leaves is what the next tests begin with.
    """
    result = runner.run([name], "local", progress=False)
    assert result.status == "passed", failures(result)
    assert result.report.stat().st_size > 10_000
    notebooks = json.loads((result.folder / "run.json").read_text())["notebooks"]
    assert all(n["checks"] and all(c["ok"] for c in n["checks"]) for n in notebooks)
    assert holding_a_secret(result.folder) == []
    assert picture_faults() == []
    for path in kept_tables():
        if path.startswith(f"{name}/"):
            copy = result.folder / "notebooks" / path
            assert printed(copy) == printed(NOTEBOOKS / path), path
            assert KEPT[path] in printed(copy), path


KEPT = {
    "10_outbox/15_dashboard.ipynb": "RICSU",
    "50_time_travel/56_time_travel.ipynb": "Gerhard M. Bakker",
}


def kept_tables():
    """The notebooks in which nbval compares an output."""
    return {
        p.relative_to(NOTEBOOKS).as_posix()
        for p in NOTEBOOKS.rglob("*.ipynb")
        if "NBVAL_CHECK_OUTPUT" in p.read_text(encoding="utf-8")
    }


def reference_cell(book):
    (cell,) = [c for c in book.cells if c.cell_type == "code" and "NBVAL_CHECK_OUTPUT" in c.source]
    return cell


def printed(path):
    """What the reference table's cell of a notebook holds as its output."""
    outputs = reference_cell(nbformat.read(path, as_version=4)).outputs
    return "".join(output["text"] for output in outputs if output.output_type == "stream")
