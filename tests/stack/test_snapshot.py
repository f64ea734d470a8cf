"""Batches of a snapshot are bulk inserts while it runs; the lake equals the source whatever comes."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import avro_help
import pytest
from lake_help import (
    SCHEMA,
    change_record,
    kill_service,
    kill_service_during,
    new_table,
    new_topic,
    produce,
    table_content,
)
from pyspark.sql import types as T
from workbench import connect, hudi, stack
from workbench.base import paths
from workbench.hudi import changes
from workbench.results import check
from workbench.source import postgres
from workbench.spark import session
from workbench.topic import registry, topics

BATCH = 50  # messages
NAME, ROWS, VISITS_BATCH, LAST_ID = "overlapped", 6_000, 1_000, 500_000
SCRIPT = f"""
    CREATE TABLE visits (id int PRIMARY KEY, part text NOT NULL, n int NOT NULL);
    ALTER TABLE visits REPLICA IDENTITY FULL;
    INSERT INTO visits SELECT id, 'p' || id % 2, 0 FROM generate_series(1, {ROWS}) AS id;
"""
# A snapshot of several seconds: at most one row in half a millisecond.
SLOW = {
    "table.include.list": "public.visits",
    "snapshot.select.statement.overrides": "public.visits",
    "snapshot.select.statement.overrides.public.visits": "SELECT * FROM public.visits WHERE "
    "pg_sleep(0.0005)::text = ''",
    "snapshot.fetch.size": "100",
    "max.batch.size": "100",
}
JSON = {
    **{
        f"{side}.converter": "org.apache.kafka.connect.json.JsonConverter"
        for side in ("key", "value")
    },
    **{
        f"{side}.converter.apicurio.registry.{key}": None
        for side in ("key", "value")
        for key in ("url", "auto-register", "find-latest", "headers.enabled")
    },
}
VISITS = T.StructType(
    [
        T.StructField(*f)
        for f in (
            ("id", T.IntegerType()),
            ("part", T.StringType()),
            ("n", T.IntegerType()),
            ("__op", T.StringType()),
            ("__deleted", T.StringType()),
            ("__lsn", T.LongType()),
        )
    ]
)


@pytest.fixture
def lake(world, spark, monkeypatch):
    """A topic and a table of their own, with `go(*messages)`: send and ingest them."""
    monkeypatch.setattr(changes, "SMALL_BATCH_MESSAGES", 2)
    made = []

    def make(**fields):
        topic, table = new_topic(world), new_table(world, **fields)
        made.append((topic, table))

        def go(*messages, **knobs):
            produce(world, topic, *messages)
            knobs = {"schema": SCHEMA, "batch": BATCH, **knobs}
            return hudi.ingest(session(world), world, hudi.Topic(topic), table, **knobs)

        return SimpleNamespace(
            topic=topic,
            table=table,
            go=go,
            rows=lambda: table_content(session(world), table),
            operations=lambda: list(hudi.commits(table)["operation"]),
        )

    yield make
    for topic, table in made:
        hudi.drop(session(world), world, table)
        topics.delete(world, topic)


def reads(*keys, lsn=1):
    return [change_record(key, lsn, part="pq"[key % 2], op="r") for key in keys]


def expected(*keys, lsn=1):
    return [(key, "pq"[key % 2], "x", lsn) for key in keys]


@pytest.mark.parametrize("kind, index", [("cow", "SIMPLE"), ("mor", "GLOBAL_SIMPLE")])
def test_batches_of_new_rows_are_bulk_inserts(lake, kind, index):
    it = lake(type=kind, index=index)
    keys = [n * 37 % 101 for n in range(2 * BATCH)]  # in no order
    done = it.go(*reads(*keys))
    assert (done.upserts, done.batches) == (2 * BATCH, 2)
    it.go(*reads(101))  # a small batch makes no small file, and does not end the mode
    it.go(*reads(102, 103, 104))
    assert it.operations() == ["BULK_INSERT", "BULK_INSERT", "UPSERT", "BULK_INSERT"]
    assert it.rows() == expected(*sorted(keys), 101, 102, 103, 104)


# {what ends the mode: the messages of the second batch, and {key: ordering value} that it leaves}
FIRST = range(10, 20)
ENDS = {
    "a change": ([*reads(1, 2, 3), change_record(4, 5, "x", "p", "c")], {1: 1, 2: 1, 3: 1, 4: 5}),
    "a delete": ([*reads(1, 2, 3), change_record(12, 5, "x", "p", "d")], {1: 1, 2: 1, 3: 1}),
    "a tombstone": ([*reads(1, 2, 3), ("1", None)], {1: 1, 2: 1, 3: 1}),
    "a dead letter": ([*reads(1, 2, 3), {**reads(4)[0], "id": None}], {1: 1, 2: 1, 3: 1}),
    "a repeated key": ([*reads(1, 2, 3), *reads(2, lsn=5)], {1: 1, 2: 5, 3: 1}),
    "a known key": ([*reads(1, 2, 30), *reads(15, lsn=5)], {1: 1, 2: 1, 15: 5, 30: 1}),
    "all rows again": (reads(*FIRST, 20, lsn=5), {key: 5 for key in (*FIRST, 20)}),
    "a small change": ([change_record(15, 5, part="q", op="u")], {15: 5}),
    "a repeated key, small": ([*reads(1), *reads(1, lsn=5)], {1: 5}),
}
SHORT = ("a change", "a repeated key", "a known key", "a repeated key, small")


@pytest.mark.parametrize(
    "what",
    [what if what in SHORT else pytest.param(what, marks=pytest.mark.drill) for what in ENDS],
)
def test_what_ends_the_mode_ends_it_for_good(lake, what):
    messages, after = ENDS[what]
    it = lake()
    it.go(*reads(*FIRST))
    it.go(*messages)
    it.go(*reads(31, 32, 33))
    assert it.operations() == ["BULK_INSERT", "UPSERT", "UPSERT"]
    content = {**dict.fromkeys(FIRST, 1), **after, 31: 1, 32: 1, 33: 1}
    if what == "a delete":
        del content[12]
    assert it.rows() == [row for key in sorted(content) for row in expected(key, lsn=content[key])]


def test_a_first_batch_that_is_no_snapshot_begins_no_mode(lake):
    for first in (
        [*reads(1, 2, 3), change_record(4, 1, part="p", op="c")],
        [*reads(1, 2, 3, 4), *reads(4)],
    ):
        it = lake()
        it.go(*first)
        it.go(*reads(5, 6, 7))
        assert it.operations() == ["BULK_INSERT", "UPSERT"]
        assert it.rows() == expected(*range(1, 8))


NO_OP = T.StructType([f for f in SCHEMA if f.name != "__op"])


@pytest.mark.parametrize(
    "fields, schema", [({"index": "BUCKET", "partition": ()}, SCHEMA), ({}, NO_OP)]
)
def test_tables_without_the_mode(lake, fields, schema):
    it = lake(**fields)
    it.go(*reads(1, 2), schema=schema)
    it.go(*reads(3, 4, 5, 6), schema=schema)
    assert it.operations() == ["BULK_INSERT", "UPSERT"]
    assert it.rows() == expected(*range(1, 7))


def test_a_key_of_nothing_but_partition_fields(lake):
    it = lake(key=("part",))
    it.go(*reads(1, 2))
    it.go(*[{**row, "part": part} for row, part in zip(reads(3, 4, 5, lsn=5), "prs")])
    assert it.operations() == ["BULK_INSERT", "UPSERT"]
    assert it.rows() == [
        (1, "q", "x", 1),
        *((n, part, "x", 5) for n, part in zip((3, 4, 5), "prs")),
    ]


def test_a_key_with_a_partition_field(lake):
    """An empty text reads as null there: the other fields of the key are compared."""
    it = lake(key=("id", "part"))
    empty = [{**row, "part": ""} for row in reads(1, 2, 3)]
    it.go(*empty)
    it.go(*reads(4, 5, 6))
    it.go(*[{**row, "__lsn": 5} for row in empty])
    assert it.operations() == ["BULK_INSERT", "BULK_INSERT", "UPSERT"]
    assert [(row[0], row[3]) for row in it.rows()] == [(n, 5 if n < 4 else 1) for n in range(1, 7)]


def test_other_commits_end_the_mode(lake, world, spark):
    it = lake()
    it.go(*reads(1, 2, 3))
    other = new_topic(world)
    produce(world, other, *reads(4, 5, 6))
    hudi.ingest(spark, world, hudi.Topic(other), it.table, schema=SCHEMA)
    topics.delete(world, other)
    it.go(*reads(7, 8, 9))
    assert it.operations() == ["BULK_INSERT", "UPSERT", "UPSERT"]
    more = T.StructType([*SCHEMA, T.StructField("more", T.StringType())])
    wider = lake()
    wider.go(*reads(1, 2, 3))
    wider.go(*reads(4, 5, 6), schema=more)
    assert wider.operations() == ["BULK_INSERT", "UPSERT"]
    sql = lake()
    sql.go(*reads(1, 2, 3))
    row = hudi.read(spark, sql.table).where("id = 3").drop("_hoodie_is_deleted")
    hidden = [name for name in row.columns if name.startswith("_hoodie")]
    options = {**sql.table.options(), "hoodie.datasource.write.operation": "delete"}
    row.drop(*hidden).write.format("hudi").options(**options).mode("append").save(sql.table.base)
    sql.go(*reads(7, 8, 9))
    assert sql.operations() == ["BULK_INSERT", "DELETE", "UPSERT"]
    assert sql.rows() == expected(1, 2, 7, 8, 9)


def test_an_ingest_waits_until_the_source_is_complete(lake):
    """It takes whole batches until then, and the rest at the end."""
    it, keys, commits = lake(), range(BATCH + 10), []

    def is_complete():
        commits.append(len(it.operations()))
        return len(commits) >= 5

    assert it.go(*reads(*keys), until=is_complete).batches == 2
    assert commits == [0, 1, 1, 1, 1, 2]
    assert it.rows() == expected(*keys)


@pytest.fixture
def visits(request, world, spark, monkeypatch):
    """The slow snapshot of a source table; each type of table in the parameter is ingested meanwhile."""
    format, *kinds = request.param
    monkeypatch.setattr(changes, "SMALL_BATCH_MESSAGES", 2)
    stopped = threading.Event()
    settings = {**SLOW, **(JSON if format == "json" else {})}
    with avro_help.museum(world, NAME, SCRIPT, tables=("visits",), **settings) as lab:
        topic = f"{NAME}.public.visits"
        topics.wait_for_messages(lab, topic, 1, connector=NAME)
        tables = [
            hudi.table(
                lab, f"{NAME}_{kind}", key=("id",), ordering="__lsn", partition=("part",), type=kind
            )
            for kind in kinds
        ]
        source = hudi.Topic(topic, format=format)
        schema = VISITS if format == "json" else None

        def load(table):
            hudi.ingest(
                session(lab),
                lab,
                source,
                table,
                schema=schema,
                batch=VISITS_BATCH,
                until=stopped.is_set,
            )

        with ThreadPoolExecutor() as pool:
            jobs = [pool.submit(load, table) for table in tables]
            try:
                yield SimpleNamespace(
                    lab=lab,
                    topic=topic,
                    tables=tables,
                    jobs=jobs,
                    stopped=stopped,
                    wait=lambda n: topics.wait_for_messages(lab, topic, n, connector=NAME),
                )
            finally:
                stopped.set()
        for table in tables:
            hudi.drop(spark, lab, table)


ALL_KINDS = pytest.mark.parametrize(
    "visits",
    [
        ("json", "cow"),
        pytest.param(("avro", "cow"), marks=pytest.mark.drill),
        ("avro", "cow", "mor"),
    ],
    indirect=True,
    ids="-".join,
)
TWO_TABLES = pytest.mark.parametrize(
    "visits", [("avro", "cow", "mor")], indirect=True, ids="-".join
)


def change(it):
    """Update and delete rows, and change keys."""
    postgres.execute(it.lab, "UPDATE visits SET n = n + 1 WHERE id % 100 = 0")
    postgres.execute(it.lab, "DELETE FROM visits WHERE id % 100 = 1")
    postgres.execute(it.lab, "UPDATE visits SET id = id + 100000 WHERE id % 100 = 2")


def operations_at_the_end(it, world):
    """Wait until the tables equal the source; return the ingest's operations of each."""
    postgres.execute(it.lab, f"INSERT INTO visits VALUES ({LAST_ID}, 'p1', 1)")
    check.eventually(
        "the last row is in the topic", lambda: last_id(it) == LAST_ID, timeout=60, interval=0.2
    )
    it.stopped.set()
    for job in it.jobs:
        job.result(300)  # a dozen batches remain at most
    source = postgres.query(it.lab, "SELECT id, part, n FROM visits")
    for table in it.tables:
        lake = hudi.read(session(world), table).select("id", "part", "n").toPandas()
        check.same_rows(source, lake, key="id", claim=f"{table.name} = source")
    commits = [hudi.commits(table)["operation"] for table in it.tables]
    # After five commits Hudi compacts a Merge-on-Read table that has logs, which changes no row.
    return [[each for each in operations if each != "COMPACT"] for operations in commits]


