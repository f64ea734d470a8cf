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

# `<position in the source before the batch>_<id>`, with a dot before it while it is hidden
FOLDER_NAME = re.compile(r"(\.?)((\d+)_\w+)")


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


def source_folder(uri: str, progress: SourceProgress) -> str:
    """Return the folder with the dead letters of a source since its last replay, if any."""
    return f"{uri}/{progress['replay']}" if progress.get("replay") else uri


def settle_dead_letters(uri: str, last: SourceProgress) -> None:
    """Show the dead letters of the last commit; remove those of batches that no commit has.

    These are of failed attempts, which are hidden, or of a commit that was restored.

    Args:
        uri: the folder with the dead letters of a source.
        last: the progress in the last commit; empty without one.
    """
    folder = source_folder(uri, last)
    names = {info.base_name for info in files.list_dir(folder)}
    kept = last.get("dead_letters", "")
    for name in filter(None, map(FOLDER_NAME.fullmatch, names)):
        if name[2] != kept and (name[1] or int(name[3]) >= last.get("start", sys.maxsize)):
            files.remove(f"{folder}/{name[0]}")
    if f".{kept}" in names:
        files.move(f"{folder}/.{kept}", f"{folder}/{kept}")


def remove_replaced_dead_letters(uri: str, last: SourceProgress) -> None:
    """Remove the dead letters from before the last replay, which has read all messages again.

    Args:
        uri: the folder with the dead letters of a source.
        last: the progress in the last commit.
    """
    for info in files.list_dir(uri) if last.get("replay") else ():
        if info.base_name != last["replay"]:
            files.remove(f"{uri}/{info.base_name}")


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
