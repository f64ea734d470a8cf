"""Every notebook, executed: in order, alone, twice, on other data; and red when what it checks is
broken."""

import csv
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from workbench import connect, stack, walkthroughs
from workbench.base import params, paths, secrets
from workbench.base.paths import ROOT
from workbench.run import execute, runner
from workbench.source import postgres
from workbench.topic import topics
from workbench.walkthroughs import log_based, moma, museum, northwind, outbox, query_based

NOTEBOOKS = ROOT / "notebooks"
TRACK = ["11_source_database", "12_connectors", "13_hudi_ingest", "14_changes", "15_dashboard"]


@pytest.fixture(autouse=True)
def runs_elsewhere(tmp_path, monkeypatch):
    """Executed notebooks and reports of tests do not land among a person's own."""
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path / "runs"))


def failures(result):
    """What a reader of a red run looks for, as text: pytest shortens the message of an assert if it
    is a list."""
    lines = []
    for notebook in result.notebooks:
        error = notebook.get("error") or {}
        if notebook["status"] != "passed":
            lines.append(f"{notebook['path']} {notebook['status']} in {error.get('section')!r}")
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


def holding_a_secret(folder):
    """Files below the run's folder in which the value of a secret stands."""
    values = [v.encode() for v in secrets.read().values()]
    paths = [p for p in folder.rglob("*") if p.is_file()]
    assert len(values) >= 2 and len(paths) >= 3
    return [str(p.relative_to(folder)) for p in paths if any(v in p.read_bytes() for v in values)]


SERIES = sorted({path.relative_to(NOTEBOOKS).parts[0] for path in NOTEBOOKS.rglob("[0-9]*.ipynb")})
SERIES = [name.removesuffix(".ipynb") for name in SERIES if name != "99_teardown.ipynb"]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SERIES)
def test_the_series_passes(world, name):
    """What it leaves is what the next tests begin with; the last one tears it down."""
    result = runner.run([name], "local", progress=False)
    assert result.status == "passed", failures(result)
    assert result.report.stat().st_size > 10_000
    notebooks = json.loads((result.folder / "run.json").read_text())["notebooks"]
    assert all(n["checks"] and all(c["ok"] for c in n["checks"]) for n in notebooks)
    assert holding_a_secret(result.folder) == []
    for path in kept_tables():
        if path.startswith(f"{name}/"):
            copy = result.folder / "notebooks" / path
            assert printed(copy) == printed(NOTEBOOKS / path), path
            assert KEPT[path] in printed(copy), path


KEPT = {
    "10_outbox/15_dashboard.ipynb": "RICSU",
    "50_time_travel/56_time_travel.ipynb": "Gerhard M. Bakker",
}


def test_each_kept_table_is_compared():
    assert kept_tables() == set(KEPT)


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


@pytest.mark.drill
@pytest.mark.parametrize(
    "name", [p.stem for p in sorted((NOTEBOOKS / "10_outbox").glob("*.ipynb"))]
)
def test_a_notebook_runs_alone_on_an_empty_stack_and_again(world, name):
    outbox.walkthrough.reset(world, "11_source_database")
    for _ in range(2):
        result = runner.run([name], "local", progress=False)
        assert result.status == "passed", failures(result)
    if name == "14_changes":  # the landed folder holds its changes, several versions of an order
        result = runner.run(["13_hudi_ingest"], "local", progress=False)
        assert result.status == "passed", failures(result)


