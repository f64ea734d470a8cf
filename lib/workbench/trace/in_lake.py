"""The place of one record in a Hudi table at each commit: from the timeline, and read with hudi-rs.

A commit of the ingest holds the position in the source. So the commit of a message is the first one
whose position is after it. The file of a record is read from the table as of that commit: each row has
the name of its base file, or of its file group if it is in a log.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

from .. import hudi
from ..base import LakeError, World, files
from ..hudi.changes import Topic, landed_list
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


def view_names(lake: hudi.Table) -> dict[str, str]:
    """Return {short name: view}: the catalog's names of `cow`, or of `mor_ro` and `mor_rt`."""
    views = hudi.catalog_names(lake)
    if lake.type == "mor":
        return {f"mor{view[-3:]}": view for view in views}
    (view,) = views
    return {lake.type: view}


def rows_of_key(
    world: World,
    lake: hudi.Table,
    key: Mapping[str, Any],
    kind: str = "snapshot",
    instant: str = "",
) -> list[dict[str, Any]]:
    """Return the rows of a key as a kind of view has them.

    Args:
        world: the world.
        lake: the table.
        key: {field: value}.
        kind: "snapshot" or "read_optimized".
        instant: digits, UTC; by default now.

    Raises:
        LakeError: files that the instant needs were cleaned away.
    """
    try:
        rows = hudi.read_independent(
            lake,
            as_of=(world, instant) if instant else None,
            optimized=kind == "read_optimized",
            where=key,
        )
    except LakeError:
        # A pending compaction hides later commits from hudi-rs. Spark takes longer.
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
    world: World,
    lake: hudi.Table,
    actions: list[CompletedAction],
    topic: str,
    change: Change,
) -> Optional[CompletedAction]:
    """Return the commit that ingested a message, from the topic or from its landed file.

    Args:
        world: the world.
        lake: the table.
        actions: as `completed_actions` returns them.
        topic: the topic of the message.
        change: the message.

    Returns:
        None if no commit has it, or if that commit was archived.
    """
    topic_id, start = Topic(topic).id, 0
    _, landed_path = files.open_filesystem(f"{world.lake.landing}/{change.landed}")
    for number, action in enumerate(actions):
        for source, progress in read_progress(action.metadata).items():
            if source == topic_id:
                end = progress.get("offsets", {}).get(str(change.partition), 0)
                if start <= change.offset < end:
                    # If earlier commits were archived, it may also have been one of these.
                    return None if number == 0 and progress["batch"] > 0 else action
                start = max(start, end)
            elif change.landed:
                paths = landed_list(world, lake, source, progress["batch"])
                if paths and landed_path in paths:
                    return action
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
        record: this version.
        group: file group of the version before it. A hard delete is written there, too.

    Returns:
        Empty if the file is not known any more, because files were cleaned.
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
    """Return {ordering value: file or file group} of a record in a kind of view as of a commit.

    Returns:
        Empty if files of that time were cleaned away.

    Raises:
        LakeError: the table cannot be read.
    """
    try:
        rows = rows_of_key(world, lake, key, kind, commit.instant)
    except HistoryRemoved:
        return {}
    return {lake.ordering_value(row): row["_hoodie_file_name"] for row in rows}
