"""Own tables of MariaDB: what the check accepts arrives, and what does not arrive is refused with its remedy."""

import re

import own_help
import pytest
from workbench import hudi, operate, own
from workbench.base.errors import LakeError, SourceError
from workbench.own import tables as tables_of_flows
from workbench.source import mariadb, readiness

DATABASE = "own_maria"


@pytest.fixture(scope="module")
def server(world):
    with own_help.mariadb_server(world):
        yield world


@pytest.fixture
def shop(server):
    """The world with an empty database; afterwards nothing is left."""
    with own_help.mariadb_database(server, DATABASE) as changed:
        yield changed


def run(world, *statements, database=DATABASE):
    with mariadb.session(world, database) as connection:
        for statement in statements:
            connection.execute(statement)


def lake_rows(world, spark, name):
    """Return the rows of a lake table by id, without the workbench's columns."""
    at = world.source("bikes")
    rows = hudi.read(spark, own.load(world, "bikes").table(at, name)).collect()
    return {
        row["id"]: {
            column: bytes(value) if isinstance(value, bytearray) else value
            for column, value in row.asDict().items()
            if not column.startswith("_")
        }
        for row in rows
    }


def assert_no_difference(world, name):
    """`compare` and `reconcile` agree that the lake equals the source."""
    own.compare(world, "bikes")
    results = operate.reconcile(world, "bikes")
    found = [row for each in results for row in each.differences.to_dict("records")]
    assert (found, [each.is_equal for each in results]) == ([], [True] * len(results))


NUMBERS = {
    "small": ("tinyint", [-128, 127]),
    "flag": ("boolean", [0, 1]),
    "big": ("bigint unsigned", [2**64 - 1, 0]),
    "padded_decimal": ("decimal(8,2) zerofill", ["1.5", "2.25"]),
    "padded": ("int(8) zerofill", [42, 1]),
    "single": ("float", [16777215, 0.000123456789]),
    "cents": ("float(7,2)", [12345.67, 0.01]),
    "twice": ("double", [0.1, 5e-324]),
    "exact": ("decimal(38,30)", ["12345678.123456789012345678901234567891", "-0.1"]),
    "bits": ("bit(12)", [0b101010101010, 1]),
    "made": ("year", [1901, 2155]),
    "counted": ("int AS (small + 1) VIRTUAL", None),
    "stored": ("int AS (small + 2) STORED", None),
    "hidden": ("int INVISIBLE", [7, 8]),
}
TIMES = {
    "born": ("date", ["0001-01-01", "9999-12-31"]),
    "at": ("datetime(6)", ["1850-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999"]),
    "seen": ("timestamp(6) NULL", ["1970-01-01 00:00:01", "2038-01-19 03:14:07.999999"]),
    "span": ("time(6)", ["-838:59:59", "838:59:59.999999"]),
}
TEXTS = {
    "code": ("char(5)", ["ab ", ""]),
    "data": ("binary(5)", [b"\x01\x02\0\0", b""]),
    "blob_": ("longblob", [b"\0\xff", b""]),
    "note": ("longtext", ["ü😀", ""]),
    "mood": ("enum('a','d''e','','ü','x y')", ["d'e", "ü"]),
    "tags": ("set('a','b','c d','ü')", ["a,c d", ""]),
    "old_mood": ("enum('ä','ö') CHARACTER SET latin1", ["ö", "ä"]),
    "body": ("json", ['{"a": 1.0, "b":[1, 2]}', "null"]),
    **{
        f"in_{charset}": (f"varchar(20) CHARACTER SET {charset}", [text, ""])
        for charset, text in {
            "utf8mb4": "a😀",
            "utf8mb3": "ä€",
            "latin1": "ä€",
            "ucs2": "ä€",
            "utf16": "a😀",
            "utf16le": "a😀",
            "utf32": "a😀",
            "sjis": "日本",
            "euckr": "한국",
            "koi8r": "Привет",
            "cp1251": "Привет",
            "gbk": "中国",
        }.items()
    },
}
COLUMNS = {**NUMBERS, **TIMES, **TEXTS}


def insert_types(world, first_id):
    written = {name: values for name, (_, values) in COLUMNS.items() if values}
    with mariadb.session(world, DATABASE) as connection:
        for n in range(2):
            row = [first_id + n, *(values[n] for values in written.values())]
            names = ", ".join(["id", *written])
            marks = ", ".join(["%s"] * len(row))
            connection.execute(f"INSERT INTO types ({names}) VALUES ({marks})", row)


