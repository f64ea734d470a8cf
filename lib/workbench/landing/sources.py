"""What a source connector's JSON asks for: Confluent's JDBC source, on PostgreSQL.

A setting that the poll does not honour is an error that names it. The statements are those that the connector makes,
with values for its question marks.
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Optional

from psycopg import sql

from ..base import ConnectorError, World, nearest
from ..source.postgres import identifier
from . import transforms

JSON = "org.apache.kafka.connect.json.JsonConverter"
JDBC = "io.confluent.connect.jdbc.JdbcSourceConnector"
MODES = {
    "bulk": "",
    "incrementing": " WHERE {incrementing} > {last_incrementing} ORDER BY {incrementing} ASC",
    "timestamp": " WHERE {timestamp} > {last_timestamp} AND {timestamp} < {end} ORDER BY {timestamp} ASC",
    "timestamp+incrementing": " WHERE {timestamp} < {end} AND (({timestamp} = {last_timestamp} AND {incrementing} > "
                              "{last_incrementing}) OR {timestamp} > {last_timestamp}) ORDER BY {timestamp},"
                              "{incrementing} ASC"}
READ = {"connector.class", "name", "connection.url", "connection.user", "connection.password", "topic.prefix",
        "timestamp.column.name", "incrementing.column.name", "table.whitelist", "catalog.pattern", "schema.pattern",
        "query", "batch.max.rows", "timestamp.delay.interval.ms", "timestamp.initial", "transforms"}
# those with few values that are honoured; only the mode has no default, of converters the worker's counts;
CHOICES = {"mode": MODES, "numeric.mapping": ("none", "precision_only", "best_fit", "best_fit_eager_double"),
           "validate.non.null": ("true", "false"), "key.converter": (JSON,), "value.converter": (JSON,),
           "key.converter.schemas.enable": ("true",), "value.converter.schemas.enable": ("true",),
           "db.timezone": ("UTC",), "table.types": ("TABLE",), "timestamp.granularity": ("connect_logical",),
           "quote.sql.identifiers": ("always",)}
# and those that change nothing about what is sent: a call is one poll, whoever calls says when the next one is
NOT_NEEDED = {"tasks.max", "poll.interval.ms"}
INITIAL = {-2: "-infinity", -1: "now"}  # where the first poll begins, without timestamp.initial and with -1


@dataclass(frozen=True)
class Source:
    """What the JSON of a JDBC source asks for.

    place: the name of its offsets. topic: a topic's name, before that of the table. columns: those that it goes by,
    "timestamp", of which the first that is not null counts, and "incrementing", one. tables: as `schema.table`; of a
    query [""]. rows: read from the database at a time. delay: milliseconds that a row has to rest before it is read.
    initial: the time where the first poll begins.
    """

    place: str
    database: str
    topic: str
    mode: str
    columns: dict[str, tuple[str, ...]]
    tables: list[str]
    query: str
    not_null: bool
    numeric: str
    rows: int
    delay: int
    initial: str
    chain: tuple[transforms.Transform, ...]

    @property
    def keys(self) -> dict[str, sql.Composable]:
        """SQL of what it goes by."""
        names = {key: sql.SQL(",").join(map(sql.Identifier, columns)) for key, columns in self.columns.items()}
        return {key: sql.SQL("COALESCE({})" if len(self.columns[key]) > 1 else "{}").format(columns)
                for key, columns in names.items()}

    def rows_of(self, table: str) -> sql.Composable:
        """All rows of a table, of the query where that is "". A condition can follow."""
        if table:
            return sql.SQL("SELECT * FROM {}").format(identifier(table))
        return sql.SQL("SELECT * FROM (" + self.query + "\n) AS query")  # noqa: S608 - its end may be a comment

    def statement(self, table: str, begin: dict[str, str], end: str) -> sql.Composable:
        """What one poll reads: what is behind `begin`, {"timestamp": …, "incrementing": …}, and before the time `end`.
        """
        values = {f"last_{key}": sql.Literal(value) for key, value in begin.items()}
        return self.rows_of(table) + sql.SQL(MODES[self.mode]).format(**self.keys, **values, end=sql.Literal(end))


def parse(config: dict[str, str], world: World) -> Source:
    """Read a JDBC source's JSON.

    Understood, and it changes nothing: poll.interval.ms and tasks.max.

    Raises:
        ConnectorError: a setting is not honoured, or has no effect; a password is written out; the database is not the
            world's.
    """
    where = str(config.get("name", "the JDBC source's JSON"))

    def refuse(key: str, expected: str, next_step: str = "") -> ConnectorError:
        said = f"is {config[key]!r}" if key in config else "is missing"
        return ConnectorError(f"{key} {said}", where=where, expected=expected, next_step=next_step)

    def number(key: str, default: str, least: int) -> int:
        text = config.get(key, default)
        if not re.fullmatch(r"-?\d+", text) or int(text) < least:
            raise refuse(key, f"a whole number from {least}")
        return int(text)

    _check_keys(config, where, refuse)
    mode, query, tables = config["mode"], config.get("query", "").strip(), _names(config.get("table.whitelist", ""))
    database = _database(config, where, world)
    if config.get("catalog.pattern", database) != database:
        raise refuse("catalog.pattern", f"{database}: a catalog of PostgreSQL is a database. One published connector "
                     "has a schema here, and the driver does not look at it", "use schema.pattern")
    if bool(query) == bool(tables):
        raise refuse("query" if query else "table.whitelist", "either a query or tables")
    schema = config.get("schema.pattern", "public")
    named = [name if "." in name else f"{schema}.{name}" for name in tables]
    if len({name.rpartition(".")[2] for name in named}) < len(named):
        raise refuse("table.whitelist", "tables of different names: a topic is named without the schema")
    columns = {}
    for key in ("timestamp", "incrementing"):
        columns[key] = _names(config.get(f"{key}.column.name", ""))
        if key in mode.split("+") and (not columns[key] or key == "incrementing" and len(columns[key]) > 1):
            raise refuse(f"{key}.column.name", "the name of a column")
        if key not in mode.split("+") and columns.pop(key):
            raise refuse(f"{key}.column.name", f"nothing: mode {mode} does not look at it, though one published "
                         "connector has it", "remove it, or choose another mode")
    first = number("timestamp.initial", "-2", -1 if "timestamp.initial" in config else -2)
    return Source(
        re.sub(r"[^A-Za-z0-9._-]", "_", config.get("name") or config["topic.prefix"]), database, config["topic.prefix"],
        mode, columns, named or [""], query, config.get("validate.non.null") != "false",
        config.get("numeric.mapping", "none"), number("batch.max.rows", "100", 1),
        number("timestamp.delay.interval.ms", "0", 0),
        INITIAL.get(first) or str(datetime(1970, 1, 1) + timedelta(milliseconds=first)),
        transforms.parse(config, where))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _check_keys(config: dict[str, str], where: str, refuse: Any) -> None:
    if config.get("connector.class") != JDBC:
        raise refuse("connector.class", JDBC)
    known = READ | CHOICES.keys() | NOT_NEEDED
    for key in config:
        if key not in known and not key.startswith("transforms."):
            raise ConnectorError(f"the poll does not honour {key}", where=where, expected=nearest(key, known),
                                 next_step="remove it, or run the real connector")
    for key, choices in CHOICES.items():
        if (key in config or key == "mode") and config.get(key) not in choices:
            raise refuse(key, nearest(config.get(key, ""), choices), "or run the real connector")
    if not re.fullmatch(r"[\w.-]+", config.get("topic.prefix", ""), re.ASCII):
        raise refuse("topic.prefix", "the beginning of a topic's name, all of it where a query is polled")


def _database(config: dict[str, str], where: str, world: World) -> str:
    """The database that the JSON names. It is one of the world's PostgreSQL, and read as who connectors log in as."""
    pg = world.postgres
    server, _, database = config.get("connection.url", "").rpartition("/")
    expected = {"connection.url": f"jdbc:postgresql://{pg.host}:{pg.port}", "connection.user": pg.replication_user,
                "connection.password": world.connect.password_reference}
    for key, right in expected.items():
        if {**config, "connection.url": server}.get(key) != right or not re.fullmatch(r"[^?&;]+", database):
            # what it is is not shown: a password may stand in it, which is named, never written out
            raise ConnectorError(f"{key} is not that of who reads this world's PostgreSQL for connectors", where=where,
                                 expected=right + "/<database>, and nothing behind it" * key.endswith("url"),
                                 next_step="connect.placeholders(world) has the parts")
    return database


