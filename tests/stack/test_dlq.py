"""Dead letters on real parts: every kind of message that cannot be read is put aside, seen, repaired and sent back, and
the counts close: produced = landed + dead letters, and in the end produced = landed."""
import re
import uuid
from types import SimpleNamespace

import avro_bytes
import avro_help
import pytest
from avro_bytes import framed, number, record
from lake_help import new_table, new_topic
from typer.testing import CliRunner
from workbench import cli, connect, hudi, landing, stack
from workbench.base import paths
from workbench.base.errors import LakeError
from workbench.base.wait import wait_until
from workbench.topic import dlq, topics

ORIGIN = ("topic", "origin_partition", "origin_offset")
KINDS = ("not Avro", "unknown schema", "truncated", "too large", "wrong type")


def row(id, lsn=1):
    return number(id) + avro_bytes.text("p") + number(lsn)


@pytest.fixture
def bench(world):
    """A topic with two good messages and one of each KINDS between them, and what repairs these."""
    stack.need(world, "apicurio")
    topic = new_topic(world)
    letters = f"{topic}.dlq"
    fields = {"id": "int", "part": "string", "__lsn": "int"}
    ids = avro_help.register(world, record("Value", **fields), f"{topic}-value")
    later = ids.glob + 1  # the registry counts its ids
    sent = {"good": framed(ids.glob, row(1)), "not Avro": b'{"id": 2}', "unknown schema": framed(later, row(3)),
            "truncated": framed(ids.glob, row(4))[:-1], "too large": b"x" * 1_048_000,
            "wrong type": framed(ids.glob, avro_bytes.text("x" * 60)), "also good": framed(ids.glob, row(7))}
    topics.send(world, topic, [(kind, value) for kind, value in sent.items()], **{"message.max.bytes": 2**21})

    def mend(letter):
        """What was meant: its place says which row."""
        if letter.key == b"unknown schema":
            return letter.value
        return framed(ids.glob, row(letter.origin_offset + 1))

    def register_later():
        more = record("Value", **fields, more=["null", "string"])
        more["fields"][-1]["default"] = None
        del more["fields"][-1]  # the same bytes, another schema
        assert avro_help.register(world, {**more, "doc": uuid.uuid4().hex}, f"{topic}-value").glob == later

    yield SimpleNamespace(topic=topic, dlq=letters, sent=sent, mend=mend, register_later=register_later, produced=7)
    topics.delete(world, topic, letters)


def errors(bench):
    return {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": bench.dlq,
            "errors.deadletterqueue.context.headers.enable": "true"}


def judged(world, bench, count=5):
    """The letters in the topic, which are those of KINDS, each message as it was."""
    found = dlq.letters(world, bench.dlq)
    assert len(found) == count and set(found["topic"]) == {bench.topic} and set(found["stage"]) == {"VALUE_CONVERTER"}
    for one in found.itertuples():
        kind = one.key.decode()
        assert bench.sent[kind] == one.value and list(bench.sent).index(kind) == one.origin_offset, kind
        assert one.reason and not one.replayed
    return found


def test_a_sink_in_connect_goes_on_behind_every_kind_of_poison(world, bench):
    name = f"file_{bench.topic}"
    file = paths.local_path(world.lake.landing) / f"{name}.txt"
    config = {**connect.config(world, "movies_file_sink"), **errors(bench), "topics": bench.topic, "file": str(file)}
    connect.apply(world, name, config)
    try:
        def lines():
            return file.read_text().splitlines() if file.exists() else []

        wait_until(lambda: len(lines()) == 2, "what can be read to land", failed=lambda: connect.failure(world, name))
        topics.wait_count(world, bench.dlq, 5, connector=name)
        found = judged(world, bench)
        print(found[["offset", "key", "reason"]].to_string())
        assert len(lines()) + len(found) == bench.produced
        bench.register_later()
        assert dlq.replay(world, bench.dlq, mend=bench.mend) == 5
        wait_until(lambda: len(lines()) == bench.produced, "all to have landed", failed=lambda: connect.failure(world, name))
        assert sorted(int(re.search(r"id=(\d+)", line)[1]) for line in lines()) == [*range(1, 8)]
        assert dlq.letters(world, bench.dlq)["replayed"].all() and topics.count(world, bench.dlq) == 5
        assert dlq.replay(world, bench.dlq) == 0
    finally:
        connect.delete(world, name)
        file.unlink(missing_ok=True)
