"""Pagila on a real PostgreSQL: loader, types, triggers, next ids, the walkthroughs' changes, its
public dump."""

import dataclasses
import os
import time
from pathlib import Path

import psycopg
import pytest
from workbench.base.errors import SourceError
from workbench.display import draw
from workbench.source import loading, postgres, sql_file
from workbench.source.row_files import read_dicts
from workbench.tracks import pagila
from worlds import with_settings

DATABASE = "test_pagila"
COUNTS = {
    "language": 6,
    "category": 16,
    "actor": 200,
    "country": 109,
    "city": 600,
    "address": 603,
    "customer": 599,
    "film": 1000,
    "film_actor": 5462,
    "film_category": 1000,
    "inventory": 4581,
}
S7_TABLES = [
    f"public.{name}"
    for name in ("actor", "film", "film_actor", "category", "film_category", "language")
]
ADDRESS_100_105 = """
    SELECT address_id, address, address2, district, city_id, city, country, postal_code, phone
    FROM address JOIN city USING (city_id) JOIN country USING (country_id)
    WHERE address_id BETWEEN 100 AND 105 OR address_id IN (6, 18, 599) ORDER BY 1"""
STATED = [  # S3, section 2
    (
        6,
        "1121 Loja Avenue",
        "",
        "California",
        449,
        "San Bernardino",
        "United States",
        "17886",
        "838635286649",
    ),
    (
        18,
        "770 Bydgoszcz Avenue",
        "",
        "California",
        120,
        "Citrus Heights",
        "United States",
        "16266",
        "517338314235",
    ),
    (
        100,
        "1308 Arecibo Way",
        "",
        "Georgia",
        41,
        "Augusta-Richmond County",
        "United States",
        "30695",
        "6171054059",
    ),
    (101, "1599 Plock Drive", "", "Tete", 534, "Tete", "Mozambique", "71986", "817248913162"),
    (
        102,
        "669 Firozabad Loop",
        "",
        "Abu Dhabi",
        12,
        "al-Ayn",
        "United Arab Emirates",
        "92265",
        "412903167998",
    ),
    (
        103,
        "588 Vila Velha Manor",
        "",
        "Kyongsangbuk",
        268,
        "Kimchon",
        "South Korea",
        "51540",
        "333339908719",
    ),
    (
        104,
        "1913 Kamakura Place",
        "",
        "Lipetsk",
        238,
        "Jelets",
        "Russian Federation",
        "97287",
        "942570536750",
    ),
    (105, "733 Mandaluyong Place", "", "Asir", 2, "Abha", "Saudi Arabia", "77459", "196568435814"),
    (
        599,
        "1895 Zhezqazghan Drive",
        "",
        "California",
        177,
        "Garden Grove",
        "United States",
        "36693",
        "137809746111",
    ),
]
CHANGES = """
    UPDATE address SET address = '123 CDC Test Lane' WHERE address_id = 100;
    INSERT INTO country (country) VALUES ('Wakanda');
    INSERT INTO city (city, country_id) VALUES ('Birnin Zana', 110);
    UPDATE address SET city_id = 601 WHERE address_id = 102;
    UPDATE customer SET address_id = 200 WHERE address_id = 104;
    DELETE FROM address WHERE address_id = 104;
    INSERT INTO category (name) VALUES ('Techno Thriller');
    UPDATE film SET release_year = 2021, rental_rate = 2.99 WHERE film_id = 1;
    UPDATE film_category SET category_id = 17 WHERE film_id = 3;
    DELETE FROM film_actor WHERE film_id = 375;
    UPDATE film_actor SET film_id = 100 WHERE film_id = 5;
    UPDATE film_category SET film_id = 100 WHERE film_id = 5;
    UPDATE inventory SET film_id = 100 WHERE film_id = 5;
    DELETE FROM film WHERE film_id = 5"""  # S3, section 6, and S7, section 6


def yes(_question):
    return True


def silent(_message):
    pass


