"""Avro on real parts: Debezium and Apicurio's converter write it, the ingest decodes it, whatever
goes wrong between.

The museum's two tables, in a database of their own; and topics whose messages are written here,
byte by byte.
"""

import datetime as dt
from decimal import Decimal

import avro_help
import pytest
import requests
from lake_help import following
from workbench import connect, hudi, stack
from workbench.base import http
from workbench.base.errors import CheckFailed, ConnectorError, StackError
from workbench.base.registries import AVRO_CONVERTER
from workbench.base.wait import wait_until
from workbench.checks import check
from workbench.hudi import changes
from workbench.source import postgres
from workbench.topic import registry, topics

NAME = "avro_test"


SOURCE, ENVELOPE = NAME, NAME + "_envelope"


ARTISTS, ARTWORKS = f"{NAME}.public.artists", f"{NAME}.public.artworks"


TABLES = """
    CREATE TABLE artists (artist_id int PRIMARY KEY, name text, nationality text, birth_year int);
    INSERT INTO artists VALUES (1, 'Robert Arneson', 'American', 1930), (299, 'Gerhard H. Bakker', 'American', 1906),
                               (441, 'Somebody', 'German', NULL), (442, 'Genève', 'German', 1900);
    CREATE TABLE artworks (artwork_id int PRIMARY KEY, title text, classification text NOT NULL, price numeric(10, 2),
        acquired date NOT NULL, seen timestamp, changed timestamp(3), zoned timestamptz, opens time, loose numeric);
    INSERT INTO artworks VALUES
        (1, 'Picador', 'Print', 12345678.90, '1959-04-15', '2001-02-03 04:05:06.789012', '1969-12-31 23:59:59.999',
         '2001-02-03 04:05:06+02', '10:00', 1.5),
        (2, NULL, 'Print', -0.01, '0001-01-01', NULL, NULL, NULL, NULL, NULL)"""


COLUMNS = "artwork_id, title, classification, price, acquired, seen, changed"


@pytest.fixture(scope="module")
def lab(world):
    """The world with the museum in a database of its own, and its connector RUNNING."""
    with avro_help.museum(world, NAME, TABLES) as lab:
        topics.wait_for_messages(lab, ARTWORKS, 2, connector=SOURCE)
        yield lab


def artists(**fields):
    return {
        "key": ("artist_id",),
        "partition": ("nationality",),
        "index": "GLOBAL_SIMPLE",
        **fields,
    }


def artworks(**fields):
    return {
        "key": ("artwork_id",),
        "partition": ("classification",),
        "index": "GLOBAL_SIMPLE",
        **fields,
    }


def test_the_registry_serves_its_web_page_without_a_login(lab):
    page = http.call("the registry", "GET", f"{lab.registry.url}/ui/")
    assert page.ok and "<title>Apicurio Registry</title>" in page.text
    config = http.call("the registry", "GET", f"{lab.registry.url}/ui/config.js")
    assert '"type" : "none"' in config.text


def test_the_schemas_are_in_the_registry_and_one_message_can_be_looked_at(lab):
    found = registry.artifacts(lab)
    ours = found[found["artifact"].str.startswith(f"{NAME}.public")]
    assert set(ours["artifact"]) == {
        f"{t}-{side}" for t in (ARTISTS, ARTWORKS) for side in ("key", "value")
    }
    assert set(ours["type"]) == {"AVRO"} and set(ours["group"]) == {"default"}
    message = topics.read(lab, ARTISTS, limit=1)["value"][0]
    seen = registry.inspect_message(lab, message)
    mine = ours[ours["artifact"] == f"{ARTISTS}-value"].iloc[0]
    assert (seen["wire"], seen["schema_id"]) == ("apicurio_legacy8", mine["global_id"])
    assert seen["schema_name"] == f"{ARTISTS}.Value"
    raw = message.encode() if isinstance(message, str) else message
    assert seen["hex"] == raw.hex(" ")
    assert raw[0] == 0 and int.from_bytes(raw[1:9], "big") == mine["global_id"]
    record = seen["record"]
    assert {
        k: record[k]
        for k in ("artist_id", "name", "nationality", "birth_year", "__op", "__deleted", "__db")
    } == {
        "artist_id": 1,
        "name": "Robert Arneson",
        "nationality": "American",
        "birth_year": 1930,
        "__op": "r",
        "__deleted": "false",
        "__db": NAME,
    }
    assert list(record)[-8:] == [
        "__deleted",
        "__op",
        "__db",
        "__table",
        "__schema",
        "__lsn",
        "__source_ts_ms",
        "__source_txId",
    ]
    latest = registry.latest(lab, f"{ARTISTS}-value")
    assert registry.schema(lab, int(mine["global_id"])) == latest


