"""Topic → files of JSON lines: the work of the Lenses (Stream Reactor) S3 sink, done from that connector's own JSON.

For a world whose Kafka Connect has no such plugin. Spark reads the topic, one task per topic partition and in offset
order; Python in the task writes the objects. Their names are `<topic>-<partition>-<first offset>.json`, so a batch that
is done again after a crash (Spark repeats the very same offsets) writes the same names over: exactly once.
"""
from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ContextManager, Dict, List, Tuple

from . import files, landing_write
from .changes import landed_topic_id, topic_id
from .errors import ConnectorError, LakeError, nearest
from .ingest import DEAD_LETTER, cause, counted
from .wait import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .params import World

SINK = "io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector"
JSON = "org.apache.kafka.connect.json.JsonConverter"
# settings that change nothing about what is written from here, with the reason
NOT_NEEDED = {
    "name": "the connector's name",
    "tasks.max": "one Spark task per topic partition",
    "aws.region": "the world's lake says where the objects go",
    "aws.custom.endpoint": "the world's lake says where the objects go",
    "connect.s3.aws.region": "the world's lake says where the objects go",
    "key.converter": "keys are not stored",
    "key.converter.schemas.enable": "keys are not stored",
    "errors.log.enable": "what cannot be landed is always reported",
}
FLAWS = {
    "schema.enable": "no Connect worker knows schema.enable: value.converter.schemas.enable was meant; the "
                     "published walkthrough has this flaw: Connect ignores it and takes the envelope off all the same",
}
COUNTS = ("records", "tombstones", "dead_letters", "objects", "bytes")  # what a task counts
FLUSHES = {"WITH_FLUSH_INTERVAL": "flush_seconds", "WITH_FLUSH_COUNT": "flush_count"}


@dataclass(frozen=True)
class Sink:
    """What the connector's JSON asks for."""

    topic: str
    bucket: str
    prefix: str
    fields: Tuple[str, ...]
    flush_count: int = 50_000  # the defaults of the Lenses sink
    flush_seconds: int = 3600  # understood and not needed: a run flushes everything at its end
    envelope: bool = True  # values come as {"schema": …, "payload": …}


@dataclass(frozen=True)
class Landed:
    """What one run did, counted by Spark while it ran; messages = records + tombstones + dead_letters."""

    messages: int = 0
    records: int = 0
    tombstones: int = 0
    dead_letters: int = 0
    objects: int = 0
    bytes: int = 0
    batches: int = 0

    def __repr__(self) -> str:
        return counted("landed", self.messages, files=self.objects, records=self.records, tombstones=self.tombstones,
                       dead_letters=self.dead_letters)


def run(spark: SparkSession, world: World, config: Dict[str, str], *, until: str = "available", timeout: float = 600,
        batch: int = 50_000) -> Landed:
    """Land what is in the topic and has not been landed yet.

    Args:
        config: the sink connector's JSON (see connect.config).
        until: "available". One run is one flush: at its end everything is on disk, so nothing waits longer than a run,
            whatever WITH_FLUSH_INTERVAL says.
        timeout: seconds until it gives up.
        batch: most messages in one batch; bounds the memory of a task.

    Raises:
        ConnectorError: the config cannot be honoured. LakeError: a batch failed, the next run does it again; the topic
            was made anew since the last run; another landing into the same folder is going on; or `timeout` is over.
    """
    if until != "available":
        raise LakeError(f"until is {until!r}", where="landing.run", expected="'available'",
                        next_step="run it again whenever there is more to land")
    sink = parse(config)
    with _alone(world, sink):
        same_topic(world, sink)
        query = _start(spark, world, sink, batch)
        reports = _finish(query, sink, checkpoint(world, sink), timeout)
    values = [v for v in (observed(p, "landing") for p in reports) if v]
    total = {n: sum(v[n] for v in values) for n in COUNTS}
    return Landed(messages=total["records"] + total["tombstones"] + total["dead_letters"], batches=len(values), **total)


def _alone(world: World, sink: Sink) -> ContextManager[None]:
    """Of two landings of one topic, Spark would stop the first when the second starts, and that one would take its end
    for the end of the topic."""
    return files.alone(checkpoint(world, sink), f"landing of {sink.topic}",
                       "wait until it is done; what it lands need not be landed again")


def _messages(spark: SparkSession, world: World, sink: Sink, batch: int) -> DataFrame:
    """The topic as a stream, in batches of so many messages."""
    return (
        spark.readStream.format("kafka").option("kafka.bootstrap.servers", world.kafka.bootstrap)
        .option("kafka.security.protocol", world.kafka.security_protocol).option("subscribe", sink.topic)
        # Kafka's default shows what a producer has taken back, too: it would be in the lake and never in the source
        .option("kafka.isolation.level", "read_committed")
        .option("startingOffsets", "earliest").option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", str(batch)).load()
    )


