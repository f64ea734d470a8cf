"""Commands of own flows, and what the source does without a change in its log."""

import own_help
import pytest
from workbench import hudi, operate, own
from workbench.base.errors import LakeError, SourceError
from workbench.source import postgres

DATABASE, FLOW = "commands_test", "orders"
SCHEMA = """
    DROP SCHEMA public CASCADE; CREATE SCHEMA public;
    CREATE TABLE orders (id int PRIMARY KEY, note text);
    INSERT INTO orders SELECT n, 'order ' || n FROM generate_series(1, 100) n;
    CREATE TABLE visits (id int, day int, note text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
    CREATE TABLE visits_1 PARTITION OF visits FOR VALUES FROM (1) TO (5);
    CREATE TABLE visits_2 PARTITION OF visits FOR VALUES FROM (5) TO (9);
    INSERT INTO visits SELECT n, 1 + n % 8, 'visit ' || n FROM generate_series(1, 100) n;
    """


@pytest.fixture(scope="module")
def server(world):
    """The world with the source `bikes`."""
    with own_help.stack_database(world, DATABASE) as changed:
        yield changed


@pytest.fixture
def orders(server):
    """The same with new tables; afterwards there is no flow."""
    execute(server, SCHEMA)
    yield server
    for name in own.names(server):
        own.forget(server, name)


def execute(world, statements):
    return postgres.execute(world.source("bikes"), statements)


def capture(world, *tables, **options):
    return own.capture(world, "bikes", *tables, flow=FLOW, progress=lambda line: None, **options)


def test_rows_that_are_removed_without_a_change_are_named(orders, spark, capsys):
    """A new file with the same rows is no loss; TRUNCATE and a partition that leaves or joins with rows are."""
    capture(orders, "orders", "visits")
    execute(orders, "VACUUM FULL orders")
    execute(orders, "CREATE TABLE visits_3 PARTITION OF visits FOR VALUES FROM (9) TO (12)")
    own.follow(orders, FLOW)
    text = capsys.readouterr().out
    assert "public.orders: the source has" in text and "public.visits: the source has" in text
    own.follow(orders, FLOW)
    assert "the source has stored" not in capsys.readouterr().out
    execute(orders, "ALTER TABLE visits DETACH PARTITION visits_1")
    for _ in range(2):  # a repetition says the same
        with pytest.raises(LakeError, match="(?s)visits were removed, added or altered.*recapture"):
            own.follow(orders, FLOW)
    execute(orders, "ALTER TABLE visits ATTACH PARTITION visits_1 FOR VALUES FROM (1) TO (5)")
    own.follow(orders, FLOW)
    execute(
        orders,
        "ALTER TABLE visits DETACH PARTITION visits_1; UPDATE visits_1 SET note = 'meanwhile' WHERE id = 8;"
        "ALTER TABLE visits ATTACH PARTITION visits_1 FOR VALUES FROM (1) TO (5)",
    )
    with pytest.raises(
        LakeError, match="(?s)visits were removed, added or altered.*1 diff.*meanwhile"
    ):
        own.follow(orders, FLOW)
    execute(orders, "UPDATE visits SET note = 'later' WHERE id = 8")
    own.follow(orders, FLOW)
    execute(orders, "TRUNCATE visits_2, orders; INSERT INTO visits VALUES (7, 7, 'after it')")
    with pytest.raises(
        LakeError, match=f"(?s)orders were removed, added or altered.*recapture {FLOW}"
    ):
        own.follow(orders, FLOW)
    own.recapture(orders, FLOW)
    own.follow(orders, FLOW)
    left = postgres.query(orders.source("bikes"), "SELECT count(*) AS n FROM visits")["n"][0]
    execute(orders, "ALTER TABLE visits DETACH PARTITION visits_1; DROP TABLE visits_2")
    lost = f"(?s)visits were removed, added or altered.*{left} extra in the lake"
    with pytest.raises(LakeError, match=lost):
        own.follow(orders, FLOW)


def test_an_added_default_is_named_until_no_row_lacks_it(orders, spark):
    capture(orders, "orders")
    execute(orders, "ALTER TABLE orders ADD COLUMN price numeric DEFAULT 7")
    execute(orders, "INSERT INTO orders VALUES (101, 'new', 8)")
    for _ in range(2):  # a repetition has no new message
        with pytest.raises(
            LakeError, match="(?s)orders were removed, added or altered.*100 different.*price"
        ):
            own.follow(orders, FLOW)
    execute(orders, "UPDATE orders SET price = id; UPDATE orders SET price = 'NaN' WHERE id < 3")
    execute(
        orders, "UPDATE orders SET price = '-Infinity' WHERE id = 4"
    )  # Debezium sends both as null
    own.follow(orders, FLOW)
    own.compare(orders, FLOW)
    [result] = operate.reconcile(orders, FLOW, "orders")
    assert result.is_equal, result


def test_an_added_column_of_a_raw_flow_is_named_before_the_lake_has_it(orders, spark):
    capture(orders, "orders", raw=True)
    execute(orders, "ALTER TABLE orders ADD COLUMN price int DEFAULT 7")
    named = "(?s)orders were removed, added or altered.*100 different.*price"
    for statement in ("SELECT 1", "INSERT INTO orders VALUES (101, 'new', 8)"):
        execute(orders, statement)
        with pytest.raises(LakeError, match=named):
            own.follow(orders, FLOW)
    execute(orders, "UPDATE orders SET price = id")
    own.follow(orders, FLOW)


