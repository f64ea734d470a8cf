"""Tables that are captured anew, from the message that refuses a change of type to a lake that
equals the source."""

import contextlib

import avro_help
import mariadb_help
import pytest
from workbench import connect, hudi, recapture
from workbench.base.errors import ConnectorError, LakeError
from workbench.checks import check
from workbench.source import postgres
from workbench.topic import registry, topics

NAME = "recaptured"
SCRIPT = """
    CREATE TABLE visits (id int PRIMARY KEY, at timestamp, n int NOT NULL);
    CREATE TABLE codes (id int PRIMARY KEY, code int);
    CREATE TABLE others (id int PRIMARY KEY, n int);
    INSERT INTO visits VALUES (1, '2024-02-29 10:00:00', 1), (2, NULL, 2), (3, '1999-12-31 23:59:59.999999', 3);
    INSERT INTO codes VALUES (1, 1), (2, 22), (3, NULL); INSERT INTO others VALUES (1, 1);
"""
MIGRATION = """
    DELETE FROM visits WHERE id = 1;
    ALTER TABLE visits ALTER COLUMN at TYPE timestamptz USING at AT TIME ZONE 'UTC';
    ALTER TABLE visits DROP COLUMN n;
    ALTER TABLE codes ALTER COLUMN code TYPE text USING 'c' || code;
    INSERT INTO visits VALUES (4, '2024-03-01 00:00:00+02'); INSERT INTO codes VALUES (4, 'vier');
"""


class Interrupted(Exception):
    """In the place of a kill."""


def walked(call):
    """Call it with a `say` that interrupts it after each step that it has not reported before,
    until it comes to its end. Returns what it returned, and how often it was interrupted."""
    reported = []

    def say(line):
        print(line)
        if line not in reported:
            reported.append(line)
            raise Interrupted

    for _ in range(30):
        with contextlib.suppress(Interrupted):
            return call(say), len(reported)
    raise AssertionError("it never ends")


@pytest.fixture
def lab(world, spark):
    made = []

    def table(name, **fields):
        made.append(
            hudi.table(world, f"{NAME}_{name}", **{"key": ("id",), "ordering": "__lsn", **fields})
        )
        return made[-1]

    with avro_help.museum(
        world,
        NAME,
        SCRIPT,
        ["visits", "codes", "others"],
        **{INCLUDED: "public.visits,public.codes,public.others"},
    ) as there:
        for source, n in (("visits", 3), ("codes", 3), ("others", 1)):
            topics.wait_for_messages(world, f"{NAME}.public.{source}", n, connector=NAME)
        yield there, table
        for each in made:
            hudi.drop(spark, world, each)
        registry.delete(world, *(a for a in registry.names(world) if a.startswith(NAME)))


INCLUDED = "table.include.list"


def ingest(spark, world, prefix, tables):
    for table, source in tables:
        hudi.ingest(spark, world, hudi.Topic(f"{prefix}.public.{source}", format="avro"), table)


def equal(spark, world, tables):
    for table, source in tables:
        truth = postgres.query(world, f"SELECT * FROM {source}")
        check.same_rows(
            truth,
            hudi.read(spark, table).toPandas()[list(truth.columns)],
            key="id",
            claim=table.name,
        )


