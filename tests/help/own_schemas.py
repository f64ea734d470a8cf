"""Random schemas of PostgreSQL, for the promise of `workbench source check`.

A schema is one table of one seed: its DDL, its options of `capture`, statements of an application that
changes it, and what its values are in the lake. The last comes from the rules of docs/types.md
(pg_types.py), not from the code that is tested.
"""

import base64
import datetime as dt
import json
import struct
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random

from pg_types import DEBEZIUM_ERRORS, TYPES, Type, expected_analyst

FIRST_INSTANT = "1582-10-25"  # before it the snapshot and the log have different calendars
PER_FLOW = 20  # schemas of consecutive seeds share a database, a flow and its options
TYPE_DDL = """
    CREATE EXTENSION IF NOT EXISTS vector; CREATE TYPE mood AS ENUM ('happy', 'sad');
    CREATE DOMAIN positive AS int CHECK (VALUE > 0); CREATE DOMAIN loose AS numeric;
    CREATE DOMAIN twice AS positive; CREATE DOMAIN label AS text; CREATE TYPE pair AS (a int, b text);
    """


def _type(name, rule, *values):
    return Type(name, "", "", rule, values)


# beside those of docs/types.md; the check may refuse them
FURTHER_TYPES = (
    _type("varchar", "text", "'a,b:c'", "''", "E'\\t\\r\\n'"),
    _type("char(1)", "text", "'x'", "''"),
    _type('"char"', "text", "'x'"),
    _type("name", "text", "'x'"),
    _type("label", "text", "'x'", "''"),
    _type("twice", "same", "1", "7"),
    _type("numeric(38,0)", "decimal", "99999999999999999999999999999999999999", "-1", "0"),
    _type("numeric(5,-2)", "decimal", "12300", "-100"),
    _type("numeric(3,5)", "decimal", "0.00123", "-0.00001"),
    _type("numeric(60,5)", "decimal", "1.5"),
    _type("timestamp(0)", "micro", "'2001-02-03 04:05:06'", "'9999-12-31 23:59:59'"),
    _type("timestamptz(0)", "zoned", "'2001-02-03 04:05:06+02'"),
    _type("time(0)", "time", "'10:00:01'"),
    _type("interval day to second", "interval", "'3 days 04:05:06.789'", "'-1 day'"),
    _type("interval second(0)", "interval", "'00:00:06'"),
    _type("interval year to month", "interval", "'1 year 2 months'"),
    _type("bit(8)", "bits", "B'10101010'"),
    _type("box", "text", "'(1,2),(3,4)'"),
    _type("pair", "text", "ROW(1, 'x')"),
    _type("int4multirange", "text", "'{[1,5)}'"),
    _type("tsquery", "text", "'fat & cat'"),
    _type("interval[]", "interval", "'{1 day}'"),
    _type("money[]", "money", "'{$1.00}'"),
    _type("tsvector[]", "text", "ARRAY['a'::tsvector]"),
    _type("label[]", "text", "'{x}'"),
)
# Debezium sends null instead of these lists (docs/types.md), and nothing in the message says so
LOST = ("'{NaN,1}'", "'{happy,NULL}'")
KINDS = {
    kind.name: replace(kind, values=tuple(v for v in kind.values if v not in LOST))
    for kind in (*TYPES, *FURTHER_TYPES)
    if kind.values
}
# most of these are refused, so they are rare
RARE = {
    "name",
    "pair",
    "box",
    "int4multirange",
    "tsquery",
    "interval[]",
    "money[]",
    "tsvector[]",
    "label[]",
    '"char"',
}
RARE |= {"numeric(5,-2)", "numeric(60,5)"}
# Debezium sends null for them, if they are numerics. In a column that is NOT NULL they stop the connector.
NULL_IN_MESSAGES = {"'NaN'", "'Infinity'"}
HOSTILE = {
    "text": (
        "' '",
        "'a,b:c'",
        "E'it\\'s \"x\"'",
        "E'\\t\\r\\n\\x01\\x7f'",
        "E'\\u00e9\\u0300 \\u2603'",
        "'NULL'",
        "'%2F/a=b'",
        "'{\"a\": 1}'",
    ),
    "varchar(20)": ("'NULL'", "E'\\x01'", "'a,b:c'", "' x '"),
    "double precision": ("'-0'", "4.9e-324", "0.1::float8 + 0.2::float8", "1e-7", "1e16"),
    "real": ("'-0'", "1e-45", "16777215", "0.1"),
    "numeric(10,2)": ("0", "-99999999.99"),
    "numeric": ("1e-10", "1e27"),
    "integer": ("-1",),
    "date": ("'1582-10-04'", "'1970-01-01'"),
    "timestamp": ("'1582-10-25'", "'1970-01-01'", "'2001-02-03 04:05:06.000001'"),
    "timestamptz": ("'1582-10-25 00:00+00'", "'1970-01-01 00:00+00'", "'2024-10-27 01:30+00'"),
    "interval": ("'0.000001 seconds'", "'-1 mon +1 day'", "'0'", "'1000 years'"),
    "json": ('\'{"a":1e400, "a": "\\u00e9"}\'', "'[]'"),
    "jsonb": ('\'{"b": "\\"", "a": 1.10}\'', "'[]'", "'\"\"'"),
    "text[]": ("ARRAY['a,b', '\"', E'\\\\', E'\\n', 'null']",),
    "bytea[]": ("ARRAY[''::bytea]",),
    "inet": ("'::ffff:1.2.3.4'", "'0.0.0.0/0'"),
    "tstzrange": ("'empty'", "'(,)'"),
    "daterange": ("'(,2001-01-01)'",),
    "tsvector": ("''",),
}
HEX = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) i)"
ITEMS = {  # {type of a list: SQL of its item number i}, for lists that are stored outside their row
    "boolean[]": "(i % 7 < 3)",
    "smallint[]": "(i % 9973)::smallint",
    "integer[]": "i * 7919",
    "bigint[]": "i::bigint * 7919000000",
    "oid[]": "(i * 7919)::oid",
    "real[]": "(i / 7.0)::real",
    "double precision[]": "i::float8 / 7",
    "numeric(10,2)[]": "(i * 1.01)::numeric(10,2)",
    "numeric[]": "i * 1.0001",
    "char(3)[]": "'x'::char(3)",
    "varchar(5)[]": "left(md5(i::text), 5)::varchar(5)",
    "text[]": "md5(i::text)",
    "bytea[]": "decode(md5(i::text), 'hex')",
    "date[]": "DATE '2001-01-01' + i",
    "time(3)[]": "TIME '00:00' + i * interval '7.001 s'",
    "timetz[]": "TIMETZ '00:00+00' + i * interval '7 s'",
    "timestamp[]": "TIMESTAMP '2001-01-01' + i * interval '7.000001 s'",
    "timestamptz[]": "TIMESTAMPTZ '2001-01-01 00:00+00' + i * interval '7.000001 s'",
    "json[]": "to_json(md5(i::text))",
    "jsonb[]": "to_jsonb(md5(i::text))",
    "uuid[]": "md5(i::text)::uuid",
    "inet[]": "'10.0.0.0'::inet + i",
    "cidr[]": "set_masklen('10.0.0.0'::inet + i, 32)::cidr",
    "macaddr[]": "('08:00:2b:01:02:' || lpad(to_hex(i % 256), 2, '0'))::macaddr",
    "int4range[]": "int4range(i, i + 5)",
    "numrange[]": "numrange(i, i + 5.5)",
    "tsrange[]": "tsrange(TIMESTAMP '2001-01-01' + i * interval '1 s', NULL)",
    "daterange[]": "daterange(DATE '2001-01-01' + i, NULL)",
    "mood[]": "(CASE i % 3 WHEN 0 THEN 'happy' ELSE 'sad' END)::mood",
}
LARGE = {
    **{
        kind: f"(SELECT array_agg({item}) FROM generate_series(1, 900) i)"
        for kind, item in ITEMS.items()
    },
    **dict.fromkeys(("text", "varchar", "label"), HEX),
    "bytea": f"decode({HEX}, 'hex')",
    "json": f"to_json({HEX})",
    "jsonb": f"to_jsonb({HEX})",
    "bit varying": "(SELECT ('1' || string_agg(i::bit(32)::text, ''))::bit varying FROM generate_series(1, 900) i)",
    "tsvector": "(SELECT array_to_tsvector(array_agg(md5(i::text))) FROM generate_series(1, 300) i)",
}
KEY_KINDS = {
    "integer": 20,
    "bigint": 10,
    "text": 10,
    "varchar(20)": 6,
    "uuid": 6,
    "smallint": 3,
    "char(5)": 3,
    "date": 4,
    "timestamp": 3,
    "timestamp(3)": 2,
    "timestamptz": 3,
    "time": 2,
    "timetz": 1,
    "numeric": 3,
    "numeric(10,2)": 3,
    "boolean": 2,
    "bytea": 3,
    "inet": 2,
    "cidr": 1,
    "macaddr": 1,
    "oid": 1,
    "mood": 2,
    "positive": 2,
    "label": 1,
    "real": 2,
    "double precision": 2,
    "interval": 2,
    "bit(10)": 1,
    "bit(1)": 1,
    "bit varying": 1,
    "money": 1,
    "int4range": 1,
    "tstzrange": 1,
    "jsonb": 2,
    "text[]": 1,
    "integer[]": 1,
    "tsvector": 1,
}
# {type: SQL of a value by a number}, so that a key has more than a few values
NUMBERED = {
    **dict.fromkeys(
        ("integer", "bigint", "smallint", "numeric", "real", "double precision"), "{n}"
    ),
    **dict.fromkeys(("oid", "positive"), "{n} + 1"),
    "numeric(10,2)": "{n} * 0.25",
    "money": "{n}::money",
    **dict.fromkeys(("text", "varchar(20)", "label"), "'k' || {n}"),
    "char(5)": "'k' || {n}",
    "uuid": "md5('{n}')::uuid",
    "bytea": "decode(md5('{n}'), 'hex')",
    "date": "DATE '2001-02-03' + {n}",
    "timestamp": "TIMESTAMP '2001-02-03' + {n} * interval '1.000001 s'",
    "timestamp(3)": "TIMESTAMP '2001-02-03' + {n} * interval '1.001 s'",
    "timestamptz": "TIMESTAMPTZ '2001-02-03 00:00+00' + {n} * interval '1.000001 s'",
    "time": "TIME '00:00' + {n} * interval '1.000001 s'",
    "timetz": "TIMETZ '00:00+02' + {n} * interval '1 s'",
    "interval": "{n} * interval '1.5 h'",
    "inet": "'10.0.0.0'::inet + {n}",
    "cidr": "set_masklen('10.0.0.0'::inet + {n}, 32)::cidr",
    "macaddr": "('08:00:2b:01:02:' || lpad(to_hex({n}), 2, '0'))::macaddr",
    "bit(10)": "{n}::bit(10)",
    "bit varying": "{n}::bit(8)",
    "int4range": "int4range({n}, {n} + 5)",
    "jsonb": "jsonb_build_object('a', {n})",
    "text[]": "ARRAY['k', '{n}']",
    "integer[]": "ARRAY[{n}, 1]",
    "tsvector": "'a{n}'::tsvector",
}
PARTITION_KINDS = (
    "text",
    "text",
    "integer",
    "date",
    "text",
    "integer",
    "date",
    "varchar(20)",
    "boolean",
    "timestamp",
    "numeric(10,2)",
    "mood",
    "uuid",
    "bigint",
)
TABLE_NAMES = ("t{n}", "t{n}", "t{n}", "Trips{n}", "t{n}_" + "x" * 40, "order{n}", "_t{n}")
COLUMN_NAMES = ("c{n}", "c{n}", "c{n}", "c{n}", "Name{n}", "__note{n}", "c{n}_" + "y" * 50)
RESERVED = (
    "order",
    "select",
    "group",
    "user",
    "table",
    "key",
    "value",
    "op",
    "timestamp",
    "position",
    "__op",
    "__deleted",
    "_hoodie_note",
    "before",
    "after",
    "id",
    "__note",
    "from",
    "end",
    "rank",
)
SETTINGS = {
    "bytea_output": "escape",
    "extra_float_digits": "0",
    "IntervalStyle": "sql_standard",
    "DateStyle": "SQL, DMY",
    "TimeZone": "America/St_Johns",
    "search_path": "pg_catalog",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "statement_timeout": "5s",
    "lock_timeout": "2s",
    "standard_conforming_strings": "off",
    "quote_all_identifiers": "on",
    "client_encoding": "LATIN1",
    "row_security": "off",
    "enable_seqscan": "off",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "xmloption": "document",
}


