"""The source database on a real PostgreSQL: loader, outbox triggers, publication, privileges,
slots."""

import datetime
import decimal
import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import pq, sql
from workbench import connect
from workbench.base import paths
from workbench.base.errors import CheckFailed, SourceError
from workbench.base.wait import wait_until
from workbench.checks import check
from workbench.source import postgres
from workbench.source.row_files import read_dicts
from workbench.tracks import northwind
from worlds import with_settings

CHANGES = northwind.DATA / "changes"
DIGESTS = [
    "7cc95e23c0ce6537cd831da152878259",
    "cf89a48f662eeb188795ea9ac5a908ff",
    "1564b79d44835e8949959bff23eaddad",
    "513f0c970de8a55969fe50b1d7291759",
]  # of orders, order_details, products, customers


def yes(_question):
    return True


def silent(_message):
    pass


def count(world, table):
    query = sql.SQL("SELECT count(*) AS n FROM {}").format(postgres.identifier(table))
    return postgres.query(world, query)["n"][0]


def schemas(world):
    return set(postgres.query(world, "SELECT nspname FROM pg_namespace")["nspname"])


@pytest.fixture(scope="module")
def database(world):
    """A world like `world`, with a database of its own, so that other tests' data stay."""
    own = with_settings(
        world, postgres={"database": "test_sources"}, connect={"topic_prefix": "test_sources"}
    )
    postgres.create_database(own)
    yield own
    northwind.loader.unload(own)
    postgres.execute(own, "DROP DATABASE test_sources WITH (FORCE)", database="postgres")


@pytest.fixture
def empty(database):
    northwind.loader.unload(database)
    for name in set(postgres.publications(database)["publication"]):
        postgres.drop_publication(database, name)
    return database


@pytest.fixture
def loaded(empty):
    northwind.loader.load(empty, confirm=yes, progress=silent)
    return empty


def test_loads_and_says_so(empty):
    said = []
    counts = northwind.loader.load(empty, confirm=yes, progress=said.append)
    assert counts == {"orders": 829, "order_details": 2152, "cdc_events": 829}
    assert [m.split(":")[0] for m in said] == ["connection created", "tables loaded"]
    # a new session finds the tables without naming the schema
    shipped = postgres.query(empty, "SELECT shipped_date FROM cdc_events WHERE order_id = 11077")[
        "shipped_date"
    ]
    assert shipped[0] is None
    assert count(empty, "orders") == 829
    assert postgres.query(empty, "SELECT 1 FROM orders WHERE order_id = 11075").empty


def test_outbox_holds_what_the_tables_hold(loaded):
    """Each item of the outbox against its detail row, both ways."""
    different = postgres.query(
        loaded,
        """
        WITH items AS (SELECT order_id, (i->>'product_id')::int AS product_id, (i->>'unit_price')::real AS unit_price,
                              (i->>'quantity')::int AS quantity, (i->>'discount')::real AS discount
                       FROM cdc_events, jsonb_array_elements(order_items) i),
             details AS (SELECT order_id, product_id::int, unit_price, quantity::int, discount FROM order_details)
        (SELECT * FROM items EXCEPT SELECT * FROM details) UNION ALL (SELECT * FROM details EXCEPT SELECT * FROM items)
        """,
    )
    assert different.empty
    assert postgres.query(
        loaded,
        """SELECT order_id FROM cdc_events JOIN orders USING (order_id)
        WHERE cdc_events.freight::real <> orders.freight
        OR jsonb_array_length(products) <> jsonb_array_length(order_items)""",
    ).empty


def test_second_load_is_refused(loaded):
    with pytest.raises(SourceError, match="Start clean"):
        northwind.loader.load(loaded, confirm=yes, progress=silent)
    assert count(loaded, "cdc_events") == 829


@pytest.mark.parametrize(
    "script, line",
    [
        ("03_cdc_events.sql", "\n\nSELECT 1;\nSELECT no_such_column\nFROM orders;"),
        ("01_northwind_ddl.sql", "CREATE TABLE x (\n    y no_such_type\n);"),
    ],
)
def test_broken_script_rolls_back(empty, tmp_path, monkeypatch, script, line):
    shutil.copytree(northwind.DATA, tmp_path / "northwind")
    broken = tmp_path / "northwind" / script
    text = broken.read_text(encoding="utf-8")
    broken.write_text(text + line, encoding="utf-8")
    at = 1 + (text + line).count("\n", 0, (text + line).index("no_such"))
    monkeypatch.setattr(northwind, "DATA", tmp_path / "northwind")
    with pytest.raises(SourceError, match=f"{script}, line {at}:"):
        northwind.loader.load(empty, confirm=yes, progress=silent)
    assert "datalake" not in schemas(empty)
    path = postgres.query(empty, "SELECT current_setting('search_path') AS p")["p"][0]
    assert "datalake" not in path, "the database's search_path is rolled back, too"