def test_each_type_is_the_same_from_the_snapshot_and_from_the_log(shop, spark):
    """Snapshot, log, and the source agree: also with a mode of the server that pads texts."""
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    run(shop, f"CREATE TABLE types (id int PRIMARY KEY, {columns})")
    insert_types(shop, 1)
    run(shop, "CREATE TABLE floats (id int PRIMARY KEY, f float, y year)")
    run(shop, "INSERT INTO floats VALUES (1, 16777215, 1999), (2, 1.1, 2000)")
    mode = mariadb.query(shop, "SELECT @@global.sql_mode").iloc[0, 0]
    mariadb.execute(shop, "SET GLOBAL sql_mode = 'PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES'")
    try:
        assert readiness.check(shop, "bikes", [f"{DATABASE}.types"]).obstacles.empty
        own.capture(shop, "bikes", "types", format="json")
        own.capture(shop, "bikes", "floats", format="json")
    finally:
        mariadb.execute(shop, "SET GLOBAL sql_mode = %s", [mode])
    insert_types(shop, 3)
    own.follow(shop, "bikes")
    rows = lake_rows(shop, spark, "types")
    for n in (1, 2):
        assert rows[n] | {"id": n + 2} == rows[n + 2]
    assert (rows[1]["single"], rows[1]["hidden"]) == (16777215.0, 7)
    assert (rows[1]["code"], rows[1]["mood"]) == ("ab", "d'e")
    assert rows[1]["born"].year == 1
    assert lake_rows(shop, spark, "floats")[1]["f"] == 16777215.0
    assert_no_difference(shop, "types")
    run(shop, "INSERT INTO floats VALUES (3, 1.5, 0)")
    with pytest.raises(LakeError, match="a year from 1901"):
        own.follow(shop, "bikes")
    run(shop, "DELETE FROM floats WHERE id = 3")
    own.follow(shop, "bikes")


REFUSED = {
    "digits": ("id int PRIMARY KEY, n decimal(39,2)", "n decimal"),
    "labels": ("id int PRIMARY KEY, e enum('a','b,c')", "e enum"),
    "small_": ("id int PRIMARY KEY, z varchar(99) COMPRESSED", "z varchar.*COMPRESSED"),
    "address": ("id int PRIMARY KEY, i inet6", "i inet6"),
    "unique_": ("id int PRIMARY KEY, u uuid", "u uuid"),
    "place": ("id int PRIMARY KEY, p point", "p point"),
    "numbered": ("id int PRIMARY KEY, n int DEFAULT nextval(numbers)", "n int"),
    "greek": ("id int PRIMARY KEY, g text CHARACTER SET greek", "g greek"),
    "old": ("id int PRIMARY KEY) ENGINE = MyISAM COMMENT = ('x'", "engine MyISAM"),
    "memory": ("id int PRIMARY KEY) ENGINE = MEMORY COMMENT = ('x'", "engine MEMORY"),
    "history": ("id int PRIMARY KEY) WITH SYSTEM VERSIONING COMMENT = ('x'", "system-versioned"),
    "keyless": ("id int", "no primary key"),
    "prefix": (
        "id text, PRIMARY KEY (id(5))",
        "no primary key of whole values, only of a prefix: id",
    ),
    "prefixed": (
        "id varchar(9) NOT NULL UNIQUE, PRIMARY KEY (id(5))",
        "no primary key of whole values, only of a prefix: id",
    ),
    "hashed": (
        "id int PRIMARY KEY, t text, UNIQUE `long` (t)",
        "unique index long has a hidden column",
    ),
    "hashed_": (
        "id int PRIMARY KEY, a varchar(10), b varchar(3000), UNIQUE (a, b)",
        "unique index a has a hidden column",
    ),
    "bookings": (
        "id int, s date, e date, PERIOD FOR p (s, e), PRIMARY KEY (id, p WITHOUT OVERLAPS)",
        "key WITHOUT OVERLAPS",
    ),
    "child": (
        "id int PRIMARY KEY, p int, CONSTRAINT fk FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE",
        "foreign key fk",
    ),
    "updated": (
        "id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES parent (id) ON UPDATE CASCADE",
        "foreign key",
    ),
}


