"""Dead letters without a broker: what a sink's JSON may say of them, what a letter says, and what
people are shown."""

import json
import re
from types import SimpleNamespace

import pandas
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME
from confluent_sink import SINK
from typer.testing import CliRunner
from workbench import connect, landing
from workbench.base import params, paths
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
        ({"errors.tolerance": "some"}, "errors.tolerance is 'some'.*valid: all, none"),
        (
            {"errors.tolerance": "none"},
            "topic.name is not supported with errors.tolerance=none",
        ),
        ({"errors.tolerance": None}, "topic.name is not supported with errors.tolerance=none"),
        (
            {"errors.deadletterqueue.context.headers.enable": "false"},
            "headers.enable is 'false'.*true",
        ),
        (
            {"errors.deadletterqueue.topic.name": "t"},
            "topic.name is 't'.*a topic that the sink does not land",
        ),
        ({"errors.retry.timeout": "1"}, "errors.retry.timeout is not supported"),
    ],
)
def test_what_a_sink_may_not_say_of_them(change, says):
    config = {k: v for k, v in {**SINK, "topics": "t", **ERRORS, **change}.items() if v is not None}
    with pytest.raises(ConnectorError, match=f"(?s){says}"):
        landing.parse(config)


# --- what a letter says
# ----------------------------------------------------------------------------------------------


