"""Decode Avro messages and landed Avro files to rows, with the schemas they were written with.

The rows have the latest schema of the topic, plus the fields that only earlier schemas have. Fields
are matched by name.

In: the URIs of files, which `group_by_schema` reads in this process; or messages with the columns
`schema` (the schema id) and `body` (the Avro data) that topic.wire adds. Both are null if the value is
not in the wire format. Out: what decode.rows returns. Spark expressions only, no Python inside Spark.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from functools import reduce
from typing import Any, Iterable, Mapping, Optional, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.avro.functions import from_avro

from ..base import LakeError, World, files
from ..topic import avro, registry, wire
from . import analyst_types, decode
from .evolution import TEXT_CONVERSIONS, is_wider_decimal, leaf_types, merge_schemas
from .tables import Table

# Appended to the Avro of each message, and read as one more field. from_avro itself overlooks
# trailing bytes, and returns a row of nulls for bytes that it cannot decode. With the marker a message
# is decoded exactly or not at all.
END_MARKER = b"\xffworkbench: end\xff"
# (from, to): the promotions of the Avro specification, "Schema Resolution"
AVRO_PROMOTIONS = {
    ("int", "bigint"),
    ("int", "float"),
    ("int", "double"),
    ("bigint", "float"),
    ("bigint", "double"),
    ("float", "double"),
    ("string", "binary"),
    ("binary", "string"),
}
# Greatest number of columns that the schemas of one batch may add to a table. More are a mistake, or
# an attempt to make the table useless.
MAX_NEW_COLUMNS = 200


class SchemaResolver:
    """Resolve the writer schemas and the reader schema of one topic's values.

    Attributes:
        latest_schema: the explicit reader schema; else the latest accepted version of
            `<topic>-value`, or of the schemas that landed files contain. It is updated when a new
            schema is resolved.
        reader_schema: the explicit one; else the latest schema plus the fields that only resolved
            schemas have. So a message from before a column was dropped still has its value.
        is_explicit: whether a reader schema was given.
        table_schema: the columns of the table; None before its first commit.
        scales: the digits after the point of analyst types (see analyst_types.convert); None for the
            types that are sent.
        as_numbers: whether dates and times are sent as numbers to Spark, as analyst types need them.
        rejected: {schema id: why its messages become dead letters; "" if they do not}. A schema is
            rejected if its record has another name than the latest schema's, if the batch would add more
            than MAX_NEW_COLUMNS columns, or if a table with analyst types has a column with a default that
            may be null. Empty with an explicit reader schema.
    """

    def __init__(
        self,
        world: World,
        topic: str,
        reader_schema: Optional[T.StructType] = None,
        table_schema: Optional[T.StructType] = None,
        scales: Optional[Mapping[str, int]] = None,
        as_numbers: bool = False,
    ):
        """Start without schemas, except those given."""
        self.world, self.topic = world, topic
        self.reader_schema = self.latest_schema = reader_schema
        self.is_explicit = reader_schema is not None
        self.table_schema = table_schema
        self.scales, self.as_numbers = scales, as_numbers
        self.rejected: dict[str, str] = {}
        self._resolved: dict[str, Any] = {}

    @property
    def row_schema(self) -> T.StructType:
        """The reader schema after the first `resolve`."""
        assert self.reader_schema is not None, "no schema is resolved"
        return self.reader_schema

    def resolve(
        self,
        ids: Iterable[str],
        latest: Optional[dict[str, Any]] = None,
        use_registry: bool = True,
    ) -> dict[str, Any]:
        """Return {id: Avro schema} of a batch's schemas, and update the reader schema.

        A schema that the registry does not know is None, and is fetched again with each batch.

        Args:
            ids: schema ids of messages; of landed files the JSON of their schemas.
            latest: of landed files, the latest of their schemas; by default the registry's version of
                the topic.
            use_registry: whether to fetch the latest version from the registry if `latest` is None.
                If False, the reader schema does not change then.

        Raises:
            StackError: the registry does not respond.
            LakeError: the registry has no `<topic>-value`; the schemas have incompatible or
                unsupported types; or the latest schema is unsafe and there is no previous one. With a
                previous one, an unsafe latest schema is ignored, and so is one that adds too many
                columns.
        """
        new = {}
        for id in sorted(set(ids) - set(self._resolved), key=lambda id: (len(id), id)):
            avsc = self._fetch(id)
            if avsc is not None:
                new[id] = avro.for_spark(avsc, self.as_numbers)
        needs_update = not self.is_explicit and (new or self.reader_schema is None)
        if needs_update and (latest or use_registry):
            latest = latest or registry.latest(self.world, f"{self.topic}-value")
            self._update_reader_schema(new, avro.for_spark(latest, self.as_numbers))
        self._resolved.update(new)  # last: after an error all are fetched again
        return {id: self._resolved.get(id) for id in sorted(ids)}

    def _update_reader_schema(self, new: dict[str, Any], latest: dict[str, Any]) -> None:
        """Merge the present reader schema, the new schemas and the latest one."""
        name, previous = avro.full_name(latest), self.reader_schema or self.table_schema
        self.latest_schema = self._accept_latest(latest, previous)
        previous_paths = leaf_types(previous or self.latest_schema).keys()
        added: set[tuple[str, ...]] = set()
        versions = [self.reader_schema] if self.reader_schema else []
        for id, avsc in new.items():
            if avro.is_record(avsc) and avro.full_name(avsc) != name:
                self.rejected[id] = (
                    f"its record is {avro.full_name(avsc)}, and the topic's is {name}"
                )
                continue
            with contextlib.suppress(LakeError):  # what Spark cannot read is a dead letter
                version = self._columns(avsc)
                paths = added | leaf_types(version).keys() - previous_paths
                self.rejected[id] = self._default_reason(avsc) or _excess_reason(paths)
                if not self.rejected[id]:
                    versions.append(version)
                    added = paths
        self.reader_schema = merge_schemas(name, *versions, self.latest_schema)

    def _default_reason(self, avsc: dict[str, Any]) -> str:
        """Return why a schema for analyst types is rejected: a null would be the column's default."""
        loose = [
            field["name"]
            for field in avsc.get("fields", ())
            if "null" in field["type"] and field.get("default") is not None
        ]
        if not loose or self.scales is None:
            return ""
        return (
            f"Avro cannot tell a null of {', '.join(loose)} from the column's default: drop the default, and update "
            "the row; or capture the table again with --format json"
        )

    def _accept_latest(
        self, latest: dict[str, Any], previous: Optional[T.StructType]
    ) -> T.StructType:
        """Return the latest schema; the previous one if it is unsafe or adds too many columns.

        Raises:
            UnsafeSchema: it is unsafe, and there is no previous one.
        """
        if not previous:
            return self._columns(latest)
        with contextlib.suppress(avro.UnsafeSchema):
            schema = self._columns(latest)
            if not _excess_reason(leaf_types(schema).keys() - leaf_types(previous).keys()):
                return schema
        return self.latest_schema or previous

    def _fetch(self, id: str) -> Any:
        kind, _, number = id.partition(" ")
        return registry.find(self.world, number, kind) if kind in wire.ID_KINDS else json.loads(id)

    def _columns(self, avsc: dict[str, Any]) -> T.StructType:
        """Return the columns of rows that are sent with a schema."""
        if self.scales is None:
            return avro.to_spark(avsc)
        return analyst_types.convert("row", avsc, self.scales).schema

    def convert(self, record: str, id: str, name: str) -> tuple[decode.ConvertedRow, str]:
        """Convert a record of a resolved schema to the reader schema.

        Args:
            record: name of the column that has the record, as from_avro returns it.
            id: id of its schema.
            name: name of the schema in the reason.

        Returns:
            The record and ""; or null, and why no message of the schema is decoded.
        """
        reason, avsc, want = self.rejected.get(id, ""), self._resolved[id], self.row_schema
        if not reason:
            try:
                have, row, lost = avro.to_spark(avsc), F.col(record), F.lit(None).cast("string")
                if self.scales is not None:
                    have, row, lost = analyst_types.convert(record, avsc, self.scales, want.names)
                row = _convert(row, have, want, avro.full_name(avsc), self.is_explicit)
                return decode.ConvertedRow(want, row, lost), ""
            except LakeError as e:
                reason = _unreadable_reason(e)
        reason = f"schema {name} cannot be read: {reason}"
        return decode.ConvertedRow(want, F.lit(None).cast(want), F.lit(reason)), reason


