"""Polling, from tables to topics: replaces Confluent's JDBC source, with the connector's own JSON.

See sources.py for the JSON. Polling is for environments whose Kafka Connect does not have the plugin.
Like the connector's task it is one process. One poll reads all tables in one snapshot of the
database, in batches, and produces the rows that are new since the last poll as JSON with a schema.

The offsets of a table are written when Kafka has acknowledged all its rows. A poll that is killed
before that is repeated, and produces its messages again (at least once). A poll reads all rows that
share the last timestamp, so no row is skipped between two polls. docs/limits.md lists the changes
that polling misses.
"""

import base64
import json
import logging
import re
import time
from dataclasses import dataclass, field
from typing import Any, ContextManager, Optional

import psycopg
from psycopg import sql

from ..base import LakeError, SourceError, World, did_you_mean, files
from ..base.paths import join_uri
from ..source import snapshot
from ..topic import topics
from ..topic.connect_schema import DECIMAL
from . import transforms
from .sources import Source, connect_field, parse, topic_name

LOGGER = logging.getLogger(__name__)
NUMBER_MARK = "\0"  # marks a text value as a number, until the JSON is written
MARKED_NUMBER = re.compile(r'"\\u0000(-?[\d.]+)"')
ROWS_QUERY = sql.SQL("SELECT {} FROM ({}) AS polled")


