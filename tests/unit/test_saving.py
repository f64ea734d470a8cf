"""Saving a session: which calls are its steps, and the code of each."""

import ast
import dataclasses
import datetime as dt
import gc
import uuid
import weakref
from types import SimpleNamespace

import nbformat
import numpy as np
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from workbench import explore, hudi
from workbench.base import params, paths
from workbench.base.errors import LakeError, ParamsError
from workbench.explore import saving
from workbench.run import notebooks

ROWS = pd.DataFrame({"id": [1, 2, 3]})


def at(world, table, instant="", *, where="true"):
    changed = pd.DataFrame({"id": [True, False, True]})
    return explore.Frame(f"{table} at {instant}", ROWS.copy(), changed)


def diff(world, table, since, until, *, where="true"):
    return SimpleNamespace(added=ROWS.head(1), title="3 added")


def tables(world):
    return ROWS.copy()


def sql(world, statement, *, at="", on="", values=None):
    return ROWS.copy()


def slider(world, table, labels=(), *, at="", where="true"):
    return "a slider"


def row(world, table, key):
    return "a history"


def chart(frame):
    return "a chart"


CALLS = (at, diff, tables, sql, slider, row, chart)


@pytest.fixture
def session(monkeypatch, tmp_path):
    """A shell of IPython with a world, and the functions above, which are recorded."""
    InteractiveShell.instance()
    world = params.load("local")
    artists, other = (
        hudi.Table(name, f"{world.lake.tables}/moma/{name}", ("id",), "__lsn")
        for name in ("artists_mor", "other")
    )
    names = {"artists": artists, "moma/artists_mor": artists, "moma/other": other}
    monkeypatch.setattr(
        saving, "find", lambda world, table: names[table] if isinstance(table, str) else table
    )
    labels = pd.DataFrame({"label": ["t0", "t1", "t2", "t3", "t4"]})
    monkeypatch.setattr(
        hudi, "labels", lambda world, table: labels if table == artists else labels.head(0)
    )
    functions = {each.__name__: saving.recorded(each) for each in CALLS}
    yield SimpleNamespace(world=world, artists=artists, other=other, folder=tmp_path, **functions)
    InteractiveShell.clear_instance()


def saved(session, name="who_moved"):
    return nbformat.read(explore.save(name, session.folder), as_version=4)


def sources(book):
    return [cell.source for cell in book.cells if cell.cell_type == "code"]


def steps(book):
    """The code of each step, without its display and its checks."""
    return [source.splitlines()[0] for source in sources(book) if source.startswith("step_")]


def test_the_calls_are_steps_with_parameters_in_place_of_what_they_share(session):
    session.at(session.world, "artists", "t3", where="name = 't3'")
    session.diff(session.world, session.artists, until="t3", since="t1")
    session.at(session.world, session.other, "t2")
    session.tables(session.world)
    book = saved(session)
    assert notebooks.declared_parameters(book, "x") == {
        "world": "local",
        "table": "moma/artists_mor",
        "since": "t1",
        "until": "t3",
    }
    assert steps(book) == [
        """step_1 = explore.at(world, table=table, instant=until, where="name = 't3'")""",
        "step_2 = explore.diff(world, table=table, since=since, until=until)",
        "step_3 = explore.at(world, table='moma/other', instant='t2')",
        "step_4 = explore.tables(world)",
    ]
    for source in sources(book):
        ast.parse(source)
    assert all(not cell.get("outputs") for cell in book.cells)
    nbformat.validate(book)


def test_a_table_with_another_key_is_saved_with_it(session):
    keyed = dataclasses.replace(session.artists, key=("id", "day"))
    session.diff(session.world, keyed, "t1", "t3")
    book = saved(session)
    (step,) = steps(book)
    assert "table=dataclasses.replace(explore.find(world, table), key=('id', 'day'))," in step
    assert any(source.startswith("import dataclasses\n") for source in sources(book))


def test_a_parameter_replaces_only_arguments_of_its_role(session, monkeypatch):
    """A label may be equal to an engine, a condition, a key or the name of the table."""
    names = ["spark", "3", "true", "moma/artists_mor"]
    monkeypatch.setattr(hudi, "labels", lambda world, table: pd.DataFrame({"label": names}))
    session.row(session.world, "artists", "3")
    session.row(session.world, "artists", 3)
    session.at(session.world, "artists", "moma/artists_mor", where="true")
    session.sql(session.world, "3", at="spark", on="spark", values={"x": "spark"})
    session.slider(session.world, "artists", ["spark", "3", "moma/artists_mor"], at="spark")
    book = saved(session)
    assert steps(book) == [
        "step_1 = explore.row(world, table=table, key='3')",
        "step_2 = explore.row(world, table=table, key=3)",
        "step_3 = explore.at(world, table=table, instant=until)",
        "step_4 = explore.sql(world, statement='3', at=since, on='spark', values={'x': 'spark'})",
        "step_5 = explore.slider(world, table=table, labels=[since, '3', until], at=since)",
    ]


