"""Bulk insert of a snapshot: the first batches of a table are written without an index lookup.

Debezium sends the rows of a snapshot with `op` = "r", then the changes. An upsert looks up each key in
the table and merges the row into a file. A row with a new key needs neither, so a batch of such rows
is a bulk insert. A table is in snapshot mode from its first commit on, as long as

- the commit before was made by the ingest of the same source, in this mode (SNAPSHOT_KEY);
- all messages of the batch are reads of a snapshot, and their keys differ;
- no key of the batch is in the table (`are_new`).

A batch that fails a condition is an upsert, and so are all later ones. A batch that is small enough to be
consumed in memory is an upsert, too, because a bulk insert would make a small file. It leaves the mode on.
A bulk insert writes the same rows as an upsert would: there is no earlier version to merge with, and no
delete in a log.

The keys are compared. Nothing that Debezium sends proves that a key is new. An interrupted snapshot
starts again, and sends all rows again. Their log position may be that of the first attempt, if nothing
was written between the two. The rows of a snapshot have no guaranteed order. Kafka's producer may
repeat a message unless it is idempotent; Connect's worker and the connector decide that. A comparison
also covers rows that another writer has inserted.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from .tables import Table, spark_reader
from .timeline import CompletedAction, extra_metadata

# Key in a commit's extra metadata: id of the source, if the table is in snapshot mode.
SNAPSHOT_KEY = "_workbench_snapshot"
OP = "__op"
READ = "r"  # value of OP in a snapshot


def is_possible(
    table: Table, actions: list[CompletedAction], source: str, rows: T.StructType
) -> bool:
    """Return whether a batch may be written in snapshot mode, before its rows are known.

    Args:
        table: the table.
        actions: its completed actions.
        source: id of the source.
        rows: the schema of the batch's rows.
    """
    if OP not in rows.fieldNames() or not compared_columns(table):
        return False
    # A second bulk insert into a bucket would make a second file of the bucket.
    if table.index == "BUCKET":
        return False
    return not actions or extra_metadata(actions[-1].metadata).get(SNAPSHOT_KEY) == source


def compared_columns(table: Table) -> list[str]:
    """Return the key columns that `are_new` compares.

    Spark reads a partition field from the name of its folder, where an empty text is null. Without
    these columns more keys are equal, never fewer.
    """
    return [name for name in table.key if name not in table.partition]


def are_new(spark: SparkSession, table: Table, rows: DataFrame) -> bool:
    """Return whether no key of the rows is in the table.

    Args:
        spark: the session.
        table: the table.
        rows: rows of a batch, with the columns of the table.
    """
    names = compared_columns(table)
    keys = rows.select(names)
    # Parquet skips the row groups outside of this range. Most snapshots are read in the order of the
    # key, and need no other row group.
    low, high = keys.agg(F.min(names[0]), F.max(names[0])).collect()[0]
    stored = spark_reader(spark).load(table.base).select(names)
    if isinstance(low, (int, str)):
        stored = stored.where(F.col(names[0]).between(F.lit(low), F.lit(high)))
    return stored.join(keys, names, "left_semi").isEmpty()
