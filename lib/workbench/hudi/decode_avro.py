"""From Avro to rows: messages and landed files are decoded with the schema they were written with,
into the newest one and what earlier ones had beside, by field name.

In: the messages with `framed`'s columns `schema` (which one, null where the wire format is another)
    and `body` (the
Avro), or the addresses of files; `examine` looks at what they are in this process. Out: what
decode.rows gives. Spark expressions only, no Python inside Spark.
"""

import contextlib
import json
from collections import Counter
from functools import reduce
from typing import Any, Iterable, Optional, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.avro.functions import from_avro

from ..base import LakeError, World, files
from ..topic import avro, registry, wire
from . import decode
from .evolution import TEXT_CONVERSIONS, is_wider_decimal, leaf_paths, merge_schemas
from .tables import Table

# Put after the Avro of each message, and read as one more field. from_avro itself overlooks bytes
# that are left over, and gives a row of nulls for bytes that do not decode; with this a message
# decoded exactly or not at all.
END_MARKER = b"\xffworkbench: end\xff"
# (from, to): what a reader may widen, by the Avro specification, "Schema Resolution"
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


# Columns that the schemas of one batch may add to a table. More are a mistake, or meant to make the
# table useless.
MAX_NEW_COLUMNS = 200


class SchemaResolver:
    """The schemas of one topic's values: the writers' as they are met, and the reader's.

    newest: where it is given it stays; else it is the newest one of `<topic>-value`, asked for
        whenever a schema is met
    for the first time.
    (Landed files say it themselves, and no registry is asked.)
    reader: the one that is given; else the newest one with what those that were met had before it:
        a message that was
    written before a column was dropped still brings its value.
    refused: {id: why no message of a schema is decoded}. Unless a reader is given: its record has
        not the newest one's
    name, as the versions of a topic's rows do, or it adds too many columns (see NEW_COLUMNS).
    table: the columns that the table has, None before its first commit.
    """

    def __init__(
        self,
        world: World,
        topic: str,
        reader: Optional[T.StructType] = None,
        table: Optional[T.StructType] = None,
    ):
        self.world, self.topic, self.reader_schema, self.latest_schema = (
            world,
            topic,
            reader,
            reader,
        )
        self.is_explicit, self.table_schema, self.rejected = reader is not None, table, {}  # type: ignore[var-annotated]
        self._resolved = {}  # type: ignore[var-annotated]

    def resolve(
        self, ids: Iterable[str], latest: Optional[dict[str, Any]] = None, use_registry: bool = True
    ) -> dict[str, Any]:
        """{id: Avro schema} of a batch's schemas; None for one that the registry does not know, and
        is asked for again with each batch.

        Args:
            ids: Framed.schema, or of a landed file the JSON that stands in it.
            newest: of landed files, the newest of their schemas; without it the registry is asked
                for the topic's.
            ask: whether it may be. Where it may not, and no `newest` is given, the reader stays as
                it is.

        Raises: StackError: the registry does not answer. LakeError: it has no `<topic>-value`, or
            no table holds what is written by its versions. Where the newest one is unsafe, or adds
            too many columns, a table stays as it is; only where there is none yet, that is an
            error.
        """
        found = (
            (id, self._fetch(id))
            for id in sorted(set(ids) - set(self._resolved), key=lambda id: (len(id), id))
        )
        new = {id: avro.for_spark(avsc) for id, avsc in found if avsc is not None}
        if (
            not self.is_explicit
            and (new or self.reader_schema is None)
            and (latest or use_registry)
        ):
            self._update_reader_schema(
                new, avro.for_spark(latest or registry.latest(self.world, f"{self.topic}-value"))
            )
        self._resolved.update(new)  # last: after an error everything is asked for again
        return {id: self._resolved.get(id) for id in sorted(ids)}

    def _update_reader_schema(self, new: dict[str, Any], newest: dict[str, Any]) -> None:
        """Make the reader of what it was, the new schemas, and the newest one."""
        name, known = avro.full_name(newest), self.reader_schema or self.table_schema
        try:
            latest = avro.to_spark(newest)
            excess = _excess_reason(leaf_paths(latest) - leaf_paths(known)) if known else ""
        except avro.UnsafeSchema:
            if known is None:
                raise
            excess = "it is unsafe"
        if not excess:
            self.latest_schema = latest
        elif self.latest_schema is None:
            self.latest_schema = known
        base, added = leaf_paths(known or self.latest_schema), set()  # type: ignore[var-annotated]
        versions = [self.reader_schema] if self.reader_schema else []
        for id, avsc in new.items():
            if avro.is_record(avsc) and avro.full_name(avsc) != name:
                self.rejected[id] = (
                    f"its record is {avro.full_name(avsc)}, and the topic's is {name}"
                )
                continue
            with contextlib.suppress(LakeError):  # what Spark cannot read is a dead letter
                version = avro.to_spark(avsc)
                more = added | leaf_paths(version) - base
                self.rejected[id] = _excess_reason(more)
                if not self.rejected[id]:
                    versions.append(version)
                    added = more
        self.reader_schema = merge_schemas(name, *versions, self.latest_schema)

    def _fetch(self, id: str) -> Any:
        kind, _, number = id.partition(" ")
        return registry.find(self.world, number, kind) if kind in wire.ID_KINDS else json.loads(id)