def last_id(it):
    """Return the id in the last message of the topic."""
    ends = topics.end_offsets(it.lab, it.topic)
    last = topics.read(it.lab, it.topic, start_offsets={p: n - 1 for p, n in ends.items()})
    value = last["value"].iloc[-1]
    if value is None:
        return None
    if value[:1] == "{":
        return json.loads(value)["payload"]["id"]
    return registry.inspect_message(it.lab, value)["record"]["id"]


def is_begun_and_ended(operations):
    """Return whether several bulk inserts come first, and nothing but upserts after them."""
    begin = operations.index("UPSERT")
    return (
        begin >= 2
        and set(operations[:begin]) == {"BULK_INSERT"}
        and set(operations[begin:]) == {"UPSERT"}
    )


@ALL_KINDS
def test_changes_during_the_snapshot(visits, world):
    visits.wait(ROWS // 3)
    change(visits)
    assert topics.offset_span(visits.lab, visits.topic) < ROWS, "the snapshot was over"
    for operations in operations_at_the_end(visits, world):
        assert operations == ["BULK_INSERT"] * (ROWS // VISITS_BATCH) + ["UPSERT"]


@ALL_KINDS
def test_an_interrupted_snapshot(visits, world):
    before = visits.wait(ROWS // 2)
    apply_changed(visits)
    visits.wait(before + ROWS // 2)  # the second attempt is on its way
    change(visits)
    for operations in operations_at_the_end(visits, world):
        assert is_begun_and_ended(operations), operations
    require_messages(visits, ROWS * 5 // 4)


@pytest.mark.drill
@TWO_TABLES
def test_a_snapshot_whose_worker_is_killed(visits, world):
    before = visits.wait(ROWS // 2)
    kill_service("connect")
    # no deletes: Debezium does not send those between two attempts (docs/limits.md)
    postgres.execute(visits.lab, "UPDATE visits SET n = n + 1 WHERE id % 10 = 0")
    stack.ensure_running(world, "connect")
    visits.wait(before + ROWS // 2)
    change(visits)
    for operations in operations_at_the_end(visits, world):
        assert is_begun_and_ended(operations), operations
    require_messages(visits, ROWS * 5 // 4)


@pytest.mark.drill
@TWO_TABLES
def test_a_connector_restart_that_reads_the_snapshot_again(visits, world):
    visits.wait(ROWS)
    postgres.execute(visits.lab, "UPDATE visits SET n = n + 1 WHERE id % 100 = 0")
    visits.wait(ROWS + ROWS // 100)
    apply_changed(visits, **{"snapshot.mode": "always"})
    visits.wait(ROWS * 3 // 2)
    change(visits)
    for operations in operations_at_the_end(visits, world):
        assert is_begun_and_ended(operations), operations
    require_messages(visits, ROWS * 2)


def apply_changed(it, **changes):
    """Change the connector, which restarts its task."""
    config = {**connect.deployed(it.lab, NAME), "poll.interval.ms": "60", **changes}
    connect.apply(it.lab, NAME, config)


def require_messages(it, n):
    total = topics.offset_span(it.lab, it.topic)
    assert total > n, f"{total} messages: no row was read twice, so nothing is tested"


@pytest.mark.drill
def test_spark_killed_during_a_bulk_insert(lake):
    it, keys = lake(), range(60_000)
    it.go(*reads(*keys[:20_000]), batch=20_000)
    folder = paths.local_path(it.table.base)

    def data_files():
        return {p for p in folder.rglob("*.parquet") if not p.name.startswith(".")}

    before = data_files()
    raised = kill_service_during(
        lambda: it.go(*reads(*keys[20_000:]), batch=20_000),
        lambda: data_files() - before,
        "a file is there, its commit is not",
    )
    assert raised and it.operations() == ["BULK_INSERT"], "it was committed before the kill"
    assert it.rows() == expected(*keys[:20_000])
    it.go(batch=20_000)
    assert it.rows() == expected(*keys)
    assert it.operations() == ["BULK_INSERT"] * 3
