"""Dead letters on real parts: every kind of message that cannot be read is put aside, seen,
repaired and sent back. The counts close: produced = landed + dead letters, and in the end produced
= landed."""

import re
import signal
import subprocess
import sys
import uuid
from collections import Counter
from types import SimpleNamespace

import avro_bytes
import avro_help
import pytest
from avro_bytes import encode_long, record_schema, wire_message
from lake_help import new_table, new_topic
from typer.testing import CliRunner
from workbench import connect, hudi, landing, stack
from workbench.base import paths
from workbench.base.errors import LakeError
from workbench.base.wait import wait_until
from workbench.cli import main as cli
from workbench.topic import dlq, topics


def row(id, lsn=1):
    return encode_long(id) + avro_bytes.encode_string("p") + encode_long(lsn)


@pytest.fixture
def bench(world):
    """A topic with two good messages and one of each kind of poison between them, and what repairs
    these. (The name of the dead letters' begins as this one's does: a landing takes its own topic,
    and none that is only like it.)"""
    stack.ensure_running(world, "apicurio")
    topic = new_topic(world)
    letters = f"{topic}.dlq"
    fields = {"id": "int", "part": "string", "__lsn": "int"}
    ids = avro_help.register_schema(world, record_schema("Value", **fields), f"{topic}-value")
    later = ids.glob + 1  # the registry counts its ids
    sent = {
        "good": wire_message(ids.glob, row(1)),
        "not Avro": b'{"id": 2}',
        "unknown schema": wire_message(later, row(3)),
        "truncated": wire_message(ids.glob, row(4))[:-1],
        "too large": b"x" * 1_048_000,
        "wrong type": wire_message(ids.glob, avro_bytes.encode_string("x" * 60)),
        "lies about its length": wire_message(ids.glob, encode_long(7) + encode_long(2**30) + b"p"),
        "also good": wire_message(ids.glob, row(8)),
    }
    topics.produce(
        world,
        topic,
        [(kind, value) for kind, value in sent.items()],
        **{"message.max.bytes": 2**21},
    )

    def mend(letter):
        """What was meant: its place says which row."""
        if letter.key == b"unknown schema":
            return letter.value
        return wire_message(ids.glob, row(letter.origin_offset + 1))

    def register_later():
        again = {**record_schema("Value", **fields), "doc": uuid.uuid4().hex}
        assert avro_help.register_schema(world, again, f"{topic}-value").glob == later

    yield SimpleNamespace(
        topic=topic,
        dlq=letters,
        sent=sent,
        mend=mend,
        register_later=register_later,
        produced=8,
    )
    topics.delete(world, topic, letters)


def errors(bench):
    return {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": bench.dlq,
        "errors.deadletterqueue.context.headers.enable": "true",
    }


def judged(world, bench, count=6):
    """The letters in the topic, which are one of each kind, each message as it was."""
    found = dlq.read(world, bench.dlq)
    assert (
        len(found) == count
        and set(found["topic"]) == {bench.topic}
        and set(found["stage"]) == {"VALUE_CONVERTER"}
    )
    for one in found.itertuples():
        kind = one.key.decode()
        assert (
            bench.sent[kind] == one.value and list(bench.sent).index(kind) == one.origin_offset
        ), kind
        assert one.reason and not one.replayed
    return found


# --- a sink that runs in Connect
# -------------------------------------------------------------------------------------


@pytest.fixture
def sink(world, bench):
    """Kafka's sink to a file: deploys it, waits until n rows have landed, gives their ids."""
    name = f"file_{bench.topic}"
    file = paths.local_path(world.lake.landing) / f"{name}.txt"
    config = {
        **connect.config(world, "movies_file_sink"),
        **errors(bench),
        "topics": bench.topic,
        "file": str(file),
    }

    def lines():
        return file.read_text().splitlines() if file.exists() else []

    def landed(n):
        wait_until(
            lambda: len(lines()) >= n,
            f"{n} rows to land",
            failure_reason=lambda: connect.failure(world, name),
        )
        return sorted(int(re.search(r"id=(\d+)", line)[1]) for line in lines())

    yield SimpleNamespace(
        name=name, deploy=lambda: connect.apply(world, name, config), landed=landed
    )
    connect.delete(world, name)
    file.unlink(missing_ok=True)


def test_a_sink_in_connect_goes_on_behind_every_kind_of_poison(world, bench, sink):
    sink.deploy()
    landed = sink.landed(2)
    topics.wait_for_messages(world, bench.dlq, 6, connector=sink.name)
    found = judged(world, bench)
    print(found[["offset", "key", "reason"]].to_string())
    assert landed == [1, 8] and len(landed) + len(found) == bench.produced
    assert set(found["connector"]) == {sink.name}
    bench.register_later()
    assert dlq.replay(world, bench.dlq, transform=bench.mend) == 6
    assert sink.landed(bench.produced) == [*range(1, 9)]
    assert (
        dlq.read(world, bench.dlq)["replayed"].all() and topics.offset_span(world, bench.dlq) == 6
    )
    assert dlq.replay(world, bench.dlq) == 0


