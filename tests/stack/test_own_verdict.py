"""The check of PostgreSQL: `capture` refuses exactly what it refuses, and what it accepts arrives."""

import os
import re

import own_help
import pytest
from hudi import HudiTableBuilder
from workbench import operate, own
from workbench.base.errors import SourceError
from workbench.source import postgres, readiness

PORT = int(os.environ["WORKBENCH_PORT_BASE"]) + 155
# {table: (statements, problem of the check)}
REFUSED = {
    "late": (
        "CREATE TABLE late (id int PRIMARY KEY DEFERRABLE)",
        "a DEFERRABLE primary key .* no replica identity",
    ),
    "late_full": (
        "CREATE TABLE late_full (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED);"
        "ALTER TABLE late_full REPLICA IDENTITY FULL",
        "a DEFERRABLE primary key",
    ),
    "late_unique": (
        "CREATE TABLE late_unique (id int NOT NULL UNIQUE DEFERRABLE);"
        "ALTER TABLE late_unique REPLICA IDENTITY FULL",
        "no primary key",
    ),
    "nothing": (
        "CREATE TABLE nothing (id int PRIMARY KEY); ALTER TABLE nothing REPLICA IDENTITY NOTHING",
        "no replica identity",
    ),
    "lost_index": (
        "CREATE TABLE lost_index (id int PRIMARY KEY, code int NOT NULL);"
        "CREATE UNIQUE INDEX lost ON lost_index (code);"
        "ALTER TABLE lost_index REPLICA IDENTITY USING INDEX lost; DROP INDEX lost",
        "no replica identity",
    ),
    "timed": (  # Debezium reads the large value by the primary key, not by the replica identity
        "CREATE TABLE timed (at time PRIMARY KEY, code int NOT NULL UNIQUE, note text);"
        "ALTER TABLE timed REPLICA IDENTITY USING INDEX timed_code_key",
        "would be lost: note",
    ),
    "keyless": ("CREATE TABLE keyless (id int)", "no replica identity.*no primary key"),
    "keyless_full": (
        "CREATE TABLE keyless_full (id int NOT NULL); ALTER TABLE keyless_full REPLICA IDENTITY FULL",
        "no primary key",
    ),
    "partial": (
        "CREATE TABLE partial (id int NOT NULL); CREATE UNIQUE INDEX ON partial (id) WHERE id > 0;"
        "CREATE UNIQUE INDEX ON partial ((id + 1)); ALTER TABLE partial REPLICA IDENTITY FULL",
        "no primary key",
    ),
    "list_key": (
        "CREATE TABLE list_key (id int[] PRIMARY KEY)",
        "may arrive as one, by the type of key column id",
    ),
    "bit_key": (
        "CREATE TABLE bit_key (id int, b bit varying(9), PRIMARY KEY (id, b))",
        "may arrive as one, by the type of key column b",
    ),
    "bookings": (
        "CREATE TABLE bookings (room int4range, during daterange, PRIMARY KEY (room, during WITHOUT OVERLAPS))",
        "no primary key",
    ),
    "parts": (
        "CREATE TABLE parts (id int, day int) PARTITION BY LIST (day);"
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);"
        "ALTER TABLE parts REPLICA IDENTITY FULL; ALTER TABLE parts_1 REPLICA IDENTITY FULL",
        "created later.*no primary key",
    ),
    "parts_1": ("", "a partition of parts, whose capture has its rows"),
    "volatile": (
        "CREATE TABLE volatile (id int PRIMARY KEY) PARTITION BY LIST (id);"
        "CREATE UNLOGGED TABLE volatile_1 PARTITION OF volatile FOR VALUES IN (1)",
        "unlogged",
    ),
    "parent": (
        "CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)",
        r"child tables \(INHERITS\)",
    ),
    "mixed": (
        "CREATE FOREIGN DATA WRAPPER far; CREATE SERVER files FOREIGN DATA WRAPPER far;"
        "CREATE TABLE mixed (id int, day int) PARTITION BY LIST (day);"
        "CREATE FOREIGN TABLE mixed_far PARTITION OF mixed FOR VALUES IN (1) SERVER files",
        "foreign partitions.*mixed_far",
    ),
    "mixed_far": ("", "a partition of mixed"),
    "seen": ("CREATE VIEW seen AS SELECT 1 AS id", "a view: changes of it cannot"),
    "kept": ("CREATE MATERIALIZED VIEW kept AS SELECT 1 AS id", "a materialized view"),
    "pg_catalog.pg_class": ("", "a table of the system"),
    "x" * 64: (f"CREATE TABLE {'x' * 63} (id int PRIMARY KEY)", "there is no such table"),
    "y" * 5000: ("", "there is no such table"),
    "ö" * 32: ("", "there is no such table"),
    "made": (
        "CREATE TABLE made (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED,"
        " virtual int GENERATED ALWAYS AS (id * 3) VIRTUAL)",
        r"not supported .*twice \(generated\), virtual \(generated\)",
    ),
    "made_key": (
        "CREATE TABLE made_key (id int, k int GENERATED ALWAYS AS (id * 2) STORED PRIMARY KEY)",
        r"k \(generated\)",
    ),
    "digits": (
        "CREATE DOMAIN one AS numeric(3,5); CREATE DOMAIN two AS one;"
        "CREATE TABLE digits (id int PRIMARY KEY, small numeric(3,5), nested two, coarse numeric(5,-2), list numeric(3,5)[], wide numeric(60,5))",
        r"small \(numeric\(3,5\)\), nested \(two\), coarse \(numeric\(5,-2\)\), list .*wide",
    ),
    "types": (
        "CREATE TYPE vector AS (x int); CREATE TYPE pair AS (a int); CREATE DOMAIN word AS text;"
        "CREATE TABLE types (id int PRIMARY KEY, v vector, p pair, words word[], grid int[][], many int4multirange,"
        " c circle, mark xid, n name, clocks time[], exact time(6)[])",
        "v .*p .*words .*grid .*many .*c .*mark .*n .*clocks .*exact ",
    ),
    "namesake": (  # of the type vector above
        "CREATE SCHEMA elsewhere; CREATE EXTENSION vector SCHEMA elsewhere;"
        "CREATE TABLE namesake (id int PRIMARY KEY, v elsewhere.vector(3))",
        r"v \(elsewhere.vector\(3\)\)",
    ),
    "reserved": (
        "CREATE TABLE reserved (id int PRIMARY KEY, __op text, __deleted text, __LSN text, _hoodie_is_deleted bool,"
        " __source_ts_ms int, __name text, __note text)",
        "__op.*__deleted.*__lsn.*_hoodie_is_deleted.*__source_ts_ms.*__name",
    ),
    "cases": ('CREATE TABLE cases (id int PRIMARY KEY, "Name" text, name text)', "in case only"),
    "signs": ('CREATE TABLE signs (id int PRIMARY KEY, "Preis €" int)', "Preis €"),
    "größe": ('CREATE TABLE "größe" (id int PRIMARY KEY)', "größe"),
}
# {table: statement}; --key and --exclude of the tables that need them are in OPTIONS
ACCEPTED = {
    "by_index": """CREATE TABLE by_index (id int PRIMARY KEY, code int NOT NULL, note text, UNIQUE (code));
        ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_code_key;
        INSERT INTO by_index SELECT 10 - n, 110 - n, 'old' FROM generate_series(1, 9) n""",
    # points without finite coordinates; a null beside an integer that a double cannot hold
    "full_row": """CREATE TABLE full_row (id int PRIMARY KEY, doc json, spot point, big bigint, bigs bigint[],
            clocks time(3)[], note text);
        ALTER TABLE full_row REPLICA IDENTITY FULL;
        INSERT INTO full_row SELECT 10 - n, '{}', (ARRAY[point('Infinity', 1), NULL, point('-Infinity', 'NaN'),
            point(1e100, -0.1), point(1, 1)])[1 + n % 5], nullif(9223372036854775800 + n % 8, 9223372036854775803),
            ARRAY[9223372036854775807 - n, NULL], ARRAY['10:00:00.123', NULL]::time[], 'old' FROM generate_series(1, 9) n""",
    "included": """CREATE TABLE included (id int, note text, PRIMARY KEY (id) INCLUDE (note));
        INSERT INTO included SELECT 10 - n, 'old' FROM generate_series(1, 9) n""",
    "child": "INSERT INTO child SELECT 10 - n FROM generate_series(1, 9) n; ALTER TABLE child ADD note text",
    "typed": """CREATE TYPE row_type AS (id int, note text); CREATE TABLE typed OF row_type (PRIMARY KEY (id));
        INSERT INTO typed SELECT 10 - n, 'old' FROM generate_series(1, 9) n""",
    "tree": """CREATE TABLE tree (id int, half int, note text, PRIMARY KEY (id, half)) PARTITION BY LIST (half);
        CREATE TABLE tree_0 PARTITION OF tree FOR VALUES IN (0);
        CREATE TABLE tree_1 PARTITION OF tree FOR VALUES IN (1) PARTITION BY HASH (id);
        CREATE TABLE tree_1_0 PARTITION OF tree_1 FOR VALUES WITH (MODULUS 1, REMAINDER 0);
        INSERT INTO tree SELECT 10 - n, n % 2, 'old' FROM generate_series(1, 9) n""",
    "domains": """CREATE DOMAIN price AS numeric(8,2); CREATE DOMAIN net AS price CHECK (VALUE > 0);
        CREATE DOMAIN tags AS text[]; CREATE DOMAIN number AS int; CREATE DOMAIN serial_number AS number;
        CREATE TABLE domains (id serial_number PRIMARY KEY, amount net, words tags, code char(5), note text,
            took interval day to second, pause interval second(0));
        INSERT INTO domains SELECT 10 - n, n, ARRAY['a', NULL], 'x', 'old', '1 day 2:03:04.5', '4.5 s'
        FROM generate_series(1, 9) n""",
}
# its key has no arithmetic
NUMBERED = """CREATE TABLE numbered (id oid PRIMARY KEY, note text);
    INSERT INTO numbered VALUES (1, 'a'), (4294967295, 'b')"""