# --- types -----------------------------------------------------------------------------------------------------------

_LOGICAL = "org.apache.kafka.connect.data."
# the driver's numbers for infinity
_MILLIS = "(CASE WHEN isfinite({0}) THEN floor(extract(epoch FROM {0}) * 1000)::int8 " \
    "WHEN {0} > 'epoch' THEN 9223372036825200000 WHEN {0} < 'epoch' THEN -9223372036832400000 END)"
# {type of PostgreSQL: (type of Connect, its logical name, SQL for the value as Connect's JSON has it)}
TYPES = {
    "bool": ("boolean", "", "{}"), "int2": ("int16", "", "{}"), "int4": ("int32", "", "{}"),
    "int8": ("int64", "", "{}"), "oid": ("int64", "", "{}::int8"),
    "float4": ("float", "", "{}"), "float8": ("double", "", "{}"),
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "uuid", "enum"), ("string", "", "{}")),
    **dict.fromkeys(("json", "jsonb"), ("string", "", "{}::text")),
    "bytea": ("bytes", "", "translate(encode({}, 'base64'), E'\\n', '')"),
    "date": ("int32", "Date", "({} - date 'epoch')"),
    "time": ("int32", "Time", "floor(extract(epoch FROM {}) * 1000)::int4"),
    "timestamp": ("int64", "Timestamp", _MILLIS), "timestamptz": ("int64", "Timestamp", _MILLIS),
}