@pytest.mark.drill  # three minutes; the others recapture, too
def test_refused_changes_walked_to_an_equal_table(lab, spark):
    world, table = lab
    config = {
        **avro_help.source_config(world, NAME),
        INCLUDED: "public.visits,public.codes,public.others",
    }
    tables = [
        (table("visits"), "visits"),
        (table("codes"), "codes"),
        (table("codes_mor", type="mor"), "codes"),
    ]
    others = [(table("others"), "others")]
    ingest(spark, world, NAME, [*tables, *others])
    for each, _ in tables:
        hudi.label(world, each, "before")
        hudi.register(spark, each)
    before = {each.name: hudi.read(spark, each).count() for each, _ in tables}
    postgres.execute(world, MIGRATION)
    topics.wait_for_messages(world, f"{NAME}.public.visits", 6, connector=NAME)
    topics.wait_for_messages(world, f"{NAME}.public.codes", 4, connector=NAME)
    for pair, said in zip(
        tables,
        (
            "at was timestamp.* and becomes string",
            "code was int and becomes string",
            "code was int and becomes string",
        ),
    ):
        with pytest.raises(LakeError, match=rf"(?s){said}.*recapture\.run\("):
            ingest(spark, world, NAME, [pair])

    captured = [recapture.CapturedTable(f"public.{source}", each) for each, source in tables]
    seen = []

    def once(say):
        def told(line):
            seen.append(
                [hudi.read(spark, each).count() for each, _ in tables]
            )  # a reader of them finds whole tables
            say(line)

        return recapture.run(spark, world, NAME, config, *captured, progress=told)

    done, interrupted = walked(once)
    assert interrupted == 9, (
        "the snapshot, a copy and a replacement for each table, the old connector, the end"
    )
    assert {tuple(n) for n in seen} <= {(a, b, c) for a in (3,) for b in (3, 4) for c in (3, 4)}, (
        seen
    )
    assert done.connector == f"{NAME}_r2" and done.config["topic.prefix"] == f"{NAME}_r2"
    assert done.rows == {each.name: n for (each, _), n in zip(tables, (3, 4, 4))}
    assert done.old_topics == [f"{NAME}.public.visits", f"{NAME}.public.codes"]
    equal(spark, world, tables)
    assert "n" not in hudi.read(spark, tables[0][0]).columns
    assert connect.names(world) == [NAME, f"{NAME}_r2"]

    # what comes later is read from the new topics; the old ones, which may lack what was deleted
    # since, are refused
    postgres.execute(
        world,
        "UPDATE visits SET at = now() WHERE id = 2; DELETE FROM codes WHERE id = 1; "
        "INSERT INTO others VALUES (2, 2)",
    )
    topics.wait_for_messages(world, f"{NAME}_r2.public.visits", 4, connector=f"{NAME}_r2")
    topics.wait_for_messages(world, f"{NAME}_r2.public.codes", 6, connector=f"{NAME}_r2")
    topics.wait_for_messages(world, f"{NAME}.public.others", 2, connector=NAME)
    ingest(spark, world, f"{NAME}_r2", tables)
    ingest(spark, world, NAME, others)
    for pair in tables:
        with pytest.raises(
            LakeError, match=f"(?s)was captured anew.*topic {NAME}_r2.public.{pair[1]}"
        ):
            ingest(spark, world, NAME, [pair])
    equal(spark, world, [*tables, *others])
    for each, source in tables:
        assert hudi.as_of(spark, world, each, "before").count() == before[each.name]
        entry = next(name for name, kind in hudi.catalog_names(each).items() if kind == "snapshot")
        assert spark.table(entry).count() == hudi.read(spark, each).count()
        assert hudi.schema_changes(each)["change"].tolist() == [
            f"captured anew from topic {NAME}_r2.public.{source}"
        ]

    # the same call again finds nothing to do; the last table of the old connector, and it is gone
    assert recapture.run(spark, world, NAME, config, *captured).rows.keys() == done.rows.keys()
    last = recapture.run(
        spark,
        world,
        NAME,
        {**config, INCLUDED: "public.others"},
        recapture.CapturedTable("public.others", others[0][0]),
    )
    assert connect.names(world) == [f"{NAME}_r2", f"{NAME}_r3"] and last.connector == f"{NAME}_r3"
    assert set(postgres.slots(world)["slot_name"]) == {
        done.config["slot.name"],
        last.config["slot.name"],
    }
    equal(spark, world, others)


