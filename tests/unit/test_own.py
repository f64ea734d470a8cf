"""Own flows without services: their files, the connector's JSON, and what a removal never touches."""

import json
import re
from dataclasses import replace

import pytest
import yaml
from workbench import walkthroughs
from workbench.base import params, secrets
from workbench.base.errors import ConnectorError, LakeError, SourceError
from workbench.connect import configs
from workbench.landing import sources
from workbench.source.databases import POSTGRESQL
from workbench.walkthroughs import own, own_source, resources
from workbench.walkthroughs.steps import Product

TABLE = {
    "source": "public.trips",
    "name": "trips",
    "key": ["id"],
    "declares_key": False,
    "partition": [],
    "type": "",
    "rows": 10,
    "excluded": [],
    "joined": False,
}
FLOW = {
    "world": "local",
    "source": "bikes",
    "engine": "postgres",
    "database": "bikes",
    "format": "avro",
    "raw": False,
    "poll": "",
    "tables": [TABLE],
}


@pytest.fixture
def world(tmp_path, monkeypatch):
    """The world with a source `bikes`, whose flows are in a temporary folder."""
    monkeypatch.setattr(own, "folder", lambda flow="": tmp_path / "own" / flow)
    source = params.Source(
        engine="postgres",
        host="db.example.com",
        port=5432,
        database="bikes",
        user="ada",
        password=secrets.Secret("bikes"),
    )
    return params.load("local").model_copy(update={"sources": {"bikes": source}})


def declare(**changes):
    settings = {"database.sslmode": "require", "database.sslrootcert": ""}
    own._write("bikes", own.Declaration.model_validate({**FLOW, **changes}), settings)


@pytest.mark.parametrize(
    "changes",
    [{}, {"format": "json"}, {"poll": "updated", "format": "json"}, {"engine": "mariadb"}],
    ids=["avro", "json", "poll", "mariadb"],
)
def test_the_json_of_a_flow_has_known_keys_and_the_source_as_placeholders(world, changes):
    declare(**changes)
    path = own.folder("bikes") / "own_bikes.json"
    raw = json.loads(path.read_text())
    assert not re.search(r"<|db\.example\.com|\bada\b", path.read_text())
    flow = own.load(world, "bikes").flow
    config = flow.config(world, "own_bikes")
    host = config.get("database.hostname") or config["connection.url"]
    if not changes.get("poll"):
        assert raw.pop("database.sslmode") == config.pop("database.sslmode") == "require"
        assert "database.sslrootcert" not in raw
    if changes.get("engine") != "mariadb":
        assert "db.example.com" in host
    assert config.keys() == raw.keys()
    known = configs.known_keys(config)
    assert bool(known) != bool(changes.get("poll")), "landing.poll knows the keys of a JDBC source"
    assert not known or configs.unknown_keys(config, known) == {}
    assert configs.plaintext_secret_keys(config) == []
    assert flow.topic(world, "trips").startswith("own_bikes.")


JAVA_CERTIFICATES = "org.postgresql.ssl.DefaultJavaSSLFactory"


@pytest.mark.parametrize(
    "engine, poll, tls, expected",
    [
        ("postgres", "", {"ssl": "require"}, {"database.sslmode": "require"}),
        (
            "postgres",
            "",
            {"ssl": "verify-full", "ssl_ca": "/ca.pem"},
            {"database.sslmode": "verify-full", "database.sslrootcert": "/ca.pem"},
        ),
        (
            "postgres",
            "",
            {"ssl": "verify-full"},
            {"database.sslmode": "verify-full", "database.sslfactory": JAVA_CERTIFICATES},
        ),
        ("mariadb", "", {"ssl": "require"}, {"database.ssl.mode": "trust"}),
        ("mariadb", "", {"ssl": "verify-full"}, {"database.ssl.mode": "verify-full"}),
        ("mysql", "", {"ssl": "disable"}, {"database.ssl.mode": "disabled"}),
        ("mysql", "", {"ssl": "verify-full"}, {"database.ssl.mode": "verify_identity"}),
        (
            "postgres",
            "updated",
            {"ssl": "verify-full", "ssl_ca": "/a b/ca.pem"},
            {
                "connection.url": "jdbc:postgresql://db.example.com:5432/bikes"
                "?sslmode=verify-full&sslrootcert=%2Fa+b%2Fca.pem"
            },
        ),
    ],
)
def test_the_tls_of_a_source_reaches_its_connector(world, engine, poll, tls, expected):
    source = world.sources["bikes"].model_copy(update={"engine": engine, **tls})
    world.sources["bikes"] = source
    own._write(
        "bikes",
        own.Declaration.model_validate({**FLOW, "engine": engine, "poll": poll, "format": "json"}),
        {},
    )
    config = own.load(world, "bikes").flow.config(world, "own_bikes")
    is_tls = re.compile(r"database\.ssl|connection\.url")
    assert {key: value for key, value in config.items() if is_tls.match(key)} == expected
    if poll:
        polled = sources.parse(config, world.source("bikes"))
        assert polled.database == "bikes", "the built-in poller has the TLS of the world"
    else:
        assert configs.unknown_keys(config, configs.known_keys(config)) == {}
    raw = {**config, "database.sslmode": "prefer", "database.ssl.mode": "preferred"}
    filled = configs.fill(world.source("bikes"), raw, "own.json")
    assert filled == raw, "the user's own settings stay"


