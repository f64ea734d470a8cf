"""From rows about a source to obstacles, findings and the administrator's script, without a server."""

import json
import re

import pandas
import pytest
from typer.testing import CliRunner
from workbench.base import params, paths, secrets
from workbench.base.added_columns import is_data, is_reserved
from workbench.base.errors import ParamsError, SourceError
from workbench.cli import main as cli
from workbench.cli import source as source_commands
from workbench.hudi import decode
from workbench.own import files
from workbench.source import mariadb, postgres, readiness
from workbench.source.queries import QUERIES
from workbench.stack import doctor

TABLE = {
    "schema": "public", "kind": "table", "rows": 3, "bytes": 8192, "key": "id", "identity": "primary key",
    "attention": "", "problem": "", "statements": [""], "value": "table",
}  # fmt: skip


FACTS = {
    "quoted": "public.a", "columns": ["id", "b"], "key": ["id"], "unique": [["id"], ["b"]], "unsupported": [], "no_keys": [],
    "identities": [{"table": "public.a", "is_full": False, "columns": ["id"]}],
}  # fmt: skip
FULL = [{"table": "public.a", "is_full": True, "columns": None}]


def server(*rows):
    return pandas.DataFrame(rows, columns=readiness.COLUMNS)


def tables(*rows):
    full = [{**TABLE, "item": f"table public.{row['table']}", **row} for row in rows]
    return pandas.DataFrame(full, columns=["item", "table", *TABLE])


OK = ("wal_level", "logical", "", [])
NO_KEY = {
    "table": "a",
    "key": "",
    "problem": "no SELECT; no replica identity",
    "statements": ["GRANT USAGE ON SCHEMA s TO u;", "ALTER TABLE a REPLICA IDENTITY FULL;"],
}


def test_a_ready_source():
    report = readiness.Report("local", "bikes", server(OK), tables({"table": "a"}))
    assert report.obstacles.empty
    assert [f.level for f in report.findings()] == ["ok", "ok"]
    assert (report.summary().detail, report.summary().level) == ("1 table, ready", "ok")
    assert report.script() == "-- bikes: for the administrator of the server"


def test_attention_is_a_warning_and_no_obstacle():
    report = readiness.Report(
        "local", "b", server(OK), tables({"table": "a", "attention": "x circle: not captured"})
    )
    finding = report.findings()[1]
    assert (finding.level, finding.remedy) == ("warning", "x circle: not captured")
    assert report.obstacles.empty and report.summary().level == "ok"


def test_a_row_of_the_server_without_a_problem_may_need_attention():
    row = ("privilege PROCESS", "not granted", "", ["GRANT PROCESS ON *.* TO `ada`@`%`;"])
    report = readiness.Report("local", "b", server(row, OK[:3] + ([],)), tables())
    process, log = report.findings()
    assert (process.level, process.remedy, log.level) == ("warning", row[3][0], "ok")
    assert report.obstacles.empty and "GRANT" not in report.script()


def test_obstacles_of_the_server_and_of_tables():
    report = readiness.Report(
        "local",
        "b",
        server(OK, ("wal_level", "replica", "must be logical", ["ALTER SYSTEM …; -- restart"])),
        tables(NO_KEY, {**NO_KEY, "table": "b", "statements": [*NO_KEY["statements"][:1], "two;"]}),
    )
    assert [*report.obstacles["item"]] == ["wal_level", "table public.a", "table public.b"]
    assert [f.level for f in report.findings()] == ["ok", "problem", "problem", "problem"]
    finding = report.findings()[2]
    assert finding.detail == "table; no SELECT; no replica identity"
    assert (
        finding.remedy == "GRANT USAGE ON SCHEMA s TO u;\n    ALTER TABLE a REPLICA IDENTITY FULL;"
    )
    assert (
        report.summary().detail == "2 tables, 3 obstacles" and report.summary().level == "warning"
    )
    assert report.script().split("\n") == [
        "-- b: for the administrator of the server",
        "-- wal_level: must be logical",
        "ALTER SYSTEM …; -- restart",
        "-- table public.a: no SELECT; no replica identity",
        "GRANT USAGE ON SCHEMA s TO u;",
        "ALTER TABLE a REPLICA IDENTITY FULL;",
        "-- table public.b: no SELECT; no replica identity",
        "two;",
    ]


