"""Changes into a Hudi table, batch by batch: read a topic or landed files → decode → one Hudi commit.

How far the source has been read stands in the commit itself (as Hudi's own streamer does it), so rows and progress
become visible together or not at all: after a crash Hudi rolls the half-written commit back and the batch is done
again.

Why not `writeStream.format("hudi")`: with ignore.failed.batch=false a failed batch ends the whole Spark server, which
others share (seen, Hudi 1.0.2); with true, its documentation says, the batch is skipped. Neither will do.

No Python runs inside Spark, so the same code serves Spark Connect, spark-submit and EMR. Use it through `hudi.ingest`.
"""
from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Union

from . import decode, files
from .errors import LakeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .hudi import Table
    from .params import World

OUTCOMES = {decode.UPSERT: "upserts", decode.DELETE: "deletes", decode.TOMBSTONE: "tombstones",
            decode.DEAD: "dead_letters"}
DEAD_LETTER = "reason string, topic string, partition int, offset long, file string, text string"
# What is written to a table without a commit: there is nothing to merge with. An upsert starts one Spark task for each
# partition that it writes; a bulk insert a fixed number. Of several versions of a key the newest is taken, and a delete
# writes nothing, as with an upsert: that asks for the writer of records, not of rows.
FIRST_LOAD = {
    "hoodie.datasource.write.operation": "bulk_insert",
    "hoodie.combine.before.insert": "true",
    "hoodie.datasource.write.row.writer.enable": "false",
    "hoodie.bulkinsert.sort.mode": "GLOBAL_SORT",
}
PROGRESS = "_workbench_progress"  # Hudi keeps options that begin with _ in the commit's extra metadata


@dataclass(frozen=True)
class Topic:
    """A Kafka topic as the source."""

    name: str

    @property
    def id(self) -> str:
        return "topic-" + re.sub(r"[^A-Za-z0-9._-]", "_", self.name)


@dataclass(frozen=True)
class Landed:
    """Files of JSON lines below `<world.lake.landing>/<prefix>` as the source.

    Read in the order of the offsets in their names (see reading_order); files that are still being written are not.
    """

    prefix: str

    @property
    def id(self) -> str:
        return "landed-" + re.sub(r"[^A-Za-z0-9._-]", "_", self.prefix)


@dataclass(frozen=True)
class Ingested:
    """What one run did, counted from the data; messages = upserts + deletes + tombstones + dead_letters."""

    messages: int = 0
    upserts: int = 0
    deletes: int = 0
    tombstones: int = 0
    dead_letters: int = 0
    batches: int = 0
    seconds: float = 0.0

    def plus(self, counts: Dict[str, int], seconds: float) -> Ingested:
        """With one more batch."""
        new = {name: getattr(self, name) + counts.get(name, 0) for name in OUTCOMES.values()}
        return replace(self, **new, messages=self.messages + sum(counts.values()), batches=self.batches + 1,
                       seconds=round(self.seconds + seconds, 3))


