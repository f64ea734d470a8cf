"""Own flows without services: their files, the connector's JSON, and what a removal never touches."""

import json
import os
import re
import socket
import types

import pandas
import pytest
import yaml
from typer.testing import CliRunner
from workbench import flow, own, tracks
from workbench.base import params, paths, secrets
from workbench.base.errors import ConnectorError, LakeError, SourceError
from workbench.cli.main import app
from workbench.connect import configs
from workbench.flow import RESERVED_DATABASES, resources
from workbench.flow.resources import Product, Resources
from workbench.landing import sources
from workbench.operate.observe import FlowReader
from workbench.own import capturing, checking, files, following, values
from workbench.own import flow as own_flow
from workbench.own import tables as own_tables
from workbench.source import postgres, readiness

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
    monkeypatch.setattr(paths, "flows_dir", lambda: tmp_path / "own")
    source = params.Source(
        engine="postgres",
        host="db.example.com",
        port=5432,
        database="bikes",
        user="ada",
        ssl="require",
        password=secrets.Secret("bikes"),
    )
    return params.load("local").model_copy(update={"sources": {"bikes": source}})


def declare(world, flow="bikes", **changes):
    declared = own.Declaration.model_validate({**FLOW, **changes})
    files.write(flow, declared)


@pytest.mark.parametrize(
    "changes",
    [{}, {"format": "json"}, {"poll": "updated", "format": "json"}, {"engine": "mariadb"}],
    ids=["avro", "json", "poll", "mariadb"],
)
def test_the_json_of_a_flow_has_the_source_as_placeholders(world, changes):
    declare(world, **changes)
    path = own.folder("bikes") / "own_bikes.json"
    raw = json.loads(path.read_text())
    assert not re.search(r"<|db\.example\.com|\bada\b", path.read_text())
    flow = own.load(world, "bikes")
    config = flow.config(world, "own_bikes")
    host = config.get("database.hostname") or config["connection.url"]
    if changes.get("engine") != "mariadb":
        assert "db.example.com" in host
    assert config.keys() - {"database.sslmode"} == raw.keys()
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
    declare(world, engine=engine, poll=poll, format="json")
    text = (own.folder("bikes") / "own_bikes.json").read_text()
    assert "ssl" not in text, "a change of the source reaches a connector that exists"
    config = own.load(world, "bikes").config(world, "own_bikes")
    is_tls = re.compile(r"database\.ssl|connection\.url")
    assert {key: value for key, value in config.items() if is_tls.match(key)} == expected
    if poll:
        polled = sources.parse(config, world.source("bikes"))
        assert polled.database == "bikes", "the built-in poller has the TLS of the world"
    raw = {**config, "database.sslmode": "prefer", "database.ssl.mode": "preferred"}
    filled = configs.fill(world.source("bikes"), raw, "own.json")
    assert filled == raw, "the user's own settings stay"


def test_a_pem_file_is_refused_where_debezium_needs_a_keystore(world):
    tls = {"engine": "mariadb", "ssl": "verify-full", "ssl_ca": "/ca.pem"}
    world.sources["bikes"] = world.sources["bikes"].model_copy(update=tls)
    declare(world, engine="mariadb")
    path = own.folder("bikes") / "own_bikes.json"
    flow = own.load(world, "bikes")
    draft = own_flow.compose("bikes", flow.declared, configs.read(path), is_draft=True)
    assert draft.config(world, "own_bikes")["database.ssl.mode"] == "verify-full"
    with pytest.raises(ConnectorError, match="(?s)Java keystore, not a PEM file.*keytool"):
        flow.config(world, "own_bikes")
    store = {"database.ssl.truststore": "/trusted.jks"}
    path.write_text(json.dumps({**json.loads(path.read_text()), **store}))
    config = own.load(world, "bikes").config(world, "own_bikes")
    assert config["database.ssl.mode"] == "verify-full"


def test_edits_of_the_json_stay_when_a_table_joins(world):
    declare(world)
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
    declare(world, tables=[TABLE, visits])
    config = json.loads(path.read_text())
    assert config["poll.interval.ms"] == "70"
    assert config["table.include.list"] == "public.trips,public.visits"
    assert config["message.key.columns"] == "public.visits:a,b"
    assert config["column.exclude.list"] == "public.visits.area"
    table = own.load(world, "bikes").table(world, "visits")
    assert (table.key, table.database) == (("a", "b"), "bikes")