def test_a_name_with_a_line_break_stays_in_its_comment():
    report = readiness.Report(
        "local", "b", server(("table x\nDROP TABLE y;", "", "no\rkey", ["one;"])), tables()
    )
    assert report.script().split("\n")[1:] == ["-- table x\\nDROP TABLE y;: no\\rkey", "one;"]


def make_world(host="127.0.0.1", **settings):
    values = {"engine": "postgres", "host": host, "port": 1, "database": 'd"b', "user": 'u"x'}
    source = params.Source(**{**values, "password": secrets.Secret("x"), **settings})
    return params.load("local").model_copy(update={"sources": {"bikes": source}})


@pytest.fixture
def failing(monkeypatch):
    """A function that reports a source whose connection fails with an error."""

    def report(text, message="cannot connect to PostgreSQL", **settings):
        def fail(*_):
            raise SourceError(message, location=text)

        monkeypatch.setattr(postgres, "query", fail)
        monkeypatch.setattr(mariadb, "query", fail)
        return readiness.check(make_world(**settings), "bikes")

    return report


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ('FATAL:  password authentication failed for user "x"', 'ALTER ROLE "u""x" LOGIN REPLICATION;\n    \\password "u""x"'),
        ("Access denied for user 'u'@'h' (using password: YES)", "CREATE USER IF NOT EXISTS \"u\"\"x\"@'%';"),
        ('FATAL:  database "d" does not exist', 'CREATE DATABASE "d""b";'),
        ('FATAL:  permission denied for database "d"', 'GRANT CONNECT ON DATABASE "d""b" TO "u""x";'),
        ("server does not support SSL, but SSL was required", "ssl: disable"),
        ('no pg_hba.conf entry for host "h", user "u", database "d", no encryption', "ssl: require"),
        ('no pg_hba.conf entry for host "h", user "u", database "d", SSL encryption', "pg_reload_conf"),
        ("SSL error: certificate verify failed", "ssl_ca"),
        ("FATAL: sorry, too many clients already", "max_connections"),
        ('could not translate host name "h" to address', "correct the host"),
        ("Connection refused", "host and port"),
        ("secret 'x' is not set", "workbench secret x"),
        ("connection timeout expired", "firewall"),
    ],
)  # fmt: skip
def test_a_connection_that_fails_is_one_red_line_with_what_to_do(failing, text, remedy):
    report = failing(text)
    [finding] = report.findings()
    assert finding.level == "problem" and text in finding.detail and remedy in finding.remedy
    assert remedy.replace("\n    ", "\n") in report.script()
    assert report.tables.empty and report.summary().detail == "0 tables, 1 obstacle"


def test_a_script_has_sql_and_comments_only(failing):
    for pattern in readiness.CONNECTION_FAILURES:
        re.compile(pattern)
    for text in ("password authentication failed", "Access denied for user", "refused"):
        for line in failing(text).script().split("\n"):
            assert re.match(r"--|[A-Z]|\\password \"", line)
            assert not re.search(r"PASSWORD [':]", line), "the server could log it"


def test_the_engine_of_the_source_is_asked(failing, monkeypatch):
    failing("refused")
    monkeypatch.setattr(postgres, "query", lambda *_: pytest.fail("PostgreSQL is queried"))
    assert not readiness.check(make_world(engine="mysql"), "bikes").obstacles.empty
    assert not readiness.check(make_world(), "mariadb").obstacles.empty
    with pytest.raises(ParamsError, match="bikes, mariadb, postgres"):
        readiness.check(make_world(), "cars")


