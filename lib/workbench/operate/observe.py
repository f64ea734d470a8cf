"""The state of one flow, from source, connector, topic and lake; no Spark job runs."""

from __future__ import annotations

import math
import shutil
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator

import pandas
from confluent_kafka import Consumer
from pydantic import TypeAdapter, ValidationError

from .. import connect
from ..base import (
    ConnectorError,
    LakeError,
    StackError,
    WorkbenchError,
    World,
    first_line,
    paths,
    terminal,
)
from ..connect import validation
from ..flow.capture import Capture
from ..flow.flow import CaptureFlow
from ..hudi.tables import dead_letters_path
from ..own import OwnFlow
from ..source import postgres
from ..source.names import identifier
from ..topic import dlq, registry
from .lake import SMALL_FILE_BYTES, WINDOW_S, LakeReader, quantiles
from .messages import Offsets, TopicReader
from .problems import LEVELS, Observation, Problem, level_of, problem
from .reconcile_result import last_reconciliation

MIB = 1 << 20
MAX_RETAINED = 60  # observations from which the growth of the retained log is estimated
GROWTH_S = 300.0  # and the time that they must cover
# PostgreSQL's idle sessions report their changes up to ten seconds late, when the message has arrived
STATISTICS_DELAY_S = 15.0
# inserted, updated and deleted rows of tables, their partitions included, since the server's start
CHANGED_ROWS = """
    SELECT name, coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint AS n
    FROM unnest(%s::text[], %s::text[]) AS source(name, quoted) LEFT JOIN pg_stat_user_tables
    ON coalesce(pg_partition_root(relid), relid) = quoted::regclass GROUP BY name"""


@dataclass
class Memory:
    """What later observations compare with; stored, so that single observations have it, too.

    Attributes:
        had_offset: connectors that had a committed offset.
        versions: {artifact of the registry: number of versions}.
        new_versions: {artifact: when its number of versions rose}.
        confirmed: {slot: (position, since when)}.
        changed: {table: (changed rows, when their number was first different from the messages)}.
        grown: {topic: (sum of its end offsets, when that was new)}.
    """

    had_offset: list[str] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    new_versions: dict[str, float] = field(default_factory=dict)
    confirmed: dict[str, tuple[str, float]] = field(default_factory=dict)
    changed: dict[str, tuple[int, float]] = field(default_factory=dict)
    grown: dict[str, tuple[int, float]] = field(default_factory=dict)


MEMORY = TypeAdapter(Memory)


def _remedies(name: str, world: World, flow: CaptureFlow) -> dict[str, str]:
    """Return the values of the steps in problems.yaml that depend on the kind of flow."""
    if isinstance(flow, OwnFlow):
        return {
            "source": flow.declared.source,
            "deploy": f"`{flow.capture_command(flow.declared.sources[0])}`",
            "ingest": f"workbench follow {name} --world {world.name}",
        }
    return {
        "source": "postgres",
        "deploy": "run the notebook on connectors",
        "ingest": f"workbench ingest {name} --world {world.name}",
    }