def test_a_missing_json_is_created_again_and_tables_that_it_lacks_are_added(world):
    """A capture can be interrupted between its two files; the user can delete the second one."""
    declare(world)
    path = own.folder("bikes") / "own_bikes.json"
    before = path.read_text()
    path.unlink()
    assert own.load(world, "bikes").name == "bikes" and path.read_text() == before
    config = {**json.loads(before), "poll.interval.ms": "70", "table.include.list": "public.other"}
    path.write_text(json.dumps(config))
    declare(world)
    written = json.loads(path.read_text())
    assert written == {**config, "table.include.list": "public.trips"}
    path.write_text(json.dumps(written, indent=8))
    declare(world)
    assert path.read_text() == json.dumps(written, indent=8), "its form stays, too"


def test_a_killed_write_leaves_the_declaration(world, monkeypatch):
    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(files, "write_connector", killed)
        declare(world)
    assert own.names(world) == ["bikes"]


def test_a_removal_ends_with_the_declaration(world, monkeypatch):
    declare(world)
    folder = own.folder("bikes")
    (folder / "notes").mkdir()
    monkeypatch.setattr(own_flow.shutil, "rmtree", lambda path: None)
    own_flow._remove_folder(folder)
    assert [path.name for path in folder.iterdir() if path.is_file()] == ["flow.yaml"]


def test_the_slots_that_stay_are_listed_with_the_command_that_drops_them(world, monkeypatch):
    declare(world)
    declare(world, "polled", poll="updated", format="json")
    declare(world, "gone", source="sold")
    prefix = own_flow.postgres.slot_prefix(world)
    path = files.connector_path("bikes")
    path.write_text(json.dumps({**json.loads(path.read_text()), "slot.name": "of_the_user"}))
    rows = [("of_the_user", 3_000_000), (f"{prefix}own_bikes", 0), ("of_another_tool", 5)]
    slots = pandas.DataFrame(rows, columns=["slot_name", "bytes_behind"])
    monkeypatch.setattr(own_flow.params, "load", lambda name: world)
    monkeypatch.setattr(own_flow.postgres, "all_slots", lambda at: slots)
    line, failure = own.describe_slots()
    assert "of_the_user (source bikes) retains 3.0 MB" in line
    assert line.endswith("to drop it: workbench forget bikes --world local")
    assert "flow gone cannot be looked up" in failure
    assert [name for name, _ in own.declarations()] == ["bikes", "gone", "polled"]


def test_the_slots_of_a_server_that_stops_with_the_stack_are_left_out(world, monkeypatch):
    declare(world)
    source = world.sources["bikes"].model_copy(
        update={"host": "localhost", "port": world.postgres.port}
    )
    own_world = world.model_copy(update={"sources": {"bikes": source}})
    own_world._state = world.state
    monkeypatch.setattr(own_flow.params, "load", lambda name: own_world)
    monkeypatch.setattr(own_flow.postgres, "all_slots", lambda at: pytest.fail("it is stopped"))
    assert own.describe_slots() == []


def test_a_damaged_json_of_the_connector_blocks_all_but_the_removal(world, monkeypatch):
    declare(world)
    path = own.folder("bikes") / "own_bikes.json"
    intact = own.load(world, "bikes")
    expected = intact.config(world, "own_bikes"), intact.resources.topics(world)
    removed = []
    monkeypatch.setattr(own_flow.stack, "ensure_running", lambda *args: None)
    monkeypatch.setattr(
        Resources,
        "remove",
        lambda self, world, *products: removed.append(
            (self.flow.config(world, "own_bikes"), self.topics(world))
        ),
    )
    monkeypatch.setattr(own_flow, "_remove_folder", lambda folder: None)
    for content in (b"{", b"\xff\xfe\x00", None):
        path.unlink()
        files.write_declaration("bikes", intact.declared)
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)
        for function in (own.load, own.follow, own.compare):
            with pytest.raises(ConnectorError, match="own_bikes.json"):
                function(world, "bikes")
        own.forget(world, "bikes")
    assert removed == [expected] * 3


