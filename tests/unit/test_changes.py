"""Which landed files are new, and how often their lists are opened to know it; which messages of a
topic a batch has."""

from types import SimpleNamespace

import pytest
from pyspark.sql import types as T
from workbench import hudi
from workbench.base import files, paths
from workbench.base.errors import LakeError
from workbench.base.state import State
from workbench.hudi import changes


@pytest.fixture
def landing(tmp_path, monkeypatch):
    """A reader of one landed file at a time, whose batches are lists of addresses; `opened` are the
    lists that it read, `written` the lengths of those that it wrote."""
    lake = SimpleNamespace(
        **{name: f"file:{tmp_path}/{name}" for name in ("landing", "checkpoints", "tables")}
    )
    table = hudi.Table("t", f"{lake.tables}/t", ("id",), "v")
    opened, written, read_text, write_text = [], [], files.read_text, files.write_text
    monkeypatch.setattr(changes.decode_avro, "read_files", lambda spark, addresses, *_: addresses)
    monkeypatch.setattr(changes.decode, "classify", lambda addresses, *_: addresses)
    monkeypatch.setattr(changes.Schemas, "row_schema", None)
    monkeypatch.setattr(
        files,
        "read_text",
        lambda a: (opened.append(a) if "/checkpoints/t/" in a else None) or read_text(a),
    )
    monkeypatch.setattr(
        files, "write_text", lambda a, text: written.append(len(text)) or write_text(a, text)
    )
    (tmp_path / "landing" / "topic").mkdir(parents=True)

    def reader(max_records=1):
        source = hudi.Landed("topic", format="avro")
        return changes.create_reader(None, SimpleNamespace(lake=lake), source, table, max_records)

    def land(number, kilobytes=0):
        folder = paths.local_path(lake.landing) / "topic"
        (folder / f"topic+0+{number:010d}.avro").write_text("x" * (1024 * kilobytes or 1))

    def move():
        (tmp_path / "landing").rename(tmp_path / "moved")
        lake.landing = f"file:{tmp_path}/moved"

    return SimpleNamespace(reader=reader, land=land, move=move, opened=opened, written=written)


@pytest.mark.parametrize("anew", [True, False])
def test_a_batch_writes_its_own_list_only_and_opens_each_other_once(landing, anew):
    """130 runs of one file each; or one run that goes on. All that was read so far, written with
    each, is too much."""
    mine, reader = {}, landing.reader()
    for number in range(130):
        landing.land(number)
        reader = landing.reader() if anew else reader
        landing.opened.clear()
        batch = reader.next({**mine, "since": 0}, number)
        assert [f[-9:-5] for f in batch.rows] == [f"{number:04d}"]
        assert len(landing.opened) == len(set(landing.opened)) == (number if anew else 0)
        mine = batch.progress
    assert reader.next({**mine, "since": 0}, 130) is None
    assert len(landing.written) == 130 and len(set(landing.written)) == 1, "not more and more"
    reader = landing.reader()
    assert (
        reader.next({}, 130).rows and reader.next({"since": 130}, 131).rows
    )  # a replay reads everything again


def test_a_list_that_is_gone_is_not_taken_for_an_empty_one(landing):
    """Every file would be read again without a word."""
    landing.land(1)
    with pytest.raises(
        LakeError,
        match="(?s)files that were read .* does not exist.*landed-topic/00000000.json.*replay=True",
    ):
        landing.reader().next({"since": 0, "topic_id": None}, 1)


def test_the_files_of_a_lake_that_was_moved_are_not_read_again(landing, tmp_path):
    landing.land(1)
    progress = {**landing.reader().next({}, 0).progress, "since": 0}
    landing.move()
    landing.land(2)
    assert [f[-9:] for f in landing.reader().next(progress, 1).rows] == ["0002.avro"]


