"""Connectors, slots and tables of a flow that is captured from the log of its source."""

import time
from dataclasses import dataclass
from typing import Callable, Iterator

import pandas
from pydantic import BaseModel

from .. import connect
from ..base import ConnectorError, StackError, WorkbenchError, World
from ..connect import validation
from ..flow.flow import CaptureFlow
from ..own import OwnFlow
from ..source import postgres
from ..source.names import identifier
from .messages import TopicReader
from .problems import Observation, Problem, level_of

MIB = 1 << 20
# PostgreSQL's idle sessions report their changes up to ten seconds late, when the message has arrived
STATISTICS_DELAY_S = 15.0
# inserted, updated and deleted rows of tables, their partitions included, since the server's start
CHANGED_ROWS = """
    SELECT name, coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint AS n
    FROM unnest(%s::text[], %s::text[]) AS source(name, quoted) LEFT JOIN pg_stat_user_tables
    ON coalesce(pg_partition_root(relid), relid) = quoted::regclass GROUP BY name"""


class Memory(BaseModel):
    """What later observations compare with; stored, so that single observations have it, too.

    Attributes:
        had_offset: connectors that had a committed offset.
        slots: {slot: (its position, the log that it retained, since when)}.
        changed: {table: (changed rows, when their number was first different from the messages)}.
        grown: {topic: (sum of its end offsets, when that was new)}.
    """

    had_offset: list[str] = []
    slots: dict[str, tuple[str, int, float]] = {}
    changed: dict[str, tuple[int, float]] = {}
    grown: dict[str, tuple[int, float]] = {}


@dataclass
class SourceReader:
    """Observes the source side of a flow again and again.

    Attributes:
        world: the world of the source.
        flow: its captured tables.
        topics: the topics by the names of their captures.
        memory: what earlier observations saw.
        problem: makes a problem of the flow (see `problems.problem`).
    """

    world: World
    flow: CaptureFlow
    topics: dict[str, TopicReader]
    memory: Memory
    problem: Callable[..., Problem]

    def observe_connectors(self, seen: Observation) -> Iterator[Problem]:
        """Observe the connectors."""
        try:
            existing = connect.names(self.world)
            for name in self.flow.deployed_connectors:
                if name in existing:
                    yield from self._observe_connector(name, seen)
                else:
                    yield self.problem("connector_missing", connector=name)
        except (StackError, ConnectorError) as e:
            yield self.problem("connect_down", reason=e.message)

    def _observe_connector(self, name: str, seen: Observation) -> Iterator[Problem]:
        status, offset = connect.status(self.world, name), connect.offset(self.world, name)
        states = ", ".join(sorted(validation.states(status)))
        seen.states[name] = states
        reason = validation.failure_message(name, status)
        if reason:
            yield self.problem("connector_failed", connector=name, reason=reason)
        elif states != "RUNNING":
            yield self.problem("connector_stopped", connector=name, states=states)
        if offset and name not in self.memory.had_offset:
            self.memory.had_offset.append(name)
        elif offset == {} and name in self.memory.had_offset:
            yield self.problem("offsets_lost", connector=name)

    def observe_database(self, seen: Observation) -> Iterator[Problem]:
        """Observe the slots and tables of PostgreSQL."""
        if not self.flow.publication:
            return
        try:
            slots = postgres.all_slots(self.world).set_index("slot_name")
            for connector in self.flow.deployed_connectors:
                name = self.flow.config(self.world, connector).get("slot.name", "")
                if name in slots.index:
                    yield from self._observe_slot(name, slots.loc[name], seen)
                else:
                    yield self.problem("slot_missing", slot=name)
            yield from self._observe_tables()
            yield from self._observe_silence()
        except WorkbenchError as e:
            yield self.problem("source_down", reason=e.location or e.message)

    def _observe_slot(self, name: str, slot: pandas.Series, seen: Observation) -> Iterator[Problem]:
        now, retained = time.time(), int(slot["bytes_behind"])
        seen.retained[name] = retained
        if slot["wal_status"] == "lost":
            yield self.problem("slot_lost", slot=name)
            return
        if not slot["active"]:
            yield self.problem("slot_inactive", slot=name)
        level = level_of(retained / MIB, self.world.watch.retained_mib)
        if level:
            yield self.problem("slot_retains", level, slot=name, mib=retained / MIB)
        position, before, since = self.memory.slots.get(name, ("", 0, now))
        if position != slot["confirmed"] or retained <= before:
            self.memory.slots[name] = (slot["confirmed"], retained, now)
        elif slot["active"] and now - since > self.world.watch.stalled_s:
            yield self.problem("slot_stalled", slot=name, seconds=now - since)

    def _observe_tables(self) -> Iterator[Problem]:
        """Compare the tables with those that were captured, and with the publication."""
        replaced = set[str]()
        if isinstance(self.flow, OwnFlow):
            replaced = {*self.flow.replaced_tables(self.world)}
            for table in sorted(replaced):
                yield self.problem("table_replaced", table=table)
        frame = postgres.publications(self.world, self.flow.database)
        published = {*frame[frame["publication"] == self.flow.publication]["table"]}
        sources = {capture.source for capture in self.flow.captures}
        for table in sorted(sources - published - replaced):
            yield self.problem("not_published", table=table, publication=self.flow.publication)

    def _observe_silence(self) -> Iterator[Problem]:
        """Compare the numbers of changed rows with the topics' messages."""
        sources = [capture.source for capture in self.flow.captures]
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
            if now - since > self.world.watch.silent_s:
                values = {"rows": counts[source] - before, "seconds": now - since}
                yield self.problem("no_records", connector=capture.connector, **values)

    def _last_growth(self, reader: TopicReader, now: float) -> float:
        """Return when a topic had new messages for the last time, also for an earlier process."""
        end = sum(reader.ends.values())
        before, since = self.memory.grown.get(reader.topic, (-1, now))
        if end != before:
            self.memory.grown[reader.topic] = (end, now)
        return since if end == before else now