def test_what_is_refused_changes_nothing(lab, spark):
    world, table = lab
    config = {
        **avro_help.source_config(world, NAME),
        INCLUDED: "public.visits,public.codes,public.others",
    }
    codes, empty, both = table("codes"), table("others"), table("both")
    ingest(
        spark, world, NAME, [(codes, "codes"), (empty, "others"), (both, "codes"), (both, "others")]
    )
    postgres.execute(world, "DELETE FROM others")

    def run(*captured, name=NAME, **more):
        return recapture.run(spark, world, name, {**config, **more}, *captured, timeout=5)

    good = recapture.CapturedTable("public.codes", codes)
    for error, said, call in (
        (ConnectorError, "there is no connector 'other'", lambda: run(good, name="other")),
        (
            ConnectorError,
            "does not capture public.code",
            lambda: run(recapture.CapturedTable("public.code", codes)),
        ),
        (ConnectorError, "no table is named", run),
        (
            ConnectorError,
            "its class is 'JdbcSourceConnector'",
            lambda: run(
                good, **{"connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector"}
            ),
        ),
        (
            ConnectorError,
            "is rejected for 1 key",
            lambda: run(good, **{"poll.interval.ms": "often"}),
        ),
        (
            LakeError,
            "table recaptured_codes is named twice",
            lambda: run(good, recapture.CapturedTable("public.visits", codes)),
        ),
        (
            LakeError,
            "table recaptured_both holds rows of other sources",
            lambda: run(recapture.CapturedTable("public.codes", both)),
        ),
        (
            LakeError,
            "public.others is empty",
            lambda: run(recapture.CapturedTable("public.others", empty)),
        ),
    ):
        with pytest.raises(error, match=said):
            call()
        assert connect.names(world) == [NAME]
    # the lake has one value otherwise than the source: the table stays, and the next call begins
    # where this one ended
    before = hudi.commits(codes)
    with pytest.raises(
        LakeError,
        match="(?s)copy of recaptured_codes to equal public.codes.*1 differences.*expected_sql=",
    ):
        run(
            recapture.CapturedTable(
                "public.codes",
                codes,
                expected_sql="SELECT id, code + (id = 2)::int AS code FROM codes",
            )
        )
    assert hudi.commits(codes).equals(before) and connect.names(world) == [NAME, f"{NAME}_r2"]
    with pytest.raises(
        LakeError,
        match="(?s)another recapture of recaptured is not finished.*repeat that recapture with these tables",
    ):
        run(recapture.CapturedTable("public.visits", table("visits")))
    done = run(good)
    assert done.connector == f"{NAME}_r2"
    equal(spark, world, [(codes, "codes")])
    # a table that never was: its topic had both types from the beginning
    new = table("new", type="mor", index="BUCKET", partition=("id",))
    again = recapture.run(
        spark, world, done.connector, done.config, recapture.CapturedTable("public.codes", new)
    )
    assert again.connector == f"{NAME}_r3"
    equal(spark, world, [(new, "codes")])


def test_a_table_of_mariadb(world, spark):
    """WordPress's keys: `bigint unsigned`, which are decimals of 20 digits by these connectors'
    setting."""
    name = "recaptured_wp"
    made = (
        "CREATE TABLE wp_posts (id bigint unsigned NOT NULL PRIMARY KEY AUTO_INCREMENT, menu_order int)",
        "INSERT INTO wp_posts VALUES (1, 1), (2, 2), (18446744073709551615, 3)",
    )
    with mariadb_help.captured_database(world, name, *made) as lab:
        config = {**lab.config, INCLUDED: f"{name}.wp_posts"}
        connect.delete(world, name)
        connect.apply(world, name, config)
        table = lab.table("posts", type="mor")
        topics.wait_for_messages(world, lab.topic("wp_posts"), 3, connector=name)
        hudi.ingest(spark, world, hudi.Topic(lab.topic("wp_posts"), format="avro"), table)
        mariadb_help.assert_lake_equals_source(spark, lab, "wp_posts", table, "a key without sign")
        lab.execute(
            "ALTER TABLE wp_posts MODIFY menu_order varchar(20)",
            "INSERT INTO wp_posts VALUES (7, 'seven')",
            "DELETE FROM wp_posts WHERE id = 1",
        )
        topics.wait_for_messages(world, lab.topic("wp_posts"), 4, connector=name)
        with pytest.raises(
            LakeError, match=r"(?s)menu_order was int and becomes string.*recapture\.run"
        ):
            hudi.ingest(spark, world, hudi.Topic(lab.topic("wp_posts"), format="avro"), table)
        done, interrupted = walked(
            lambda say: recapture.run(
                spark,
                world,
                name,
                config,
                recapture.CapturedTable(f"{name}.wp_posts", table),
                progress=say,
            )
        )
        assert interrupted == 5 and connect.names(world) == [f"{name}_r2"]
        lab.execute("INSERT INTO wp_posts VALUES (8, 'eight')", "DELETE FROM wp_posts WHERE id = 2")
        topic = f"{name}_r2.{name}.wp_posts"
        topics.wait_for_messages(world, topic, 6, connector=done.connector)
        hudi.ingest(spark, world, hudi.Topic(topic, format="avro"), table)
        mariadb_help.assert_lake_equals_source(spark, lab, "wp_posts", table, "after the recapture")
        connect.delete(world, done.connector)