def rows(raw: DataFrame, ids: Iterable[str], known: SchemaResolver, table: Table) -> DataFrame:
    """Decode Avro messages.

    Args:
        raw: columns `key`, `value`, `schema`, `body`, `topic`, `partition`, `offset`, `file`.
        ids: of all schemas in it; `known` meets them.
        table: that the rows are for.

    Returns:
        `key`, `topic`, `partition`, `offset`, `file`, plus `row`, `outcome`, `reason` and `text` as
        decode.rows gives them; the text is the base64 of the message.

    Raises:
        LakeError: the reader schema lacks a key, ordering or partition field. And what `meet`
            raises.
    """
    found, wrong = decode_messages(raw, ids, known)
    found = decode.classify(found, known.reader_schema, F.col("value").isNull(), wrong, table)
    return found.withColumn("text", F.base64("value")).select(*decode.OUTPUT_COLUMNS)


def decode_messages(
    raw: DataFrame, ids: Iterable[str], known: SchemaResolver
) -> tuple[DataFrame, list[tuple[Column, Column]]]:
    """The same messages, which may be a stream, with a column `row`, null where one cannot be
    decoded; and the reasons for that, (condition, text) each. Arguments and errors as of `rows`.
    """
    met, which = known.resolve(ids), F.col("schema")
    wrong = [(which.isNull(), F.lit(wire.not_avro_reason(known.world)))]
    found, row = raw, F.lit(None).cast(known.reader_schema)
    for n, (id, avsc) in enumerate(met.items()):
        column, mine = f"_avro{n}", which == id
        if avsc is None:
            wrong.append((mine, F.lit(wire.unknown_schema_reason(known.world).format(id))))
            continue
        if known.rejected.get(id):
            wrong.append((mine, F.lit(f"schema {id} cannot be read: {known.rejected[id]}")))
            continue
        try:
            written, name = avro.to_spark(avsc), avro.full_name(avsc)
            read = _convert(
                F.col(f"{column}.row"), written, known.reader_schema, name, known.is_explicit
            )
        except LakeError as e:
            wrong.append((mine, F.lit(_unreadable_reason(id, e))))
            continue
        found = found.withColumn(column, F.when(mine, _from_avro(F.col("body"), avsc)))
        row = F.when(mine & F.col(f"{column}.end").eqNullSafe(F.lit(END_MARKER)), read).otherwise(
            row
        )
    wrong.append(
        (F.col("row").isNull(), F.concat(F.lit("the bytes are not Avro of schema "), which))
    )
    return found.withColumn("row", row), wrong


