"""The landing on real Kafka: exactly once, flush count, dead letters, then into Hudi."""

import itertools
import json
import uuid
from dataclasses import asdict

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_sink import SINK
from killing import Killed, kill_before
from lake_help import SCHEMA, change_record, new_table, new_topic, produce
from workbench import hudi, landing
from workbench.base import files, paths
from workbench.base.errors import LakeError
from workbench.landing import job
from workbench.landing.sinks import LENSES
from workbench.topic import topics


@pytest.fixture
def sink(world):
    topic = new_topic(world)
    config = {
        "connector.class": LENSES,
        "topics": topic,
        "connect.s3.kcql": f"INSERT INTO lake:{topic} SELECT * FROM {topic} PARTITIONBY part STOREAS `json` WITH_FLUSH_COUNT = 3",
    }
    yield config
    landing.drop(world, config)
    topics.delete(world, topic)


def objects(world, config):
    root = paths.local_path(world.lake.landing) / config["topics"]
    return {
        str(p.relative_to(root)): p.read_text().splitlines()
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }


def test_objects_hold_each_message_once_and_no_more_than_the_flush_count(world, spark, sink):
    topic = sink["topics"]
    odd = change_record(20, 1, part="a/b c=é")
    wrapped = {"schema": {"type": "struct"}, "payload": change_record(21, 1, part=None)}
    produce(
        world,
        topic,
        *[change_record(i, 1) for i in range(7)],
        odd,
        ("21", json.dumps(wrapped)),
        ("1", None),
        ("x", "{broken"),
        (None, None),
    )
    done = landing.run(world, sink)
    assert asdict(done) | {"bytes": 0} == {
        "messages": 12,
        "records": 9,
        "tombstones": 1,
        "dead_letters": 2,
        "objects": 5,
        "bytes": 0,
        "batches": 1,
    }
    there = objects(world, sink)
    assert {name: len(lines) for name, lines in there.items()} == {
        f"part=p/{topic}-0-{0:020d}.json": 3,
        f"part=p/{topic}-0-{3:020d}.json": 3,
        f"part=p/{topic}-0-{6:020d}.json": 1,
        f"part=a%2Fb c%3Dé/{topic}-0-{7:020d}.json": 1,
        f"part=__HIVE_DEFAULT_PARTITION__/{topic}-0-{8:020d}.json": 1,
    }
    assert (
        json.loads(there[f"part=__HIVE_DEFAULT_PARTITION__/{topic}-0-{8:020d}.json"][0])
        == wrapped["payload"]
    )
    letters = {each["offset"]: each["reason"] for each in landing.dead_letters(world, sink)}
    assert letters == {10: "malformed JSON", 11: "no value and no key"}
    assert landing.run(world, sink) == landing.LandingCounts() and objects(world, sink) == there

    table = new_table(world)
    try:
        assert hudi.ingest(spark, world, hudi.Landed(topic), table, schema=SCHEMA).upserts == 9
        assert hudi.read(spark, table).count() == 9
        produce(world, topic, change_record(1, 2, "later"))
        landing.run(world, sink)
        assert hudi.ingest(spark, world, hudi.Landed(topic), table, schema=SCHEMA).messages == 1
        assert hudi.read(spark, table).where("text = 'later'").count() == 1
    finally:
        hudi.drop(spark, world, table)


# what a landing changes of the lake and of topics
CHANGES = [
    (files, "write_bytes"),
    (files, "write_text"),
    (files, "remove"),
    (topics, "produce"),
]


