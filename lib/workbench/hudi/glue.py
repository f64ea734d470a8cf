"""A table's entries in the Glue catalog, as Hudi's own sync makes them (1.0: HiveSyncTool, AWSGlueCatalogSyncClient,
SparkDataSourceTableUtils). By them Athena reads a Hudi table, and Spark on EMR, whose catalog is Glue, too.

Athena looks at the table's timeline each time, so it sees a commit at once, but only those partitions that the catalog
has (Athena's guide, "Query Apache Hudi datasets"): whoever commits says so (`committed`).
"""
from __future__ import annotations

import json
import re
from typing import Any, Iterable
from urllib.parse import unquote

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from ..base import LakeError, StackError, World, aws, files
from ..spark import world_of
from ..topic import avro
from . import ddl
from .tables import Table, entries
from .timeline import Done, check_version, completed, properties, write_stats

META = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path",
        "_hoodie_file_name")
SYNCED = "last_commit_time_sync"
INPUT = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
REAL_TIME = "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
PARQUET = "org.apache.hadoop.hive.ql.io.parquet"
PART = 4000  # characters of Spark's schema in one property: what Hive's metastore holds, and Hudi's sync writes
THERE_OR_NOT = "AlreadyExistsException|EntityNotFoundException"  # codes
# {operation: (the list it takes, its longest)} (Glue's API reference)
BATCHES = {"batch_create_partition": ("PartitionInputList", 100), "batch_update_partition": ("Entries", 100),
           "batch_delete_partition": ("PartitionsToDelete", 25)}


def make_database(spark: SparkSession, name: str) -> None:
    """Make a database of the catalog where it is missing."""
    world = world_of(spark)
    given = {"DatabaseInput": {"Name": name}, "Tags": {aws.TAG: world.stack.deployment}}
    if not _found(world, "get_database", Name=name):
        _found(world, "create_database", **given)


def register(spark: SparkSession, table: Table) -> str:
    """Make the table's catalog entries, with all partitions, and return the name of the one that shows it as it is; one
    of another place is replaced.

    Raises: LakeError: there is no such table, or it is not of version 6; StackError: AWS refuses.
    """
    properties(table)
    make_database(spark, table.database)
    done = completed(table)
    for entry, view in entries(table).items():
        _sync(spark, table, entry, view, done)
    ddl.refresh(spark, table)
    return next(entry for entry, view in entries(table).items() if view == "snapshot")


def registered(spark: SparkSession, table: Table) -> bool:
    """Whether the catalog has the table's entries (the last that `register` makes)."""
    return _entry(world_of(spark), list(entries(table))[-1]) is not None


def unregister(spark: SparkSession, entry: str) -> None:
    """Remove an entry from the catalog; an absent one is fine."""
    database, _, name = entry.partition(".")
    _found(world_of(spark), "delete_table", DatabaseName=database, Name=name)


def committed(spark: SparkSession, table: Table) -> None:
    """Tell the entries that are there of new commits: new partitions and columns, partitions that are gone. Where there
    was no commit since they were told last, that costs one look at each. Raises as `register`."""
    world, done = world_of(spark), completed(table)
    for entry, view in entries(table).items():
        found = _entry(world, entry)
        if found and done and found["Parameters"].get(SYNCED) != done[-1].instant:
            _sync(spark, table, entry, view, done)


def _sync(spark: SparkSession, table: Table, entry: str, view: str, done: list[Done]) -> None:
    """Make an entry, or bring it up to date: the table, then its partitions, and at last up to which commit it is.
    done: completed(), whose bodies are read once for all entries."""
    check_version(table)
    world, (database, _, name) = world_of(spark), entry.partition(".")
    place = table.base.replace("s3a://", "s3://")
    wanted, found = _table(table, name, place, view, done), _entry(world, entry)
    if found and found["StorageDescriptor"]["Location"].rstrip("/") != place:
        unregister(spark, entry)
        found = None
    was = found["Parameters"] if found else {}
    told = {"DatabaseName": database, "TableInput": {**wanted, "Parameters": {**was, **wanted["Parameters"]}}}
    changed = bool(found) and _shown(found) != _shown(wanted)
    if not found:
        _found(world, "create_table", **told)
    elif changed:
        aws.call(world.region, "glue", "update_table", **told, SkipArchive=True)
    if table.partition:
        _sync_partitions(world, table, entry, wanted["StorageDescriptor"], was.get(SYNCED, ""), changed, done)
    told["TableInput"]["Parameters"][SYNCED] = done[-1].instant
    aws.call(world.region, "glue", "update_table", **told, SkipArchive=True)