def test_every_type_is_exact(lab, spark, table, path):
    it = table(**artworks())
    done = hudi.ingest(spark, lab, hudi.Topic(ARTWORKS, format="avro"), it)
    assert done.upserts == done.messages == 2, hudi.dead_letters(spark, lab, it).collect()
    types = dict(hudi.read(spark, it).dtypes)
    assert {
        k: types[k] for k in ("price", "acquired", "seen", "changed", "zoned", "opens", "loose")
    } == {
        "price": "decimal(10,2)",
        "acquired": "date",
        "seen": "timestamp",
        "changed": "timestamp",
        "zoned": "string",
        "opens": "bigint",
        "loose": "struct<scale:int,value:binary>",
    }
    rows = {r.artwork_id: r for r in hudi.read(spark, it).collect()}
    first = rows[1]
    assert (first.price, first.acquired) == (Decimal("12345678.90"), dt.date(1959, 4, 15))
    assert first.seen == dt.datetime(2001, 2, 3, 4, 5, 6, 789012)
    assert first.changed == dt.datetime(1969, 12, 31, 23, 59, 59, 999000)
    assert (first.zoned, first.opens) == ("2001-02-03T02:05:06.000000Z", 36_000_000_000)
    assert (first.loose.scale, bytes(first.loose.value)) == (1, b"\x0f")
    assert (rows[2].price, rows[2].acquired, rows[2].seen) == (
        Decimal("-0.01"),
        dt.date(1, 1, 1),
        None,
    )
    truth = postgres.query(lab, f"SELECT {COLUMNS} FROM artworks WHERE artwork_id = 1")
    lake = hudi.read(spark, it).where("artwork_id = 1").selectExpr(*COLUMNS.split(", ")).toPandas()
    check.same_rows(truth, lake, key=["artwork_id"])
    lake["price"] += Decimal("0.01")
    with pytest.raises(CheckFailed, match="price"):
        check.same_rows(truth, lake, key=["artwork_id"])


def test_a_delete_keeps_the_row_or_removes_it(lab, spark, table):
    topic = hudi.Topic(ARTISTS, format="avro")
    soft = table(**artists(deletes="soft", type="mor", index="GLOBAL_SIMPLE"))
    hard = table(**artists())
    before = topics.offset_span(lab, ARTISTS)
    for each in (soft, hard):
        hudi.ingest(spark, lab, topic, each)
    postgres.execute(lab, "DELETE FROM artists WHERE artist_id = 441")
    topics.wait_for_messages(lab, ARTISTS, before + 2, connector=SOURCE)
    counts = [hudi.ingest(spark, lab, topic, each) for each in (soft, hard)]
    one = hudi.Ingested(messages=2, deletes=1, tombstones=1, batches=1)
    assert counts == [one, one]

    rows = {r.artist_id: r for r in hudi.read(spark, soft).collect()}
    gone = rows[441].asDict()
    assert {k for k, v in gone.items() if v is None} == {"name", "nationality", "birth_year"}
    assert (gone["__deleted"], gone["__op"]) == ("true", "d") and "_hoodie_is_deleted" not in gone
    # Hudi has called it `default` until 0.11, and has no option for it
    assert gone["_hoodie_partition_path"] == "nationality=__HIVE_DEFAULT_PARTITION__"
    assert len(rows) == hudi.read(spark, soft).count() == 4
    optimised = (
        spark.read.format("hudi")
        .option("hoodie.datasource.query.type", "read_optimized")
        .load(soft.base)
    )
    assert sorted(r["__op"] for r in optimised.where("artist_id = 441").collect()) == [
        "d",
        "r",
    ]  # S5, 6.2

    assert {r.artist_id for r in hudi.read(spark, hard).collect()} == {1, 299, 442}
    postgres.execute(lab, "INSERT INTO artists VALUES (441, 'Somebody', 'German', NULL)")
    topics.wait_for_messages(lab, ARTISTS, before + 3, connector=SOURCE)
    hudi.ingest(spark, lab, topic, soft)
    (back,) = hudi.read(spark, soft).where("artist_id = 441").collect()
    assert (back.nationality, back["__deleted"]) == ("German", "false")


