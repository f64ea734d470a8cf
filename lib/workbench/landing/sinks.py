"""What a sink connector's JSON asks for: the Lenses S3 sink (JSON lines) and the Confluent S3 sink (JSON lines, Avro or
Parquet files).

A setting that the landing does not honour is an error that names it.
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterable, Optional
from zoneinfo import ZoneInfo

from ..base import ConnectorError, World, nearest
from ..stack.services import AVRO_CONVERTER, REGISTRY_V2
from . import transforms
from .parquet import CODECS
from .places import Times, checked, field_of, folder_of, strftime

LENSES = "io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector"
CONFLUENT = "io.confluent.connect.s3.S3SinkConnector"
JSON = "org.apache.kafka.connect.json.JsonConverter"
REGISTRY, ENVELOPE = "value.converter.apicurio.registry", "value.converter.schemas.enable"
FORMATS = {f"io.confluent.connect.s3.format.{n}.{n.title()}Format": n for n in ("json", "avro", "parquet")}
BY_PARTITION, BY_FIELD, BY_TIME = (
    f"io.confluent.connect.storage.partitioner.{n}Partitioner" for n in ("Default", "Field", "TimeBased"))
FLAWS = {
    "schema.enable": f"no Connect worker knows schema.enable: {ENVELOPE} was meant; the published walkthrough has this "
                     "flaw: Connect ignores it and takes the envelope off all the same",
    "table.name.format": "table.name.format belongs to the JDBC sink; the published walkthrough has it here: Connect "
                         "ignores it",
}
# Of each plugin the settings that are read;
READ = {
    LENSES: {"connector.class", "topics", "connect.s3.kcql", ENVELOPE},
    CONFLUENT: {"connector.class", "topics", "topics.regex", "flush.size", "topics.dir", "timezone"},
}
# those with few values that are honoured, the first of which is the sink's own default where there is one (the
# converter's is the embedded worker's);
CHOICES: dict[str, dict[str, tuple[Optional[str], ...]]] = {
    LENSES: {"value.converter": (JSON,)},
    CONFLUENT: {
        "storage.class": (None, "io.confluent.connect.s3.storage.S3Storage"),
        "format.class": (None, *FORMATS),
        "partitioner.class": (BY_PARTITION, BY_FIELD, BY_TIME),
        "schema.compatibility": ("NONE",),
        "behavior.on.null.values": ("fail", "ignore"),
        "value.converter": (JSON, AVRO_CONVERTER),
    },
}
# those that mean something only where another has a certain value, and are read there;
ONLY_WITH = {
    "parquet.codec": ("format.class", "io.confluent.connect.s3.format.parquet.ParquetFormat"),
    "partition.field.name": ("partitioner.class", BY_FIELD),
    **dict.fromkeys(("path.format", "partition.duration.ms", "timestamp.extractor", "timestamp.field",
                     "rotate.interval.ms"), ("partitioner.class", BY_TIME)),
    ENVELOPE: ("value.converter", JSON),
    **dict.fromkeys((f"{REGISTRY}.{n}" for n in ("url", "headers.enabled", "auto-register", "find-latest")),
                    ("value.converter", AVRO_CONVERTER)),
}
# and those that change nothing about what is written from here: a connector's name; tasks.max, for a Spark task does
# one topic partition; where the objects go, for the world's lake says that; errors.log.enable, for what cannot be
# landed is always reported; how an upload is cut; when to rotate by the clock, for one run is one flush; the language
# of times, which are numbers; what is for Hive, and what is for writers. (And how keys are converted: they are not
# stored.)
NOT_NEEDED = {
    LENSES: {"name", "tasks.max", "aws.region", "aws.custom.endpoint", "connect.s3.aws.region", "errors.log.enable"},
    CONFLUENT: {"name", "tasks.max", "s3.region", "s3.bucket.name", "s3.part.size", "rotate.schedule.interval.ms",
                "locale", "schema.generator.class"},
}


@dataclass(frozen=True)
class Sink:
    """What the JSON of a sink connector asks for, whichever plugin it is for.

    format: of the files, "json" (lines), "avro" or "parquet". folder: of objects, below the world's landing address.
    flush_count: most records of one object. shown: what it lands, for people; pattern: of the topics' names.
    fields: those that name partitions. envelope: JSON values come as {"schema": …, "payload": …}.
    names: of the topics, where the JSON has them and no pattern.
    confluent: objects are named and cut as Confluent's sink does it; else as Lenses'. messages: "json" or "avro".
    codec: of Parquet. times: folders by time. rotate: most milliseconds between the times of the first and the last
    record of an object, 0 for any. transforms: of values, before all else. null_fails: a message without a value is an
    error.
    """

    format: str
    folder: str
    flush_count: int
    shown: str
    pattern: str
    fields: tuple[str, ...] = ()
    envelope: bool = True
    names: tuple[str, ...] = ()
    confluent: bool = False
    messages: str = "json"
    codec: str = "none"
    times: Optional[Times] = None
    rotate: int = 0
    transforms: tuple[transforms.Transform, ...] = ()
    null_fails: bool = False

    @property
    def place(self) -> str:
        """The name of its progress and of its dead letters."""
        return f"{self.folder}.sink/" + re.sub(r"[^A-Za-z0-9._-]", "_", self.shown) if self.confluent else self.folder

    def matching(self, topics: Iterable[str]) -> list[str]:
        """Those of these topics that it lands."""
        return [t for t in topics if re.fullmatch(self.pattern, t)]

    def prefix_of(self, topic: str) -> str:
        """The folder of a topic's objects, below the world's landing address."""
        return f"{self.folder}/{topic}" if self.confluent else self.folder

    def folder_of(self, value: Any, partition: int, sent: int) -> tuple[str, int]:
        """The folder of a record, below that of its topic, and its time, where folders are by time; both times in ms.

        Raises: ValueError: the record has none, or it cannot be the name of a folder.
        """
        if self.times:
            folder, time = self.times.folder(value, sent)
            return checked(folder), time
        if self.fields:
            return checked(folder_of(value, self.fields, field_of if self.confluent else dict.get)), 0
        return f"partition={partition}" if self.confluent else "", 0

    def path(self, topic: str, partition: int, first: int, folder: str) -> str:
        """The path of an object below `folder`, without its ending; first: the offset of its first record."""
        if self.confluent:  # filename.offset.zero.pad.width is 10
            return f"{topic}/{folder}/{topic}+{partition}+{first:010d}"
        return f"{folder}/{topic}-{partition}-{first:020d}".lstrip("/")


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
    known = READ[plugin] | NOT_NEEDED[plugin] | set(CHOICES[plugin]) | set(ONLY_WITH if plugin == CONFLUENT else ())
    for key in (k for k in config if not re.match(r"(key\.converter|transforms)(\.|$)", k)):
        if key not in known:
            what = f"{key} is not a setting" if key in FLAWS else f"the landing job does not honour {key}"
            raise ConnectorError(what, where=where, expected=FLAWS.get(key) or nearest(key, known),
                                 next_step="remove it, or run the real connector")
    chosen = {key: _choice(config, key, choices, where) for key, choices in CHOICES[plugin].items()}
    for key, (other, value) in ONLY_WITH.items() if plugin == CONFLUENT else ():
        if key in config and chosen[other] != value:
            raise ConnectorError(f"{key} means nothing with {other}={chosen[other]}", where=where,
                                 expected=f"{other}={value}", next_step=f"remove {key}")
    return _lenses(config, where) if plugin == LENSES else _confluent(config, chosen, where, world)


def _choice(config: dict[str, str], key: str, choices: tuple[Optional[str], ...], where: str) -> str:
    """The value of a setting, or its default, the first choice. Raises: ConnectorError: another than these."""
    value = config.get(key, choices[0])
    if value is None or value not in choices:
        raise ConnectorError(f"{key} is {value!r}" if key in config else f"{key} is not there", where=where,
                             expected=" or ".join(f"{key}={c}" for c in choices if c),
                             next_step="the landing honours nothing else; run the real connector for it")
    return value


def _count(text: str, name: str, where: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ConnectorError(f"{name} is {text!r}", where=where, expected="a whole number from 1")
    return int(text)


def _names(config: dict[str, str], key: str) -> tuple[str, ...]:
    return tuple(t.strip() for t in config.get(key, "").split(",") if t.strip())


def _confluent(config: dict[str, str], chosen: dict[str, str], where: str, world: Optional[World]) -> Sink:
    """Objects `<folder>/<topic>/<partition>/<topic>+<n>+<offset>.avro`, the offset that of their first record."""
    folder = config.get("topics.dir", "topics")
    if not re.fullmatch(r"[\w.+-]+(/[\w.+-]+)*", folder) or ".." in folder.split("/"):
        raise ConnectorError(f"topics.dir is {folder!r}", where=where, expected="a folder such as topics")
    if ("topics" in config) == ("topics.regex" in config):
        raise ConnectorError("topics and topics.regex are both there" if "topics" in config else
                             "neither topics nor topics.regex is there", where=where, expected="one of the two")
    pattern, names = config.get("topics.regex", ""), _names(config, "topics")
    try:
        re.compile(pattern)
    except re.error as e:
        raise ConnectorError(f"topics.regex is {pattern!r}: {e}", where=where, expected="a regular expression") from e
    format, envelope = FORMATS[chosen["format.class"]], _envelope(config, where)
    avro = chosen["value.converter"] == AVRO_CONVERTER
    if avro:
        _registry(config, where, world)
    elif format == "avro" or format == "parquet" and not envelope:
        needed = f"value.converter={AVRO_CONVERTER}" + f", or {ENVELOPE}=true" * (format == "parquet")
        raise ConnectorError(f"{chosen['format.class'].rpartition('.')[2]} needs the schema of values, which "
                             f"{chosen['value.converter']} does not give it here", where=where, expected=needed)
    if format == "avro" and "transforms" in config:
        raise ConnectorError("transforms are not honoured with AvroFormat", where=where,
                             expected="JsonFormat or ParquetFormat", next_step="run the real connector for it")
    fields = _names(config, "partition.field.name")
    if chosen["partitioner.class"] == BY_FIELD and not fields:
        raise ConnectorError("partition.field.name is not there", where=where, expected="the names of fields")
    return Sink(format, folder, _count(config.get("flush.size", ""), "flush.size", where), ",".join(names) or pattern,
                pattern or "|".join(map(re.escape, names)), fields, envelope, names, confluent=True,
                messages="avro" if avro else "json", null_fails=chosen["behavior.on.null.values"] == "fail",
                codec=_choice(config, "parquet.codec", ("snappy", *CODECS), where),
                times=_times(config, where) if chosen["partitioner.class"] == BY_TIME else None,
                rotate=_count(config["rotate.interval.ms"], "rotate.interval.ms", where)
                if config.get("rotate.interval.ms", "-1") != "-1" else 0, transforms=transforms.parse(config, where))


def _registry(config: dict[str, str], where: str, world: Optional[World]) -> None:
    """Raise ConnectorError where the converter reads from another registry, or an id from a header (topic/wire.py)."""
    _choice(config, f"{REGISTRY}.headers.enabled", ("false",), where)
    url, expected = config.get(f"{REGISTRY}.url", ""), world and world.registry.url.rstrip("/")
    if world is not None and url.rstrip("/") not in (expected, expected + REGISTRY_V2):
        raise ConnectorError(f"{REGISTRY}.url is {url!r}", where=where,
                             expected=f"the registry of {world.file}: {expected}{REGISTRY_V2}")


def _envelope(config: dict[str, str], where: str) -> bool:
    return _choice({ENVELOPE: str(config.get(ENVELOPE, "true")).lower()}, ENVELOPE, ("true", "false"), where) == "true"


def _times(config: dict[str, str], where: str) -> Times:
    """What TimeBasedPartitioner is told. The time of the clock, its default, is refused: a batch that is done again
    would go into other folders, and its records would be there twice."""
    extractor = _choice(config, "timestamp.extractor", (None, "Record", "RecordField"), where)
    zone, pattern = config.get("timezone", ""), config.get("path.format", "").rstrip("/")
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError) as e:
        raise ConnectorError(f"timezone is {zone!r}", where=where, expected="a name such as UTC") from e
    try:
        checked(strftime(pattern))
    except ValueError as e:
        raise ConnectorError(f"path.format is {pattern!r}: {e}", where=where,
                             expected="a pattern such as 'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH") from e
    duration = _count(config.get("partition.duration.ms", ""), "partition.duration.ms", where)
    return Times(strftime(pattern), duration, zone,
                 config.get("timestamp.field", "timestamp") * (extractor == "RecordField"))


def _lenses(config: dict[str, str], where: str) -> Sink:
    """Objects `<prefix>/a=1/b=x/…json` by `INSERT INTO bucket:prefix SELECT * FROM topic [PARTITIONBY a,b]
    [STOREAS `json`] [WITH_FLUSH_… = n]…`; what is left out has the sink's own default."""
    envelope = _envelope(config, where)
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
                envelope, transforms=transforms.parse(config, where))
