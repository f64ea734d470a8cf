"""The first tracks of notebooks, executed in order: they pass, and turn red when what they check is broken.

Each test begins with what the tests before it have left.
"""

import nbformat
import pytest
from notebook_help import (
    FIRST_TRACKS,
    KEPT,
    check_refused_first,
    check_track,
    errors,
    execute_changed,
    failures,
    holding_a_secret,
    kept_tables,
    picture_faults,
)
from workbench import tracks
from workbench.base import params, paths, secrets
from workbench.run import runner
from workbench.source import postgres
from workbench.tracks import outbox

pytestmark = pytest.mark.usefixtures("removed_afterwards")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FIRST_TRACKS)
def test_a_track_passes(world, name):
    check_track(name)


def test_each_kept_table_is_compared():
    assert kept_tables() == set(KEPT)


@pytest.mark.parametrize(
    "name, given",
    [
        ("11_source_database", {"scale": -1}),
        ("13_hudi_ingest", {"source": "bogus"}),
        *[
            pytest.param("11_source_database", {"from_dir": path}, marks=pytest.mark.drill)
            for path in ("nowhere", "files")
        ],
    ],
)
def test_what_is_given_is_judged_before_anything_is_removed(world, tmp_path, name, given):
    def count_rows():
        return list(postgres.query(world, "SELECT count(*) AS n FROM orders")["n"])

    check_refused_first(world, tmp_path, outbox.TRACK, count_rows, name, given)


OVERLAP = """
from workbench.display import show
from workbench.display.draw.picture import Picture
picture = Picture(3, "One")
axes = picture.subplots()
axes.text(0.5, 0.5, "first"), axes.text(0.5, 0.5, "second")
picture
"""


def test_a_fault_in_a_picture_of_a_notebook_is_noted(tmp_path):
    """The look itself, for check_track."""
    cells = [
        nbformat.v4.new_code_cell('world = "local"', metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell(OVERLAP),
    ]
    assert errors(nbformat.v4.new_notebook(cells=cells), {}, tmp_path) == []
    assert picture_faults() == ["One: 'first' and 'second' overlap"]


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


DAMAGE = """
spark.sql("DELETE FROM datalake.cdc_events WHERE order_id = 10300")
spark.sql("UPDATE datalake.cdc_events SET ship_city = 'Atlantis' WHERE order_id = 10301")"""
BROKEN = {  # notebook, cell, put before this heading, what the first red check then says
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
    tracks.reset(world, outbox.TRACK, since="13_hudi_ingest")
    assert seen and all(text in seen[0] for text in says), seen