@pytest.mark.parametrize(
    "kind, base",
    [
        ("numeric(10,2)", "numeric"),
        ("timestamp(3) without time zone", "timestamp without time zone"),
        ("interval day to second(0)", "interval"),
        ("elsewhere.vector(3)", "vector"),  # its schema is not in the search_path
        ('"My Ext".vector(3)', "vector"),
        ("text[]", "text[]"),
    ],
)
def test_the_type_without_schema_and_digits(kind, base):
    assert values.base_type(kind) == base


@pytest.mark.parametrize(
    "changes, kind", [({"raw": True}, "integer"), ({"engine": "mysql", "database": "x"}, "float")]
)
def test_a_column_that_the_lake_lacks_is_compared(world, monkeypatch, changes, kind):
    """Also with Debezium's types, and a float of MySQL: otherwise nothing tells of the values of older rows."""
    declare(world, **changes)
    flow = own.load(world, "bikes")
    table = own.OwnTable.model_validate({**TABLE, "columns": {"id": "bigint", "area": kind}})
    dtypes = [("id", "bigint")]
    monkeypatch.setattr(values.hudi, "exists", lambda *_: True)
    monkeypatch.setattr(values, "session", lambda at: None)
    monkeypatch.setattr(values.hudi, "read", lambda *_: types.SimpleNamespace(dtypes=dtypes))
    columns = values.comparable_columns(world, flow.declared, table, flow.table(world))
    assert columns == table.columns
    dtypes.append(("area", "double"))
    columns = values.comparable_columns(world, flow.declared, table, flow.table(world))
    assert columns == {"id": "bigint"}


@pytest.mark.parametrize("kind", ["extra in the lake", "(rows) extra in the lake"])
def test_the_deletes_that_polling_does_not_see_are_no_loss(world, monkeypatch, kind):
    """Neither row by row nor by the numbers of rows, as of large tables."""
    monkeypatch.setattr(following.tables, "describe", lambda at, declared, own: own)
    result = types.SimpleNamespace(counts={kind: 2}, undecided=0)
    monkeypatch.setattr(following.comparing, "reconcile", lambda *_: result)
    declare(world, poll="updated", format="json")
    flow = own.load(world, "bikes")
    following._require_same_rows(world, flow, flow.declared.tables[0])
    result.counts[kind.replace("extra", "missing")] = 1
    with pytest.raises(LakeError, match="were removed, added or altered"):
        following._require_same_rows(world, flow, flow.declared.tables[0])


def test_a_free_name_can_be_the_name_of_a_flow(world):
    declare(world)
    declare(world, "bikes_2")
    assert files.free_name("bikes") == "bikes_3"
    for name in ("", "9", "No way", "a" * 5000, "ünder.world"):
        files.require_name(files.free_name(name))
    with pytest.raises(LakeError, match="(?s)'No way' is not the name of a flow.*--as no_way_2"):
        own.capture(world, "bikes", flow="No way")
    with pytest.raises(
        LakeError,
        match="(?s)has the raw False.*--as bikes_3;.*`workbench forget bikes --world local`",
    ):
        own.capture(world, "bikes", raw=True)


def test_the_command_of_a_hint_continues_with_the_options_of_the_flow(world, monkeypatch):
    options = {"poll": "updated", "format": "json", "raw": True}
    declare(world, "their_bikes", **options)
    calls = []
    monkeypatch.setattr(own, "capture", lambda *args, **given: calls.append((args, given)))
    flow = own.load(world, "their_bikes")
    program, *arguments = flow.capture_command.split()
    done = CliRunner().invoke(app, arguments)
    assert (program, done.exit_code) == ("workbench", 0), done.output
    [(positional, given)] = calls
    assert (positional[0].name, *positional[1:]) == ("local", "bikes")
    assert given["flow"] == "their_bikes"
    opened = capturing._open(world, "their_bikes", "bikes", "", False, "", continues=True)
    assert opened == flow.declared
    world.sources["sold"] = world.sources["bikes"]
    with pytest.raises(LakeError, match="has the source 'bikes', not 'sold'"):
        capturing.capture(world, "sold", flow="their_bikes")


