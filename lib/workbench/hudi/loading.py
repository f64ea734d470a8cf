"""Write to a table: one batch of decoded changes, or all rows anew.

A batch is counted, its dead letters are written, and the rest is committed. The first commit of a table has nothing to
merge with, so quicker ways to write it exist.
"""

from __future__ import annotations

import uuid
from collections import Counter

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ..base import LakeError
from ..spark.local_rows import run_once
from . import ddl, decode
from .tables import OPTION_GROUPS, Table, commit_lock, needs_record_writer
from .timeline import check_clock, check_version, pending_compactions

OUTCOMES = {
    decode.UPSERT: "upserts",
    decode.DELETE: "deletes",
    decode.TOMBSTONE: "tombstones",
    decode.DEAD: "dead_letters",
}
# {column: its SQL} of the message of a dead letter. The text of one that is not text is its base64; Avro with a schema
# id may be UTF-8, too.
MESSAGE_OF_DEAD_LETTER = {
    "text": r"if(encode(text, 'UTF-8') = CAST(text AS binary) AND NOT contains(text, '\0'), text, "
    "base64(CAST(text AS binary)))",
    "key": "base64(CAST(key AS binary))",
    "value": "if(topic IS NOT NULL, base64(CAST(text AS binary)), NULL)",
}
LARGE_LOAD_ROWS = 50_000
REWRITE_OPERATION = "INSERT_OVERWRITE_TABLE"  # in the commit's metadata


def write_batch(
    spark: SparkSession,
    rows: DataFrame,
    table: Table,
    dead_letters: str,
    *,
    in_memory: bool,
    is_first_commit: bool,
    columns: T.StructType,
    options: dict[str, str],
) -> dict[str, int]:
    """Write a batch.

    Args:
        spark: the session.
        rows: as decode.rows returns them.
        table: the table.
        dead_letters: URI of this batch's dead letters, which are written before the commit.
        in_memory: whether the rows are part of the query.
        is_first_commit: whether the table has no commit yet.
        columns: the columns of the table from now on; those that the rows lack are null.
        options: Hudi options, which take precedence over the table's own.

    Returns:
        The number of rows of each of OUTCOMES; without those that do not occur.
    """
    rows = _drop_decoded_messages(rows)
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
            counts = dict(Counter(OUTCOMES[outcome] for outcome in result["outcome"].to_pylist()))
            has_unique_keys = False  # not compared: to deduplicate a few rows costs little
        else:
            key = F.struct(*[f"row.{name}" for name in table.record_key])
            counts, has_unique_keys = _count_in_spark(rows, key, is_first_commit)
        if counts.get("dead_letters"):
            dead = rows.where(F.col("outcome") == decode.DEAD)
            dead = dead.select("reason", *decode.ORIGIN, "text", "key", "value")
            dead.coalesce(1).write.json(dead_letters)
        is_change = F.col("outcome").isin(decode.UPSERT, decode.DELETE)
        changes = to_changes(rows.where(is_change), table, columns)
        hudi_options = table.options()
        if is_first_commit:
            if not has_unique_keys or counts.get("deletes"):
                changes = deduplicate(changes, table)
            hudi_options.update(bulk_insert_options(counts.get("upserts", 0), columns))
        if needs_record_writer(columns):
            hudi_options.update(OPTION_GROUPS["compaction by records"])
        hudi_options.update({**table.extra, **options})
        changes.write.format("hudi").options(**hudi_options).mode("append").save(table.base)
    finally:
        if not in_memory:
            spark.catalog.dropTempView(view)
    return counts


def _drop_decoded_messages(rows: DataFrame) -> DataFrame:
    """Return rows with the messages of dead letters only (see MESSAGE_OF_DEAD_LETTER)."""
    kept = [
        F.expr(f"if(outcome = '{decode.DEAD}', {sql}, NULL)").alias(name)
        for name, sql in MESSAGE_OF_DEAD_LETTER.items()
    ]
    return rows.select("row", "outcome", "reason", *decode.ORIGIN, *kept)


