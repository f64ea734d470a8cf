"""Write one batch of decoded changes: count it, write its dead letters, commit the rest to the table.

The first commit of a table has nothing to merge with, so quicker ways to write it exist.
"""

from __future__ import annotations

import uuid
from collections import Counter
from typing import TYPE_CHECKING, Callable, Optional

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ..base import files
from ..spark.local_rows import run_once
from . import decode, moves
from .tables import OPTION_GROUPS, Table, needs_record_writer

if TYPE_CHECKING:
    import pyarrow

OUTCOMES = {
    decode.UPSERT: "upserts",
    decode.DELETE: "deletes",
    decode.TOMBSTONE: "tombstones",
    decode.DEAD: "dead_letters",
}
LARGE_LOAD_ROWS = 50_000


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
        if in_memory:
            rows, result = run_once(rows)
            counts, unique_keys = _count_in_memory(result, table)
        else:
            key = F.struct(*[f"row.{name}" for name in table.key])
            counts, unique_keys = _count_in_spark(rows, key, is_first_commit)
        if counts.get("dead_letters"):
            explained = _drop_decoded_text(explain()) if explain else rows
            dead = explained.where(F.col("outcome") == decode.DEAD)
            dead = dead.select("reason", *decode.ORIGIN, "text")
            dead.coalesce(1).write.mode("overwrite").json(dead_letters)
        else:
            files.remove(dead_letters)  # of a failed attempt
        is_change = F.col("outcome").isin(decode.UPSERT, decode.DELETE)
        changes = rows.where(is_change)
        has_moves = tracks_moves and moves.occur(changes, table)
        changes = _to_changes(changes, table, columns, has_moves)
        hudi_options = table.options()
        if is_first_commit:
            if has_moves or not unique_keys:
                changes = deduplicate(changes, table)
            hudi_options.update(bulk_insert_options(counts.get("upserts", 0), columns))
        hudi_options.update({**table.extra, **options})
        changes.write.format("hudi").options(**hudi_options).mode("append").save(table.base)
    finally:
        if not in_memory:
            spark.catalog.dropTempView(view)
    return counts


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


def _count_in_spark(rows: DataFrame, key: Column, count_keys: bool) -> tuple[dict[str, int], bool]:
    """Count the rows of each outcome in one job.

    Args:
        rows: the batch.
        key: the record key.
        count_keys: whether to compare the keys, which takes two shuffles.

    Returns:
        The counts, and whether all rows are upserts of different keys (if they were compared).
    """
    keys = F.count_distinct(key) if count_keys else F.lit(0)
    groups = rows.groupBy("outcome").agg(F.count("*").alias("n"), keys.alias("keys")).collect()
    counts = {OUTCOMES[group["outcome"]]: group["n"] for group in groups}
    is_unique = all(g["n"] == g["keys"] for g in groups if g["outcome"] == decode.UPSERT)
    return counts, is_unique and "deletes" not in counts


def _count_in_memory(rows: pyarrow.Table, table: Table) -> tuple[dict[str, int], bool]:
    """Count the rows of a batch that is here.

    Returns:
        As `_count_in_spark`.
    """
    import pyarrow.compute

    outcomes = rows["outcome"].to_pylist()
    # Only the keys: Python has no value for some times that a column may hold.
    fields = [pyarrow.compute.struct_field(rows["row"], name).to_pylist() for name in table.key]
    keys = {key for outcome, key in zip(outcomes, zip(*fields)) if outcome == decode.UPSERT}
    counts = Counter(OUTCOMES[outcome] for outcome in outcomes)
    return dict(counts), len(keys) == counts["upserts"] and not counts["deletes"]


def bulk_insert_options(rows: int, schema: T.StructType | None = None) -> dict[str, str]:
    """Return the Hudi options of the first commit of a table.

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