def test_what_does_not_arrive_is_refused_with_its_remedy(shop):
    run(shop, "CREATE TABLE parent (id int PRIMARY KEY)", "CREATE SEQUENCE numbers")
    for name, (definition, _) in REFUSED.items():
        definition = (
            definition.replace(" COMMENT = ('x'", " /*")
            if "('x'" in definition
            else definition + ") /*"
        )
        run(shop, f"CREATE TABLE {name} ({definition} */")
    report = readiness.check(shop, "bikes", None, readiness.Options(excluded=["i", "z", "u"]))
    problems = report.tables.set_index("table")["problem"]
    assert problems["unique_"] == "" and problems["parent"] == ""
    assert "i inet6" in problems["address"], "Debezium reads the definition of excluded columns"
    named = readiness.check(shop, "bikes", [f"{DATABASE}.parent"]).tables["table"]
    unreadable = {"address", "bookings", "history"}
    assert {*named} == {"parent", *unreadable}, "it reads all definitions"
    tables = readiness.check(shop, "bikes").tables.set_index("table")
    assert "DROP INDEX `long`" in tables.loc["hashed", "statements"][0]
    for name, key in {"prefix": "`id`", "prefixed": "`id`"}.items():
        [statement] = tables.loc[name, "statements"]
        assert statement.endswith(f"{name}` DROP PRIMARY KEY, ADD PRIMARY KEY ({key});")
    with pytest.raises(SourceError) as error:
        own.capture(shop, "bikes", "parent")
    refused = re.findall(rf"table {DATABASE}\.(\w+): ", error.value.message)
    assert {*refused} == unreadable, "one error names all"
    with pytest.raises(SourceError) as error:
        own.capture(shop, "bikes", *REFUSED)
    for name, (_, problem) in REFUSED.items():
        assert tables["problem"].str.contains(problem)[name], name
        assert re.search(f"table {DATABASE}.{name}: .*{problem}", error.value.message), name
    for name in ("hashed", "hashed_"):
        run(shop, tables.loc[name, "statements"][0].partition("or: ")[2])
    repaired = ("address", "unique_", "greek", "old", "memory", "history", "keyless", "prefixed")
    for name in (*repaired, "child", "updated"):
        if name == "history":
            run(shop, "SET @@system_versioning_alter_history = KEEP")
        run(shop, *tables.loc[name, "statements"])
    again = readiness.check(shop, "bikes").tables.set_index("table")["problem"]
    for name in (*repaired, "child", "updated", "hashed", "hashed_"):
        assert again[name] == "", name


def test_tables_whose_names_differ_in_case_are_different_ones(shop):
    run(
        shop,
        "CREATE TABLE Stops (id int PRIMARY KEY, a text CHARACTER SET greek)",
        "CREATE TABLE stops (code int, name text, PRIMARY KEY (code))",
    )
    names = [f"{DATABASE}.Stops", f"{DATABASE}.stops"]
    tables = readiness.check(shop, "bikes", names).tables.set_index("table")
    assert [*tables["key"]] == ["id", "code"]
    assert [*tables["problem"]] == ["a greek: Debezium cannot read this type", ""]
    assert [*readiness.check(shop, "bikes", names[1:]).tables["table"]] == ["stops"]
    catalog = mariadb.query(
        shop.source("bikes"), tables_of_flows.MARIADB_COLUMNS, ["stops", DATABASE]
    )
    assert dict(zip(catalog["name"], catalog["key_position"])) == {"code": 1, "name": 0}


def test_settings_of_the_server_that_lose_changes_are_named(shop):
    for setting, value in {
        "log_bin_compress": "ON",
        "init_connect": "'SET sql_log_bin = 0'",
        "max_statement_time": "5",
    }.items():
        mariadb.execute(shop, f"SET GLOBAL {setting} = {value}")
        try:
            obstacles = readiness.check(shop, "bikes", ()).obstacles
            assert [*obstacles["item"]] == [setting]
            run(shop, *obstacles["statements"][0])
            assert readiness.check(shop, "bikes", ()).obstacles.empty
        finally:
            mariadb.execute(shop, "SET GLOBAL log_bin_compress = OFF")
            mariadb.execute(shop, "SET GLOBAL init_connect = ''")
            mariadb.execute(shop, "SET GLOBAL max_statement_time = 0")


def test_changes_of_rows_are_found_behind_many_other_events_and_in_later_files(shop, monkeypatch):
    """`follow` waits for changes of rows only: after other statements the connector commits no position."""
    monkeypatch.setattr(mariadb, "MAX_LOG_EVENTS", 3)
    start = mariadb.log_position(shop)
    run(shop, *(f"CREATE TABLE t{n} (n int)" for n in range(4)))
    assert not mariadb.has_row_changes(shop, start, mariadb.log_position(shop))
    run(shop, "FLUSH BINARY LOGS", "TRUNCATE t1")
    before = mariadb.log_position(shop)
    assert before.partition(":")[0] != start.partition(":")[0]
    assert not mariadb.has_row_changes(shop, start, before)
    run(shop, "INSERT INTO t1 VALUES (1)")
    after = mariadb.log_position(shop)
    assert mariadb.has_row_changes(shop, start, after)
    assert mariadb.has_row_changes(shop, before, after)
    assert not mariadb.has_row_changes(shop, start, before), "later changes do not count"
    assert not mariadb.has_row_changes(shop, after, after)
    assert mariadb.has_row_changes(shop, "mariadb-bin.000000:4", after), "nobody knows"