@dataclass
class Job:
    """One source into one table."""

    spark: SparkSession
    world: World
    source: Union[Topic, Landed]
    table: Table
    schema: Any
    batch: int = 200_000  # most messages (topic) or files (landed) of one commit; bounds memory
    replay: bool = False  # read the source from its beginning, once more
    done: Ingested = field(default_factory=Ingested)
    _consumer: Any = None
    _tidied: bool = False

    @property
    def where(self) -> str:
        return f"{self.source} into {self.table.database}.{self.table.name} ({self.table.base})"

    def step(self) -> bool:
        """Do one batch; False when there is nothing new. Raises LakeError when it could not be written."""
        began = time.monotonic()
        all_progress = progress(self.table)
        last = all_progress.get(self.source.id, {})
        number = last.get("batch", -1) + 1
        if not self._tidied:
            self._keep_letters(last.get("since", 0), number)
            self._tidied = True
        raw, reached = self._read({} if self.replay else last, number)
        if raw is None:
            return False
        since = number if self.replay else last.get("since", 0)
        reached = {**reached, "batch": number, "since": since}
        try:
            counts = self._write(raw, {**all_progress, self.source.id: reached}, number)
        except LakeError:
            raise
        except Exception as e:
            raise failed(str(e), self.where) from e
        if progress(self.table).get(self.source.id) != reached:  # or the next step would read the very same again
            raise LakeError("Hudi wrote a batch without a commit that holds its progress", where=self.where,
                            next_step="look for options in `extra` of the table that change its commits, "
                                      "hoodie.allow.empty.commit above all; nothing is lost, run the ingest again")
        if self.replay:
            self._keep_letters(since, number + 1)
        self.replay = False
        self.done = self.done.plus(counts, time.monotonic() - began)
        return True

    def close(self) -> None:
        """Give back what it holds of Kafka."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read(self, mine: dict, number: int) -> Tuple[Optional[DataFrame], dict]:
        if isinstance(self.source, Topic):
            return self._read_topic(mine)
        if isinstance(self.source, Landed):
            return self._read_landed(mine, number)
        raise LakeError(f"a source cannot be {self.source!r}", where="hudi.ingest",
                        expected="Topic(name) or Landed(prefix)")

    def _read_topic(self, mine: dict) -> Tuple[Optional[DataFrame], dict]:
        from pyspark.sql import functions as F

        marks = self._watermarks()
        now = topic_id(self.world, self.source.name)
        if mine.get("topic_id", now) != now:
            raise LakeError(
                "the topic was deleted and made anew: what has been read of the old one says nothing about the new one",
                where=f"{self.source.name}, id {now}", expected=f"id {mine['topic_id']}",
                next_step="start clean with hudi.drop, or read it from its beginning with hudi.ingest(…, replay=True)")
        start, stop, left = {}, {}, self.batch
        for partition, (begin, end) in sorted(marks.items()):
            at = mine.get("offsets", {}).get(str(partition), begin)
            if at < begin or at > end:
                raise LakeError(
                    f"the topic holds offsets {begin} to {end}, and {at} is the next to be read",
                    where=f"{self.source.name}, partition {partition}",
                    next_step="messages expired unread. Start clean with hudi.drop, or read it from its beginning "
                              "with hudi.ingest(…, replay=True)")
            start[str(partition)], stop[str(partition)] = at, min(end, at + left)
            left -= stop[str(partition)] - at
        if start == stop:
            return None, {}
        messages = (
            self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.world.kafka.bootstrap)
            .option("kafka.security.protocol", self.world.kafka.security_protocol)
            .option("subscribe", self.source.name).option("failOnDataLoss", "true")
            # at the topic's end the consumer asks for more, and its next question waits behind that for half a second
            .option("kafka.fetch.max.wait.ms", "20")
            .option("startingOffsets", json.dumps({self.source.name: start}))
            .option("endingOffsets", json.dumps({self.source.name: stop}))
        )
        if self.batch - left >= 10_000:  # one partition is one task otherwise
            messages = messages.option("minPartitions", str(self.world.spark.parallelism))
        return messages.load().select(
            F.col("key").cast("string").alias("key"), F.col("value").cast("string").alias("text"), "topic", "partition",
            "offset", F.lit(None).cast("string").alias("file")), {"offsets": stop, "topic_id": now}

    def _watermarks(self) -> Dict[int, Tuple[int, int]]:
        """{partition: (first offset there is, offset after the last)}; the consumer is kept for the next batch."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        if self._consumer is None:
            self._consumer = Consumer({
                "bootstrap.servers": self.world.kafka.bootstrap, "group.id": "workbench-ingest", "log_level": 0,
                "security.protocol": self.world.kafka.security_protocol})
        try:
            topic = self._consumer.list_topics(self.source.name, timeout=10).topics[self.source.name]
            if topic.error is not None:
                raise LakeError(f"the topic cannot be read: {topic.error.str()}", where=self.source.name,
                                next_step="deploy the connector that fills it; topics.names(world) lists them")
            return {p: self._consumer.get_watermark_offsets(TopicPartition(self.source.name, p), timeout=10)
                    for p in topic.partitions}
        except KafkaException as e:
            raise LakeError(f"Kafka does not answer: {e.args[0].str()}", where=self.world.kafka.bootstrap,
                            next_step="run `workbench status`, then `workbench up`") from e

    def _read_landed(self, mine: dict, number: int) -> Tuple[Optional[DataFrame], dict]:
        from pyspark.sql import functions as F

        place = f"{self.world.lake.checkpoints}/{self.table.name}/{self.source.id}"
        # a list of files can be long, so the commit holds only the number of the last list that counts
        seen = set()
        for n in range(mine.get("first", number), number):
            seen.update(json.loads(files.read_text(f"{place}/{n}.json") or "[]"))
        folder = f"{self.world.lake.landing}/{self.source.prefix}"
        root = files.open_address(folder)[1]
        there = {i.path: i for i in files.entries(folder, recursive=True)
                 if i.is_file and not is_scratch(i.path[len(root):])}
        new = sorted(there.keys() - seen, key=lambda p: reading_order(p, there[p].mtime_ns))[:self.batch]
        if not new:
            return None, {}
        files.write_text(f"{place}/{number}.json", json.dumps(new))
        scheme = folder.split(":")[0]
        lines = self.spark.read.format("text").load([f"{scheme}:{'' if scheme == 'file' else '//'}{p}" for p in new])
        return lines.where(F.length(F.trim("value")) > 0).select(
            F.lit(None).cast("string").alias("key"), F.col("value").alias("text"),
            F.lit(None).cast("string").alias("topic"), F.lit(None).cast("int").alias("partition"),
            F.lit(None).cast("long").alias("offset"), F.input_file_name().alias("file"),
        ), {"first": mine.get("first", number)}

    def _write(self, raw: DataFrame, reached: dict, number: int) -> Dict[str, int]:
        from pyspark.sql import functions as F

        table = self.table
        changes = decode.rows(raw, self.schema, key=table.key, ordering=table.ordering, partition=table.partition,
                              global_index=table.index.startswith("GLOBAL_"))
        is_dead = F.col("outcome") == decode.DEAD
        text = F.when(is_dead, F.col("text")).alias("text")
        # parsed once, for the counts, the dead letters and the rows
        changes = changes.select("row", "outcome", "reason", *decode.ORIGIN, text).persist()
        try:
            counts = {OUTCOMES[r["outcome"]]: r["count"] for r in changes.groupBy("outcome").count().collect()}
            place = self._letters(f"/{number:08d}")
            if counts.get("dead_letters"):
                # written over when the batch is done again, hence exactly once
                (changes.where(is_dead).select("reason", *decode.ORIGIN, "text").coalesce(1)
                 .write.mode("overwrite").json(place))
            else:
                files.remove(place)  # of a try that failed
            # without otherwise(): nullable, so that a table written without this column takes it in
            flag = F.when(F.col("outcome") == decode.DELETE, True).when(F.col("outcome") == decode.UPSERT, False)
            rows = changes.where(F.col("outcome").isin(decode.UPSERT, decode.DELETE)).select(
                "row.*", flag.alias(decode.DELETED))
            first = {} if commits(table) else FIRST_LOAD
            options = {**table.options(), **first, PROGRESS: json.dumps(reached)}
            rows.write.format("hudi").options(**options).mode("append").save(table.base)
        finally:
            changes.unpersist()
        return counts

    def _keep_letters(self, first: int, stop: int) -> None:
        """Remove the dead letters of batches before the last replay, and of batches that were never committed."""
        for info in files.entries(self._letters("")):
            if info.base_name.isdigit() and not first <= int(info.base_name) < stop:
                files.remove(self._letters("/" + info.base_name))

    def _letters(self, name: str) -> str:
        return f"{dead_letters_path(self.world, self.table.name)}/{self.source.id}{name}"


