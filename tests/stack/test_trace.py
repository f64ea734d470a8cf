"""One row followed from the source's log to the views, on real parts: every link against who knows
it best."""

import avro_help
import pytest
from captured import captured
from lake_help import SCHEMA, change_record, new_table, new_topic, produce
from workbench import hudi, landing, trace
from workbench.base.errors import LakeError, WorkbenchError
from workbench.landing.sinks import LENSES
from workbench.source import postgres
from workbench.topic import registry, topics

NAME = "trace_test"
TOPIC = f"{NAME}.public.artists"
SCRIPT = """
    CREATE TABLE artists (artist_id int PRIMARY KEY, name text, nationality text, birth_year int, born date);
    INSERT INTO artists SELECT n, 'Artist ' || n, CASE n % 2 WHEN 0 THEN 'German' ELSE 'American' END, 1900 + n,
                               DATE '1900-01-01' FROM generate_series(1, 300) n"""
OFF = {"hoodie.compact.inline": "false"}


@pytest.fixture(scope="module")
def lab(world):
    with avro_help.museum(world, NAME, SCRIPT, tables=["artists"]) as lab:
        topics.wait_for_messages(lab, TOPIC, 300, connector=NAME)
        yield lab


@pytest.fixture(scope="module")
def traced(lab, spark):
    """Artist 299: loaded, changed, changed and moved in one batch, compacted, changed."""
    made = [
        new_table(
            lab,
            key=("artist_id",),
            partition=("nationality",),
            index="GLOBAL_SIMPLE",
            type=kind,
            deletes=deletes,
            database=f"trace_{kind}_{deletes}",
            extra=OFF if kind == "mor" else {},
        )
        for kind, deletes in (("cow", "hard"), ("mor", "soft"))
    ]
    sink = avro_help.sink_config(lab, NAME)
    transactions = []

    def go(*statements, messages=1):
        count = topics.offset_span(lab, TOPIC) if statements else 0
        with postgres.connect(lab) as c:
            for statement in statements:
                with c.transaction():
                    c.execute(statement)
                    transactions.append(
                        c.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()[0]
                    )
        topics.wait_for_messages(lab, TOPIC, count + messages, connector=NAME)
        landing.run(lab, sink)
        for each in made:
            hudi.ingest(spark, lab, hudi.Topic(TOPIC, format="avro"), each)

    go(messages=300)
    go("UPDATE artists SET birth_year = 1907 WHERE artist_id = 299")
    go(
        "UPDATE artists SET name = 'Bakker' WHERE artist_id = 299",
        "UPDATE artists SET nationality = 'German' WHERE artist_id = 299",
        messages=2,
    )
    hudi.compact(spark, made[1])
    go("UPDATE artists SET birth_year = 1905 WHERE artist_id = 299")
    yield captured(TOPIC, made, "artist_id", "avro", sink), go, transactions
    landing.drop(lab, sink)
    for each in made:
        hudi.drop(spark, lab, each)


def test_every_link_of_the_chain(lab, spark, traced):
    flow, go, transactions = traced
    life = trace.row(lab, flow, "artists", 299)
    found = life.changes
    assert list(found["what"]) == [
        "row read",
        "birth_year 2199 → 1907",
        "name Artist 299 → Bakker",
        "nationality American → German",
        "birth_year 1907 → 1905",
    ]
    assert list(found["op"]) == ["snapshot", *["update"] * 4] and list(found["change"]) == [
        1,
        2,
        3,
        4,
        5,
    ]
    messages = topics.read(lab, TOPIC)
    for line in found.itertuples():  # the topic: the decoded message at that very place
        at = messages[
            (messages["partition"] == line.partition) & (messages["offset"] == line.offset)
        ].iloc[0]
        peeked = registry.inspect_message(lab, at["value"])
        assert (peeked["record"]["artist_id"], peeked["record"]["__lsn"]) == (299, line.lsn)
        assert (
            f"globalId {peeked['schema_id']}" == line.schema and line.in_topic_at == at["timestamp"]
        )
        # the landed file: Spark finds the record in there
        landed = spark.read.format("avro").load(f"{lab.lake.landing}/{line.landed}")
        assert landed.where(f"artist_id = 299 AND __lsn = {line.lsn}").count() == 1
    newest = registry.artifacts(lab).query(f"artifact == '{TOPIC}-value'")["version"].iloc[-1]
    assert set(found["version"]) == {newest}
    assert (
        list(found["transaction"].iloc[1:]) == transactions
        and found["transaction"].iloc[0] < transactions[0]
    )
    for lake in life.tables:  # the lake: what Spark shows as of the commit
        for line in found.itertuples():
            commit, file = getattr(line, f"{lake.type}_commit"), getattr(line, f"{lake.type}_file")
            (then,) = hudi.as_of(spark, lab, lake, commit).where("artist_id = 299").collect()
            if getattr(line, lake.type if lake.type == "cow" else "mor_rt") == "never":
                assert line.what.startswith("name") and file == "" and then["__lsn"] > line.lsn
                continue
            assert (then["__lsn"], then["_hoodie_commit_time"]) == (line.lsn, commit)
            assert file.startswith(then["_hoodie_partition_path"] + "/")
            if file.endswith(".parquet"):
                assert file == f"{then['_hoodie_partition_path']}/{then['_hoodie_file_name']}"
            else:
                assert getattr(line, f"{lake.type}_file_group") in file and ".log." in file
    assert list(found["cow"]) == ["was", "was", "never", "was", "now"] == list(found["mor_rt"])
    assert list(found["mor_ro"]) == ["was", "never", "never", "now", "not yet"]
    shown = life.views.set_index("view")
    for view, birth in (
        ("trace_cow_hard.{}", 1905),
        ("trace_mor_soft.{}_ro", 1907),
        ("trace_mor_soft.{}_rt", 1905),
    ):
        view = view.format(life.tables["mor" in view].name)
        assert shown.loc[view, "birth_year"] == birth
        if "mor" in view:
            assert [r.birth_year for r in spark.table(view).where("artist_id = 299").collect()] == [
                birth
            ]


