"""Kinds of migration as applications make them, and what the lake does with each
(tests/stack/test_migrations.py).

A table has the columns `id`, `touched`, and `c` of the kind. It is loaded with two rows, migrated,
and gets a third.
"""

from dataclasses import dataclass

EQUAL = "equal"  # the lake equals the source after the next ingest
TOUCHED = "equal after an UPDATE of all rows"  # an ALTER makes no event of the rows that are there
ANEW = "equal after a recapture"  # refused, with a message that names it, or different
LIMIT = "limit"  # docs/limits.md says what is to be done


@dataclass(frozen=True)
class Kind:
    """One kind.

    style: an application that makes such a migration. c: type of the column. old: SQL of its values
        in both rows.
    change: statements with a semicolon and a blank between them; `{t}` is the table. new: SQL of
        the third row's values
    of `columns`. end: how it ends. refused: whether the ingest refuses it until then. source:
    another name that the table has afterwards. first: a statement before the table is made.
    """

    style: str
    c: str
    old: tuple[str, str]
    change: str
    new: str = ""
    end: str = EQUAL
    refused: bool = False
    columns: str = "c"
    key: str = "int PRIMARY KEY"
    source: str = ""
    first: str = ""


def to(style, old_type, old, new_type, new, end=EQUAL, using="", **more):
    """A change of the column's type. One that ends in a recapture is refused by the ingest."""
    change = f"ALTER TABLE {{t}} ALTER COLUMN c TYPE {new_type}" + (
        f" USING {using}" if using else ""
    )
    return Kind(style, old_type, old, change, new, end, **{"refused": end == ANEW, **more})


NUMBERS, PRICES, TEXTS = ("1", "2"), ("1.25", "NULL"), ("'a'", "'b'")
TIMES, JSONS = (
    ("'2024-02-29 10:00:00'", "'1999-12-31 23:59:59.999999'"),
    ("""'{"a": 1}'""", "'[1, 2]'"),
)