def to_changes(changes: DataFrame, table: Table, columns: T.StructType) -> DataFrame:
    """Return upserts and deletes with the columns of the table, and Hudi's flag of hard deletes.

    Args:
        changes: the upserts and deletes.
        table: the table.
        columns: the columns of the table.
    """
    if table.deletes != "hard":
        return changes.select("row.*").to(columns)
    # without otherwise(): nullable, so that a table written without this column accepts it
    is_delete = F.col("outcome") == decode.DELETE
    is_deleted = F.when(is_delete, True).when(~is_delete, False)
    return changes.select("row.*", is_deleted.alias(decode.DELETED)).to(
        T.StructType([*columns]).add(decode.DELETED, "boolean")
    )


def _count_in_spark(rows: DataFrame, key: Column, count_keys: bool) -> tuple[dict[str, int], bool]:
    """Count the rows of each outcome in one job.

    Args:
        rows: the batch.
        key: the record key.
        count_keys: whether to compare the keys, which takes two shuffles.

    Returns:
        The counts, and whether all upserts are of different keys (if they were compared).
    """
    keys = F.count_distinct(key) if count_keys else F.lit(0)
    groups = rows.groupBy("outcome").agg(F.count("*").alias("n"), keys.alias("keys")).collect()
    counts = {OUTCOMES[group["outcome"]]: group["n"] for group in groups}
    is_unique = all(g["n"] == g["keys"] for g in groups if g["outcome"] == decode.UPSERT)
    return counts, is_unique


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

    Hudi can do this, too (hoodie.combine.before.insert), but then with its record writer in place of
    the row writer, which takes twice as long.
    """
    versions = Window.partitionBy(*table.record_key).orderBy(F.col(table.ordering_column).desc())
    numbered = rows.withColumn("_version", F.row_number().over(versions))
    latest = numbered.where("_version = 1").drop("_version")
    return latest.where(~F.col(decode.DELETED)) if decode.DELETED in rows.columns else latest


def rewrite(
    spark: SparkSession,
    table: Table,
    rows: DataFrame,
    columns: T.StructType,
    options: dict[str, str],
) -> None:
    """Replace the rows and the columns of a table in one commit.

    An ingest does this when a column gets a type that Hudi's readers do not apply to older files. Before the
    commit every reader sees the old rows, after it the new ones. Instants before it can still be read as they
    were. To an incremental read every row is new.

    Args:
        spark: the session.
        table: the table, which has a commit.
        rows: the new rows, one for each key; they may be read from the table itself.
        columns: the columns of the table from now on. A column that the rows lack is null.
        options: Hudi options, which take precedence over the table's own.

    Raises:
        LakeError: a compaction is planned, and the table's commits do not compact; or it was planned meanwhile.
    """
    # without inline compaction another process may be running the plan
    may_run = table.extra.get(ddl.INLINE_COMPACTION) != "false"
    if may_run and pending_compactions(table):
        ddl.compact(spark, table, "run")
    check_clock(table)
    hudi_options = {**table.options(), **OPTION_GROUPS["rewrite"]}
    hudi_options.update({**table.extra, **options})
    with commit_lock(table):
        if pending_compactions(table):
            raise LakeError(
                f"a compaction of {table.name} is planned: its files would be replaced by those of all rows anew",
                location=table.base,
                hint="wait until it is done, then run the ingest again; "
                "if its process was killed: hudi.compact(spark, table, 'run')",
            )
        changes = rows.to(columns).write.format("hudi").options(**hudi_options)
        changes.mode("append").save(table.base)
    finish_rewrite(spark, table)


def finish_rewrite(spark: SparkSession, table: Table) -> None:
    """Check the table's version, and update its catalog entries, if any, to its columns."""
    check_version(table)
    if ddl.is_registered(spark, table):
        ddl.register(spark, table)