def test_while_the_registry_is_down_the_sink_puts_everything_aside_and_a_replay_brings_it_in(
    world, bench, sink
):
    stack.stop("apicurio")
    try:
        sink.deploy()
        topics.wait_for_messages(world, bench.dlq, bench.produced, connector=sink.name)
    finally:
        stack.ensure_running(world, "apicurio")
    assert dlq.replay(world, bench.dlq) == bench.produced
    assert sink.landed(2) == [1, 8]
    topics.wait_for_messages(world, bench.dlq, bench.produced + 6, connector=sink.name)
    again = dlq.read(world, bench.dlq).query("not replayed")
    assert [bench.sent[key.decode()] for key in again["key"]] == list(again["value"]) and len(
        again
    ) == 6


# --- our own jobs
# ----------------------------------------------------------------------------------------------------


def test_the_landing_sends_what_it_cannot_read_to_the_topic_that_its_sink_names(
    world, spark, bench
):
    config = {
        **connect.config(world, "moma_sink"),
        **errors(bench),
        "topics": bench.topic,
        "name": "museum",
    }
    del config["topics.regex"]
    try:
        first = landing.run(world, config)
        found = judged(world, bench)
        print(found[["offset", "key", "reason"]].to_string())
        assert set(found["connector"]) == {"museum"}
        assert first.records + len(found) == bench.produced and first.dead_letters == len(found)
        assert landing.run(world, config) == landing.LandingCounts()
        bench.register_later()
        assert dlq.replay(world, bench.dlq, transform=bench.mend) == 6
        second = landing.run(world, config)
        assert (first + second).records == bench.produced and second.dead_letters == 0
        root = paths.local_path(world.lake.landing) / "topics" / bench.topic
        rows = [
            r["id"]
            for file in root.rglob("*.avro")
            for r in avro_bytes.read_container(file.read_bytes()).records
        ]
        assert sorted(rows) == [*range(1, 9)]
        assert (
            topics.offset_span(world, bench.dlq) == 6
            and dlq.read(world, bench.dlq)["replayed"].all()
        )
    finally:
        landing.drop(world, config)


def test_what_cannot_be_ingested_goes_the_same_way(world, spark, bench):
    table = new_table(world, index="GLOBAL_SIMPLE")
    source = hudi.Topic(bench.topic, format="avro")
    try:
        first = hudi.ingest(spark, world, source, table)
        assert hudi.publish_dead_letters(world, table, bench.dlq) == first.dead_letters == 6
        found = judged(world, bench)
        print(found[["offset", "key", "reason"]].to_string())
        assert first.upserts + len(found) == bench.produced
        bench.register_later()
        assert dlq.replay(world, bench.dlq, transform=bench.mend) == 6
        second = hudi.ingest(spark, world, source, table)
        assert (first + second).upserts == bench.produced and second.dead_letters == 0
        assert sorted(r.id for r in hudi.read(spark, table).collect()) == [*range(1, 9)]
        assert hudi.publish_dead_letters(world, table, bench.dlq) == 0
    finally:
        hudi.drop(spark, world, table)


def test_dead_letters_outlive_their_messages(world, spark, bench):
    """At the places of the dead letters good messages stand now."""
    table = new_table(world, index="GLOBAL_SIMPLE")
    try:
        assert (
            hudi.ingest(spark, world, hudi.Topic(bench.topic, format="avro"), table).dead_letters
            == 6
        )
        topics.delete(world, bench.topic)
        topics.produce(world, bench.topic, [(kind, bench.sent["good"]) for kind in bench.sent])
        assert hudi.publish_dead_letters(world, table, bench.dlq) == 6
        judged(world, bench)
    finally:
        hudi.drop(spark, world, table)


# --- sent back
# -------------------------------------------------------------------------------------------------------