@pytest.fixture(scope="module")
def rental(world):
    """A world like `world`, and a loader of a database of its own."""
    loader = dataclasses.replace(pagila.loader, database=DATABASE)
    yield with_settings(world, connect={"topic_prefix": DATABASE}), loader
    postgres.execute(world, f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)", database="postgres")


@pytest.fixture
def empty(rental):
    world, loader = rental
    loader.unload(world)
    return rental


@pytest.fixture
def loaded(empty):
    world, loader = empty
    assert loader.load(world, confirm=yes, progress=silent) == COUNTS
    return world


def rows(world, query):
    with postgres.connect(world, DATABASE) as c:
        return c.execute(query).fetchall()


def execute(world, statement):
    return postgres.execute(world, statement, database=DATABASE)


def test_every_value_arrives(loaded):
    for name in COUNTS:
        generated = read_dicts(pagila.DATA / f"{name}.csv")
        asked = f"COPY (SELECT {', '.join(generated[0])} FROM {name} ORDER BY 1, 2) TO STDOUT"
        with (
            postgres.connect(loaded, DATABASE) as c,
            c.cursor() as cursor,
            cursor.copy(asked) as copy,
        ):
            there = [
                tuple(text and text.strip() for text in row) for row in copy.rows()
            ]  # language.name is filled up
        assert there == [
            tuple(None if value == r"\N" else value for value in row.values()) for row in generated
        ], name


def facts_hold(world):
    """What S3 and S7 say of the rows before any change; of the generated ones and of the public
    dump's."""
    assert rows(world, ADDRESS_100_105) == STATED
    assert rows(world, "SELECT customer_id FROM customer WHERE address_id = 104") == [(100,)]
    assert rows(
        world, "SELECT count(DISTINCT country_id) FROM address JOIN city USING (city_id)"
    ) == [(109,)]
    assert [
        film[:5]
        for film in rows(
            world,
            "SELECT film_id, title, release_year, rental_rate::text, rental_duration "
            "FROM film WHERE film_id < 6 ORDER BY 1",
        )
    ] == [
        (1, "ACADEMY DINOSAUR", 2006, "0.99", 6),
        (2, "ACE GOLDFINGER", 2006, "4.99", 3),
        (3, "ADAPTATION HOLES", 2006, "2.99", 7),
        (4, "AFFAIR PREJUDICE", 2006, "2.99", 5),
        (5, "AFRICAN EGG", 2006, "2.99", 6),
    ]
    assert rows(
        world,
        "SELECT length, replacement_cost::text, rating, language_id, original_language_id, description, "
        "special_features FROM film WHERE film_id = 1",
    ) == [
        (
            86,
            "20.99",
            "PG",
            1,
            None,
            "A Epic Drama of a Feminist And a Mad Scientist who must Battle a Teacher in The "
            "Canadian Rockies",
            ["Deleted Scenes", "Behind the Scenes"],
        )
    ]


def changes_work(world):
    """The changes of both walkthroughs, and that each update moves last_update."""
    before = dict(rows(world, "SELECT address_id, last_update FROM address"))
    execute(world, CHANGES)
    after = dict(rows(world, "SELECT address_id, last_update FROM address"))
    assert {key for key in before if before[key] != after.get(key)} == {
        100,
        102,
        104,
    } and 104 not in after
    assert after[100] > before[100]
    assert rows(
        world, "SELECT country, city FROM country JOIN city USING (country_id) WHERE city_id = 601"
    ) == [("Wakanda", "Birnin Zana")]
    assert rows(world, "SELECT release_year, rental_rate::text FROM film WHERE film_id = 1") == [
        (2021, "2.99")
    ]
    next_ids = rows(
        world,
        "SELECT nextval('film_film_id_seq'), nextval('category_category_id_seq'), "
        "nextval('actor_actor_id_seq'), nextval('address_address_id_seq')",
    )
    assert next_ids == [(1001, 18, 201, 606)]


def test_facts_and_changes(loaded):
    facts_hold(loaded)
    changes_work(loaded)


