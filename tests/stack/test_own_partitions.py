"""Partition columns of own tables: what is accepted is read back by every engine, what is not is refused."""

import own_help
import pytest
from pyspark.sql import functions as F
from workbench import explore, hudi, operate, own
from workbench.base import LakeError, SourceError
from workbench.source import postgres

DATABASE = "own_partitions_test"
# {type: values in SQL}; each is written by the first load, and by an upsert
ACCEPTED = {
    "text": ("'x'", "'a/b=c'", "'ü%2C'", "' '", "'1.0'", "'007'", "'x,y:z'", "'2024-01-01'", "'a''b\\'", "'..'", "NULL"),
    "char(3)": ("'a'", "'b c'"),
    "bigint": ("1", "-5", "NULL"),
    "date": ("'2024-02-29'", "'0001-01-01'", "'9999-12-31'", "NULL"),
    "uuid": ("'00000000-0000-0000-0000-000000000000'", "NULL"),
}  # fmt: skip
TABLES = {f"p{n}": (("mor", "cow")[n % 2], *each) for n, each in enumerate(ACCEPTED.items())}
REFUSED = ("timestamp", "timestamptz", "boolean", "numeric(9, 2)", "real", "time", "bytea", "int[]")


@pytest.fixture(scope="module")
def bikes(world):
    """The world with the source `bikes` in the database of the stack."""
    with own_help.stack_database(world, DATABASE) as changed:
        yield changed


def execute(world, *statements):
    return postgres.execute(world.source("bikes"), "; ".join(statements))


@pytest.mark.parametrize("kind", REFUSED)
def test_a_type_that_queries_do_not_read_back_is_refused(bikes, kind):
    execute(bikes, f"DROP TABLE IF EXISTS r; CREATE TABLE r (id int PRIMARY KEY, p {kind})")
    with pytest.raises(
        SourceError, match="(?s)partition column p is .*do not read back.*expected: .*date"
    ):
        own.capture(bikes, "bikes", "r", partition=["p"])


def test_an_empty_text_is_refused_before_anything_is_created_or_removed(bikes):
    execute(bikes, "DROP TABLE IF EXISTS r; CREATE TABLE r (id int PRIMARY KEY, p text)")
    execute(bikes, "INSERT INTO r VALUES (1, ''), (2, 'x')")
    with pytest.raises(SourceError, match="empty text in partition column p.*: 1"):
        own.capture(bikes, "bikes", "r", partition=["p"])
    assert "bikes" not in own.names(bikes)
    execute(bikes, "DELETE FROM r WHERE id = 1")
    own.capture(bikes, "bikes", "r", partition=["p"])
    execute(bikes, "UPDATE r SET p = ''")
    with pytest.raises(SourceError, match="empty text in partition column p.*: 1"):
        own.recapture(bikes, "bikes")
    assert not own.load(bikes, "bikes").interrupted_command()
    own.forget(bikes, "bikes")


def test_what_is_accepted_is_read_back_by_each_engine(bikes, spark):
    """Also a column `__note` is compared and shown: its name is none of those that a capture adds."""
    for name, (_, kind, values) in TABLES.items():
        rows = ", ".join(f"({n}, {value}, 'first')" for n, value in enumerate(values))
        execute(bikes, f"CREATE TABLE {name} (id int PRIMARY KEY, p {kind}, __note text)")
        execute(bikes, f"ALTER TABLE {name} REPLICA IDENTITY FULL")
        execute(bikes, f"INSERT INTO {name} VALUES {rows}")
    for kind in ("mor", "cow"):
        names = [name for name, each in TABLES.items() if each[0] == kind]
        own.capture(bikes, "bikes", *names, partition=["p"], type=kind)
    for name in TABLES:
        execute(
            bikes,
            f"UPDATE {name} SET __note = 'changed' WHERE id = 0",
            f"INSERT INTO {name} SELECT id + 50, p, __note FROM {name}",
            f"UPDATE {name} SET p = (SELECT p FROM {name} WHERE id = 0) WHERE id = 51",
        )
    own.follow(bikes, "bikes")
    own.compare(bikes, "bikes")
    results = operate.reconcile(bikes, "bikes")
    assert [result.is_equal for result in results] == [True] * len(TABLES)
    assert not any(result.not_compared for result in results)
    at, flow = bikes.source("bikes"), own.load(bikes, "bikes")
    for name in TABLES:
        table = flow.table(at, name)
        query = f"SELECT id, format('%s', p) AS p, p IS NULL AS is_null FROM {name}"
        found = postgres.query(at, query).itertuples()
        source = {row.id: None if row.is_null else row.p for row in found}
        lake = hudi.read(spark, table)
        rows = {row.id: row.p for row in lake.collect()}
        texts = {id: None if value is None else str(value) for id, value in rows.items()}
        assert texts == source, name
        arrow = hudi.read_arrow(table)
        independent = dict(zip(arrow["id"].to_pylist(), arrow["p"].to_pylist()))
        assert independent == rows, name
        for value in {*rows.values()} - {None}:
            selected = {row.id for row in lake.where(F.col("p") == F.lit(value)).collect()}
            assert selected == {id for id, each in rows.items() if each == value}, (name, value)
    assert "__note" in explore.at(bikes, flow.table(at, "p0"), "").rows.columns


def test_a_value_that_no_folder_can_have_is_a_dead_letter(bikes, spark):
    """The other rows arrive, and a delete needs no partition."""
    execute(
        bikes,
        "CREATE TABLE long (id int PRIMARY KEY, p text)",
        "ALTER TABLE long REPLICA IDENTITY FULL",
        "INSERT INTO long VALUES (1, 'x')",
    )
    own.capture(bikes, "bikes", "long", partition=["p"])
    execute(bikes, "INSERT INTO long VALUES (2, repeat('x', 253)), (3, repeat('ü', 126)), (4, 'y')")
    execute(bikes, "INSERT INTO long VALUES (5, repeat('x', 254)), (6, repeat('%', 90))")
    execute(bikes, "UPDATE long SET p = '' WHERE id = 4")
    with pytest.raises(
        LakeError, match="partition field p (has 253 bytes at most|is an empty text)"
    ):
        own.follow(bikes, "bikes")
    table = own.load(bikes, "bikes").table(bikes.source("bikes"), "long")
    assert {row.id for row in hudi.read(spark, table).collect()} == {1, 2, 3, 4}
    reasons = {
        row.reason for row in hudi.dead_letters(spark, bikes.source("bikes"), table).collect()
    }
    assert len(reasons) == 3
    execute(bikes, "DELETE FROM long WHERE id > 3")
    own.follow(bikes, "bikes")
    assert {row.id for row in hudi.read(spark, table).collect()} == {1, 2, 3}
    own.compare(bikes, "bikes")
