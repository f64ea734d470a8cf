"""Decode JSON messages that carry their schema, as Kafka Connect's JsonConverter writes them.

Each message is decoded with its own schema, and the rows have the merged schema of all, as those of
Avro messages: see decode_avro.
"""

from __future__ import annotations

import contextlib
import json
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..base import LakeError
from ..topic import avro
from ..topic.connect_schema import to_avro
from . import decode
from .decode_avro import SchemaResolver
from .tables import Table

# In place of a schema that cannot be read. Its name is not that of the others: the message becomes a
# dead letter.
UNREADABLE = {"type": "record", "name": "unreadable", "fields": []}


class MessageSchemas(SchemaResolver):
    """Resolve the schemas that messages carry. The id of a schema is its JSON."""

    def _fetch(self, id: str) -> Any:
        with contextlib.suppress(Exception):  # a message may contain anything there
            avsc = to_avro(json.loads(id))
            avro.to_spark(avro.for_spark(avsc, as_numbers=True))
            return avsc
        self.rejected[id] = "it is none of Kafka Connect"
        return UNREADABLE

    def resolve_newest(self, ids: list[str]) -> dict[str, Any]:
        """Return {id: Avro schema} of a batch's schemas, and update the reader schema.

        Args:
            ids: the newest first.

        Raises:
            LakeError: as `resolve`; or no schema can be read, and the table does not exist.
        """
        readable = [avsc for avsc in map(self._fetch, ids) if avsc is not UNREADABLE]
        schemas = self.resolve(ids, next(iter(readable), None), use_registry=False)
        self.reader_schema = self.reader_schema or self.table_schema
        if self.reader_schema is None:
            raise LakeError(
                "no message has a schema that can be read",
                location=self.topic,
                expected='{"schema": {"type": "struct", …}, "payload": …}',
                hint="set value.converter.schemas.enable=true and field.name.adjustment.mode=avro in "
                "the connector",
            )
        return schemas


def rows(
    texts: DataFrame, schemas: MessageSchemas, table: Table, in_memory: bool, **options: Any
) -> DataFrame:
    """Decode JSON messages with the schemas that they carry.

    Args:
        texts: columns `key`, `text`, `topic`, `partition`, `offset`, `file`.
        schemas: the schemas of the source.
        table: the table that the rows are for.
        in_memory: whether the messages are part of the query.
        options: of decode.rows.

    Returns:
        As decode.rows.

    Raises:
        LakeError: as MessageSchemas.resolve_newest and decode.rows.
    """
    texts = decode.add_columns(texts, schema=decode.message_schema())
    found = texts.where("text IS NOT NULL").select("schema", F.struct("offset", "file").alias("at"))
    if not in_memory:  # rows in the query plan are collected without a Spark job
        found = found.groupBy("schema").agg(F.max("at").alias("at")).orderBy("at")
    ids = list(dict.fromkeys(row["schema"] for row in reversed(found.collect()))) or [""]
    parts = []
    for id, avsc in schemas.resolve_newest(ids).items():
        converted, _ = schemas.convert(decode.SENT, id, "of the message")
        # with the newest schema the messages without a value
        of_schema = F.coalesce("schema", F.lit(ids[0])) == id
        part = texts.where(of_schema) if len(ids) > 1 else texts
        sent = avro.to_spark(avsc)
        parts.append(decode.rows(part, sent, table, converted=converted, **options))
    return reduce(lambda a, b: a.unionByName(b), parts)
