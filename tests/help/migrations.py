"""Schema migrations of real applications, and their outcome in the lake.

tests/stack/test_migrations.py runs them. A table has the columns `id`, `touched` and `c`. It is
loaded with two rows, migrated, and gets a third row.
"""

from dataclasses import dataclass

EQUAL = "equal"  # the lake equals the source after the next ingest
AFTER_UPDATE = "equal after an UPDATE of all rows"  # an ALTER makes no events of existing rows
AFTER_SNAPSHOT = "equal after a new snapshot"  # the ingest reports it, or the lake differs
LIMIT = "limit"  # docs/limits.md describes the remedy


@dataclass(frozen=True)
class Migration:
    """One migration.

    Attributes:
        application: an application with such a migration.
        column_type: type of the column `c`.
        old_values: SQL of its values in the first two rows.
        statements: the migration, separated by "; "; `{t}` is the table.
        new_values: SQL of the third row's values of `columns`.
        outcome: the outcome in the lake.
        is_refused: whether the ingest refuses the change until then.
        columns: columns of the third row.
        key_type: type of the key.
        renamed_to: the table's name after the migration, if it changes.
        setup: a statement before the table is created.
    """

    application: str
    column_type: str
    old_values: tuple[str, str]
    statements: str
    new_values: str = ""
    outcome: str = EQUAL
    is_refused: bool = False
    columns: str = "c"
    key_type: str = "int PRIMARY KEY"
    renamed_to: str = ""
    setup: str = ""


def type_change(style, old_type, old, new_type, new, outcome=EQUAL, using="", **more):
    """Return a change of the column's type. The ingest refuses one that needs a new snapshot."""
    change = f"ALTER TABLE {{t}} ALTER COLUMN c TYPE {new_type}" + (
        f" USING {using}" if using else ""
    )
    return Migration(
        style,
        old_type,
        old,
        change,
        new,
        outcome,
        **{"is_refused": outcome == AFTER_SNAPSHOT, **more},
    )


NUMBERS, PRICES, TEXTS = ("1", "2"), ("1.25", "NULL"), ("'a'", "'b'")
TIMES, JSONS = (
    ("'2024-02-29 10:00:00'", "'1999-12-31 23:59:59.999999'"),
    ("""'{"a": 1}'""", "'[1, 2]'"),
)