class Stream:
    """An ingest that goes on until `stop()`, in a thread of this process; it ends between two batches."""

    def __init__(self, job: Job, pause: float, check: Callable[[], None]):
        self._job, self._pause, self._check = job, pause, check
        self._stop, self._error = threading.Event(), None  # type: ignore[var-annotated]
        self._thread = threading.Thread(target=self._run, name=f"ingest {job.table.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self._job.step():
                    self._stop.wait(self._pause)
        except Exception as e:  # noqa: BLE001 - handed to whoever asks, see failure() and stop()
            self._error = e
        finally:
            self._job.close()

    @property
    def active(self) -> bool:
        """Whether it is still going on."""
        return self._thread.is_alive()

    def counts(self) -> Ingested:
        """What it has done so far."""
        return self._job.done

    def failure(self) -> Optional[str]:
        """What ended it; None while all is well. For `failed=` of wait_until."""
        return str(self._error) if self._error else None

    def stop(self, timeout: float = 120) -> Ingested:
        """End it after the batch that is under way. Raises LakeError when one has failed or does not end."""
        self._stop.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise LakeError(f"a batch did not end in {timeout:g} s", where=self._job.where, next_step="stop it again")
        if self._error:
            raise self._error
        self._check()
        return self._job.done


def progress(table: Table) -> Dict[str, Dict[str, Any]]:
    """{source id: how far it has been read}, as the table's last commit says."""
    for name in reversed(commits(table)):  # compactions and other writers say nothing about it
        commit = json.loads(files.read_text(f"{table.base}/.hoodie/{name}") or "{}")
        said = commit.get("extraMetadata", {}).get(PROGRESS)
        if said:
            return json.loads(said)
    return {}


def commits(table: Table) -> List[str]:
    """File names of the table's completed commits, oldest first."""
    names = (i.base_name for i in files.entries(f"{table.base}/.hoodie"))
    return sorted(name for name in names if re.fullmatch(r"\d+\.(commit|deltacommit)", name))


def is_scratch(path: str) -> bool:
    """Whether a landed path is of a file that is still being written, or of a writer's own bookkeeping."""
    hidden = (part.startswith(".") or part.startswith("_") and "=" not in part for part in path.split("/"))
    return any(hidden) or path.endswith((".tmp", ".crc", ".inprogress"))


def reading_order(path: str, mtime: Optional[int]) -> Tuple[Any, ...]:
    """Sort key of landed files: by topic, partition and first offset where the name has them, else by time.

    `<topic>-<partition>-<first offset>.json` as the landing writes it, `<topic>(<partition>_<offset>).json` as Lenses.
    """
    name = path.rpartition("/")[2]
    found = re.fullmatch(r"(.+)-(\d+)-(\d+)\.json", name) or re.fullmatch(r"(.+)\((\d+)_(\d+)\)\.json", name)
    if found:
        return True, found[1], int(found[2]), int(found[3]), path
    return False, "", 0, mtime or 0, path


def topic_id(world: World, name: str) -> str:
    """Kafka's own id of a topic: another one after it was deleted and made anew. Raises LakeError."""
    from confluent_kafka import KafkaException, TopicCollection
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": world.kafka.bootstrap, "log_level": 0,
                         "security.protocol": world.kafka.security_protocol})  # held until the answer is there
    try:
        asked = admin.describe_topics(TopicCollection([name]), request_timeout=10)
        return str(asked[name].result(15).topic_id)
    except KafkaException as e:
        raise LakeError(f"the topic cannot be described: {e.args[0].str()}", where=f"{name} at {world.kafka.bootstrap}",
                        next_step="topics.names(world) lists the topics; run `workbench status`") from e


def dead_letters_path(world: World, name: str) -> str:
    """Folder of the dead letters of a table."""
    return f"{world.lake.dead_letters}/{name}"


def failed(reason: str, where: str) -> LakeError:
    """The error for a batch that was not written."""
    return LakeError(f"a batch was not written: {cause(reason)}", where=where,
                     next_step="see the log of the spark service; nothing of the batch shows, run the ingest again")


def cause(text: str) -> str:
    """The innermost cause named in a Spark exception, as one line."""
    lines: List[str] = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes[-1].replace("Caused by: ", "") if causes else (lines or ["unknown"])[0])[:400]
