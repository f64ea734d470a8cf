"""Dead letters without a broker: what a sink's JSON may say of them, what a letter says, and what
people are shown."""

import base64
import json
import re
from types import SimpleNamespace

import pandas
import pytest
import typer
from confluent_kafka import TIMESTAMP_CREATE_TIME
from confluent_sink import SINK
from typer.testing import CliRunner
from workbench import connect, landing
from workbench.base import files, params, paths
from workbench.base.errors import ConnectorError, LakeError, ServiceLost
from workbench.cli import main as cli
from workbench.stack import artifacts
from workbench.topic import dlq, topics

WORLD = params.load("local")
ERRORS = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "dead",
    "errors.deadletterqueue.context.headers.enable": "true",
    "errors.deadletterqueue.topic.replication.factor": "1",
    "errors.log.enable": "true",
    "producer.override.max.request.size": "2097152",
}


def published(monkeypatch, *messages):
    """Publish messages as dead letters; return what was sent: (topic, key, value, options)."""
    sent = []
    monkeypatch.setattr(topics, "create", lambda *_, **__: None)
    monkeypatch.setattr(
        topics,
        "produce",
        lambda world, topic, records, **_: sent.extend((topic, *r) for r in records),
    )
    letters = [(message, "malformed JSON") for message in messages]
    dlq.publish_messages(WORLD, "dead", letters, "sink", "workbench.landing.run")
    return sent


class Message:
    def __init__(self, offset, value, headers=(), topic="dead", key=b"k"):
        self._said = SimpleNamespace(
            topic=topic,
            partition=0,
            offset=offset,
            key=key,
            value=value,
            headers=list(headers) or None,
            timestamp=(TIMESTAMP_CREATE_TIME, 1_000),
        )

    def __getattr__(self, name):
        return lambda: getattr(self._said, name)


# --- what a sink says
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sink", [{**SINK, "topics": "t"}, connect.config(WORLD, "outbox_sink")])
def test_a_sink_of_either_plugin_may_name_a_topic_for_them(sink):
    assert landing.parse(sink).dlq_topic == ""
    read = landing.parse({**sink, **ERRORS, "name": "mine"})
    assert (read.dlq_topic, read.name) == ("dead", "mine")


@pytest.mark.parametrize(
    "change, says",
    [
        (
            {"errors.tolerance": "none"},
            "topic.name is .*errors.tolerance=all",
        ),
        ({"errors.tolerance": None}, "topic.name is .*errors.tolerance=all"),
        (
            {"errors.deadletterqueue.topic.name": "t"},
            "topic.name is 't'.*a topic that the sink does not land",
        ),
    ],
)
def test_what_a_sink_may_not_say_of_them(change, says):
    config = {k: v for k, v in {**SINK, "topics": "t", **ERRORS, **change}.items() if v is not None}
    with pytest.raises(ConnectorError, match=f"(?s){says}"):
        landing.parse(config)


# --- what a letter says
# ----------------------------------------------------------------------------------------------


def test_a_letter_of_ours_has_the_headers_of_connects(monkeypatch):
    [(topic, key, value, options)] = published(monkeypatch, Message(7, b"x", topic="movies"))
    assert (topic, key, value, options["timestamp"]) == ("dead", b"k", b"x", 1_000)
    assert [name for name, _ in options["headers"]] == [
        "__connect.errors." + name
        for name in (
            "topic",
            "partition",
            "offset",
            "connector.name",
            "task.id",
            "stage",
            "class.name",
            "exception.class.name",
            "exception.message",
            "exception.stacktrace",
        )
    ]
    letter = dlq._to_dead_letter(Message(0, b"x", options["headers"]), {})
    assert {name: getattr(letter, name) for name in letter._fields[3:9]} == {
        "topic": "movies",
        "origin_partition": 0,
        "origin_offset": 7,
        "connector": "sink",
        "stage": "VALUE_CONVERTER",
        "reason": "LakeError: malformed JSON",
    }


