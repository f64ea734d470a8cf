"""A session of an analyst on real tables: %%sql and the slider over labels, saved as a notebook, which
then runs headless."""

import contextlib
import re
import statistics
import time
import uuid
from types import SimpleNamespace

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from lake_help import labeled_table
from workbench import explore, hudi
from workbench.base import paths
from workbench.base.errors import LakeError
from workbench.run import runner
from workbench.topic import topics


# a Merge-on-Read table has base files, as a Copy-on-Write table, and logs
@pytest.fixture(scope="module", params=[pytest.param("cow", marks=pytest.mark.drill), "mor"])
def past(world, spark, request):
    topic, table = labeled_table(world, spark, request.param)
    yield SimpleNamespace(table=table, view=hudi.register(spark, table))
    hudi.drop(spark, world, table)
    topics.delete(world, topic)


@pytest.fixture
def session(world):
    """A shell with the set-up of a notebook: a function that runs a cell, and returns its outputs."""
    shell = InteractiveShell.instance()
    shell.user_ns.update(world=world, explore=explore)

    def run(cell):
        with capture_output() as captured:
            result = shell.run_cell(cell)
        result.raise_error()
        return [output.data for output in captured.outputs]

    with capture_output():
        explore.load_ipython_extension(shell)
    run.variables = shell.user_ns
    yield run
    InteractiveShell.clear_instance()


def test_a_statement_as_of_each_label(past, session):
    query = f"SELECT id, part, text FROM {past.view} WHERE id <= :last ORDER BY id"
    session.variables["last"] = 2
    expected = {
        "": [(1, "q", "one, moved")],
        "--at t1": [(1, "p", "<i>1</i>"), (2, "p", "<i>2</i>")],
        "--at t2": [(1, "p", "one, changed"), (2, "p", "<i>2</i>")],
        "--at t3 --on spark": [(1, "q", "one, moved")],
    }
    for options, rows in expected.items():
        (data,) = session(f"%%sql found << {options}\n{query}")
        assert [tuple(row) for row in session.variables["found"].to_numpy()] == rows, options
        assert ("FROM as_of_0 AS" in data["text/html"]) == ("--at" in options)
        assert re.search(r"\d rows?, [\d.]+ k?B read", data["text/plain"].replace("bytes", "B"))
    joined = f"""WITH a AS (SELECT * FROM {past.view})
        SELECT count(*) AS n FROM a JOIN {past.view} AS b ON a.id = b.id"""
    session(f"%%sql found << --at t1\n{joined}")
    assert session.variables["found"].loc[0, "n"] == 30
    session(f"%%sql found << --at 20200101000000000\n{joined}")
    assert session.variables["found"].loc[0, "n"] == 0, "before the first commit"


def test_labels_and_tables_that_are_not_there(past, session):
    for cell, message in (
        (f"%%sql --at t4\nSELECT * FROM {past.view}", "(?s)no instant labeled 't4'.*valid: t1"),
        ("%%sql --at t1\nSELECT * FROM datalake.nosuch", "(?s)datalake`.`nosuch` cannot be found"),
        (f"%%sql\nSELECT * FROM {past.view} WHERE (", "not Athena SQL"),
    ):
        with pytest.raises(LakeError, match=message):
            session(cell)


def test_the_slider_has_the_frame_of_each_label(past, world):
    slider = explore.slider(world, past.table, at="t2", where="id IN (1, 2, 31)")
    assert list(slider.pages) == ["t1", "t2", "t3"]
    same = explore.at(world, past.table, "t2", where="id IN (1, 2, 31)")
    assert slider.frame.rows.equals(same.rows) and repr(same) in repr(slider)
    assert "one, moved" in slider.pages["t3"] and "one, moved" not in slider.pages["t2"]
    assert "&lt;i&gt;" in slider.pages["t1"] and "<i>" not in slider._repr_html_()


def test_a_move_of_the_slider_takes_a_moment(past, world):
    widget = explore.slider(world, past.table).widget()
    choice, seconds = widget.children[0], []
    for label in ["t1", "t2", "t3"] * 5:
        start = time.perf_counter()
        choice.value = label
        seconds.append(time.perf_counter() - start)
    assert statistics.median(seconds) < 0.3


@pytest.fixture
def saved(past, session, world, monkeypatch, tmp_path):
    """The path of the notebook of a session."""
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path))
    session.variables.update(table=past.table, part="p")
    session("frame = explore.at(world, table, 't1')")
    session("explore.slider(world, table, at='t3', where='id < 3')")
    session("explore.diff(world, table, 't1', 't3')")
    session("explore.at(world, table)")
    session(f"%%sql --at t3\nSELECT part,\n  count(*) AS n FROM {past.view} GROUP BY part")
    session(f"%%sql\nSELECT id FROM {past.view} WHERE part = :part")
    path = explore.save(f"test_{uuid.uuid4().hex[:8]}")
    yield path
    path.unlink()
    with contextlib.suppress(OSError):  # there are notebooks of the user
        path.parent.rmdir()


def test_a_saved_session_passes_headless_shows_other_figures_and_fails_for_a_wrong_one(saved):
    assert saved.parent == paths.ROOT / "notebooks" / "own"
    result = runner.run([saved.stem], progress=False)
    (entry,) = result.notebooks
    assert result.status == "passed", entry["error"]
    assert len(entry["checks"]) > 8 and all(check["ok"] for check in entry["checks"])
    copy = result.folder / "notebooks" / entry["path"]
    assert copy.parent.name == "own" and "widget-view" not in copy.read_text()
    page = copy.with_suffix(".html").read_text()
    assert re.findall(r"<summary>(t\d)</summary>", page) == ["t1", "t2", "t3"]
    assert len(re.findall('<input[^>]*type="range"', page)) == 1 and len(page) < 2_000_000

    result = runner.run([saved.stem], parameters={"until": "t2"}, progress=False)
    states = [check["ok"] for check in result.notebooks[0]["checks"]]
    assert result.status == "passed" and None in states and False not in states

    book = nbformat.read(saved, as_version=4)
    for cell in book.cells:
        cell.source = cell.source.replace("len(step_1.rows), 30,", "len(step_1.rows), 31,")
    nbformat.write(book, saved)
    result = runner.run([saved.stem], progress=False)
    assert (
        result.status == "failed"
        and "at: len(step_1.rows)" in result.notebooks[0]["error"]["message"]
    )
