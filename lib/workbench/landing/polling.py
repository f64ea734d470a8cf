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
from .sources import Source, column, parse, topic_of

# m.*, for a column may be called m, too
NUMBER = "\0"  # begins a number among the values of a row, until JSON is written
MARKED = re.compile(r'"\\u0000(-?[\d.]+)"')
AS_JSON = sql.SQL(
    "SELECT row_to_json(m.*)::text AS value FROM (SELECT {} FROM ({}) AS polled) AS m"
)


@dataclass(frozen=True)
class Polled:
    """What one poll did. messages: {topic: how many it sent}; statements: {topic: what it read by};
    unseen: {topic: rows that no poll sees, for what polling goes by is null in them}.
    """

    messages: dict[str, int] = field(default_factory=dict)
    statements: dict[str, str] = field(default_factory=dict)
    unseen: dict[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        sent = ", ".join(f"{topic} {n:,}" for topic, n in self.messages.items())
        unseen = "".join(
            f"; {n:,} more are never polled, for what polling goes by is null in them ({topic})"
            for topic, n in self.unseen.items()
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
    place = _place(world, source)
    with _alone(world, source), postgres.session(world, source.database, "replication") as c:
        now = _begin(c, source)
        # {table: {"timestamp": …, "incrementing": …}}, behind which this poll begins; the query is
        # the table ""
        offsets = json.loads(files.read_text(place) or "{}")
        looked = {table: _messages_of(c, source, table) for table in source.tables}
        for table, (schema, values) in looked.items():
            topic, statement = (
                topic_of(config, table),
                source.statement(table, offsets.get(table, {}), now),
            )
            count, last, unseen = _look(c, source, table, statement)
            topics.create(world, topic)
            if count:
                rows = _rows(c, source, AS_JSON.format(values, statement))
                numeric = [
                    source.said[f"{side}.converter.decimal.format"] == "NUMERIC"
                    for side in ("key", "value")
                ]
                topics.send(
                    world,
                    topic,
                    (_message(place, text, topic, schema, source.chain, *numeric) for text in rows),
                )
                offsets[table] = dict(zip(source.columns, last[1:]))
                files.write_text(place, json.dumps(offsets, indent=1))
            done.messages[topic], done.statements[topic], done.unseen[topic] = (
                count,
                statement.as_string(c),
                unseen,
            )
    return done


def forget(world: World, config: dict[str, str]) -> None:
    """Start clean: the next poll begins anew. Raises LakeError: a poll of this connector is going
    on.
    """
    source = parse(config, world)
    with _alone(world, source):
        files.remove(_place(world, source))


def _place(world: World, source: Source) -> str:
    name = re.sub(
        r"[^A-Za-z0-9._-]", "_", source.said.given.get("name") or source.said["topic.prefix"]
    )
    return join_uri(f"{world.lake.checkpoints}/polling", f"{name}.json")


def _alone(world: World, source: Source) -> ContextManager[None]:
    return files.exclusive_lock(
        _place(world, source), f"poll of {source.said.where}", "wait until it is done"
    )


def _begin(c: psycopg.Connection, source: Source) -> str:
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
        [source.said["timestamp.delay.interval.ms"]],
    ).fetchone()[0]


def _messages_of(
    c: psycopg.Connection, source: Source, table: str
) -> tuple[dict[str, Any], sql.Composable]:
    """Of a table, or of the query: the schema of its messages, and the SQL of their values. Raises
    SourceError.
    """
    # asked by the extended protocol, which takes one statement and no more
    found = c.execute(source.rows_of(table) + sql.SQL(" LIMIT 0"), binary=True).description
    kinds = dict(c.execute(QUERIES["kinds_of_types"], [[of.type_code for of in found]]).fetchall())
    # those of a query may all be null: of an outer join, say, whatever its tables allow
    named = [postgres.identifier(table).as_string(c) if table else None]
    never_null = {name for (name,) in c.execute(QUERIES["never_null"], named)}
    fields = {
        of.name: column(
            of, kinds[of.type_code], of.name not in never_null, source.said["numeric.mapping"]
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
    for key, name in source.columns.items():
        if name not in fields:
            raise SourceError(
                f"there is no column {name}", location=where, expected=did_you_mean(name, fields)
            )
        if table and source.said["validate.non.null"] and name not in never_null:
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


def _look(
    c: psycopg.Connection, source: Source, table: str, statement: sql.Composable
) -> tuple[int, list[Any], int]:
    """How many rows a statement reads, what the last one has in the columns that the mode goes by
    (behind a 0, for bulk goes by none, and no row of PostgreSQL is empty), and how many rows of the
    table no poll sees.
    """
    may_be_null = not table or not source.said["validate.non.null"]
    return c.execute(
        sql.SQL(QUERIES["polled"]).format(
            keys=sql.SQL(", ").join([sql.SQL("0"), *map(sql.Identifier, source.columns.values())]),
            statement=statement,
            all=source.rows_of(table),
            may_be_null=may_be_null,
        )
    ).fetchone()


def _rows(c: psycopg.Connection, source: Source, query: sql.Composable) -> Iterator[str]:
    """The rows of a query in their order, batch.max.rows of them in memory at a time."""
    with c.cursor("polled") as cursor:
        cursor.itersize = source.said["batch.max.rows"]
        yield from (text for (text,) in cursor.execute(query))


def _message(place: str, text: str, topic: str, *made_by: Any) -> list[Optional[str]]:
    """As `message`. Raises: LakeError: no message can hold the row."""
    try:
        return message(text, topic, *made_by)
    except ValueError as e:
        raise LakeError(
            f"{topic} was not polled: {e}",
            location=place,
            hint="mend the cause and poll again; what "
            "was sent of a table that was not finished is sent again",
        ) from e


def message(
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
            row[name] = NUMBER + value  # a text of PostgreSQL holds no NUL
    made = transforms.apply(chain, transforms.Record(topic, None, None, row, schema))
    parts = (
        (made.key_schema, made.key, numeric_key),
        (made.value_schema, made.value, numeric_value),
    )
    return [
        of and MARKED.sub(_number if numeric else _base64, _json({"schema": of, "payload": part}))
        for of, part, numeric in parts
    ]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _number(marked: re.Match[str]) -> str:
    return marked[1]


def _base64(marked: re.Match[str]) -> str:
    unscaled = int(marked[1].replace(".", ""))  # a numeric's text has all the digits of its scale
    size = max(unscaled, ~unscaled).bit_length() // 8 + 1  # as Java's BigInteger has it
    return _json(base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode("ascii"))
