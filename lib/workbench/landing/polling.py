"""Tables → topics: the work of Confluent's JDBC source, done from that connector's own JSON (see
sources.py).

For a world whose Kafka Connect has no such plugin. As the connector's task it is one process, this
one: one poll reads all its tables in one snapshot of the database, some rows at a time, and sends
    what is new since the last as JSON with
its schema. How far it came is written when Kafka has all of a table: a poll that is killed before
is done again, and its messages come twice (at least once). No row is skipped between two polls,
also where several share the last timestamp, for one poll is one read and ends with all of them.
What no poll sees stands in docs/limits.md.
"""

import base64
import json
import re
from dataclasses import dataclass, field
from typing import Any, ContextManager, Iterator, Optional

import psycopg
from psycopg import sql

from ..base import LakeError, SourceError, World, did_you_mean, files
from ..base.paths import join_uri
from ..source import postgres
from ..source.queries import QUERIES
from ..topic import topics
from . import transforms
from .sources import Source, connect_field, parse, topic_name

# m.*, for a column may be called m, too
NUMBER_MARK = "\0"  # begins a number among the values of a row, until JSON is written
MARKED_NUMBER = re.compile(r'"\\u0000(-?[\d.]+)"')
JSON_ROWS_QUERY = sql.SQL(
    "SELECT row_to_json(m.*)::text AS value FROM (SELECT {} FROM ({}) AS polled) AS m"
)