def test_a_message_without_such_headers_came_from_nowhere():
    letter = dlq._to_dead_letter(Message(0, None, key=None), {})
    assert (letter.topic, letter.origin_offset, letter.reason, letter.value) == (
        "",
        -1,
        "",
        None,
    )


def test_a_message_goes_back_as_it_was_with_one_header_more(monkeypatch):
    [(*_, options)] = published(monkeypatch, Message(7, b"x", [("own", b"1")], topic="movies"))
    headers = [*options["headers"], (dlq.REPLAYED_HEADER, b"dead/0/1")]
    # it was sent back once, and could not be read again
    letter = dlq._to_dead_letter(Message(4, b"x", headers), {})
    assert dlq._to_original("dead", letter) == (
        b"k",
        b"x",
        {
            "partition": 0,
            "timestamp": 1_000,
            "headers": [("own", b"1"), (dlq.REPLAYED_HEADER, b"dead/0/4")],
        },
    )


# --- from files to the topic
# -----------------------------------------------------------------------------------------


@pytest.fixture
def kafka(monkeypatch):
    """The messages of the topic `dead`; a process is killed after `limit` messages of one call."""
    there = SimpleNamespace(messages=[], limit=None)

    def send(world, topic, records, **settings):
        assert settings == dlq.PRODUCER_SETTINGS
        for key, value, options in records[: there.limit]:
            number = len(there.messages)
            there.messages.append(Message(number, value, options["headers"], topic, key))
        if there.limit is not None:
            raise KeyboardInterrupt

    def create(world, topic, **settings):
        assert (topic, settings) == ("dead", {"max.message.bytes": "2097152"})

    monkeypatch.setattr(topics, "names", lambda world: ["dead"] if there.messages else [])
    monkeypatch.setattr(topics, "read_all", lambda world, topic: there.messages)
    monkeypatch.setattr(topics, "create", create)
    monkeypatch.setattr(topics, "produce", send)
    return there


def put(folder, name, *offsets, value="", **more):
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        {
            "reason": f"why {n}",
            "topic": "movies",
            "partition": 0,
            "offset": n,
            "key": base64.b64encode(b"\xff%d" % n).decode(),
            "value": value or base64.b64encode(b"\0%d" % n).decode(),
            **more,
        }
        for n in offsets
    ]
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def publish(folder):
    return dlq.publish(WORLD, "dead", f"file:{folder}", "sink", "by")


def test_what_is_new_in_the_files_is_sent_once(kafka, tmp_path):
    assert publish(tmp_path) == 0
    put(tmp_path / "a", "1.json", 8, 3)
    put(tmp_path, "_SUCCESS", 4)
    put(tmp_path / "_temporary", "2.json", 4)
    put(tmp_path, ".2.json.crc", 4)
    landed = {"reason": "why 6", "file": "x.avro", "text": "no message, so it has no value"}
    (tmp_path / "landed.json").write_text(json.dumps(landed))
    assert publish(tmp_path) == 2
    letters = [dlq._to_dead_letter(message, {}) for message in kafka.messages]
    assert [(x.origin_offset, x.key, x.value, x.reason) for x in letters] == [
        (3, b"\xff3", b"\x003", "LakeError: why 3"),
        (8, b"\xff8", b"\x008", "LakeError: why 8"),
    ]
    assert publish(tmp_path) == 0
    put(tmp_path / "a", "2.json", 9)
    put(tmp_path, "_heartbeat-0-6.json", 6)  # of a topic whose name begins so
    assert publish(tmp_path) == 2
    put(tmp_path / "a", "2.json", 9, 7)  # a batch was done again
    assert publish(tmp_path) == 1 and len(kafka.messages) == 5


def test_a_killed_publication_continues_after_what_it_has_sent(kafka, tmp_path):
    put(tmp_path, "1.json", *range(10))
    for kafka.limit in (0, 3, 6):
        with pytest.raises(KeyboardInterrupt):
            publish(tmp_path)
    kafka.limit = None
    assert publish(tmp_path) == 1
    offsets = [dlq._to_dead_letter(message, {}).origin_offset for message in kafka.messages]
    assert offsets == [*range(10)]