@pytest.fixture(scope="module")
def bikes(world):
    with own_help.postgres_server(world, PORT) as changed:
        at = changed.source("bikes")
        for statement, _ in REFUSED.values():
            postgres.execute(at, statement or "SELECT 1")
        for statement in (*ACCEPTED.values(), NUMBERED):
            postgres.execute(at, statement)
        yield changed
        for name in own.names(changed):
            own.forget(changed, name)


def qualified(name):
    return name if "." in name else f"public.{name}"


def test_the_check_refuses_and_so_does_capture(bikes):
    names = [qualified(name) for name in REFUSED]
    report = readiness.check(bikes, "bikes", names)
    found = report.obstacles.set_index("item")["problem"]
    unequal = {}
    for name, (_, problem) in REFUSED.items():
        text = found.get(f"table {qualified(name)}", "")
        if not re.search(f"(?s){problem}", text):
            unequal[name[:70]] = text
    assert unequal == {}
    for name in REFUSED:
        with pytest.raises(SourceError, match="table ") as error:
            own.capture(bikes, "bikes", name)
        assert (
            error.value.message == f"table {qualified(name)}: {found[f'table {qualified(name)}']}"
        )
    assert "__note" not in found["table public.reserved"]
    assert "would be lost" not in found["table public.types"], "columns that cannot be captured"
    key = "-- give the table a key without k, then name its columns: "
    steps = report.obstacles.set_index("item")["statements"]
    assert steps["table public.made_key"][-1].startswith(key)
    assert steps["table public.seen"] == [readiness.CORRECT_NAME]
    assert not own.folder("bikes").exists()
    rest = readiness.check(bikes, "bikes", [qualified(name) for name in ACCEPTED])
    assert rest.obstacles.values.tolist() == []


