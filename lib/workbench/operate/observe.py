"""The state of one flow, from source, connector, topic and lake; no Spark job runs."""

import shutil
import time
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

from pydantic import ValidationError

from ..base import LakeError, StackError, WorkbenchError, World, first_line, paths, terminal
from ..flow.flow import CaptureFlow
from ..flow.reconciliation import last_reconciliation
from ..hudi.tables import dead_letters_path
from ..own import OwnFlow
from ..topic import dlq, registry
from .lake import SMALL_FILE_BYTES, WINDOW_S, LakeReader, quantiles
from .messages import Offsets, TopicReader
from .problems import Observation, Problem, level_of, problem
from .source import MIB, Memory, SourceReader


def _remedies(name: str, world: World, flow: CaptureFlow) -> dict[str, str]:
    """Return the values of the steps in problems.yaml that depend on the kind of flow."""
    return {
        "source": flow.server or "postgres",
        "deploy": f"`{flow.capture_command}`"
        if isinstance(flow, OwnFlow)
        else "run the notebook on connectors",
        "ingest": f"workbench {'follow' if flow.server else 'ingest'} {name} --world {world.name}",
    }


class FlowReader:
    """Observes one flow again and again; it remembers what it saw.

    Attributes:
        name: name of the flow.
        world: the world of its source.
        flow: its captured tables.
        topics: its topics by the names of their captures.
        tables: {name of a capture: its lake tables}.
        memory: what earlier observations saw, also those of earlier processes.
        source: observes connectors, slots and source tables.
    """

    def __init__(self, name: str, world: World, flow: CaptureFlow):
        """Load what earlier observations saw."""
        self.name, self.world, self.flow, self.limits = name, world, flow, world.watch
        self._values = {"flow": name, "world": world.name, **_remedies(name, world, flow)}
        self.topics = {
            each.name: TopicReader(flow.topic(world, each.name), each.format)
            for each in flow.captures
        }
        self.tables = {
            name: [
                LakeReader(table, flow.source(world, name).id) for table in flow.tables(world, name)
            ]
            for name in flow.names
        }
        self.memory = self._load_memory()
        self.source = SourceReader(world, flow, self.topics, self.memory, self._problem)

    @property
    def lakes(self) -> list[LakeReader]:
        """The lake tables."""
        return [lake for lakes in self.tables.values() for lake in lakes]

    @property
    def _memory_file(self) -> Path:
        return paths.state_dir() / "watch" / f"{self.world.name}.{self.name}.json"

    def _load_memory(self) -> Memory:
        """Return what was stored; nothing, with a warning, if the file is damaged."""
        path = self._memory_file
        try:
            return Memory.model_validate_json(path.read_bytes()) if path.exists() else Memory()
        except (OSError, ValidationError):
            text = f"{path} is damaged: {self.name} is observed as if for the first time"
            terminal.echo(text, "yellow", stderr=True)
            return Memory()

    def _store_memory(self, seen: Observation) -> list[Problem]:
        try:
            paths.write_private_file(self._memory_file, self.memory.model_dump_json().encode())
        except OSError as e:  # a full disk, for example
            location, hint = str(self._memory_file), "make it writable"
            raise StackError(first_line(e), location=location, hint=hint) from None
        return []

    def observe(self) -> Observation:
        """Observe the flow; what cannot be observed is a problem."""
        seen = Observation(self.name)
        if self.flow.is_being_changed():
            seen.problems.append(self._problem("command_running"))
            return seen
        command = self.flow.interrupted_command()
        if command:  # until it is complete, the steps of other problems are refused
            seen.problems.append(self._problem("command_interrupted", command=command))
            return seen
        parts: list[Callable[[Observation], Iterable[Problem]]] = [
            self._observe_lake,
            self._observe_topics,
            self._observe_freshness,
            self._observe_registry,
            self._observe_disk,
            self._observe_reconciliation,
        ]
        if not self.flow.polled:
            parts += [self.source.observe_connectors, self.source.observe_database]
        for part in [*parts, self._store_memory]:
            try:
                for found in part(seen):
                    seen.problems.append(found)
            except WorkbenchError as e:
                values = {"location": e.location, "hint": e.hint or "remove the cause"}
                seen.problems.append(self._problem("not_observed", reason=e.message, **values))
        return seen

    def _problem(self, kind: str, level: str = "", **values: Any) -> Problem:
        return problem(kind, level, **self._values, **values)

    def _observe_lake(self, seen: Observation) -> Iterator[Problem]:
        for lake in self.lakes:
            name = lake.table.name
            lake.read()
            seen.commits_per_hour += lake.commits_per_hour()
            seen.files += len(lake.base_files)
            seen.small_files += lake.small_files()
            seen.log_bytes += lake.log_bytes
            ahead = lake.seconds_ahead()
            if ahead > 1:  # the clocks of two machines differ by less
                yield self._problem("clock_back", table=name, seconds=ahead)
            for instant, seconds in lake.interrupted(self.world):
                yield self._problem(
                    "ingest_interrupted", table=name, instant=instant, seconds=seconds
                )
            uri = dead_letters_path(self.world, lake.table)
            folder, reasons = dlq.folder_name(self.world, uri), dlq.reasons(uri)
            seen.dead_letters[name] = sum(reasons.values())
            for reason, count in reasons.items():
                yield self._problem(
                    "dead_letters", table=name, count=count, reason=reason, folder=folder
                )
            if lake.small_files() > self.limits.small_files:
                yield self._problem("small_files", table=name, files=lake.small_files())
            ratio = lake.log_bytes / max(1, sum(lake.base_files))
            if ratio > self.limits.log_ratio and lake.log_bytes > SMALL_FILE_BYTES:
                yield self._problem("unmerged_logs", table=name, ratio=ratio)

    def _observe_topics(self, seen: Observation) -> Iterator[Problem]:
        for name, reader in self.topics.items():
            lakes = self.tables[name]
            committed = [lake.committed(time.time() - WINDOW_S) for lake in lakes]
            first = min(committed, key=lambda offsets: sum(offsets.values()), default=Offsets())
            try:
                offsets, samples = reader.read(self.world, first)
            except StackError as e:
                yield self._problem("kafka_down", reason=e.message)
                return
            except LakeError:
                if reader.ends or any(lake.committed() for lake in lakes):
                    yield self._problem("topic_missing", topic=reader.topic)
                continue
            for lake in lakes:
                lake.add(samples, reader.ends)
                if not lake.is_landed:
                    yield from self._compare_offsets(reader.topic, offsets, lake, seen)

    def _compare_offsets(
        self, topic: str, offsets: dict[int, tuple[int, int]], lake: LakeReader, seen: Observation
    ) -> Iterator[Problem]:
        """Compare a topic with what a lake table has of it."""
        committed, unread = lake.committed(), 0
        for partition, (low, end) in offsets.items():
            reached = committed.get(partition, 0)
            unread += max(0, end - max(low, reached))
            if reached > end:
                yield self._problem("topic_ahead", topic=topic, committed=reached, end=end)
            elif low > reached:
                yield self._problem("topic_truncated", topic=topic, messages=low - reached)
        seen.unread[lake.table.name] = unread
        seconds = lake.waiting_s(unread)
        level = level_of(seconds, self.limits.unread_s)
        if level:
            # a table that was never ingested waits for its first ingest
            level = level if committed else "amber"
            values = {"topic": topic, "unread": unread, "seconds": seconds}
            yield self._problem("unread_old", level, table=lake.table.name, **values)

    def _observe_freshness(self, seen: Observation) -> Iterator[Problem]:
        seen.freshness = quantiles(fresh for lake in self.lakes for fresh in lake.fresh)
        if seen.freshness:
            seconds = seen.freshness["p95"]
            level = level_of(seconds, self.limits.freshness_s)
            if level:
                yield self._problem("stale", level, seconds=seconds, **seen.freshness)

    def _observe_registry(self, seen: Observation) -> Iterator[Problem]:
        avro = [f"{each.topic}-value" for each in self.topics.values() if each.format == "avro"]
        try:
            if avro:
                registry.artifacts(self.world, avro)
        except StackError as e:
            yield self._problem("registry_down", reason=e.message)

    def _observe_disk(self, seen: Observation) -> Iterator[Problem]:
        folder = paths.local_path(self.world.lake.root)
        if folder and folder.exists():
            mib = shutil.disk_usage(folder).free / MIB
            level = level_of(mib, self.limits.disk_free_mib)
            if level:
                yield self._problem("disk_full", level, folder=paths.display_path(folder), mib=mib)

    def _observe_reconciliation(self, seen: Observation) -> Iterator[Problem]:
        for lake in self.lakes:
            table, last = lake.table.name, last_reconciliation(self.world, lake.table)
            if not last:
                continue
            seen.reconciled[table] = last["time"]
            if last["differences"]:
                values = {"differences": last["differences"], "time": last["time"]}
                yield self._problem("differs", table=table, **values)