def _start(spark: SparkSession, world: World, sink: Sink, batch: int) -> Any:
    """Start the stream that lands what is there now; return its query."""
    from pyspark.sql import functions as F

    messages = _messages(spark, world, sink, batch).select(
        "topic", "partition", "offset", F.col("key").isNotNull().alias("keyed"), "value")
    write = landing_write.task(f"{world.lake.landing}/{sink.prefix}", dead_letters_path(world, sink),
                               sink.fields, sink.flush_count, sink.envelope)
    sums = [F.coalesce(F.sum(n), F.lit(0)).alias(n) for n in COUNTS]
    # the noop sink: the task has written already, only the counts come out
    return (
        messages.mapInPandas(write, ", ".join(f"{n} long" for n in COUNTS)).observe("landing", *sums)
        .writeStream.format("noop").option("checkpointLocation", checkpoint(world, sink)).trigger(availableNow=True)
        .start()
    )


def _finish(query: Any, sink: Sink, place: str, timeout: float) -> List[dict]:
    """Wait until the query has ended; return its progress reports. Stops it when waiting ends before that.

    Raises: LakeError: after `timeout`; Spark died; or a batch failed.
    """
    seen: Dict[int, dict] = {}
    lost: List[str] = []

    def ended() -> bool:
        try:
            active = query.isActive
            seen.update({p["batchId"]: p for p in query.recentProgress})
        except Exception as e:  # noqa: BLE001 - Spark died, or came back without this query: waiting would be in vain
            lost.append(cause(str(e)))
        return bool(lost) or not active

    over = False
    try:
        over = wait_until(ended, f"the landing of {sink.topic}", timeout=timeout, every=0.05, error=LakeError,
                          next_step="run it again: it goes on where the last finished batch ended")
    finally:
        if not over:  # nobody waits for it any more, and the next landing may begin: this one must not go on
            with contextlib.suppress(Exception):  # the error that is on its way says more
                query.stop()
    if lost:
        raise LakeError(f"Spark was lost while it landed: {lost[0]}", where=f"{sink.topic}, checkpoint {place}",
                        next_step="run the notebook's set-up cell, then the landing again; nothing is landed twice")
    error = query.exception()
    if error:
        raise LakeError(f"a batch was not landed: {cause(str(error))}", where=f"{sink.topic}, checkpoint {place}",
                        next_step="mend the cause and run the landing again; nothing is landed twice")
    return list(seen.values())


def observed(report: dict, name: str) -> Dict[str, int]:
    """The observed metrics of one progress report; Spark Connect and classic give them in two forms."""
    metrics = report.get("observedMetrics", {}).get(name) or {}
    if "schema" in metrics and "values" in metrics:
        metrics = dict(zip([f["name"] for f in metrics["schema"]["fields"]], metrics["values"]))
    return {k: v or 0 for k, v in metrics.items()}


def parse(config: Dict[str, str]) -> Sink:
    """Read the sink connector's JSON. Raises ConnectorError naming any setting that this job does not honour.

    One setting is understood and changes nothing, WITH_FLUSH_INTERVAL: one run is one flush, so nothing waits longer
    than a run. What the settings in NOT_NEEDED say does not concern this job.
    """
    where = str(config.get("name", "the S3 sink's JSON"))
    if config.get("connector.class") != SINK:
        raise ConnectorError(f"connector.class is {config.get('connector.class')!r}", where=where, expected=SINK)
    known = {"connector.class", "topics", "connect.s3.kcql", "value.converter", "value.converter.schemas.enable",
             *NOT_NEEDED}
    for key in config:
        if key in FLAWS:
            raise ConnectorError(f"{key} is not a setting", where=where, expected=FLAWS[key],
                                 next_step=f"remove {key}")
        if key not in known:
            raise ConnectorError(f"the landing job does not honour {key}", where=where, expected=nearest(key, known),
                                 next_step="remove it, or run the real connector")
    if config.get("value.converter", JSON) != JSON:
        raise ConnectorError(f"value.converter is {config['value.converter']}", where=where, expected=JSON)
    envelope = str(config.get("value.converter.schemas.enable", "true")).lower()
    if envelope not in ("true", "false"):
        raise ConnectorError(f"value.converter.schemas.enable is {envelope!r}", where=where, expected="true or false")
    sink = kcql(config.get("connect.s3.kcql", ""), where, envelope == "true")
    if config.get("topics") != sink.topic:
        raise ConnectorError(f"topics is {config.get('topics')!r}, the KCQL reads {sink.topic!r}", where=where,
                             expected="one and the same topic")
    return sink