def test_a_deleted_row(lab, traced):
    flow, go, _ = traced
    go("DELETE FROM artists WHERE artist_id = 298", messages=2)
    life = trace.row(lab, flow, "artists", "298")
    last = life.changes.iloc[-1]
    assert (last["what"], last["op"], last["cow"], last["mor_rt"], last["mor_ro"]) == (
        "row deleted",
        "delete",
        "now",
        "now",
        "now",
    )
    before = life.changes.iloc[0]
    assert (before["cow"], before["mor_rt"], before["mor_ro"]) == ("was", "was", "now"), (
        "not compacted: two rows"
    )
    assert (
        last["cow_file_group"] == before["cow_file_group"]
        and last["mor_file_group"] != before["mor_file_group"]
    )
    assert [v[-3:] for v in life.views["view"]] == ["_ro", "_ro", "_rt"]


def test_what_is_not_there(lab, traced):
    flow, *_ = traced
    with pytest.raises(
        LakeError, match="(?s)has no message of artist_id 4711.*30. messages.*RUNNING"
    ):
        trace.row(lab, flow, "artists", 4711)
    with pytest.raises(WorkbenchError, match="there is no topic"):
        trace.row(lab, captured("no_such_topic", format="avro"), "", 1)


def test_json_by_way_of_landed_files(world, spark):
    topic = new_topic(world)
    config = {
        "connector.class": LENSES,
        "topics": topic,
        "connect.s3.kcql": f"INSERT INTO lake:{topic} SELECT * FROM {topic} PARTITIONBY part STOREAS `json`",
    }
    lake = new_table(world, index="GLOBAL_SIMPLE")
    try:
        for messages in (
            [change_record(1, 1, "one"), change_record(2, 1)],
            [change_record(1, 2, "two", op="u"), ("1", None)],
            [change_record(1, 3, "two", part="q", op="u")],
        ):
            produce(world, topic, *messages)
            landing.run(world, config)
            hudi.ingest(spark, world, hudi.Landed(topic), lake, schema=SCHEMA)
        produce(world, topic, change_record(1, 4, "three", part="q", op="u"))
        found = trace.row(world, captured(topic, [lake], sink=config), "", 1).changes
        assert list(found["what"]) == [
            "row inserted",
            "text one → two",
            "part p → q",
            "text two → three",
        ]
        assert list(found["offset"]) == [0, 2, 4, 5] and set(found["schema"]) == {"inline"}
        assert list(found["landed"]) == [
            *(
                f"{topic}/part={p}/{topic}-0-{n:020d}.json"
                for p, n in (("p", 0), ("p", 2), ("q", 4))
            ),
            "",
        ]
        commits = list(hudi.commits(lake)["instant"])
        assert list(found["cow_commit"]) == [*commits, ""] and list(found["cow"]) == [
            "was",
            "was",
            "now",
            "",
        ]
    finally:
        hudi.drop(spark, world, lake)
        landing.drop(world, config)
        topics.delete(world, topic)


def test_a_row_is_found_among_many_others(lab, traced):
    """More messages than one fetch brings; how long it takes in the whole museum, `make bench`
    says."""
    flow, *_ = traced
    from confluent_kafka import Producer

    producer = Producer(topics.settings(lab, **{"queue.buffering.max.messages": 200_000}))
    other = topics.read(lab, TOPIC, limit=1).iloc[0]
    for _ in range(20_000):
        producer.produce(TOPIC, key=other["key"], value=other["value"])
    assert producer.flush(60) == 0
    assert len(trace.row(lab, flow, "artists", 299).changes) == 5