def test_missing_script_rolls_back(empty, tmp_path, monkeypatch):
    shutil.copytree(northwind.DATA, tmp_path / "northwind")
    (tmp_path / "northwind" / "03_cdc_events.sql").unlink()
    monkeypatch.setattr(northwind, "DATA", tmp_path / "northwind")
    with pytest.raises(SourceError, match="03_cdc_events.sql"):
        northwind.loader.load(empty, confirm=yes, progress=silent)
    assert "datalake" not in schemas(empty)


def test_scale(empty):
    """Each repetition has the orders, and their details, under higher ids."""
    assert northwind.loader.load(empty, scale=3, confirm=yes, progress=silent) == {
        "orders": 2487,
        "order_details": 6456,
        "cdc_events": 2487,
    }
    for table, count in (("orders", 829), ("order_details", 2152)):
        rows = f"""SELECT to_jsonb(t) - 'order_id' AS row, (order_id - 10248) / 830 AS n,
            (order_id - 10248) % 830 AS number FROM {table} t"""
        different = postgres.query(
            empty,
            f"""SELECT row, number FROM ({rows}) r GROUP BY 1, 2
            HAVING array_agg(n ORDER BY n) <> '{{0,1,2}}'""",
        )
        assert different.empty and count * 3 == len(postgres.query(empty, rows))


def test_same_rows_every_time(loaded):
    """Rows may change only on purpose: readers keep charts and figures made of them."""
    digests = [
        postgres.query(
            loaded, f"SELECT md5(string_agg(t::text, chr(10) ORDER BY t)) AS digest FROM {name} t"
        ).loc[0, "digest"]
        for name in ("orders", "order_details", "products", "customers")
    ]
    assert digests == DIGESTS


# --- the public dump
# -------------------------------------------------------------------------------------------------


# the public dump is no part of this repository: NORTHWIND_DIR names a folder that holds its
# northwind.sql
@pytest.mark.skipif(
    "NORTHWIND_DIR" not in os.environ,
    reason="NORTHWIND_DIR does not name a folder with northwind.sql",
)
def test_public_dump(empty):
    counts = northwind.loader.load(
        empty, from_dir=os.environ["NORTHWIND_DIR"], confirm=yes, progress=silent
    )
    assert counts == {"orders": 829, "order_details": 2152, "cdc_events": 829}
    assert northwind.loader.loaded_from(empty) == os.path.abspath(os.environ["NORTHWIND_DIR"])
    assert postgres.query(empty, "SELECT * FROM orders WHERE order_id = 11075").empty
    types = postgres.query(
        empty,
        """SELECT DISTINCT data_type FROM information_schema.columns
        WHERE column_name = 'order_id' AND table_schema = 'datalake' AND table_name IN ('orders', 'order_details')""",
    )
    assert list(types["data_type"]) == ["integer"], "like the generated tables"
    for change in sorted(CHANGES.glob("*.sql")):
        postgres.execute(empty, change.read_text(encoding="utf-8"))
    assert count(empty, "cdc_events") == 830 and count(empty, "order_details") == 2155


# tables as the public dump makes them: its columns in its order, smallint keys, constraints added
# after the rows
DUMP_TABLES = {
    "categories": "category_id smallint NOT NULL, category_name character varying(15) NOT NULL, description text, "
    "picture bytea",
    "customers": "customer_id character varying(5) NOT NULL, company_name character varying(40) NOT NULL, "
    "contact_name character varying(30), contact_title character varying(30), "
    "address character varying(60), city character varying(15), region character varying(15), "
    "postal_code character varying(10), country character varying(15), phone character varying(24), "
    "fax character varying(24)",
    "employees": "employee_id smallint NOT NULL, last_name character varying(20) NOT NULL, "
    "first_name character varying(10) NOT NULL, title character varying(30), "
    "title_of_courtesy character varying(25), birth_date date, hire_date date, "
    "address character varying(60), city character varying(15), region character varying(15), "
    "postal_code character varying(10), country character varying(15), home_phone character varying(24), "
    "extension character varying(4), photo bytea, notes text, reports_to smallint, "
    "photo_path character varying(255)",
    "employee_territories": "employee_id smallint NOT NULL, territory_id character varying(20) NOT NULL",
    "order_details": "order_id smallint NOT NULL, product_id smallint NOT NULL, unit_price real NOT NULL, "
    "quantity smallint NOT NULL, discount real NOT NULL",
    "orders": "order_id smallint NOT NULL, customer_id character varying(5), employee_id smallint, order_date date, "
    "required_date date, shipped_date date, ship_via smallint, freight real, "
    "ship_name character varying(40), ship_address character varying(60), ship_city character varying(15), "
    "ship_region character varying(15), ship_postal_code character varying(10), "
    "ship_country character varying(15)",
    "products": "product_id smallint NOT NULL, product_name character varying(40) NOT NULL, supplier_id smallint, "
    "category_id smallint, quantity_per_unit character varying(20), unit_price real, "
    "units_in_stock smallint, units_on_order smallint, reorder_level smallint, "
    "discontinued integer NOT NULL",
    "region": "region_id smallint NOT NULL, region_description character varying(60) NOT NULL",
    "shippers": "shipper_id smallint NOT NULL, company_name character varying(40) NOT NULL, "
    "phone character varying(24)",
    "suppliers": "supplier_id smallint NOT NULL, company_name character varying(40) NOT NULL, "
    "contact_name character varying(30), contact_title character varying(30), "
    "address character varying(60), city character varying(15), region character varying(15), "
    "postal_code character varying(10), country character varying(15), phone character varying(24), "
    "fax character varying(24), homepage text",
    "territories": "territory_id character varying(20) NOT NULL, territory_description character varying(60) "
    "NOT NULL, region_id smallint NOT NULL",
}
DUMP_KEYS = {
    "employee_territories": ("employee_id", "territory_id"),
    "order_details": ("order_id", "product_id"),
    **{
        table: (columns.split()[0],)
        for table, columns in DUMP_TABLES.items()
        if table not in ("employee_territories", "order_details")
    },
}