POSTGRES = {
    # columns that come and go
    "add a column": Migration(
        "Discourse", "int", NUMBERS, "ALTER TABLE {t} ADD COLUMN d text", "3, 'x'", columns="c, d"
    ),
    "add a column with a default": Migration(
        "Discourse",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ADD COLUMN d int DEFAULT 7",
        "3, 8",
        AFTER_UPDATE,
        columns="c, d",
    ),
    "add a required column": Migration(
        "Django",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ADD COLUMN d boolean NOT NULL DEFAULT false",
        "3, true",
        AFTER_UPDATE,
        columns="c, d",
    ),
    "add a column and fill it": Migration(
        "GitLab",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ADD COLUMN d int; "
        "UPDATE {t} SET d = c * 10; ALTER TABLE {t} ALTER COLUMN d SET NOT NULL",
        "3, 30",
        columns="c, d",
    ),
    "add a list with a default": Migration(
        "Discourse",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ADD COLUMN d text[] NOT NULL DEFAULT '{{}}'",
        "3, ARRAY['x', NULL]",
        AFTER_UPDATE,
        columns="c, d",
    ),
    # until a row's next change: docs/limits.md
    "add a generated column": Migration(
        "GitLab",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ADD COLUMN d int GENERATED ALWAYS AS (c * 2) STORED",
        "3",
        AFTER_SNAPSHOT,
    ),
    "drop a column": Migration(
        "Discourse", "int", NUMBERS, "ALTER TABLE {t} DROP COLUMN c", columns=""
    ),
    "drop a column that is required": Migration(
        "Django", "int NOT NULL", NUMBERS, "ALTER TABLE {t} DROP COLUMN c", columns=""
    ),
    "rename a column": Migration(
        "Django", "text", TEXTS, "ALTER TABLE {t} RENAME c TO d", "'c'", AFTER_UPDATE, columns="d"
    ),
    "drop a column and add it as another type": Migration(
        "GitLab",
        "int",
        NUMBERS,
        "ALTER TABLE {t} DROP COLUMN c; ALTER TABLE {t} ADD COLUMN c text",
        "'x'",
        AFTER_SNAPSHOT,
        is_refused=True,
    ),
    "swap an int for a bigint": Migration(
        "GitLab",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ADD COLUMN big bigint; UPDATE {t} SET big = c; "
        "ALTER TABLE {t} DROP COLUMN c; ALTER TABLE {t} RENAME big TO c",
        str(2**40),
    ),
    "split columns off into a table": Migration(
        "Discourse",
        "int",
        NUMBERS,
        "CREATE TABLE {t}_parts AS SELECT id, c FROM {t}; ALTER TABLE {t} DROP COLUMN c",
        columns="",
    ),
    "merge the rows of a table": Migration(
        "GitLab",
        "int",
        NUMBERS,
        "INSERT INTO {t} (id, touched, c) SELECT n, 0, n FROM generate_series(10, 19) n",
        "3",
    ),
    # defaults and rules
    "change a default": Migration(
        "Django", "int", NUMBERS, "ALTER TABLE {t} ALTER COLUMN c SET DEFAULT 5", "DEFAULT"
    ),
    "set NOT NULL": Migration(
        "GitLab", "int", NUMBERS, "ALTER TABLE {t} ALTER COLUMN c SET NOT NULL", "3"
    ),
    "drop NOT NULL": Migration(
        "Discourse", "int NOT NULL", NUMBERS, "ALTER TABLE {t} ALTER COLUMN c DROP NOT NULL", "NULL"
    ),
    "add a check": Migration(
        "GitLab", "int", NUMBERS, "ALTER TABLE {t} ADD CHECK (c > 0) NOT VALID", "3"
    ),
    "add a unique index": Migration(
        "Discourse", "int", NUMBERS, "CREATE UNIQUE INDEX ON {t} (c)", "3"
    ),
    "add a replica identity": Migration(
        "GitLab", "int", NUMBERS, "ALTER TABLE {t} REPLICA IDENTITY FULL", "3"
    ),
    # numbers
    "int to bigint": type_change("Django", "int", NUMBERS, "bigint", str(2**40)),
    "smallint to int": type_change("Django", "smallint", NUMBERS, "int", str(2**30)),
    "bigint to int": type_change("Django", "bigint", NUMBERS, "int", "3"),
    "int to numeric": type_change(
        "Django", "int", NUMBERS, "numeric(12,2)", "3.50", AFTER_SNAPSHOT
    ),
    "int to double": type_change("Discourse", "int", NUMBERS, "double precision", "3.5"),
    "real to double": type_change("Discourse", "real", ("1.5", "2.25"), "double precision", "3.1"),
    "numeric(10,2) to (12,4)": type_change(
        "Django", "numeric(10,2)", PRICES, "numeric(12,4)", "99999999.9999"
    ),
    "numeric(10,2) to (14,2)": type_change(
        "Django", "numeric(10,2)", PRICES, "numeric(14,2)", "999999999999.99"
    ),
    "numeric(10,2) to (26,8)": type_change(
        "Django", "numeric(10,2)", PRICES, "numeric(26,8)", "1.12345678"
    ),
    "numeric(10,2) to (10,4)": type_change(
        "Django", "numeric(10,2)", PRICES, "numeric(10,4)", "1.1234", AFTER_SNAPSHOT
    ),
    "numeric(10,2) to (8,1)": type_change(
        "Django", "numeric(10,2)", PRICES, "numeric(8,1)", "1.2", AFTER_UPDATE
    ),
    "int to boolean": type_change(
        "Django", "int", ("0", "1"), "boolean", "true", AFTER_SNAPSHOT, using="c <> 0"
    ),
    "boolean to smallint": type_change(
        "Django",
        "boolean",
        ("true", "false"),
        "smallint",
        "2",
        AFTER_SNAPSHOT,
        using="c::int::smallint",
    ),
    # texts
    "varchar(20) to varchar(255)": type_change(
        "Django", "varchar(20)", TEXTS, "varchar(255)", "repeat('x', 200)"
    ),
    "varchar to text": type_change("GitLab", "varchar(20)", TEXTS, "text", "repeat('x', 2000)"),
    "text to varchar": type_change("Discourse", "text", TEXTS, "varchar(10)", "'c'"),
    "text in lower case": type_change(
        "Discourse", "text", ("'A'", "'b'"), "text", "'c'", AFTER_UPDATE, using="lower(c)"
    ),
    "int to text": type_change("Discourse", "int", NUMBERS, "text", "'x'", AFTER_SNAPSHOT),
    "text to int": type_change(
        "Django", "text", ("'1'", "'2'"), "int", "3", AFTER_SNAPSHOT, using="c::int"
    ),
    "text to bytea": type_change(
        "GitLab", "text", TEXTS, "bytea", "'\\x00ff'", AFTER_SNAPSHOT, using="c::bytea"
    ),
    "text to uuid": type_change(
        "Django",
        "text",
        ("'00000000-0000-0000-0000-000000000001'", "NULL"),
        "uuid",
        "'00000000-0000-0000-0000-000000000002'",
        using="c::uuid",
    ),
    "text to inet": type_change(
        "Discourse", "text", ("'10.0.0.1'", "NULL"), "inet", "'10.0.0.2'", using="c::inet"
    ),
    "json to jsonb": type_change("GitLab", "json", JSONS, "jsonb", "'{}'"),
    "text to jsonb": type_change("Discourse", "text", JSONS, "jsonb", "'{}'", using="c::jsonb"),
    "text to a list": type_change(
        "Discourse",
        "text",
        ("'a,b'", "NULL"),
        "text[]",
        "ARRAY['x']",
        AFTER_SNAPSHOT,
        using="string_to_array(c, ',')",
    ),
    "list of int to list of bigint": type_change(
        "GitLab", "int[]", ("'{1,NULL}'", "'{}'"), "bigint[]", f"'{{{2**40}}}'"
    ),
    # enums
    "an enum grows": Migration(
        "GitLab",
        "{t}_e",
        TEXTS,
        "ALTER TYPE {t}_e ADD VALUE 'c'",
        "'c'",
        setup="CREATE TYPE {t}_e AS ENUM ('a', 'b')",
    ),
    "a value of an enum is renamed": Migration(
        "GitLab",
        "{t}_e",
        TEXTS,
        "ALTER TYPE {t}_e RENAME VALUE 'a' TO 'z'",
        "'b'",
        AFTER_UPDATE,
        setup="CREATE TYPE {t}_e AS ENUM ('a', 'b')",
    ),
    "text to enum": type_change(
        "GitLab",
        "text",
        TEXTS,
        "{t}_e",
        "'a'",
        using="c::{t}_e",
        setup="CREATE TYPE {t}_e AS ENUM ('a', 'b')",
    ),
    # times
    "timestamp to timestamptz": type_change(
        "Django",
        "timestamp",
        TIMES,
        "timestamptz",
        "'2024-03-01 00:00:00+02'",
        AFTER_SNAPSHOT,
        using="c AT TIME ZONE 'UTC'",
    ),
    "timestamptz to timestamp": type_change(
        "Django",
        "timestamptz",
        TIMES,
        "timestamp",
        "'2024-03-01 00:00:00'",
        AFTER_SNAPSHOT,
        using="c AT TIME ZONE 'UTC'",
    ),
    "date to timestamp": type_change(
        "Django",
        "date",
        ("'2024-02-29'", "NULL"),
        "timestamp",
        "'2024-03-01 10:00:00'",
        AFTER_SNAPSHOT,
    ),
    "int to timestamptz": type_change(
        "MediaWiki",
        "int",
        ("0", "1700000000"),
        "timestamptz",
        "now()",
        AFTER_SNAPSHOT,
        using="to_timestamp(c)",
    ),
    "timestamp(3) to timestamp(6)": type_change(
        "Django", "timestamp(3)", TIMES, "timestamp(6)", TIMES[1]
    ),
    # keys and names of tables
    "a key from int to bigint": Migration(
        "GitLab", "int", NUMBERS, "ALTER TABLE {t} ALTER COLUMN id TYPE bigint", "3"
    ),
    "a key is made anew": Migration(
        "Django",
        "int",
        NUMBERS,
        "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey; ALTER TABLE {t} ADD PRIMARY KEY (id)",
        "3",
    ),
    "rename a table": Migration(
        "Discourse",
        "int",
        NUMBERS,
        "ALTER TABLE {t} RENAME TO {t}_new",
        "3",
        AFTER_SNAPSHOT,
        renamed_to="{t}_new",
    ),
    "a key from int to text": Migration(
        "Django",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ALTER COLUMN id TYPE text",
        "3",
        AFTER_SNAPSHOT,
        is_refused=True,
    ),
    "rename a key column": Migration(
        "Django",
        "int",
        NUMBERS,
        "ALTER TABLE {t} RENAME id TO post_id",
        "3",
        LIMIT,
        is_refused=True,
    ),
}

