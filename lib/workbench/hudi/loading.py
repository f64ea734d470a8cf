"""Write one batch of decoded changes: count it, write its dead letters, commit the rest to the table.

The first commit of a table has nothing to merge with, so quicker ways to write it exist. The same holds
for the batches of a snapshot (snapshot.py).
"""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Callable, NamedTuple, Optional

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ..base import files
from . import decode, moves, snapshot
from .tables import OPTION_GROUPS, Table, needs_record_writer

OUTCOMES = {
    decode.UPSERT: "upserts",
    decode.DELETE: "deletes",
    decode.TOMBSTONE: "tombstones",
    decode.DEAD: "dead_letters",
}
LARGE_LOAD_ROWS = 50_000


class Counted(NamedTuple):
    """What is known of a batch before it is written.

    Attributes:
        counts: the number of rows of each of OUTCOMES; without those that do not occur.
        unique_keys: whether all rows are upserts of different keys (if they were compared).
        all_read: whether all messages are reads of a snapshot.
    """

    counts: dict[str, int]
    unique_keys: bool
    all_read: bool


def write_batch(
    spark: SparkSession,
    rows: DataFrame,
    table: Table,
    dead_letters: str,
    *,
    in_memory: bool,
    explain: Optional[Callable[[], DataFrame]] = None,
    is_first_commit: bool,
    columns: T.StructType,
    tracks_moves: bool,
    options: dict[str, str],
    snapshot_of: str = "",
) -> dict[str, int]:
    """Write a batch.

    Args:
        spark: the session.
        rows: as decode.rows returns them.
        table: the table.
        dead_letters: URI of this batch's dead letters. They are overwritten when the batch is
            repeated: exactly once.
        in_memory: whether the rows are part of the query.
        explain: returns the rows for the dead letters (see changes.Batch); by default `rows`.
        is_first_commit: whether the table has no commit yet.
        columns: the columns of the table from now on; those that the rows lack are null.
        tracks_moves: as moves.is_tracked of the rows' schema.
        options: Hudi options, which take precedence over the table's own.
        snapshot_of: id of the source if the batch may be written in snapshot mode (snapshot.py).

    Returns:
        The number of rows of each of OUTCOMES; without those that do not occur.
    """
    rows = _drop_decoded_text(rows)
    view = f"workbench_batch_{uuid.uuid4().hex}"
    if not in_memory:
        # Parsed once for the counts, the dead letters and the table. A view is needed: Spark Connect
        # analyzes a DataFrame anew for each action, and then does not recognize what it reads from
        # Kafka as what persist() has cached.
        rows.createOrReplaceTempView(view)
        spark.catalog.cacheTable(view)
        rows = spark.table(view)
    try:
        key = F.struct(*[f"row.{name}" for name in table.key])
        is_read = F.col(f"row.{snapshot.OP}") == snapshot.READ if snapshot_of else F.lit(False)
        if in_memory:
            counted = _count_in_memory(rows, key, is_read)
        else:
            count_keys = is_first_commit or bool(snapshot_of)
            counted = _count_in_spark(rows, key, is_read, count_keys)
        _write_dead_letters(rows, explain, counted, dead_letters)
        is_change = F.col("outcome").isin(decode.UPSERT, decode.DELETE)
        changes = rows.where(is_change)
        has_moves = tracks_moves and moves.occur(changes, table)
        changes = _to_changes(changes, table, columns, has_moves)
        hudi_options = table.options()
        is_bulk_insert, in_snapshot = is_first_commit, counted.all_read and counted.unique_keys
        if is_first_commit and (has_moves or not counted.unique_keys):
            changes = deduplicate(changes, table)
        elif in_snapshot and not is_first_commit and not in_memory:  # no small files
            is_bulk_insert = in_snapshot = snapshot.are_new(spark, table, changes)
        if is_bulk_insert:
            hudi_options.update(bulk_insert_options(counted.counts.get("upserts", 0), columns))
        if in_snapshot:
            hudi_options[snapshot.SNAPSHOT_KEY] = snapshot_of
        hudi_options.update({**table.extra, **options})
        changes.write.format("hudi").options(**hudi_options).mode("append").save(table.base)
    finally:
        if not in_memory:
            spark.catalog.dropTempView(view)
    return counted.counts