def literal(value):
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'"


def write_dump(folder):
    """Write generated data as a northwind.sql in the public dump's style: 830 orders, 11075 among
    them."""
    text = [
        "--\n-- PostgreSQL database dump\n--",
        "SET statement_timeout = 0;",
        "SET client_encoding = 'UTF8';",
        "SET standard_conforming_strings = on;",
        "SET default_tablespace = '';",
    ]
    text += [f"DROP TABLE IF EXISTS {name};" for name in DUMP_TABLES]
    for name, columns in DUMP_TABLES.items():
        lines = re.split(r", (?=\w+ )", columns)
        text.append(
            f"--\n-- Name: {name}; Type: TABLE; Schema: public; Owner: -; Tablespace: \n--\n\n"
            f"CREATE TABLE {name} (\n    " + ",\n    ".join(lines) + "\n);"
        )
    for name, columns in DUMP_TABLES.items():
        order = [column.split()[0] for column in re.split(r", (?=\w+ )", columns)]
        for row in read_dicts(northwind.DATA / f"{name}.csv"):
            values = ", ".join(literal(row.get(column) or None) for column in order)
            text.append(f"INSERT INTO {name} VALUES ({values});")
    text.append(
        (CHANGES / "02_insert_11075.sql")
        .read_text(encoding="utf-8")
        .replace("BEGIN;", "")
        .replace("COMMIT;", "")
    )
    text += [
        f"ALTER TABLE ONLY {name}\n    ADD CONSTRAINT pk_{name} PRIMARY KEY ({', '.join(columns)});"
        for name, columns in DUMP_KEYS.items()
    ]
    for table, column, other in (
        ("orders", "customer_id", "customers"),
        ("order_details", "order_id", "orders"),
        ("order_details", "product_id", "products"),
    ):
        text.append(
            f"ALTER TABLE ONLY {table}\n    ADD CONSTRAINT fk_{table}_{other} FOREIGN KEY ({column}) "
            f"REFERENCES {other};"
        )
    (folder / "northwind.sql").write_text("\n\n".join(text) + "\n", encoding="utf-8")


def test_a_dump_gives_what_generated_data_give(empty, tmp_path):
    """from_dir, without the public file: the same rows through CREATE TABLE, INSERT and ALTER TABLE
    statements."""
    queries = {
        "orders": "SELECT * FROM orders",
        "order_details": "SELECT * FROM order_details",
        "cdc_events": "SELECT * FROM cdc_events",
        "columns": """SELECT table_name, column_name, data_type FROM information_schema.columns
                   WHERE table_schema = 'datalake' AND table_name IN ('orders', 'order_details', 'cdc_events')""",
    }
    keys = {
        "orders": "order_id",
        "order_details": ["order_id", "product_id"],
        "cdc_events": "order_id",
        "columns": ["table_name", "column_name"],
    }
    said = northwind.loader.load(empty, confirm=yes, progress=silent)
    generated = {name: postgres.query(empty, query) for name, query in queries.items()}
    northwind.loader.unload(empty)
    write_dump(tmp_path)
    dump = (tmp_path / "northwind.sql").read_text(encoding="utf-8")
    northwind.loader.validate(empty, from_dir=str(tmp_path))
    assert not {"datalake", "datalake_trial"} & set(schemas(empty)), "looking leaves nothing"
    assert dump.count("INSERT INTO orders VALUES") == 830 and "(11075," in dump
    assert (
        northwind.loader.load(empty, from_dir=str(tmp_path), confirm=yes, progress=silent) == said
    )
    for name, query in queries.items():
        check.same_rows(
            generated[name],
            postgres.query(empty, query),
            key=keys[name],
            claim=f"{name} of the dump",
        )
    for change in sorted(CHANGES.glob("*.sql")):
        postgres.execute(empty, change.read_text(encoding="utf-8"))
    assert count(empty, "cdc_events") == 830 and count(empty, "order_details") == 2155