def rows(raw: DataFrame, ids: Iterable[str], resolver: SchemaResolver, table: Table) -> DataFrame:
    """Decode Avro messages.

    Args:
        raw: columns `key`, `value`, `schema`, `body`, `topic`, `partition`, `offset`, `file`.
        ids: ids of all schemas in it.
        resolver: the schemas of the topic.
        table: the table that the rows are for.

    Returns:
        `key`, `topic`, `partition`, `offset`, `file`, plus `row`, `outcome`, `reason` and `text` as
        decode.rows returns them. The text has the bytes of the message.

    Raises:
        LakeError: the reader schema lacks a key, ordering or partition field; and as
            SchemaResolver.resolve.
        StackError: the registry does not respond.
    """
    messages = decode.add_columns(raw, text=F.col("value").cast("string"))
    decoded, errors = decode_messages(messages, ids, resolver)
    is_tombstone = F.col("value").isNull()
    classified = decode.classify(decoded, resolver.row_schema, is_tombstone, errors, table)
    return classified.select(*decode.OUTPUT_COLUMNS)


def decode_messages(
    raw: DataFrame, ids: Iterable[str], resolver: SchemaResolver
) -> tuple[DataFrame, list[tuple[Column, Column]]]:
    """Decode Avro messages without a classification; they may be a stream.

    Args:
        raw: as for `rows`.
        ids: ids of all schemas in it.
        resolver: the schemas of the topic.

    Returns:
        `raw` plus `row`, which is null where a message cannot be decoded, and `lost` (see
        decode.ConvertedRow); and the (condition, reason) of each kind of error.

    Raises:
        LakeError: as SchemaResolver.resolve.
        StackError: the registry does not respond.
    """
    schemas, schema_id = resolver.resolve(ids), F.col("schema")
    errors = [(schema_id.isNull(), F.lit(wire.not_avro_reason(resolver.world)))]
    decoded, row = raw, F.lit(None).cast(resolver.row_schema)
    lost = F.lit(None).cast("string")
    for n, (id, avsc) in enumerate(schemas.items()):
        has_schema, column = schema_id == id, f"_avro{n}"
        if avsc is None:
            errors.append(
                (has_schema, F.lit(wire.unknown_schema_reason(resolver.world).format(id)))
            )
            continue
        converted, reason = resolver.convert(f"{column}.row", id, id)
        if reason:
            errors.append((has_schema, F.lit(reason)))
            continue
        message = F.when(has_schema, _from_avro(F.col("body"), avsc))
        decoded = decode.add_columns(decoded, **{column: message})
        is_exact = F.col(f"{column}.end").eqNullSafe(F.lit(END_MARKER))
        row = F.when(has_schema & is_exact, converted.value).otherwise(row)
        lost = F.when(has_schema, converted.lost).otherwise(lost)
    not_decoded = F.concat(F.lit("the bytes are not Avro of schema "), schema_id)
    errors.append((F.col("row").isNull(), not_decoded))
    decoded = decode.add_columns(decoded, row=row)
    return decode.add_columns(decoded, lost=lost), errors


