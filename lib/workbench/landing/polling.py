"""Tables → topics: the work of Confluent's JDBC source, done from that connector's own JSON (see sources.py).

For a world whose Kafka Connect has no such plugin. One poll reads all its tables in one snapshot of the database, by
Spark's JDBC source, and sends what is new since the last as JSON with its schema. How far it came is written when Kafka
has all of a table: a poll that is killed before is done again, and its messages come twice (at least once). No row is
skipped between two polls, also where several share the last timestamp, for one poll is one read and ends with all of
them. What no poll sees stands in docs/limits.md.
"""
from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any, Callable, ContextManager, Iterator

import psycopg
from psycopg import sql
from pyspark.sql import SparkSession

from ..base import SourceError, World, files, nearest, secrets
from ..source import postgres
from ..spark import answered, causes
from ..topic import topics
from . import transforms
from .sources import Source, column, parse


@dataclass(frozen=True)
class Polled:
    """What one poll did. messages: {topic: how many it sent}; statements: {topic: what it read by}; unseen: {topic:
    rows that no poll sees, for what polling goes by is null in them}."""

    messages: dict[str, int] = field(default_factory=dict)
    statements: dict[str, str] = field(default_factory=dict)
    unseen: dict[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        sent = ", ".join(f"{topic} {n:,}" for topic, n in self.messages.items())
        unseen = "".join(f"; {n:,} more are never polled, for what polling goes by is null in them ({topic})"
                         for topic, n in self.unseen.items() if n)
        return f"polled {sum(self.messages.values()):,} messages: {sent}{unseen}"


@dataclass(frozen=True)
class _Read:
    """What one poll reads of a table: its topic, the schema of the messages, the statement and the SQL that makes JSON
    of its rows, how many they are, how many no poll sees, and where the next one begins."""

    table: str
    topic: str
    schema: dict[str, Any]
    statement: sql.Composable
    as_json: sql.Composable
    rows: int
    unseen: int
    next: dict[str, str]


def poll(spark: SparkSession, world: World, config: dict[str, str]) -> Polled:
    """Send what is new in the tables, or in the query, of a JDBC source.

    Args:
        config: the source connector's JSON (see connect.config).

    Raises:
        ConnectorError: the config cannot be honoured. SourceError: a table, a column or the query is not as the config
            has it; nothing is sent then. LakeError: another poll of this connector is going on; or not all was sent,
            and the next poll sends it again. StackError: Spark or Kafka is gone.
    """
    source = parse(config, world)
    place, done = _place(world, source), Polled()
    next_step = "mend the cause and poll again; what was sent of a table that was not finished is sent again"
    with _alone(world, source), postgres.session(world, source.database, "replication") as c:
        snapshot, now = _begin(c, source)
        offsets = polled_from(world, config)
        for read in [_look(c, source, table, offsets.get(table, {}), now) for table in source.tables]:
            topics.create(world, read.topic)
            if read.rows:
                with answered(spark, f"{read.topic} was not polled", place, next_step, world), causes(spark):
                    _send(spark, world, source, read, snapshot, read.as_json.as_string(c))
            done.messages[read.topic], done.unseen[read.topic] = read.rows, read.unseen
            done.statements[read.topic] = read.statement.as_string(c)
            offsets[read.table] = read.next
            files.write_text(place, json.dumps(offsets, indent=1))
    return done


def polled_from(world: World, config: dict[str, str]) -> dict[str, dict[str, str]]:
    """{table: {"timestamp": …, "incrementing": …}}, behind which the next poll begins; the query is the table ""."""
    return json.loads(files.read_text(_place(world, parse(config, world))) or "{}")


def forget(world: World, config: dict[str, str]) -> None:
    """Start clean: the next poll begins anew. Raises LakeError: a poll of this connector is going on."""
    source = parse(config, world)
    with _alone(world, source):
        files.remove(_place(world, source))


def _place(world: World, source: Source) -> str:
    return f"{world.lake.checkpoints}/polling/{source.place}.json"


def _alone(world: World, source: Source) -> ContextManager[None]:
    return files.alone(_place(world, source), f"poll of {source.place}", "wait until it is done")


def _begin(c: psycopg.Connection, source: Source) -> tuple[str, str]:
    """Open the snapshot that all is read in. Returns its name and the database's time, less the connector's delay.

    The time is that of the source, as the connector has it: a poller whose clock goes wrong loses nothing by it."""
    c.autocommit, c.read_only, c.isolation_level = False, True, psycopg.IsolationLevel.REPEATABLE_READ
    c.execute("SET LOCAL TIME ZONE 'UTC'; SET LOCAL datestyle = 'ISO'")  # a role may have others
    return c.execute("SELECT pg_export_snapshot(), (now() AT TIME ZONE 'UTC' - %s * interval '1 ms')::text",
                     [source.delay]).fetchone()


def _fields(c: psycopg.Connection, source: Source, table: str) -> dict[str, tuple[dict[str, Any], str]]:
    """{column: (field of the message, SQL of its value)} of a table, or of the query. Raises SourceError."""
    # asked by the extended protocol, which takes one statement and no more
    found = c.execute(source.rows_of(table) + sql.SQL(" LIMIT 0"), binary=True).pgresult
    numbers = range(found.nfields)
    names = [found.fname(i).decode() for i in numbers]
    # a column may not be null where its table says so, as the driver sees it; what is computed may be
    kinds = c.execute("""
        SELECT CASE t.typtype WHEN 'e' THEN 'enum' ELSE t.typname END, NOT coalesce(a.attnotnull, false)
        FROM unnest(%s::oid[], %s::oid[], %s::int[]) WITH ORDINALITY q (type, rel, number, n)
        JOIN pg_type t ON t.oid = type LEFT JOIN pg_attribute a ON a.attrelid = rel AND a.attnum = number ORDER BY n""",
                      [[of(i) for i in numbers] for of in (found.ftype, found.ftable, found.ftablecol)]).fetchall()
    fields = {name: column(name, kind, found.fmod(i), optional, source.numeric)
              for i, name, (kind, optional) in zip(numbers, names, kinds)}
    left_out = [f"{name} ({kind})" for name, (kind, _) in zip(names, kinds) if fields[name] is None]
    where = f"database {source.database}, {table or 'query'}"
    if left_out or len(fields) < len(names):
        raise SourceError(f"no message can hold {', '.join(left_out) or 'two columns of one name'}", where=where,
                          expected="types that Connect has; the connector leaves the others out without a word",
                          next_step="poll a query that names the columns, and casts or renames these")
    for key, columns in source.columns.items():
        for name in columns:
            if name not in fields:
                raise SourceError(f"there is no column {name}", where=where, expected=nearest(name, fields))
        if table and source.not_null and all(fields[name][0]["optional"] for name in columns):
            raise SourceError(f"{', '.join(columns)} may be null: such a row would never be polled", where=where,
                              expected=f"a NOT NULL column for {key}.column.name",
                              next_step="ALTER TABLE … SET NOT NULL; or validate.non.null=false: they are counted")
    return fields


def _look(c: psycopg.Connection, source: Source, table: str, offset: dict[str, str], now: str) -> _Read:
    """What is to be read of a table, or of the query. Raises SourceError."""
    fields, keys = _fields(c, source, table), source.keys
    first = {"timestamp": now if source.initial == "now" else source.initial, "incrementing": "-1"}
    begin = {key: offset.get(key, first[key]) for key in keys}
    statement = source.statement(table, begin, now)

    def listed(text: str) -> sql.Composable:
        return sql.SQL(", ").join(sql.SQL(text).format(key) for key in keys.values())

    last = c.execute(sql.SQL("SELECT {} FROM ({}) AS polled {} LIMIT 1").format(
        sql.SQL(", ").join([sql.SQL("count(*) OVER ()"), *([listed("{}::text")] if keys else [])]), statement,
        sql.SQL("ORDER BY ") + listed("{} DESC") if keys else sql.SQL(""))).fetchone() or (0, *begin.values())
    nullable = any(fields[name][0]["optional"] for columns in source.columns.values() for name in columns)
    unseen = c.execute(sql.SQL("SELECT count(*) FROM ({}) AS polled WHERE num_nulls({}) > 0").format(
        source.rows_of(table), listed("{}"))).fetchone()[0] if nullable else 0
    values = sql.SQL(", ").join(sql.SQL(value).format(sql.Identifier(name)) + sql.SQL(" AS ") + sql.Identifier(name)
                                for name, (_, value) in fields.items())
    as_json = sql.SQL("SELECT row_to_json(message)::text AS value FROM (SELECT {} FROM ({}) AS polled) AS message")
    name = table.rpartition(".")[2]
    schema = {"type": "struct", "fields": [schema for schema, _ in fields.values()], "optional": False,
              **({"name": name} if name else {})}
    return _Read(table, source.topic + name, schema, statement, as_json.format(values, statement), last[0], unseen,
                 dict(zip(keys, last[1:])))


def _send(spark: SparkSession, world: World, source: Source, read: _Read, snapshot: str, query: str) -> None:
    """Read the rows in the snapshot, in their order, and send them; returns when Kafka has them all.

    Spark is told no password: its driver of PostgreSQL finds it in a file (secrets.passfile)."""
    pg = world.postgres
    secrets.keep_login(pg.host, pg.port, pg.replication_user, pg.replication_password)
    rows = spark.read.format("jdbc").options(
        url=f"jdbc:postgresql://{pg.host}:{pg.port}/{source.database}", user=pg.replication_user, query=query,
        driver="org.postgresql.Driver", fetchsize=str(source.rows),
        sessionInitStatement="SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY; "
                             f"SET TRANSACTION SNAPSHOT '{snapshot}'; SET TIME ZONE 'UTC'").load()
    messages = rows.mapInPandas(_messages(read.topic, read.schema, source.chain), "key string, value string")
    reached = {key: topics.spark_options(world)[key] for key in ("kafka.bootstrap.servers", "kafka.security.protocol")}
    messages.write.format("kafka").options(**reached, topic=read.topic).save()


def _messages(topic: str, schema: dict[str, Any], chain: tuple[transforms.Transform, ...]) -> Callable:
    """The function for mapInPandas that makes messages of rows in JSON. It travels to the worker by value."""
    from pyspark import cloudpickle

    import workbench

    cloudpickle.register_pickle_by_value(workbench)  # a worker elsewhere does not have this package

    def message(text: str) -> tuple:
        row = payload(text, schema)
        made = transforms.apply(chain, transforms.Record(topic, None, None, row, schema))
        return tuple(None if part is None and of is None else json.dumps(
            {"schema": of, "payload": part}, ensure_ascii=False, separators=(",", ":"))
            for part, of in ((made.key, made.key_schema), (made.value, made.value_schema)))

    def messages(frames: Iterator) -> Iterator:
        import pandas

        for frame in frames:
            yield pandas.DataFrame([message(text) for text in frame["value"]], columns=["key", "value"], dtype=object)

    return messages


def payload(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A row, as PostgreSQL's JSON, in Connect's: a Decimal is the base64 of its unscaled number.

    Raises ValueError: a number that Connect's Decimal cannot hold; a null that the schema does not allow."""
    row = json.loads(text)
    for column_ in schema["fields"]:
        value, name = row[column_["field"]], column_["field"]
        if value is None and not column_["optional"]:
            raise ValueError(f"{name} is null, and its table says that it never is: an outer join, say")
        if value is not None and column_.get("name", "").endswith("Decimal"):
            whole, _, fraction = value.partition(".")
            scale = int(column_["parameters"]["scale"])
            if not whole.lstrip("-").isdecimal() or len(fraction) > max(scale, 0):  # NaN, Infinity; or too many digits
                raise ValueError(f"{name} is {value}, which a Decimal of scale {scale} cannot hold")
            unscaled = int(whole + fraction.ljust(max(scale, 0), "0")) // 10 ** max(-scale, 0)
            size = (unscaled if unscaled >= 0 else unscaled + 1).bit_length() // 8 + 1  # as Java's BigInteger has it
            row[name] = base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode("ascii")
    return row