def column(name: str, kind: str, modifier: int, optional: bool, numeric: str) -> Optional[tuple[dict[str, Any], str]]:
    """The field of Connect's schema that a column becomes, as the connector has it, and the SQL of its value.

    None where the connector leaves the column out (an array, a range, an interval, …), or makes 8 bits of any number:
    of a numeric without precision, where numbers are mapped by precision.

    Args:
        kind: its type in PostgreSQL (pg_type.typname), "enum" for any enum. modifier: pg_attribute.atttypmod.
        numeric: numeric.mapping.
    """
    found = TYPES.get(kind)
    if kind == "numeric":
        found = _numeric(modifier, numeric)
    if found is None:
        return None
    type_, logical, value = found
    schema: dict[str, Any] = {"type": type_, "optional": optional}
    if logical:
        schema.update(name=_LOGICAL + logical.split(":")[0], version=1)
    if logical.startswith("Decimal"):
        schema["parameters"] = {"scale": logical.split(":")[1]}
    return {**schema, "field": name}, value


def _numeric(modifier: int, mapping: str) -> Optional[tuple[str, str, str]]:
    if modifier < 0:  # no precision: the connector takes 127 for the scale
        return ("bytes", "Decimal:127", "{}::text") if mapping == "none" else None
    precision, scale = (modifier - 4) >> 16, (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400
    whole = scale == 0 if mapping == "precision_only" else scale <= 0
    if mapping != "none" and whole and precision <= 18:
        size = next(size for most, size in ((2, 8), (4, 16), (9, 32), (18, 64)) if precision <= most)
        return f"int{size}", "", "{}::int8"
    if scale > 0 and (mapping == "best_fit_eager_double" or mapping == "best_fit" and precision <= 18):
        return "double", "", "{}::float8"
    return "bytes", f"Decimal:{scale}", "{}::text"
