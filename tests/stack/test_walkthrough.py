"""A third walkthrough, declared in loans.py, gets from that what the others have: on real parts."""

from pathlib import Path

import loans
import nbformat
import pytest
from workbench import stack, trace, tracks
from workbench.base.errors import SourceError, WorkbenchError
from workbench.checks import check
from workbench.flow.baseline import Baseline
from workbench.source import postgres
from workbench.topic import registry, topics

STEPS = {
    "71_source_database": "loans.walkthrough.reset(world)\nloans.load(world)",
    "72_connectors": "loans.flow.deploy(world)",
    "73_hudi_ingest": 'loans.flow.sync(session(world), world, kind="landed")',
    "74_look": "1 / 0",
}
BEGIN = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
import loans
from workbench.base import params
from workbench.spark import session
world = params.load(world)
loans.walkthrough = loans.in_folder(Path.cwd())
"""


def databases(world):
    return set(
        postgres.query(world, "SELECT datname FROM pg_database", database="postgres")["datname"]
    )


@pytest.fixture
def walkthrough(world, tmp_path, monkeypatch):
    stack.ensure_running(world, *loans.walkthrough.steps.services)
    for name, code in STEPS.items():
        cells = [
            nbformat.v4.new_code_cell('world = "local"', metadata={"tags": ["parameters"]}),
            nbformat.v4.new_code_cell(BEGIN + code),
        ]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / f"{name}.ipynb")
    made = loans.in_folder(tmp_path)
    monkeypatch.setattr(tracks, "ALL", (*tracks.ALL, made))
    yield made
    made.reset(world)
    postgres.execute(
        world, f"DROP DATABASE IF EXISTS {loans.DATABASE} WITH (FORCE)", database="postgres"
    )


def test_a_walkthrough_is_a_declaration(world, spark, walkthrough, capsys):
    flow = walkthrough.flow
    steps = ("71_source_database", "72_connectors", "73_hudi_ingest")
    before = databases(world), topics.names(world)
    assert not any(walkthrough.is_done(world, step) for step in steps)
    assert (databases(world), topics.names(world)) == before, "a question changes nothing"
    with pytest.raises(WorkbenchError, match="(?s)no step '74_look'.*valid: .*73_hudi_ingest"):
        walkthrough.ensure(world, "74_look")  # nothing hangs on it

    walkthrough.ensure(world, *reversed(steps))
    assert [
        line.split()[0]
        for line in capsys.readouterr().out.splitlines()
        if "running it first" in line
    ] == [*steps]
    assert all(walkthrough.is_done(world, step) for step in (*steps, "connectors"))
    walkthrough.ensure(world, *steps)
    assert "running it first" not in capsys.readouterr().out
    left = walkthrough.resources.remaining(world)
    for none in (
        "databases in the catalog",
        "other tables in the catalog",
        "stores of its services",
        "processes",
        "consumer groups",
    ):
        assert left.pop(none) == [], "none of its notebooks makes one"
    assert all(left.values()) and left["topics"] == [
        "__debezium-heartbeat.loans",
        "loans.public.loans",
    ], left

    flow.compare(spark, world)
    loaded = flow.rows(world)
    flow.change(world, "loans", 3, value=7, due="2031-12-31")
    with pytest.raises(AssertionError, match="(?s)loan_id=3, (value|due)"):
        flow.compare(spark, world)
    statements = (
        "DELETE FROM loans WHERE loan_id = 4; INSERT INTO loans VALUES (31, 'New', 1, '2030-02-02')"
    )
    postgres.execute(
        world, statements, database=loans.DATABASE
    )  # nobody waits for these events but `follow`
    done = flow.sync(spark, world, label="changed")["loans"]
    assert (done.upserts, done.deletes) == (3, 1), "the two rows, and the watermark"
    flow.compare(spark, world)
    life = trace.row(world, flow, "loans", 3)
    assert list(life.changes["op"]) == ["snapshot", "update"] and list(life.changes["cow"]) == [
        "was",
        "now",
    ]
    assert life.changes["landed"].str.startswith("loans/loans.public.loans/").all()

    walkthrough.reset(world, "73_hudi_ingest")
    check.same_rows(loaded, flow.rows(world), key="loan_id", claim="set back")
    assert [walkthrough.is_done(world, step) for step in steps] == [True, True, False]
    assert topics.offset_span(world, flow.topic(world)) == len(loaded), "a snapshot, nothing else"
    assert flow.sync(spark, world, kind="landed")["loans"].upserts == len(loaded) + 1, (
        "and the watermark"
    )
    flow.compare(spark, world)

    stack.ensure_running(
        world, *{service for each in tracks.ALL for service in each.steps.services}
    )
    for each in tracks.ALL:
        each.reset(world)
    left = {each.name: each.resources.remaining(world) for each in tracks.ALL}
    assert not any(names for found in left.values() for names in found.values()), left
    assert not [a for a in registry.artifacts(world)["artifact"] if a.startswith("loans.")]
    assert not any(walkthrough.is_done(world, step) for step in steps)


SCRIPT = """
    CREATE TABLE heads (id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, body text);
    CREATE TABLE items (head int REFERENCES heads, "No" int, price numeric, tags jsonb, total int
                        GENERATED ALWAYS AS (head + "No") STORED, PRIMARY KEY (head, "No"));
    CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.body = NEW.body || '!'; RETURN NEW; END $$;
    INSERT INTO heads SELECT n, 'head ' || n FROM generate_series(1, 5) n;
    INSERT INTO items SELECT n, 1, n / 10.0, '{"a": 1}' FROM generate_series(1, 5) n;
    CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON heads FOR EACH ROW EXECUTE FUNCTION stamp();"""


def test_a_source_is_set_back_to_what_was_kept(world):
    """Keys of several columns, foreign keys, triggers, generated columns, columns added since; rows
    that are as they were are not written."""
    tables, database = ("public.items", "public.heads"), "kept_lab"
    baseline = Baseline(tables, database)
    postgres.create_database(world, database)
    try:
        postgres.execute(world, SCRIPT, database=database)
        with pytest.raises(SourceError, match="kept"):
            baseline.restore(world)
        assert not baseline.exists(world)
        baseline.save(world)
        assert baseline.exists(world) and baseline.restore(world) == 0

        def rows():
            return {
                t: postgres.query(world, f"SELECT * FROM {t} ORDER BY 1, 2", database=database)
                for t in tables
            }

        loaded, untouched = rows(), "SELECT xmin::text AS x FROM heads WHERE id = 1"
        written = postgres.query(world, untouched, database=database).loc[0, "x"]
        postgres.execute(
            world,
            """
            DELETE FROM items WHERE head = 2; DELETE FROM heads WHERE id = 2;
            UPDATE heads SET body = NULL WHERE id = 3; UPDATE items SET tags = '{"a": 2}' WHERE head = 4;
            INSERT INTO heads VALUES (9, 'new'); INSERT INTO items (head, "No") VALUES (9, 1), (1, 2);
            ALTER TABLE heads ADD COLUMN later text""",
            database=database,
        )
        assert baseline.restore(world) == 7
        now = rows()
        now["public.heads"] = now["public.heads"].drop(columns="later")
        for table in tables:
            check.same_rows(
                loaded[table],
                now[table],
                key=list(loaded[table].columns[:2]),
                claim=f"{table} set back",
            )
        assert postgres.query(world, untouched, database=database).loc[0, "x"] == written
        rename = "ALTER TABLE heads RENAME COLUMN {} TO {}"
        postgres.execute(world, rename.format("body", "content"), database=database)
        with pytest.raises(SourceError, match="public.heads has no column body any more"):
            baseline.restore(world)
        postgres.execute(world, rename.format("content", "body"), database=database)
        new = "INSERT INTO heads (body) VALUES ('the next') RETURNING id"
        assert postgres.query(world, new, database=database).loc[0, "id"] == 6, (
            "as it would have been at the beginning"
        )
        postgres.execute(
            world, "DROP TABLE items; CREATE TABLE items (n int PRIMARY KEY)", database=database
        )
        assert not baseline.exists(world), "the copy is of another table of that name"
        baseline.delete(world)
        assert not Baseline(("public.heads",), database).exists(world)
    finally:
        postgres.execute(world, f"DROP DATABASE {database} WITH (FORCE)", database="postgres")
