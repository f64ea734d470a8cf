"""What a sink connector's JSON asks for: the Lenses S3 sink (JSON lines) and the Confluent S3 sink (Avro files).

A setting that the landing does not honour is an error that names it.
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, Optional

from ..base import ConnectorError, World, nearest
from ..stack.services import AVRO_CONVERTER, REGISTRY_V2

LENSES = "io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector"
CONFLUENT = "io.confluent.connect.s3.S3SinkConnector"
JSON = "org.apache.kafka.connect.json.JsonConverter"
REGISTRY, ENVELOPE = "value.converter.apicurio.registry", "value.converter.schemas.enable"
PARTITIONER = "io.confluent.connect.storage.partitioner.DefaultPartitioner"
FLAWS = {
    "schema.enable": f"no Connect worker knows schema.enable: {ENVELOPE} was meant; the published walkthrough has this "
                     "flaw: Connect ignores it and takes the envelope off all the same",
    "table.name.format": "table.name.format belongs to the JDBC sink; the published walkthrough has it here: Connect "
                         "ignores it",
}
# Of each plugin the settings that are read;
READ = {
    LENSES: {"connector.class", "topics", "connect.s3.kcql", ENVELOPE},
    CONFLUENT: {"connector.class", "topics", "topics.regex", "flush.size", "topics.dir", f"{REGISTRY}.url"},
}
# those with one value that is honoured, and the sink's own default where there is one;
FIXED = {
    LENSES: {"value.converter": (JSON, JSON)},
    CONFLUENT: {
        "storage.class": ("io.confluent.connect.s3.storage.S3Storage", None),
        "format.class": ("io.confluent.connect.s3.format.avro.AvroFormat", None),
        "partitioner.class": (PARTITIONER, PARTITIONER),
        "schema.compatibility": ("NONE", "NONE"),
        "behavior.on.null.values": ("ignore", "fail"),
        "value.converter": (AVRO_CONVERTER, None),
        f"{REGISTRY}.headers.enabled": ("false", "false"),  # an id in a Kafka header is not looked for (topic/wire.py)
    },
}
# and those that change nothing about what is written from here: a connector's name; tasks.max, for a Spark task does
# one topic partition; where the objects go, for the world's lake says that; errors.log.enable, for what cannot be
# landed is always reported; how an upload is cut; when to rotate, for one run is one flush; what is for partitions
# named by fields and for Hive, and what is for writers. (And how keys are converted: they are not stored.)
NOT_NEEDED = {
    LENSES: {"name", "tasks.max", "aws.region", "aws.custom.endpoint", "connect.s3.aws.region", "errors.log.enable"},
    CONFLUENT: {"name", "tasks.max", "s3.region", "s3.bucket.name", "s3.part.size", "rotate.schedule.interval.ms",
                "timezone", "schema.generator.class", f"{REGISTRY}.auto-register", f"{REGISTRY}.find-latest"},
}


@dataclass(frozen=True)
class Sink:
    """What the JSON of a sink connector asks for, whichever plugin it is for.

    format: "json", lines; or "avro", container files. folder: of the objects, below the world's landing address.
    flush_count: most records of one object. shown: what it lands, for people; pattern: of the topics' names.
    names: of the topics, where the JSON has them and no pattern.
    fields: those that name partitions of lines. envelope: values come as {"schema": …, "payload": …}.
    """

    format: str
    folder: str
    flush_count: int
    shown: str
    pattern: str
    fields: tuple[str, ...] = ()
    envelope: bool = True
    names: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The name of its progress and of its dead letters."""
        if self.format == "json":
            return self.folder
        return f"{self.folder}.sink/" + re.sub(r"[^A-Za-z0-9._-]", "_", self.shown)

    def matching(self, topics: Iterable[str]) -> list[str]:
        """Those of these topics that it lands."""
        return [t for t in topics if re.fullmatch(self.pattern, t)]

    def prefix_of(self, topic: str) -> str:
        """The folder of a topic's objects, below the world's landing address."""
        return self.folder if self.format == "json" else f"{self.folder}/{topic}"


def parse(config: dict[str, str], world: Optional[World] = None) -> Sink:
    """Read a sink connector's JSON. Raises ConnectorError naming any setting that the landing does not honour.

    Understood, and it changes nothing: how long a sink may wait before it flushes (WITH_FLUSH_INTERVAL,
    rotate.schedule.interval.ms), for a run is one flush and waits for nothing. What the settings in NOT_NEEDED say does
    not concern the landing.

    Args:
        world: where it is given, the registry that the JSON names has to be the world's.
    """
    where = str(config.get("name", "the S3 sink's JSON"))
    plugin = config.get("connector.class", "")
    if plugin not in READ:
        raise ConnectorError(f"connector.class is {plugin!r}", where=where, expected=" or ".join(READ))
    known = READ[plugin] | NOT_NEEDED[plugin] | set(FIXED[plugin])
    for key in (k for k in config if not re.match(r"key\.converter(\.|$)", k)):
        if key not in known:
            what = f"{key} is not a setting" if key in FLAWS else f"the landing job does not honour {key}"
            raise ConnectorError(what, where=where, expected=FLAWS.get(key) or nearest(key, known),
                                 next_step="remove it, or run the real connector")
    for key, (honoured, default) in FIXED[plugin].items():
        if config.get(key, default) != honoured:
            said = repr(config[key]) if key in config else "not there" + (f", which means {default}" if default else "")
            raise ConnectorError(f"{key} is {said}", where=where, expected=f"{key}={honoured}",
                                 next_step="the landing honours no other value; run the real connector for it")
    return _lenses(config, where) if plugin == LENSES else _confluent(config, where, world)