def test_a_letter_of_ours_has_the_headers_of_connects():
    origin = Message(7, b"x", topic="movies")
    headers = dlq.to_record(origin, "sink", "workbench.landing.run", "malformed JSON")[2]["headers"]
    assert [name for name, _ in headers] == [
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
    letter = dlq._to_dead_letter(Message(0, b"x", headers))
    assert {name: getattr(letter, name) for name in letter._fields[3:9]} == {
        "topic": "movies",
        "origin_partition": 0,
        "origin_offset": 7,
        "connector": "sink",
        "stage": "VALUE_CONVERTER",
        "reason": "LakeError: malformed JSON",
    }


def test_a_message_without_such_headers_came_from_nowhere():
    letter = dlq._to_dead_letter(Message(0, None, key=None))
    assert (letter.topic, letter.origin_offset, letter.reason, letter.value) == (
        "",
        -1,
        "",
        None,
    )


def test_a_message_goes_back_as_it_was_with_one_header_more():
    origin = Message(7, b"x", [("own", b"1")], topic="movies")
    headers = [
        *dlq.to_record(origin, "s", "by", "why")[2]["headers"],
        (dlq.REPLAYED_HEADER, b"dead/0/1"),
    ]  # it was sent back once, and could not be read again
    letter = dlq._to_dead_letter(Message(4, b"x", headers))
    assert dlq._to_original("dead", letter, b"mended") == (
        b"k",
        b"mended",
        {
            "partition": 0,
            "timestamp": 1_000,
            "headers": [("own", b"1"), (dlq.REPLAYED_HEADER, b"dead/0/4")],
        },
    )


# --- from files to the topic
# -----------------------------------------------------------------------------------------

KNOWN = {"movies": "id of movies", "anew": "the id that it had"}  # of another nobody knows


@pytest.fixture
def kafka(monkeypatch):
    """A topic `movies` of ten messages; what is sent is noted: (topic, key, value, headers,
    settings)."""
    sent = []
    there = [Message(n, b"%d" % n, topic="movies") for n in range(10)]

    def send(world, topic, messages, **more):
        sent.extend(
            (topic, key, value, dict(told["headers"]), more) for key, value, told in messages
        )

    monkeypatch.setattr(topics, "names", lambda world: ["anew", "movies"])
    monkeypatch.setattr(topics, "topic_id", lambda world, topic: f"id of {topic}")
    monkeypatch.setattr(
        topics, "watermark_offsets", lambda world, topic: {0: (2, 10)}
    )  # two have expired
    monkeypatch.setattr(
        topics,
        "consume",
        lambda world, topic, start, stop: (m for m in there[start[0] : stop[0]] if m.offset() != 5),
    )  # one was compacted away
    monkeypatch.setattr(
        topics, "create", lambda world, topic, **config: sent.append((topic, config))
    )
    monkeypatch.setattr(topics, "produce", send)
    return sent


def put(folder, name, *offsets, **more):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(
        "".join(
            json.dumps(
                {"reason": f"why {n}", "topic": "movies", "partition": 0, "offset": n, **more}
            )
            + "\n"
            for n in offsets
        )
    )


def test_what_is_new_in_the_files_is_sent_once(kafka, tmp_path):
    def send():
        kafka.clear()
        n = dlq.publish(
            WORLD,
            "dead",
            f"file:{tmp_path}/letters",
            f"file:{tmp_path}/noted.json",
            "sink",
            "by",
            KNOWN.get,
        )
        assert n == len(kafka) - bool(kafka) and kafka[:1] in (
            [],
            [("dead", {"max.message.bytes": "2097152"})],
        )
        return [
            (value, headers["__connect.errors.exception.message"])
            for _, _, value, headers, _ in kafka[1:]
        ]

    assert send() == []
    letters = tmp_path / "letters"
    put(letters / "a", "1.json", 3, 8)
    put(letters, "_SUCCESS", 4)
    put(letters / "_temporary", "2.json", 4)
    put(letters, ".2.json.crc", 4)
    put(letters, "landed.json", 6, topic=None, file="x.avro")
    assert send() == [(b"3", b"why 3"), (b"8", b"why 8")]
    assert kafka[1][4] == {"message.max.bytes": 2097152}
    assert send() == []
    put(letters / "a", "2.json", 9)
    put(letters, "_heartbeat-0-6.json", 6)  # of a topic whose name begins so
    assert send() == [(b"6", b"why 6"), (b"9", b"why 9")]
    put(letters / "a", "2.json", 9, 7)  # a batch was done again
    assert send() == [(b"7", b"why 7"), (b"9", b"why 9")]


def test_those_whose_messages_are_gone_are_told_once(kafka, tmp_path):
    put(tmp_path / "letters", "1.json", 1, 3, 5)
    for _ in range(2):
        try:
            dlq.publish(
                WORLD,
                "dead",
                f"file:{tmp_path}/letters",
                f"file:{tmp_path}/noted.json",
                "sink",
                "by",
                KNOWN.get,
            )
        except Exception as e:  # noqa: BLE001 - looked at below
            assert "2 dead letters were not published to dead" in str(e) and str(tmp_path) in str(e)
            kafka.append("told")
    assert [each[2] if each[0] == "dead" and len(each) == 5 else each for each in kafka[1:]] == [
        b"3",
        "told",
    ]


def test_a_topic_that_is_gone_or_made_anew_has_none_of_them(kafka, tmp_path):
    put(
        tmp_path / "letters", "1.json", 3, 4, topic="anew"
    )  # what stands there now is another message
    put(tmp_path / "letters", "2.json", 6, topic="gone")
    put(tmp_path / "letters", "3.json", 8)
    with pytest.raises(
        LakeError, match="3 dead letters were not published to dead: .* gone from anew, gone"
    ):
        dlq.publish(
            WORLD,
            "dead",
            f"file:{tmp_path}/letters",
            f"file:{tmp_path}/noted.json",
            "sink",
            "by",
            KNOWN.get,
        )
    assert [each[2] for each in kafka[1:]] == [b"8"]


@pytest.mark.parametrize(
    "partitions, says",
    [(1, "from nowhere"), (2, "dead has several partitions.*select by `transform`")],
)
def test_an_offset_names_one_letter_in_a_topic_of_one_partition_only(
    monkeypatch, tmp_path, partitions, says
):
    def stops(letter):
        raise LakeError("from nowhere")

    letters = [dlq._to_dead_letter(Message(4, b"x"))]
    monkeypatch.setattr(dlq, "_read", lambda world, topic: letters)
    monkeypatch.setattr(dlq, "_state_path", lambda world, topic: f"file:{tmp_path}/noted.json")
    monkeypatch.setattr(
        topics, "watermark_offsets", lambda world, topic: dict.fromkeys(range(partitions), (0, 5))
    )
    with pytest.raises(LakeError, match=f"(?s){says}"):
        dlq.replay(WORLD, "dead", offsets=[4], transform=stops)
    with pytest.raises(LakeError, match="from nowhere"):
        dlq.replay(WORLD, "dead", transform=stops)


@pytest.mark.parametrize("said", [b"none", b"-3", b"1e3", "\u0663".encode(), b"9" * 30])
def test_a_header_that_is_no_number_hides_no_other_letter(said):
    headers = [(dlq.HEADER_PREFIX + name, said) for name in ("partition", "offset")]
    letter = dlq._to_dead_letter(Message(0, b"x", headers))
    assert (letter.origin_partition, letter.origin_offset) == (-1, -1)


def test_one_invalid_partition_and_nothing_is_sent(monkeypatch, tmp_path):
    def letter(offset, partition):
        said = {"topic": b"movies", "partition": partition, "offset": b"1"}
        return dlq._to_dead_letter(
            Message(offset, b"x", [(dlq.HEADER_PREFIX + n, v) for n, v in said.items()])
        )

    sent = []
    letters = [letter(4, b"0"), letter(5, b"7")]
    monkeypatch.setattr(dlq, "_read", lambda world, topic: letters)
    monkeypatch.setattr(dlq, "_state_path", lambda world, topic: f"file:{tmp_path}/noted.json")
    monkeypatch.setattr(topics, "watermark_offsets", lambda world, topic: {0: (0, 5)})
    monkeypatch.setattr(topics, "topic_id", lambda world, topic: "id")
    monkeypatch.setattr(
        topics, "produce", lambda world, topic, messages, **more: sent.extend(messages)
    )
    with pytest.raises(LakeError, match="(?s)offset 5: movies, partition 7"):
        dlq.replay(WORLD, "dead")
    assert not sent
    assert dlq.replay(WORLD, "dead", offsets=[4]) == 1 and len(sent) == 1


@pytest.mark.parametrize(
    "origin",
    [
        "connect-configs",
        "connect-offsets",
        "connect-status",
        "__consumer_offsets",
        "__amazon_msk_connect_configs_x",
        "dbhistory.demo1",
        "dbhistory.demo1_r2",
        "schema-history.x",
        "dead",
    ],
)
def test_no_letter_goes_to_a_topic_that_configures(monkeypatch, tmp_path, origin):
    def letter(offset, topic):
        said = {"topic": topic.encode(), "partition": b"0", "offset": b"1"}
        return dlq._to_dead_letter(
            Message(offset, b"x", [(dlq.HEADER_PREFIX + n, v) for n, v in said.items()])
        )

    sent = []
    letters = [letter(4, "movies"), letter(5, origin)]
    monkeypatch.setattr(dlq, "_read", lambda world, topic: letters)
    monkeypatch.setattr(dlq, "_state_path", lambda world, topic: f"file:{tmp_path}/noted")
    monkeypatch.setattr(topics, "watermark_offsets", lambda world, topic: {0: (0, 5)})
    monkeypatch.setattr(topics, "topic_id", lambda world, topic: "id")
    monkeypatch.setattr(
        topics, "produce", lambda world, topic, messages, **more: sent.extend(messages)
    )
    with pytest.raises(LakeError, match=f"(?s)that a replay rejects: {origin}.*offset 5: {origin}"):
        dlq.replay(WORLD, "dead")
    assert not sent
    assert dlq.replay(WORLD, "dead", offsets=[4]) == 1 and len(sent) == 1


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


@pytest.fixture
def many(monkeypatch, tmp_path):
    """A dead-letter topic of 3,500 letters from two topics, with replays recorded below tmp_path;
    gives the world and the offsets of the letters that were sent back, in order."""

    def letter(offset):
        headers = {
            "topic": b"movies" if offset % 5 else b"people",
            "partition": b"0",
            "offset": b"%d" % offset,
        }
        return Message(
            offset, b"x", [(dlq.HEADER_PREFIX + name, value) for name, value in headers.items()]
        )

    sent = []
    world = WORLD.model_copy(
        update={"lake": WORLD.lake.model_copy(update={"checkpoints": f"file:{tmp_path}"})}
    )
    monkeypatch.setattr(topics, "read_all", lambda world, topic: [letter(n) for n in range(3_500)])
    monkeypatch.setattr(topics, "watermark_offsets", lambda world, topic: {0: (0, 5)})
    monkeypatch.setattr(topics, "topic_id", lambda world, topic: "an id")

    def send(world, topic, messages, **more):
        sent.extend(
            int(dict(told["headers"])[dlq.REPLAYED_HEADER].split(b"/")[-1])
            for _, _, told in messages
        )

    monkeypatch.setattr(topics, "produce", send)
    return world, sent


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ServiceLost("the service kafka died")])
@pytest.mark.parametrize("batches", [0, 1, 2, 3])
def test_an_interrupted_replay_sends_at_most_one_batch_twice(
    many, monkeypatch, batches, interruption
):
    world, sent = many
    real, done = topics.produce, []

    def interrupted(*arguments, **more):
        real(*arguments, **more)
        if len(done) == batches:
            raise interruption
        done.append(1)

    monkeypatch.setattr(topics, "produce", interrupted)
    with pytest.raises(type(interruption) if isinstance(interruption, Exception) else interruption):
        dlq.replay(world, "dead")
    assert len(sent) > batches * dlq.REPLAY_BATCH_SIZE * 0.5
    monkeypatch.setattr(topics, "produce", real)
    dlq.replay(world, "dead")
    assert set(sent) == {*range(3_500)} and len(sent) - 3_500 <= dlq.REPLAY_BATCH_SIZE
    assert dlq.replay(world, "dead") == 0