@pytest.mark.parametrize("options", [{"flow": "new"}, {"key": ["id"]}, {"partition": ["day"]}])
def test_a_capture_without_tables_says_what_needs_one(world, options):
    declare(world)
    with pytest.raises(LakeError, match="(?s)no table is named.*name a table"):
        own.capture(world, "bikes", **options)


def test_a_table_that_was_created_anew_is_a_problem_of_its_own(world, monkeypatch):
    visits = {**TABLE, "source": "public.visits", "name": "visits", "oid": 7}
    declare(world, tables=[{**TABLE, "oid": 5}, visits])
    flow, at = own.load(world, "bikes"), world.source("bikes")
    asked = []

    def query(at, statement, values, database):
        asked.append(values)
        return pandas.DataFrame({"name": ["public.visits"]})

    monkeypatch.setattr(postgres, "query", query)
    published = pandas.DataFrame({"publication": [], "table": []})
    monkeypatch.setattr("workbench.operate.source.postgres.publications", lambda *args: published)
    replaced, unpublished = FlowReader("bikes", at, flow).source._observe_tables()
    assert asked == [[["public.trips", "public.visits"], [5, 7]]]
    assert (replaced.kind, replaced.signal, replaced.level) == ("table_replaced", "source", "red")
    assert "public.visits was dropped and created anew" in replaced.text
    assert replaced.step.startswith("workbench recapture bikes --world local")
    assert unpublished.kind == "not_published" and "public.trips" in unpublished.text
    assert unpublished.step.startswith("workbench recapture bikes --world local")
    with pytest.raises(SourceError, match="(?s)created anew.*public.visits.*workbench recapture"):
        flow.require_same_tables(at)


def test_a_flow_is_one_of_its_world(world):
    declare(world)
    other = world.model_copy(update={"name": "cluster"})
    for function in (own.load, own.follow, own.compare, own.forget, own.remaining):
        with pytest.raises(
            LakeError, match="(?s)one of world 'local', not of 'cluster'.*--world local"
        ):
            function(other, "bikes")


@pytest.mark.parametrize("name", ["../own/bikes", "bikes/", "Bikes", "", "."])
def test_the_name_of_a_flow_is_no_path(world, name):
    declare(world)
    for function in (own.load, own.forget):
        with pytest.raises(LakeError, match="is not the name of a flow"):
            function(world, name)


def test_a_damaged_flow_is_left_out_with_one_line(world, capsys):
    own_flow._warn.cache_clear()
    for name in ("bikes", "invalid", "gone", "folder", "binary"):
        declare(world, name, source="sold" if name == "gone" else "bikes")
    (own.folder("invalid") / "flow.yaml").write_text("a: [")
    (own.folder("bikes") / "own_bikes.json").write_text("{")
    (own.folder("binary") / "flow.yaml").write_bytes(b"\x00\xff\xfe")
    (own.folder("folder") / "flow.yaml").unlink()
    (own.folder("folder") / "flow.yaml").mkdir()
    declare(world, "good")
    for _ in range(2):
        assert own.names(world) == ["good"]
    assert flow.declared(world)["good"].names == ("trips",)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5 and all("is left out" in line for line in lines)
    assert sum("not a valid flow" in line for line in lines) == 3
    assert sum("no source 'sold'" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [({"source": "mariadb"}, "table of mariadb"), ({"format": "avro"}, "(?s)avro.*--format json")],
)
def test_polling_is_refused_where_it_is_impossible(world, monkeypatch, options, message):
    monkeypatch.setattr(
        capturing.stack, "ensure_running", lambda *args: pytest.fail("services start")
    )
    values = {"source": "bikes", **options}
    with pytest.raises(LakeError, match=message):
        own.capture(world, values.pop("source"), "trips", poll="updated", **values)


def test_a_source_that_cannot_be_reached_is_explained_before_services_start(world, monkeypatch):
    monkeypatch.setattr(
        capturing.stack, "ensure_running", lambda *args: pytest.fail("services start")
    )
    with socket.create_server(("127.0.0.1", 0)) as closed:
        closed_port = closed.getsockname()[1]
    address = {"host": "127.0.0.1", "port": closed_port, "ssl": "disable"}
    world.sources["bikes"] = world.sources["bikes"].model_copy(update=address)
    monkeypatch.setenv("WORKBENCH_SECRET_BIKES", "wrong")
    for options in ({}, {"poll": "updated"}):
        with pytest.raises(SourceError, match="(?s)connection: .*correct host and port"):
            own.capture(world, "bikes", "trips", **options)


