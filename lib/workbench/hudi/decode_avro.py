"""Decode Avro messages and landed Avro files, with the schemas they were written with."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from functools import reduce
from typing import Any, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from ..base import LakeError, files
from ..topic import avro, connect_schema, registry, wire
from .decode import NO_MESSAGE, add_columns
from .schemas import MAX_SCHEMAS, Schemas, WriterSchema

# Appended to the Avro of each message, and read as one more field. from_avro itself overlooks
# trailing bytes, and returns a row of nulls for bytes that it cannot decode. With the marker a message
# is decoded exactly or not at all.
END_MARKER = b"\xffworkbench: end\xff"


class _WriterSchemas(Schemas):
    """The Avro schemas that messages or files were written with."""

    def connect_schema(self, definition: Any) -> dict[str, Any]:
        """Return Connect's schema."""
        return connect_schema.from_avro(definition)

    def rejection(self, schema: WriterSchema, latest: WriterSchema) -> str:
        """Return why the messages of a schema are dead letters beside the latest; "" if they are not."""
        if schema.error:
            return super().rejection(schema, latest)
        if not avro.is_record(schema.definition):
            return ""
        name, record_name = avro.full_name(schema.definition), avro.full_name(latest.definition)
        if name != record_name:
            return f"its record is {name}, and the topic's is {record_name}"
        loose = [
            field["name"]
            for field in schema.definition["fields"]
            if "null" in field["type"] and field.get("default") is not None
        ]
        if not loose or self.scales is None:
            return ""
        return (
            f"Avro cannot tell a null of {', '.join(loose)} from the column's default: drop the default, and update "
            "the row; or capture the table again with --format json"
        )


class AvroSchemas(_WriterSchemas):
    """The schemas in the registry. The id of a schema is such as `globalId 7`."""

    limit_reason = ""  # why the registry may have an unknown schema nevertheless

    def split(self, messages: DataFrame) -> DataFrame:
        """Return the messages with `schema` and `body`; both are null if a value is not in the wire format."""
        return wire.with_wire_columns(messages, self.world)

    def resolve(self, counts: Counter[str]) -> list[str]:
        """Request the schemas from the registry.

        Of more than MAX_SCHEMAS new ids the less frequent ones are requested only if they are versions of
        the topic's own schema. An unknown id is requested again in each batch.
        """
        artifact = f"{self.topic}-value"
        new = [id for id, _ in counts.most_common() if id not in self.resolved]
        self.limit_reason = ""
        if len(new) > MAX_SCHEMAS:
            self.limit_reason = (
                f", or was not requested: a batch has more than {MAX_SCHEMAS} new schema ids"
            )
            own = registry.versions_by_schema_id(self.world, [artifact])
            new = new[:MAX_SCHEMAS] + [id for id in new[MAX_SCHEMAS:] if id in own]
        found = {}
        for id in new:
            with contextlib.suppress(LakeError):  # a schema of another kind, such as Protobuf
                avsc = registry.find(self.world, id.partition(" ")[2])
                if avsc is not None:
                    found[id] = self.read(avsc)
        latest = None
        if found or not self.latest:
            latest = self.read(registry.latest(self.world, artifact))
        self.add(found, latest)
        return [id for id in counts if id in self.resolved]

    def parse(self, id: str) -> Column:
        """Return struct<payload, end>; `end` is END_MARKER if the bytes are exactly one record."""
        end = {"type": "fixed", "name": "workbench_end", "size": len(END_MARKER)}
        payload = avro.for_spark(self.resolved[id].definition, self.as_numbers)
        message = {
            "type": "record",
            "name": "workbench_message",
            "fields": [
                {"name": "payload", "type": payload},
                {"name": "end", "type": end},
            ],
        }
        # CORRECTED: one calendar for all time; by default Spark refuses days before 1582
        options = {"mode": "PERMISSIVE", "datetimeRebaseMode": "CORRECTED"}
        return from_avro(F.concat("body", F.lit(END_MARKER)), json.dumps(message), options)

    def error(self, parsed: str, id: str) -> Column:
        """Return why a message is not exactly one record; null if it is."""
        is_exact = F.col(f"{parsed}.end").eqNullSafe(F.lit(END_MARKER))
        return F.when(~is_exact, F.lit(f"the bytes are not Avro of schema {id}"))

    def unknown_reason(self) -> Column:
        """Return why a message is not parsed: the registry lacks its schema, or it is not Avro."""
        before, after = wire.unknown_schema_reason(self.world).split("{}")
        unknown = F.concat(F.lit(before), F.col("schema"), F.lit(after + self.limit_reason))
        return F.coalesce(unknown, F.lit(wire.not_avro_reason(self.world)))


class LandedSchemas(_WriterSchemas):
    """The schemas that landed Avro files contain. The id of a schema is its JSON."""

    def resolve(self, counts: Counter[str]) -> list[str]:
        """Read the schemas; the newest one of the most common record name is the latest."""
        found = {id: self.read(json.loads(id)) for id in counts}
        names: Counter[str] = Counter()
        for id, schema in found.items():
            if avro.is_record(schema.definition):
                names[avro.full_name(schema.definition)] += counts[id]
        # of two that are as common that of the older file
        common = max(reversed(names), key=lambda name: names[name], default="")
        of_topic = (s for s in found.values() if avro.full_name(s.definition) == common)
        self.add(found, next(of_topic, None))
        return list(found)

    def name(self, id: str) -> str:
        """Return the name of the record."""
        return avro.full_name(self.resolved[id].definition)


def read_files(spark: SparkSession, uris: Sequence[str], schemas: LandedSchemas) -> DataFrame:
    """Read the records of landed files, with the schemas that they contain. No registry is used.

    Args:
        spark: the session.
        uris: the files, in reading order.
        schemas: the schemas of the topic.

    Returns:
        As decode.decode_messages; topic, partition and offset are null, the text is the record as JSON. A
        file that cannot be read is one dead letter without a text.

    Raises:
        LakeError: no file holds records, and there is neither a table nor a reader schema.
    """
    by_schema, broken = group_by_schema(uris)
    ids = {uri: id for id, group in by_schema.items() for uri in group}
    parts = []
    known = schemas.resolve(Counter(ids[uri] for uri in reversed(uris) if uri in ids))
    nothing = F.lit(None).cast("string")
    no_row = F.lit(None).cast(schemas.row_schema)
    for id in known:
        schema, reason = schemas.resolved[id], schemas.unreadable_reason(id)
        if schema.error:
            broken.update(dict.fromkeys(by_schema[id], reason))
            continue
        row, lost = (no_row, nothing) if reason else schemas.convert("record", id)
        avsc = avro.for_spark(schema.definition, schemas.as_numbers)
        reader = spark.read.format("avro").options(
            avroSchema=json.dumps(avsc), datetimeRebaseMode="CORRECTED"
        )
        records = reader.load(by_schema[id]).select(
            F.struct("*").alias("record"), F.input_file_name().alias("file")
        )
        decoded = add_columns(records, row=row)
        text = F.to_json("record", {"ignoreNullFields": "false"})
        error = F.lit(reason or None).cast("string")
        parts.append(add_columns(decoded, lost=lost, error=error, text=text).drop("record"))
    if broken:
        errors = spark.createDataFrame(sorted(broken.items()), "file string, error string")
        parts.append(add_columns(errors, row=no_row, lost=nothing, text=nothing))
    decoded = reduce(lambda a, b: a.unionByName(b), parts)
    return decoded.selectExpr("*", *NO_MESSAGE)


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
