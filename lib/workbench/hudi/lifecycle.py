"""The dead letters of a table, and its removal."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from ..base import World, files
from ..landing.batch import read_dead_letters
from ..topic import dlq
from .changes import Topic
from .ddl import catalog_synced, unregister
from .ingesting import last_ingest_commit, read_progress
from .tables import Table, all_catalog_names, dead_letters_path, table_lock, table_state_dir


def drop(spark: SparkSession | None, world: World, table: Table) -> None:
    """Remove the catalog entries, files, labels, progress and dead letters of a table.

    Args:
        spark: the session; None leaves the catalog entries.
        world: the world.
        table: the table.

    Raises:
        LakeError: an ingest into the table is running; its next commit would name removed files.
    """
    with table_lock(world, table):
        if spark is not None:
            for entry in all_catalog_names(table):
                unregister(spark, entry)
            catalog_synced.pop(table.base, None)
        # labels first: they must not outlive the table, even if the removal stops halfway
        paths = (table_state_dir(world, table), dead_letters_path(world, table), table.base)
        for path in paths:
            files.remove(path)


def dead_letters(spark: SparkSession, world: World, table: Table) -> DataFrame:
    """Read the dead letters of a table, the messages that could not be ingested.

    Returns:
        reason, topic, partition, offset, file, text (base64 if it is Avro).
    """
    return read_dead_letters(spark, dead_letters_path(world, table))


def publish_dead_letters(world: World, table: Table, topic: str) -> int:
    """Publish the dead letters of source topics in the format of a Connect sink.

    Those that were published before are left out.

    Args:
        world: the world.
        table: the table.
        topic: the dead-letter topic.

    Returns:
        The number of published records.

    Raises:
        LakeError: as dlq.publish.
    """
    progress = read_progress(last_ingest_commit(table))
    return dlq.publish(
        world,
        topic,
        dead_letters_path(world, table),
        f"{table_state_dir(world, table)}/dead_letters.json",
        table.name,
        "workbench.hudi.ingest",
        lambda origin: progress.get(Topic(origin).id, {}).get("topic_id"),
    )