@dataclass
class Column:
    """A column: its name, its kind, whether it is required, and whether its values may be refused."""

    name: str
    kind: Type
    required: bool = False
    is_key: bool = False
    is_partition: bool = False
    extra: str = ""  # DEFAULT, GENERATED
    is_generated: bool = False


@dataclass
class Options:
    """Options of one call of `capture`."""

    type: str = ""
    partition: str = ""
    key: tuple = ()


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def sendable(column, values):
    """Return those of the values with which the connector does not fail."""
    if not column.required or column.kind.rule not in ("loose", "decimal"):
        return values
    return [v for v in values if v not in NULL_IN_MESSAGES]


def flow_options(engine, flow):
    """Return the calls of `capture` in a flow, the settings of its database, and its format."""
    r = Random(f"{engine} flow {flow}")
    part = r.choice(["part", "Part", "__part", "order"])
    key = r.choice([("k",), ("K", "k2")])
    calls = [
        Options(),
        Options(type="mor"),
        Options(type=r.choice(["cow", "mor"]), partition=part),
        Options(type=r.choice(["cow", "mor"]), key=key),
    ]
    settings = dict(r.sample(sorted(SETTINGS.items()), r.randrange(0, 7)))
    return calls, settings


class Schema:
    """The table of one seed, in PostgreSQL."""

    engine, schema, kinds, rare = "postgres", "public", KINDS, RARE
    key_kinds, numbered, hostile_values, large = KEY_KINDS, NUMBERED, HOSTILE, LARGE
    partition_kinds, whole = PARTITION_KINDS, "integer"
    added_kinds = ("text", "integer", "date", "numeric(10,2)", "text[]", "boolean")
    quoted = staticmethod(lambda name: '"' + name.replace('"', '""') + '"')

    def __init__(self, seed):
        self.seed, self.unique_n = seed, False
        self.random = r = Random(f"{self.engine} {seed}")
        calls, _ = flow_options(self.engine, seed // PER_FLOW)
        self.call = r.choices(range(4), (4, 3, 3, 2))[0]
        self.options = calls[self.call]
        self.name = r.choice(TABLE_NAMES).format(n=seed)
        self.columns = self._columns()
        self.added = 0
        self.ddl = self._ddl()

    @property
    def source(self):
        """The name of the table, as `capture` takes it."""
        return f"{self.schema}.{self.name}"

    @property
    def key(self):
        return [c for c in self.columns if c.is_key]

    def _columns(self):
        r = self.random
        names = iter(
            dict.fromkeys(
                r.choice(RESERVED) if r.random() < 0.05 else r.choice(COLUMN_NAMES).format(n=n)
                for n in range(100)
            )
        )
        names = iter(
            [
                n
                for n in names
                if n.lower()
                not in {self.options.partition.lower(), *map(str.lower, self.options.key)}
            ]
        )
        key_names = self.options.key or [
            next(names) for _ in range(r.choices((1, 2, 3), (6, 3, 1))[0])
        ]
        columns = [
            Column(
                n,
                self.kinds[r.choices(list(self.key_kinds), self.key_kinds.values())[0]],
                True,
                True,
            )
            for n in key_names
        ]
        for _ in range(r.randrange(1, 8)):
            kind = self.kinds[
                r.choices(list(self.kinds), [0.05 if n in self.rare else 1 for n in self.kinds])[0]
            ]
            column = Column(next(names), kind)
            if "serial" in kind.name:
                column.required = True
            elif r.random() < 0.25:
                column.required = r.random() < 0.4
                column.extra = f"DEFAULT {r.choice(sendable(column, kind.accepted))}"
            elif r.random() < 0.15:
                column.required = True
            elif r.random() < 0.02:
                column = Column(
                    column.name,
                    self.kinds["text"],
                    extra="GENERATED ALWAYS AS ('x' || 'y') STORED",
                    is_generated=True,
                )
            columns.append(column)
        columns.append(Column("n", self.kinds[self.whole], True, extra="DEFAULT 0"))
        if self.options.partition:
            kind = self.kinds[r.choice(self.partition_kinds)]
            columns.append(
                Column(self.options.partition, kind, r.random() < 0.7, is_partition=True)
            )
        keys, rest = columns[: len(key_names)], columns[len(key_names) :]
        if r.random() < 0.3:
            columns = rest + keys
        elif r.random() < 0.3:
            r.shuffle(columns)
        return columns

    def _ddl(self):
        r, table = self.random, self.quoted(self.name)
        parts = [
            f"{self.quoted(c.name)} {c.kind.name}{' ' + c.extra if c.extra else ''}{' NOT NULL' * c.required}"
            for c in self.columns
        ]
        key = ", ".join(self.quoted(c.name) for c in self.key)
        statements, suffix, unlogged = [], "", ""
        deferrable = r.random() < 0.03
        if self.options.key:
            parts.append(f"UNIQUE ({key}) DEFERRABLE" if r.random() < 0.5 else f"UNIQUE ({key})")
            identity = "FULL" if r.random() < 0.9 else ""
        else:
            if r.random() < 0.98:
                parts.append(f"PRIMARY KEY ({key}){' DEFERRABLE' * deferrable}")
            identity = r.choices(("", "FULL", "INDEX", "OTHER", "NOTHING"), (35, 50, 5, 3, 3))[0]
        kind = r.choices(("plain", "hash", "parent", "child", "unlogged"), (80, 10, 3, 3, 3))[0]
        if kind == "hash" and not deferrable:
            suffix = f" PARTITION BY HASH ({self.quoted(self.key[0].name)})"
        if kind == "unlogged":
            unlogged = "UNLOGGED "
        if kind == "child":
            statements.append(f"CREATE TABLE {self.quoted(self.name + '_p')} (p int)")
            suffix = f" INHERITS ({self.quoted(self.name + '_p')})"
            self.columns.append(Column("p", self.kinds[self.whole]))
        statements.append(f"CREATE {unlogged}TABLE {table} ({', '.join(parts)}){suffix}")
        leaves = []
        if "HASH" in suffix:
            leaves = [self.quoted(f"{self.name}_{n}") for n in range(2)]
            statements += [
                f"CREATE TABLE {leaf} PARTITION OF {table} FOR VALUES WITH (MODULUS 2, REMAINDER {n})"
                for n, leaf in enumerate(leaves)
            ]
        if kind == "parent":
            statements.append(f"CREATE TABLE {self.quoted(self.name + '_c')} () INHERITS ({table})")
        for c in self.columns:
            if c.kind.name in self.large and r.random() < 0.5:
                storage = r.choice(["EXTERNAL", "MAIN", "EXTENDED", "EXTERNAL"])
                statements.append(
                    f"ALTER TABLE {table} ALTER COLUMN {self.quoted(c.name)} SET STORAGE {storage}"
                )
        if identity == "INDEX" or identity == "OTHER":
            column = key if identity == "INDEX" else self.quoted("n")
            statements.append(
                f"CREATE UNIQUE INDEX {self.quoted(f'i{self.seed}')} ON {table} ({column})"
            )
            if not leaves:
                statements.append(
                    f"ALTER TABLE {table} REPLICA IDENTITY USING INDEX {self.quoted(f'i{self.seed}')}"
                )
        elif identity:
            statements += [
                f"ALTER TABLE {each} REPLICA IDENTITY {identity}" for each in (table, *leaves)
            ]
        self.unique_n = identity == "OTHER"
        return statements

    def value(self, column, hostile=0.0):
        """Return SQL of a value; with a probability of `hostile` one that may be refused."""
        r, kind = self.random, column.kind
        if column.name == "n":
            return str(r.randrange(10**9))
        if column.is_key:
            if r.random() < 0.75 and kind.name in self.numbered:
                return self.numbered[kind.name].format(n=r.randrange(60))
            chosen = [*kind.accepted, *self.hostile_values.get(kind.name, ())]
            return r.choice([v for v in chosen if v not in NULL_IN_MESSAGES])
        if not column.required and r.random() < 0.2:
            return "NULL"
        if kind.name in self.large and not column.is_partition and r.random() < 0.3:
            return self.large[kind.name]
        if column.is_partition and r.random() < 0.6 and kind.name in self.numbered:
            return self.numbered[kind.name].format(n=r.randrange(4))
        values = kind.values if r.random() < hostile and not column.is_partition else kind.accepted
        values = sendable(column, [*values, *self.hostile_values.get(kind.name, ())])
        if column.is_partition:  # an empty text is refused (docs/limits.md)
            values = [value for value in values if value != "''"]
        return r.choice(values)

    def key_values(self):
        return {c.name: self.value(c) for c in self.key}

    def insert(self, hostile=0.0, key=None):
        r, key = self.random, key or self.key_values()
        some = [
            c
            for c in self.columns
            if not c.is_generated and (c.is_key or c.required and not c.extra or r.random() < 0.85)
        ]
        names = ", ".join(self.quoted(c.name) for c in some)
        values = ", ".join(key.get(c.name) or self.value(c, hostile) for c in some)
        return f"INSERT INTO {self.quoted(self.name)} ({names}) VALUES ({values})"

    def one(self):
        """Return the end of a statement that changes one row."""
        table = self.quoted(self.name)
        return (
            f"WHERE (tableoid, ctid) = (SELECT tableoid, ctid FROM {table} ORDER BY {', '.join(self.quoted(c.name) for c in self.key)} "
            f"OFFSET {self.random.randrange(1000)} % greatest((SELECT count(*) FROM {table}), 1) LIMIT 1)"
        )

    def update(self, hostile=0.0):
        r = self.random
        free = [c for c in self.columns if not c.is_generated]
        some = [c for c in free if not c.is_key and r.random() < 0.4] or [self.column("n")]
        if r.random() < 0.12:
            some.append(r.choice(self.key))
        sets = ", ".join(f"{self.quoted(c.name)} = {self.value(c, hostile)}" for c in some)
        return f"UPDATE {self.quoted(self.name)} SET {sets} {self.one()}"

    def column(self, name):
        return next(c for c in self.columns if c.name == name)

    def transaction(self, hostile):
        """Return the statements of a random transaction."""
        r, table = self.random, self.quoted(self.name)
        kind = r.choices(
            ("insert", "update", "delete", "many", "swap", "again", "alter"),
            (25, 40, 14, 10, 6, 4, 1),
        )[0]
        if kind == "insert":
            return [self.insert(hostile)]
        if kind == "update":
            return [self.update(hostile)]
        if kind == "delete":
            return [f"DELETE FROM {table} {self.one()}"]
        if kind == "many":
            some = [self.insert(hostile), *(self.update(hostile) for _ in range(3))]
            return some + [f"DELETE FROM {table} {self.one()}"] * (r.random() < 0.5)
        if kind == "again":  # the same key is inserted, deleted and inserted again
            key = self.key_values()
            same = " AND ".join(f"{self.quoted(c.name)} = {key[c.name]}" for c in self.key)
            delete = f"DELETE FROM {table} WHERE {same}"
            return [delete, self.insert(hostile, key), delete, self.insert(hostile, key)]
        whole = [c for c in self.key if c.kind.name in ("integer", "int", "bigint", "numeric")]
        if kind == "swap" and whole:
            column = self.quoted(r.choice(whole).name)
            move = f"UPDATE {table} SET {column} = {column} + 1"
            return [
                r.choice(
                    [
                        move,
                        f"{move} WHERE {column} BETWEEN 5 AND 25",
                        f"UPDATE {table} SET {column} = -{column}",
                    ]
                )
            ]
        if kind == "alter" and self.added < 2:
            self.added += 1
            kind = self.kinds[r.choice(self.added_kinds)]
            self.columns.append(Column(f"added{self.added}", kind))
            return [f"--owner ALTER TABLE {table} ADD COLUMN added{self.added} {kind.name}"]
        return [f"UPDATE {table} SET n = n + 1"] if not self.unique_n else [self.update()]


def select(schema, columns):
    """Return SQL of PostgreSQL's texts; of a list, JSON of its texts."""

    def text(column):
        name = quoted(column.name)
        if column.kind.name.endswith("[]"):
            return (
                f"CASE WHEN {name} IS NOT NULL THEN (SELECT coalesce(json_agg(CASE WHEN e IS NOT NULL THEN "
                f"concat(e) END ORDER BY n), '[]')::text FROM unnest({name}) WITH ORDINALITY u(e, n)) END"
            )
        return (
            f"CASE WHEN {name} IS NOT NULL THEN concat({name}) END"  # a cast takes a char's blanks
        )

    return f"SELECT {', '.join(map(text, columns))} FROM public.{quoted(schema.name)}"


def is_refused(column, text, scale=10):
    """Return whether docs/types.md says that a value becomes a dead letter."""
    if text is None:
        return False
    kind = column.kind
    if kind.name.endswith("[]"):
        return any(_is_refused(kind.rule, each, scale) for each in json.loads(text))
    return _is_refused(kind.rule, text, scale)


def _is_refused(rule, text, scale):
    if text is None:
        return False
    if rule in ("date", "micro", "milli", "zoned", "zoned3"):
        if "infinity" in text or text.endswith("BC") or len(text.partition("-")[0]) > 4:
            return True
        if rule == "date":
            return "1582-10-05" <= text[:10] < FIRST_INSTANT
        return text[:10] < FIRST_INSTANT
    if rule == "loose" and text not in ("NaN", "Infinity", "-Infinity"):
        number = Decimal(text).normalize()
        digits, exponent = len(number.as_tuple().digits), number.as_tuple().exponent
        return -exponent > scale or digits + exponent > 38 - scale
    return False


def wanted(column, text):
    """Return the value that the lake must have, for a comparison with `seen`."""
    kind = column.kind
    if text in ("NaN", "Infinity", "-Infinity") and kind.rule in ("loose", "decimal"):
        return None
    if (kind.name, text) in DEBEZIUM_ERRORS:
        return None
    if kind.rule == "decimal" and kind.name.endswith("[]") and text and "NaN" in text:
        return None
    value = expected_analyst(kind, text)
    if kind.rule == "vector" and value is not None:
        value = [float(each) for each in value]
    return plain(value, kind.name.startswith("real"))


def plain(value, is_real=False):
    if isinstance(value, list):
        return [plain(each, is_real) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, float):
        return repr(struct.unpack("f", struct.pack("f", value))[0] if is_real else value)
    if value in ("NaN", "Infinity", "-Infinity") and not isinstance(value, (int, Decimal)):
        return value
    if isinstance(value, Decimal):
        return format(value.normalize() + 0, "f")
    return value


def canonical(value):
    """Return a value of the lake as `wanted` has it."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        return names.get(repr(value), repr(value))
    if isinstance(value, Decimal):
        return format(value.normalize() + 0, "f")
    if isinstance(value, dt.datetime):
        utc = value if value.tzinfo else value.replace(tzinfo=dt.timezone.utc)
        return (utc - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(
            microseconds=1
        )
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {name: canonical(each) for name, each in value.items()}
    return [canonical(each) for each in value]


def differences(schema, truth, seen):
    def key(row, lower):
        return json.dumps([row.get(c.name.lower() if lower else c.name) for c in schema.key])

    found = []
    wanted, have = {key(row, False): row for row in truth}, {}
    for row in seen:
        if key(row, True) in have:
            found.append(f"{key(row, True)} is twice in the lake")
        have[key(row, True)] = row
    found += [f"{each} is missing in the lake" for each in wanted.keys() - have.keys()]
    found += [f"{each} is in the lake only" for each in have.keys() - wanted.keys()]
    for each in wanted.keys() & have.keys():
        for column in schema.columns:
            a, b = wanted[each][column.name], have[each].get(column.name.lower())
            if a != b or isinstance(a, bool) != isinstance(b, bool):
                found.append(
                    f"{each} {column.name} {column.kind.name}: source {str(a)[:80]!r}, lake {str(b)[:80]!r}"
                )
    return found
