"""A third kind of source database is one class: SQLite, polled by `landing.poll` into a topic."""

import json
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path

import pandas
import pytest
from workbench import connect, landing, stack
from workbench.base.errors import SourceError
from workbench.checks import check
from workbench.landing.sources import JDBC
from workbench.source.databases import PolledDatabase
from workbench.source.snapshot import Column, PollSummary
from workbench.topic import topics
from workbench.walkthroughs.capture import Capture
from workbench.walkthroughs.flow import CaptureFlow

DATABASE = "library.db"
KINDS = {"INTEGER": "int8", "REAL": "float8", "TEXT": "text"}


# --- the class


def text(statement):
    return statement if isinstance(statement, str) else statement.as_string(None)


def with_values(statement):
    return text(statement).replace("%s", "?")


class SQLite:
    """A folder of SQLite files, which are its databases. Timestamps are texts in UTC."""

    def __init__(self, folder: Path):
        self.folder = folder

    def connect(self, database):
        return closing(sqlite3.connect(self.folder / database, isolation_level=None))

    def query(self, world, statement, params=None, database=None):
        with self.connect(database) as c:
            try:
                return pandas.read_sql_query(with_values(statement), c, params=params)
            except pandas.errors.DatabaseError as e:
                raise SourceError(f"SQLite rejected the statement: {e}") from None

    def execute(self, world, statement, params=None, database=None):
        with self.connect(database) as c:
            return c.execute(with_values(statement), params or []).rowcount

    def databases(self, world):
        return [path.name for path in self.folder.glob("*.db")]

    def create_database(self, world, database=None):
        with self.connect(database) as c:
            c.execute("VACUUM")  # writes the file

    def existing_tables(self, world, tables, database=None):
        names = self.query(
            world, "SELECT 'main.' || name AS name FROM sqlite_master", None, database
        )
        return sorted({*tables} & {*names["name"]})

    def log_position(self, world, database=None):
        return ""

    def position_to_int(self, position):
        return 0

    def jdbc_login(self, world):
        return f"jdbc:sqlite:{self.folder}", "nobody"

    @contextmanager
    def snapshot(self, world, database):
        with self.connect(database) as c:
            c.execute("BEGIN")
            yield SQLiteSnapshot(c)


class SQLiteSnapshot:
    """A snapshot of a file, in a transaction."""

    def __init__(self, connection):
        self.connection = connection

    def time(self, delay_ms):
        [[now]] = self.connection.execute(
            "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now', ?)", [f"-{delay_ms / 1000} seconds"]
        )
        return now

    def columns(self, query, table):
        schema, _, name = table.partition(".")
        declared = self.connection.execute(
            'SELECT name, type, "notnull" FROM pragma_table_info(?, ?)', [name, schema]
        )
        return [
            Column(name, KINDS.get(kind, kind), not not_null) for name, kind, not_null in declared
        ]

    def summarize(self, query, all_rows, offset_columns, count_nulls):
        rows = self._rows(query)
        last = [rows[-1][name] for name in offset_columns] if rows else []
        nulls = [
            row for row in self._rows(all_rows) if None in [row[name] for name in offset_columns]
        ]
        return PollSummary(len(rows), last, len(nulls) if count_nulls else 0)

    def json_rows(self, query, batch_size):
        return map(json.dumps, self._rows(query))

    def _rows(self, query):
        cursor = self.connection.execute(text(query))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor]


# --- its use


@pytest.fixture
def source(tmp_path):
    return SQLite(tmp_path)


def config(world, source, **settings):
    url, user = source.jdbc_login(world)
    return {
        "name": f"sqlite_{source.folder.name}",
        "connector.class": JDBC,
        "connection.url": f"{url}/{DATABASE}",
        "connection.user": user,
        "connection.password": connect.placeholders(world)["password_reference"],
        "topic.prefix": f"sqlite.{source.folder.name}.",
        "mode": "timestamp+incrementing",
        "timestamp.column.name": "changed_at",
        "incrementing.column.name": "id",
        "table.whitelist": "main.books",
        **settings,
    }


def test_a_third_source_database_is_polled_and_compared(world, source):
    stack.ensure_running(world, "kafka")
    database: PolledDatabase = source
    flow = CaptureFlow(
        (Capture("main.books", "id", "sqlite_books"),),
        DATABASE,
        lambda world, name: config(world, source),
        watermark=False,
        polled=True,
        db=database,
    )
    assert not flow.has_database(world)
    source.create_database(world, DATABASE)
    assert flow.has_database(world)
    create = (
        "CREATE TABLE books (id INTEGER NOT NULL PRIMARY KEY, title TEXT NOT NULL, price REAL,"
        " changed_at TEXT NOT NULL)"
    )
    source.execute(world, create, database=DATABASE)
    assert source.existing_tables(world, ["main.books", "main.x"], DATABASE) == ["main.books"]
    insert = (
        "INSERT INTO books VALUES (%s, %s, %s, strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 second'))"
    )
    for row in ([1, "Emma", 9.5], [2, 'Zwölf 🎬 "books"', None], [3, "O'Hara", 0.1]):
        assert source.execute(world, insert, row, DATABASE) == 1
    flow_config, topic = flow.config(world, "sqlite_books"), flow.topic(world)
    try:
        assert landing.poll(world, flow_config, source).messages == {topic: 3}
        check.same_rows(flow.rows(world), payloads(world, topic), key="id", claim="all books")
        assert list(flow.rows(world, "books", "id > %s", [1])["id"]) == [2, 3]
        assert landing.poll(world, flow_config, source).messages == {topic: 0}
        update = "UPDATE books SET price = 7, changed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE id = 1"
        assert source.execute(world, update, database=DATABASE) == 1
        stack_wait = "SELECT 1 WHERE (SELECT max(changed_at) FROM books) >= strftime('%Y-%m-%d %H:%M:%f', 'now')"
        while len(source.query(world, stack_wait, database=DATABASE)):
            pass  # a poll reads rows that are older than its own time
        assert landing.poll(world, flow_config, source).messages == {topic: 1}
        latest = payloads(world, topic).groupby("id", as_index=False).tail(1).sort_values("id")
        check.same_rows(flow.rows(world), latest, key="id", claim="the latest version of all books")
        landing.reset_offsets(world, flow_config, source)
        assert landing.poll(world, flow_config, source).messages == {topic: 3}, "from the beginning"
    finally:
        landing.reset_offsets(world, flow_config, source)
        topics.delete(world, topic)


def payloads(world, topic):
    rows = [json.loads(value)["payload"] for value in topics.read(world, topic)["value"]]
    return pandas.DataFrame(rows)


def test_what_cannot_be_polled_is_named(world, source):
    source.create_database(world, DATABASE)
    source.execute(
        world,
        "CREATE TABLE books (id INTEGER NOT NULL, cover BLOB, changed_at TEXT)",
        database=DATABASE,
    )
    with pytest.raises(SourceError, match="(?s)does not support: cover .BLOB"):
        landing.poll(world, config(world, source), source)
    source.execute(world, "ALTER TABLE books DROP COLUMN cover", database=DATABASE)
    with pytest.raises(SourceError, match="(?s)changed_at may be null"):
        landing.poll(world, config(world, source), source)
    with pytest.raises(SourceError, match="SQLite rejected the statement"):
        source.query(world, "SELECT", database=DATABASE)