def test_a_replay_of_a_former_version_is_not_repeated(many, tmp_path):
    world, sent = many
    (tmp_path / "replayed").mkdir()
    former = {"an id": [[0, n] for n in range(3_000)]}
    (tmp_path / "replayed" / "dead.json").write_text(json.dumps(former))
    assert dlq.replay(world, "dead") == 500 and min(sent) == 3_000
    folder = f"file:{tmp_path}/replayed"
    assert dlq.replay_state_dirs(world) == {f"{folder}/dead": "dead", f"{folder}/dead.json": "dead"}


def test_an_empty_file_of_a_former_version_says_nothing(many, tmp_path):
    world, sent = many
    (tmp_path / "replayed").mkdir()
    (tmp_path / "replayed" / "dead.json").write_text("")
    assert dlq.replay(world, "dead") == len(sent) == 3_500


@pytest.mark.parametrize("other", ["dead.lock", "dead.json"])
def test_records_of_topics_whose_names_end_alike_are_kept_apart(many, tmp_path, other):
    world, sent = many
    for topic in ("dead", other):
        sent.clear()
        assert dlq.replay(world, topic) == len(sent) == 3_500
    assert dlq.replay(world, "dead") == dlq.replay(world, other) == 0
    folder = f"file:{tmp_path}/replayed"
    assert dlq.replay_state_dirs(world) == {f"{folder}/dead": "dead", f"{folder}/{other}": other}


