"""A further track, declared in loans.py, gets from that what the others have: on real parts."""

from pathlib import Path

import loans
import nbformat
import pytest
from workbench import connect, stack, trace, tracks
from workbench.base import files
from workbench.base.errors import SourceError, WorkbenchError
from workbench.checks import check
from workbench.source import loading, postgres
from workbench.topic import registry, topics
from workbench.tracks import ensure, reset, track
from workbench.tracks.track import is_done

SOURCE, CONNECTORS, INGEST = STEPS = ("71_source_database", "72_connectors", "73_hudi_ingest")
CODE = {
    SOURCE: "tracks.reset(world, loans.TRACK)\nloans.load(world)",
    CONNECTORS: f"tracks.reset(world, loans.TRACK, since={CONNECTORS!r})\nloans.flow.deploy(world)",
    INGEST: 'loans.flow.sync(session(world), world, kind="landed")',
    "74_look": "1 / 0",
}
BEGIN = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import loans
from workbench import tracks
from workbench.base import params
from workbench.spark import session
world = params.load(world)
"""


def databases(world):
    return set(postgres.databases(world))


@pytest.fixture
def made(world, tmp_path, monkeypatch):
    stack.ensure_running(world, *loans.TRACK.services)
    (tmp_path / loans.TRACK.name).mkdir()
    for name, code in CODE.items():
        cells = [
            nbformat.v4.new_code_cell('world = "local"', metadata={"tags": ["parameters"]}),
            nbformat.v4.new_code_cell(BEGIN + code),
        ]
        notebook = nbformat.v4.new_notebook(cells=cells)
        nbformat.write(notebook, tmp_path / loans.TRACK.name / f"{name}.ipynb")
    monkeypatch.setattr(track, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(tracks, "ALL", (*tracks.ALL, loans.TRACK))
    yield loans.TRACK
    reset(world, loans.TRACK)
    drop = f"DROP DATABASE IF EXISTS {loans.DATABASE} WITH (FORCE)"
    postgres.execute(world, drop, database="postgres")


def run_first(capsys):
    """The notebooks that were run since the last call."""
    lines = capsys.readouterr().out.splitlines()
    return [line.split()[0] for line in lines if "running it first" in line]


def test_a_track_is_a_declaration(world, spark, made, capsys):
    flow = made.flow
    before = databases(world), topics.names(world)
    assert not any(is_done(world, made, step) for step in STEPS)
    assert (databases(world), topics.names(world)) == before, "a question changes nothing"
    with pytest.raises(WorkbenchError, match="(?s)no step '74_look'.*valid: .*73_hudi_ingest"):
        ensure(world, made, "74_look")  # nothing hangs on it

    ensure(world, made, *reversed(STEPS))
    assert run_first(capsys) == [*STEPS]
    assert all(is_done(world, made, step) for step in STEPS)
    ensure(world, made, *STEPS)
    assert run_first(capsys) == []
    left = made.resources.remaining(world)
    assert left.pop("databases in the catalog") == [], "none of its notebooks makes one"
    assert left.pop("consumer groups") == []
    assert all(left.values()), left
    assert left["topics"] == ["__debezium-heartbeat.loans", "loans.message", "loans.public.loans"]

    flow.compare(spark, world)
    loaded = flow.rows(world)
    flow.change(world, "loans", 3, value=7, due="2031-12-31")
    with pytest.raises(AssertionError, match="(?s)loan_id=3, (value|due)"):
        flow.compare(spark, world)
    statements = (
        "DELETE FROM loans WHERE loan_id = 4; INSERT INTO loans VALUES (31, 'New', 1, '2030-02-02')"
    )
    # nobody waits for these events but `sync`
    postgres.execute(world, statements, database=loans.DATABASE)
    done = flow.sync(spark, world, label="changed")["loans"]
    assert (done.upserts, done.deletes) == (2, 1), "the two rows"
    flow.compare(spark, world)
    life = trace.row(world, flow, "loans", 3)
    assert [*life.changes["op"]] == ["snapshot", "update"]
    assert [*life.changes["cow"]] == ["was", "now"]
    assert life.changes["landed"].str.startswith("loans/loans.public.loans/").all()

    reset(world, made, since=INGEST)
    check.same_rows(loaded, flow.rows(world), key="loan_id", claim="set back")
    assert [is_done(world, made, step) for step in STEPS] == [True, True, False]
    assert topics.offset_span(world, flow.topic(world)) == len(loaded), "a snapshot, nothing else"
    upserts = flow.sync(spark, world, kind="landed")["loans"].upserts
    assert upserts == len(loaded)
    flow.compare(spark, world)


def drop_source_table(world):
    postgres.execute(world, "DROP TABLE loans", database=loans.DATABASE)


def delete_topic(world):
    topics.delete(world, loans.flow.topic(world))


def remove_lake_folder(world):
    files.remove(loans.flow.table(world).base)


def fail_connector(world):
    config = {**loans.config(world, "loans_source"), "publication.name": "missing"}
    connect.apply(world, "loans_source", config)
    with pytest.raises(WorkbenchError):
        connect.wait_running(world, "loans_source")


def test_a_broken_state_is_noticed_and_rebuilt(world, spark, made, monkeypatch):
    """The notebooks are functions here."""
    ran = []
    functions = {
        SOURCE: lambda: (reset(world, made), loans.load(world)),
        CONNECTORS: lambda: (reset(world, made, since=CONNECTORS), made.flow.deploy(world)),
        INGEST: lambda: made.flow.sync(spark, world, kind="landed"),
    }
    monkeypatch.setattr(
        track, "_run_notebook", lambda _, __, name: (ran.append(name), functions[name]())
    )
    ensure(world, made, *STEPS)
    assert ran == [*STEPS]
    for break_it, repeated in (
        (remove_lake_folder, [INGEST]),
        (delete_topic, [CONNECTORS, INGEST]),
        (fail_connector, [CONNECTORS, INGEST]),
        (drop_source_table, [*STEPS]),
    ):
        ran.clear()
        break_it(world)
        ensure(world, made, *STEPS)
        assert ran == repeated, break_it.__name__
        made.flow.sync(spark, world)
        made.flow.compare(spark, world)


def test_a_reload_keeps_publications_and_permissions(world, made):
    loader, count = made.flow.loader, made.flow.count
    loans.load(world)
    assert loader.is_loaded(world) and not loader.is_changed(world)
    postgres.execute(world, "UPDATE loans SET value = value", database=loans.DATABASE)
    assert not loader.is_changed(world), "the same rows"
    part = "CREATE PUBLICATION part FOR TABLE loans (loan_id, value) WHERE (value > 0) WITH (publish = 'insert')"
    postgres.execute(world, part, database=loans.DATABASE)
    query = (
        "SELECT pubname, tablename, attnames, rowfilter FROM pg_publication_tables ORDER BY pubname"
    )
    publications = postgres.query(world, query, database=loans.DATABASE).to_dict()
    for statement in (
        "UPDATE loans SET value = 0 WHERE loan_id = 1",
        "DELETE FROM loans",
        "ALTER TABLE loans ADD COLUMN note text",
    ):
        postgres.execute(world, statement, database=loans.DATABASE)
        assert loader.is_changed(world), statement
        loader.reload(world)
        assert not loader.is_changed(world) and count(world) == 30
    assert postgres.query(world, query, database=loans.DATABASE).to_dict() == publications
    with postgres.connect(world, loans.DATABASE, role="replication") as connection:
        assert connection.execute("SELECT count(*) FROM loans").fetchone() == (30,)


def test_a_reset_removes_nothing_if_the_rows_cannot_be_loaded_again(world, made):
    ensure(world, made, *STEPS)
    for statement in ("UPDATE loans SET value = 0", "CREATE VIEW mine AS SELECT * FROM loans"):
        postgres.execute(world, statement, database=loans.DATABASE)
    with pytest.raises(SourceError, match="(?s)loans.*depend"):
        reset(world, made, since=INGEST)
    assert all(is_done(world, made, step) for step in STEPS)
    postgres.execute(world, "DROP VIEW mine", database=loans.DATABASE)


def test_a_number_that_a_sequence_gave_is_a_change(world, made):
    loans.load(world)
    statement = "ALTER TABLE loans ALTER loan_id ADD GENERATED BY DEFAULT AS IDENTITY"
    with postgres.session(world, loans.DATABASE) as connection, connection.transaction():
        connection.execute(statement)
        names = ["public.loans"]
        before = loading.hash_rows(connection, names)
        connection.execute("SELECT nextval(pg_get_serial_sequence('loans', 'loan_id'))")
        assert loading.hash_rows(connection, names) != before


def test_the_teardown_leaves_what_the_user_has_under_similar_names(world, made):
    loans.load(world)
    topics.create(world, "loans.public.loans_mine")
    files.write_text(f"{world.lake.tables}/loans_mine/a.txt", "x")
    postgres.execute(world, "CREATE TABLE loans_mine (n int)", database=loans.DATABASE)
    stack.ensure_running(world, *{service for each in tracks.ALL for service in each.services})
    try:
        for each in tracks.ALL:
            reset(world, each)
        left = {each.name: each.resources.remaining(world) for each in tracks.ALL}
        assert not any(names for found in left.values() for names in found.values()), left
        assert not [a for a in registry.names(world) if a.startswith("loans.")]
        assert not any(is_done(world, made, step) for step in STEPS)
        assert "loans.public.loans_mine" in topics.names(world)
        assert files.list_files(f"{world.lake.tables}/loans_mine")
        mine = postgres.existing_tables(world, ["public.loans_mine"], loans.DATABASE)
        assert mine == ["public.loans_mine"]
    finally:
        topics.delete(world, "loans.public.loans_mine")
        files.remove(f"{world.lake.tables}/loans_mine")
