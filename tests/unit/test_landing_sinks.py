"""Confluent's sink: its JSON is understood whole or refused."""

from types import SimpleNamespace

import pytest
from workbench import connect, landing
from workbench.base import params
from workbench.base.errors import ConnectorError, LakeError
from workbench.landing import job
from workbench.landing.sinks import Sink

JSON = "org.apache.kafka.connect.json.JsonConverter"


@pytest.fixture(scope="module")
def world():
    return params.load("local")


@pytest.fixture
def good(world):
    return connect.config(world, "moma_sink")


def test_the_sink_of_the_walkthrough(world, good):
    sink = landing.parse(good, world)
    assert sink == Sink(
        "avro",
        "topics",
        10_000,
        r"moma\.public\.(.*)",
        partition_fields=None,
        is_confluent=True,
        message_format="avro",
        codec="snappy",
    )
    names = [
        "moma.public.artworks",
        "moma_public.artists",
        "__debezium-heartbeat.moma",
        "moma.public.artists",
    ]
    assert sink.matching_topics(names) == [names[0], names[3]]
    assert sink.prefix_of(names[0]) == "topics/moma.public.artworks"
    assert (
        "/" not in sink.state_path.partition("/")[2]
        and sink.state_path != landing.parse({**good, "topics.regex": "x"}).state_path
    )


def test_topics_by_name_and_another_folder(good):
    del good["topics.regex"]
    sink = landing.parse({**good, "topics": "a, b", "topics.dir": "raw/avro", "flush.size": "003"})
    assert (sink.description, sink.topic_pattern, sink.flush_count, sink.prefix_of("a")) == (
        "a,b",
        "a|b",
        3,
        "raw/avro/a",
    )
    assert sink.matching_topics(["b", "c"]) == ["b"]


@pytest.mark.parametrize(
    "change, says",
    [
        ({"format.class": None}, "format.class is missing.*JsonFormat"),
        (
            {"partitioner.class": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner"},
            "partitioner.class is 'io.confluent.*TimeBased",
        ),
        (
            {"value.converter": "io.confluent.connect.avro.AvroConverter"},
            "value.converter is.*apicurio.*JsonConverter",
        ),
        ({"flush.size": "0"}, "flush.size is '0'.*from 1"),
        ({"flush.size": " 3"}, "flush.size is ' 3'"),
        ({"flush.size": 0}, "flush.size is 0.*from 1"),
        ({"flush.size": True}, "flush.size is True.*from 1"),
        ({"errors.tolerance": True}, "errors.tolerance is True.*valid: all, none"),
        ({"topics.dir": ["a"]}, r"topics.dir is \['a'\].*a folder"),
        (
            {"value.converter": JSON},
            "value.converter.apicurio.* is not supported",
        ),
        (
            {"value.converter.schemas.enable": "true"},
            "value.converter.schemas.enable is not supported",
        ),
        ({"transforms": "x"}, "transforms is 'x'.*none with AvroFormat"),
        ({"errors.deadletterqueue.topic.name": "dlq"}, "topic.name is 'dlq'.*tolerance=all"),
        ({"table.name.format": "${topic}"}, "table.name.format is not supported.*JDBC"),
        ({"topics": "a"}, "topics is 'a'.*either topics or topics.regex"),
        ({"topics.regex": None}, "topics is missing.*either topics or"),
        ({"topics.regex": "("}, "topics.regex is"),
        (
            {"value.converter.apicurio.registry.url": "http://other/apis/registry/v2"},
            "other.*the registry of",
        ),
        (
            {"value.converter.apicurio.registry.headers.enabled": "true"},
            "headers.enabled is 'true'",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused(world, good, change, says):
    config = {k: v for k, v in {**good, **change}.items() if v is not None}
    with pytest.raises(ConnectorError, match="(?s)" + says):
        landing.parse(config, world)


def test_a_number_is_as_its_text(good):
    assert landing.parse({**good, "flush.size": 5}) == landing.parse({**good, "flush.size": "5"})


def test_a_sink_without_a_topic_is_no_silent_success(world, good, monkeypatch, tmp_path):
    monkeypatch.setattr(job.topics, "names", lambda world: ["other"])
    lab = SimpleNamespace(lake=SimpleNamespace(checkpoints=f"file:{tmp_path}"), kafka=world.kafka)
    with pytest.raises(LakeError, match="(?s)no topic for the sink.*valid: other.*RUNNING"):
        job.require_topics(lab, landing.parse(good))


def test_one_topic_of_several_that_is_not_there_is_named(world, good, monkeypatch, tmp_path):
    """A misspelt one: the others would be landed, and nothing of it."""
    monkeypatch.setattr(job.topics, "names", lambda world: ["artists", "artworks"])
    monkeypatch.setattr(job.topics, "topic_id", lambda world, name: f"id of {name}")
    lab = SimpleNamespace(lake=SimpleNamespace(checkpoints=f"file:{tmp_path}"), kafka=world.kafka)
    config = {k: v for k, v in good.items() if k != "topics.regex"}
    with pytest.raises(
        LakeError, match="(?s)no topic for the sink.*artwork at .*did you mean 'artworks'"
    ):
        job.require_topics(lab, landing.parse({**config, "topics": "artists,artwork"}))
    assert not list(tmp_path.iterdir()), "nothing is noted of a landing that is refused"
    job.require_topics(lab, landing.parse({**config, "topics": "artists,artworks"}))
    job.require_topics(lab, landing.parse({**config, "topics.regex": "art(ist|work)s?"}))


def test_starting_clean_removes_files_of_a_topic_whose_id_is_gone_too(good, world, tmp_path):
    lake = {name: f"file:{tmp_path}/{name}" for name in ("landing", "checkpoints", "dead_letters")}
    for place in (
        "landing/topics/moma.public.artists/left.avro",
        "landing/topics/others/kept.avro",
    ):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).touch()
    landing.drop(SimpleNamespace(lake=SimpleNamespace(**lake)), good)
    assert [p.name for p in (tmp_path / "landing").rglob("*.avro")] == ["kept.avro"]