def test_only_labels_of_instants_choose_since_and_until(session):
    session.row(session.world, "artists", "t1")
    session.at(session.world, "artists", "t3", where="t2")
    declared = notebooks.declared_parameters(saved(session), "x")
    assert (declared["since"], declared["until"]) == ("t0", "t3")


def test_the_session_keeps_figures_and_no_frames(session):
    frame = session.at(session.world, "artists", "t3")
    rows = weakref.ref(frame.rows)
    frame.rows.drop(index=[0, 1], inplace=True)  # the figures are those that the call showed
    del frame
    gc.collect()
    assert rows() is None
    assert any("len(step_1.rows), 3," in source for source in sources(saved(session)))


def test_figures_are_checks_in_folded_cells(session):
    session.at(session.world, "artists", "t3")
    session.at(session.world, "artists")
    session.diff(session.world, "artists", "t1", "t3")
    book = saved(session)
    folded = [c.source for c in book.cells if c.metadata.get("jupyter", {}).get("source_hidden")]
    assert folded[0].splitlines() == [
        "check.equal('at: len(step_1.rows)', len(step_1.rows), 3, 'now', 'saved', custom_data=changed)",
        "check.equal('at: len(step_1.changed)', len(step_1.changed), 3, 'now', 'saved', custom_data=changed)",
        "check.equal('at: step_1.changed.to_numpy().sum()', step_1.changed.to_numpy().sum(), 2, 'now', "
        "'saved', custom_data=changed)",
    ]
    assert "'a later state'" in folded[1] and "custom_data=changed" not in folded[1], (
        "as of no instant"
    )
    assert "len(step_3.added), 1" in folded[2]


def test_a_repeated_call_is_one_step_and_calls_inside_a_call_are_none(session):
    for _ in range(2):
        session.at(session.world, "artists", "t3")
        session.at(session.world, "artists", "t4")

    def inside(world):
        return at(world, "artists", "t1")

    saving.recorded(inside)(session.world)
    assert [step.partition("(")[0] for step in steps(saved(session))] == [
        "step_1 = explore.at",
        "step_2 = explore.at",
        "step_3 = explore.inside",
    ]


def test_values_of_numpy_and_of_other_types_are_code_with_its_imports(session):
    keys = [np.int64(7), np.datetime64("2026-01-02"), uuid.UUID(int=1), dt.date(2026, 1, 2)]
    for key in keys:
        session.row(session.world, "artists", key)
    book = saved(session)
    (set_up,) = [source for source in sources(book) if "stack.ensure_running" in source]
    assert [line for line in set_up.splitlines() if "workbench" not in line][:3] == [
        "import datetime",
        "from pandas import Timestamp",
        "from uuid import UUID",
    ]
    assert [step.partition("key=")[2] for step in steps(book)] == [
        "7)",
        "Timestamp('2026-01-02 00:00:00'))",
        "UUID('00000000-0000-0000-0000-000000000001'))",
        "datetime.date(2026, 1, 2))",
    ]


class _WithoutFigures(ast.NodeTransformer):
    """Remove the values of a statement, which a person replaces, and the numbers of rows."""

    def visit_keyword(self, node):
        node = self.generic_visit(node)
        return ast.keyword("values", ast.Constant(None)) if node.arg == "values" else node

    def visit_Constant(self, node):
        return ast.Constant(0) if type(node.value) is int else node


def statements(book):
    """Return the statements of the code cells, but imports, without figures."""
    trees = (_WithoutFigures().visit(ast.parse(source)) for source in sources(book))
    return [
        ast.unparse(node)
        for tree in trees
        for node in tree.body
        if not isinstance(node, (ast.Import, ast.ImportFrom))
    ]


def test_notebook_93_begins_with_what_save_writes(session, monkeypatch):
    path = paths.ROOT / "notebooks" / "90_your_own" / "93_dashboard.ipynb"
    book = nbformat.read(path, as_version=4)
    queries = [
        ast.literal_eval(node.value)
        for source in sources(book)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.keyword) and node.arg == "statement"
    ]
    table = hudi.Table("trips", f"{session.world.lake.tables}/bikeshare/trips", ("id",), "__lsn")
    monkeypatch.setattr(saving, "find", lambda world, name: table)
    labels = pd.DataFrame({"label": ["captured"]})
    monkeypatch.setattr(hudi, "labels", lambda world, table: labels)
    session.at(session.world, table, "captured")
    for query in queries:
        session.sql(
            session.world, query, values={"quarter": "", "first": pd.Timestamp("2025-01-01")}
        )
    expected = statements(saved(session, "trips"))
    assert len(queries) == 2 and len(expected) > 15
    own = statements(book)
    services = "stack.ensure_running(world, 'spark')"  # 93 captures the tables, too
    assert [line for line in expected if line not in own] == [services]
    positions = [own.index(line) for line in expected if "step_" in line]
    assert positions == sorted(positions)