def _count(text: str, name: str, where: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ConnectorError(f"{name} is {text!r}", where=where, expected="a whole number from 1")
    return int(text)


def _confluent(config: dict[str, str], where: str, world: Optional[World]) -> Sink:
    """Objects `<folder>/<topic>/partition=<n>/<topic>+<n>+<offset>.avro`, the offset that of their first record, in ten
    digits (DefaultPartitioner; filename.offset.zero.pad.width)."""
    size = _count(config.get("flush.size", ""), "flush.size", where)
    folder = config.get("topics.dir", "topics")
    if not re.fullmatch(r"[\w.+-]+(/[\w.+-]+)*", folder) or ".." in folder.split("/"):
        raise ConnectorError(f"topics.dir is {folder!r}", where=where, expected="a folder such as topics")
    if ("topics" in config) == ("topics.regex" in config):
        raise ConnectorError("topics and topics.regex are both there" if "topics" in config else
                             "neither topics nor topics.regex is there", where=where, expected="one of the two")
    pattern = config.get("topics.regex", "")
    try:
        re.compile(pattern)
    except re.error as e:
        raise ConnectorError(f"topics.regex is {pattern!r}: {e}", where=where, expected="a regular expression") from e
    url, expected = config.get(f"{REGISTRY}.url", ""), world and world.registry.url.rstrip("/")
    if world is not None and url.rstrip("/") not in (expected, expected + REGISTRY_V2):
        raise ConnectorError(f"{REGISTRY}.url is {url!r}", where=where,
                             expected=f"the registry of {world.file}: {expected}{REGISTRY_V2}")
    names = tuple(t.strip() for t in config.get("topics", "").split(",") if t.strip())
    return Sink("avro", folder, size, ",".join(names) or pattern, pattern or "|".join(map(re.escape, names)),
                names=names)


def _lenses(config: dict[str, str], where: str) -> Sink:
    """Objects `<prefix>/a=1/b=x/…json` by `INSERT INTO bucket:prefix SELECT * FROM topic [PARTITIONBY a,b]
    [STOREAS `json`] [WITH_FLUSH_… = n]…`; what is left out has the sink's own default."""
    envelope = str(config.get(ENVELOPE, "true")).lower()
    if envelope not in ("true", "false"):
        raise ConnectorError(f"{ENVELOPE} is {envelope!r}", where=where, expected="true or false")
    text = config.get("connect.s3.kcql", "")
    found = re.fullmatch(
        r"\s*insert\s+into\s+[^\s:]+:(?P<prefix>\S+)\s+select\s+(?P<what>[^;]+?)\s+from\s+(?P<topic>\S+)"
        r"(?:\s+partitionby\s+(?P<fields>\w+(?:\s*,\s*\w+)*))?(?:\s+storeas\s+(?P<format>\S+))?"
        r"(?P<rest>(?:\s+with_\w+\s*=\s*[^\s;]+)*)\s*;?\s*", text, re.I | re.S)
    if not found:
        raise ConnectorError(f"KCQL not understood: {text!r}", where=where,
                             expected="one statement, INSERT INTO bucket:prefix SELECT * FROM topic PARTITIONBY a,b "
                                      "STOREAS `json` WITH_FLUSH_INTERVAL = 60 WITH_FLUSH_COUNT = 50")
    if found["what"].strip() != "*":
        raise ConnectorError(f"KCQL selects {found['what']!r}", where=where, expected="*")
    stored = (found["format"] or "json").strip("`").lower()
    if stored != "json":
        raise ConnectorError(f"KCQL stores as {stored!r}", where=where, expected="`json`")
    flushes = {"WITH_FLUSH_INTERVAL": 3600, "WITH_FLUSH_COUNT": 50_000}
    for name, value in re.findall(r"(\w+)\s*=\s*(\S+)", found["rest"]):
        if name.upper() not in flushes:
            raise ConnectorError(f"the landing job does not honour {name}", where=where,
                                 expected=nearest(name.upper(), flushes))
        flushes[name.upper()] = _count(value, name, where)
    topic = found["topic"].strip("`")
    if config.get("topics") != topic:
        raise ConnectorError(f"topics is {config.get('topics')!r}, the KCQL reads {topic!r}", where=where,
                             expected="one and the same topic")
    fields = tuple(re.findall(r"\w+", found["fields"] or ""))
    return Sink("json", found["prefix"].strip("`"), flushes["WITH_FLUSH_COUNT"], topic, re.escape(topic), fields,
                envelope == "true")
