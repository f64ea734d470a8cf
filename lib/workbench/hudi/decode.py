"""From raw messages to rows: one decode for a topic and for landed files, in Spark expressions only.

JSON is here; decode_avro does the same for Avro, and both judge what becomes of a message by `judged`.

In: a DataFrame with `key` and `text` (strings, either may be null) and where they came from (`topic`, `partition`,
`offset`, `file`). Out: the same plus `row` (the reader schema's struct), `outcome` and `reason`. Nothing is thrown away
here, so that messages = upserts + deletes + tombstones + dead letters.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, List, Sequence, Tuple, Union

from pyspark.sql import types as T

from ..base.errors import LakeError

if TYPE_CHECKING:  # Spark Connect and classic have different classes of these; we only pass them on
    from pyspark.sql import Column, DataFrame

UPSERT, DELETE, TOMBSTONE, DEAD = "upsert", "delete", "tombstone", "dead"
ORIGIN = ("topic", "partition", "offset", "file")
DELETED = "_hoodie_is_deleted"
NOT_UTF8 = "not UTF-8, the text is its base64"
_BAD = "_bad"
# what Debezium puts into a NOT NULL column whose value a delete event does not have, as text
NO_VALUE = r"^(0(\.0+)?|0E-\d+|false|1970-01-01( 00:00:00)?)?$"


def rows(raw: DataFrame, schema: T.StructType, *, key: Sequence[str], ordering: str,
         partition: Sequence[str] = (), global_index: bool = False, prefix: str = "") -> DataFrame:
    """Decode JSON messages, with or without the Connect envelope (`{"schema": …, "payload": …}`).

    Args:
        raw: columns `key`, `text`, `topic`, `partition`, `offset`, `file`.
        schema: the reader schema; fields it does not name are left out, fields that are missing are null.
        key, ordering, partition, global_index: of the table the rows are for (see hudi.Table).
        prefix: how the envelope of most messages begins, up to the payload. Connect sends the same schema with each
            message, and parsing it again each time takes longer than the row does; it is cut off where it is just this.

    Returns:
        `raw` plus `row`, `outcome` (upsert, delete, tombstone, dead) and `reason` (null unless dead). The `text` of a
        message that is not UTF-8 is its base64.

    Raises:
        LakeError: the schema lacks a key, ordering or partition field.
    """
    from pyspark.sql import functions as F

    envelope = T.StructType([T.StructField("payload", _nullable(schema)), T.StructField(_BAD, T.StringType())])
    # Connect's JsonConverter always writes schema first. A bare row gets the envelope put around it, so that there
    # is one parse for both, and text after the closing brace is an error, which from_json by itself overlooks.
    # The option keeps Spark from pruning the schema to what is asked for, which would lose the corrupt-record column.
    wrapped = F.col("text").rlike(r'^\s*\{\s*"schema"\s*:\s*(\{|null)') & F.col("text").rlike(r'"payload"\s*:')
    text = F.when(wrapped, F.col("text")).otherwise(F.concat(F.lit('{"payload":'), F.col("text"), F.lit("}")))
    unseen = F.col("text")  # what may be other than UTF-8
    if prefix:
        # by bytes: Spark counts the characters of a string one by one
        rest = F.col("text").cast("binary").substr(len(prefix.encode("utf-8")) + 1, 1 << 30).cast("string")
        starts = F.col("text").startswith(prefix)
        text = F.when(starts, F.concat(F.lit('{"payload":'), rest)).otherwise(text)
        unseen = F.when(starts, rest).otherwise(unseen)
    parsed = F.from_json(text, envelope, {"columnNameOfCorruptRecord": _BAD, "mode": "PERMISSIVE"})
    decoded = raw.withColumn("_parsed", parsed).select(
        *[c for c in raw.columns], F.col("_parsed.payload").alias("row"), F.col(f"_parsed.{_BAD}").alias(_BAD)
    )
    # no value, a JSON null, or an envelope with nothing in it
    nothing = F.col("text").isNull() | (F.col(_BAD).isNull() & F.col("row").isNull())
    wrong = [(_not_utf8(unseen), F.lit(NOT_UTF8)),
             (F.col(_BAD).isNotNull() & F.get_json_object(text, "$").isNull(), F.lit("malformed JSON")),
             (F.col(_BAD).isNotNull(), F.lit("a value does not have the type of the reader schema"))]
    decoded = judged(decoded, schema, nothing, wrong, key=key, ordering=ordering, partition=partition,
                     global_index=global_index)
    base64 = F.base64(F.col("text").cast("binary"))
    shown = F.when(F.col("reason") == NOT_UTF8, base64).otherwise(F.col("text"))
    return decoded.withColumn("text", shown).drop(_BAD)


def _not_utf8(text: Column) -> Column:
    """Spark takes any bytes for a string; they change on the way through Java's strings if they are not UTF-8."""
    from pyspark.sql import functions as F

    return F.encode(text, "UTF-8") != text.cast("binary")


