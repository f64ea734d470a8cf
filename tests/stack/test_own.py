"""Tables of the user's own databases: captured, followed, compared and forgotten."""

import own_help
import pytest
from own_flow_help import PORT, execute
from workbench import (
    connect,
    explore,
    hudi,
    operate,
    own,
    stack,
    tracks,  # noqa: F401 - declares the captured tables
)
from workbench.base.errors import (
    LakeError,
    SourceError,
    WorkbenchError,
)
from workbench.own import files
from workbench.source import mariadb, postgres
from workbench.topic import topics


def test_a_table_is_captured_followed_compared_and_forgotten(bikes, spark, capsys):
    captured = own.capture(bikes, "bikes", "stations")
    assert captured[["table", "rows"]].values.tolist() == [["public.stations", 200]]
    assert captured["changed_types"][0] == {}
    text = capsys.readouterr().out
    assert "public.stations: 200 rows" in text
    flow = own.load(bikes, "bikes")
    table = flow.table(bikes, "stations")
    assert hudi.read(spark, table).count() == 200 and spark.table("bikes.stations").count() == 200
    assert list(hudi.labels(bikes, table)["label"]) == ["captured"]

    before = topics.offset_span(bikes, flow.topic(bikes)), len(hudi.commits(table))
    own.capture(bikes, "bikes", "stations")
    assert "nothing to change" in capsys.readouterr().out
    assert (topics.offset_span(bikes, flow.topic(bikes)), len(hudi.commits(table))) == before

    execute(
        bikes,
        "UPDATE stations SET docks = 99 WHERE station_id = 7; DELETE FROM stations WHERE station_id = 8;"
        "INSERT INTO stations VALUES (201, 'New', 1, NULL)",
    )
    done = own.follow(bikes, "bikes")["stations"]
    assert (done.upserts, done.deletes) == (2, 1)
    own.compare(bikes, "bikes")
    assert "200 rows in the source, 200 in the lake; no difference" in capsys.readouterr().out
    history = explore.row(bikes, "bikes/stations", 7)
    assert list(history.changes["op"]) == ["snapshot", "update"]

    spark.sql("CREATE TABLE bikes.by_the_analyst USING parquet AS SELECT 1 AS n")
    remaining = own.remaining(bikes, "bikes")
    assert remaining["other tables in the catalog"] == ["bikes.by_the_analyst"]
    assert remaining["publications"] == ["own_bikes"] and "own_bikes" in remaining["connectors"]
    own.forget(bikes, "bikes")
    assert own.names(bikes) == []
    rows = postgres.query(bikes.source("bikes"), "SELECT count(*) AS n FROM stations")
    assert rows["n"][0] == 200, "the user's rows stay"


PARTITIONED = """
    CREATE SCHEMA "Sales";
    CREATE TABLE "Sales".trips (id int, region text, amount numeric(8, 2), PRIMARY KEY (id, region))
        PARTITION BY LIST (region);
    CREATE TABLE "Sales".trips_north PARTITION OF "Sales".trips FOR VALUES IN ('north');
    CREATE TABLE "Sales".trips_south PARTITION OF "Sales".trips FOR VALUES IN ('south');
    INSERT INTO "Sales".trips SELECT n, CASE n % 2 WHEN 0 THEN 'north' ELSE 'south' END, n
        FROM generate_series(1, 300) n;
    """


def test_a_partitioned_table_is_captured_through_its_root(bikes, spark):
    """The changes after the snapshot arrive, which the silent data loss of such tables was."""
    execute(bikes, PARTITIONED)
    own.capture(bikes, "bikes", "Sales.trips", partition=["region"], type="mor", flow="their_sales")
    with pytest.raises(SourceError, match="Sales.trips_north: a partition of"):
        own.capture(bikes, "bikes", "Sales.trips_north", flow="their_sales")
    execute(
        bikes,
        'UPDATE "Sales".trips SET amount = 0 WHERE id % 10 = 0; DELETE FROM "Sales".trips WHERE id = 3;'
        """UPDATE "Sales".trips SET region = 'north' WHERE id IN (1, 5);"""
        """INSERT INTO "Sales".trips VALUES (301, 'south', 1), (302, 'north', 2)""",
    )
    done = own.follow(bikes, "their_sales")["sales_trips"]
    assert (done.upserts, done.deletes) == (34, 3)
    own.compare(bikes, "their_sales")
    [seen] = operate.Watcher(bikes, "their_sales").observe()
    kinds = {problem.kind for problem in seen.problems}
    assert not kinds & {"source_down", "not_observed"}, "the capital is part of the name"
    table = own.load(bikes, "their_sales").table(bikes)
    assert (table.type, table.partition, table.key) == ("mor", ("region",), ("id", "region"))
    [written] = files.declaration("their_sales").tables
    assert written.layout.model_dump() == {"type": "mor", "index": "SIMPLE", "buckets": 1}


