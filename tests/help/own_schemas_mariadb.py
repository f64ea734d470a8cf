"""Random schemas of MariaDB, as own_schemas.py has them for PostgreSQL.

A value of the source is MariaDB's text of it, or HEX where it is bytes. docs/types.md, "MariaDB and MySQL",
says what it is in the lake.
"""

import base64
from dataclasses import dataclass
from decimal import Decimal

from own_schemas import Column, Schema, plain
from pg_types import clock, days


@dataclass(frozen=True)
class MariaType:
    """A type: its name, the rule of its values, and values in SQL."""

    name: str
    rule: str
    values: tuple

    @property
    def accepted(self):
        return self.values


KINDS = {
    name: MariaType(name, rule, tuple(values))
    for name, rule, *values in (
        ("tinyint", "whole", "-128", "127", "0"),
        ("tinyint(1)", "whole", "0", "1", "5"),
        ("tinyint unsigned", "whole", "255", "0"),
        ("smallint", "whole", "-32768", "32767"),
        ("smallint unsigned", "whole", "65535"),
        ("mediumint", "whole", "-8388608", "8388607"),
        ("mediumint unsigned", "whole", "16777215"),
        ("int", "whole", "-2147483648", "2147483647", "0"),
        ("int unsigned", "whole", "4294967295", "0"),
        ("bigint", "whole", "-9223372036854775808", "9223372036854775807"),
        ("bigint unsigned", "decimal", "18446744073709551615", "0", "9223372036854775808"),
        ("decimal(10,2)", "decimal", "12345678.90", "-0.01", "0"),
        ("decimal(38,10)", "decimal", "1234567890123456789012345678.0123456789", "-0.0000000001"),
        ("decimal(65,30)", "decimal", "1.5"),
        ("decimal(5,0) unsigned", "decimal", "99999", "0"),
        ("float", "float", "1.1", "16777215", "-0.0", "3.4e38", "1e-38"),
        ("float unsigned", "float", "1.1", "0"),
        ("double", "double", "0.1", "1e300", "-0e0", "4.9e-324", "123456789.123456789"),
        ("real", "double", "0.1", "1e300"),
        ("bit(1)", "bit", "b'1'", "b'0'"),
        ("bit(10)", "bits", "b'1010101010'", "b'1'", "b'0'"),
        ("bit(64)", "bits", "b'1010101010'", "b'0'"),
        ("date", "date", "'2024-02-29'", "'9999-12-31'", "'1000-01-01'", "'1970-01-01'"),
        (
            "datetime",
            "micro",
            "'2024-02-29 23:59:59'",
            "'9999-12-31 23:59:59'",
            "'1970-01-01 00:00:00'",
        ),
        ("datetime(3)", "micro", "'2024-02-29 23:59:59.999'"),
        ("datetime(6)", "micro", "'2024-02-29 23:59:59.999999'", "'1600-01-01 00:00:00.000001'"),
        ("timestamp NULL", "micro", "'2024-02-29 10:00:00'", "'2024-10-27 02:30:00'"),
        ("timestamp(3) NULL", "micro", "'2024-02-29 10:00:00.123'", "'1971-01-01 00:00:00'"),
        ("timestamp(6) NULL", "micro", "'2024-02-29 10:00:00.123456'"),
        ("time", "time", "'-30:00:00'", "'838:59:59'", "'00:00:00'"),
        ("time(6)", "time", "'-00:00:00.000001'", "'10:00:00.123456'"),
        ("year", "whole", "2155", "1901"),
        ("enum('happy','sad','')", "text", "'happy'", "'sad'", "''"),
        ("enum('a,b','c')", "text", "'a,b'", "'c'"),
        ("enum('it''s','é')", "text", "'it''s'", "'é'"),
        ("set('a','b','c')", "text", "'a,c'", "''", "'b'"),
        ("json", "text", "'{\"a\": [1, null]}'", '\'{"a":1, "b" : 2}\'', "'null'"),
        ("varchar(40)", "text", "''", "'a,b:c'", "'é☃🎬'", "' x '", "'\\t\\r\\n\\\\\"'", "'NULL'"),
        ("varchar(40) CHARACTER SET latin1", "text", "'é'", "''", "'a'"),
        ("varchar(40) COLLATE utf8mb4_bin", "text", "'É'", "'é'", "''"),
        ("varchar(40) CHARACTER SET utf16", "text", "'é☃🎬'"),
        ("varchar(900) COMPRESSED", "text", "'x'", "repeat('xy', 400)"),
        ("char(10)", "text", "'ab'", "''", "'é'"),
        ("text", "text", "''", "'a\\nb'", "repeat('é', 3000)", "'null'"),
        ("mediumtext", "text", "repeat('x', 70000)", "'x'"),
        ("blob", "bytes", "x'00FF'", "''", "repeat(x'00FF', 3000)"),
        ("varbinary(10)", "bytes", "x'00FF275C'", "''", "x'00'"),
        ("binary(4)", "bytes", "x'00FF'", "x'FFFFFFFF'", "x'41000000'"),
        ("uuid", "text", "uuid()"),
        ("point", "text", "POINT(1, 2)"),
    )
}
NUMBERED = {
    **dict.fromkeys(
        ("int", "bigint", "smallint", "int unsigned", "bigint unsigned", "float", "double"), "{n}"
    ),
    "decimal(10,2)": "{n} * 0.25",
    **dict.fromkeys(
        (
            "varchar(40)",
            "varchar(40) COLLATE utf8mb4_bin",
            "varchar(40) CHARACTER SET latin1",
            "char(10)",
        ),
        "concat('k', {n})",
    ),
    "varbinary(10)": "unhex(lpad(hex({n}), 4, '0'))",
    "binary(4)": "unhex(lpad(hex({n}), 4, '0'))",
    "date": "DATE '2001-02-03' + INTERVAL {n} DAY",
    "datetime": "TIMESTAMP '2001-02-03 00:00:00' + INTERVAL {n} HOUR",
    "datetime(6)": "TIMESTAMP '2001-02-03 00:00:00' + INTERVAL {n} * 1.000001 SECOND_MICROSECOND",
    "timestamp(3) NULL": "TIMESTAMP '2001-02-03 00:00:00' + INTERVAL {n} HOUR",
    "time(6)": "sec_to_time({n} * 1.5)",
    "year": "1970 + {n}",
    "bit(10)": "{n}",
}
KEY_KINDS = {
    **dict.fromkeys(("int", "bigint", "varchar(40)"), 8),
    **dict.fromkeys(NUMBERED, 2),
    "enum('a,b','c')": 1,
    "uuid": 1,
    "tinyint(1)": 1,
    "bit(1)": 1,
    "set('a','b','c')": 1,
}
PARTITION_KINDS = (
    "varchar(40)",
    "varchar(40)",
    "int",
    "date",
    "datetime",
    "decimal(10,2)",
    "enum('happy','sad','')",
    "tinyint(1)",
)
SESSIONS = {
    "time_zone": "'+05:30'",
    "sql_mode": "''",
    "foreign_key_checks": "0",
    "character_set_connection": "'latin1'",
    "tx_isolation": "'SERIALIZABLE'",
    "autocommit": "1",
}