def _write_dead_letters(
    rows: DataFrame, explain: Optional[Callable[[], DataFrame]], counted: Counted, uri: str
) -> None:
    if "dead_letters" in counted.counts:
        explained = _drop_decoded_text(explain()) if explain else rows
        dead = explained.where(F.col("outcome") == decode.DEAD)
        dead = dead.select("reason", *decode.ORIGIN, "text")
        dead.coalesce(1).write.mode("overwrite").json(uri)
    else:
        files.remove(uri)  # of a failed attempt


def _drop_decoded_text(rows: DataFrame) -> DataFrame:
    """Return rows without keys, and with the texts of dead letters only."""
    text = F.when(F.col("outcome") == decode.DEAD, F.col("text"))
    return rows.select("row", "outcome", "reason", *decode.ORIGIN, text.alias("text"))


def _to_changes(
    changes: DataFrame, table: Table, columns: T.StructType, has_moves: bool
) -> DataFrame:
    """Return upserts and deletes with the columns of the table, and Hudi's flag of hard deletes."""
    if table.deletes != "hard":
        return changes.select("row.*").to(columns)
    # without otherwise(): nullable, so that a table written without this column accepts it
    is_deleted = F.when(F.col("outcome") == decode.DELETE, True).when(
        F.col("outcome") == decode.UPSERT, False
    )
    changes = changes.select("row", "offset", is_deleted.alias("is_deleted"))
    if has_moves:
        changes = moves.resolve(changes, table)
    return changes.select("row.*", F.col("is_deleted").alias(decode.DELETED)).to(
        T.StructType([*columns]).add(decode.DELETED, "boolean")
    )


def _count_in_spark(rows: DataFrame, key: Column, is_read: Column, count_keys: bool) -> Counted:
    """Count the rows of each outcome in one job.

    Args:
        rows: the batch.
        key: the record key.
        is_read: whether a row is a read of a snapshot.
        count_keys: whether to compare the keys, which takes two shuffles.
    """
    keys = F.count_distinct(key) if count_keys else F.lit(0)
    totals = F.count("*").alias("n"), keys.alias("keys"), F.count_if(is_read).alias("reads")
    groups = rows.groupBy("outcome").agg(*totals).collect()
    counts = {OUTCOMES[group["outcome"]]: group["n"] for group in groups}
    is_unique = all(g["n"] == g["keys"] for g in groups if g["outcome"] == decode.UPSERT)
    all_read = all(g["n"] == g["reads"] for g in groups) and counts.keys() == {"upserts"}
    return Counted(counts, is_unique and "deletes" not in counts, all_read)


def _count_in_memory(rows: DataFrame, key: Column, is_read: Column) -> Counted:
    """Count rows that are part of the query: without an aggregation Spark needs no job for them."""
    outcomes = rows.select("outcome", key.alias("key"), is_read.alias("is_read")).collect()
    keys = {tuple(row["key"]) for row in outcomes if row["outcome"] == decode.UPSERT}
    counts = dict(Counter(OUTCOMES[row["outcome"]] for row in outcomes))
    is_unique = len(keys) == counts.get("upserts", 0) and "deletes" not in counts
    all_read = all(row["is_read"] for row in outcomes) and counts.keys() == {"upserts"}
    return Counted(counts, is_unique, all_read)


def bulk_insert_options(rows: int, schema: T.StructType | None = None) -> dict[str, str]:
    """Return the Hudi options of a bulk insert: the first commit of a table, or a batch of a snapshot.

    Args:
        rows: approximate number of rows, one for each key (see `deduplicate`).
        schema: their columns.
    """
    options = dict(OPTION_GROUPS["first load"])
    if rows >= LARGE_LOAD_ROWS:
        options.update(OPTION_GROUPS["large first load"])
    if schema and needs_record_writer(schema):
        options.update(OPTION_GROUPS["first load by records"])
    return options


def deduplicate(rows: DataFrame, table: Table) -> DataFrame:
    """Return the row with the greatest ordering value of each key; none if that is a hard delete.

    As in an upsert, a key in two partitions counts as two unless the index is global.

    Hudi can do this, too (hoodie.combine.before.insert), but then with its record writer in place of
    the row writer, which takes twice as long.
    """
    fields = list(table.key)
    if not table.index.startswith("GLOBAL_"):
        fields += [name for name in table.partition if name not in fields]
    versions = Window.partitionBy(*fields).orderBy(F.col(table.ordering_column).desc())
    numbered = rows.withColumn("_version", F.row_number().over(versions))
    latest = numbered.where("_version = 1").drop("_version")
    return latest.where(~F.col(decode.DELETED)) if decode.DELETED in rows.columns else latest