MINIMAL = "CREATE TABLE orders (\n  order_id smallint PRIMARY KEY);\n"


@pytest.mark.parametrize(
    "text, says",
    [
        (MINIMAL + "INSERT INTO orders VALUES (1);\nINSERT INTO orders VALUES ('x');\n", "line 4"),
        (MINIMAL + "COMMIT;\n", "line 3"),
        (MINIMAL + "\\connect other\n", "line 3"),
        (MINIMAL + "COPY orders FROM PROGRAM 'id';\n", "line 3"),
        (MINIMAL, "02_public_dump.sql, line"),  # a dump of something else
    ],
)
def test_broken_dump_rolls_back(empty, tmp_path, text, says):
    (tmp_path / "northwind.sql").write_text(text, encoding="utf-8")
    for judge in (northwind.loader.load, northwind.loader.validate):
        more = {"confirm": yes, "progress": silent} if judge == northwind.loader.load else {}
        with pytest.raises(SourceError, match=says):
            judge(empty, from_dir=str(tmp_path), **more)
        assert not {"datalake", "datalake_trial"} & set(schemas(empty))


def test_dump_drops_nothing_outside_its_schema(empty, tmp_path):
    postgres.execute(empty, "CREATE TABLE public.customers (id int)")
    try:
        (tmp_path / "northwind.sql").write_text(
            "DROP TABLE IF EXISTS customers;\n" + MINIMAL, encoding="utf-8"
        )
        with pytest.raises(SourceError):
            northwind.loader.load(empty, from_dir=str(tmp_path), confirm=yes, progress=silent)
        assert count(empty, "public.customers") == 0
    finally:
        postgres.execute(empty, "DROP TABLE public.customers")


# --- what the triggers write
# -----------------------------------------------------------------------------------------


@pytest.fixture
def changes(loaded):
    """Return a function that reads, through pgoutput as Debezium does, the outbox's changes since
    its last call."""
    name = "test_sources_decoding"
    postgres.create_publication(loaded, name, ["datalake.cdc_events"])
    with postgres.connect(loaded) as c:
        c.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
        query = """SELECT data FROM pg_logical_slot_get_binary_changes(
                       %s, NULL, NULL, 'proto_version', '1', 'publication_names', %s)"""
        yield lambda: [
            event(d)
            for (d,) in c.execute(query, [name, name]).fetchall()
            if d[:1] in (b"I", b"U", b"D")
        ]
    postgres.drop_slot(loaded, name)


def event(message):
    """Decode one insert, update or delete of pgoutput: (kind, values of the new row). UNCHANGED
    stands for a value that PostgreSQL does not send (PostgreSQL manual, "Logical Replication
    Message Formats")."""
    kind, tuples, at = chr(message[0]), {}, 5
    while at < len(message):
        which, columns, at = (
            chr(message[at]),
            int.from_bytes(message[at + 1 : at + 3], "big"),
            at + 3,
        )
        values = []
        for _ in range(columns):
            tag, at = chr(message[at]), at + 1
            if tag == "t":
                size = int.from_bytes(message[at : at + 4], "big")
                values.append(message[at + 4 : at + 4 + size].decode())
                at += 4 + size
            else:
                values.append({"n": None, "u": "UNCHANGED"}[tag])
        tuples[which] = values
    return kind, tuples.get("N")


def kinds(events):
    return "".join(kind for kind, _ in events)


def items(event):
    """How many items and products an event holds; None for NULL."""
    order_items, products = event[1][-2:]
    assert (order_items is None) == (products is None)
    if order_items is None:
        return None
    assert len(json.loads(order_items)) == len(json.loads(products))
    return len(json.loads(order_items))


def test_one_statement_with_many_rows_gives_an_event_per_row(loaded, changes):
    postgres.execute(
        loaded,
        """BEGIN; INSERT INTO orders (order_id, customer_id) VALUES (20000, 'RICSU');
        INSERT INTO order_details VALUES (20000, 1, 1, 1, 0), (20000, 2, 1, 1, 0), (20000, 3, 1, 1, 0); COMMIT""",
    )
    events = changes()
    assert kinds(events) == "IUUU" and [items(e) for e in events] == [None, 3, 3, 3]


