"""Notebooks executed otherwise than in order: alone, twice, halfway, on the original data. All are drills."""

import csv
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
from notebook_help import KEPT, NOTEBOOKS, failures, kept_tables, reference_cell
from workbench import connect, stack, tracks
from workbench.base.paths import ROOT
from workbench.run import execute, runner
from workbench.topic import topics
from workbench.tracks import log_based, museum, northwind, outbox, query_based


@pytest.mark.drill
@pytest.mark.parametrize(
    "name", [p.stem for p in sorted((NOTEBOOKS / "10_outbox").glob("*.ipynb"))]
)
def test_a_notebook_runs_alone_on_an_empty_stack_and_again(world, name):
    tracks.reset(world, outbox.TRACK, since="11_source_database")
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
    for each in tracks.ALL
    if each is not outbox.TRACK
    for path in sorted(each.folder.glob("*.ipynb"))
}


@pytest.mark.drill
@pytest.mark.parametrize("name", OTHERS)
def test_a_notebook_of_another_walkthrough_runs_alone_on_an_empty_stack_and_again(
    world, name, tmp_path
):
    stack.ensure_running(world, *OTHERS[name].services)
    tracks.reset(world, OTHERS[name])
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
        tracks.reset(world, each.TRACK, since="source_database")
    assert result.status == "passed", failures(result)


@pytest.mark.drill
def test_the_museum_twice_in_a_row(world):
    stack.ensure_running(world, "apicurio")
    tracks.reset(world, museum.TRACK, since="51_source_database")
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
    figures = [c["ok"] for n in result.notebooks for c in n.checks if "S2/original_" in c["what"]]
    assert figures == [True] * 3, "of data that are not generated a difference would be shown only"
    assert northwind.loader.loaded_from(world) == os.path.abspath(os.environ["NORTHWIND_DIR"])


def published_files(target):
    """Copy the collection from MOMA_DIR, unpacked; return the first of its days of acquisition that is
    not a date."""
    for name in ("Artists.csv", "Artworks.csv"):
        (path,) = Path(os.environ["MOMA_DIR"]).glob(f"{name}*")
        with (
            (lzma.open if path.suffix == ".xz" else open)(path, "rb") as packed,
            (target / name).open("wb") as plain,
        ):
            shutil.copyfileobj(packed, plain)
    acquired = pd.read_csv(target / "Artworks.csv", dtype=str)["DateAcquired"].dropna()
    return acquired[~acquired.str.fullmatch(r"\d{4}-\d\d-\d\d")].iloc[0]


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
    """Its first bad date is named and nothing is removed. Without them all notebooks pass, and
    what differs from the published tables is shown."""
    tracks.reset(world, museum.TRACK, since="51_source_database")
    tracks.ensure(world, museum.TRACK, "51_source_database", "52_connectors")
    before = [museum.flow.count(world, "artists"), connect.names(world), topics.names(world)]
    bad = published_files(tmp_path)
    result = runner.run(
        ["51_source_database"], "local", {"from_dir": str(tmp_path)}, progress=False
    )
    message = result.notebooks[0].error["message"]
    assert f'column DateAcquired: "{bad}"' in message and "Artworks.csv, line" in message
    assert [
        museum.flow.count(world, "artists"),
        connect.names(world),
        topics.names(world),
    ] == before
    without_bad_dates(tmp_path)
    result = runner.run(
        ["50_time_travel"], "local", {"from_dir": str(tmp_path)}, timeout=1800, progress=False
    )
    checks = [c for n in result.notebooks for c in n.checks]
    tracks.reset(
        world, museum.TRACK, since="51_source_database"
    )  # the next tests are to begin with the small collection
    assert result.status == "passed", failures(result)
    shown = [c["what"] for c in checks if c["ok"] is None]
    assert len(checks) > 150 and {
        "title of artwork 128447",
        "as in reference table S5/artwork_128447_rt",
    } <= {*shown}
    page = result.report.read_text(encoding="utf-8")
    assert page.count('<tr class="own">') == len(shown) and '<tr class="red">' not in page