@dataclass(frozen=True)
class Polled:
    """The result of one poll, by topic.

    Attributes:
        messages: number of messages.
        statements: the SQL statement of the poll.
        null_key_rows: number of rows that no poll reads, because their timestamp is null.
    """

    messages: dict[str, int] = field(default_factory=dict)
    statements: dict[str, str] = field(default_factory=dict)
    null_key_rows: dict[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the result in one line."""
        by_topic = ", ".join(f"{topic} {n:,}" for topic, n in self.messages.items())
        missed = [
            f"; {n:,} more are never polled, because their timestamp is null ({topic})"
            for topic, n in self.null_key_rows.items()
            if n
        ]
        return f"polled {sum(self.messages.values()):,} messages: {by_topic}{''.join(missed)}"


def poll(world: World, config: dict[str, str]) -> Polled:
    """Produce the new rows of the tables, or of the query, of a JDBC source.

    Args:
        world: the environment profile.
        config: the source connector's JSON (see connect.config).

    Raises:
        ConnectorError: a setting is not supported.
        SourceError: a table, a column or the query does not match the configuration. Nothing is
            produced then.
        LakeError: another poll of this connector is running, or a row cannot be encoded.
        StackError: Kafka does not accept the messages. The next poll produces them again.
    """
    source, polled = parse(config, world), Polled()
    path = _offsets_path(world, config)
    with _poll_lock(path), snapshot.open_snapshot(world, source.database) as connection:
        end = snapshot.read_time(connection, int(source.settings["timestamp.delay.interval.ms"]))
        # {table ("" for a query): {"timestamp": …}}; this poll reads later rows
        offsets = json.loads(files.read_text(path) or "{}")
        columns = {table: _describe_columns(connection, source, table) for table in source.tables}
        for table, (schema, values) in columns.items():
            started, topic = time.monotonic(), topic_name(config, table)
            last = offsets.get(table, {}).get("timestamp", "-infinity")
            statement = source.statement(table, last, end)
            summary = snapshot.summarize(
                connection,
                statement,
                source.select_all(table),
                source.settings["timestamp.column.name"],
                count_nulls=not table or source.settings["validate.non.null"] == "false",
            )
            topics.create(world, topic)
            if summary.rows:
                query = ROWS_QUERY.format(values, statement)
                rows = snapshot.json_rows(connection, query, int(source.settings["batch.max.rows"]))
                messages = (encode_row(source, topic, schema, text) for text in rows)
                topics.produce(world, topic, messages)
                offsets[table] = {"timestamp": summary.last}
                files.write_text(path, json.dumps(offsets, indent=1))
            polled.messages[topic] = summary.rows
            polled.statements[topic] = statement.as_string(None)
            polled.null_key_rows[topic] = summary.null_rows
            seconds = time.monotonic() - started
            LOGGER.info("%s: %d rows in %.1f s", topic, summary.rows, seconds)
    return polled


def reset_offsets(world: World, config: dict[str, str]) -> None:
    """Delete the offsets, so that the next poll starts from the beginning.

    Raises:
        LakeError: a poll of this connector is running.
    """
    path = _offsets_path(world, config)
    with _poll_lock(path):
        files.remove(path)


def _offsets_path(world: World, config: dict[str, str]) -> str:
    name = config.get("name") or config["topic.prefix"]
    file_name = re.sub(r"[^A-Za-z0-9._-]", "_", name) + ".json"
    return join_uri(f"{world.lake.checkpoints}/polling", file_name)


def _poll_lock(path: str) -> ContextManager[object]:
    return files.exclusive_lock(path, "poll of this connector", "wait until it is done")


def _describe_columns(
    connection: psycopg.Connection, source: Source, table: str
) -> tuple[dict[str, Any], sql.Composed]:
    """Return the schema of the messages of a table, or of the query if `table` is empty, and the SQL of the values.

    Raises:
        SourceError: a column has an unsupported type, or a configured column does not exist or may be
            null.
    """
    described = {
        column.name: column
        for column in snapshot.columns(connection, source.select_all(table), table)
    }
    fields, values, unsupported = {}, [], []
    for column in described.values():
        field_and_value = connect_field(column, source.settings["numeric.mapping"])
        if field_and_value is None:
            unsupported.append(f"{column.name} ({column.kind})")
        else:
            fields[column.name], value = field_and_value
            values.append(value)
    location = f"database {source.database}, {table or 'query'}"
    if unsupported:
        raise SourceError(
            f"columns have types that are not supported: {', '.join(unsupported)}",
            location=location,
            expected="types that Connect supports, and no numeric with numeric.mapping=best_fit; the connector "
            "silently skips other columns",
            hint="poll a query that names the columns, and casts these",
        )
    name = source.settings["timestamp.column.name"]
    if name not in fields:
        raise SourceError(
            f"there is no column {name}", location=location, expected=did_you_mean(name, fields)
        )
    if table and source.settings["validate.non.null"] == "true" and described[name].optional:
        raise SourceError(
            f"{name} may be null: a row with a null there would never be polled",
            location=location,
            expected="a NOT NULL column for timestamp.column.name",
            hint="ALTER TABLE … SET NOT NULL; or set validate.non.null=false, and such rows are counted",
        )
    schema = {"type": "struct", "fields": [*fields.values()], "optional": False}
    if table:
        schema["name"] = table.rpartition(".")[2]
    return schema, sql.SQL(", ").join(values)


def encode_row(
    source: Source, topic: str, schema: dict[str, Any], text: str
) -> list[Optional[str]]:
    """Return key and value of a row as Connect's JsonConverter writes them.

    Args:
        source: the parsed configuration.
        topic: name of the topic.
        schema: Connect schema of the row.
        text: the row as JSON of PostgreSQL.

    Raises:
        LakeError: a number is not finite, which Connect's Decimal does not support; or a transform
            fails.
    """
    row = json.loads(text)
    try:
        for field in schema["fields"]:
            name, value = field["field"], row[field["field"]]
            if value is not None and field.get("name") == DECIMAL:
                if not value.lstrip("-").replace(".", "").isdecimal():
                    raise ValueError(f"{name} is {value}, which a Decimal cannot hold")
                row[name] = NUMBER_MARK + value  # texts of PostgreSQL contain no NUL
        record = transforms.Record(topic, None, None, row, schema)
        record = transforms.apply(source.transforms, record)
    except ValueError as e:
        raise LakeError(
            f"{topic} was not polled: {e}",
            location=source.location,
            hint="fix the cause and poll again; rows that were already produced are produced again",
        ) from e
    value = _to_envelope(record.value_schema, record.value)
    number = r"\1" if source.has_numbers else _to_base64
    key = _to_envelope(record.key_schema, record.key) if record.key_schema else None
    return [
        key and MARKED_NUMBER.sub(_to_base64, key),
        MARKED_NUMBER.sub(number, value),
    ]


def _to_envelope(schema: Optional[dict[str, Any]], payload: Any) -> str:
    envelope = {"schema": schema, "payload": payload}
    return json.dumps(envelope, ensure_ascii=False, separators=(",", ":"))


def _to_base64(match: "re.Match[str]") -> str:
    # PostgreSQL's text of a numeric has as many decimals as its scale
    unscaled = int(match[1].replace(".", ""))
    size = max(unscaled, ~unscaled).bit_length() // 8 + 1  # length of Java's BigInteger.toByteArray
    encoded = base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()
    return f'"{encoded}"'