def test_a_batch_of_landed_files_has_about_as_many_messages_as_one_of_a_topic(landing):
    """A file counts as one message for each kilobyte, so large files make more commits; one is a batch at least."""
    for number, kilobytes in enumerate((0, 3, 2, 9, 1)):
        landing.land(number, kilobytes)
    reader, progress, batches = landing.reader(5), {}, []
    while batch := reader.next({**progress, "since": 0}, len(batches)):
        batches.append([int(f[-6]) for f in batch.rows])
        progress = batch.progress
    assert batches == [[0, 1], [2], [3], [4]]


# --- a topic
# --------------------------------------------------------------------------------------------------


class Message:
    """Stands for a message that a consumer returns."""

    def __init__(self, partition, offset):
        self.partition, self.offset = lambda: partition, lambda: offset
        self.key, self.value = lambda: b"k", lambda: b"x" * 10


@pytest.fixture
def topic(monkeypatch):
    """A reader of a topic of two partitions; its batches are lists of (partition, offset)."""
    known = SimpleNamespace(watermarks={0: (5, 9), 1: (0, 3)}, id="one", consumed=[], consumers=[])
    known.world = SimpleNamespace(state=State())

    def open_consumer(world):
        known.consumers.append(SimpleNamespace())
        return known.consumers[-1]

    def consume(world, name, start, stop, consumer):
        known.consumed.append((start, stop))
        for partition in start:
            for offset in range(start[partition], stop[partition]):
                yield Message(partition, offset)

    monkeypatch.setattr(changes.topics, "watermark_offsets", lambda *_: known.watermarks)
    monkeypatch.setattr(changes.topics, "topic_id", lambda *_: known.id)
    monkeypatch.setattr(changes.topics, "settings", lambda *_: {})
    monkeypatch.setattr(changes.topics, "consume", consume)
    monkeypatch.setattr(changes.topics, "open_consumer", open_consumer)
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
    while batch := reader.next(progress, len(batches)):
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
        topic.reader(3).next({"offsets": {"0": offset}}, 1)


def test_a_topic_that_was_made_anew_is_refused_before_its_offsets_are_compared(topic):
    topic.id = "two"
    with pytest.raises(LakeError, match="(?s)deleted and recreated.*topic id two.*id one.*replay"):
        topic.reader(3).next({"offsets": {"0": 99}, "topic_id": "one"}, 1)


def test_large_messages_make_a_smaller_batch(topic, monkeypatch):
    monkeypatch.setattr(changes, "SMALL_BATCH_BYTES", 20)
    batch = topic.reader(10).next({}, 0)
    assert batch.rows == [(0, 5), (0, 6)] and batch.progress["offsets"] == {"0": 7, "1": 0}


def test_readers_use_a_consumer_again_unless_another_thread_has_it_or_it_failed(topic):
    assert topic.reader(3).next({}, 0)
    assert topic.reader(3).next({"offsets": {"0": 9, "1": 3}}, 1) is None
    assert len(topic.consumers) == 1
    with changes.borrow_consumer(topic.world) as first:
        assert topic.reader(3).next({}, 0) and first is topic.consumers[0]
    assert len(topic.consumers) == 2
    for _ in range(2):
        with pytest.raises(LakeError, match="expired"):
            topic.reader(3).next({"offsets": {"0": 4}}, 1)
    assert topic.reader(3).next({}, 0) and len(topic.consumers) == 3


def test_a_reader_knows_the_end_that_it_has_read(topic):
    reader = topic.reader(9)
    assert reader.next({"offsets": {"0": 9, "1": 3}}, 1) is None
    assert reader.end_offsets == {0: 9, 1: 3}


def test_types_of_a_source():
    source = changes.Topic("t", types="analyst", scales={"price": 4})
    assert repr(source) == "Topic(name='t', format='json')" and hash(source)
    assert source.id == changes.Topic("t").id and source != changes.Topic("t")
    with pytest.raises(LakeError, match=r"(?s)types of t is 'analist'.*did you mean 'analyst'"):
        changes.Topic("t", types="analist")