class MariaSchema(Schema):
    """The table of one seed, in MariaDB."""

    engine, schema, kinds = "mariadb", "", KINDS
    rare = {"decimal(65,30)", "uuid", "point", "inet4", "varchar(900) COMPRESSED"}
    key_kinds, numbered, hostile_values, large = KEY_KINDS, NUMBERED, {}, {}
    partition_kinds, whole = PARTITION_KINDS, "int"
    added_kinds = ("text", "int", "date", "decimal(10,2)", "varchar(40)", "tinyint(1)")
    quoted = staticmethod(lambda name: "`" + name.replace("`", "``") + "`")

    def _ddl(self):
        r, table = self.random, self.quoted(self.name)
        parts = []
        for c in self.columns:
            kind = c.kind.name.replace(" NULL", "" if c.required else " NULL")
            extra = (
                c.extra.replace("STORED", r.choice(["STORED", "VIRTUAL"]))
                if c.is_generated
                else c.extra
            )
            null = " NOT NULL" * c.required
            invisible = " INVISIBLE" * (not c.required and not c.is_generated and r.random() < 0.03)
            # the type of a generated column takes no NOT NULL
            parts.append(
                f"{self.quoted(c.name)} {kind} {extra if c.is_generated else ''}{null}{invisible}"
                f"{' ' + c.extra if c.extra and not c.is_generated else ''}"
            )
        key = ", ".join(self.quoted(c.name) for c in self.key)
        statements = []
        if not self.options.key and r.random() < 0.97:
            parts.append(f"PRIMARY KEY ({key})")
        else:
            parts.append(f"UNIQUE ({key})")
        kind = r.choices(
            ("plain", "Aria", "MyISAM", "versioned", "hash", "cascade"), (80, 3, 3, 4, 5, 5)
        )[0]
        suffix = f" ENGINE={kind}" if kind in ("Aria", "MyISAM") else ""
        if kind == "versioned":
            suffix = " WITH SYSTEM VERSIONING"
        if kind == "hash":
            suffix = f" PARTITION BY KEY ({self.quoted(self.key[0].name)}) PARTITIONS 3"
        if kind == "cascade":
            parent = self.quoted(f"{self.name}_parent")
            statements.append(f"CREATE TABLE {parent} (p int PRIMARY KEY)")
            statements.append(f"INSERT INTO {parent} VALUES (1), (2), (3)")
            self.columns.append(Column("p", KINDS["int"]))
            parts.append(
                f"p int, FOREIGN KEY (p) REFERENCES {parent} (p) ON DELETE {r.choice(['CASCADE', 'SET NULL'])}"
            )
        self.parent = kind == "cascade" and parent
        statements.append(f"CREATE TABLE {table} ({', '.join(parts)}){suffix}")
        return statements

    def value(self, column, hostile=0.0):
        if column.name == "p":
            return self.random.choice(["1", "2", "3", "NULL"])
        return super().value(column, hostile)

    def one(self):
        return f"ORDER BY rand({self.random.randrange(10**6)}) LIMIT 1"

    def transaction(self, hostile):
        if self.parent and self.random.random() < 0.02:
            return [f"DELETE FROM {self.parent} WHERE p = {self.random.randrange(1, 4)}"]
        return super().transaction(hostile)


