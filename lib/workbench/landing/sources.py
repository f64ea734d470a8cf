"""What a source connector's JSON asks for: Confluent's JDBC source, on PostgreSQL.

A setting that the poll does not support is an error that names it. The statements are those of the
connector, with values for its question marks. settings.yaml has the statements and the types that a
column may have.
"""

import re
from dataclasses import dataclass
from typing import Any, Optional

from psycopg import Column, sql

from ..base import ConnectorError, World
from ..source.postgres import identifier
from . import settings as settings_
from . import transforms
from .settings import Settings

JDBC = "io.confluent.connect.jdbc.JdbcSourceConnector"
JDBC_RULES = settings_.SUPPORTED["source"][JDBC]
# the offsets after which the first poll starts
INITIAL_OFFSETS = {"timestamp": "-infinity", "incrementing": "-1"}
# the integer types that hold a number of so many digits
INT_BITS = {2: 8, 4: 16, 9: 32, 18: 64}


@dataclass(frozen=True)
class Source:
    """What the JSON of a JDBC source asks for.

    Attributes:
        settings: its settings.
        database: name of the database.
        tables: the tables as `schema.table`; [""] for a query.
        transform_chain: the transforms of each message.
    """

    settings: Settings
    database: str
    tables: list[str]
    transform_chain: tuple[transforms.Transform, ...]

    @property
    def offset_columns(self) -> dict[str, str]:
        """The columns that the mode goes by: "timestamp", "incrementing"."""
        columns = {key: self.settings[f"{key}.column.name"] for key in INITIAL_OFFSETS}
        return {key: name for key, name in columns.items() if name}

    def select_all(self, table: str) -> sql.Composable:
        """Return the SELECT for all rows of a table, or of the query for "".

        A condition can follow.
        """
        if table:
            return sql.SQL("SELECT * FROM {}").format(identifier(table))
        # the query may end with a comment
        return sql.SQL("SELECT * FROM (" + self.settings["query"] + "\n) AS query")  # noqa: S608

    def statement(self, table: str, offset: dict[str, str], end: str) -> sql.Composable:
        """Return the statement of one poll.

        Args:
            table: the table, or "" for the query.
            offset: {"timestamp": …, "incrementing": …}; the poll reads the rows after it.
            end: the poll reads the rows before this time.
        """
        columns = {key: sql.Identifier(name) for key, name in self.offset_columns.items()}
        last = {
            f"last_{key}": sql.Literal(value)
            for key, value in {**INITIAL_OFFSETS, **offset}.items()
        }
        condition = sql.SQL(JDBC_RULES["modes"][self.settings["mode"]])
        return self.select_all(table) + condition.format(**columns, **last, end=sql.Literal(end))


def parse(config: dict[str, str], world: World) -> Source:
    """Read a JDBC source's JSON.

    Two settings are allowed and change nothing: poll.interval.ms and tasks.max.

    Raises:
        ConnectorError: a setting is not supported or has no effect, a password is written out, or
            the database is not the environment's.
    """
    settings = settings_.validate("source", config, config.get("name", "the JDBC source's JSON"))
    database = _require_connection(settings, world)
    names, query = settings["table.whitelist"], settings["query"]
    if bool(query) == bool(names):
        raise settings.error_for(
            "query" if query else "table.whitelist", "either a query or tables"
        )
    schema = settings["schema.pattern"]
    tables = [name if "." in name else f"{schema}.{name}" for name in names] or [""]
    if len({topic_name(config, table) for table in tables}) < len(tables):
        raise settings.error_for(
            "table.whitelist", "tables of different names: a topic is named without the schema"
        )
    return Source(settings, database, tables, transforms.parse(config, settings.location))


def _require_connection(settings: Settings, world: World) -> str:
    """Return the database of the connection.

    Raises:
        ConnectorError: the connection is not that of the environment's replication user.
    """
    address: str = settings["connection.url"]
    server, _, database = address.rpartition("/")
    postgres = world.postgres
    url = f"jdbc:postgresql://{postgres.host}:{postgres.port}"
    user, password = postgres.replication_user, world.connect.password_reference
    is_url = server == url and re.fullmatch(r"[^?&;]+", database)
    for key, is_valid, expected in (
        ("connection.url", is_url, f"{url}/<database>"),
        ("connection.user", settings["connection.user"] == user, user),
        ("connection.password", settings["connection.password"] == password, password),
    ):
        if not is_valid:
            # The value is not shown: it may contain a password, which has to be a reference.
            raise ConnectorError(
                f"{key} is not that of the user who reads this environment's PostgreSQL for connectors",
                location=settings.location,
                expected=expected,
                hint="connect.placeholders(world) has the parts",
            )
    return database


def topic_name(config: dict[str, str], table: str) -> str:
    """Return the topic to which a source connector sends a table.

    Debezium's topic has prefix, schema and table in its name, the JDBC source's prefix and table,
    or for a query only the prefix.

    Args:
        config: the connector's JSON.
        table: the table as `schema.table`.
    """
    prefix = config["topic.prefix"]
    if config.get("connector.class") != JDBC:
        return f"{prefix}.{table}"
    return prefix if config.get("query") else prefix + table.rpartition(".")[2]


def connect_field(
    described: Column, kind: str, optional: bool, mapping: list[int]
) -> Optional[tuple[dict[str, Any], sql.Composed]]:
    """Return the field of a column in Connect's schema, as the connector has it, and its SQL.

    Args:
        described: the column.
        kind: its type in PostgreSQL (pg_type.typname), "enum" for any enum.
        optional: whether it may be null.
        mapping: numeric.mapping, as settings.yaml has it.

    Returns:
        The field, and the SQL of the value. None where the connector leaves the column out (an
        array, a range, an interval, …). None also for a number without precision, to which the
        connector gives 127 digits after the point.
    """
    rule = (
        _numeric_type(described, *mapping) if kind == "numeric" else JDBC_RULES["types"].get(kind)
    )
    if rule is None:
        return None
    logical, name = rule.get("logical", {}), described.name
    field = {"type": rule["type"], "optional": optional, **logical, "field": name}
    value = sql.SQL(rule.get("value", "{0}") + " AS {0}")
    return field, value.format(sql.Identifier(name))


def _numeric_type(
    described: Column, int_digits: int, double_digits: int
) -> Optional[dict[str, Any]]:
    """Return the type of a number: up to so many digits an int or a double, else a Decimal."""
    precision, scale = described.precision, described.scale
    if precision is None or scale is None or scale > 1000:  # psycopg returns a negative scale so
        return None
    if scale == 0 and precision <= int_digits:
        bits = next(bits for digits, bits in INT_BITS.items() if precision <= digits)
        return {"type": f"int{bits}", "value": "{0}::int8"}
    if scale > 0 and precision <= double_digits:
        return {"type": "double", "value": "{0}::float8"}
    decimal = {
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": str(scale)},
    }
    return {"type": "bytes", "logical": decimal, "value": "{0}::text"}