def group_by_schema(uris: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Group Avro files by the schema they were written with.

    The files are read completely. A truncated one would fail the batch of all others when Spark
    reaches its end.

    Returns:
        {JSON of the schema: URIs} of the valid files, and {URI: reason} of the others.
    """
    valid: dict[str, list[str]] = {}
    broken = {}
    for uri in uris:
        try:
            valid.setdefault(avro.container_schema(files.read_bytes(uri)), []).append(uri)
        except ValueError as e:
            broken[uri] = f"not a whole Avro file: {e}"
    return valid, broken


def latest_file_schema(
    valid: dict[str, list[str]], uris: Sequence[str]
) -> Optional[dict[str, Any]]:
    """Return the latest schema of landed files; None if no file holds records.

    Files whose record does not have the most common name are ignored. The last of the others has it.

    Args:
        valid: the valid files, as `group_by_schema` returns them.
        uris: all files, in reading order.
    """
    schemas: dict[str, Any] = {}
    for text, group in valid.items():
        schemas.update(dict.fromkeys(group, json.loads(text)))
    records = [schemas[uri] for uri in uris if uri in schemas and avro.is_record(schemas[uri])]
    if not records:
        return None
    ((most_common, _),) = Counter(map(avro.full_name, records)).most_common(1)
    latest: dict[str, Any] = [r for r in records if avro.full_name(r) == most_common][-1]
    return latest


def read_files(
    spark: SparkSession, uris: Sequence[str], resolver: SchemaResolver, table: Table
) -> DataFrame:
    """Read the records of landed files, with the schemas that they contain. No registry is used.

    Args:
        spark: the session.
        uris: the files, in reading order.
        resolver: the schemas of the topic.
        table: the table that the rows are for.

    Returns:
        As `rows`; topic, partition and offset are null, the text is the record as JSON. A file that
        cannot be read is one dead letter without a text.

    Raises:
        LakeError: the reader schema lacks a key, ordering or partition field. Or no file holds
            records, and there is neither a table nor a reader schema.
    """
    valid, broken = group_by_schema(uris)
    latest = latest_file_schema(valid, uris)
    if latest is None and resolver.reader_schema is None:
        resolver.reader_schema = resolver.table_schema
        if resolver.reader_schema is None:
            raise LakeError(
                "no landed file contains Avro records",
                location=uris[0],
                expected="Avro object container files",
                hint=next(iter(broken.values()), "look at the files"),
            )
    schemas = resolver.resolve(valid, latest, use_registry=False)
    parts = []
    for id, group in valid.items():
        name = avro.full_name(schemas[id])
        try:
            avro.to_spark(schemas[id])
        except LakeError as e:
            reason = f"schema {name} cannot be read: {_unreadable_reason(e)}"
            broken.update(dict.fromkeys(group, reason))
            continue
        converted, _ = resolver.convert("record", id, name)
        records = decode.add_columns(_read_records(spark, group, schemas[id]), row=converted.value)
        text = F.to_json("record", {"ignoreNullFields": "false"}).alias("text")
        parts.append(records.select("file", "row", converted.lost.alias("lost"), text))
    if broken:
        errors = spark.createDataFrame(sorted(broken.items()), "file string, lost string")
        no_row, no_text = F.lit(None).cast(resolver.row_schema), F.lit(None).cast("string")
        parts.append(errors.withColumns({"row": no_row, "text": no_text}))
    decoded = reduce(lambda a, b: a.unionByName(b), parts).select(
        "*", *decode.null_message_columns()
    )
    classified = decode.classify(decoded, resolver.row_schema, F.lit(False), [], table)
    return classified.select(*decode.OUTPUT_COLUMNS)


def _read_records(spark: SparkSession, uris: list[str], avsc: dict[str, Any]) -> DataFrame:
    reader = spark.read.format("avro").options(
        avroSchema=json.dumps(avsc), datetimeRebaseMode="CORRECTED"
    )
    return reader.load(uris).select(
        F.struct("*").alias("record"), F.input_file_name().alias("file")
    )


def _excess_reason(added: set[tuple[str, ...]]) -> str:
    """Return why a schema is rejected if a batch adds more than MAX_NEW_COLUMNS columns; "" otherwise."""
    if len(added) <= MAX_NEW_COLUMNS:
        return ""
    return (
        f"with it a batch adds {len(added):,} columns; at most {MAX_NEW_COLUMNS} are added automatically "
        "(hudi.ingest with schema=… names the intended ones)"
    )


def _unreadable_reason(error: LakeError) -> str:
    return f"{error.message} ({error.location})"


def _from_avro(body: Column, avsc: dict[str, Any]) -> Column:
    """Return struct<row, end>; `end` is END_MARKER if the bytes are exactly one record of the schema."""
    message = {
        "type": "record",
        "name": "workbench_message",
        "fields": [
            {"name": "row", "type": avsc},
            {
                "name": "end",
                "type": {"type": "fixed", "name": "workbench_end", "size": len(END_MARKER)},
            },
        ],
    }
    # CORRECTED: one calendar for all time; by default Spark refuses days before 1582
    options = {"mode": "PERMISSIVE", "datetimeRebaseMode": "CORRECTED"}
    return from_avro(F.concat(body, F.lit(END_MARKER)), json.dumps(message), options)


def _convert(
    column: Column, have: T.DataType, want: T.DataType, path: str, is_explicit: bool = False
) -> Column:
    """Convert a value: records by field name (a missing one is null), numbers to wider ones.

    Args:
        column: the value.
        have: its type.
        want: the type of the result.
        path: name of the value, for error messages.
        is_explicit: whether a user chose the type: then a whole number may also become a text.

    Raises:
        LakeError: Avro does not allow this conversion; names the field.
    """
    names = have.simpleString(), want.simpleString()
    if names[0] == names[1]:
        return column
    if isinstance(have, T.StructType) and isinstance(want, T.StructType):
        return _convert_record(column, have, want, path, is_explicit)
    if isinstance(have, T.ArrayType) and isinstance(want, T.ArrayType):
        return F.transform(
            column, lambda v: _convert(v, have.elementType, want.elementType, f"{path}[]")
        )
    if isinstance(have, T.MapType) and isinstance(want, T.MapType):
        return F.transform_values(
            column, lambda _, v: _convert(v, have.valueType, want.valueType, f"{path}{{}}")
        )
    is_text = is_explicit and names in TEXT_CONVERSIONS
    if names in AVRO_PROMOTIONS or is_text or is_wider_decimal(have, want):
        return column.cast(want)
    raise LakeError(f"it is written as {names[0]} and cannot be read as {names[1]}", location=path)


def _convert_record(
    column: Column, have: T.StructType, want: T.StructType, path: str, is_explicit: bool
) -> Column:
    types = {f.name: f.dataType for f in have}
    fields = []
    for f in want:
        if f.name in types:
            field, field_path = column.getField(f.name), f"{path}.{f.name}"
            value = _convert(field, types[f.name], f.dataType, field_path, is_explicit)
        else:
            value = F.lit(None).cast(f.dataType)
        fields.append(value.alias(f.name))
    return F.when(column.isNotNull(), F.struct(*fields))