def test_a_topic_that_was_made_anew_has_other_messages_at_the_same_offsets(kafka, tmp_path):
    put(tmp_path, "1.json", 3)
    assert publish(tmp_path) == 1
    put(tmp_path, "1.json", 3, value="AAAA")
    assert publish(tmp_path) == 1 and publish(tmp_path) == 0


# --- replay
# -----------------------------------------------------------------------------------------


def dead_message(offset, topic="movies", partition="0", number="1"):
    headers = {"topic": topic, "partition": partition, "offset": number}
    return Message(
        offset, b"x", [(dlq.HEADER_PREFIX + name, said.encode()) for name, said in headers.items()]
    )


@pytest.fixture
def replay(monkeypatch, tmp_path):
    """A replay of `messages`; `sent` has the offsets of those that were sent back, in order."""
    lake = WORLD.lake.model_copy(update={"checkpoints": f"file:{tmp_path}"})
    world = WORLD.model_copy(update={"lake": lake})

    def run(topic="dead", **options):
        return dlq.replay(world, topic, **options)

    run.messages, run.sent = [], []

    def send(world, topic, records, **more):
        marks = [dict(options["headers"])[dlq.REPLAYED_HEADER] for *_, options in records]
        run.sent.extend(int(mark.split(b"/")[-1]) for mark in marks)

    monkeypatch.setattr(topics, "read_all", lambda world, topic: run.messages)
    monkeypatch.setattr(topics, "watermark_offsets", lambda world, topic: {0: (0, 5)})
    monkeypatch.setattr(topics, "topic_id", lambda world, topic: "an id")
    monkeypatch.setattr(topics, "produce", send)
    return run


@pytest.mark.parametrize("other", ["dead.lock", "dead.json", "x.dead", "replay"])
def test_replays_of_topics_whose_names_are_alike_are_kept_apart(replay, other):
    replay.messages = [dead_message(n) for n in range(3)]
    assert [replay(topic) for topic in ("dead", other, "dead", other)] == [3, 3, 0, 0]


def test_a_topic_is_listed_by_the_first_message_of_any_partition(replay, monkeypatch):
    """Partition 1 is empty; the first message of partition 2 is a dead letter, that of partition 0 is none."""
    found = {0: Message(5, b"x"), 2: dead_message(7)}
    asked = []

    def consume(world, topic, start, stop):
        asked.append((start, stop))
        return (found[partition] for partition in start)

    monkeypatch.setattr(topics, "names", lambda world: ["dead"])
    monkeypatch.setattr(
        topics, "watermark_offsets", lambda *_: {0: (5, 9000), 1: (4, 4), 2: (7, 8)}
    )
    monkeypatch.setattr(topics, "consume", consume)
    monkeypatch.setattr(dlq, "list_files", lambda uri: [])
    replay.messages = [found[2]]
    assert dlq.summary(WORLD)["location"].to_list() == ["topic dead"]
    assert asked == [({0: 5, 2: 7}, {0: 6, 2: 8})]
    found[2] = Message(7, b"y")
    assert dlq.summary(WORLD).empty


@pytest.mark.parametrize("said", ["none", "-3", "1e3", "\u0663", "9" * 30])
def test_a_header_that_is_no_number_hides_no_other_letter(said):
    letter = dlq._to_dead_letter(dead_message(0, partition=said, number=said), {})
    assert (letter.origin_partition, letter.origin_offset) == (-1, -1)