def test_the_queries_are_complete():
    assert {
        "postgres_server",
        "postgres_tables",
        "mariadb_server",
        "mariadb_tables",
        "all_slots",
    } <= {*QUERIES}
    files = [*(paths.ROOT / "lib/workbench/source").glob("*.sql")]
    names = [
        name for file in files for name in re.findall(r"^-- name: (\w+)", file.read_text(), re.M)
    ]
    assert len(names) == len(set(names)) == len(QUERIES)


def test_the_command_and_the_doctor(monkeypatch, failing):
    failing("refused")
    monkeypatch.setattr(source_commands, "open_world", lambda name: make_world())
    monkeypatch.setattr(cli, "open_world", lambda name: make_world())
    monkeypatch.setattr(doctor, "examine", lambda world: [])
    monkeypatch.setattr("workbench.source.capture_health.examine", lambda world: [])
    result = CliRunner().invoke(cli.app, ["source", "check", "bikes"])
    assert result.exit_code == 1 and "✘ connection: failed; cannot connect" in result.stdout
    result = CliRunner().invoke(cli.app, ["source", "check", "bikes", "--sql"])
    assert result.exit_code == 0 and result.stdout.startswith("-- bikes")
    result = CliRunner().invoke(cli.app, ["doctor"])
    assert result.exit_code == 0
    assert result.stdout.split("\n")[:2] == [
        "! source bikes: 0 tables, 1 obstacle",
        "    workbench source check bikes --world local",
    ]


def judged(
    excluded=(), key=(), polled=False, problem="", schema="public", natural=("id",), **facts
):
    """Return the problem of one table, and the statements that remove it."""
    rows = tables({"table": "a", "problem": problem, "statements": [], "schema": schema})
    rows = rows.assign(facts=json.dumps({**FACTS, "key": natural, **facts}))
    options = readiness.Options(excluded, key, polled)
    row = readiness._judged(rows, options, "workbench capture bikes {} --world mine").iloc[0]
    return row["problem"], row["statements"]


def test_a_table_with_a_key_and_ordinary_names_has_no_problem():
    assert judged() == judged(columns=["id", "Trips_2", "_x", "__note"]) == ("", [])
    assert judged(excluded=["a b"], columns=["id", "a b"]) == ("", [])


@pytest.mark.parametrize(
    "facts, problem, remedy",
    [
        ({"schema": "größe"}, "topics cannot have the name 'größe'", "ALTER TABLE public.a RENAME"),
        ({"columns": ["id", "a b"]}, "the column name 'a b'", "--exclude 'a b'"),
        ({"columns": ["id", "Id"]}, "'Id' differs from another one in case only", "--exclude Id"),
        ({"columns": ["id", "__LSN"]}, "'__LSN' is one that the lake adds", '"__LSN" TO'),
        ({"columns": ["id", "__name"]}, "'__name' is one that the lake adds", "--exclude __name"),
        (
            {"unsupported": [["c c", "circle"], ["d", "line"]]},
            "not supported (docs/types.md): c c (circle), d (line)",
            "workbench capture bikes public.a --world mine --exclude 'c c' --exclude d",
        ),
        (
            {"unsupported": [["id", "generated"], ["b", "line"]]},
            "not supported (docs/types.md): id (generated), b (line)",
            "-- give the table a key without id, then name its columns: workbench capture bikes public.a --world mine --key …",
        ),
        ({"natural": []}, "no primary key", "ALTER TABLE public.a ADD PRIMARY KEY"),
        ({"natural": [], "prefixes": ["id"]}, "only of a prefix: id", ""),
        ({"excluded": ["id"]}, "no captured column id for the key", "give other ones: --key …"),
        (
            {"columns": ["id", "a b"], "quoted": "`d`.`a`"},
            "the column name 'a b'",
            "ALTER TABLE `d`.`a` RENAME COLUMN `a b` TO …",
        ),
        ({"no_keys": ["id"]}, "two different keys may arrive as one", "a key of another type"),
        ({"key": ["b"], "unique": [["id"]]}, "no constraint ensures that b", 'PRIMARY KEY ("b")'),
        (
            {"key": ["b"]},
            "the replica identity of public.a lacks",
            "public.a REPLICA IDENTITY FULL;",
        ),
    ],
)
def test_what_the_lake_cannot_have_is_a_problem(facts, problem, remedy):
    found, statements = judged(**facts)
    assert problem in found and remedy in "\n".join(statements)


