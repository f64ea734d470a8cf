"""Own tables with keys of every kind: each row of the source is one row of the lake, after any change."""

import own_help
import pytest
from workbench import hudi, own
from workbench.base import SourceError
from workbench.source import postgres

DATABASE, FLOW = "keys_test", "keys"
HOSTILE = (
    "''", "' '", "'x'", "'X'", "'x,b:y'", "'__null__'", "'__empty__'", "'null'", "'\"'", "'\\'", "'a\\nb'", "E'a\\nb'",
    "E'\\t'", "'%2C'", "'a/b=c'", "'ü☃😀'", "'k:x,n:1'", "'{\"k\": 1}'", "'1'", "'1.0'", "repeat('long', 500)",
)  # fmt: skip
# {type: values of a key, in SQL}, the first one for rows that are about another column
KEYS = {
    "text": HOSTILE,
    "varchar(2000)": HOSTILE,
    "char(3)": ("''", "'a'", "'A'", "'a,b'"),
    "bytea": ("''", "'\\x00'", "'\\x0000'", "'\\x5c'", "'\\xff00'", "'abc'", "decode(repeat('ff', 99), 'hex')"),
    "numeric": ("0", "1.0", "-1", "10", "0.0000000001", "12345678901234567890.5"),
    "numeric(12, 2)": ("0", "1", "-1.10", "9999999999.99"),
    "numeric(30, 0)": ("0", "1", "-999999999999999999999999999999"),
    "double precision": ("0", "1", "-1.5", "1e300", "5e-324", "'NaN'", "'Infinity'", "'-Infinity'", "0.1"),
    "real": ("0", "1", "1e-30", "'NaN'", "16777215", "0.1"),
    "boolean": ("true", "false"),
    "date": ("'1969-12-31'", "'0001-01-01'", "'1500-03-01'", "'2024-02-29'", "'9999-12-31'"),
    "time": ("'00:00'", "'00:00:00.000001'", "'23:59:59.999999'", "'24:00:00'"),
    "timestamp": ("'1600-01-01'", "'2024-01-01'", "'2024-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'"),
    "timestamptz": ("'1600-01-01 00:00+00'", "'2024-01-01 00:00+02'", "'2024-01-01 00:00:00.1+00'"),
    "uuid": ("'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
    "smallint": ("0", "-1"),
    "bigint": ("0", "-9223372036854775808", "9223372036854775807"),
    "inet": ("'10.0.0.1'", "'10.0.0.1/8'", "'::1'"),
    "macaddr": ("'08:00:2b:01:02:03'", "'00:00:00:00:00:00'"),
    "mood": ("'a,b'", "'A'", "''"),
    "int4range": ("'empty'", "'[1,5)'", "'(,)'"),
    "jsonb": ("'{}'", "'[]'", "'null'", "'\"x\"'"),
}  # fmt: skip
SINGLE = ("text", "bytea", "numeric", "double precision", "bigint")
# Keys of two columns. With Hudi's own text some pairs are one key, or none.
PAIRS = (
    "'x,b:y', 'z'",
    "'x', 'y,b:z'",
    "'', ''",
    "'', 'a'",
    "'a', ''",
    "'__empty__', 'a'",
    "'__null__', ''",
)
ALL_TYPES = tuple(KEYS)


def key_rows(kinds):
    """Return the keys, in SQL, in which one column after the other has each of its values."""
    first = [KEYS[kind][0] for kind in kinds]
    rows = [
        first[:n] + [value] + first[n + 1 :] for n, kind in enumerate(kinds) for value in KEYS[kind]
    ]
    return list(dict.fromkeys(", ".join(row) for row in rows))


def tables():
    """Yield the type of each lake table, its name, the types of its key, and its keys."""
    for n, kind in enumerate(SINGLE):
        yield ("cow", "mor")[n % 2], f"single{n}", [kind], key_rows([kind])
    for kind in ("cow", "mor"):
        yield kind, f"pair_{kind}", ["text", "text"], [*PAIRS]
        yield kind, f"all_{kind}", ALL_TYPES, key_rows(ALL_TYPES)


TABLES = [*tables()]


@pytest.fixture(scope="module")
def keys(world):
    """The world with the source `bikes`, whose tables have keys of every kind."""
    with own_help.stack_database(world, DATABASE) as changed:
        yield changed


def execute(world, *statements):
    return postgres.execute(world.source("bikes"), "; ".join(statements))


def create(name, kinds, rows):
    columns = ", ".join(f"k{n} {kind}" for n, kind in enumerate(kinds))
    key = ", ".join(f"k{n}" for n in range(len(kinds)))
    values = ", ".join(f"({row}, {n}, 0)" for n, row in enumerate(rows))
    statements = (
        f"CREATE TABLE {name} ({columns}, nr int, n int, PRIMARY KEY ({key}))",
        f"ALTER TABLE {name} REPLICA IDENTITY FULL",
        f"INSERT INTO {name} VALUES {values}",
    )
    return "; ".join(statements)


def differing(world, spark):
    """Return {table: rows of the source, of Spark, and of hudi-rs} of the tables that differ."""
    at, flow, wrong = world.source("bikes"), own.load(world, FLOW), {}
    for _, name, *_ in TABLES:
        table = flow.table(at, name)
        source = postgres.query(at, f"SELECT nr, n FROM {name}")
        lake = hudi.read(spark, table).select("nr", "n").toPandas()
        independent = hudi.read_arrow(table).to_pandas()
        rows = [
            sorted(zip(each["nr"], each["n"])) if len(each) else []
            for each in (source, lake, independent)
        ]
        if not rows[0] == rows[1] == rows[2]:
            wrong[name] = rows
    return wrong


def test_each_key_is_one_row_in_the_first_load_and_after_changes(keys, spark):
    execute(keys, "CREATE TYPE mood AS ENUM ('a,b', 'A', '')")
    execute(keys, *(create(name, kinds, rows) for _, name, kinds, rows in TABLES))
    for kind in ("cow", "mor"):
        names = [name for each, name, *_ in TABLES if each == kind]
        own.capture(keys, "bikes", *names, type=kind, flow=FLOW)
    assert differing(keys, spark) == {}
    # each third row is updated, deleted, or deleted and inserted again
    for _, name, _, rows in TABLES:
        again = ", ".join(f"({row}, {n}, 2)" for n, row in enumerate(rows) if n % 3 == 2)
        execute(
            keys,
            f"UPDATE {name} SET n = 1 WHERE nr % 3 = 0; DELETE FROM {name} WHERE nr % 3 > 0",
            f"INSERT INTO {name} VALUES {again}" if again else "SELECT",
        )
    # the text of a key changes: to another key, and to an equal one
    execute(
        keys,
        "UPDATE single0 SET k0 = 'y' WHERE nr = 0",
        "UPDATE single2 SET k0 = 0.00 WHERE nr = 0",
        "UPDATE single3 SET k0 = '-0' WHERE nr = 0",
        "UPDATE pair_mor SET k0 = 'x', k1 = 'y,b:y' WHERE nr = 0",
    )
    own.follow(keys, FLOW)
    assert differing(keys, spark) == {}
    execute(keys, *(f"DELETE FROM {name} WHERE n < 2" for _, name, *_ in TABLES))
    own.follow(keys, FLOW)
    assert differing(keys, spark) == {}
    own.compare(keys, FLOW)


@pytest.mark.parametrize(
    "kind, value",
    [("varbit", "B'0'"), ("interval", "'1 month'"), ("timetz", "'10:00+01'"), ("int[]", "'{}'")],
)
def test_a_key_that_arrives_ambiguous_is_refused(keys, kind, value):
    """B'0' and B'00' are two rows of the source, and one value of a message."""
    execute(keys, "DROP TABLE IF EXISTS refused", create("refused", [kind], [value]))
    with pytest.raises(
        SourceError,
        match="public.refused: two different keys may arrive as one, by the type of key column k0",
    ):
        own.capture(keys, "bikes", "refused", flow="refused")