@dataclass(frozen=True)
class Polled:
    """What one poll did. messages: {topic: how many it sent}; statements: {topic: what it read by};
    unseen: {topic: rows that no poll sees, for what polling goes by is null in them}.
    """

    messages: dict[str, int] = field(default_factory=dict)
    statements: dict[str, str] = field(default_factory=dict)
    null_key_rows: dict[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        sent = ", ".join(f"{topic} {n:,}" for topic, n in self.messages.items())
        unseen = "".join(
            f"; {n:,} more are never polled, for what polling goes by is null in them ({topic})"
            for topic, n in self.null_key_rows.items()
            if n
        )
        return f"polled {sum(self.messages.values()):,} messages: {sent}{unseen}"


def poll(world: World, config: dict[str, str]) -> Polled:
    """Send what is new in the tables, or in the query, of a JDBC source.

    Args:
        config: the source connector's JSON (see connect.config).

    Raises:
        ConnectorError: the config cannot be honoured. SourceError: a table, a column or the query
            is not as the config has it; nothing is sent then. LakeError: another poll of this
            connector is going on; or a row has what no message can hold. StackError: Kafka does not
            take them. Not all was sent then, and the next poll sends it again.
    """
    source, done = parse(config, world), Polled()
    place = _offsets_path(world, source)
    with _poll_lock(world, source), postgres.session(world, source.database, "replication") as c:
        now = _begin_snapshot(c, source)
        # {table: {"timestamp": …, "incrementing": …}}, behind which this poll begins; the query is
        # the table ""
        offsets = json.loads(files.read_text(place) or "{}")
        looked = {table: _describe_columns(c, source, table) for table in source.tables}
        for table, (schema, values) in looked.items():
            topic, statement = (
                topic_name(config, table),
                source.statement(table, offsets.get(table, {}), now),
            )
            count, last, unseen = _inspect(c, source, table, statement)
            topics.create(world, topic)
            if count:
                rows = _fetch_rows(c, source, JSON_ROWS_QUERY.format(values, statement))
                numeric = [
                    source.settings[f"{side}.converter.decimal.format"] == "NUMERIC"
                    for side in ("key", "value")
                ]
                topics.produce(
                    world,
                    topic,
                    (
                        _encode_row(place, text, topic, schema, source.transform_chain, *numeric)
                        for text in rows
                    ),
                )
                offsets[table] = dict(zip(source.offset_columns, last[1:]))
                files.write_text(place, json.dumps(offsets, indent=1))
            done.messages[topic], done.statements[topic], done.null_key_rows[topic] = (
                count,
                statement.as_string(c),
                unseen,
            )
    return done


def reset_offsets(world: World, config: dict[str, str]) -> None:
    """Start clean: the next poll begins anew. Raises LakeError: a poll of this connector is going
    on.
    """
    source = parse(config, world)
    with _poll_lock(world, source):
        files.remove(_offsets_path(world, source))


def _offsets_path(world: World, source: Source) -> str:
    name = re.sub(
        r"[^A-Za-z0-9._-]",
        "_",
        source.settings.config.get("name") or source.settings["topic.prefix"],
    )
    return join_uri(f"{world.lake.checkpoints}/polling", f"{name}.json")


def _poll_lock(world: World, source: Source) -> ContextManager[None]:
    return files.exclusive_lock(
        _offsets_path(world, source), f"poll of {source.settings.location}", "wait until it is done"
    )


def _begin_snapshot(c: psycopg.Connection, source: Source) -> str:
    """Open the snapshot that all is read in. Returns the database's time, less the connector's
    delay.

    The time is that of the source, as the connector has it: a poller whose clock goes wrong loses
    nothing by it.
    """
    c.autocommit, c.read_only, c.isolation_level = (
        False,
        True,
        psycopg.IsolationLevel.REPEATABLE_READ,
    )
    c.execute("SET LOCAL TIME ZONE 'UTC'; SET LOCAL datestyle = 'ISO'")  # a role may have others
    return c.execute(
        "SELECT (now() AT TIME ZONE 'UTC' - %s * interval '1 ms')::text",
        [source.settings["timestamp.delay.interval.ms"]],
    ).fetchone()[0]


def _describe_columns(
    c: psycopg.Connection, source: Source, table: str
) -> tuple[dict[str, Any], sql.Composable]:
    """Of a table, or of the query: the schema of its messages, and the SQL of their values. Raises
    SourceError.
    """
    # asked by the extended protocol, which takes one statement and no more
    found = c.execute(source.select_all(table) + sql.SQL(" LIMIT 0"), binary=True).description
    kinds = dict(c.execute(QUERIES["type_names"], [[of.type_code for of in found]]).fetchall())
    # those of a query may all be null: of an outer join, say, whatever its tables allow
    named = [postgres.identifier(table).as_string(c) if table else None]
    never_null = {name for (name,) in c.execute(QUERIES["not_null_columns"], named)}
    fields = {
        of.name: connect_field(
            of, kinds[of.type_code], of.name not in never_null, source.settings["numeric.mapping"]
        )
        for of in found
    }
    left_out = [f"{of.name} ({kinds[of.type_code]})" for of in found if fields[of.name] is None]
    where = f"database {source.database}, {table or 'query'}"
    if left_out:
        raise SourceError(
            f"no message can hold {', '.join(left_out)}",
            location=where,
            expected="types that Connect has; the connector leaves the others out without a word",
            hint="poll a query that names the columns, and casts these",
        )
    for key, name in source.offset_columns.items():
        if name not in fields:
            raise SourceError(
                f"there is no column {name}", location=where, expected=did_you_mean(name, fields)
            )
        if table and source.settings["validate.non.null"] and name not in never_null:
            raise SourceError(
                f"{name} may be null: such a row would never be polled",
                location=where,
                expected=f"a NOT NULL column for {key}.column.name",
                hint="ALTER TABLE … SET NOT NULL; or validate.non.null=false: they are counted",
            )
    schema = {
        "type": "struct",
        "fields": [field for field, _ in fields.values()],
        "optional": False,
        **({"name": table.rpartition(".")[2]} if table else {}),
    }
    return schema, sql.SQL(", ").join(value for _, value in fields.values())


def _inspect(
    c: psycopg.Connection, source: Source, table: str, statement: sql.Composable
) -> tuple[int, list[Any], int]:
    """How many rows a statement reads, what the last one has in the columns that the mode goes by
    (behind a 0, for bulk goes by none, and no row of PostgreSQL is empty), and how many rows of the
    table no poll sees.
    """
    may_be_null = not table or not source.settings["validate.non.null"]
    return c.execute(
        sql.SQL(QUERIES["poll_summary"]).format(
            keys=sql.SQL(", ").join(
                [sql.SQL("0"), *map(sql.Identifier, source.offset_columns.values())]
            ),
            statement=statement,
            all=source.select_all(table),
            may_be_null=may_be_null,
        )
    ).fetchone()


def _fetch_rows(c: psycopg.Connection, source: Source, query: sql.Composable) -> Iterator[str]:
    """The rows of a query in their order, batch.max.rows of them in memory at a time."""
    with c.cursor("polled") as cursor:
        cursor.itersize = source.settings["batch.max.rows"]
        yield from (text for (text,) in cursor.execute(query))


def _encode_row(place: str, text: str, topic: str, *made_by: Any) -> list[Optional[str]]:
    """As `message`. Raises: LakeError: no message can hold the row."""
    try:
        return encode_row(text, topic, *made_by)
    except ValueError as e:
        raise LakeError(
            f"{topic} was not polled: {e}",
            location=place,
            hint="mend the cause and poll again; what "
            "was sent of a table that was not finished is sent again",
        ) from e


def encode_row(
    text: str,
    topic: str,
    schema: dict[str, Any],
    chain: tuple[transforms.Transform, ...],
    numeric_key: bool = False,
    numeric_value: bool = False,
) -> list[Optional[str]]:
    """Return key and value of a row that comes as PostgreSQL's JSON, as Connect's JsonConverter
    writes them.

    Args:
        numeric_key, numeric_value: whether a Decimal is a number there (its decimal.format is
        NUMERIC), else base64.

    Raises:
        ValueError: a number that Connect's Decimal cannot hold; a transform fails.
    """
    row = json.loads(text)
    for column_ in schema["fields"]:
        name, value = column_["field"], row[column_["field"]]
        if value is not None and column_.get("name", "").endswith("Decimal"):
            if not value.lstrip("-").replace(".", "").isdecimal():
                raise ValueError(f"{name} is {value}, which a Decimal cannot hold")
            row[name] = NUMBER_MARK + value  # a text of PostgreSQL holds no NUL
    made = transforms.apply(chain, transforms.Record(topic, None, None, row, schema))
    parts = (
        (made.key_schema, made.key, numeric_key),
        (made.value_schema, made.value, numeric_value),
    )
    return [
        of
        and MARKED_NUMBER.sub(
            _to_number if numeric else _to_base64, _json({"schema": of, "payload": part})
        )
        for of, part, numeric in parts
    ]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _to_number(marked: re.Match[str]) -> str:
    return marked[1]


def _to_base64(marked: re.Match[str]) -> str:
    unscaled = int(marked[1].replace(".", ""))  # a numeric's text has all the digits of its scale
    size = max(unscaled, ~unscaled).bit_length() // 8 + 1  # as Java's BigInteger has it
    return _json(base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode("ascii"))
