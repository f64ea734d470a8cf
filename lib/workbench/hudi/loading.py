"""One batch of decoded changes into a table: it is counted, its dead letters are put aside, the
rest is one commit.

The first commit of a table has nothing to merge with, and so other ways to write it are quicker.
"""

from __future__ import annotations

import uuid
from collections import Counter

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ..base import files
from . import decode
from .tables import OPTION_GROUPS, Table, needs_record_writer

OUTCOMES = {
    decode.UPSERT: "upserts",
    decode.DELETE: "deletes",
    decode.TOMBSTONE: "tombstones",
    decode.DEAD: "dead_letters",
}
LARGE_LOAD_ROWS = 50_000  # rows


def write_batch(
    spark: SparkSession,
    rows: DataFrame,
    table: Table,
    letters: str,
    *,
    in_memory: bool,
    is_first_commit: bool,
    columns: T.StructType,
    options: dict[str, str],
) -> dict[str, int]:
    """Write a batch, and return how many it had of each of OUTCOMES.

    Args:
        rows: as decode gives them.
        letters: address of this batch's dead letters. Written over when it is done again, hence
            exactly once.
        few: the rows travel with the query.
        new: the table has no commit yet.
        columns: those of the table from now on; what the rows lack of them is null.
        options: go before the table's own.
    """
    is_dead = F.col("outcome") == decode.DEAD
    rows = rows.select(
        "row", "outcome", "reason", *decode.ORIGIN, F.when(is_dead, F.col("text")).alias("text")
    )
    view = f"workbench_batch_{uuid.uuid4().hex}"
    if not in_memory:
        # Parsed once for the counts, the dead letters and the table. By way of a view: Spark
        # Connect analyses a DataFrame anew for each action, and then takes what it reads from Kafka
        # for something else than what persist() has put into the cache.
        rows.createOrReplaceTempView(view)
        spark.catalog.cacheTable(view)
        rows = spark.table(view)
    try:
        key = F.struct(*[f"row.{name}" for name in table.key])
        counts, once = (
            _count_in_memory(rows, key)
            if in_memory
            else _count_in_spark(rows, key, is_first_commit)
        )
        if counts.get("dead_letters"):
            (
                rows.where(is_dead)
                .select("reason", *decode.ORIGIN, "text")
                .coalesce(1)
                .write.mode("overwrite")
                .json(letters)
            )
        else:
            files.remove(letters)  # of a try that failed
        # without otherwise(): nullable, so that a table written without this column takes it in
        flag = F.when(F.col("outcome") == decode.DELETE, True).when(
            F.col("outcome") == decode.UPSERT, False
        )
        flags = [flag.alias(decode.DELETED)] if table.deletes == "hard" else []
        written = rows.where(F.col("outcome").isin(decode.UPSERT, decode.DELETE)).select(
            "row.*", *flags
        )
        written = written.to(
            T.StructType(
                [*columns, *(T.StructField(decode.DELETED, T.BooleanType()) for _ in flags)]
            )
        )
        if is_first_commit and not once:
            written = deduplicate(written, table)
        first = bulk_insert_options(counts.get("upserts", 0), columns) if is_first_commit else {}
        written.write.format("hudi").options(
            **{**table.options(), **first, **table.extra, **options}
        ).mode("append").save(table.base)
    finally:
        if not in_memory:
            spark.catalog.dropTempView(view)
    return counts


def _count_in_spark(rows: DataFrame, key: Column, compare: bool) -> tuple[dict[str, int], bool]:
    """How many of each outcome, and whether all are upserts of different keys (if they are to be
    compared: that takes two shuffles), in one job.
    """
    keys = F.count_distinct(key) if compare else F.lit(0)
    found = rows.groupBy("outcome").agg(F.count("*").alias("n"), keys.alias("keys")).collect()
    counts = {OUTCOMES[r["outcome"]]: r["n"] for r in found}
    unique = all(r["n"] == r["keys"] for r in found if r["outcome"] == decode.UPSERT)
    return counts, unique and "deletes" not in counts


def _count_in_memory(rows: DataFrame, key: Column) -> tuple[dict[str, int], bool]:
    """The same for rows that travel with the query: without an aggregation Spark answers from them,
    without a job.
    """
    found = rows.select("outcome", key.alias("key")).collect()
    keys = Counter(tuple(r["key"]) for r in found if r["outcome"] == decode.UPSERT)
    counts = Counter(OUTCOMES[r["outcome"]] for r in found)
    return dict(counts), len(keys) == counts["upserts"] and not counts["deletes"]


def bulk_insert_options(rows: int, schema: T.StructType | None = None) -> dict[str, str]:
    """The Hudi options of the first commit of a table, for about so many rows, of each key one (see
    newest).
    """
    return {
        **OPTION_GROUPS["first load"],
        **(OPTION_GROUPS["large first load"] if rows >= LARGE_LOAD_ROWS else {}),
        **(
            OPTION_GROUPS["first load by records"] if schema and needs_record_writer(schema) else {}
        ),
    }


def deduplicate(rows: DataFrame, table: Table) -> DataFrame:
    """Of each key the row with the greatest ordering value, and none where that is a hard delete.

    As in an upsert, a key that is in two partitions counts as two where the index is not a global
    one.

    Hudi would do it too (hoodie.combine.before.insert), but then with its writer of records instead
    of that of rows, which takes twice as long.
    """
    fields = (
        table.key
        if table.index.startswith("GLOBAL_")
        else dict.fromkeys((*table.key, *table.partition))
    )
    versions = Window.partitionBy(*fields).orderBy(F.col(table.ordering_column).desc())
    last = (
        rows.withColumn("_version", F.row_number().over(versions))
        .where("_version = 1")
        .drop("_version")
    )
    return last.where(~F.col(decode.DELETED)) if decode.DELETED in rows.columns else last
