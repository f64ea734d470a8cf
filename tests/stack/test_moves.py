"""Rows that move between the partitions of a table whose index searches one partition only."""

import pytest
from avro_help import museum
from lake_help import (
    SCHEMA,
    TRACKED_SCHEMA,
    change_record,
    new_table,
    new_topic,
    produce,
    table_content,
)
from test_random_changes import COLUMNS, SCRIPT, Changes, same
from workbench import hudi
from workbench.base.errors import LakeError
from workbench.source import postgres
from workbench.topic import topics

NAME = "moves_test"
TOPIC = f"{NAME}.public.artists"
ADDED = "op,lsn,before.artist_id,before.nationality"


@pytest.fixture
def lab(world):
    script = SCRIPT.replace("INSERT", "ALTER TABLE artists REPLICA IDENTITY FULL; INSERT", 1)
    added = {"transforms.unwrap.add.fields": ADDED}
    with museum(world, NAME, script, tables=["artists"], **added) as lab:
        topics.wait_for_messages(lab, TOPIC, 200, connector=NAME)
        yield lab


@pytest.mark.parametrize(
    "changes, batch, index",
    [
        (500, 170, "BUCKET"),
        (500, 7, "BUCKET"),
        (500, 100_000, "BUCKET"),
        (2_000, 300, "BUCKET"),
        (500, 170, "SIMPLE"),
    ],
)
@pytest.mark.drill
def test_random_changes_with_moves(lab, world, spark, changes, batch, index):
    """The rows of both types of table are the source's, after each ingest, and after a compaction."""
    tables = {
        kind: new_table(
            world, key=("artist_id",), partition=("nationality",), index=index, type=kind
        )
        for kind in ("cow", "mor")
    }
    made, count = Changes(), 200
    try:
        for part in range(2):
            with postgres.connect(lab) as c:
                for _ in range(changes // 20):
                    with c.transaction():
                        for _ in range(10):
                            statement, values, messages = made.next()
                            assert c.execute(statement, values).rowcount == 1
                            count += messages
            topics.wait_for_messages(lab, TOPIC, count, connector=NAME)
            truth = postgres.query(lab, f"SELECT {', '.join(COLUMNS)} FROM artists ORDER BY 1")
            for kind, table in tables.items():
                topic = hudi.Topic(TOPIC, format="avro")
                done = hudi.ingest(spark, lab, topic, table, batch=batch)
                assert done.dead_letters == 0 and done.messages > 0
                same(truth, hudi.read(spark, table).toPandas(), f"{kind}, part {part}")
                if kind == "mor":
                    hudi.compact(spark, table)
                    same(truth, hudi.read(spark, table).toPandas(), f"compacted, part {part}")
                    same(truth, hudi.read_independent(table), f"hudi-rs, part {part}")
        assert made.counts["move"] > changes // 10
        for table in tables.values():
            topic = hudi.Topic(TOPIC, format="avro")
            hudi.ingest(spark, lab, topic, table, batch=batch, replay=True)
            same(truth, hudi.read(spark, table).toPandas(), f"{table.type}, replayed")
    finally:
        for table in tables.values():
            hudi.drop(spark, world, table)


class Lake:
    """A table with its topic; `moved` is an update from another partition."""

    def __init__(self, world, spark, **fields):
        self.world, self.spark = world, spark
        self.table, self.topic = new_table(world, **{"index": "BUCKET", **fields}), new_topic(world)

    def go(self, *messages, schema=TRACKED_SCHEMA, **knobs):
        produce(self.world, self.topic, *messages)
        return hudi.ingest(
            self.spark, self.world, hudi.Topic(self.topic), self.table, schema=schema, **knobs
        )

    def rows(self):
        return table_content(self.spark, self.table)


@pytest.fixture
def lake(world, spark):
    made = []

    def make(**fields):
        made.append(Lake(world, spark, **fields))
        return made[-1]

    yield make
    for each in made:
        hudi.drop(spark, world, each.table)
        topics.delete(world, each.topic)


def moved(key, lsn, before, part, text="moved"):
    old = {"__before_id": key, "__before_part": before}
    return {**change_record(key, lsn, text, part, op="u"), **old}


@pytest.mark.parametrize("kind", [pytest.param("cow", marks=pytest.mark.drill), "mor"])
def test_a_key_that_moves_is_in_one_partition(lake, spark, world, monkeypatch, kind):
    """Within a batch and from batch to batch; few messages, and many, which Spark reads."""
    it = lake(type=kind)
    it.go(
        *(change_record(key, key) for key in range(1, 8)),
        moved(7, 8, "p", "q"),  # in the first commit, too
    )
    assert it.rows() == [*((n, "p", "x", n) for n in range(1, 7)), (7, "q", "moved", 8)]
    done = it.go(
        moved(1, 10, "p", "q"),
        moved(2, 11, "p", "q"),
        moved(2, 12, "q", "r"),  # further
        moved(3, 13, "p", "q"),
        moved(3, 14, "q", "p", "back"),
        moved(4, 15, "p", "q"),
        change_record(4, 16, part="q", op="d"),
        moved(5, 17, "p", None),
        moved(5, 18, None, "", "the same partition"),
        moved(6, 20, "p", "q"),
        moved(6, 20, "q", "p", "of the same position, later"),
    )
    assert (done.upserts, done.deletes) == (10, 1), "messages, not what becomes of them"
    expected = [
        (1, "q", "moved", 10),
        (2, "r", "moved", 12),
        (3, "p", "back", 14),
        (5, None, "the same partition", 18),
        (6, "p", "of the same position, later", 20),
        (7, "q", "moved", 8),
    ]
    assert it.rows() == expected
    monkeypatch.setattr(hudi.changes, "SMALL_BATCH_MESSAGES", 0)
    it.go(moved(1, 30, "q", "p"), moved(5, 31, "", "p"), change_record(9, 32))
    expected[0], expected[3] = (1, "p", "moved", 30), (5, "p", "moved", 31)
    expected.append((9, "p", "x", 32))
    assert it.rows() == expected
    if kind == "mor":
        hudi.compact(spark, it.table)
        assert it.rows() == expected
    for batch in (100, 2):  # a small batch restores an earlier state for a while
        it.go(replay=True, batch=batch)
        assert it.rows() == expected
    if kind == "mor":  # hudi-rs refuses logs with such deletes
        hudi.compact(spark, it.table)
    independent = hudi.read_independent(it.table)
    assert sorted(zip(independent["id"], independent["__lsn"])) == [(r[0], r[3]) for r in expected]


def test_a_key_that_changes_takes_its_old_row_away(lake):
    """Where the key of the table is not the source's: the update has another key."""
    it = lake()
    it.go(change_record(1, 1))
    it.go({**moved(2, 2, "p", "q"), "__before_id": 1})
    assert it.rows() == [(2, "q", "moved", 2)]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_an_event_that_comes_after_the_move(lake, spark, kind):
    """A Merge-on-Read table keeps the delete until it is compacted; a Copy-on-Write table has the
    limit of each committed delete (Table)."""
    it = lake(type=kind)
    it.go(change_record(1, 10), change_record(2, 10))
    it.go(moved(1, 20, "p", "q"))
    it.go(moved(1, 15, "p", "p", "late"))
    late = [(1, "p", "late", 15)] if kind == "cow" else []
    assert it.rows() == [*late, (1, "q", "moved", 20), (2, "p", "x", 10)]
    it.go(moved(1, 30, "q", "p", "back"), moved(1, 25, "q", "q", "late"))  # within a batch: neither
    assert it.rows() == [(1, "p", "back", 30), (2, "p", "x", 10)]
    if kind == "mor":
        hudi.compact(spark, it.table)
        assert it.rows() == [(1, "p", "back", 30), (2, "p", "x", 10)]


def test_an_update_without_its_old_row_is_a_dead_letter(lake, world, spark):
    it = lake()
    it.go(change_record(1, 1))
    done = it.go(
        {**moved(1, 2, None, "q"), "__before_id": None},
        {**change_record(1, 3, part="q"), "__op": None},
        change_record(2, 4, part="q", op="r"),
    )
    assert (done.upserts, done.dead_letters) == (1, 2)
    assert it.rows() == [(1, "p", "x", 1), (2, "q", "x", 4)]
    letters = hudi.dead_letters(spark, world, it.table).collect()
    assert all("the update does not hold the old part" in row.reason for row in letters)


def test_a_table_whose_moves_are_not_seen_is_refused(lake):
    it = lake()
    with pytest.raises(
        LakeError,
        match="(?s)index BUCKET.*part can change.*__op, __before_id, __before_part.*IDENTITY FULL"
        '.*before.id,before.part.*without partitions.*index="GLOBAL_SIMPLE"',
    ):
        it.go(change_record(1, 1), schema=SCHEMA)
    assert not hudi.exists(it.table)
    in_key = lake(key=("id", "part"))
    assert in_key.go(change_record(1, 1), schema=SCHEMA).upserts == 1
    plain = lake(partition=())
    assert plain.go(change_record(1, 1), schema=SCHEMA).upserts == 1