class FlowReader:
    """Observes one flow again and again; it remembers what it saw.

    Attributes:
        name: name of the flow.
        world: the world of its source.
        flow: its captured tables.
        topics: its topics by the names of their captures.
        tables: its captures and their lake tables.
        memory: what earlier observations saw, also those of earlier processes.
    """

    def __init__(self, name: str, world: World, flow: CaptureFlow):
        """Load what earlier observations saw."""
        self.name, self.world, self.flow, self.limits = name, world, flow, world.watch
        self._values = {"flow": name, "world": world.name, **_remedies(name, world, flow)}
        self.topics = {
            each.name: TopicReader(flow.topic(world, each.name), each.format, flow.db)
            for each in flow.captures
        }
        self.tables: list[tuple[Capture, LakeReader]] = [
            (capture, LakeReader(table, flow.source(world, capture.name).id))
            for capture in flow.captures
            for table in flow.tables(world, capture.name)
        ]
        self.memory = self._load_memory()
        self._retained: dict[str, deque[tuple[float, int]]] = {}

    def _problem(self, kind: str, level: str = "", **values: Any) -> Problem:
        return problem(kind, level, **self._values, **values)

    @property
    def _memory_file(self) -> Path:
        return paths.state_dir() / "watch" / f"{self.world.name}.{self.name}.json"

    def _load_memory(self) -> Memory:
        """Return what was stored; nothing, with a warning, if the file is damaged."""
        path = self._memory_file
        try:
            return MEMORY.validate_json(path.read_bytes()) if path.exists() else Memory()
        except (OSError, ValidationError):
            text = f"{path} is damaged: {self.name} is observed as if for the first time"
            terminal.echo(text, "yellow", stderr=True)
            return Memory()

    def _store_memory(self) -> Iterator[Problem]:
        try:
            paths.write_private_file(self._memory_file, MEMORY.dump_json(self.memory))
        except OSError as e:  # a full disk, for example
            values = {"location": str(self._memory_file), "hint": "make it writable"}
            yield self._problem("not_observed", reason=first_line(e), **values)

    def observe(self, consumer: Consumer) -> Observation:
        """Observe the flow; what cannot be observed is a problem.

        Args:
            consumer: see `topics.open_consumer`.
        """
        if self.flow.is_being_changed():
            return Observation(self.name, problems=(self._problem("command_running"),))
        names = ("unread", "retained", "states", "dead_letters", "reconciled")
        figures: dict[str, Any] = {name: {} for name in names}
        problems = list(self._problems(figures, consumer))
        readers = [reader for _, reader in self.tables]
        freshness = quantiles(fresh for reader in readers for fresh in reader.fresh)
        limit = level_of(freshness["p95"], self.limits.freshness_s) if freshness else ""
        if freshness and limit:
            problems.append(self._problem("stale", limit, seconds=freshness["p95"], **freshness))
        problems += self._store_memory()
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

    def _problems(self, figures: dict[str, Any], consumer: Consumer) -> Iterator[Problem]:
        parts: list[Callable[[], Iterator[Problem]]] = [
            lambda: self._observe_lake(figures),
            lambda: self._observe_topics(figures, consumer),
            self._observe_schemas,
            self._observe_disk,
            lambda: self._observe_reconciliation(figures),
        ]
        if not self.flow.polled:
            parts += [
                lambda: self._observe_connectors(figures),
                lambda: self._observe_slots(figures),
            ]
        command = self.flow.interrupted_command()
        if command:  # until it is complete, the steps of other problems are refused
            yield self._problem("command_interrupted", command=command)
            return
        for part in parts:
            try:
                yield from part()
            except WorkbenchError as e:
                hint = e.hint or "remove the cause"
                yield self._problem(
                    "not_observed", reason=e.message, location=e.location, hint=hint
                )

    def _observe_lake(self, figures: dict[str, Any]) -> Iterator[Problem]:
        for _, lake in self.tables:
            name = lake.table.name
            lake.read()
            ahead = lake.seconds_ahead()
            if ahead > 1:  # the clocks of two machines differ by less
                yield self._problem("clock_back", table=name, seconds=ahead)
            for instant, seconds in lake.interrupted(self.world):
                yield self._problem(
                    "ingest_interrupted", table=name, instant=instant, seconds=seconds
                )
            uri = dead_letters_path(self.world, lake.table)
            folder = dlq.folder_name(self.world, uri)
            reasons = dlq.reasons(uri)
            figures["dead_letters"][name] = dict(reasons)
            for reason, count in reasons.items():
                yield self._problem(
                    "dead_letters", table=name, count=count, reason=reason, folder=folder
                )
            if lake.small_files() > self.limits.small_files:
                yield self._problem("small_files", table=name, files=lake.small_files())
            ratio = lake.log_bytes / max(1, sum(lake.base_files.values()))
            if ratio > self.limits.log_ratio and lake.log_bytes > SMALL_FILE_BYTES:
                yield self._problem("unmerged_logs", table=name, ratio=ratio)

    def _observe_topics(self, figures: dict[str, Any], consumer: Consumer) -> Iterator[Problem]:
        for name, reader in self.topics.items():
            tables = [lake for capture, lake in self.tables if capture.name == name]
            committed = [lake.committed(time.time() - WINDOW_S) for lake in tables]
            first = min(committed, key=lambda offsets: sum(offsets.values()), default=Offsets())
            try:
                offsets, samples, repeated = reader.read(self.world, consumer, first)
            except StackError as e:
                yield self._problem("kafka_down", reason=e.message)
                return
            except LakeError:
                if reader.ends or any(lake.committed() for lake in tables):
                    yield self._problem("topic_missing", topic=reader.topic)
                continue
            if repeated:
                yield self._problem("delivered_again", topic=reader.topic, messages=repeated)
            for lake in tables:
                lake.add(samples, reader.ends)
                if not lake.is_landed:
                    yield from self._compare_offsets(reader.topic, offsets, lake, figures)

    def _compare_offsets(
        self,
        topic: str,
        offsets: dict[int, tuple[int, int]],
        lake: LakeReader,
        figures: dict[str, Any],
    ) -> Iterator[Problem]:
        """Compare a topic with what a lake table has of it."""
        committed, unread = lake.committed(), Offsets()
        for partition, (low, end) in offsets.items():
            reached = committed.get(partition, 0)
            unread[partition] = max(0, end - max(low, reached))
            if reached > end:
                yield self._problem("topic_ahead", topic=topic, committed=reached, end=end)
            elif low > reached:
                yield self._problem("topic_truncated", topic=topic, messages=low - reached)
        figures["unread"][lake.table.name] = unread
        count = sum(unread.values())
        seconds = lake.waiting_s(count)
        level = level_of(seconds, self.limits.unread_s)
        if level:
            # a table that was never ingested waits for its first ingest
            level = level if committed else "amber"
            values = {"topic": topic, "unread": count, "seconds": seconds}
            yield self._problem("unread_old", level, table=lake.table.name, **values)

    def _observe_schemas(self) -> Iterator[Problem]:
        artifacts = [
            f"{self.topics[each.name].topic}-{side}"
            for each in self.flow.captures
            for side in ("key", "value")
            if each.format == "avro"
        ]
        try:
            rows = registry.artifacts(self.world, artifacts) if artifacts else None
        except StackError as e:
            yield self._problem("registry_down", reason=e.message)
            return
        memory, counts = self.memory, Counter(rows["artifact"]) if rows is not None else Counter()
        for artifact, versions in counts.items():
            if versions > memory.versions.setdefault(artifact, versions):
                memory.new_versions[artifact] = time.time()
            memory.versions[artifact] = versions
            if memory.new_versions.get(artifact, 0) > time.time() - WINDOW_S:
                yield self._problem("schema_new", artifact=artifact, version=versions)

    def _observe_connectors(self, figures: dict[str, Any]) -> Iterator[Problem]:
        try:
            existing = connect.names(self.world)
            for name in self.flow.deployed_connectors:
                if name in existing:
                    yield from self._observe_connector(name, figures)
                else:
                    yield self._problem("connector_missing", connector=name)
        except (StackError, ConnectorError) as e:
            yield self._problem("connect_down", reason=e.message)

    def _observe_connector(self, name: str, figures: dict[str, Any]) -> Iterator[Problem]:
        status, offset = connect.status(self.world, name), connect.offset(self.world, name)
        states = ", ".join(sorted(validation.states(status)))
        figures["states"][name] = states
        reason = validation.failure_message(name, status)
        if reason:
            yield self._problem("connector_failed", connector=name, reason=reason)
        elif states != "RUNNING":
            yield self._problem("connector_stopped", connector=name, states=states)
        if offset and name not in self.memory.had_offset:
            self.memory.had_offset.append(name)
        elif offset == {} and name in self.memory.had_offset:
            yield self._problem("offsets_lost", connector=name)

    def _observe_slots(self, figures: dict[str, Any]) -> Iterator[Problem]:
        if not self.flow.publication:
            return
        try:
            slots = postgres.all_slots(self.world).set_index("slot_name")
            for name in self.flow.deployed_connectors:
                slot = self.flow.config(self.world, name).get("slot.name", "")
                if slot not in slots.index:
                    yield self._problem("slot_missing", slot=slot)
                else:
                    yield from self._observe_slot(slot, slots.loc[slot], figures)
            yield from self._observe_source()
        except WorkbenchError as e:
            yield self._problem("source_down", reason=e.location or e.message)

    def _observe_slot(
        self, name: str, slot: pandas.Series, figures: dict[str, Any]
    ) -> Iterator[Problem]:
        now, retained = time.time(), int(slot["bytes_behind"])
        figures["retained"][name] = retained
        if slot["wal_status"] == "lost":
            yield self._problem("slot_lost", slot=name)
            return
        if not slot["active"]:
            yield self._problem("slot_inactive", slot=name)
        history = self._retained.setdefault(name, deque(maxlen=MAX_RETAINED))
        history.append((now, retained))
        levels = [level_of(retained / MIB, self.limits.retained_mib)]
        hours = self._hours_until_full(history)
        if levels[0] and self.world.manages("postgres"):  # else the disk is that of another machine
            levels.append(level_of(hours, self.limits.disk_full_h))
        if any(levels):
            level = max(levels, key=LEVELS.index)
            full = f"; at this rate the disk is full in {hours:.1f} h" * (len(levels) > 1)
            full *= hours < math.inf
            yield self._problem("slot_retains", level, slot=name, mib=retained / MIB, full=full)
        confirmed, since = self.memory.confirmed.get(name, ("", now))
        if confirmed != slot["confirmed"] or retained <= history[0][1]:
            self.memory.confirmed[name] = (slot["confirmed"], now)
        elif slot["active"] and now - since > self.limits.stalled_s:
            yield self._problem("slot_stalled", slot=name, seconds=now - since)

    def _hours_until_full(self, history: deque[tuple[float, int]]) -> float:
        """Return when a slot's log fills the disk at its rate of growth; inf if it does not grow."""
        (start, before), (now, retained) = history[0], history[-1]
        if now - start < GROWTH_S or retained <= before:
            return math.inf
        free = shutil.disk_usage(paths.state_dir()).free
        return free / (retained - before) * (now - start) / 3600

    def _observe_source(self) -> Iterator[Problem]:
        """Compare the tables with those that were captured, with the publication, and with the topics' messages."""
        replaced = list[str]()
        if isinstance(self.flow, OwnFlow):
            replaced = self.flow.replaced_tables(self.world)
            for table in replaced:
                remedy = self.flow.replacement_remedy([table])
                yield self._problem("table_replaced", table=table, remedy=remedy)
        frame = postgres.publications(self.world, self.flow.database)
        published = {*frame[frame["publication"] == self.flow.publication]["table"]}
        sources = [capture.source for capture in self.flow.captures]
        for table in sorted({*sources} - published - {*replaced}):
            yield self._problem("not_published", table=table, publication=self.flow.publication)
        quoted = [identifier(source).as_string(None) for source in sources]
        rows = postgres.query(self.world, CHANGED_ROWS, [sources, quoted], self.flow.database)
        counts, now = dict(zip(rows["name"], map(int, rows["n"]))), time.time()
        for capture in self.flow.captures:
            source = capture.source
            grown = self._last_growth(self.topics[capture.name], now)
            before, since = self.memory.changed.get(source, (counts[source], 0.0))
            if counts[source] == before or grown > (since or now) - STATISTICS_DELAY_S:
                self.memory.changed[source] = (counts[source], 0.0)
                continue
            since = since or now
            self.memory.changed[source] = (before, since)
            if now - since > self.limits.silent_s:
                values = {"rows": counts[source] - before, "seconds": now - since}
                yield self._problem("no_records", connector=capture.connector, **values)

    def _last_growth(self, reader: TopicReader, now: float) -> float:
        """Return when a topic had new messages for the last time, also for an earlier process."""
        end = sum(reader.ends.values())
        before, since = self.memory.grown.get(reader.topic, (-1, now))
        if end != before:
            self.memory.grown[reader.topic] = (end, now)
        return since if end == before else now

    def _observe_disk(self) -> Iterator[Problem]:
        folder = paths.local_path(self.world.lake.root)
        if folder and folder.exists():
            mib = shutil.disk_usage(folder).free / MIB
            level = level_of(mib, self.limits.disk_free_mib)
            if level:
                yield self._problem("disk_full", level, folder=paths.display_path(folder), mib=mib)

    def _observe_reconciliation(self, figures: dict[str, Any]) -> Iterator[Problem]:
        for _, lake in self.tables:
            table, last = lake.table.name, last_reconciliation(self.world, lake.table)
            if not last:
                continue
            figures["reconciled"][table] = last["time"]
            if last["differences"]:
                values = {"differences": last["differences"], "time": last["time"]}
                yield self._problem("differs", table=table, **values)