def test_a_table_without_key_is_refused_or_captured_by_a_declared_key(bikes, spark):
    execute(
        bikes,
        "CREATE TABLE visits (visitor int NOT NULL, day date NOT NULL, pages int);"
        "INSERT INTO visits SELECT n % 50, DATE '2025-01-01' + n / 50, n FROM generate_series(0, 199) n",
    )
    with pytest.raises(SourceError, match="(?s)no primary key.*ADD PRIMARY KEY"):
        own.capture(bikes, "bikes", "visits")
    execute(bikes, "ALTER TABLE visits REPLICA IDENTITY FULL")
    with pytest.raises(SourceError, match="no constraint ensures that visitor, day is not null"):
        own.capture(bikes, "bikes", "visits", key=["visitor", "day"])
    execute(bikes, "ALTER TABLE visits ADD UNIQUE (visitor, day)")
    with pytest.raises(SourceError, match="no constraint ensures that visitor is not null"):
        own.capture(bikes, "bikes", "visits", key=["visitor"])
    assert not own.folder("bikes").exists(), "nothing was created"
    own.capture(bikes, "bikes", "visits", key=["visitor", "day"])
    execute(
        bikes,
        "UPDATE visits SET pages = -1 WHERE visitor = 7; DELETE FROM visits WHERE visitor = 8",
    )
    done = own.follow(bikes, "bikes")["visits"]
    assert (done.upserts, done.deletes) == (4, 4)
    own.compare(bikes, "bikes")


REFUSED = {
    'CREATE TABLE "größe" (id int PRIMARY KEY)': ("größe", "'größe'"),
    'CREATE TABLE "my table" (id int PRIMARY KEY)': ("my table", "'my table'"),
    'CREATE TABLE "say ""hi""" (id int PRIMARY KEY)': ('say "hi"', "say"),
    'CREATE TABLE t1 (id int PRIMARY KEY, "Preis €" int)': ("t1", "'Preis €'"),
    'CREATE TABLE t2 (id int PRIMARY KEY, "Name" int, name int)': (
        "t2",
        "'Name' differs from another one in case only",
    ),
    "CREATE TABLE t3 (id int PRIMARY KEY, area polygon)": ("t3", r"area \(polygon\)"),
    "CREATE VIEW t4 AS SELECT 1 AS id": ("t4", "table public.t4: a view"),
    "CREATE TABLE t5 (id int)": ("t5", "no primary key"),
    "CREATE TABLE t6 (id int PRIMARY KEY DEFERRABLE); ALTER TABLE t6 REPLICA IDENTITY FULL": (
        "t6",
        "a DEFERRABLE primary key identifies no row",
    ),
}


def test_what_cannot_be_captured_is_refused_before_anything_is_created(bikes, spark):
    at = bikes.source("bikes")
    for statement, (table, message) in REFUSED.items():
        execute(bikes, statement)
        with pytest.raises(SourceError, match=message):
            own.capture(bikes, "bikes", "stations", table)
    with pytest.raises(LakeError, match="(?s)no column station.*station_id"):
        own.capture(bikes, "bikes", "stations", partition=["station"])
    with pytest.raises(LakeError, match="not the name of a flow"):
        own.capture(bikes, "bikes", "stations", flow="No way")
    for reserved in ("default", "datalake"):
        with pytest.raises(LakeError, match=f"is in use: catalog database {reserved}"):
            own.capture(bikes, "bikes", "stations", flow=reserved)
    with pytest.raises(LakeError, match="no column docs in public.stations"):
        own.capture(bikes, "bikes", "stations", exclude=["docs"])
    for make, remove, message in (
        ("CREATE PUBLICATION own_bikes", "DROP PUBLICATION own_bikes", "publications own_bikes"),
        (
            "SELECT pg_create_logical_replication_slot('msk_own_bikes', 'pgoutput')",
            "SELECT pg_drop_replication_slot('msk_own_bikes')",
            "replication slots msk_own_bikes",
        ),
    ):
        execute(bikes, make)
        with pytest.raises(LakeError, match=f"(?s)'bikes' is in use: {message}.*--as bikes_2"):
            own.capture(bikes, "bikes", "stations")
        execute(bikes, remove)
    assert not own.folder().exists() or not list(own.folder().iterdir())
    assert connect.names(bikes) == [] and list(postgres.publications(at)["publication"]) == []

    # an excluded column is neither refused nor captured
    own.capture(bikes, "bikes", "t1", "t3", exclude=["Preis €", "area"])
    with pytest.raises(LakeError, match="(?s)has the format 'json', not 'avro'.*forget bikes"):
        own.capture(bikes, "bikes", "stations", format="avro")