def test_detail_moved_to_another_order_rebuilds_both(loaded, changes):
    postgres.execute(loaded, "INSERT INTO orders (order_id, customer_id) VALUES (20001, 'RICSU')")
    postgres.execute(
        loaded,
        """UPDATE order_details SET order_id = 20001
        WHERE (order_id, product_id) = (SELECT order_id, min(product_id) FROM order_details
                                        WHERE order_id = 11077 GROUP BY 1)""",
    )
    assert [items(e) for e in changes()] == [None, 24, 1]


def test_works_with_any_search_path(loaded):
    with postgres.connect(loaded) as c:
        c.execute("SET search_path TO public")
        c.execute("UPDATE datalake.orders SET freight = 1.005 WHERE order_id = 10248")
    assert postgres.query(loaded, "SELECT freight FROM cdc_events WHERE order_id = 10248")[
        "freight"
    ][0] in (1.0, 1.01)


def add_in_two_transactions(world, level=psycopg.IsolationLevel.READ_COMMITTED):
    """Add products 1 and 2 to the new order 20002, in transactions of which the second begins
    before the first ends.

    Returns what the second one ended with: None, or psycopg's error.
    """
    detail = "INSERT INTO order_details VALUES (20002, %s, 1, 1, 0)"
    postgres.execute(world, "INSERT INTO orders (order_id, customer_id) VALUES (20002, 'RICSU')")
    with (
        ThreadPoolExecutor(1) as pool,
        postgres.connect(world) as first,
        postgres.connect(world) as second,
    ):
        second.isolation_level = level
        pid = second.info.backend_pid
        with first.transaction():
            first.execute(detail, [1])

            def add():
                with second.transaction():
                    second.execute(detail, [2])

            waiting = pool.submit(add)
            wait_until(
                lambda: postgres.query(
                    world, "SELECT cardinality(pg_blocking_pids(%s)) AS n", [pid]
                )["n"][0],
                "the second transaction to wait for the first",
                timeout=20,
            )
        return waiting.exception(20)


def products_of(world, order_id):
    rows = postgres.query(
        world, "SELECT order_items FROM cdc_events WHERE order_id = %s", [order_id]
    )
    return [item["product_id"] for item in rows["order_items"][0]]


def test_details_added_by_two_transactions_at_once_are_both_in_the_outbox(loaded):
    assert add_in_two_transactions(loaded) is None
    assert products_of(loaded, 20002) == [1, 2]


def test_a_transaction_that_may_not_see_the_other_ones_detail_is_refused(loaded):
    refused = add_in_two_transactions(loaded, psycopg.IsolationLevel.REPEATABLE_READ)
    assert isinstance(refused, psycopg.errors.SerializationFailure)
    assert products_of(loaded, 20002) == [1]


def test_one_statement_may_change_more_orders_than_the_lock_table_holds(loaded):
    postgres.execute(
        loaded,
        """INSERT INTO orders (order_id, customer_id)
        SELECT n, 'RICSU' FROM generate_series(100001, 116500) AS n""",
    )
    assert count(loaded, "cdc_events") == 829 + 16_500


# --- publication, privileges, slots
# ----------------------------------------------------------------------------------


def test_publication_of_listed_tables(loaded):
    tables = ["datalake.cdc_events", "datalake.orders", "order_details"]
    postgres.create_publication(loaded, "cdc_publication", tables)
    postgres.create_publication(loaded, "cdc_publication", tables)
    shown = postgres.publications(loaded)
    assert list(shown["table"]) == [
        "datalake.cdc_events",
        "datalake.order_details",
        "datalake.orders",
    ]
    assert not shown["all_tables"].any()
    assert list(shown["identity"]) == ["full row", "primary key", "primary key"]
    postgres.create_publication(loaded, "cdc_publication", ["datalake.cdc_events"])
    assert list(postgres.publications(loaded)["table"]) == ["datalake.cdc_events"]


def test_publication_refuses_a_table_without_identity(loaded):
    postgres.execute(loaded, "CREATE TABLE datalake.keyless (x int)")
    with pytest.raises(SourceError, match="datalake.keyless has neither"):
        postgres.create_publication(loaded, "p", ["datalake.cdc_events", "datalake.keyless"])
    assert postgres.publications(loaded).empty
    postgres.execute(loaded, "ALTER TABLE datalake.keyless REPLICA IDENTITY FULL")
    postgres.create_publication(loaded, "p", ["datalake.keyless"])