def test_an_obstacle_of_a_table_is_an_error_with_its_statements():
    rows = pandas.DataFrame(
        [["table a.b", "", []], ["table a.c", "row security hides rows", ["ADD IT;", "AND THIS;"]]],
        columns=["item", "problem", "statements"],
    )
    report = readiness.Report("local", "bikes", rows[:0], rows)
    with pytest.raises(SourceError, match="(?s)table a.c: row security") as error:
        checking._require_ready(report.tables, report)
    lines = str(error.value).splitlines()
    assert [line.strip() for line in lines[-2:-1]] == ["AND THIS;"] and "ADD IT;" in lines[-3]
    checking._require_ready(report.tables[:1], report)
    more = pandas.concat([rows, rows[1:].assign(item="table a.d", statements=[["A THIRD;"]])])
    with pytest.raises(SourceError) as error:
        checking._require_ready(more, report)
    assert re.findall(r"table a\.\w", error.value.message) == ["table a.c", "table a.d"]
    assert re.findall("ADD IT|AND THIS|A THIRD", error.value.hint) == [
        "ADD IT",
        "AND THIS",
        "A THIRD",
    ]


@pytest.mark.parametrize(
    "changes, managed", [({}, False), ({"tables": []}, True), ({"tables": []}, False)]
)
def test_a_type_at_which_the_connector_stops_refuses_every_capture_by_the_log(
    world, monkeypatch, changes, managed
):
    row = ["types", "public.empty", "an enum without labels", ["-- ALTER TYPE …"]]
    server = pandas.DataFrame([row], columns=readiness.COLUMNS)
    report = readiness.Report("local", "bikes", server, server[:0])
    monkeypatch.setattr(readiness, "check", lambda *_: report)
    section = world.postgres.model_copy(update={"managed": managed})
    at = types.SimpleNamespace(
        source=lambda _: at, manages=lambda _: False, server=lambda _: section
    )
    with pytest.raises(SourceError, match="types: an enum without labels"):
        checking.require_server(at, own.Declaration.model_validate({**FLOW, **changes}))
    polled = {**FLOW, **changes, "poll": "updated", "format": "json"}
    checking.require_server(at, own.Declaration.model_validate(polled))


@pytest.fixture
def described(monkeypatch):
    """The columns id and area for each table, without a database."""

    def describe(world, declared, table):
        excluded = [column for column in table.excluded if column in ("area", "secret")]
        columns = {"id": "integer", "area": "text", "secret": "text"}
        columns = {name: kind for name, kind in columns.items() if name not in excluded}
        return table.model_copy(update={"columns": columns, "excluded": excluded})

    monkeypatch.setattr(own_tables, "describe", describe)


def describe(world, names, key=(), exclude=(), partition=(), type=""):
    declared = own.Declaration.model_validate({**FLOW, "tables": [{**TABLE, "excluded": ["area"]}]})
    options = {"key": key, "partition": partition, "type": type, "excluded": exclude}
    options = {name: given if name == "type" else [*given] for name, given in options.items()}
    drafts = [capturing._draft(declared, each, options) for each in names]
    return capturing._describe(world, declared, drafts)


def test_an_excluded_column_that_no_table_has_is_refused(world, described):
    [added] = describe(world, ["visits", "public.trips"])
    assert (added.source, added.joined) == ("public.visits", True)
    assert describe(world, ["visits"], exclude=["area"])[0].excluded == ["area"]
    with pytest.raises(LakeError, match="(?s)no column secrett in public.visits"):
        describe(world, ["visits"], exclude=["area", "secrett"])


def test_tables_that_would_have_one_name_in_the_lake_are_named(world, described):
    with pytest.raises(LakeError) as error:
        describe(world, ["a.b_c", "a_b.c"])
    assert error.value.message == "a.b_c and a_b.c would have the same name in the lake: a_b_c"
    free = files.free_name("bikes")
    assert f"`workbench capture bikes a_b.c --as {free} --world local`" in error.value.hint


