"""Which landed files are new; which messages of a topic a batch has."""

from types import SimpleNamespace

import pytest
from pyspark.sql import types as T
from workbench import hudi
from workbench.base import paths
from workbench.base.errors import LakeError
from workbench.hudi import changes


@pytest.fixture
def landing(tmp_path, monkeypatch):
    """A reader of landed files, whose batches are lists of addresses."""
    lake = SimpleNamespace(
        **{name: f"file:{tmp_path}/{name}" for name in ("landing", "checkpoints", "tables")}
    )
    world, table = SimpleNamespace(lake=lake), hudi.Table("t", f"{lake.tables}/t", ("id",), "v")
    monkeypatch.setattr(changes.decode_avro, "read_files", lambda spark, addresses, *_: addresses)
    monkeypatch.setattr(changes.decode, "classify", lambda addresses, *_: addresses)
    monkeypatch.setattr(changes.Schemas, "row_schema", None)

    def reader(max_records):
        source = hudi.Landed("topic", format="avro")
        return changes.create_reader(None, world, source, table, max_records)

    def land(number, kilobytes=0, folder="a=1", name="topic+0+"):
        place = paths.local_path(lake.landing) / "topic" / folder
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{name}{number:010d}.avro").write_text("x" * (1024 * kilobytes or 1))

    def move():
        (tmp_path / "landing").rename(tmp_path / "moved")
        lake.landing = f"file:{tmp_path}/moved"

    def batches(progress, max_records=9):
        found = []
        while batch := reader(max_records).next(progress):
            found.append([int(address[-6]) for address in batch.rows])
            assert changes.position(batch.progress) > changes.position(progress)
            progress = batch.progress
        return found, progress

    return SimpleNamespace(batches=batches, land=land, move=move)


def test_a_landed_file_is_read_once_also_in_a_lake_that_was_moved(landing):
    for number in range(1, 7):
        landing.land(number, folder=f"a={number % 2}")
    found, progress = landing.batches({}, 4)
    assert found == [[1, 2, 3, 4], [5, 6]]
    assert progress["offsets"] == {"topic/a=1/topic-0": 6, "topic/a=0/topic-0": 7}
    landing.move()
    landing.land(7, folder="b=1")
    assert landing.batches(progress)[0] == [[7]]
    assert landing.batches({})[0] == [[1, 2, 3, 4, 5, 6, 7]], "a replay reads everything again"


def test_of_a_sink_without_progress_a_file_may_appear_after_a_later_one_of_another_folder(landing):
    landing.land(5)
    progress = landing.batches({})[1]
    landing.land(2, folder="a=2")
    found, progress = landing.batches(progress)
    assert found == [[2]]
    landing.land(4)  # a sink never does this; a copy of its files may
    with pytest.raises(LakeError, match="(?s)landed files appeared after later.*replay=True"):
        landing.batches(progress)


def test_a_landed_file_that_has_grown_since_it_was_read_is_an_error(landing):
    landing.land(1, 2)
    progress = landing.batches({})[1]
    assert landing.batches(progress)[0] == []
    landing.land(1, 3)
    with pytest.raises(
        LakeError, match="(?s)have grown since.*1 files that were read, 2,0.*replay"
    ):
        landing.batches(progress)


def test_a_landed_file_without_an_offset_is_read_once(landing):
    landing.land(1)
    landing.land(2, name="part-a")
    found, progress = landing.batches({})
    assert found == [[1, 2]] and landing.batches(progress)[0] == []
    landing.land(3, name="part-a", folder="a=2")
    assert landing.batches(progress)[0] == [[3]]


def test_a_batch_of_landed_files_has_about_as_many_messages_as_one_of_a_topic(landing):
    """A file counts as one message for each kilobyte, so large files make more commits; one is a batch at least."""
    for number, kilobytes in enumerate((0, 3, 2, 9, 1)):
        landing.land(number, kilobytes)
    assert landing.batches({}, 5)[0] == [[0, 1], [2], [3], [4]]


class Message:
    """Stands for a message that a consumer returns."""

    def __init__(self, partition, offset):
        self.partition, self.offset = lambda: partition, lambda: offset
        self.key, self.value = lambda: b"k", lambda: b"x" * 10


@pytest.fixture
def topic(monkeypatch):
    """A reader of a topic of two partitions; its batches are lists of (partition, offset)."""
    known = SimpleNamespace(watermarks={0: (5, 9), 1: (0, 3)}, id="one", consumed=[])
    known.world = SimpleNamespace()

    def consume(world, name, start, stop):
        known.consumed.append((start, stop))
        for partition in start:
            for offset in range(start[partition], stop[partition]):
                yield Message(partition, offset)

    monkeypatch.setattr(changes.topics, "watermark_offsets", lambda *_: known.watermarks)
    monkeypatch.setattr(changes.topics, "topic_id", lambda *_: known.id)
    monkeypatch.setattr(changes.topics, "consume", consume)
    monkeypatch.setattr(changes.decode, "rows", lambda messages, *_: messages)
    spark = SimpleNamespace(createDataFrame=lambda rows, _: [row[3:5] for row in rows])
    table = hudi.Table("t", "file:/none", ("id",), "v")

    def reader(max_records):
        return changes.create_reader(
            spark, known.world, hudi.Topic("topic"), table, max_records, T.StructType()
        )

    known.reader = reader
    return known


def test_a_topic_is_read_from_the_committed_offsets_on_in_batches(topic):
    reader, progress, batches = topic.reader(3), {}, []
    while batch := reader.next(progress):
        batches.append(batch.rows)
        assert batch.in_memory and batch.progress["topic_id"] == "one"
        progress = batch.progress
    assert batches == [[(0, 5), (0, 6), (0, 7)], [(0, 8), (1, 0), (1, 1)], [(1, 2)]]
    assert progress["offsets"] == {"0": 9, "1": 3}
    assert topic.consumed[1] == ({0: 8, 1: 0}, {0: 9, 1: 2})


@pytest.mark.parametrize("offset", [4, 10])
def test_messages_that_expired_unread_are_an_error(topic, offset):
    with pytest.raises(
        LakeError,
        match=f"(?s)offsets 5 to 9, but the next offset to read is {offset}.*partition 0.*expired",
    ):
        topic.reader(3).next({"offsets": {"0": offset}})


def test_a_topic_that_was_made_anew_is_refused_before_its_offsets_are_compared(topic):
    topic.id = "two"
    with pytest.raises(LakeError, match="(?s)deleted and recreated.*topic id two.*id one.*replay"):
        topic.reader(3).next({"offsets": {"0": 99}, "topic_id": "one"})


def test_large_messages_make_a_smaller_batch(topic, monkeypatch):
    monkeypatch.setattr(changes, "SMALL_BATCH_BYTES", 20)
    batch = topic.reader(10).next({})
    assert batch.rows == [(0, 5), (0, 6)] and batch.progress["offsets"] == {"0": 7, "1": 0}


def test_a_reader_knows_the_end_that_it_has_read(topic):
    reader = topic.reader(9)
    assert reader.next({"offsets": {"0": 9, "1": 3}}) is None
    assert reader.end_offsets == {0: 9, 1: 3}


def test_types_of_a_source():
    source = changes.Topic("t", types="analyst", scales={"price": 4})
    assert repr(source) == "Topic(name='t', format='json')" and hash(source)
    assert source.id == changes.Topic("t").id and source != changes.Topic("t")
    with pytest.raises(LakeError, match=r"(?s)types of t is 'analist'.*did you mean 'analyst'"):
        changes.Topic("t", types="analist")