def select(schema, columns):
    """Return SQL of MariaDB's texts, with HEX for bytes."""

    def text(column):
        name, rule = schema.quoted(column.name), column.kind.rule
        if rule in ("bytes", "bits"):
            return f"hex({name}{' + 0' * (rule == 'bits')})" if rule == "bytes" else f"hex({name})"
        if rule == "bit":
            return f"{name} + 0"
        if rule == "float":
            return f"CAST({name} AS double)"
        if rule == "time":
            return f"time_format({name}, '%H:%i:%s.%f')"
        return name

    return f"SELECT {', '.join(map(text, columns))} FROM {schema.quoted(schema.name)}"


def wanted(column, text):
    """Return the value that the lake must have of a text."""
    if text is None:
        return None
    return plain(RULES[column.kind.rule](text, column.kind))


def _bits(text, kind):
    size = -(-int(kind.name[4:-1]) // 8)
    return base64.b64encode(int(text or "0", 16).to_bytes(size, "little")).decode()


RULES = {
    "whole": lambda text, kind: int(text),
    "decimal": lambda text, kind: Decimal(text),
    "float": lambda text, kind: float(text),
    "double": lambda text, kind: float(text),
    "bit": lambda text, kind: text == "1",
    "bits": _bits,
    "date": lambda text, kind: days(text),
    "micro": lambda text, kind: days(text) * 86_400_000_000 + clock(text.split()[1]),
    "time": lambda text, kind: text,
    "text": lambda text, kind: text,
    "bytes": lambda text, kind: base64.b64encode(bytes.fromhex(text)).decode(),
}