def test_a_pem_file_is_refused_where_debezium_needs_a_keystore(world):
    tls = {"engine": "mariadb", "ssl": "verify-full", "ssl_ca": "/ca.pem"}
    world.sources["bikes"] = world.sources["bikes"].model_copy(update=tls)
    declare(engine="mariadb")
    path = own.folder("bikes") / "own_bikes.json"
    flow = own.load(world, "bikes").flow
    with pytest.raises(ConnectorError, match="(?s)Java keystore, not a PEM file.*keytool"):
        flow.config(world, "own_bikes")
    store = {"database.ssl.truststore": "/trusted.jks"}
    path.write_text(json.dumps({**json.loads(path.read_text()), **store}))
    config = own.load(world, "bikes").flow.config(world, "own_bikes")
    assert config["database.ssl.mode"] == "verify-full"


def test_edits_of_the_json_stay_when_a_table_joins(world):
    declare()
    path = own.folder("bikes") / "own_bikes.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "poll.interval.ms": "70"}))
    visits = {
        **TABLE,
        "source": "public.visits",
        "name": "visits",
        "key": ["a", "b"],
        "declares_key": True,
        "excluded": ["area"],
        "joined": True,
    }
    declare(tables=[TABLE, visits])
    config = json.loads(path.read_text())
    assert config["poll.interval.ms"] == "70"
    assert config["table.include.list"] == "public.trips,public.visits"
    assert config["message.key.columns"] == "public.visits:a,b"
    assert config["column.exclude.list"] == "public.visits.area"
    table = own.load(world, "bikes").flow.table(world, "visits")
    assert (table.key, table.database) == (("a", "b"), "bikes")


def test_a_table_whose_rows_may_move_has_a_global_index(world):
    declare(tables=[{**TABLE, "partition": ["region"]}])
    assert own.load(world, "bikes").flow.table(world).index == "GLOBAL_SIMPLE"
    declare(tables=[{**TABLE, "partition": ["id"]}])
    assert own.load(world, "bikes").flow.table(world).index == "SIMPLE"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"format": "xml"}, "format"),
        ({"colour": "red"}, "colour"),
        ({"tables": [{**TABLE, "rows": "10"}]}, "rows"),
        (None, "not a valid flow"),
    ],
)
def test_a_flow_file_is_read_strictly(world, change, message):
    path = own.folder("bikes") / "flow.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("a: [" if change is None else yaml.safe_dump({**FLOW, **change}))
    with pytest.raises(LakeError, match=f"(?s)not a valid flow.*{message}|{message}"):
        own.load(world, "bikes")
    with pytest.raises(LakeError, match="no flow 'trams'"):
        own.load(world, "trams")


def test_flows_are_walkthroughs_of_their_world(world):
    declare()
    other = world.model_copy(update={"name": "cluster"})
    assert own.names(world) == ["bikes"] and own.names(other) == []
    assert [each.name for each in walkthroughs.for_world(world)][-1] == "bikes"
    assert "bikes/trips" in walkthroughs.captured_tables(world)
    found, table = walkthroughs.find_captured_table("bikes/trips", world)
    assert (found.name, table) == ("bikes", "trips")
    with pytest.raises(LakeError, match="no captured table"):
        walkthroughs.find_captured_table("bikes/trips")


def test_the_users_tables_are_never_removed(world, monkeypatch):
    declare()
    walkthrough = own.load(world, "bikes")
    owned = walkthrough.resources

    def fail(*args, **values):
        raise AssertionError("a statement that could change the source")

    monkeypatch.setattr(POSTGRESQL, "execute", fail)
    monkeypatch.setattr(POSTGRESQL, "existing_tables", lambda world, names, database: [*names])
    monkeypatch.setattr(POSTGRESQL, "databases", lambda world: ["bikes"])
    monkeypatch.setattr(resources.postgres, "drop_publication", lambda *args: None)
    kinds = [k for k in resources.KINDS if k.title == resources.SOURCE_TABLES]
    for kind in kinds:
        assert list(kind.remaining(owned, world)) == []
        kind.remove(owned, world)
    assert {kind.product for kind in kinds} == {Product.TOPICS, Product.SOURCE}
    # the same flow, if the walkthrough owned its tables
    assert list(kinds[0].remaining(replace(owned, own=None), world)) == ["public.trips"]


def test_names_that_topics_cannot_have_are_refused():
    for table, columns in (
        (["public", "größe"], ["id"]),
        (["public", "a b"], ["id"]),
        (["public", "t"], ['say "hi"']),
        (["public", "t"], ["Id", "id"]),
    ):
        with pytest.raises(SourceError, match="topics and Avro schemas cannot have the names"):
            own_source._require_names("here", table, columns)
    own_source._require_names("here", ["Sales", "Trips_2"], ["Id", "name", "_x"])
