"""What a source connector's JSON asks for: Confluent's JDBC source, on PostgreSQL.

A setting that the poll does not honour is an error that names it. The statements say what those of
the connector say, with values for its question marks. They, and which types a column may have,
stand in settings.yaml.
"""

import re
from dataclasses import dataclass
from typing import Any, Optional

from psycopg import Column, sql

from ..base import ConnectorError, World
from ..source.postgres import identifier
from . import settings, transforms

JDBC = "io.confluent.connect.jdbc.JdbcSourceConnector"
JDBC_RULES = settings.SUPPORTED["source"][JDBC]
INITIAL_OFFSETS = {
    "timestamp": "-infinity",
    "incrementing": "-1",
}  # what the first poll begins behind


@dataclass(frozen=True)
class Source:
    """What the JSON of a JDBC source asks for.

    said: its settings. tables: as `schema.table`; of a query [""]. chain: what is made of each
        message.
    """

    settings: settings.Settings
    database: str
    tables: list[str]
    transform_chain: tuple[transforms.Transform, ...]

    @property
    def offset_columns(self) -> dict[str, str]:
        """Those that its mode goes by: "timestamp", "incrementing"."""
        return {
            key: self.settings[f"{key}.column.name"]
            for key in INITIAL_OFFSETS
            if self.settings[f"{key}.column.name"]
        }

    def select_all(self, table: str) -> sql.Composable:
        """All rows of a table, of the query where that is "". A condition can follow."""
        if table:
            return sql.SQL("SELECT * FROM {}").format(identifier(table))
        return sql.SQL("SELECT * FROM (" + self.settings["query"] + "\n) AS query")  # noqa: S608 - its end may be a comment

    def statement(self, table: str, offset: dict[str, str], end: str) -> sql.Composable:
        """What one poll reads: what is behind `offset`, {"timestamp": …, "incrementing": …}, and
        before the time `end`.
        """
        names = {key: sql.Identifier(name) for key, name in self.offset_columns.items()}
        last = {
            f"last_{key}": sql.Literal(value)
            for key, value in {**INITIAL_OFFSETS, **offset}.items()
        }
        which = sql.SQL(JDBC_RULES["modes"][self.settings["mode"]])
        return self.select_all(table) + which.format(**names, **last, end=sql.Literal(end))


def parse(config: dict[str, str], world: World) -> Source:
    """Read a JDBC source's JSON.

    Understood, and it changes nothing: poll.interval.ms and tasks.max.

    Raises:
        ConnectorError: a setting is not honoured, or has no effect; a password is written out; the
            database is not the world's.
    """
    said, pg = (
        settings.validate("source", config, config.get("name", "the JDBC source's JSON")),
        world.postgres,
    )
    server, _, database = said["connection.url"].rpartition("/")
    expected = {
        "connection.url": f"jdbc:postgresql://{pg.host}:{pg.port}",
        "connection.user": pg.replication_user,
        "connection.password": world.connect.password_reference,
    }
    for key, right in expected.items():
        if {**config, "connection.url": server}[key] != right or not re.fullmatch(
            r"[^?&;]+", database
        ):
            # what it is is not shown: a password may stand in it, which is named, never written out
            raise ConnectorError(
                f"{key} is not that of who reads this world's PostgreSQL for connectors",
                location=said.location,
                expected=right + "/<database>" * key.endswith("url"),
                hint="connect.placeholders(world) has the parts",
            )
    names = said["table.whitelist"]
    if bool(said["query"]) == bool(names):
        raise said.error_for(
            "query" if said["query"] else "table.whitelist", "either a query or tables"
        )
    tables = [name if "." in name else f"{said['schema.pattern']}.{name}" for name in names] or [""]
    if len({topic_name(config, table) for table in tables}) < len(tables):
        raise said.error_for(
            "table.whitelist", "tables of different names: a topic is named without the schema"
        )
    return Source(said, database, tables, transforms.parse(config, said.location))


def topic_name(config: dict[str, str], table: str) -> str:
    """The topic that a source connector sends a table (schema.table) to. Debezium's has prefix,
    schema and table in its name, the JDBC source's prefix and table, or of a query the prefix
    alone.
    """
    if config.get("connector.class") != JDBC:
        return f"{config['topic.prefix']}.{table}"
    return config["topic.prefix"] + ("" if config.get("query") else table.rpartition(".")[2])


def connect_field(
    described: Column, kind: str, optional: bool, mapping: list[int]
) -> Optional[tuple[dict, sql.Composable]]:
    """The field of Connect's schema that a column becomes, as the connector has it, and the SQL of
    its value.

    None where the connector leaves the column out (an array, a range, an interval, …), and for a
    number without precision, of which it makes one of 127 digits behind the point.

    Args:
        kind: its type in PostgreSQL (pg_type.typname), "enum" for any enum.
        mapping: numeric.mapping, as settings.yaml has it.
    """
    found = (
        _numeric_type(described, *mapping) if kind == "numeric" else JDBC_RULES["types"].get(kind)
    )
    if found is None:
        return None
    field = {
        "type": found["type"],
        "optional": optional,
        **found.get("logical", {}),
        "field": described.name,
    }
    return field, sql.SQL(found.get("value", "{0}") + " AS {0}").format(
        sql.Identifier(described.name)
    )


def _numeric_type(described: Column, whole: int, fraction: int) -> Optional[dict[str, Any]]:
    """Numbers of up to so many digits become ints and doubles, by whether they have digits behind
    the point.
    """
    precision, scale = described.precision, described.scale
    if precision is None or scale is None or scale > 1000:  # psycopg reads a negative scale so
        return None
    if scale == 0 and precision <= whole:
        bits = next(
            bits for digits, bits in ((2, 8), (4, 16), (9, 32), (18, 64)) if precision <= digits
        )
        return {"type": f"int{bits}", "value": "{0}::int8"}
    if scale > 0 and precision <= fraction:
        return {"type": "double", "value": "{0}::float8"}
    decimal = {
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": str(scale)},
    }
    return {"type": "bytes", "logical": decimal, "value": "{0}::text"}