MARIADB = {
    "add a required column": Migration(
        "WordPress",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ADD COLUMN d int NOT NULL DEFAULT 7",
        "3, 8",
        AFTER_UPDATE,
        columns="c, d",
    ),
    "rename a column": Migration(
        "MediaWiki",
        "int",
        NUMBERS,
        "ALTER TABLE {t} CHANGE c d int",
        "3",
        AFTER_UPDATE,
        columns="d",
    ),
    "int to bigint": Migration(
        "MediaWiki", "int", NUMBERS, "ALTER TABLE {t} MODIFY c bigint", str(2**40)
    ),
    "int to varchar": Migration(
        "WordPress",
        "int",
        NUMBERS,
        "ALTER TABLE {t} MODIFY c varchar(20)",
        "'x'",
        AFTER_SNAPSHOT,
        True,
    ),
    "varchar to longtext": Migration(
        "WordPress", "varchar(20)", TEXTS, "ALTER TABLE {t} MODIFY c longtext", "'c'"
    ),
    "varbinary to blob": Migration(
        "MediaWiki", "varbinary(20)", TEXTS, "ALTER TABLE {t} MODIFY c blob", "'c'"
    ),
    "decimal(10,2) to (12,4)": Migration(
        "WordPress",
        "decimal(10,2)",
        PRICES,
        "ALTER TABLE {t} MODIFY c decimal(12,4)",
        "99999999.9999",
    ),
    "an enum grows": Migration(
        "MediaWiki", "ENUM('a', 'b')", TEXTS, "ALTER TABLE {t} MODIFY c ENUM('a', 'b', 'c')", "'c'"
    ),
    "int unsigned to bigint unsigned": Migration(
        "MediaWiki",
        "int unsigned",
        NUMBERS,
        "ALTER TABLE {t} MODIFY c bigint unsigned",
        str(2**63),
        AFTER_SNAPSHOT,
        True,
    ),
    "datetime to timestamp": Migration(
        "WordPress",
        "datetime",
        ("'2024-02-29 10:00:00'", "NULL"),
        "ALTER TABLE {t} MODIFY c timestamp NULL",
        "'2024-03-01 00:00:00'",
        AFTER_SNAPSHOT,
        True,
    ),
    "another character set": Migration(
        "WordPress",
        "varchar(20) CHARACTER SET latin1",
        ("'\u00e9'", "'b'"),
        "ALTER TABLE {t} CONVERT TO CHARACTER SET utf8mb4",
        "'\u2603'",
    ),
    "a key without sign": Migration(
        "WordPress",
        "int",
        NUMBERS,
        "ALTER TABLE {t} ADD KEY (c)",
        "3",
        key_type="bigint unsigned PRIMARY KEY AUTO_INCREMENT",
    ),
}