@pytest.mark.parametrize(
    "origin, partition",
    [
        ("movies", "7"),
        ("movies", "none"),
        ("", "0"),
        ("connect-configs", "0"),
        ("connect-offsets", "0"),
        ("connect-status", "0"),
        ("__consumer_offsets", "0"),
        ("__amazon_msk_connect_configs_x", "0"),
        ("dbhistory.demo1", "0"),
        ("dbhistory.demo1_r2", "0"),
        ("schema-history.x", "0"),
        ("dead", "0"),
    ],
)
def test_one_letter_that_cannot_go_back_and_nothing_is_sent(replay, origin, partition):
    """Also none to a topic that configures."""
    replay.messages = [dead_message(4), dead_message(5, origin, partition)]
    with pytest.raises(LakeError, match=f"(?s)1 dead letters .*offset 5: topic '{origin}'"):
        replay()
    assert not replay.sent
    assert replay(transform=lambda letter: letter.value if letter.offset == 4 else None) == 1
    assert replay.sent == [4] and replay() == 0, "the other one was left out"


def test_the_topics_that_configure_are_those_of_our_connects():
    conf = [paths.ROOT / "deploy/eks/connect.yaml", artifacts.CONF_DIR / "connect.properties"]
    for text in (file.read_text(encoding="utf-8") for file in conf):
        found = re.findall(r"(?:config|offset|status)\.storage\.topic=(\S+)", text)
        assert len(found) == 3 and all(map(dlq.INTERNAL_TOPICS.fullmatch, found))
    histories = [
        json.loads(file.read_text(encoding="utf-8")).get("schema.history.internal.kafka.topic")
        for file in connect.CONNECTORS_DIR.rglob("*.json")
    ]
    assert any(histories) and all(map(dlq.INTERNAL_TOPICS.fullmatch, filter(None, histories)))
    assert not dlq.INTERNAL_TOPICS.fullmatch(
        "msk.datalake.cdc_events"
    ) and not dlq.INTERNAL_TOPICS.fullmatch("connect-orders")


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ServiceLost("the service kafka died")])
@pytest.mark.parametrize("step", range(16))
def test_a_replay_that_is_interrupted_at_any_step_sends_at_most_one_batch_twice(
    replay, monkeypatch, tmp_path, step, interruption
):
    """Before and after each request and each write of the journal."""
    count = 35
    monkeypatch.setattr(dlq, "REPLAY_BATCH_SIZE", 10)
    replay.messages = [dead_message(n, "movies" if n % 5 else "people") for n in range(count)]
    steps, done = [(topics, "produce"), (files, "write_text")], []
    for module, name in steps:

        def interrupted(*arguments, real=getattr(module, name), **more):
            for call in (None, real):
                if len(done) == step:
                    raise interruption
                done.append(call and call(*arguments, **more))

        monkeypatch.setattr(module, name, interrupted)
    with pytest.raises(type(interruption) if isinstance(interruption, Exception) else interruption):
        replay()
    step = None
    replay()
    assert {*replay.sent} == {*range(count)}
    assert len(replay.sent) - count <= dlq.REPLAY_BATCH_SIZE
    assert replay() == 0


# --- the command line
# ------------------------------------------------------------------------------------------------


def test_the_command_line(monkeypatch):
    headers = [
        (dlq.HEADER_PREFIX + "topic", b"movies"),
        (dlq.HEADER_PREFIX + "exception.stacktrace", b"LakeError: not Avro \x1b[2J"),
        ("a\x1b]0;title\x07\n\u202ename", b"x"),
    ]
    frame = pandas.DataFrame(
        [dlq._to_dead_letter(Message(n, b"\0x", headers), {"0": 1}) for n in range(3)],
        columns=dlq.DeadLetter._fields,
    )
    monkeypatch.setattr(dlq, "read", lambda world, topic: frame)
    monkeypatch.setattr(dlq, "replay", lambda world, topic: 2)
    monkeypatch.setattr(
        dlq,
        "summary",
        lambda world: pandas.DataFrame(
            [
                ("topic dead", "movies\x1b[8m\nforged: 9", "not Avro", 3, 1),
                ("files landing/x", "movies", "not Avro", 3, 0),
            ],
            columns=["location", "origin", "reason", "dead_letters", "replayed"],
        ),
    )

    def call(*arguments):
        done = CliRunner().invoke(cli.app, ["dlq", *arguments])
        assert done.exit_code == 0, done.output
        return done.output

    assert call("list") == (
        "topic dead: 3 from movies\\x1b[8m\\nforged: 9, 1 replayed or left out\n    'not Avro'\n"
        "files landing/x: 3 from movies, 0 replayed or left out\n    'not Avro'\n"
    )
    said = call("show", "dead", "--limit", "2")
    assert said.startswith(
        "offset 0, replayed or left out: 'LakeError: not Avro \\x1b[2J'\n    __connect.errors.topic: b'mov"
    )
    assert "    a\\x1b]0;title\\x07\\n\\u202ename: b'x'\n" in said
    assert "offset 1: " in said and "offset 2" not in said and "    value: b'\\x00x'\n" in said
    assert said.endswith("2 of 3 dead letters\n") and "\x1b" not in said
    assert call("replay", "dead") == "dead letters replayed: 2\n"


