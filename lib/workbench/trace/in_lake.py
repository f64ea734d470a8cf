"""Find the versions of one record in a Hudi table: their commits and their files.

An ingest commit records the offsets that it has reached. So the first commit whose offset is later
than a message has ingested the message. The file comes from a query as of that commit: each row names
its base file, or its file group if the row is in a log file.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from .. import hudi
from ..base import LakeError, World
from ..hudi.changes import Topic, parse_landed_file
from ..hudi.ddl import identifier, literal
from ..hudi.ingesting import read_progress
from ..hudi.timeline import (
    CompletedAction,
    HistoryRemoved,
    WriteStat,
    check_readable,
    write_stats,
)
from ..spark import session
from .in_topic import Change


def short_name(lake: hudi.Table, tables: Sequence[hudi.Table]) -> str:
    """Return the type of a lake table, or its full name if several of a capture's tables have the type."""
    types = [each.type for each in tables]
    return lake.type if types.count(lake.type) == 1 else f"{lake.database}.{lake.name}"


def view_names(lake: hudi.Table, short: str) -> dict[str, str]:
    """Return {short name: catalog name}. The short names are `cow`, or `mor_ro` and `mor_rt`.

    Args:
        lake: the table.
        short: its `short_name`.
    """
    views = hudi.catalog_names(lake)
    if lake.type == "mor":
        return {f"{short}{view[-3:]}": view for view in views}  # the names end with _ro and _rt
    (view,) = views
    return {short: view}


def rows_of_key(
    world: World,
    lake: hudi.Table,
    key: Mapping[str, Any],
    kind: str = "snapshot",
    instant: str = "",
) -> list[dict[str, Any]]:
    """Return the rows of a record key from a snapshot query or a read-optimized query.

    Args:
        world: the world.
        lake: the table.
        key: {field: value} of the record.
        kind: "snapshot" or "read_optimized", the type of the query.
        instant: read the table as of this instant (digits, UTC); by default the latest.

    Raises:
        LakeError: the table cannot be read; HistoryRemoved if the cleaner removed the files of the
            instant.
    """
    try:
        rows = hudi.read_arrow(
            lake,
            as_of=(world, instant) if instant else None,
            optimized=kind == "read_optimized",
            where=key,
        ).to_pandas()
    except LakeError:
        # hudi-rs does not read commits after a pending compaction. Spark does, but takes longer.
        if instant:
            check_readable(lake, instant)
        reader = hudi.spark_reader(session(world)).option("hoodie.datasource.query.type", kind)
        if instant:
            reader = reader.option("as.of.instant", instant)
        ((field, value),) = key.items()
        condition = f"{identifier(field)} = {literal(value)}"
        rows = reader.load(lake.base).where(condition).toPandas()
    records: list[dict[str, Any]] = rows.to_dict("records")
    return records


def find_commit(
    actions: list[CompletedAction], topic: str, change: Change
) -> Optional[CompletedAction]:
    """Return the commit that ingested a message from the topic, or from its landed file.

    Args:
        actions: the completed actions of the table's timeline, the earliest first.
        topic: the topic of the message.
        change: the message.

    Returns:
        None if no commit has ingested the message, or if that commit was archived.
    """
    topic_id = Topic(topic).id
    file = parse_landed_file(change.landed) if change.landed else None
    for index, action in enumerate(actions):
        for source, progress in read_progress(action.metadata).items():
            offsets = progress.get("offsets", {})
            if source == topic_id:
                is_ingested = change.offset < offsets.get(str(change.partition), 0)
            else:
                is_ingested = file is not None and file.is_read(offsets)
            if is_ingested:
                # The first action is ambiguous after earlier batches: an archived commit may have
                # ingested the message.
                return None if index == 0 and progress.get("start", 1) > 0 else action
    return None


def written_file(
    world: World,
    lake: hudi.Table,
    commit: CompletedAction,
    key: Mapping[str, Any],
    record: Mapping[str, Any],
    group: str,
) -> WriteStat:
    """Return the statistics of the file that a commit wrote a version of a record to.

    Args:
        world: the world.
        lake: the table.
        commit: the commit.
        key: {field: value} of the record.
        record: the row of this version.
        group: file group of the previous version. A hard delete is written to the same group.

    Returns:
        Empty if the cleaner has removed files that are needed to find the file group.
    """
    if record.get("__deleted") != "true" or lake.deletes == "soft":
        file_name = versions_at(world, lake, key, commit).get(lake.ordering_value(record), "")
        group = file_name.partition("_")[0]
    stats = (stat for _, stat in write_stats(commit.metadata))
    return next((stat for stat in stats if stat["fileId"] == group), {})


def versions_at(
    world: World,
    lake: hudi.Table,
    key: Mapping[str, Any],
    commit: CompletedAction,
    kind: str = "snapshot",
) -> dict[Any, str]:
    """Return {ordering value: file or file group} of a record as of a commit.

    Args:
        world: the world.
        lake: the table.
        key: {field: value} of the record.
        commit: the commit.
        kind: "snapshot" or "read_optimized", the type of the query.

    Returns:
        Empty if the cleaner has removed files that the query needs.

    Raises:
        LakeError: the table cannot be read.
    """
    try:
        rows = rows_of_key(world, lake, key, kind, commit.instant)
    except HistoryRemoved:
        return {}
    return {lake.ordering_value(row): row["_hoodie_file_name"] for row in rows}
