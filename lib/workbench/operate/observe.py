"""The state of one flow, from source, connector, topic and lake; no Spark job runs."""

from __future__ import annotations

import math
import shutil
import time
from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Optional

import pandas
from confluent_kafka import Consumer

from .. import connect, hudi
from ..base import (
    ConnectorError,
    LakeError,
    StackError,
    WorkbenchError,
    World,
    paths,
    yaml_files,
)
from ..base.params import Limits
from ..connect import validation
from ..hudi.tables import dead_letters_path
from ..source import postgres
from ..topic import dlq, registry
from ..walkthroughs.capture import Capture
from ..walkthroughs.flow import CaptureFlow
from .lake import SMALL_FILE_BYTES, LakeReader
from .messages import WINDOW_S, TopicReader, quantiles
from .reconcile_result import last_reconciliation

PROBLEMS: dict[str, dict[str, str]] = yaml_files.load(Path(__file__).with_name("problems.yaml"))
LEVELS = ("", "amber", "red")
MIB = 1 << 20
MAX_RETAINED = 60  # observations from which the growth of the retained log is estimated
# inserted, updated and deleted rows of tables, their partitions included, since the server's start
CHANGED_ROWS = """
    SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint AS n FROM pg_stat_user_tables
    WHERE coalesce(pg_partition_root(relid), relid) = ANY(%s::regclass[])"""


class Problem(NamedTuple):
    """A problem of a flow.

    Attributes:
        kind: a key of problems.yaml.
        level: "amber" or "red".
        text: what was observed.
        step: what to do.
    """

    kind: str
    level: str
    text: str
    step: str

    @property
    def signal(self) -> str:
        """The part of the pipeline that has the problem."""
        return PROBLEMS[self.kind]["signal"]


def problem(kind: str, level: str = "", **values: Any) -> Problem:
    """Return a problem with its texts.

    Args:
        kind: a key of problems.yaml.
        level: its level, if problems.yaml has none.
        **values: the values of the texts.
    """
    texts = PROBLEMS[kind]
    text, step = (texts[name].format(**values) for name in ("text", "step"))
    return Problem(kind, texts["level"] or level, text, step)


def level_of(value: float, limits: Limits) -> str:
    """Return "amber" or "red" if a value exceeds its limits, else ""; falling limits count downwards."""
    sign = 1 if limits[0] <= limits[1] else -1
    return next(
        (
            level
            for level, limit in zip(("red", "amber"), limits[::-1])
            if sign * value >= sign * limit
        ),
        "",
    )


@dataclass(frozen=True)
class Observation:
    """The state of a flow at one time.

    Attributes:
        flow: name of the flow.
        freshness: p50 and p95 of the last ten minutes, to_topic and to_lake, in seconds; None without
            changes.
        unread: {topic: number of messages that are not in the lake}.
        retained: {slot: bytes of log that the server retains}.
        states: {connector: its states}.
        dead_letters: {table: number of dead letters}.
        commits_per_hour: of all tables.
        files: base files of all tables.
        small_files: those below 1 MiB.
        log_bytes: unmerged bytes of Merge-on-Read tables.
        problems: what is amber or red.
    """

    flow: str
    freshness: Optional[dict[str, float]] = None
    unread: dict[str, int] = field(default_factory=dict)
    retained: dict[str, int] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    dead_letters: dict[str, int] = field(default_factory=dict)
    commits_per_hour: float = 0.0
    files: int = 0
    small_files: int = 0
    log_bytes: int = 0
    problems: tuple[Problem, ...] = ()

    @property
    def level(self) -> str:
        """The worst level of the problems."""
        return max((each.level for each in self.problems), key=LEVELS.index, default="") or "green"