def test_killed_before_each_change_it_lands_each_message_once(world, sink, spark, monkeypatch):
    """Also with a topic for dead letters; what a reader has seen of a killed run does not change later."""
    topic = sink["topics"]
    config = {
        **sink,
        "name": f"sink_{topic}",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{topic}.dlq",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    ids = itertools.count()

    def more():
        changes = [change_record(next(ids), 1, part=part) for part in "aaaabb"]
        produce(world, topic, *changes, ("x", "{broken"))

    for step in itertools.count():
        more()
        before = objects(world, sink)
        with monkeypatch.context() as patch:
            kill_before(patch, step + 1, CHANGES)
            try:
                landing.run(world, config, batch=4)
                break
            except Killed:
                pass
        seen = objects(world, sink)
        assert {name: seen[name] for name in before} == before, "what was landed stays"
        more()
        landing.run(world, config, batch=4)
        after = objects(world, sink)
        assert {name: after[name] for name in seen} == seen
    assert step > 10, "several batches of several changes"
    lines = [line for lines in objects(world, sink).values() for line in lines]
    assert sorted(json.loads(line)["id"] for line in lines) == [*range(next(ids))]
    letters = landing.dead_letters(world, sink)
    assert len(letters) == 2 * step + 1 and len({each["offset"] for each in letters}) == len(
        letters
    )
    published = topics.read(world, f"{topic}.dlq")["value"]
    assert len(published) >= len(letters), "at least once"
    landing.drop(world, config)
    topics.delete(world, f"{topic}.dlq")


def test_what_is_ingested_of_a_killed_run_is_not_all(world, spark, sink):
    """A file of the killed run was read: later messages are in other files."""
    topic, table = sink["topics"], new_table(world)
    produce(world, topic, *[change_record(n, 1) for n in range(2)])
    with pytest.MonkeyPatch.context() as patch:
        kill_before(
            patch, 4, CHANGES
        )  # the plan and a file are written, the progress after it is not
        with pytest.raises(Killed):
            landing.run(world, sink)
    try:
        assert hudi.ingest(spark, world, hudi.Landed(topic), table, schema=SCHEMA).upserts == 2
        produce(world, topic, change_record(2, 1))
        landing.run(world, sink)
        assert hudi.ingest(spark, world, hudi.Landed(topic), table, schema=SCHEMA).upserts == 1
        assert hudi.read(spark, table).count() == 3
    finally:
        hudi.drop(spark, world, table)


def test_messages_that_expired_before_they_were_landed_are_named(world, sink):
    topic = sink["topics"]
    produce(world, topic, *[change_record(n, 1) for n in range(5)])
    admin = AdminClient(topics.settings(world))
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 2)]).values()
    deleted.result(20)
    assert landing.run(world, sink).records == 3, "the first landing begins with what there is"
    produce(world, topic, *[change_record(n, 1) for n in range(5, 8)])
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 7)]).values()
    deleted.result(20)
    with pytest.raises(
        LakeError, match="(?s)does not have the messages from offset 5 on.*hudi.drop"
    ):
        landing.run(world, sink)


def test_partitions_are_landed_one_by_one_and_an_added_one_from_its_beginning(world):
    topic = f"partitions_{uuid.uuid4().hex[:8]}"
    topics.create(world, topic, partitions=2)
    pattern = topic.replace("partitions", "part[a-z]*")
    config = {**SINK, "topics.regex": pattern, "value.converter.schemas.enable": "false"}
    del config["topics"]
    row = json.dumps({"a": 1})
    try:
        topics.produce(world, topic, [("k", row, {"partition": n % 2}) for n in range(10)])
        assert landing.run(world, config).records == 10
        admin = AdminClient(topics.settings(world))
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
        topics.produce(world, topic, [("k", row, {"partition": 2})] * 3)
        assert landing.run(world, config).records == 3
        progress = job.read_progress(world, f"topics/{topic}")
        assert progress["offsets"] == {"0": 5, "1": 5, "2": 3}
        assert job._landed_topics(world, landing.parse(config)) == [topic], "and not its lock"
    finally:
        landing.drop(world, config)
        topics.delete(world, topic)


def test_a_topic_made_anew_is_not_taken_for_the_old_one(world, spark, sink):
    produce(world, sink["topics"], change_record(1, 1))
    landing.run(world, sink)
    topics.delete(world, sink["topics"])
    new_topic(world, sink["topics"])
    produce(world, sink["topics"], change_record(2, 1), change_record(3, 1))
    with pytest.raises(LakeError, match="(?s)was deleted and recreated.*landing.drop"):
        landing.run(world, sink)
    landing.drop(world, sink)
    assert landing.run(world, sink).records == 2


def test_a_batch_that_cannot_be_written_says_where(world, spark, sink):
    produce(world, sink["topics"], change_record(1, 1))
    root = paths.local_path(world.lake.landing) / sink["topics"]
    root.parent.mkdir(parents=True, exist_ok=True)
    root.write_text("a file where a folder should be")
    with pytest.raises(LakeError, match="(?s)a batch was not landed.*location:.*hint:"):
        landing.run(world, sink)
    root.unlink()
    assert landing.run(world, sink).records == 1


def test_what_a_producer_takes_back_is_not_landed(world, spark, sink):
    topic = sink["topics"]
    producer = Producer(topics.settings(world, **{"transactional.id": topic}))
    producer.init_transactions(20)
    for number, end in ((1, producer.abort_transaction), (2, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, key=str(number), value=json.dumps(change_record(number, 1)))
        assert producer.flush(20) == 0, (
            "in the log, or an abort would only take it out of the producer's own queue"
        )
        end(20)
    assert landing.run(world, sink).messages == 1
    assert [
        json.loads(line)["id"] for lines in objects(world, sink).values() for line in lines
    ] == [2]
    assert landing.run(world, sink) == landing.LandingCounts()