def test_a_column_is_added_while_it_runs(lab, spark, table, monkeypatch):
    topic = hudi.Topic(ARTISTS, format="avro")
    older = table(**artists())
    hudi.ingest(spark, lab, topic, older)
    start = topics.end_offsets(lab, ARTISTS)[0]
    postgres.execute(lab, "UPDATE artists SET birth_year = 1931 WHERE artist_id = 1")
    postgres.execute(lab, "ALTER TABLE artists ADD COLUMN wealth numeric(8, 3)")
    postgres.execute(lab, "UPDATE artists SET wealth = 7.125 WHERE artist_id = 299")
    topics.wait_for_messages(lab, ARTISTS, start + 2, connector=SOURCE)
    versions = registry.artifacts(lab).query(
        "artifact == @name", local_dict={"name": f"{ARTISTS}-value"}
    )
    assert len(versions) == 2
    for few, it in ((2_000, older), (2_000, table(**artists())), (0, table(**artists()))):
        monkeypatch.setattr(changes, "SMALL_BATCH_MESSAGES", few)
        done = hudi.ingest(spark, lab, topic, it)
        assert (done.batches, done.dead_letters) == (1, 0)
        rows = {r.artist_id: r for r in hudi.read(spark, it).collect()}
        assert dict(hudi.read(spark, it).dtypes)["wealth"] == "decimal(8,3)"
        assert (rows[1].birth_year, rows[1].wealth, rows[299].wealth) == (
            1931,
            None,
            Decimal("7.125"),
        )
        assert len(rows) == len(postgres.query(lab, "SELECT 1 FROM artists"))


def test_a_registry_that_is_stopped_stops_the_ingest_and_nothing_is_lost(lab, spark, table, path):
    it = table(**artworks())
    stack.stop("apicurio")
    try:
        for _ in range(2):
            with pytest.raises(
                StackError, match="(?s)schema registry does not answer.*nothing is lost"
            ):
                hudi.ingest(spark, lab, hudi.Topic(ARTWORKS, format="avro"), it)
        assert not hudi.exists(it) and hudi.dead_letters(spark, lab, it).count() == 0
        with pytest.raises(StackError, match="registry does not answer"):
            with following(spark, lab, hudi.Topic(ARTWORKS, format="avro"), it) as stream:
                wait_until(stream.failure, "the ingest to end", timeout=60)
    finally:
        stack.ensure_running(lab, "apicurio")
    done = hudi.ingest(
        spark, lab, hudi.Topic(ARTWORKS, format="avro"), it
    )  # it has its schemas still
    assert (done.messages, done.upserts) == (2, 2)
    assert hudi.read(spark, it).count() == 2


def test_the_raw_envelope(lab, spark, table, path):
    config = {
        k: v
        for k, v in avro_help.source_config(lab, NAME, ENVELOPE).items()
        if "transforms" not in k
    }
    topic = f"{ENVELOPE}.public.artworks"
    if ENVELOPE not in connect.names(lab):
        connect.apply(lab, ENVELOPE, {**config, "topic.prefix": ENVELOPE})
    topics.wait_for_messages(lab, topic, 2, connector=ENVELOPE)
    it = table(key=("ts_us",), ordering="ts_ns", partition=())
    done = hudi.ingest(spark, lab, hudi.Topic(topic, format="avro"), it)
    assert (done.messages, done.dead_letters) == (2, 0)
    first = next(r for r in hudi.read(spark, it).collect() if r.after.artwork_id == 1)
    assert (first.op, first.before, first.source.table) == ("r", None, "artworks")
    assert (first.after.price, first.after.acquired) == (
        Decimal("12345678.90"),
        dt.date(1959, 4, 15),
    )
    assert first.after.seen == dt.datetime(2001, 2, 3, 4, 5, 6, 789012)
    seen = registry.inspect_message(lab, topics.read(lab, topic, 1)["value"][0])
    assert (seen["wire"], seen["record"]["after"]["price"]) == (
        "apicurio_legacy8",
        Decimal("12345678.90"),
    )


def test_the_converter_is_a_plugin_and_a_misspelt_key_of_it_is_refused(lab):
    url = lab.connect.url + "/connector-plugins?connectorsOnly=false"
    found = requests.get(url, timeout=10, auth=lab.connect.auth).json()
    assert [p["type"] for p in found if p["class"] == AVRO_CONVERTER] == ["converter"]
    config = avro_help.source_config(lab, NAME)
    with pytest.raises(ConnectorError, match="apicurio.registry.autoregister"):
        connect.validate(lab, {**config, "value.converter.apicurio.registry.autoregister": "true"})