def test_publication_refuses_columns_that_debezium_does_not_carry(loaded):
    postgres.execute(
        loaded,
        """
        CREATE TYPE datalake.mood AS ENUM ('a');
        CREATE DOMAIN datalake.pos AS int; CREATE DOMAIN datalake.list AS int[];
        CREATE DOMAIN datalake.moody AS datalake.mood;
        CREATE TABLE datalake.odd (id int PRIMARY KEY, area circle, twice int GENERATED ALWAYS AS (id * 2) STORED,
            grid int[][], spans interval[], flags bit(3)[], poss datalake.pos[], pair datalake.orders, who name,
            d datalake.moody, ok datalake.mood, oks datalake.mood[], pos datalake.pos, list datalake.list, texts text[],
            b bit(3), m money, n numeric(5,2)[], t timestamptz(3), v varchar(3)[])""",
    )
    with pytest.raises(
        SourceError, match=r"does not support datalake.odd.area \(circle\), datalake.odd.twice \("
    ) as e:
        postgres.create_publication(loaded, "p", ["datalake.cdc_events", "datalake.odd"])
    said = str(e.value).splitlines()[0].split("support ")[1].split(", ")
    assert [each.split(" ")[0].split(".")[-1] for each in said] == [
        "area",
        "twice",
        "grid",
        "spans",
        "flags",
        "poss",
        "pair",
        "who",
        "d",
    ]
    left_out = [each.split(" ")[0] for each in said]
    assert str(e.value).endswith("excluded_columns=" + json.dumps(left_out)), "the argument to copy"
    with pytest.raises(SourceError, match="area") as e:
        postgres.create_publication(loaded, "p", ["datalake.odd"], excluded_columns=left_out[1:])
    assert str(e.value).endswith("excluded_columns=" + json.dumps(left_out[1:] + left_out[:1])), (
        "what was named stays so"
    )
    postgres.create_publication(loaded, "p", ["datalake.odd"], excluded_columns=left_out)
    postgres.drop_publication(loaded, "p")
    postgres.execute(
        loaded,
        "DROP TABLE datalake.odd; DROP DOMAIN datalake.moody, datalake.pos, datalake.list; "
        "DROP TYPE datalake.mood",
    )


@pytest.mark.parametrize(
    "tables", [[], "datalake.cdc_events", ["datalake.nothing"], ["datalake.order_documents"]]
)
def test_publication_refuses_other_lists(loaded, tables):
    with pytest.raises(SourceError):
        postgres.create_publication(loaded, "p", tables)
    assert postgres.publications(loaded).empty


def test_publication_for_all_tables_is_not_adopted(loaded):
    postgres.execute(loaded, "CREATE PUBLICATION everything FOR ALL TABLES")
    try:
        with pytest.raises(SourceError, match="all tables"):
            postgres.create_publication(loaded, "everything", ["datalake.cdc_events"])
    finally:
        postgres.drop_publication(loaded, "everything")


def test_hostile_names(loaded):
    """A name is one identifier, whatever it holds."""
    name = 'x" FOR ALL TABLES; DROP TABLE datalake.orders; --'
    postgres.execute(
        loaded,
        sql.SQL("CREATE TABLE {} (x int PRIMARY KEY)").format(
            sql.Identifier("datalake", name.replace(".", ""))
        ),
    )
    postgres.create_publication(loaded, name, ["datalake." + name.replace(".", "")])
    assert list(postgres.publications(loaded)["publication"]) == [name]
    assert not postgres.publications(loaded)["all_tables"].any() and count(loaded, "orders") == 829
    assert postgres.query(loaded, "SELECT %s AS v", [name])["v"][0] == name
    postgres.drop_publication(loaded, name)
    assert postgres.publications(loaded).empty


def test_replication_role_may_send_heartbeats_where_others_may_not(loaded):
    function = "FUNCTION pg_catalog.pg_logical_emit_message(boolean, text, text)"
    postgres.execute(loaded, f"REVOKE EXECUTE ON {function} FROM PUBLIC")
    heartbeat = connect.config(loaded, "outbox_source")["heartbeat.action.query"]
    try:
        postgres.grant_replication(loaded, ["datalake.cdc_events"])
        with postgres.session(loaded, role="replication") as c:
            assert c.execute(heartbeat).rowcount == 1
    finally:
        postgres.execute(loaded, f"GRANT EXECUTE ON {function} TO PUBLIC")