def kcql(text: str, where: str = "KCQL", envelope: bool = True) -> Sink:
    """Parse `INSERT INTO bucket:prefix SELECT * FROM topic [PARTITIONBY a,b] [STOREAS `json`] [WITH_FLUSH_… = n]…`."""
    if ";" in text.strip().rstrip(";"):
        raise ConnectorError("connect.s3.kcql holds several statements", where=where, expected="one")
    found = re.fullmatch(
        r"\s*insert\s+into\s+(?P<bucket>[^\s:]+):(?P<prefix>\S+)\s+select\s+(?P<what>.+?)\s+from\s+(?P<topic>\S+)"
        r"(?:\s+partitionby\s+(?P<fields>\w+(?:\s*,\s*\w+)*))?(?:\s+storeas\s+(?P<format>\S+))?(?P<rest>(?:\s+with_.*)?)"
        r"\s*;?\s*", text, re.I | re.S)
    if not found:
        raise ConnectorError(f"KCQL not understood: {text!r}", where=where,
                             expected="INSERT INTO bucket:prefix SELECT * FROM topic PARTITIONBY a,b STOREAS `json` "
                                      "WITH_FLUSH_INTERVAL = 60 WITH_FLUSH_COUNT = 50")
    if found["what"].strip() != "*":
        raise ConnectorError(f"KCQL selects {found['what']!r}", where=where, expected="*")
    stored = (found["format"] or "json").strip("`").lower()
    if stored != "json":
        raise ConnectorError(f"KCQL stores as {stored!r}", where=where, expected="`json`")
    flush: Dict[str, int] = {}
    for name, value in re.findall(r"(\w+)\s*=\s*(\S+)", found["rest"]):
        if name.upper() not in FLUSHES:
            raise ConnectorError(f"the landing job does not honour {name}", where=where,
                                 expected=nearest(name.upper(), FLUSHES))
        if not value.isdigit() or int(value) < 1:
            raise ConnectorError(f"{name} is {value!r}", where=where, expected="a whole number from 1")
        flush[FLUSHES[name.upper()]] = int(value)
    left = re.sub(r"(\w+)\s*=\s*(\S+)", "", found["rest"]).strip()
    if left:
        raise ConnectorError(f"KCQL not understood at {left!r}", where=where, expected="WITH_FLUSH_COUNT = 50")
    unquoted = {n: found[n].strip("`") for n in ("bucket", "prefix", "topic")}
    fields = tuple(f.strip() for f in (found["fields"] or "").split(",") if f.strip())
    return Sink(**unquoted, fields=fields, envelope=envelope, **flush)


def checkpoint(world: World, sink: Sink) -> str:
    """Where the progress of this landing is kept."""
    return f"{world.lake.checkpoints}/landing/{sink.prefix}"


def same_topic(world: World, sink: Sink) -> None:
    """Raise LakeError when the topic is not the one whose progress is kept; note its id where there is none yet."""
    place, now = landed_topic_id(world, sink.prefix), topic_id(world, sink.topic)
    then = files.read_text(place)
    if then is None:
        files.write_text(place, now)
    elif then != now:
        raise LakeError(f"the topic {sink.topic} was deleted and made anew since the last landing",
                        where=f"{sink.topic}, id {now}; {place}", expected=f"id {then}",
                        next_step="start clean with landing.drop(world, config) and hudi.drop of its tables")


def dead_letters_path(world: World, sink: Sink) -> str:
    """Folder of the messages of this topic that could not be landed."""
    return f"{world.lake.dead_letters}/landing/{sink.prefix}"


def dead_letters(spark: SparkSession, world: World, config: Dict[str, str]) -> DataFrame:
    """The messages that could not be landed: reason, topic, partition, offset, file, text."""
    place = dead_letters_path(world, parse(config))
    if not files.entries(place):
        return spark.createDataFrame([], DEAD_LETTER)
    return spark.read.schema(DEAD_LETTER).option("recursiveFileLookup", "true").json(place)


def drop(world: World, config: Dict[str, str]) -> None:
    """Start clean: remove the progress, the landed objects and the dead letters.

    Raises: LakeError: a landing of this topic is going on.
    """
    sink = parse(config)
    progress = checkpoint(world, sink)
    # The progress first. Killed after that, the next run lands everything again: objects that are left may then hold a
    # message a second time, which the ingest tells by key and order. The other way round it would go on behind objects
    # that are gone, and their messages would be lost. The topic's id last: a topic made anew meanwhile is still seen.
    with _alone(world, sink):
        for place in (progress, f"{world.lake.landing}/{sink.prefix}", dead_letters_path(world, sink),
                      landed_topic_id(world, sink.prefix)):
            files.remove(place)
