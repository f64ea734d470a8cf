"""The configuration of a source connector, Confluent's JDBC source, parsed from its JSON.

A setting that the poll does not support raises an error that names the
setting. The SQL statements are the connector's, with literals in place of its parameters.
column_types.yaml has the supported types of columns.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from psycopg import sql

from ..base import ConnectorError, World, yaml_files
from ..source.names import identifier
from ..source.snapshot import Column
from ..topic.connect_schema import DECIMAL
from . import transforms
from .settings import SUPPORTED, ConnectorConfig, Values, split_list

JDBC = "io.confluent.connect.jdbc.JdbcSourceConnector"
COLUMN_TYPES = yaml_files.load(Path(__file__).with_name("column_types.yaml"))
# the rows after those of the last poll and before the end of this one
CONDITION = " WHERE {timestamp} > {last} AND {timestamp} < {end} ORDER BY {timestamp} ASC"
# numeric.mapping=best_fit publishes longer numbers as a Decimal, as without it
BEST_FIT_DIGITS = 18


@dataclass(frozen=True)
class Source:
    """The parsed configuration of a JDBC source.

    Attributes:
        location: the connector, for errors.
        settings: {setting of the connector: text}.
        database: name of the database.
        tables: the tables as `schema.table`; [""] for a query.
        transforms: the transforms of each message.
        has_numbers: whether a Decimal in the value is a number (decimal.format=NUMERIC) instead of base64.
    """

    location: str
    settings: Values
    database: str
    tables: list[str]
    transforms: transforms.Transforms
    has_numbers: bool

    def select_all(self, table: str) -> sql.Composable:
        """Return the SELECT for all rows of a table, or of the query if `table` is empty.

        A WHERE clause can be appended.
        """
        if table:
            return sql.SQL("SELECT * FROM {}").format(identifier(table))
        # the query may end with a comment
        return sql.SQL("SELECT * FROM (" + self.settings["query"] + "\n) AS query")  # noqa: S608

    def statement(self, table: str, last: str, end: str) -> sql.Composable:
        """Return the statement of one poll.

        Args:
            table: the table, or "" for the query.
            last: a timestamp; the poll reads later rows.
            end: a timestamp; the poll reads earlier rows.
        """
        condition = sql.SQL(CONDITION).format(
            timestamp=sql.Identifier(self.settings["timestamp.column.name"]),
            last=sql.Literal(last),
            end=sql.Literal(end),
        )
        return self.select_all(table) + condition


def parse(values: dict[str, str], world: World) -> Source:
    """Read a JDBC source's JSON.

    poll.interval.ms and tasks.max are accepted and have no effect.

    Raises:
        ConnectorError: a setting is not supported; a password is in plain text; or the database is not
            the environment's.
    """
    config = ConnectorConfig(values, values.get("name", "the JDBC source's JSON"))
    settings = config.parse_connector(SUPPORTED["sources"])
    database = _require_connection(config, settings, world)
    names, query = split_list(settings["table.whitelist"]), settings["query"]
    if bool(query) == bool(names):
        raise config.error("query" if query else "table.whitelist", "either a query or tables")
    schema = settings["schema.pattern"]
    tables = [name if "." in name else f"{schema}.{name}" for name in names] or [""]
    if len({topic_name(values, table) for table in tables}) < len(tables):
        raise config.error(
            "table.whitelist",
            "tables with different names, because topic names do not contain the schema",
        )
    return Source(
        config.location,
        settings,
        database,
        tables,
        transforms.parse(config),
        settings["value.converter.decimal.format"] == "NUMERIC",
    )


def _require_connection(config: ConnectorConfig, settings: Values, world: World) -> str:
    """Return the name of the database in connection.url.

    Raises:
        ConnectorError: the server, user or password differs from the environment's.
    """
    address = f"jdbc:postgresql://{world.postgres.host}:{world.postgres.port}"
    # the built-in poller uses the TLS settings of the world itself
    tls = r"(\?(&?ssl(mode|rootcert|factory)=[^?&;]*)+)?"
    url = re.fullmatch(rf"{re.escape(address)}/([^?&;]+){tls}", settings["connection.url"])
    user, password = world.postgres.replication_user, world.connect.password_reference
    for key, is_valid, expected in (
        ("connection.url", url, f"{address}/<database>"),
        ("connection.user", settings["connection.user"] == user, user),
        ("connection.password", settings["connection.password"] == password, password),
    ):
        if not is_valid:
            # The value is not shown, because it may contain a plaintext password.
            raise ConnectorError(
                f"{key} is not that of the user who polls this environment's PostgreSQL",
                location=config.location,
                expected=expected,
                hint="connect.placeholders(world) returns the values",
            )
    assert url
    return url[1]


def topic_name(config: dict[str, str], table: str) -> str:
    """Return the topic to which a source connector produces the rows of a table.

    Debezium's topic names have prefix, schema and table. The JDBC source's have prefix and table, for
    a query only the prefix.

    Args:
        config: the connector's JSON.
        table: the table as `schema.table`.
    """
    prefix = config["topic.prefix"]
    if config.get("connector.class") != JDBC:
        return f"{prefix}.{table}"
    return prefix if config.get("query") else prefix + table.rpartition(".")[2]


def connect_field(described: Column, mapping: str) -> Optional[tuple[dict[str, Any], sql.Composed]]:
    """Return a column's field in the Connect schema, as the connector defines it, and the SQL of its value.

    Args:
        described: the column.
        mapping: numeric.mapping.

    Returns:
        (field, SQL of the value). None if the connector skips the type (an array, a range, an
        interval, …), for a numeric with a negative scale, for one without precision, which the
        connector would publish with scale 127, and for one that best_fit would publish as an integer or a double.
    """
    if described.kind == "numeric":
        rule = _numeric_type(described, mapping)
    else:
        rule = COLUMN_TYPES.get(described.kind)
    if rule is None:
        return None
    logical, name = rule.get("logical", {}), described.name
    field = {"type": rule["type"], "optional": described.optional, **logical, "field": name}
    value = sql.SQL(rule.get("value", "{0}") + " AS {0}")
    return field, value.format(sql.Identifier(name))


def _numeric_type(described: Column, mapping: str) -> Optional[dict[str, Any]]:
    """Return the type of a numeric, a Decimal; None if it is not supported."""
    precision, scale = described.precision, described.scale
    if precision is None or scale is None or scale > 1000:  # psycopg's form of a negative scale
        return None
    if mapping == "best_fit" and precision <= BEST_FIT_DIGITS:
        return None
    decimal = {"name": DECIMAL, "version": 1, "parameters": {"scale": str(scale)}}
    return {"type": "bytes", "logical": decimal, "value": "{0}::text"}