# --- the command line
# ------------------------------------------------------------------------------------------------


def test_the_command_line(monkeypatch):
    headers = dlq.to_record(Message(7, b"x", topic="movies"), "sink", "by", "not Avro \x1b[2J")[2][
        "headers"
    ]
    headers = [*headers, ("a\x1b]0;title\x07\n\u202ename", b"x")]
    frame = pandas.DataFrame(
        [dlq._to_dead_letter(Message(n, b"\0x", headers), {(0, 0)}) for n in range(3)],
        columns=dlq.DeadLetter._fields,
    )
    monkeypatch.setattr(dlq, "read", lambda world, topic: frame)
    monkeypatch.setattr(dlq, "replay", lambda world, topic, offsets: len(list(offsets)) or 2)
    monkeypatch.setattr(
        dlq,
        "summary",
        lambda world: pandas.DataFrame(
            [
                ("topic dead", "movies\x1b[8m\nforged: 9", "not Avro", 3, 1, 0),
                ("files landing/x", "movies", "not Avro", 3, 0, 2),
            ],
            columns=["location", "origin", "reason", "dead_letters", "replayed", "settled"],
        ),
    )

    def call(*arguments):
        done = CliRunner().invoke(cli.app, ["dlq", *arguments])
        assert done.exit_code == 0, done.output
        return done.output

    assert call("list") == (
        "topic dead: 3 from movies\\x1b[8m\\nforged: 9, 1 replayed\n    'not Avro'\n"
        "files landing/x: 3 from movies, 0 replayed, 2 settled\n    'not Avro'\n"
    )
    said = call("show", "dead", "--limit", "2")
    assert said.startswith(
        "offset 0, replayed: 'LakeError: not Avro \\x1b[2J'\n    __connect.errors.topic: b'mov"
    )
    assert "    a\\x1b]0;title\\x07\\n\\u202ename: b'x'\n" in said
    assert "offset 1: " in said and "offset 2" not in said and "    value: b'\\x00x'\n" in said
    assert said.endswith("2 of 3 dead letters\n") and "\x1b" not in said
    assert call("replay", "dead") == "dead letters replayed: 2\n"
    assert call("replay", "dead", "--offset", "0") == "dead letters replayed: 1\n"