def nbval(*paths):
    """pytest --nbval-lax: runs the notebooks, and compares the outputs of cells marked
    NBVAL_CHECK_OUTPUT."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
        "--nbval-lax",
        "--nbval-current-env",
        "--nbval-cell-timeout",
        "600",
        *map(str, paths),
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)


@pytest.mark.drill
def test_nbval_compares_the_reference_tables(world, tmp_path):
    """As a person runs it; test_the_series_passes compares them in the copies that it has executed
    anyway."""
    kept = [NOTEBOOKS / path for path in kept_tables()]
    book = nbformat.read(NOTEBOOKS / min(KEPT), as_version=4)
    cell = reference_cell(book)
    cell.outputs[0]["text"] = "another table\n"
    book.cells = book.cells[
        : book.cells.index(cell) + 1
    ]  # what comes after it would only cost time
    wrong = tmp_path / "wrong.ipynb"
    nbformat.write(book, wrong)
    done = nbval(*kept)
    assert done.returncode == 0, done.stdout[-3000:]
    done = nbval(wrong)
    assert done.returncode == 1 and "another table" in done.stdout, done.stdout[-3000:]


OTHERS = {
    path.stem: each
    for each in walkthroughs.ALL
    if each is not outbox.walkthrough
    for path in sorted(each.steps.folder.glob("*.ipynb"))
}


@pytest.mark.drill
@pytest.mark.parametrize("name", OTHERS)
def test_a_notebook_of_another_walkthrough_runs_alone_on_an_empty_stack_and_again(
    world, name, tmp_path
):
    stack.ensure_running(world, *OTHERS[name].steps.services)
    OTHERS[name].reset(world)
    for _ in range(2):  # what it changed is set back by itself
        result = runner.run([name], "local", progress=False)
        assert result.status == "passed", failures(result)
    kill_halfway(name, tmp_path)
    result = runner.run([name], "local", progress=False)
    assert result.status == "passed", failures(result)


def kill_halfway(name, tmp_path):
    """Execute a notebook whose kernel is killed after half of its cells."""
    (path,) = NOTEBOOKS.rglob(f"{name}.ipynb")
    book = nbformat.read(path, as_version=4)
    kill = nbformat.v4.new_code_cell("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    book.cells.insert(len(book.cells) // 2, kill)
    nbformat.write(book, tmp_path / "killed.ipynb")
    done = execute.execute_notebook(tmp_path / "killed.ipynb", {"world": "local"})
    assert done.reason and done.notebook.cells[done.last_cell].source == kill.source, done.reason


@pytest.mark.drill
def test_both_film_rentals_twice_in_a_row(world):
    """The second time each finds the other's connectors and topics beside its own."""
    for _ in range(2):
        result = runner.run(["20_query_based_cdc", "30_log_based_cdc"], "local", progress=False)
        assert result.status == "passed", failures(result)


@pytest.mark.drill
@pytest.mark.skipif(
    "PAGILA_DIR" not in os.environ, reason="PAGILA_DIR does not name a folder with pagila-data.sql"
)
def test_the_original_film_rental(world):
    result = runner.run(
        ["20_query_based_cdc", "30_log_based_cdc"],
        "local",
        {"from_dir": os.environ["PAGILA_DIR"]},
        progress=False,
    )
    for each in (query_based, log_based):  # the next tests are to begin with the generated rows
        each.walkthrough.reset(world, "source_database")
    assert result.status == "passed", failures(result)


@pytest.mark.drill
def test_the_museum_twice_in_a_row(world):
    stack.ensure_running(world, "apicurio")
    museum.walkthrough.reset(world, "51_source_database")
    for _ in range(2):
        result = runner.run(["50_time_travel"], "local", progress=False)
        assert result.status == "passed", failures(result)


@pytest.mark.drill
def test_the_museum_out_of_landed_files(world):
    """Chosen in 53; the next notebook keeps to it, also when it sets back what it has changed."""
    for name, chosen in (
        ("53_hudi_ingest", {"source": "landed"}),
        *[("54_updates_and_compaction", {})] * 2,
    ):
        result = runner.run([name], "local", chosen, progress=False)
        assert result.status == "passed", failures(result)
        assert {museum.flow.source_kind(world, t) for t in museum.flow.tables(world)} == {"landed"}


@pytest.mark.drill
def test_from_the_other_source(world):
    result = runner.run(["13_hudi_ingest"], "local", {"source": "topic"}, progress=False)
    assert result.status == "passed", failures(result)


def what_is_there(world):
    """Of both walkthroughs: connectors, topics, tables of the lake, rows of the source."""
    rows = [museum.flow.count(world, name) for name in museum.flow.names]
    rows += list(postgres.query(world, "SELECT count(*) AS n FROM orders")["n"])
    return [
        connect.names(world),
        topics.names(world),
        museum.walkthrough.resources.remaining(world)["tables in the lake"],
        outbox.walkthrough.resources.remaining(world)["tables in the lake"],
        rows,
    ]