def test_a_failed_call_is_no_step(session):
    def fails(world):
        raise LakeError("no such table")

    with pytest.raises(LakeError):
        saving.recorded(fails)(session.world)
    session.tables(session.world)
    assert steps(saved(session)) == ["step_1 = explore.tables(world)"]


def test_a_statement_is_a_step_of_readable_lines(session):
    statement = """SELECT name, '\\n' -- it's
FROM moma.artists
WHERE nation = :nation"""
    values = {"nation": "Côte d'Ivoire", "day": pd.Timestamp("2026-01-02")}
    session.sql(session.world, statement, at="t3", values=values)
    session.at(session.world, "artists", "t3")
    session.at(session.world, "artists", "t1")
    source = next(source for source in sources(saved(session)) if "explore.sql" in source)
    called = ast.parse(source).body[0].value
    arguments = {each.arg: each.value for each in called.keywords}
    assert ast.literal_eval(arguments["statement"]) == statement
    assert ast.unparse(arguments["at"]) == "until" and "statement=(" in source
    namespace = {"Timestamp": pd.Timestamp}
    assert eval(ast.unparse(arguments["values"]), namespace) == values
    assert source.count("\n") == 3, "each line of the statement is a line of the cell"


def test_a_chart_of_a_frame_refers_to_the_step_that_made_it(session):
    frame = session.at(session.world, "artists", "t3")
    rows = session.sql(session.world, "SELECT 1")
    session.chart(frame.rows)
    session.chart(frame=rows)
    session.chart(ROWS)  # other code made it
    assert steps(saved(session))[2:] == [
        "step_3 = explore.chart(frame=step_1.rows)",
        "step_4 = explore.chart(frame=step_2)",
    ]


def test_the_same_session_gives_the_same_file(session):
    session.at(session.world, "artists", "t3")
    first = explore.save("one", session.folder).read_bytes()
    session.at(session.world, "artists", "t3")
    second = explore.save("two", session.folder).read_bytes()
    assert first.replace(b"one", b"two") == second and first.count(b'"id": "cell-') == 6


@pytest.mark.parametrize(
    "since, until, labels",
    [("t0", "t2", ["t2"]), ("t0", "t4", []), ("t1", "t3", ["t3", "t2", "t1"])],
)
def test_since_and_until_are_the_labels_of_the_calls_or_of_the_table(session, since, until, labels):
    for label in labels or [""]:
        session.at(session.world, "artists", label)
    declared = notebooks.declared_parameters(saved(session), "x")
    assert (declared["since"], declared["until"]) == (since, until)


def test_a_session_without_labels_or_tables(session):
    session.at(session.world, session.other)
    declared = notebooks.declared_parameters(saved(session, "a"), "x")
    assert (declared["table"], declared["since"], declared["until"]) == ("moma/other", "", "")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "/tmp/x", "a\0b", "-x"])
def test_what_is_no_name_of_a_file_is_refused(session, name):
    session.tables(session.world)
    with pytest.raises(ParamsError, match="cannot be made"):
        explore.save(name, session.folder)
    assert not list(session.folder.iterdir())


def test_a_notebook_is_not_overwritten(session):
    session.tables(session.world)
    path = explore.save("who_moved", session.folder)
    before = path.read_bytes()
    session.at(session.world, "artists", "t3")
    with pytest.raises(ParamsError, match=r"(?s)who_moved.*cannot be made.*remove a file"):
        explore.save("who_moved", session.folder)
    assert path.read_bytes() == before


def test_a_session_without_calls_has_nothing_to_save(session):
    with pytest.raises(LakeError, match="no call to save"):
        explore.save("empty", session.folder)
    assert not list(session.folder.iterdir())


def test_own_notebooks_run_by_name_only(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "OWN_NOTEBOOKS", tmp_path / "notebooks" / "own")
    for name in ("10_outbox/11_first", "own/who_moved"):
        file = tmp_path / "notebooks" / f"{name}.ipynb"
        file.parent.mkdir(parents=True)
        file.write_text("{}")
    assert [path.stem for path in notebooks.find()] == ["11_first"]
    for target in ("who_moved", "own", "notebooks/own/who_moved.ipynb"):
        assert [path.stem for path in notebooks.find([target])] == ["who_moved"]


def test_a_notebook_is_written_as_a_whole_or_not_at_all(session, monkeypatch):
    session.tables(session.world)
    (session.folder / "dangling.ipynb").symlink_to(session.folder / "elsewhere.ipynb")
    for name in ("dangling", "x" * 300, "ü" * 130):
        with pytest.raises(ParamsError, match="cannot be made"):
            explore.save(name, session.folder)

    def full(self, *args, **kwargs):
        self.touch()
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(LakeError, match="No space left"):
        patch.setattr("pathlib.Path.write_text", full)
        explore.save("full", session.folder)
    assert [path.name for path in session.folder.iterdir()] == ["dangling.ipynb"]
    with pytest.raises(LakeError, match="cannot be written"):
        explore.save("full", "/dev/null/x")