def test_dead_letters_of_a_lake_table_are_shown(monkeypatch, tmp_path):
    record = {"reason": "too long", "topic": "t", "partition": 0, "offset": 7, "text": '{"id": 1}'}
    folder = tmp_path / "bikes" / "trips" / "topic-t" / "00000000"
    folder.mkdir(parents=True)
    second = {**record, "offset": 8, "text": "AAAA"}  # as base64, but no Avro message
    (folder / "part.json").write_text(f"{json.dumps(record)}\n{json.dumps(second)}\n")
    (tmp_path / "bikes/trips" / dlq.SETTLED_FILE).write_text('[["t", 0, 8]]')
    world = params.load("local")
    lake = world.lake.model_copy(update={"dead_letters": f"file:{tmp_path}"})
    monkeypatch.setattr(params, "load", lambda name: world.model_copy(update={"lake": lake}))
    for shown in ("bikes/trips", "bikes/trips/topic-t"):
        done = CliRunner().invoke(cli.app, ["dlq", "show", shown])
        assert done.exit_code == 0, done
        assert "t, offset 7: 'too long'" in done.output and '{"id": 1}' in done.output
        assert "t, offset 8, settled: 'too long'\n    'AAAA'" in done.output
        assert done.output.endswith("2 of 2 dead letters\n")


@pytest.mark.parametrize(
    "name, said",
    [
        ("landing/x", "folder landing/x has no dead letters"),
        ("movies", "the messages of topic movies are no dead letters"),
    ],
)
def test_show_names_what_has_no_dead_letters(monkeypatch, name, said):
    message = dlq._to_dead_letter(Message(0, b"x"), set())
    frame = pandas.DataFrame([message], columns=dlq.DeadLetter._fields)
    monkeypatch.setattr(dlq, "read", lambda world, topic: frame)
    done = CliRunner().invoke(cli.app, ["dlq", "show", name])
    assert done.exit_code == 1 and isinstance(done.exception, LakeError)
    assert str(done.exception).startswith(said)
