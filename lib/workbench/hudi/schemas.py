"""The schemas that the messages of a source were written with, and the schema of the rows they become.

A message in Avro names a schema of the registry, a landed file of Avro contains its schema, and a
message of Connect's JSON carries it. All become schemas of Kafka Connect. The rows have the latest
schema, plus the fields that only earlier schemas have. Fields are matched by name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ..base import LakeError, World
from ..topic import connect_schema
from . import analyst_types
from .evolution import merge_schemas

# Greatest number of schemas of one batch that are requested or read, besides the topic's own. A topic
# has a few; garbage may name as many as it has messages.
MAX_SCHEMAS = 100


@dataclass(frozen=True)
class WriterSchema:
    """A schema that messages were written with.

    Attributes:
        definition: the schema as it was found: in Avro, or of Kafka Connect.
        connect: the schema of Kafka Connect.
        sent: type of the records as they are sent.
        columns: type of the rows that the records become.
        error: why the records cannot be read; None if they can.
    """

    definition: Any
    connect: dict[str, Any] = field(default_factory=dict)
    sent: T.StructType = field(default_factory=T.StructType)
    columns: T.StructType = field(default_factory=T.StructType)
    error: Optional[LakeError] = None


class Schemas:
    """The schemas of one source, and how messages are parsed with them; a base class.

    Attributes:
        differ: whether messages may have different schemas.
        sends_numbers: whether dates and times are sent as numbers only.
        columns: the columns of the table, widened to hold the records of every accepted schema; None before
            the first schema of a new table. So a message from before a column was dropped still has its value.
        scales: the digits after the point of analyst types (see analyst_types.convert); None for the
            types that are sent.
        as_numbers: whether dates and times are numbers to Spark, as analyst types need them.
        latest: the latest accepted schema; None before the first one is resolved.
        resolved: {id: schema}.
    """

    differ = True
    sends_numbers = False

    def __init__(
        self,
        world: World,
        topic: str,
        columns: Optional[T.StructType] = None,
        scales: Optional[Mapping[str, int]] = None,
    ):
        """Start without schemas."""
        self.world, self.topic = world, topic
        self.columns, self.scales = columns, scales
        self.as_numbers = self.sends_numbers or scales is not None
        self.latest: Optional[WriterSchema] = None
        self.resolved: dict[str, WriterSchema] = {}

    @property
    def row_schema(self) -> T.StructType:
        """The columns of the rows after the first schema is resolved."""
        assert self.columns is not None, "no schema is resolved"
        return self.columns

    def split(self, messages: DataFrame) -> DataFrame:
        """Return messages with two more columns, which `parse` uses: `schema` (its id) and `body`.

        Args:
            messages: columns `key`, `value`, `topic`, `partition`, `offset`, `file`.
        """
        raise NotImplementedError

    def resolve(self, counts: Counter[str]) -> list[str]:
        """Return the ids of the known schemas of a batch, and update the columns.

        Args:
            counts: {id: messages}, that of the newest message first.

        Raises:
            StackError: the registry does not respond.
            LakeError: there is no schema; the schemas have incompatible types, or the latest one has
                unsupported types.
        """
        raise NotImplementedError

    def parse(self, id: str) -> Column:
        """Return a struct with the record of a message, `payload`, which is null for a JSON null.

        Args:
            id: id of the schema of the message.
        """
        raise NotImplementedError

    def error(self, parsed: str, id: str) -> Column:
        """Return why a message is not exactly one record; null if it is.

        Args:
            parsed: name of the column with the result of `parse`.
            id: id of the schema of the message.
        """
        raise NotImplementedError

    def not_parsed(self, reason: Column) -> Column:
        """Return why a message is a dead letter that is not parsed; null if it has no record.

        Args:
            reason: why it is not.
        """
        return reason

    def unknown_reason(self) -> Column:
        """Return why a message of no known schema is not parsed."""
        raise NotImplementedError

    def name(self, id: str) -> str:
        """Return the name of a schema in the reason of a dead letter."""
        return id

    def read(self, definition: Any) -> WriterSchema:
        """Read a schema, with its error if Spark has no such types."""
        try:
            connect = self.connect_schema(definition)
            sent = columns = connect_schema.to_spark(connect, self.as_numbers)
            if self.scales is not None:
                columns, *_ = analyst_types.convert("row", connect, self.scales)
        except LakeError as e:
            return WriterSchema(definition, error=e)
        return WriterSchema(definition, connect, sent, columns)

    def add(self, found: Mapping[str, WriterSchema], latest: Optional[WriterSchema]) -> None:
        """Add schemas that were found, and update the columns. After an error nothing is changed.

        Args:
            found: {id: schema}; those that are resolved are ignored.
            latest: the latest schema; None if it is not known.

        Raises:
            LakeError: as `resolve`.
        """
        # by number, the oldest first: the order of the columns in a new table
        new = sorted(found.keys() - self.resolved.keys(), key=lambda id: (len(id), id))
        resolved = {**self.resolved, **{id: found[id] for id in new}}
        if latest and (new or not self.latest):
            self._update_columns(resolved, latest)
        if self.columns is None:
            raise LakeError(
                "no message has a schema that can be read",
                location=self.topic,
                expected='{"schema": {"type": "struct", …}, "payload": …}; of landed Avro files: records',
                hint="JSON: set value.converter.schemas.enable=true and field.name.adjustment.mode=avro in "
                "the connector",
            )
        self.resolved = resolved  # last: after an error all are found again

    def _update_columns(self, resolved: dict[str, WriterSchema], latest: WriterSchema) -> None:
        if latest.error:
            raise latest.error
        versions = [self.columns] if self.columns else []
        versions += [
            schema.columns
            for schema in (*resolved.values(), latest)
            if not self.rejection(schema, latest)
        ]
        self.columns = merge_schemas(latest.connect.get("name", "Value"), *versions)
        self.latest = latest

    def connect_schema(self, definition: Any) -> dict[str, Any]:
        """Return Connect's schema; raise LakeError if there is none."""
        connect: dict[str, Any] = definition
        return connect

    def rejection(self, schema: WriterSchema, latest: WriterSchema) -> str:
        """Return why the messages of a schema are dead letters beside the latest; "" if they are not."""
        error = schema.error
        if error is None:
            return ""
        return f"{error.message} ({error.location})" if error.location else error.message

    def unreadable_reason(self, id: str) -> str:
        """Return why all messages of a resolved schema are dead letters; "" if they are not."""
        schema = self.resolved[id]
        problem = self.rejection(schema, self.latest or schema)
        return problem and f"schema {self.name(id)} cannot be read: {problem}"

    def convert(self, record: str, id: str) -> tuple[Column, Column]:
        """Convert a record of a readable schema to the columns of the rows.

        Args:
            record: name of the column that has the record, and in a column `row` the result.
            id: id of its schema.

        Returns:
            The row, null if the record is; and which value the row cannot hold (it is null there), and why, null
            if it holds all.
        """
        schema = self.resolved[id]
        row, lost = F.col(record), F.lit(None).cast("string")
        if self.scales is not None:
            _, row, lost = analyst_types.convert(record, schema.connect, self.scales)
        return _convert(row, schema.columns, self.row_schema), lost


def _convert(value: Column, have: Any, want: Any) -> Column:
    """Convert a value: records by field name (a missing one is null), others to wider types.

    Not by a cast of the record: Spark matches its fields by position.

    Args:
        value: the value.
        have: its type.
        want: the type of the result, which holds the value.
    """
    if have.simpleString() == want.simpleString():
        return value
    if isinstance(have, T.StructType):
        fields = [
            _convert(value.getField(f.name), have[f.name].dataType, f.dataType).alias(f.name)
            if f.name in have.names
            else F.lit(None).cast(f.dataType).alias(f.name)
            for f in want
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(have, T.ArrayType):
        return F.transform(value, lambda v: _convert(v, have.elementType, want.elementType))
    if isinstance(have, T.MapType):
        return F.transform_values(value, lambda _, v: _convert(v, have.valueType, want.valueType))
    return value.cast(want)
