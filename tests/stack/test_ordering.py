"""MariaDB's changes in the order of its log, which is a file, a position in it, and a row of the
event: its time has whole seconds, and a server that starts again begins another file, at its first
    position."""

import pytest
from captured import captured
from mariadb_help import assert_lake_equals_source, captured_database
from workbench import hudi, stack, trace
from workbench.base.errors import LakeError
from workbench.topic import registry, topics

NAME = "ordering_test"


@pytest.fixture
def lab(world):
    with captured_database(
        world,
        NAME,
        "CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL)",
        "INSERT INTO t VALUES (1, 0), (2, 0), (3, 0)",
    ) as lab:
        topics.wait_for_messages(world, lab.topic("t"), 3, connector=NAME)  # the snapshot
        yield lab


def records(lab):
    found = (
        registry.inspect_message(lab.world, value)
        for value in topics.read(lab.world, lab.topic("t"))["value"]
        if value
    )
    return [each["record"] for each in found]


def test_the_last_change_wins_within_a_second_and_across_a_restart_of_the_server(lab, world, spark):
    topic, tables = lab.topic("t"), [lab.table("t", type=kind) for kind in ("cow", "mor")]
    sent = 3

    def ingest(*statements, messages, **knobs):
        nonlocal sent
        if statements:
            lab.execute(*statements)
        sent += messages
        topics.wait_for_messages(world, topic, sent, connector=NAME)
        done = [
            hudi.ingest(spark, world, hudi.Topic(topic, format="avro"), table, **knobs)
            for table in tables
        ]
        for table in tables:
            assert_lake_equals_source(spark, lab, "t", table, f"{table.type}, {sent} messages")
        return done

    many = [f"UPDATE t SET n = {n} WHERE id = 1" for n in range(1, 8)]
    ingest("BEGIN", *many, "COMMIT", messages=7)  # with the snapshot, the first load
    # rows of one event, hence of one position: the second and the third change of key 4
    ingest(
        "INSERT INTO t VALUES (4, 1), (4, 2), (4, 3), (5, 1) ON DUPLICATE KEY UPDATE n = VALUES(n)",
        messages=4,
    )
    done = ingest(
        *many, "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (2, 9)", messages=10, batch=2
    )
    assert [each.batches for each in done] == [5, 5]
    old = records(lab)[-1]
    assert len({r["__source_ts_ms"] for r in records(lab)}) < len(records(lab)) - 3, (
        "no two came within a second"
    )
    assert len({(r["__source_file"], r["__source_pos"]) for r in records(lab) if r["id"] == 4}) < 3

    stack.stop("mariadb")
    stack.ensure_running(world, "mariadb")
    ingest(*many, "UPDATE t SET n = n + 1", "DELETE FROM t WHERE id = 3", messages=7 + 5 + 2)
    new = records(lab)[-1]
    assert new["__source_file"] > old["__source_file"] and new["__source_pos"] < old["__source_pos"]

    before = [
        sorted(map(tuple, hudi.read(spark, table).select("id", "n", "__position").collect()))
        for table in tables
    ]
    assert [each.messages for each in ingest(messages=0, replay=True)] == [sent, sent]
    assert before == [
        sorted(map(tuple, hudi.read(spark, table).select("id", "n", "__position").collect()))
        for table in tables
    ]
    assert all(
        place.startswith(f"{new['__source_file']}/0000") for rows in before for *_, place in rows
    )
    assert all(hudi.schema_changes(table).empty for table in tables)

    life = trace.row(world, captured(topic, tables, format="avro"), "t", 1).changes
    for view in ("cow", "mor_rt"):
        assert list(life[view] == "now") == [False] * (len(life) - 1) + [True], life[view]


def test_each_part_has_to_be_there(lab, world, spark):
    other = hudi.table(
        world, f"{NAME}_other", key=("id",), ordering="__source_file,__source_position"
    )
    with pytest.raises(LakeError, match="the reader schema has no field '__source_position'"):
        hudi.ingest(spark, world, hudi.Topic(lab.topic("t"), format="avro"), other)
