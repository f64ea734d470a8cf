"""Dead letters that a later message has settled: the table has a newer row of the same record key."""

import contextlib
import json
from collections import defaultdict
from typing import Any, Optional

from confluent_kafka import Message
from pyspark.sql import Row, SparkSession

from ..base import World, files
from ..spark.batch import read_dead_letters
from ..topic import dlq, registry, topics
from .changes import Source, Topic
from .ingesting import last_ingest_commit, read_progress
from .tables import OP_COLUMN, SNAPSHOT_OP, Table, dead_letters_path


def unsettled_dead_letters(
    spark: SparkSession, world: World, table: Table, source: Source
) -> list[Row]:
    """Return the dead letters of a table that are not settled.

    A later message of the same record key settles a dead letter once the table has ingested it, because a
    message has the complete row. A snapshot row settles none: it is older than any change. A dead letter without
    a key, of landed files, or whose message has expired is never settled.

    Settled dead letters stay. A file beside them lists them, so the topic is read for the others only.

    Args:
        spark: the session.
        world: the world.
        table: the table.
        source: the source that was ingested; only its dead letters are searched for settled ones.

    Returns:
        Rows of reason, file, topic, partition and offset.
    """
    uri = dead_letters_path(world, table)
    if not files.list_files(uri):
        return []
    dead = read_dead_letters(spark, uri).select("reason", "file", *dlq.POSITION).collect()
    settled = dlq.settled_positions(uri)
    unsettled = [row for row in dead if _position(row) not in settled]
    if any(row.topic == source.name for row in unsettled) and isinstance(source, Topic):
        settled |= _find_settled(world, table, source, dead, unsettled)
        files.write_text(f"{uri}/{dlq.SETTLED_FILE}", json.dumps(sorted(settled)))
    return [row for row in unsettled if _position(row) not in settled]


def _position(row: Row) -> Optional[dlq.Position]:
    return None if row.file else (row.topic, row.partition, row.offset)


def _find_settled(
    world: World, table: Table, source: Topic, dead: list[Row], unsettled: list[Row]
) -> set[dlq.Position]:
    """Return the positions of the dead letters that the messages in the topic settle."""
    positions = {*map(_position, dead)}
    ingested = read_progress(last_ingest_commit(table))[source.id]["offsets"]
    stop = {int(partition): offset for partition, offset in ingested.items()}
    first = {partition: [offset] for partition, offset in stop.items()}
    for row in unsettled:
        if _position(row) and row.topic == source.name:
            first[row.partition].append(row.offset)
    start = {partition: min(offsets) for partition, offsets in first.items()}
    waiting, settled = defaultdict[Any, list[dlq.Position]](list), set[dlq.Position]()
    with contextlib.closing(topics.consume(world, source.name, start, stop)) as messages:
        for message in messages:
            position = (source.name, message.partition(), message.offset())
            key = (message.partition(), message.key())
            if position in positions:
                waiting[key].append(position)
            elif key in waiting and _is_change(world, source, message):
                settled.update(waiting.pop(key))
    return settled


def _is_change(world: World, source: Topic, message: Message) -> bool:
    """Return whether a decodable message is a change of a row with a key: no tombstone, no row of a snapshot."""
    value = message.value()
    if not value or message.key() is None:
        return False
    if source.format == "avro":
        record = registry.inspect_message(world, value)["record"]
    else:
        body = json.loads(value)
        record = body.get("payload", body)
    return bool(record.get(OP_COLUMN) != SNAPSHOT_OP)