def test_replication_role_reads_just_its_tables(loaded):
    postgres.grant_replication(loaded, ["datalake.orders"])
    postgres.grant_replication(
        loaded, ["datalake.cdc_events"]
    )  # the list is exact: orders is no longer in it
    with postgres.connect(loaded, role="replication") as c:
        assert c.execute("SELECT count(*) FROM cdc_events").fetchone() == (829,)
        for refused in (
            "SELECT * FROM orders",
            "INSERT INTO cdc_events VALUES (1)",
            "DELETE FROM cdc_events",
            "CREATE TABLE datalake.mine (x int)",
            "SELECT rebuild_cdc_event(1)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                c.execute(refused)
        attributes = c.execute(
            "SELECT rolcanlogin, rolreplication, rolsuper, rolcreaterole, rolcreatedb, rolbypassrls "
            "FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
        assert attributes == (True, True, False, False, False, False)
        owned = c.execute(
            "SELECT count(*) FROM pg_class WHERE relowner = current_user::regrole"
        ).fetchone()
        assert owned == (0,)


def test_a_managed_database_gives_a_role_in_place_of_the_attribute(loaded):
    managed = with_settings(loaded, postgres={"replication_user": "cdc_managed"})
    postgres.execute(loaded, "CREATE ROLE rds_replication")
    try:
        for _ in range(2):
            postgres.grant_replication(managed, ["datalake.cdc_events"])
            facts = postgres.query(
                loaded,
                "SELECT rolreplication, pg_has_role(oid, 'rds_replication', 'member') AS is "
                "FROM pg_roles WHERE rolname = 'cdc_managed'",
            ).iloc[0]
            assert not facts["rolreplication"] and facts["is"]
        assert reads(managed, "SELECT * FROM datalake.cdc_events")
    finally:
        postgres.execute(
            loaded, "DROP OWNED BY cdc_managed; DROP ROLE cdc_managed; DROP ROLE rds_replication"
        )


def reads(world, query, database=None):
    """Whether the connectors' user may run a query."""
    with postgres.connect(world, database, role="replication") as c:
        try:
            return bool(c.execute(query))
        except psycopg.errors.InsufficientPrivilege:
            return False


def test_two_publications_of_a_schema_do_not_disarm_each_other(loaded):
    for name, table in (
        ("test_sources_a", "datalake.cdc_events"),
        ("test_sources_b", "datalake.orders"),
    ):
        postgres.create_publication(loaded, name, [table])
        postgres.grant_replication(loaded, [table])
    tables = ("cdc_events", "orders", "customers")
    assert [reads(loaded, f"SELECT * FROM datalake.{t}") for t in tables] == [True, True, False]
    assert not reads(loaded, "DELETE FROM datalake.cdc_events"), "both are read only"
    postgres.drop_publication(loaded, "test_sources_a")
    postgres.grant_replication(loaded, ["datalake.orders"])
    assert [reads(loaded, f"SELECT * FROM datalake.{t}") for t in tables] == [False, True, False]


def test_somebody_elses_publication_gives_no_rights(loaded):
    postgres.create_publication(loaded, "elses", ["datalake.customers"])
    postgres.execute(loaded, "CREATE PUBLICATION everything FOR ALL TABLES")
    postgres.grant_replication(loaded, ["datalake.orders"])
    postgres.grant_replication(loaded, ["datalake.cdc_events"])
    tables = ("cdc_events", "orders", "customers")
    assert [reads(loaded, f"SELECT * FROM datalake.{t}") for t in tables] == [True, False, False]
    for name in ("elses", "everything"):
        postgres.drop_publication(loaded, name)


def test_reset_leaves_another_walkthrough_of_the_database_alone(loaded):
    postgres.execute(loaded, "CREATE TABLE public.other (id int PRIMARY KEY)")
    postgres.create_publication(loaded, "other", ["public.other"])
    postgres.create_publication(loaded, "shared", ["public.other", "datalake.orders"])
    postgres.grant_replication(loaded, ["public.other"])
    postgres.execute(
        loaded, "SELECT pg_create_logical_replication_slot('test_sources_other', 'pgoutput')"
    )
    northwind.loader.unload(loaded)
    try:
        assert list(postgres.slots(loaded)["slot_name"]) == ["test_sources_other"]
        assert list(postgres.publications(loaded)["publication"]) == ["other", "shared"]
        assert reads(loaded, "SELECT * FROM public.other")
    finally:
        postgres.drop_slot(loaded, "test_sources_other")
        postgres.execute(
            loaded, "DROP TABLE public.other; DROP PUBLICATION IF EXISTS other, shared"
        )


def test_password_is_in_no_server_log(loaded):
    postgres.grant_replication(loaded, ["datalake.cdc_events"])
    logs = "".join(
        p.read_text(errors="replace") for p in (paths.state_dir() / "log").glob("postgres*")
    )
    assert loaded.postgres.replication_password.reveal() not in logs
    stored = postgres.query(
        loaded,
        "SELECT rolpassword FROM pg_authid WHERE rolname = %s",
        [loaded.postgres.replication_user],
    )["rolpassword"][0]
    assert stored.startswith("SCRAM-SHA-256$")


def test_drop_slot_ends_its_reader(loaded):
    """The slot is being read when it is dropped, as by a connector that was just deleted."""
    name = "test_sources_read"
    postgres.create_publication(loaded, name, ["datalake.cdc_events"])
    postgres.execute(loaded, "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
    p = loaded.postgres
    reader = pq.PGconn.connect(
        f"host={p.host} port={p.port} dbname={p.database} user={p.admin_user} "
        f"password={p.admin_password.reveal()} replication=database".encode()
    )
    options = f"(proto_version '1', publication_names '{name}')"
    started = reader.exec_(f"START_REPLICATION SLOT {name} LOGICAL 0/0 {options}".encode())
    assert started.status == pq.ExecStatus.COPY_BOTH and postgres.slots(loaded)["active"].all()
    assert postgres.drop_slot(loaded, name) is True
    reader.finish()
    assert postgres.slots(loaded).empty and postgres.drop_slot(loaded, name) is False


def test_frame_types(loaded):
    row = postgres.query(
        loaded,
        """
        SELECT 1 AS a, NULL::int AS b, 1.50::numeric AS c, 0.5::real AS d, date '1998-05-06' AS e,
               timestamp '1998-05-06 01:02' AS f, '[1]'::jsonb AS g, 'x' AS h, true AS i,
               1 AS a""",
    )
    assert [str(t) for t in row.dtypes] == [
        "int64",
        "Int64",
        "object",
        "float64",
        "object",
        "datetime64[ns]",
        "object",
        "object",
        "bool",
        "int64",
    ]
    assert row.iloc[0, 2] == decimal.Decimal("1.50") and row.iloc[0, 4] == datetime.date(1998, 5, 6)
    assert row.iloc[0, 6] == [1] and list(row.columns)[-1] == "a"
    assert list(
        postgres.query(loaded, "SELECT order_id, ship_city FROM orders WHERE false").columns
    ) == ["order_id", "ship_city"]


def test_frame_takes_what_python_has_no_value_for(world):
    """Year 1 and 9999 in timestamps of microseconds; what Python's calendar or clock does not have,
    as text."""
    df = postgres.query(
        world,
        """
        SELECT * FROM (VALUES
          (timestamp '0001-01-01', timestamptz '9999-12-31 23:59:59.999999+00', date 'infinity', timestamp 'infinity',
           ARRAY[1, NULL], ARRAY[date '0044-03-15 BC', date '0001-01-01'], time '24:00', timestamp '2001-02-03'),
          (timestamp '9999-12-31 23:59:59.999999', NULL, date '9999-12-31', timestamp '0044-03-15 BC',
           NULL, NULL, time '10:00', NULL)) t (a, b, c, d, e, f, g, h)""",
        database="postgres",
    )
    assert [str(t) for t in df.dtypes] == [
        "datetime64[us]",
        "datetime64[us, UTC]",
        *["object"] * 5,
        "datetime64[ns]",
    ]
    last = datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)
    assert [t.to_pydatetime() for t in df["a"]] == [datetime.datetime(1, 1, 1), last]
    assert df["b"][0].to_pydatetime() == last.replace(tzinfo=datetime.timezone.utc)
    assert list(df["c"]) == ["infinity", datetime.date(9999, 12, 31)]
    assert list(df["d"]) == ["infinity", "0044-03-15 00:00:00 BC"]
    assert list(df["e"]) == [[1, None], None] and df["f"][0] == [
        "0044-03-15 BC",
        datetime.date(1, 1, 1),
    ]
    assert list(df["g"]) == ["24:00:00", datetime.time(10)]
    check.same_rows(df, df.copy(), key="g")
    with pytest.raises(CheckFailed, match="lake 0001-01-02"):
        check.same_rows(df, df.assign(a=[datetime.datetime(1, 1, 2), last]), key="g")


def test_addresses_are_the_texts_that_debezium_publishes(world):
    addresses = ["10.0.0.1", "::1/64", "::ffff:1.2.3.4", "::ffff:1.2.3.4/96"]
    values = ", ".join(f"inet '{address}'" for address in addresses)
    statement = f"SELECT ARRAY[{values}] AS list, inet '10.0.0.1' AS a, cidr '10.0.0.0/8' AS b"
    row = postgres.query(world, statement, database="postgres").iloc[0]
    assert list(row) == [addresses, "10.0.0.1", "10.0.0.0/8"]


def test_errors_are_readable(loaded):
    with pytest.raises(SourceError, match="no_such"):
        postgres.query(loaded, "SELECT * FROM no_such")
    with pytest.raises(SourceError, match="returns no rows"):
        postgres.query(loaded, "SET work_mem = '4MB'")
    assert (
        postgres.execute(loaded, "UPDATE orders SET freight = 1 WHERE order_id < %s", [10250]) == 2
    )
    assert "/" in postgres.log_position(loaded)