@pytest.mark.parametrize(
    "options", [{"exclude": ["secret"]}, {"key": ["b"]}, {"partition": ["id"]}, {"type": "mor"}]
)
def test_other_options_for_a_table_of_the_flow_are_refused(world, described, options):
    assert (
        describe(world, ["trips"]) == describe(world, ["trips"], exclude=["area"], key=["id"]) == []
    )
    with pytest.raises(LakeError, match="the flow has public.trips with the"):
        describe(world, ["trips"], **options)


@pytest.mark.parametrize(
    "fields, layout",
    [
        ({"rows": 0}, ("cow", "SIMPLE", 1)),
        ({"rows": 99_999}, ("cow", "SIMPLE", 1)),
        ({"rows": 100_000}, ("mor", "BUCKET", 1)),
        ({"rows": 500_001}, ("mor", "BUCKET", 2)),
        ({"rows": 10**6, "type": "cow"}, ("cow", "BUCKET", 2)),
        ({"rows": 10, "type": "mor"}, ("mor", "SIMPLE", 1)),
        ({"rows": 10, "partition": ["region"]}, ("cow", "GLOBAL_SIMPLE", 1)),
        ({"rows": 10**6, "partition": ["region"]}, ("mor", "GLOBAL_SIMPLE", 1)),
        ({"rows": 10, "partition": ["id"]}, ("cow", "SIMPLE", 1)),  # no row moves
        ({"rows": 10**7, "partition": ["id"]}, ("mor", "BUCKET", 3)),
        # a late delete could remove a newer row in a compaction
        ({"rows": 10**6, "columns": {"a": "text[]", "b": "numeric(8,2)"}}, ("cow", "BUCKET", 2)),
        ({"rows": 10**6, "columns": {"a": "numeric(8,2)[]"}}, ("cow", "BUCKET", 2)),
        ({"rows": 10**6, "columns": {"a": "vector(3)", "b": "numeric"}}, ("mor", "BUCKET", 2)),
        ({"rows": 10**6, "columns": {"b": "numeric(8,2)"}}, ("mor", "BUCKET", 2)),
        (
            {"rows": 10**6, "columns": {"a": "text[]", "b": "numeric(25,2)"}},
            ("mor", "BUCKET", 2),
        ),
    ],
)
def test_the_rows_and_the_partition_choose_the_layout(world, fields, layout):
    table = own.OwnTable.model_validate({**TABLE, **fields})
    assert (*own_tables.layout(table).model_dump().values(),) == layout


def test_a_table_keeps_the_layout_of_its_capture(world):
    layout = {"type": "mor", "index": "BUCKET", "buckets": 3}
    declare(world, tables=[{**TABLE, "layout": layout}])
    lake = own.load(world, "bikes").table(world)
    assert (lake.type, lake.index, lake.buckets) == ("mor", "BUCKET", 3)
    files.write_declaration("bikes", files.declaration("bikes"))
    assert (
        yaml.safe_load((own.folder("bikes") / "flow.yaml").read_text())["tables"][0]["layout"]
        == layout
    )


@pytest.mark.parametrize(
    "change, message",
    [
        ({"format": "xml"}, "format"),
        ({"colour": "red"}, "colour"),
        ({"tables": [{**TABLE, "rows": "10"}]}, "rows"),
        ("a: [", "not a valid flow"),
        ("a: &a [1]\nb: *a", "not a valid flow"),
        ("!!set {a}", "not a valid flow"),
        ("\udcff", "not a valid flow"),
    ],
)
def test_a_flow_file_is_read_strictly(world, change, message):
    path = own.folder("bikes") / "flow.yaml"
    path.parent.mkdir(parents=True)
    text = change if isinstance(change, str) else yaml.safe_dump({**FLOW, **change})
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(LakeError, match=f"(?s)not a valid flow.*{message}|{message}"):
        own.load(world, "bikes")
    with pytest.raises(LakeError, match="no flow 'trams'"):
        own.load(world, "trams")