def group_by_schema(addresses: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Sort Avro files by the schema they were written with: {JSON of the schema: addresses} of
    those that can be read, {address: why not} else. They are read whole: one that is cut off would
    fail the batch of all others when Spark comes to its end.
    """
    whole: dict[str, list[str]] = {}
    broken = {}
    for address in addresses:
        try:
            whole.setdefault(avro.container_schema(files.read_bytes(address)), []).append(address)
        except ValueError as e:
            broken[address] = f"not a whole Avro file: {e}"
    return whole, broken


def latest_of(whole: dict[str, list[str]], addresses: Sequence[str]) -> Optional[dict[str, Any]]:
    """The newest schema of landed files, None where no file holds records: that of the last file,
    among those of the record's name that most files have.

    Args:
        whole: as `examine` gives it. addresses: of all files, in the order in which they are read.
    """
    order = {address: n for n, address in enumerate(addresses)}
    records = {
        text: avsc
        for text, avsc in ((text, json.loads(text)) for text in whole)
        if avro.is_record(avsc)
    }
    if not records:
        return None
    count: Counter[str] = Counter()
    for text, avsc in records.items():
        count[avro.full_name(avsc)] += len(whole[text])
    name = max(count, key=lambda name: count[name])
    last = max(
        (text for text, avsc in records.items() if avro.full_name(avsc) == name),
        key=lambda text: max(order[address] for address in whole[text]),
    )
    return records[last]


def read_files(
    spark: SparkSession, addresses: Sequence[str], known: SchemaResolver, table: Table
) -> DataFrame:
    """Read the records of landed files, by the schemas that stand in them. No registry is asked.

    Args:
        known: meets the schemas of all of them.
        table: that the rows are for.

    Returns:
        As `rows`; topic, partition and offset are null, the text is the record as JSON. A file that
        cannot be read is one dead letter without a text.

    Raises:
        LakeError: the reader schema lacks a key, ordering or partition field; or there is no table
            yet, no reader is given, and no file holds records.
    """
    whole, broken = group_by_schema(addresses)
    newest = latest_of(whole, addresses)
    known.reader_schema = known.reader_schema or (known.table_schema if newest is None else None)
    if newest is None and known.reader_schema is None:
        raise LakeError(
            "none of the landed files holds records of Avro",
            location=addresses[0],
            expected="Avro object container files",
            hint="; ".join([*broken.values()][:1] or ["look at the files"]),
        )
    met = known.resolve(whole, newest, use_registry=False)
    no_row, no_text = F.lit(None).cast(known.reader_schema), F.lit(None).cast("string")
    parts = []
    for text, places in whole.items():
        avsc, row, why = met[text], no_row, no_text
        name = avro.full_name(avsc)
        try:
            written = avro.to_spark(avsc)
        except LakeError as e:
            broken.update(dict.fromkeys(places, _unreadable_reason(name, e)))
            continue
        try:
            row = _convert(F.col("record"), written, known.reader_schema, name, known.is_explicit)
        except LakeError as e:
            why = F.lit(_unreadable_reason(name, e))
        if known.rejected.get(text):
            row, why = no_row, F.lit(f"schema {name} cannot be read: {known.rejected[text]}")
        read = spark.read.format("avro").options(
            avroSchema=json.dumps(avsc), datetimeRebaseMode="CORRECTED"
        )
        records = read.load(places).select(
            F.struct("*").alias("record"), F.input_file_name().alias("file")
        )
        parts.append(
            records.select(
                "file",
                row.alias("row"),
                why.alias("why"),
                F.to_json("record", {"ignoreNullFields": "false"}).alias("text"),
            )
        )
    if broken:
        letters = spark.createDataFrame(sorted(broken.items()), "file string, why string")
        parts.append(letters.select("file", no_row.alias("row"), "why", no_text.alias("text")))
    raw = reduce(lambda a, b: a.unionByName(b), parts).select("*", *decode.null_message_columns())
    wrong = [(F.col("why").isNotNull(), F.col("why"))]
    return decode.classify(raw, known.reader_schema, F.lit(False), wrong, table).select(
        *decode.OUTPUT_COLUMNS
    )


def _excess_reason(added: set[str]) -> str:
    """Why a schema is refused with which a batch adds these columns; "" where they are not too
    many.
    """
    if len(added) <= MAX_NEW_COLUMNS:
        return ""
    return (
        f"with it a batch adds {len(added):,} columns, and at most {MAX_NEW_COLUMNS} are taken without being asked for "
        "(hudi.ingest with schema=… names those that are meant)"
    )


def _unreadable_reason(schema: str, why: LakeError) -> str:
    """Why a message of a schema is a dead letter."""
    return f"schema {schema} cannot be read: {why.message} ({why.location})"


def _from_avro(body: Column, avsc: dict[str, Any]) -> Column:
    """struct<row, end>, `end` being END where the bytes are exactly one record of this schema."""
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
    column: Column, have: T.DataType, want: T.DataType, where: str, is_explicit: bool = False
) -> Column:
    """A value of type `have` as type `want`: records by field name (one that is missing is null),
    numbers widened.

    Args: given: whether a person has said what a field is to be: a whole number may be a text then,
        too.

    Raises:
        LakeError: Avro lets no reader see the one as the other; names the field.
    """
    if have.simpleString() == want.simpleString():
        return column
    if isinstance(have, T.StructType) and isinstance(want, T.StructType):
        there = {f.name: f.dataType for f in have}
        parts = [
            _convert(
                column.getField(f.name), there[f.name], f.dataType, f"{where}.{f.name}", is_explicit
            )
            if f.name in there
            else F.lit(None).cast(f.dataType)
            for f in want
        ]
        made = F.struct(*[part.alias(f.name) for part, f in zip(parts, want)])
        return F.when(column.isNotNull(), made)
    if isinstance(have, T.ArrayType) and isinstance(want, T.ArrayType):
        return F.transform(
            column, lambda v: _convert(v, have.elementType, want.elementType, f"{where}[]")
        )
    if isinstance(have, T.MapType) and isinstance(want, T.MapType):
        return F.transform_values(
            column, lambda _, v: _convert(v, have.valueType, want.valueType, f"{where}{{}}")
        )
    if (have.simpleString(), want.simpleString()) in (
        AVRO_PROMOTIONS | TEXT_CONVERSIONS if is_explicit else AVRO_PROMOTIONS
    ) or is_wider_decimal(have, want):
        return column.cast(want)
    raise LakeError(
        f"it is written as {have.simpleString()} and cannot be read as {want.simpleString()}",
        location=where,
    )