@pytest.mark.parametrize(
    "name, given",
    [
        ("51_source_database", {"from_dir": "files"}),
        ("11_source_database", {"scale": -1}),
        ("13_hudi_ingest", {"source": "bogus"}),
        *[
            pytest.param(*each, marks=pytest.mark.drill)
            for each in [  # the same of the other notebooks
                ("51_source_database", {"from_dir": "nowhere"}),
                ("51_source_database", {"scale": 0.0}),
                ("53_hudi_ingest", {"source": "bogus"}),
                ("11_source_database", {"from_dir": "nowhere"}),
                ("11_source_database", {"from_dir": "files"}),
            ]
        ],
    ],
)
def test_what_is_given_is_judged_before_anything_is_removed(world, tmp_path, name, given):
    """Past the runner, as papermill or a person in JupyterLab would: the set-up cell looks before
    the next one clears."""
    before = what_is_there(world)
    (tmp_path / "files").mkdir()
    header = ",".join(column for column, _ in moma.FILES["artists"].columns.values())
    (tmp_path / "files" / "Artists.csv").write_text(
        f"{header}\n1,Robert Arneson,American,male,c. 1930,1992\n"
    )
    header = ",".join(column for column, _ in moma.FILES["artworks"].columns.values())
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
    assert what_is_there(world) == before


LEAK = """
from workbench.base import secrets
from workbench.checks import check
values = secrets.read()
print(*values.values())
check.equal("secrets", sorted(values.values()), sorted(values.values()))
"""
RAISE = 'raise RuntimeError("refused: " + " ".join(values.values()))'


def test_a_secret_that_a_notebook_prints_is_masked(world, tmp_path, monkeypatch):
    """Printed, in a check's line, in an error with its traceback: dots in the copy, in run.json and
    in the report."""
    parameters = nbformat.v4.new_code_cell('world = "local"', metadata={"tags": ["parameters"]})
    book = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# Leak"),
            parameters,
            nbformat.v4.new_code_cell(LEAK),
            nbformat.v4.new_code_cell(RAISE),
        ]
    )
    (tmp_path / "root" / "notebooks").mkdir(parents=True)
    nbformat.write(book, tmp_path / "root" / "notebooks" / "leak.ipynb")
    with monkeypatch.context() as patch:
        patch.setattr(paths, "ROOT", tmp_path / "root")  # the kernel has the real one
        patch.setattr(params, "load", lambda name: world)
        result = runner.run(["leak"], "local", progress=False)
    assert result.status == "failed" and "refused" in failures(result)
    copy = result.folder / "notebooks" / "leak.ipynb"
    for path in (copy, result.folder / "run.json", result.report):
        assert secrets.MASK in path.read_text(encoding="utf-8"), path
    assert holding_a_secret(result.folder) == []
    (result.folder / "planted.txt").write_text(" ".join(secrets.read().values()))
    assert holding_a_secret(result.folder) == ["planted.txt"], "the look itself"


@pytest.mark.drill
@pytest.mark.skipif(
    "NORTHWIND_DIR" not in os.environ,
    reason="NORTHWIND_DIR does not name a folder with northwind.sql",
)
def test_the_original_dump(world):
    result = runner.run(
        ["10_outbox"], "local", {"from_dir": os.environ["NORTHWIND_DIR"]}, progress=False
    )
    assert result.status == "passed", failures(result)
    figures = [
        c["ok"] for n in result.notebooks for c in n["checks"] if "S2/original_" in c["what"]
    ]
    assert figures == [True] * 3, "of data that are not generated a difference would be shown only"
    assert northwind.loader.loaded_from(world) == os.path.abspath(os.environ["NORTHWIND_DIR"])


def published_files(target):
    """Copy the collection from MOMA_DIR, unpacked; return how many of its days of acquisition are
    not dates."""
    for name in ("Artists.csv", "Artworks.csv"):
        (path,) = Path(os.environ["MOMA_DIR"]).glob(f"{name}*")
        with (
            (lzma.open if path.suffix == ".xz" else open)(path, "rb") as packed,
            (target / name).open("wb") as plain,
        ):
            shutil.copyfileobj(packed, plain)
    acquired = pd.read_csv(target / "Artworks.csv", dtype=str)["DateAcquired"].dropna()
    return int((~acquired.str.fullmatch(r"\d{4}-\d\d-\d\d")).sum())