def test_an_update_moves_last_update(loaded):
    """Also one that changes nothing; an insert has its time by default."""
    for table in COUNTS:
        began = rows(loaded, "SELECT now()::timestamp")[0][0]
        time.sleep(0.01)
        execute(loaded, f"UPDATE {table} SET last_update = last_update")
        assert rows(
            loaded, f"SELECT count(DISTINCT last_update), min(last_update) > '{began}' FROM {table}"
        ) == [(1, True)], table


def test_the_catalog_has_the_tables_for_a_picture_with_keys_and_references(loaded):
    execute(loaded, "CREATE TABLE note (film_id int REFERENCES film, next int, n int PRIMARY KEY)")
    execute(loaded, "ALTER TABLE note ADD FOREIGN KEY (next) REFERENCES note")
    catalog = postgres.query(loaded, sql_file("catalog/postgres_tables"), database=DATABASE)
    execute(loaded, "DROP TABLE note")
    tables = catalog.set_index("table")
    assert {*tables.index} == {*COUNTS, "note"}
    assert tables.loc["film_actor", "content"] == "film_actor\n◆→ actor_id\n◆→ film_id\n… 1 more"
    assert tables.loc["note", "content"] == "note\n→ film_id\n→ next\n◆ n"
    assert tables.loc["film_actor", "refers_to"] == "actor\nfilm"
    assert tables.loc[["film", "note"], "refers_to"].tolist() == ["language", "film"]
    names = ["film_actor", "note", "film", "language", "customer", "address", "city", "country"]
    assert tables.loc[names, "lane"].tolist() == [0, 0, 1, 2, 0, 1, 2, 3]
    assert draw.entities(catalog, "Pagila").axes


def test_types_are_carried_but_the_generated_column(loaded):
    with pytest.raises(
        SourceError, match=r"does not support public.film.revenue_projection \(generated\)"
    ):
        postgres.create_publication(loaded, "test_pagila_p", S7_TABLES, DATABASE)
    postgres.create_publication(
        loaded, "test_pagila_p", S7_TABLES, DATABASE, ["public.film.revenue_projection"]
    )
    assert set(postgres.publications(loaded, DATABASE)["identity"]) == {"primary key"}
    postgres.drop_publication(loaded, "test_pagila_p", DATABASE)


def test_two_databases_beside_each_other(loaded, rental):
    """As the two walkthroughs have them: what one changes, the other does not see."""
    other = dataclasses.replace(rental[1], database=f"{DATABASE}_polled")
    try:
        assert other.load(loaded, confirm=yes, progress=silent) == COUNTS
        execute(loaded, "DELETE FROM film_actor")
        assert (
            postgres.query(loaded, "SELECT count(*) AS n FROM film_actor", database=other.database)[
                "n"
            ][0]
            == 5462
        )
        other.unload(loaded)
        assert rows(loaded, "SELECT count(*) FROM film") == [(1000,)]
    finally:
        postgres.execute(
            loaded, f"DROP DATABASE {DATABASE}_polled WITH (FORCE)", database="postgres"
        )