def test_a_lake_table_that_was_made_anew_is_compared_and_labeled(orders, spark):
    """Also after a capture that was killed behind the first commit of the new table."""
    capture(orders, "orders")
    flow, at = own.load(orders, FLOW), orders.source("bikes")
    table = flow.table(at, "orders")
    hudi.drop(spark, at, table)
    flow.ingest(spark, at, table)
    assert hudi.labels(at, table).empty
    capture(orders, "orders")
    assert [*hudi.labels(at, table)["label"]] == ["captured"]


def test_a_recapture_validates_before_it_removes(orders, spark):
    """A table that the check refuses, and a row that cannot be written: the lake stays as it was. A new key is taken."""
    capture(orders, "orders", "visits")
    execute(orders, "ALTER TABLE visits REPLICA IDENTITY NOTHING")
    with pytest.raises(SourceError, match="(?s)table public.visits.*REPLICA IDENTITY"):
        own.recapture(orders, FLOW)
    refused = "(?s)table public.visits.*REPLICA IDENTITY.*workbench recapture orders.*are lost"
    with pytest.raises(SourceError, match=refused):
        own.follow(orders, FLOW)
    with pytest.raises(SourceError, match="(?s)table public.visits.*REPLICA IDENTITY"):
        capture(orders, "orders")
    with pytest.raises(SourceError, match="(?s)table public.visits.*REPLICA IDENTITY"):
        own.forget(orders, FLOW, "orders")  # nothing is marked
    assert not own.declaration(FLOW).tables[0].leaves
    execute(orders, "ALTER TABLE visits REPLICA IDENTITY DEFAULT; DELETE FROM orders WHERE id = 1")
    assert own.follow(orders, FLOW)["orders"].deletes == 1
    own.forget(orders, FLOW, "orders")
    execute(orders, "ALTER TABLE orders ALTER note SET NOT NULL")
    capture(orders, "orders", partition=["note"])
    execute(orders, "UPDATE orders SET note = repeat('long', 100) WHERE id = 2")
    flow = own.load(orders, FLOW)
    table = flow.table(orders.source("bikes"), "orders")
    with pytest.raises(
        LakeError, match="(?s)row of public.orders cannot be captured.*note.*recapture"
    ):
        own.recapture(orders, FLOW)
    assert hudi.read(spark, table).count() == 99
    with pytest.raises(LakeError, match=f"(?s)workbench recapture {FLOW}. is not complete"):
        own.follow(orders, FLOW)
    execute(
        orders,
        "UPDATE orders SET note = 'short' WHERE id = 2;"
        "ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id, note)",
    )
    own.recapture(orders, FLOW)
    assert [each.key for each in own.declaration(FLOW).tables if each.name == "orders"] == [
        ["id", "note"]
    ]
    execute(
        orders, "UPDATE orders SET note = 'moved' WHERE id = 3; DELETE FROM orders WHERE id = 4"
    )
    own.follow(orders, FLOW)
    own.compare(orders, FLOW)


@pytest.mark.parametrize("format", [pytest.param("json", marks=pytest.mark.drill), "avro"])
def test_a_type_that_the_column_cannot_follow_is_recaptured(orders, spark, format):
    """In Avro the schema of the former type stays in the registry."""
    capture(orders, "orders", format=format)
    execute(orders, "ALTER TABLE orders ALTER note TYPE int USING id")
    execute(orders, "UPDATE orders SET note = 7 WHERE id = 1; DELETE FROM orders WHERE id = 2")
    for _ in range(2):  # a repetition says the same
        with pytest.raises(LakeError, match="(?s)note was string.*cannot follow.*recapture"):
            own.follow(orders, FLOW)
    own.recapture(orders, FLOW)
    execute(orders, "UPDATE orders SET note = 8 WHERE id = 3; DELETE FROM orders WHERE id = 4")
    done = own.follow(orders, FLOW)["orders"]
    assert (done.upserts, done.deletes) == (1, 1)
    own.compare(orders, FLOW)
    table = own.load(orders, FLOW).table(orders.source("bikes"), "orders")
    assert dict(hudi.read(spark, table).dtypes)["note"] == "int"


def test_a_table_that_cannot_be_captured_stops_no_other_and_dropped_ones_are_forgotten(
    orders, spark, capsys
):
    execute(orders, "CREATE TABLE early (id int PRIMARY KEY, at timestamp)")
    execute(orders, "INSERT INTO early VALUES (1, 'infinity'), (2, now())")
    with pytest.raises(LakeError, match="(?s)early.*at.*is not a time from"):
        own.capture(orders, "bikes", "early", "orders", flow=FLOW)
    printed = capsys.readouterr().out
    assert "public.early is not captured: " in printed and "public.orders: 100 rows" in printed
    execute(orders, "UPDATE early SET at = now() WHERE id = 1; DELETE FROM orders WHERE id = 1")
    assert own.follow(orders, FLOW)["orders"].deletes == 1
    capture(orders, "early", "orders")
    own.compare(orders, FLOW)
    capture(orders, "visits")
    execute(orders, "DROP TABLE orders; DROP TABLE early")
    own.follow(orders, FLOW)
    both = f"workbench forget {FLOW} public.early public.orders --world local"
    assert both in capsys.readouterr().out
    named = f"workbench forget {FLOW} public.orders public.early --world local"
    with pytest.raises(SourceError, match=f"(?s)no longer has public.early.*`{named}`"):
        own.forget(orders, FLOW, "orders")
    own.forget(orders, FLOW, "orders", "early")
    own.follow(orders, FLOW)
    own.compare(orders, FLOW)
