"""Rows that move to another partition, in tables whose index searches only the key's own partition.

An update with another partition would leave the row in the old one, too. The source's log has the old
row, and the connector adds its key and partition to each update (Debezium: `add.fields` with
`before.<column>`). So the commit that writes the row also deletes it from the old partition.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ..base import LakeError
from ..base.added_columns import BEFORE
from .tables import Table, changeable_partition

NO_OLD_ROW = ("c", "r")  # operations of a row that is new: create, and read by a snapshot


def _location_fields(table: Table) -> list[str]:
    """Return the fields that say where a row is: its key, and its partition."""
    return list(dict.fromkeys((*table.key, *table.partition)))


def _required_fields(table: Table) -> list[str]:
    return ["__op", *(BEFORE + name for name in _location_fields(table))]


def is_tracked(schema: T.StructType, table: Table) -> bool:
    """Return whether the source shows moves that the table's index does not follow.

    Args:
        schema: the reader schema.
        table: the table.
    """
    types = {f.name: f.dataType for f in schema}
    has_fields = all(name in types for name in _required_fields(table)) and all(
        types[BEFORE + name] == types[name] for name in _location_fields(table)
    )
    return bool(changeable_partition(table)) and table.deletes == "hard" and has_fields


def check(schema: T.StructType, table: Table) -> None:
    """Raise LakeError for a table whose rows can move unnoticed by the ingest.

    That is a BUCKET table without the old values, or any table whose old values have another type.
    """
    if not changeable_partition(table) or is_tracked(schema, table):
        return
    has_old_values = set(_required_fields(table)).issubset(schema.fieldNames())
    if table.index != "BUCKET" and (table.deletes != "hard" or not has_old_values):
        return
    columns = ",".join(f"before.{name}" for name in _location_fields(table))
    raise LakeError(
        f"table {table.name} has the index {table.index}, and its partition field {changeable_partition(table)[0]} "
        "can change: without the old row of an update, a row that moves would be in both partitions",
        location=table.base,
        expected=f"the fields {', '.join(_required_fields(table))} in the source's schema, each old value "
        "of the type of the new one",
        hint="REPLICA IDENTITY FULL for the source table, and the old values in each event "
        f'("transforms.unwrap.add.fields": "op,…,{columns}"); or a table without partitions; or '
        'index="GLOBAL_SIMPLE", whose upserts take longer the larger the table is',
    )


def errors(schema: T.StructType, table: Table, is_delete: Column) -> list[tuple[Column, Column]]:
    """Return (condition, reason) of an update that lacks the old row.

    Args:
        schema: the reader schema.
        table: the table.
        is_delete: whether a row is a delete event.
    """
    if not is_tracked(schema, table):
        return []
    reason = (
        f"the update does not hold the old {changeable_partition(table)[0]} "
        "(REPLICA IDENTITY FULL, or a GLOBAL_ index, cures it)"
    )
    return [(~is_delete & ~_is_new() & ~_has_old_row(table), F.lit(reason))]


def occur(changes: DataFrame, table: Table) -> bool:
    """Return whether a row has moved.

    Args:
        changes: the upserts and deletes, with the column `row`.
        table: a table whose moves are tracked.
    """
    return bool(changes.where(_has_moved(table)).select(F.lit(1)).limit(1).collect())


def delete_old_rows(changes: DataFrame, table: Table) -> DataFrame:
    """Add a delete of the old row for each change that has moved it.

    For changes of different keys only. `resolve` takes several of one key; its query is slower.

    Args:
        changes: the upserts and deletes, with the columns `row` and `is_deleted`.
        table: a table whose moves are tracked.

    Returns:
        The columns `row` and `is_deleted`.
    """
    moved = changes.where(_has_moved(table))
    deletes = moved.select(_old_row(table).alias("row"), F.lit(True).alias("is_deleted"))
    return changes.select("row", "is_deleted").union(deletes)


def resolve(changes: DataFrame, table: Table) -> DataFrame:
    """Keep the newest change of each key, and delete the key from all other partitions of the batch.

    The deletes have the ordering value of the newest change. A key that moves several times, or moves
    back, is in one partition afterwards. Of two changes with the same ordering value the one with
    the greater offset is the newer one.

    Args:
        changes: the upserts and deletes, with the columns `row`, `is_deleted` and `offset`.
        table: a table whose moves are tracked.

    Returns:
        The columns `row` and `is_deleted`.
    """
    offset = F.col("offset")
    change = _change(F.col("row"), F.col("is_deleted"), offset, F.lit(1))
    old_place = _change(_old_row(table), F.lit(True), offset, F.lit(0))
    both = F.when(_has_moved(table), F.array(change, old_place)).otherwise(F.array(change))
    position = F.struct(f"change.row.{table.ordering_column}", "change.offset", "change.rank")
    newest = (
        changes.select(F.explode(both).alias("change"))
        .groupBy(*(F.col(f"change.row.{name}").alias(f"_key_{name}") for name in table.key))
        .agg(
            F.max_by("change", position).alias("change"),
            F.collect_set(
                F.struct(
                    *(
                        F.col(f"change.row.{name}").alias(name)
                        for name in changeable_partition(table)
                    )
                )
            ).alias("partitions"),
        )
    )
    old_partitions = F.filter(
        "partitions", lambda one: _path(one, table) != _path(F.col("change.row"), table)
    )
    deletes = F.transform(old_partitions, lambda one: _delete_in(one, table))
    latest = F.struct(
        F.col("change.row").alias("row"), F.col("change.is_deleted").alias("is_deleted")
    )
    return newest.select(F.explode(F.concat(F.array(latest), deletes)).alias("change")).select(
        "change.row", "change.is_deleted"
    )


def _change(row: Column, is_deleted: Column, offset: Column, rank: Column) -> Column:
    return F.struct(
        row.alias("row"), is_deleted.alias("is_deleted"), offset.alias("offset"), rank.alias("rank")
    )


def _old_row(table: Table) -> Column:
    """Return the column `row` with the old key and partition."""
    row = F.col("row")
    for name in _location_fields(table):
        row = row.withField(name, F.col("row")[BEFORE + name])
    return row


def _delete_in(partition: Column, table: Table) -> Column:
    """Return the newest change of a key as a hard delete in another partition."""
    row = F.col("change.row")
    for name in changeable_partition(table):
        row = row.withField(name, partition[name])
    return F.struct(row.alias("row"), F.lit(True).alias("is_deleted"))


def _is_new() -> Column:
    return F.coalesce(F.col("row.__op").isin(*NO_OLD_ROW), F.lit(False))


def _has_old_row(table: Table) -> Column:
    return F.forall(
        F.array(*(F.col(f"row.{BEFORE}{name}").isNotNull() for name in table.key)), lambda one: one
    )


def _has_moved(table: Table) -> Column:
    """Return whether a row has another key or partition than the old row."""
    row = F.col("row")
    moved = F.array(
        *(_text(row[BEFORE + name]) != _text(row[name]) for name in _location_fields(table))
    )
    return ~_is_new() & _has_old_row(table) & F.exists(moved, lambda one: one)


def _path(row: Column, table: Table) -> Column:
    """Return a value that is equal for two rows in one partition."""
    return F.array(*(_text(row[name]) for name in changeable_partition(table)))


def _text(value: Column) -> Column:
    """Return a value as text. Hudi has one partition for null and for an empty text."""
    return F.coalesce(value.cast("string"), F.lit(""))