def test_unloaded_and_loaded_again(loaded, rental):
    with pytest.raises(SourceError, match="language exists already"):
        rental[1].load(loaded, confirm=yes, progress=silent)
    small = {name: rows(loaded, f"SELECT * FROM {name} ORDER BY 1, 2") for name in COUNTS}
    for _ in range(2):
        rental[1].unload(loaded)
        assert rows(loaded, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == []
    assert rental[1].load(loaded, scale=2, confirm=yes, progress=silent) == {
        **COUNTS,
        "film": 2000,
        "address": 1206,
    }
    for name, table in small.items():
        larger = rows(loaded, f"SELECT * FROM {name} ORDER BY 1, 2")
        assert larger[: len(table)] == table, "under their ids"
        assert [row[1:] for row in larger[len(table) :]] in ([], [row[1:] for row in table])


# --- a dump
# ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(loaded, tmp_path):
    """The generated rows, as pg_dump writes them."""
    with postgres.connect(loaded, DATABASE) as c, (tmp_path / pagila.DUMP).open("wb") as out:
        for name in COUNTS:
            columns = (pagila.DATA / f"{name}.csv").read_text(encoding="utf-8").split()[0]
            columns = columns.replace(",", ", ")
            out.write(
                f"ALTER TABLE public.{name} DISABLE TRIGGER ALL;\n\n"
                f"COPY public.{name} ({columns}) FROM stdin;\n".encode()
            )
            with (
                c.cursor() as cursor,
                cursor.copy(f"COPY {name} ({columns}) TO STDOUT") as copy,
            ):
                out.writelines(bytes(part) for part in copy)
            out.write(b"\\.\n\n\n")
    return tmp_path


def test_a_dump_gives_what_was_dumped(loaded, rental, folder):
    before = {name: rows(loaded, f"SELECT * FROM {name} ORDER BY 1, 2") for name in COUNTS}
    rental[1].validate(loaded, from_dir=folder)
    rental[1].unload(loaded)
    assert rental[1].load(loaded, from_dir=folder, confirm=yes, progress=silent) == COUNTS
    assert {name: rows(loaded, f"SELECT * FROM {name} ORDER BY 1, 2") for name in COUNTS} == before
    assert rental[1].loaded_from(loaded) == str(folder)
    facts_hold(loaded)


@pytest.mark.parametrize(
    "old, new, says",
    [
        (
            "\n101\t1599 Plock Drive\t",
            "\nx\t1599 Plock Drive\t",
            "(?s)invalid input syntax.*COPY address.*address_id",
        ),
        ("\n101\t1599 Plock Drive\t", "\n101\n1599 Plock Drive\t", "missing data for column"),
        (
            "\t71986\t817248913162\t",
            "\t71986\t817248913162\t2017-02-15\t",
            "extra data",
        ),
        (
            "\tTete\t534\t",
            "\tTete\t9534\t",
            r"city_id\)=\(9534\) is not present",
        ),
        (
            "\n101\t1599 Plock Drive\t",
            "\n100\t1599 Plock Drive\t",
            r"(?s)duplicate key.*\(100\)",
        ),
        ("COPY public.address (", "COPY public.address (area, ", 'column "area"'),
    ],
)
def test_a_bad_row_of_a_dump(loaded, rental, folder, old, new, says):
    """Named by its line in the file where PostgreSQL says which; nothing is changed."""
    path = folder / pagila.DUMP
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    rental[1].unload(loaded)
    with pytest.raises(SourceError, match=says) as e:
        rental[1].load(loaded, from_dir=folder, confirm=yes, progress=silent)
    line = text.count("\n", 0, text.index("\n101\t1599 Plock Drive")) + 2
    first = text.count("\n", 0, text.index("COPY public.address (")) + 2
    assert (
        f"{path}: COPY address, line {line}" in e.value.location
        or f"{path}: the rows after line {first - 1}" == e.value.location
    )
    assert rows(loaded, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == []


# the public dump is no part of this repository: PAGILA_DIR names a folder that holds its two files
public_dump = pytest.mark.skipif(
    "PAGILA_DIR" not in os.environ,
    reason="PAGILA_DIR does not name a folder with pagila-schema.sql and pagila-data.sql",
)


@public_dump
def test_public_dump(empty):
    world, loader = empty
    assert (
        loader.load(world, from_dir=os.environ["PAGILA_DIR"], confirm=yes, progress=silent)
        == COUNTS
    )
    assert loader.loaded_from(world) == os.path.abspath(os.environ["PAGILA_DIR"])
    facts_hold(world)
    changes_work(world)


COLUMNS = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated,
           replace(pg_get_expr(d.adbin, d.adrelid), 'public.', '')
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relname = ANY(%s) AND c.relnamespace = 'public'::regnamespace AND a.attnum > 0 ORDER BY 1, a.attnum"""
REFERENCES = """
    SELECT replace(pg_get_constraintdef(oid), 'public.', '') FROM pg_constraint
    WHERE contype = 'f' AND conrelid::regclass::text = ANY(%s) AND confrelid::regclass::text = ANY(%s) ORDER BY 1"""
WITHOUT = (
    'unrecognized configuration parameter "transaction_timeout"',
    'syntax error at or near "AS"',
    'relation "public.films_per_customer_rental" does not exist',
)


@public_dump
def test_the_three_errors_of_the_public_schema_and_that_our_tables_are_its_own(loaded):
    """Its file run by itself, statement by statement as psql does, on a PostgreSQL before 17."""
    made = [rows_of(loaded, DATABASE, query) for query in (COLUMNS, REFERENCES)]
    postgres.create_database(loaded, "test_pagila_schema")
    try:
        failed = []
        with postgres.connect(loaded, "test_pagila_schema") as c:
            text = (Path(os.environ["PAGILA_DIR"]) / "pagila-schema.sql").read_text(
                encoding="utf-8"
            )
            for _, statement in loading.split_statements(
                text.replace("OWNER TO postgres", "OWNER TO CURRENT_USER")
            ):
                try:
                    c.execute(statement)
                except psycopg.Error as e:
                    failed.append(str(e).partition("\n")[0])
        assert tuple(failed) == WITHOUT
        assert [
            rows_of(loaded, "test_pagila_schema", query) for query in (COLUMNS, REFERENCES)
        ] == made
    finally:
        postgres.execute(
            loaded, "DROP DATABASE test_pagila_schema WITH (FORCE)", database="postgres"
        )


def rows_of(world, database, query):
    with postgres.connect(world, database) as c:
        return c.execute(query, [list(COUNTS)] * query.count("%s")).fetchall()


# --- random changes
# --------------------------------------------------------------------------------------------------


def run(world, seed, n, tables=()):
    """{(operation, table): how many rows it changed}, of those that did change one."""
    done = {}
    with postgres.connect(world, DATABASE) as c:
        for transaction in pagila.random_changes(seed, n, tables):
            with c.transaction():
                for statement, values in transaction:
                    changed = c.execute(statement, values).rowcount
                    assert changed in (0, 1), statement
                    kind = statement.split()[0], pagila._CHANGED_TABLE.match(statement)[1]
                    done[kind] = done.get(kind, 0) + changed
    return done


def test_random_changes(loaded, rental):
    """They find rows, keep to the foreign keys, and leave what walkthroughs name; the same every
    time."""
    stated = (
        "SELECT * FROM film WHERE film_id < 6",
        ADDRESS_100_105,
        "SELECT * FROM customer",
        "SELECT * FROM film_actor WHERE film_id IN (5, 100, 375, 376)",
    )
    before = [rows(loaded, query) for query in stated]
    done = run(loaded, 7, 5000)
    assert len(done) == 27 and min(done.values()) > 50 and sum(done.values()) > 4500, done
    assert [rows(loaded, query) for query in stated] == before
    assert rows(loaded, "SELECT count(*) > 20 FROM film WHERE length(description) > 6000") == [
        (True,)
    ]
    states = [
        rows(loaded, f"SELECT to_jsonb(t) - 'last_update' FROM {name} t ORDER BY 1")
        for name in COUNTS
    ]
    rental[1].unload(loaded)
    rental[1].load(loaded, confirm=yes, progress=silent)
    run(loaded, 7, 5000)
    assert [
        rows(loaded, f"SELECT to_jsonb(t) - 'last_update' FROM {name} t ORDER BY 1")
        for name in COUNTS
    ] == states
    run(loaded, 8, 500)
    assert [
        rows(loaded, f"SELECT to_jsonb(t) - 'last_update' FROM {name} t ORDER BY 1")
        for name in COUNTS
    ] != states


def test_random_changes_of_some_tables(loaded):
    done = run(loaded, 7, 500, ["address", "city", "country"])
    assert {table for _, table in done} == {"address", "city", "country"} and min(done.values()) > 5