def judged(decoded: DataFrame, schema: T.StructType, nothing: Column, wrong: List[Tuple[Column, Column]], *,
           key: Sequence[str], ordering: str, partition: Sequence[str], global_index: bool) -> DataFrame:
    """Add `reason` and `outcome`: what becomes of a message, and why it is a dead letter if it is one.

    Args:
        decoded: columns `row` (of type `schema`), `key`, and whatever the conditions ask for.
        nothing: whether the message holds no row, and is a tombstone.
        wrong: (condition, reason) of what cannot be decoded; the first that holds counts.

    Raises:
        LakeError: the schema lacks a key, ordering or partition field.
    """
    from pyspark.sql import functions as F

    names = schema.fieldNames()
    missing = [f for f in (*key, ordering, *partition) if f not in names]
    if missing:
        raise LakeError(f"the reader schema has no field {missing[0]!r}", expected=", ".join(names))
    flags = [F.col("row.__deleted").cast("string") == "true"] if "__deleted" in names else []
    flags += [F.col("row.__op") == "d"] if "__op" in names else []
    deleted = F.lit(False)
    for flag in flags:
        deleted = deleted | F.coalesce(flag, F.lit(False))
    reason = F.when(nothing & F.col("key").isNull(), F.lit("no value and no key"))
    reason = reason.when(nothing, F.lit(None).cast("string"))
    for condition, why in wrong:
        reason = reason.when(condition, why)
    for name in key:
        reason = reason.when(F.col(f"row.{name}").isNull(), F.lit(f"record key {name} is null"))
    reason = reason.when(F.col(f"row.{ordering}").isNull(), F.lit(f"ordering field {ordering} is null"))
    beside = [n for n in partition if n not in key]
    if beside and not global_index:
        # A source table without REPLICA IDENTITY FULL sends deletes that hold nothing but the key. Without the
        # partition the row cannot be found, and the delete would be lost without a word.
        bare = F.lit(True)
        for n in (n for n in names if n not in key and not n.startswith("__")):
            bare = bare & F.coalesce(F.col(f"row.{n}").cast("string").rlike(NO_VALUE), F.lit(True))
        why = f"the delete holds its key only, not {beside[0]} (REPLICA IDENTITY FULL, or a GLOBAL_ index, cures it)"
        reason = reason.when(deleted & bare, F.lit(why))
    outcome = (F.when(F.col("reason").isNotNull(), F.lit(DEAD)).when(nothing, F.lit(TOMBSTONE))
               .when(deleted, F.lit(DELETE)).otherwise(F.lit(UPSERT)))
    return decoded.withColumn("reason", reason).withColumn("outcome", outcome)


def decimal(column: Union[str, Column], precision: int = 38, scale: int = 10) -> Column:
    """A `numeric` without precision as a decimal: Debezium sends a struct of the value's own scale and its bytes.

    Args:
        column: of struct<scale: int, value: binary>, as decode leaves it; a name or a Column.
        precision, scale: of the decimal.

    Returns:
        The Column. Null stays null; a value that the decimal cannot hold to its last digit ends the query with an error
        that names the column.
    """
    from pyspark.sql import functions as F

    it, wanted = F.col(column) if isinstance(column, str) else column, T.DecimalType(precision, scale)
    value, own = it.getField("value"), it.getField("scale")
    below = F.hex(value.substr(F.lit(1), F.lit(1))) >= "80"  # below zero: two's complement, the highest byte first
    octets = F.transform(F.sequence(F.lit(1), F.length(value)),
                         lambda n: F.conv(F.hex(value.substr(n, F.lit(1))), 16, 10).cast("decimal(3,0)"))
    octets = F.transform(octets, lambda octet: F.when(below, 255 - octet).otherwise(octet).cast("decimal(3,0)"))
    size = F.aggregate(octets, F.lit(0).cast("decimal(38,0)"),
                       lambda sofar, octet: (sofar * F.lit(256).cast("decimal(3,0)") + octet).cast("decimal(38,0)"))
    digits = F.when(below, -size - 1).otherwise(size).cast("decimal(38,0)")
    found = F.concat(digits.cast("string"), F.lit("E"), (-own).cast("string")).cast(wanted)
    rest = F.right(F.abs(digits).cast("string"), own - scale)  # the digits behind the last that there is room for
    name = column if isinstance(column, str) else "a numeric"
    error = F.raise_error(F.concat(F.lit(f"{name} does not fit into decimal({precision},{scale}): bytes "),
                                   F.hex(value), F.lit(", scale "), own.cast("string")))
    return (F.when(it.isNull(), None).when(found.isNotNull() & ~rest.rlike("[1-9]"), found)
            .otherwise(error.cast(wanted)))


def _nullable(schema: T.StructType) -> T.StructType:
    """The schema with every field nullable: a missing one shows as null and is judged by us."""
    return T.StructType([T.StructField(f.name, f.dataType, True) for f in schema.fields])
