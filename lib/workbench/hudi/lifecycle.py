"""Drop a table; keep, read or publish its dead letters.

A batch of an ingest writes the folder of its dead letters before its commit, so that none is lost if the process is
killed after it. Until then the folder is hidden. The commit names it.
"""

from __future__ import annotations

import re
import sys

from pyspark.sql import DataFrame, SparkSession

from ..base import World, files
from ..spark.batch import read_dead_letters
from ..topic import dlq
from .changes import SourceProgress
from .ddl import catalog_synced, unregister
from .tables import (
    Table,
    all_catalog_names,
    dead_letters_path,
    scratch_copy,
    table_lock,
    table_state_dir,
)

# `<position in the source before the batch>_<id>`, with a dot before it while it is hidden; or of an earlier version
FOLDER_NAME = re.compile(r"(\.?)((?:(\d+)_)?.+)")


def drop(spark: SparkSession | None, world: World, table: Table) -> None:
    """Remove the catalog entries, files, labels, progress and dead letters of a table.

    Args:
        spark: the session; with None the catalog entries stay.
        world: the world.
        table: the table.

    Raises:
        LakeError: an ingest into the table is running. Its next commit would refer to removed files.
    """
    with table_lock(world, table):
        if spark is not None:
            for entry in all_catalog_names(table):
                unregister(spark, entry)
            catalog_synced(spark).pop(table.base, None)
        # labels first: after an interrupted removal no label may be left without its table
        copy = scratch_copy(world, table)
        paths = [table_state_dir(world, copy), dead_letters_path(world, copy)]
        paths += [table_state_dir(world, table), dead_letters_path(world, table), table.base]
        for path in paths:
            files.remove(path)


def settle_dead_letters(uri: str, last: SourceProgress) -> None:
    """Show the dead letters of the last commit; remove those of batches that no commit has.

    These are of failed attempts, which are hidden; or of a commit that was restored, or that a replay reads again.

    Args:
        uri: the folder with the dead letters of a source.
        last: the progress in the last commit; empty without one.
    """
    names = {info.base_name for info in files.list_dir(uri)}
    kept = last.get("dead_letters", "")
    for folder in filter(None, map(FOLDER_NAME.fullmatch, names)):
        is_read_again = int(folder[3] or 0) >= last.get("start", sys.maxsize)
        if folder[2] != kept and (folder[1] or is_read_again):
            files.remove(f"{uri}/{folder[0]}")
    if f".{kept}" in names:
        files.move(f"{uri}/.{kept}", f"{uri}/{kept}")


def dead_letters(spark: SparkSession, world: World, table: Table) -> DataFrame:
    """Read the dead letters of a table: the messages that could not be ingested.

    Args:
        spark: the session.
        world: the world.
        table: the table.

    Returns:
        One row per dead letter: reason, topic, partition, offset, file, text (base64 for Avro).
    """
    return read_dead_letters(spark, dead_letters_path(world, table))


def publish_dead_letters(world: World, table: Table, topic: str) -> int:
    """Publish the dead letters of a table in the format of a Kafka Connect sink.

    Dead letters that the topic has, and those of landed files, are skipped. A dead letter of an ingest has
    key and value of its message, but neither its headers nor its time.

    Args:
        world: the world.
        table: the table.
        topic: the dead-letter topic; it is created if it does not exist.

    Returns:
        The number of published dead letters.
    """
    return dlq.publish(
        world, topic, dead_letters_path(world, table), table.name, "workbench.hudi.ingest"
    )