class FlowReader:
    """Observes one flow again and again; it remembers what it saw.

    Attributes:
        name: name of the flow.
        world: the world of its source.
        flow: its captured tables.
    """

    def __init__(self, name: str, world: World, flow: CaptureFlow):
        """Remember nothing yet."""
        self.name, self.world, self.flow = name, world, flow
        self.limits = world.watch
        self._had_offset: set[str] = set()
        self._versions: dict[str, int] = {}
        self._new_versions: dict[str, float] = {}
        self._retained: dict[str, deque[tuple[float, int]]] = {}
        self._confirmed: dict[str, tuple[str, float]] = {}
        self._changed: dict[str, tuple[int, float]] = {}

    @cached_property
    def topics(self) -> dict[str, TopicReader]:
        """The topics by the names of their captures."""
        return {
            each.name: TopicReader(
                self.flow.topic(self.world, each.name), each.format, self.flow.db
            )
            for each in self.flow.captures
        }

    @cached_property
    def _tables(self) -> list[tuple[Capture, LakeReader]]:
        return [
            (capture, LakeReader(table, self._source_id(capture, table)))
            for capture in self.flow.captures
            for table in self.flow.tables(self.world, capture.name)
        ]

    def _source_id(self, capture: Capture, table: hudi.Table) -> str:
        kind = self.flow.source_kind(self.world, table)
        return self.flow.source(self.world, capture.name, kind).id

    def observe(self, consumer: Consumer) -> Observation:
        """Observe the flow.

        Args:
            consumer: see `topics.open_consumer`.
        """
        figures: dict[str, Any] = {
            name: {} for name in ("unread", "retained", "states", "dead_letters")
        }
        problems: list[Problem] = []
        parts = [self._observe_lake(figures)]
        if not self.flow.polled:
            parts += [self._observe_connectors(figures), self._observe_slots(figures)]
        parts += [self._observe_topics(figures, consumer), self._observe_schemas()]
        for signal in parts:
            problems += signal
        freshness = quantiles(each for reader in self.topics.values() for each in reader.fresh)
        limit = level_of(freshness["p95"], self.limits.freshness_s) if freshness else ""
        if freshness and limit:
            problems.append(problem("stale", limit, seconds=freshness["p95"], **freshness))
        problems += self._observe_disk()
        problems += self._observe_reconciliation()
        readers = [reader for _, reader in self._tables]
        return Observation(
            self.name,
            freshness,
            **figures,
            commits_per_hour=sum(each.commits_per_hour() for each in readers),
            files=sum(len(each.base_files) for each in readers),
            small_files=sum(each.small_files() for each in readers),
            log_bytes=sum(each.log_bytes for each in readers),
            problems=tuple(problems),
        )

    def _observe_lake(self, figures: dict[str, Any]) -> Iterator[Problem]:
        for capture, lake in self._tables:
            name = lake.table.name
            if not hudi.exists(lake.table):
                continue
            topic = self.topics[capture.name]
            for committed, complete in lake.read():
                topic.mark_visible(committed, complete)
            ahead = lake.seconds_ahead()
            if ahead > 1:  # the clocks of two machines differ by less
                yield problem("clock_back", table=name, seconds=ahead)
            for instant, seconds in lake.interrupted(self.world):
                if seconds > self.limits.silent_s:
                    yield problem(
                        "ingest_interrupted", table=name, instant=instant, seconds=seconds
                    )
            reasons = dlq.reasons(dead_letters_path(self.world, lake.table))
            figures["dead_letters"][name] = len(reasons)
            if reasons:
                yield problem("dead_letters", table=name, count=len(reasons), reason=reasons[-1])
            if lake.small_files() > self.limits.small_files:
                yield problem("small_files", table=name, files=lake.small_files())
            ratio = lake.log_bytes / max(1, sum(lake.base_files.values()))
            if ratio > self.limits.log_ratio and lake.log_bytes > SMALL_FILE_BYTES:
                yield problem("unmerged_logs", table=name, ratio=ratio)

    def _observe_connectors(self, figures: dict[str, Any]) -> Iterator[Problem]:
        for name in self.flow.deployed_connectors:
            try:
                status = connect.status(self.world, name)
                offset = connect.offset(self.world, name)
            except StackError as e:
                yield problem("connect_down", reason=e.message)
                return
            except ConnectorError:
                yield problem("connector_missing", connector=name)
                continue
            states = ", ".join(sorted(validation.states(status)))
            figures["states"][name] = states
            reason = validation.failure_message(name, status)
            if reason:
                yield problem(
                    "connector_failed", connector=name, reason=f"connector {name}: {reason}"
                )
            elif states != "RUNNING":
                yield problem("connector_stopped", connector=name, states=states)
            if offset:
                self._had_offset.add(name)
            elif offset is not None and name in self._had_offset:
                yield problem("offsets_lost", connector=name, flow=self.name)

    def _observe_slots(self, figures: dict[str, Any]) -> Iterator[Problem]:
        if not self.flow.publication:
            return
        try:
            slots = postgres.all_slots(self.world).set_index("slot_name")
            for name in self.flow.deployed_connectors:
                slot = self.flow.config(self.world, name)["slot.name"]
                if slot not in slots.index:
                    yield problem("slot_missing", slot=slot, flow=self.name)
                else:
                    yield from self._observe_slot(slot, slots.loc[slot], figures)
            yield from self._observe_source()
        except WorkbenchError as e:
            yield problem("source_down", reason=e.location or e.message, source=self.name)

    def _observe_slot(
        self, name: str, slot: pandas.Series, figures: dict[str, Any]
    ) -> Iterator[Problem]:
        now, retained = time.time(), int(slot["bytes_behind"])
        figures["retained"][name] = retained
        if slot["wal_status"] == "lost":
            yield problem("slot_lost", slot=name, flow=self.name)
            return
        if not slot["active"]:
            yield problem("slot_inactive", slot=name)
        history = self._retained.setdefault(name, deque(maxlen=MAX_RETAINED))
        history.append((now, retained))
        rate = (retained - history[0][1]) / max(1.0, now - history[0][0])  # bytes/s
        free = shutil.disk_usage(paths.state_dir()).free
        hours = free / rate / 3600 if rate > 0 else math.inf
        limits = (
            level_of(retained / MIB, self.limits.retained_mib),
            level_of(hours, self.limits.disk_full_h),
        )
        if any(limits):
            level = max(limits, key=LEVELS.index)
            yield problem("slot_retains", level, slot=name, mib=retained / MIB, hours=hours)
        confirmed, since = self._confirmed.get(name, ("", now))
        if confirmed != slot["confirmed"] or retained <= history[0][1]:
            self._confirmed[name] = (slot["confirmed"], now)
        elif now - since > self.limits.stalled_s:
            yield problem("slot_stalled", slot=name, seconds=now - since)

    def _observe_source(self) -> Iterator[Problem]:
        """Compare the tables with the publication, and their changes with the topics' messages."""
        frame = postgres.publications(self.world, self.flow.database)
        published = {*frame[frame["publication"] == self.flow.publication]["table"]}
        for capture in self.flow.captures:
            if capture.source not in published:
                yield problem(
                    "not_published", table=capture.source, publication=self.flow.publication
                )
            query = CHANGED_ROWS, [[capture.source]], self.flow.database
            changed = int(postgres.query(self.world, *query).loc[0, "n"])
            topic, now = self.topics[capture.name], time.time()
            before, since = self._changed.get(capture.name, (changed, now))
            if changed == before or topic.grown > since:
                self._changed[capture.name] = (changed, now)
            elif now - since > self.limits.silent_s:
                yield problem(
                    "no_records",
                    connector=capture.connector,
                    rows=changed - before,
                    seconds=now - since,
                )

    def _observe_topics(self, figures: dict[str, Any], consumer: Consumer) -> Iterator[Problem]:
        for capture, lake in self._tables:
            reader, committed = self.topics[capture.name], lake.committed()
            try:
                first = lake.committed(time.time() - WINDOW_S)
                offsets, repeated = reader.read(self.world, consumer, first)
            except StackError as e:
                yield problem("kafka_down", reason=e.message)
                return
            except LakeError:
                yield problem("topic_missing", topic=reader.topic)
                continue
            for committed_then, complete in lake.commits.values():
                reader.mark_visible(committed_then, complete)
            yield from self._observe_topic(reader, offsets, committed, figures)
            if repeated:
                yield problem(
                    "delivered_again",
                    topic=reader.topic,
                    position=min(repeated),
                    newest=reader.newest,
                    flow=self.name,
                )

    def _observe_topic(
        self,
        reader: TopicReader,
        offsets: dict[int, tuple[int, int]],
        committed: dict[int, int],
        figures: dict[str, Any],
    ) -> Iterator[Problem]:
        """Compare a topic with what the lake has of it."""
        topic = reader.topic
        for partition, (low, end) in offsets.items():
            reached = committed.get(partition, 0)
            if reached > end:
                yield problem(
                    "topic_ahead", topic=topic, committed=reached, end=end, flow=self.name
                )
            elif low > reached and (committed or low):
                yield problem("topic_truncated", topic=topic, messages=low - reached)
        unread = sum(
            max(0, end - max(low, committed.get(partition, 0)))
            for partition, (low, end) in offsets.items()
        )
        figures["unread"][topic] = unread
        oldest = reader.oldest_waiting()
        if unread and oldest:
            seconds = time.time() - oldest
            level = level_of(seconds, self.limits.unread_s)
            if level:
                yield problem(
                    "unread_old", level, topic=topic, unread=unread, seconds=seconds, flow=self.name
                )

    def _observe_disk(self) -> Iterator[Problem]:
        folder = paths.local_path(self.world.lake.root)
        if folder and folder.exists():
            mib = shutil.disk_usage(folder).free / MIB
            level = level_of(mib, self.limits.disk_free_mib)
            if level:
                yield problem("disk_full", level, folder=paths.display_path(folder), mib=mib)

    def _observe_reconciliation(self) -> Iterator[Problem]:
        for table, last in (last_reconciliation(self.world, self.name) or {}).items():
            if not last["is_equal"]:
                values = {"differences": last["differences"], "time": last["time"]}
                yield problem("differs", table=table, flow=self.name, **values)

    def _observe_schemas(self) -> Iterator[Problem]:
        avro = [each for each in self.flow.captures if each.format == "avro"]
        for artifact in (
            f"{self.topics[c.name].topic}-{side}" for c in avro for side in ("key", "value")
        ):
            try:
                versions = len(registry.versions(self.world, artifact))
            except StackError as e:
                yield problem("registry_down", reason=e.message)
                return
            except LakeError:  # no message yet
                continue
            if versions > self._versions.setdefault(artifact, versions):
                self._new_versions[artifact] = time.time()
            self._versions[artifact] = versions
            if self._new_versions.get(artifact, 0) > time.time() - WINDOW_S:
                yield problem("schema_new", artifact=artifact, version=versions)