def test_dead_letters_of_a_lake_table_are_shown_until_they_are_removed(monkeypatch, tmp_path):
    record = {"reason": "too long", "topic": "t", "partition": 0, "offset": 7, "text": '{"id": 1}'}
    folder = tmp_path / "bikes" / "trips" / "topic-t" / "9-0a1b2c"
    folder.mkdir(parents=True)
    second = {**record, "offset": 8, "text": "AAAA"}  # as base64, but no Avro message
    (folder / "part.json").write_text(f"{json.dumps(record)}\n{json.dumps(second)}\n")
    (folder / ".part.json.crc").write_text("of Spark")
    world = params.load("local")
    lake = world.lake.model_copy(update={"dead_letters": f"file:{tmp_path}"})
    monkeypatch.setattr(params, "load", lambda name: world.model_copy(update={"lake": lake}))
    monkeypatch.setattr(topics, "names", lambda world: [])

    def call(*arguments, **more):
        done = CliRunner().invoke(cli.app, ["dlq", *arguments], **more)
        assert done.exit_code == (1 if more.get("input") == "n\n" else 0), done
        return done.output

    listed = "files bikes/trips/topic-t: 2 from t, 0 replayed or left out\n    'too long'\n"
    for shown in ("bikes/trips", "bikes/trips/topic-t"):
        output = call("show", shown)
        assert "t, partition 0, offset 7: 'too long'" in output and '{"id": 1}' in output
        assert "t, partition 0, offset 8: 'too long'\n    'AAAA'" in output
        assert output.endswith("2 of 2 dead letters\n")
    assert "2 with the reason 'too long'" in call("remove", "bikes/trips", input="n\n")
    assert call("list") == listed

    def confirm(*_, **__):
        (folder / "arrives meanwhile.json").write_text(json.dumps({**record, "reason": "new"}))

    monkeypatch.setattr(typer, "confirm", confirm)
    assert call("remove", "bikes/trips").endswith("dead letters removed: 2\n")
    assert dlq.reasons(f"file:{tmp_path}/bikes/trips") == {"new": 1}
    assert call("remove", "bikes/trips", "--yes").endswith("dead letters removed: 1\n")
    assert call("list") == ""
    done = CliRunner().invoke(cli.app, ["dlq", "remove", "bikes/trips", "--yes"])
    assert str(done.exception).startswith("folder bikes/trips has no dead letters")


@pytest.mark.parametrize(
    "name, said",
    [
        ("landing/x", "folder landing/x has no dead letters"),
        ("movies", "the messages of topic movies are no dead letters"),
    ],
)
def test_show_names_what_has_no_dead_letters(monkeypatch, name, said):
    message = dlq._to_dead_letter(Message(0, b"x"), {})
    frame = pandas.DataFrame([message], columns=dlq.DeadLetter._fields)
    monkeypatch.setattr(dlq, "read", lambda world, topic: frame)
    done = CliRunner().invoke(cli.app, ["dlq", "show", name])
    assert done.exit_code == 1 and isinstance(done.exception, LakeError)
    assert str(done.exception).startswith(said)