POSTGRES = {
    # columns that come and go
    "add a column": Kind(
        "Discourse", "int", NUMBERS, "ALTER TABLE {t} ADD COLUMN d text", "3, 'x'", columns="c, d"
    ),
    "add a column with a default": Kind(
        "Discourse",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ADD COLUMN d int DEFAULT 7",
        "3, 8",
        TOUCHED,
        columns="c, d",
    ),
    "add a required column": Kind(
        "Django",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ADD COLUMN d boolean NOT NULL DEFAULT false",
        "3, true",
        TOUCHED,
        columns="c, d",
    ),
    "add a column and fill it": Kind(
        "GitLab",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ADD COLUMN d int; "
        "UPDATE {t} SET d = c * 10; ALTER TABLE {t} ALTER COLUMN d SET NOT NULL",
        "3, 30",
        columns="c, d",
    ),
    "add a list with a default": Kind(
        "Discourse",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ADD COLUMN d text[] NOT NULL DEFAULT '{{}}'",
        "3, ARRAY['x', NULL]",
        TOUCHED,
        columns="c, d",
    ),
    # until a row's next change: docs/limits.md
    "add a generated column": Kind(
        "GitLab",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ADD COLUMN d int GENERATED ALWAYS AS (c * 2) STORED",
        "3",
        ANEW,
    ),
    "drop a column": Kind("Discourse", "int", NUMBERS, "ALTER TABLE {t} DROP COLUMN c", columns=""),
    "drop a column that is required": Kind(
        "Django", "int NOT NULL", NUMBERS, "ALTER TABLE {t} DROP COLUMN c", columns=""
    ),
    "rename a column": Kind(
        "Django", "text", TEXTS, "ALTER TABLE {t} RENAME c TO d", "'c'", TOUCHED, columns="d"
    ),
    "drop a column and add it as another type": Kind(
        "GitLab",
        "int",
        NUMBERS,
        "ALTER TABLE {t} DROP COLUMN c; ALTER TABLE {t} ADD COLUMN c text",
        "'x'",
        ANEW,
        refused=True,
    ),
    "swap an int for a bigint": Kind(
        "GitLab",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ADD COLUMN big bigint; UPDATE {t} SET big = c; "
        "ALTER TABLE {t} DROP COLUMN c; ALTER TABLE {t} RENAME big TO c",
        str(2**40),
    ),
    "split columns off into a table": Kind(
        "Discourse",
        "int",
        NUMBERS,
        "CREATE TABLE {t}_parts AS SELECT id, c FROM {t}; ALTER TABLE {t} DROP COLUMN c",
        columns="",
    ),
    "merge the rows of a table": Kind(
        "GitLab",
        "int",
        NUMBERS,
        "INSERT INTO {t} (id, touched, c) SELECT n, 0, n FROM generate_series(10, 19) n",
        "3",
    ),
    # defaults and rules
    "change a default": Kind(
        "Django", "int", NUMBERS, "ALTER TABLE {t} ALTER COLUMN c SET DEFAULT 5", "DEFAULT"
    ),
    "set NOT NULL": Kind(
        "GitLab", "int", NUMBERS, "ALTER TABLE {t} ALTER COLUMN c SET NOT NULL", "3"
    ),
    "drop NOT NULL": Kind(
        "Discourse", "int NOT NULL", NUMBERS, "ALTER TABLE {t} ALTER COLUMN c DROP NOT NULL", "NULL"
    ),
    "add a check": Kind(
        "GitLab", "int", NUMBERS, "ALTER TABLE {t} ADD CHECK (c > 0) NOT VALID", "3"
    ),
    "add a unique index": Kind("Discourse", "int", NUMBERS, "CREATE UNIQUE INDEX ON {t} (c)", "3"),
    "add a replica identity": Kind(
        "GitLab", "int", NUMBERS, "ALTER TABLE {t} REPLICA IDENTITY FULL", "3"
    ),
    # numbers
    "int to bigint": to("Django", "int", NUMBERS, "bigint", str(2**40)),
    "smallint to int": to("Django", "smallint", NUMBERS, "int", str(2**30)),
    "bigint to int": to("Django", "bigint", NUMBERS, "int", "3"),
    "int to numeric": to("Django", "int", NUMBERS, "numeric(12,2)", "3.50", ANEW),
    "int to double": to("Discourse", "int", NUMBERS, "double precision", "3.5"),
    "real to double": to("Discourse", "real", ("1.5", "2.25"), "double precision", "3.1"),
    "numeric(10,2) to (12,4)": to(
        "Django", "numeric(10,2)", PRICES, "numeric(12,4)", "99999999.9999"
    ),
    "numeric(10,2) to (14,2)": to(
        "Django", "numeric(10,2)", PRICES, "numeric(14,2)", "999999999999.99"
    ),
    "numeric(10,2) to (26,8)": to("Django", "numeric(10,2)", PRICES, "numeric(26,8)", "1.12345678"),
    "numeric(10,2) to (10,4)": to(
        "Django", "numeric(10,2)", PRICES, "numeric(10,4)", "1.1234", ANEW
    ),
    "numeric(10,2) to (8,1)": to("Django", "numeric(10,2)", PRICES, "numeric(8,1)", "1.2", TOUCHED),
    "int to boolean": to("Django", "int", ("0", "1"), "boolean", "true", ANEW, using="c <> 0"),
    "boolean to smallint": to(
        "Django", "boolean", ("true", "false"), "smallint", "2", ANEW, using="c::int::smallint"
    ),
    # texts
    "varchar(20) to varchar(255)": to(
        "Django", "varchar(20)", TEXTS, "varchar(255)", "repeat('x', 200)"
    ),
    "varchar to text": to("GitLab", "varchar(20)", TEXTS, "text", "repeat('x', 2000)"),
    "text to varchar": to("Discourse", "text", TEXTS, "varchar(10)", "'c'"),
    "text in lower case": to(
        "Discourse", "text", ("'A'", "'b'"), "text", "'c'", TOUCHED, using="lower(c)"
    ),
    "int to text": to("Discourse", "int", NUMBERS, "text", "'x'", ANEW),
    "text to int": to("Django", "text", ("'1'", "'2'"), "int", "3", ANEW, using="c::int"),
    "text to bytea": to("GitLab", "text", TEXTS, "bytea", "'\\x00ff'", ANEW, using="c::bytea"),
    "text to uuid": to(
        "Django",
        "text",
        ("'00000000-0000-0000-0000-000000000001'", "NULL"),
        "uuid",
        "'00000000-0000-0000-0000-000000000002'",
        using="c::uuid",
    ),
    "text to inet": to(
        "Discourse", "text", ("'10.0.0.1'", "NULL"), "inet", "'10.0.0.2'", using="c::inet"
    ),
    "json to jsonb": to("GitLab", "json", JSONS, "jsonb", "'{}'"),
    "text to jsonb": to("Discourse", "text", JSONS, "jsonb", "'{}'", using="c::jsonb"),
    "text to a list": to(
        "Discourse",
        "text",
        ("'a,b'", "NULL"),
        "text[]",
        "ARRAY['x']",
        ANEW,
        using="string_to_array(c, ',')",
    ),
    "list of int to list of bigint": to(
        "GitLab", "int[]", ("'{1,NULL}'", "'{}'"), "bigint[]", f"'{{{2**40}}}'"
    ),
    # enums
    "an enum grows": Kind(
        "GitLab",
        "{t}_e",
        TEXTS,
        "ALTER TYPE {t}_e ADD VALUE 'c'",
        "'c'",
        first="CREATE TYPE {t}_e AS ENUM ('a', 'b')",
    ),
    "a value of an enum is renamed": Kind(
        "GitLab",
        "{t}_e",
        TEXTS,
        "ALTER TYPE {t}_e RENAME VALUE 'a' TO 'z'",
        "'b'",
        TOUCHED,
        first="CREATE TYPE {t}_e AS ENUM ('a', 'b')",
    ),
    "text to enum": to(
        "GitLab",
        "text",
        TEXTS,
        "{t}_e",
        "'a'",
        using="c::{t}_e",
        first="CREATE TYPE {t}_e AS ENUM ('a', 'b')",
    ),
    # times
    "timestamp to timestamptz": to(
        "Django",
        "timestamp",
        TIMES,
        "timestamptz",
        "'2024-03-01 00:00:00+02'",
        ANEW,
        using="c AT TIME ZONE 'UTC'",
    ),
    "timestamptz to timestamp": to(
        "Django",
        "timestamptz",
        TIMES,
        "timestamp",
        "'2024-03-01 00:00:00'",
        ANEW,
        using="c AT TIME ZONE 'UTC'",
    ),
    "date to timestamp": to(
        "Django", "date", ("'2024-02-29'", "NULL"), "timestamp", "'2024-03-01 10:00:00'", ANEW
    ),
    "int to timestamptz": to(
        "MediaWiki",
        "int",
        ("0", "1700000000"),
        "timestamptz",
        "now()",
        ANEW,
        using="to_timestamp(c)",
    ),
    "timestamp(3) to timestamp(6)": to("Django", "timestamp(3)", TIMES, "timestamp(6)", TIMES[1]),
    # keys and names of tables
    "a key from int to bigint": Kind(
        "GitLab", "int", NUMBERS, "ALTER TABLE {t} ALTER COLUMN id TYPE bigint", "3"
    ),
    "a key is made anew": Kind(
        "Django",
        "int",
        NUMBERS,
        "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; ALTER TABLE {t} ADD PRIMARY KEY (id)",
        "3",
    ),
    "rename a table": Kind(
        "Discourse",
        "int",
        NUMBERS,
        "ALTER TABLE {t} RENAME TO {t}_new",
        "3",
        ANEW,
        source="{t}_new",
    ),
    "a key from int to text": Kind(
        "Django",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ALTER COLUMN id TYPE text",
        "3",
        ANEW,
        refused=True,
    ),
    "rename a key column": Kind(
        "Django", "int", NUMBERS, "ALTER TABLE {t} RENAME id TO post_id", "3", LIMIT, refused=True
    ),
}