def test_accepted_kinds_arrive(bikes):
    at = bikes.source("bikes")
    own.capture(bikes, "bikes", *ACCEPTED, "numbered")
    with own_help.login(PORT, "bikes") as application:
        for table in ACCEPTED:
            key = "code" if table == "by_index" else "id"
            for statement in (
                f"UPDATE {table} SET note = 'new' WHERE id < 4",
                f"DELETE FROM {table} WHERE id = 5",
                f"UPDATE {table} SET {key} = {key} + 1",
                f"UPDATE {table} SET {key} = {key} + 500 WHERE id > 6",
            ):
                application.execute(statement)
    own.follow(bikes, "bikes")
    own.compare(bikes, "bikes")
    results = {result.table: result.is_equal for result in operate.reconcile(bikes, "bikes")}
    assert results == dict.fromkeys([*ACCEPTED, "numbered"], True)
    flow = own.load(bikes, "bikes")
    for table in ACCEPTED:
        base = flow.table(bikes, table).base
        lake = HudiTableBuilder.from_base_uri(base).build().read()
        rows = [row for batch in lake for row in batch.select(["id", "note"]).to_pylist()]
        source = postgres.query(at, f"SELECT id, note FROM {table}")  # noqa: S608
        expected = [{"id": row.id, "note": row.note} for row in source.itertuples()]
        by_id = lambda row: row["id"]  # noqa: E731
        assert sorted(rows, key=by_id) == sorted(expected, key=by_id), table
    postgres.execute(
        at, "DROP TABLE included; CREATE TABLE included (id int PRIMARY KEY, note text)"
    )
    for command in (own.follow, own.compare):
        with pytest.raises(SourceError, match="(?s)created anew.*public.included.*recapture bikes"):
            command(bikes, "bikes")
    [observation] = operate.Watcher(bikes, "bikes").observe()
    [replaced] = [each for each in observation.problems if each.kind == "table_replaced"]
    assert "public.included was dropped" in replaced.text and "workbench recapture" in replaced.step
    own.recapture(bikes, "bikes")
    own.follow(bikes, "bikes")