def test_a_table_is_summarized_in_one_line():
    rows = tables({"table": "a"}, {"table": "b", "key": "", "rows": None})
    rows = rows.drop(columns="value").assign(facts=json.dumps(FACTS))
    found = readiness._judged(rows, readiness.Options(), "{}")
    assert [*found["value"]] == [
        "table, 3 rows, 8.2 kB, key id, identity primary key",
        "table, rows unknown, 8.2 kB, key (none), identity primary key",
    ]


def test_a_column_name_with_a_line_break_stays_in_its_comment():
    [statement] = judged(columns=["id", "x\nDROP TABLE y;"])[1]
    assert statement.startswith("-- rename") and "\n" not in statement


def test_a_declared_key_needs_a_constraint_and_the_old_row():
    assert judged(key=["b", "id"], identities=FULL) == ("", [])
    assert judged(key=["b"], identities=[]) == ("", [])  # MariaDB
    assert judged(key=["b"], polled=True) == ("", [])
    assert "replica identity" in judged(key=["b"])[0]


def test_a_poller_needs_to_read_only():
    problem = "not the owner: cannot be published; no SELECT; unlogged"
    assert judged(problem=problem, polled=True)[0] == "no SELECT"


def test_the_columns_that_are_added_are_reserved():
    fields = [
        f"__{field.replace('.', '_')}"
        for template in files.TEMPLATES["connectors"].values()
        for field in filter(None, template.get("transforms.unwrap.add.fields", "").split(","))
    ]
    added = {*fields, decode.DELETED, "_hoodie_commit_time", "__deleted"}
    assert len(added) > 10 and [name for name in added if not is_reserved(name)] == []


def test_a_column_that_readers_hide_is_refused():
    """What the check accepts is shown; a connector can add any field of its source."""
    debezium = "version name row query file pos snapshot ts_ms txId thread gtid".split()
    names = [
        *(f"__{name}" for name in (*debezium, "op", "deleted", "key", "position")),
        *(f"__source_{name}" for name in debezium),
        "_hoodie_record_key",
        *("id", "b", "op", "name", "__note", "__source", "_row", "__names"),
    ]
    hidden = [name for name in names if not is_data(name)]
    assert names[: len(hidden)] == hidden and len(names) - len(hidden) == 8
    assert [name for name in names if "hide" in judged(columns=["id", name])[0]] == hidden
    assert "hide" in judged(columns=["id", "__TXID"])[0], "Spark's names do not differ in case"


def test_queries_have_ascii_characters_only():
    """A database in another encoding refuses a statement with a character that it lacks."""
    assert [name for name, query in QUERIES.items() if not query.isascii()] == []


@pytest.mark.parametrize(
    ("file", "ignored", "items"),
    [
        ("mariadb-bin.990000", "", []),
        ("mariadb-bin.990001", "", ["binary log"]),
        ("mariadb-bin.000001", "bikes", ["binlog_ignore_db"]),
    ],
)
def test_the_binary_log_has_a_number_and_all_databases(monkeypatch, file, ignored, items):
    status = {"File": [file], "Binlog_Do_DB": [""], "Binlog_Ignore_DB": [ignored]}
    monkeypatch.setattr(mariadb, "query", lambda *_: pandas.DataFrame(status))
    assert [*readiness._binary_log(make_world())["item"]] == items