def _table(table: Table, name: str, place: str, view: str, done: list[Done]) -> dict[str, Any]:
    """What an entry is. A column by which the table is partitioned is a partition key only, though the files have it,
    too: as both it would be HIVE_INVALID_METADATA to Athena. Spark's own properties have all columns, those last."""
    by_name = {**{name: T.StructField(name, T.StringType()) for name in META},
               **{field.name: field for field in _schema(table, done).fields}}
    keys = [by_name.pop(key, T.StructField(key, T.StringType())) for key in table.partition]
    spark_schema = T.StructType([*by_name.values(), *keys]).json()
    parts = [spark_schema[at:at + PART] for at in range(0, len(spark_schema), PART)]
    told = {"numParts": len(parts), **{f"part.{n}": part for n, part in enumerate(parts)},
            **({"numPartCols": len(keys), **{f"partCol.{n}": key.name for n, key in enumerate(keys)}} if keys else {})}
    return {
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "PartitionKeys": _columns(keys),
        "Parameters": {"EXTERNAL": "TRUE", "hudi.metadata-listing-enabled": "FALSE",
                       "spark.sql.sources.provider": "hudi",
                       **{f"spark.sql.sources.schema.{key}": str(value) for key, value in told.items()}},
        "StorageDescriptor": {
            "Columns": _columns(by_name.values()),
            "Location": place,
            "InputFormat": REAL_TIME if table.type == "mor" and view == "snapshot" else INPUT,
            "OutputFormat": f"{PARQUET}.MapredParquetOutputFormat",
            "SerdeInfo": {"SerializationLibrary": f"{PARQUET}.serde.ParquetHiveSerDe", "Parameters": {
                "serialization.format": "1", "path": place,
                "hoodie.query.as.ro.table": str(view == "read_optimized").lower()}}}}


def _shown(entry: dict[str, Any]) -> list[tuple[str, str]]:
    return [(column["Name"], column["Type"]) for column in entry["StorageDescriptor"]["Columns"]]


def _columns(fields: Iterable[T.StructField]) -> list[dict[str, str]]:
    """Spark calls its types as Hive does; Glue has small letters."""
    return [{"Name": field.name.lower(), "Type": field.dataType.simpleString().lower()} for field in fields]


def _schema(table: Table, done: list[Done]) -> T.StructType:
    """The columns of a table, as its last commit says them. Raises: LakeError: no commit has said any yet."""
    said = (commit.body.get("extraMetadata", {}).get("schema") for commit in reversed(done))
    text = next(filter(None, said), None)
    if text is None:
        raise LakeError(f"table {table.name} has no commit that says its columns", where=table.base,
                        next_step="ingest something into it first")
    return avro.to_spark(avro.rebuilt(json.loads(text), _bytes))


def _bytes(found: dict[str, Any]) -> dict[str, Any]:
    """Hudi writes a decimal as bytes of a fixed number: the same type to Spark."""
    return {**found, "type": "bytes"} if found.get("logicalType") == "decimal" else found


def _sync_partitions(world: World, table: Table, entry: str, storage: dict[str, Any], synced: str, changed: bool,
                     done: list[Done]) -> None:
    """Give an entry the partitions that have files; changed: those that it has get the new columns, too."""
    found = aws.pages(world.region, "glue", "get_partitions", "Partitions", ExcludeColumnSchema=True, **_at(entry))
    have = {tuple(one["Values"]) for one in found}
    since = [commit for commit in done if commit.instant > synced]
    written = {partition for commit in since for partition, _ in write_stats(commit.body)}
    if (not changed and synced in {commit.instant for commit in done} and set(map(_values, written)) <= have
            and "replacecommit" not in {commit.action for commit in since}):
        return  # nothing to look for among the files
    there = {_values(folder): {"Values": list(_values(folder)), "StorageDescriptor": {
        **storage, "Location": f"{storage['Location']}/{folder}"}} for folder in _folders(table)}
    _batches(world, entry, "batch_create_partition", [there[one] for one in sorted(there.keys() - have)])
    _batches(world, entry, "batch_update_partition", [{"PartitionValueList": list(one), "PartitionInput": there[one]}
                                                      for one in sorted(have & there.keys()) if changed])
    _batches(world, entry, "batch_delete_partition", [{"Values": list(one)} for one in sorted(have - there.keys())])


def _folders(table: Table) -> set[str]:
    """The partitions in which data files lie."""
    return {folder for folder, _, name in (path.rpartition("/") for path in files.below(table.base))
            if not folder.startswith(".hoodie") and (name.endswith(".parquet") or ".log." in name)}


def _values(folder: str) -> tuple[str, ...]:
    """`a=1/b=x%2Fy` is the values 1 and x/y."""
    return tuple(unquote(part.partition("=")[2] or part) for part in folder.split("/"))


def _batches(world: World, entry: str, operation: str, given: list[Any]) -> None:
    """Ask for a list in batches. What somebody else has made or removed meanwhile is as it should be."""
    key, most = BATCHES[operation]
    for at in range(0, len(given), most):
        answer = aws.call(world.region, "glue", operation, **_at(entry), **{key: given[at:at + most]})
        wrong = [one["ErrorDetail"] for one in answer.get("Errors", [])
                 if not re.search(THERE_OR_NOT, one["ErrorDetail"]["ErrorCode"])]
        if wrong:
            raise StackError(f"Glue refuses {len(wrong)} partitions of {entry}: {wrong[0].get('ErrorMessage')}",
                             where=f"glue.{operation}: {wrong[0]['ErrorCode']}", next_step="hudi.register tries again")


def _at(entry: str) -> dict[str, str]:
    database, _, name = entry.partition(".")
    return {"DatabaseName": database, "TableName": name}


def _entry(world: World, entry: str) -> dict[str, Any] | None:
    database, _, name = entry.partition(".")
    found = _found(world, "get_table", DatabaseName=database, Name=name)
    return found and {"Parameters": {}, "StorageDescriptor": {}, **found["Table"]}


def _found(world: World, operation: str, **given: Any) -> dict[str, Any] | None:
    """What Glue answers; None where there is no such thing, or, of what is to be made, where somebody just made it."""
    with aws.suppress(THERE_OR_NOT):
        return aws.call(world.region, "glue", operation, **given)
    return None