def test_what_a_snapshot_would_not_contain_is_refused(bikes):
    """Not the user of the other tests, who is a superuser and sees all rows."""
    eve = own_help.with_source(bikes, port=PORT, database="bikes", user="eve")
    execute(
        bikes,
        "CREATE ROLE eve LOGIN REPLICATION PASSWORD 'their-own-password';"
        "GRANT CREATE ON DATABASE bikes TO eve; GRANT USAGE ON SCHEMA public TO eve;"
        "GRANT SELECT ON stations TO eve;"
        "CREATE TABLE secured (id int PRIMARY KEY); ALTER TABLE secured OWNER TO eve;"
        "INSERT INTO secured SELECT generate_series(1, 9);"
        "ALTER TABLE secured ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;"
        "CREATE POLICY few ON secured USING (id < 5);"
        "CREATE UNLOGGED TABLE scratch (id int PRIMARY KEY, at timestamp); ALTER TABLE scratch OWNER TO eve",
    )
    try:
        for table, message in (
            ("secured", "row security hides rows.*ALTER ROLE eve BYPASSRLS"),
            ("scratch", "unlogged.*SET LOGGED"),
            ("stations", "not the owner.*OWNER TO eve"),
        ):
            with pytest.raises(SourceError, match=f"(?s)table public.{table}: {message}"):
                own.capture(eve, "bikes", table)
        assert not own.folder("bikes").exists()
    finally:
        execute(bikes, "DROP OWNED BY eve CASCADE; DROP ROLE eve")


def test_mariadb_is_captured_followed_and_forgotten(world, spark, capsys):
    """Without a message in the log to wait for, `follow` waits for the committed offset."""
    stack.ensure_running(world, "mariadb", "apicurio")
    mine = own_help.with_source(
        world,
        engine="mariadb",
        port=world.mysql.port,
        database="shop",
        user=world.mysql.admin_user,
        password=world.mysql.admin_password,
    )
    mariadb.create_database(mine, "shop")
    try:
        for statement in (
            "CREATE TABLE goods (id int PRIMARY KEY, name varchar(40), price decimal(8,2), made date)",
            "INSERT INTO goods SELECT seq, concat('Good ', seq), seq / 4, '2024-01-01' FROM seq_1_to_500",
            "CREATE TABLE parts (good int, part int, note text, PRIMARY KEY (good, part))",
            "INSERT INTO parts SELECT seq, 1, 'part' FROM seq_1_to_100",
            "CREATE TABLE loose (id int NOT NULL UNIQUE)",
            "CREATE TABLE odd (id int PRIMARY KEY, u uuid)",
        ):
            mariadb.execute(mine, statement, database="shop")
        with pytest.raises(SourceError, match="no primary key"):
            own.capture(mine, "bikes", "loose")
        with pytest.raises(SourceError, match="(?s)u uuid: Debezium cannot read.*MODIFY `u` char"):
            own.capture(mine, "bikes", "odd")
        assert not own.folder("bikes").exists()
        captured = own.capture(mine, "bikes", "goods")
        assert captured["rows"].tolist() == [500]
        joined = own.capture(mine, "bikes", "shop.parts")
        assert joined["rows"].tolist() == [500, 100]
        own.capture(mine, "bikes", "loose", "odd", key=["id"], exclude=["u"])
        for statement in (
            "UPDATE goods SET price = 0 WHERE id <= 20",
            "DELETE FROM goods WHERE id = 30",
            "UPDATE parts SET note = 'changed' WHERE good = 7",
        ):
            mariadb.execute(mine, statement, database="shop")
        done = own.follow(mine, "bikes")
        assert {name: (n.upserts, n.deletes) for name, n in done.items()} == {
            "goods": (20, 1),
            "parts": (1, 0),
            "loose": (0, 0),
            "odd": (0, 0),
        }
        mariadb.execute(mine, "FLUSH BINARY LOGS")
        assert own.follow(mine, "bikes")["goods"].messages == 0, (
            "an idle server's new log has no end"
        )
        own.compare(mine, "bikes")
        own.capture(mine, "bikes", "goods", "parts")
        assert "nothing to change" in capsys.readouterr().out
        mariadb.execute(mine, "TRUNCATE parts", database="shop")
        with pytest.raises(
            LakeError, match="(?s)shop.parts were removed, added or altered.*recapture bikes"
        ):
            own.follow(mine, "bikes")
        own.forget(mine, "bikes")
        names = mariadb.existing_tables(mine, ["shop.goods", "shop.parts"])
        assert names == ["shop.goods", "shop.parts"], "the user's tables stay"
        assert not [t for t in topics.names(mine) if t.startswith("own_")]
    finally:
        if own.names(mine):
            own.forget(mine, "bikes")
        mariadb.execute(mine, "DROP DATABASE shop")


def test_a_server_that_is_not_ready_is_refused(bikes):
    wrong = own_help.with_source(bikes, port=PORT, database="bikes", user="nobody_here")
    with pytest.raises(WorkbenchError, match="nobody_here"):
        own.capture(wrong, "bikes", "stations")
    assert not own.folder("bikes").exists()