MARIADB = {
    "add a required column": Kind(
        "WordPress",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ADD COLUMN d int NOT NULL DEFAULT 7",
        "3, 8",
        TOUCHED,
        columns="c, d",
    ),
    "rename a column": Kind(
        "MediaWiki", "int", NUMBERS, "ALTER TABLE {t} CHANGE c d int", "3", TOUCHED, columns="d"
    ),
    "int to bigint": Kind(
        "MediaWiki", "int", NUMBERS, "ALTER TABLE {t} MODIFY c bigint", str(2**40)
    ),
    "int to varchar": Kind(
        "WordPress", "int", NUMBERS, "ALTER TABLE {t} MODIFY c varchar(20)", "'x'", ANEW, True
    ),
    "varchar to longtext": Kind(
        "WordPress", "varchar(20)", TEXTS, "ALTER TABLE {t} MODIFY c longtext", "'c'"
    ),
    "varbinary to blob": Kind(
        "MediaWiki", "varbinary(20)", TEXTS, "ALTER TABLE {t} MODIFY c blob", "'c'"
    ),
    "decimal(10,2) to (12,4)": Kind(
        "WordPress",
        "decimal(10,2)",
        PRICES,
        "ALTER TABLE {t} MODIFY c decimal(12,4)",
        "99999999.9999",
    ),
    "an enum grows": Kind(
        "MediaWiki", "ENUM('a', 'b')", TEXTS, "ALTER TABLE {t} MODIFY c ENUM('a', 'b', 'c')", "'c'"
    ),
    "int unsigned to bigint unsigned": Kind(
        "MediaWiki",
        "int unsigned",
        NUMBERS,
        "ALTER TABLE {t} MODIFY c bigint unsigned",
        str(2**63),
        ANEW,
        True,
    ),
    "datetime to timestamp": Kind(
        "WordPress",
        "datetime",
        ("'2024-02-29 10:00:00'", "NULL"),
        "ALTER TABLE {t} MODIFY c timestamp NULL",
        "'2024-03-01 00:00:00'",
        ANEW,
        True,
    ),
    "another character set": Kind(
        "WordPress",
        "varchar(20) CHARACTER SET latin1",
        ("'\u00e9'", "'b'"),
        "ALTER TABLE {t} CONVERT TO CHARACTER SET utf8mb4",
        "'\u2603'",
    ),
    "a key without sign": Kind(
        "WordPress",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ADD KEY (c)",
        "3",
        key="bigint unsigned PRIMARY KEY AUTO_INCREMENT",
    ),
}
