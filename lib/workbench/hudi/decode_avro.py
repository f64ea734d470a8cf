"""From Avro messages to rows: each is decoded with the schema it was written with, into the newest one, by field name.

In: the messages with `framed`'s columns `schema` (which one, null where the wire format is another) and `body` (the
Avro). Out: what decode.rows gives. Spark expressions only, no Python inside Spark.
"""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, Optional

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.avro.functions import from_avro

from ..base.errors import LakeError
from ..base.params import World
from ..topic import avro, registry, wire
from . import decode
from .tables import Table

# Put after the Avro of each message, and read as one more field. from_avro itself overlooks bytes that are left over,
# and gives a row of nulls for bytes that do not decode; with this a message decoded exactly or not at all.
END = b"\xffworkbench: end\xff"
# (from, to): what a reader may widen, by the Avro specification, "Schema Resolution"
WIDER = {("int", "bigint"), ("int", "float"), ("int", "double"), ("bigint", "float"), ("bigint", "double"),
         ("float", "double"), ("string", "binary"), ("binary", "string")}


@dataclass
class Schemas:
    """The schemas of one topic's values: the writers' as they are met, and the reader's.

    reader: where it is given it stays; else it is the newest one of `<topic>-value`, asked for whenever a schema is met
    for the first time. batch: {Framed.schema, or the JSON of a landed file's schema: Avro schema} of the batch at hand;
    None for one that the registry does not know, which is asked for again with each batch.
    """

    world: World
    topic: str
    reader: Optional[T.StructType] = None
    batch: Dict[str, Any] = field(default_factory=dict)
    _met: Dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._given = self.reader is not None

    def meet(self, ids: Iterable[str]) -> None:
        """Get to know the schemas of a batch, of landed files from what stands in them.

        Raises: StackError: the registry does not answer. LakeError: it has no `<topic>-value`.
        """
        new = {id: self._find(id) for id in sorted(set(ids) - set(self._met))}
        new = {id: avro.exact(avsc) for id, avsc in new.items() if avsc is not None}
        if not self._given and (new or self.reader is None):
            newest = registry.latest(self.world, f"{self.topic}-value")
            self.reader = avro.to_spark(avro.exact(newest))
        self._met.update(new)  # last: after an error everything is asked for again
        self.batch = {id: self._met.get(id) for id in ids}

    def _find(self, id: str) -> Any:
        kind, _, number = id.partition(" ")
        return registry.find(self.world, int(number), kind) if kind in registry.BY_ID else json.loads(id)


def rows(raw: DataFrame, known: Schemas, table: Table) -> DataFrame:
    """Decode Avro messages.

    Args:
        raw: columns `key`, `value`, `schema`, `body`, `topic`, `partition`, `offset`, `file`.
        known: has met the schemas of all of them.
        table: that the rows are for.

    Returns:
        `key`, `topic`, `partition`, `offset`, `file`, plus `row`, `outcome`, `reason` and `text` as decode.rows gives
        them; the text is the base64 of the message.

    Raises:
        LakeError: the reader schema lacks a key, ordering or partition field.
    """
    which = F.col("schema")
    wrong = [(which.isNull(), F.lit(wire.not_avro(known.world)))]
    decoded, row = raw, F.lit(None).cast(known.reader)
    for n, (id, avsc) in enumerate(sorted(known.batch.items())):
        column, mine = f"_avro{n}", which == id
        if avsc is None:
            wrong.append((mine, F.lit(wire.unknown(known.world).format(id))))
            continue
        try:
            written, name = avro.to_spark(avsc), avro.full_name(avsc)
            found = converted(F.col(f"{column}.row"), written, known.reader, name)
        except LakeError as e:
            wrong.append((mine, F.lit(unreadable(id, e))))
            continue
        decoded = decoded.withColumn(column, F.when(mine, _from_avro(F.col("body"), avsc)))
        row = F.when(mine & F.col(f"{column}.end").eqNullSafe(F.lit(END)), found).otherwise(row)
    decoded = decoded.withColumn("row", row)
    wrong.append((F.col("row").isNull(), F.concat(F.lit("the bytes are not Avro of schema "), which)))
    decoded = decode.judged(decoded, known.reader, F.col("value").isNull(), wrong, table)
    return decoded.withColumn("text", F.base64("value")).select(*decode.JUDGED)


def unreadable(schema: str, why: LakeError) -> str:
    """Why a message of a schema is a dead letter."""
    return f"schema {schema} cannot be read: {why.what} ({why.where})"


def _from_avro(body: Column, avsc: Dict[str, Any]) -> Column:
    """struct<row, end>, `end` being END where the bytes are exactly one record of this schema."""
    message = {"type": "record", "name": "workbench_message", "fields": [
        {"name": "row", "type": avsc},
        {"name": "end", "type": {"type": "fixed", "name": "workbench_end", "size": len(END)}}]}
    # CORRECTED: one calendar for all time; by default Spark refuses days before 1582
    options = {"mode": "PERMISSIVE", "datetimeRebaseMode": "CORRECTED"}
    return from_avro(F.concat(body, F.lit(END)), json.dumps(message), options)


def converted(column: Column, have: T.DataType, want: T.DataType, where: str) -> Column:
    """A value of type `have` as type `want`: records by field name (one that is missing is null), numbers widened.

    Raises:
        LakeError: Avro lets no reader see the one as the other; names the field.
    """
    if have.simpleString() == want.simpleString():
        return column
    if isinstance(have, T.StructType) and isinstance(want, T.StructType):
        there = {f.name: f.dataType for f in have}
        parts = [converted(column.getField(f.name), there[f.name], f.dataType, f"{where}.{f.name}")
                 if f.name in there else F.lit(None).cast(f.dataType) for f in want]
        made = F.struct(*[part.alias(f.name) for part, f in zip(parts, want)])
        return F.when(column.isNotNull(), made)
    if isinstance(have, T.ArrayType) and isinstance(want, T.ArrayType):
        return F.transform(column, lambda v: converted(v, have.elementType, want.elementType, f"{where}[]"))
    if isinstance(have, T.MapType) and isinstance(want, T.MapType):
        return F.transform_values(column, lambda _, v: converted(v, have.valueType, want.valueType, f"{where}{{}}"))
    if (have.simpleString(), want.simpleString()) in WIDER or _more_digits(have, want):
        return column.cast(want)
    raise LakeError(f"it is written as {have.simpleString()} and cannot be read as {want.simpleString()}", where=where)


def _more_digits(have: T.DataType, want: T.DataType) -> bool:
    """Whether every decimal of type `have` is one of type `want`. (Avro wants equal types here; nothing gets lost.)"""
    if not (isinstance(have, T.DecimalType) and isinstance(want, T.DecimalType)):
        return False
    return want.scale >= have.scale and want.precision - want.scale >= have.precision - have.scale