def test_flows_are_those_of_their_world(world):
    declare(world)
    other = world.model_copy(update={"name": "cluster"})
    assert own.names(world) == ["bikes"] and own.names(other) == []
    assert "bikes" not in [each.name for each in tracks.for_world(world)], "not torn down"
    assert flow.declared(world)["bikes"].names == ("trips",)
    found, table = tracks.find_captured_table("bikes/trips", world)
    assert (found.name, table) == ("bikes", "trips")
    with pytest.raises(LakeError, match="no captured table"):
        tracks.find_captured_table("bikes/trips")


def test_the_users_tables_are_never_removed(world, monkeypatch):
    declare(world)
    owned = own.load(world, "bikes").resources

    def fail(*args, **values):
        raise AssertionError("a statement that could change the source")

    monkeypatch.setattr(postgres, "execute", fail)
    monkeypatch.setattr(postgres, "existing_tables", lambda world, names, database: [*names])
    monkeypatch.setattr(postgres, "databases", lambda world: ["bikes"])
    monkeypatch.setattr(resources.postgres, "drop_publication", lambda *args: None)
    kinds = [k for k in resources.KINDS if k.title == resources.SOURCE_TABLES]
    for kind in kinds:
        assert kind.existing(owned, world) == {}
    assert {kind.product for kind in kinds} == {Product.TOPICS, Product.SOURCE}


def test_the_remedy_of_dead_letters_names_the_commands(world):
    declare(world)
    flow = own.load(world, "bikes")
    remedy = flow.dead_letter_remedy(world, flow.captures[0])
    assert remedy.startswith("correct the row")
    assert "`workbench recapture bikes --world local`" in remedy


def test_forget_lists_and_asks(monkeypatch):
    forgotten = []
    monkeypatch.setattr(own, "remaining", lambda world, flow: {"topics": ["own_bikes.a", "b"]})
    monkeypatch.setattr(own, "forget", lambda world, flow: forgotten.append(flow))
    refused = CliRunner().invoke(app, ["forget", "bikes"], input="n\n")
    assert "topics: own_bikes.a, b" in refused.output and refused.exit_code == 1
    assert forgotten == []
    assert CliRunner().invoke(app, ["forget", "bikes", "--yes"]).exit_code == 0
    assert forgotten == ["bikes"]


def test_the_options_of_capture_are_passed_on(monkeypatch):
    calls = []
    monkeypatch.setattr(own, "capture", lambda *args, **values: calls.append((args[1:], values)))
    arguments = "capture bikes trips stations --format json --type mor --partition a --partition b"
    options = "--key id --exclude area --as other --raw --poll updated"
    done = CliRunner().invoke(app, [*arguments.split(), *options.split()])
    assert done.exit_code == 0, done.output
    (positional, values) = calls[0]
    values.pop("progress")
    assert positional == ("bikes", "trips", "stations")
    assert values == {
        "flow": "other",
        "format": "json",
        "type": "mor",
        "partition": ["a", "b"],
        "poll": "updated",
        "key": ["id"],
        "exclude": ["area"],
        "raw": True,
    }
    assert CliRunner().invoke(app, ["capture", "bikes", "trips", "--format", "xml"]).exit_code == 1


def test_catalog_databases_of_the_tracks_are_refused(world, monkeypatch):
    monkeypatch.setattr(Resources, "remaining", lambda *args: {})
    declared = own.Declaration.model_validate({**FLOW, "poll": "updated", "format": "json"})
    for name in RESERVED_DATABASES:
        with pytest.raises(LakeError, match=f"is in use: catalog database {name} .of the tracks"):
            capturing._require_unused(world, name, declared)
    capturing._require_unused(world, "bikes", declared)


def test_a_flow_is_captured_or_removed_by_one_process_at_a_time(world, monkeypatch, tmp_path):
    monkeypatch.setattr("workbench.base.paths.VAR_DIR", tmp_path)

    with files.exclusive("bikes"):
        for command in (own.capture, own.recapture, own.forget):
            with pytest.raises(LakeError, match=f"(?s)is being captured or removed.*{os.getpid()}"):
                command(world, "bikes")
        with files.exclusive("others"):
            assert files.is_being_changed("bikes") is False, "not by another process"
    with files.exclusive("bikes"):
        pass