def test_each_letter_goes_back_once_and_one_that_fails_again_is_a_new_one(world, spark, bench):
    table = new_table(world, index="GLOBAL_SIMPLE")
    source = hudi.Topic(bench.topic, format="avro")
    try:
        hudi.ingest(spark, world, source, table)
        hudi.publish_dead_letters(world, table, bench.dlq)
        call = CliRunner().invoke
        with pytest.raises(ZeroDivisionError):
            dlq.replay(world, bench.dlq, transform=lambda letter: 1 / (letter.offset - 3))
        assert topics.offset_span(world, bench.topic) == bench.produced, "nothing was sent"
        assert call(cli.app, ["dlq", "replay", bench.dlq]).output == "dead letters replayed: 6\n"
        assert hudi.ingest(spark, world, source, table).dead_letters == 6
        assert hudi.publish_dead_letters(world, table, bench.dlq) == 6
        found = dlq.read(world, bench.dlq)
        assert list(found["origin_offset"]) == [*range(1, 7), *range(8, 14)]
        assert list(found["replayed"]) == [True] * 6 + [False] * 6
        marks = [dict(m.headers() or ()) for m in topics.read_all(world, bench.topic)[-6:]]
        assert marks == [{dlq.REPLAYED_HEADER: f"{bench.dlq}/0/{n}".encode()} for n in range(6)]
        # who cannot mend a letter leaves it out
        assert (
            dlq.replay(
                world,
                bench.dlq,
                transform=lambda letter: bench.mend(letter) if letter.offset == 7 else None,
            )
            == 1
        )
        assert dlq.read(world, bench.dlq)["replayed"].all() and not dlq.replay(world, bench.dlq)
        mine = dlq.summary(world).query(f"origin == '{bench.topic}'")
        by_location = mine.groupby("location")[["dead_letters", "replayed"]].sum()
        assert by_location.loc[f"topic {bench.dlq}"].to_list() == [12, 12]
        files = by_location[by_location.index.str.startswith("files ")]
        assert files["dead_letters"].to_list() == [12] and files.index[0].endswith(source.id)
        for verb in (["list"], ["show", bench.dlq]):
            assert bench.topic in call(cli.app, ["dlq", *verb]).output
        topics.delete(world, bench.dlq)  # of a topic that was made anew nothing is known
        topics.produce(world, bench.dlq, [("k", "no letter")])
        with pytest.raises(
            LakeError, match="1 dead letters .* have an origin to which nothing is replayed"
        ):
            dlq.replay(world, bench.dlq)
    finally:
        hudi.drop(spark, world, table)


# the command line; its third batch waits in the middle until a line comes in
HALTED = """
import itertools
import sys

from workbench.cli import main as cli
from workbench.topic import topics


def halted(messages):
    for number, message in enumerate(messages):
        if number == len(messages) // 2:
            sys.stdin.readline()
        yield message


def send(world, topic, messages, **more):
    real(world, topic, halted(messages) if next(calls) == 3 else messages, **more)


real, topics.produce, calls = topics.produce, send, itertools.count(1)
cli.main()
"""


@pytest.mark.parametrize(
    "interruption", ["Ctrl-C", pytest.param("Kafka is killed", marks=pytest.mark.drill)]
)
def test_an_interrupted_replay_sends_at_most_one_batch_twice(world, interruption):
    origin, dead, count = new_topic(world), new_topic(world), 20_000
    headers = [
        (dlq.HEADER_PREFIX + name, value)
        for name, value in (("topic", origin.encode()), ("partition", b"0"))
    ]
    topics.produce(
        world,
        dead,
        [
            (b"k", b"%d" % n, {"headers": [*headers, (f"{dlq.HEADER_PREFIX}offset", b"%d" % n)]})
            for n in range(count)
        ],
    )
    command = ["dlq", "replay", dead]
    replay = subprocess.Popen(
        [sys.executable, "-c", HALTED, *command],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    halfway = 2 * dlq.REPLAY_BATCH_SIZE + dlq.REPLAY_BATCH_SIZE // 2
    topics.wait_for_messages(world, origin, halfway, timeout=120)
    try:
        if interruption == "Ctrl-C":
            replay.send_signal(signal.SIGINT)
            replay.wait(timeout=60)
        else:
            stack.kill("kafka")
        output = replay.communicate(
            "go on\n" if interruption == "Kafka is killed" else None, timeout=60
        )
    finally:
        stack.ensure_running(world, "kafka")
    assert replay.returncode == (130 if interruption == "Ctrl-C" else 1), output
    assert "Traceback" not in "".join(output)
    sent = topics.offset_span(world, origin)
    assert sent == halfway, "it was interrupted in the middle of a batch"
    again = subprocess.run(
        [sys.executable, "-m", "workbench.cli", *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    marks = Counter(dict(m.headers())[dlq.REPLAYED_HEADER] for m in topics.read_all(world, origin))
    assert len(marks) == count and max(marks.values()) <= 2, again.stdout
    twice = sum(marks.values()) - count
    print(f"{sent:,} sent before the interruption, {twice} sent twice")
    assert twice == sent - 2 * dlq.REPLAY_BATCH_SIZE, "of the batch that was not recorded"
    assert dlq.replay(world, dead) == 0
    topics.delete(world, origin, dead)