def without_bad_dates(folder):
    with (folder / "Artworks.csv").open(encoding="utf-8-sig", newline="") as f:
        header, *rows = csv.reader(f)
    at = header.index("DateAcquired")
    rows = [
        [*row[:at], row[at] if re.fullmatch(r"\d{4}-\d\d-\d\d", row[at]) else "", *row[at + 1 :]]
        for row in rows
    ]
    with (folder / "Artworks.csv").open("w", encoding="utf-8", newline="") as f:
        csv.writer(f).writerows([header, *rows])


@pytest.mark.drill
@pytest.mark.skipif(
    "MOMA_DIR" not in os.environ, reason="MOMA_DIR does not name a folder with the museum's files"
)
def test_the_published_collection(world, tmp_path):
    """Its bad dates are named at once and nothing is removed. Without them all notebooks pass, and
    what differs from the published tables is shown."""
    museum.walkthrough.reset(world, "51_source_database")
    museum.walkthrough.ensure(world, "51_source_database", "52_connectors")
    before = [museum.flow.count(world, "artists"), connect.names(world), topics.names(world)]
    bad = published_files(tmp_path)
    result = runner.run(
        ["51_source_database"], "local", {"from_dir": str(tmp_path)}, progress=False
    )
    message = result.notebooks[0]["error"]["message"]
    assert (
        message.startswith(f"{bad} values of the files cannot be loaded")
        and message.count("DateAcquired") == bad
    )
    assert [
        museum.flow.count(world, "artists"),
        connect.names(world),
        topics.names(world),
    ] == before
    without_bad_dates(tmp_path)
    result = runner.run(
        ["50_time_travel"], "local", {"from_dir": str(tmp_path)}, timeout=1800, progress=False
    )
    checks = [c for n in result.notebooks for c in n["checks"]]
    museum.walkthrough.reset(
        world, "51_source_database"
    )  # the next tests are to begin with the small collection
    assert result.status == "passed", failures(result)
    shown = [c["what"] for c in checks if c["ok"] is None]
    assert len(checks) > 150 and {
        "title of artwork 128447",
        "as in reference table S5/artwork_128447_rt",
    } <= {*shown}
    page = result.report.read_text(encoding="utf-8")
    assert page.count('<tr class="own">') == len(shown) and '<tr class="red">' not in page


DAMAGE = """
spark.sql("DELETE FROM datalake.cdc_events WHERE order_id = 10300")
spark.sql("UPDATE datalake.cdc_events SET ship_city = 'Atlantis' WHERE order_id = 10301")"""
BROKEN = {  # notebook, cell, put before this heading, what the first red check then says
    "a label that slipped": (
        "56_time_travel",
        'hudi.label(world, mor, "t3")',
        "## 3. As of",
        ["row=4", "German"],
    ),
    "a row dropped and a value altered in the lake": (
        "13_hudi_ingest",
        DAMAGE,
        "## Check",
        ["order_id=10300: missing", "order_id=10301", "Atlantis"],
    ),
    "landing stopped": (
        "14_changes",
        "landing.run = lambda *a, **k: None",
        "## 1. An update",
        ["order_id=11075: missing"],
    ),
}


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(what, marks=() if BROKEN[what][0] == "13_hudi_ingest" else pytest.mark.drill)
        for what in BROKEN
    ],
)
def test_what_breaks_turns_red_and_is_named(world, tmp_path, what):
    name, cell, before, says = BROKEN[what]
    seen = errors(*execute_changed(name, cell, before=before), tmp_path)
    if name != "56_time_travel":  # it sets its own labels anew when it is run again
        outbox.walkthrough.reset(world, "13_hudi_ingest")
    assert seen and all(text in seen[0] for text in says), seen


def test_the_teardown_leaves_nothing(world):
    before = museum.walkthrough.resources.remaining(world)
    assert before["topics"] and before["tables in the lake"], (
        "the series has left nothing to tear down"
    )
    result = runner.run(["99_teardown"], "local", progress=False)
    assert result.status == "passed", failures(result)
    assert connect.names(world) == [] and len(postgres.slots(world)) == 0
    assert not [t for t in topics.names(world) if "cdc_events" in t]
    assert (
        not any(museum.walkthrough.resources.remaining(world).values())
        and postgres.connector_slots(world, museum.DATABASE) == []
    )
