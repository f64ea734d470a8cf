"""The museum on a real PostgreSQL: loader, published files, the walkthrough's updates and deletes,
reset."""

import csv
import dataclasses
import datetime
import decimal

import pytest
from workbench.base.errors import SourceError
from workbench.checks import check
from workbench.source import postgres
from workbench.walkthroughs import moma, northwind
from workbench.walkthroughs.moma import PICADOR, PICASSO
from worlds import with_settings

DATABASE = "test_moma"
TABLES = ["public.artists", "public.artworks"]
NAMES = {
    "artists": ["ConstituentID", "DisplayName", "Nationality", "Gender", "BeginDate", "EndDate"],
    "artworks": [
        "ObjectID",
        "ConstituentID",
        "Title",
        "Artist",
        "Date",
        "Dimensions",
        "DateAcquired",
        "Classification",
        "Department",
        "Height (cm)",
    ],
}
CHANGES = (
    ("date", "1959"),
    ("acquisition_date", "2009-04-15"),
    ("dimensions", "composition: 20 13/16 x 25 3/16 in"),
    ("acquisition_date", "2009-04-19"),
)  # S5, 6.1


def yes(_question):
    return True


def silent(_message):
    pass


def frame(world, query):
    return postgres.query(world, query, database=DATABASE)


def execute(world, statement, params=None):
    return postgres.execute(world, statement, params, database=DATABASE)


def tables(world):
    return set(
        frame(world, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")["tablename"]
    )


@pytest.fixture(scope="module")
def museum(world):
    """A world like `world`, whose museum is a database of its own, so that other tests' data
    stay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moma, "loader", dataclasses.replace(moma.loader, database=DATABASE))
        own = with_settings(world, connect={"topic_prefix": "test_moma"})
        yield own
        postgres.execute(own, "DROP DATABASE IF EXISTS test_moma WITH (FORCE)", database="postgres")


@pytest.fixture
def empty(museum):
    moma.loader.unload(museum)
    postgres.drop_publication(museum, "test_moma_p", DATABASE)
    return museum


@pytest.fixture
def loaded(empty):
    moma.loader.load(empty, confirm=yes, progress=silent)
    return empty


@pytest.fixture
def folder(tmp_path):
    """Generated rows, written as the published files are: more columns, a year 0, \\r\\n, a byte
    order mark."""
    for table in moma.sample_tables(0.01):
        names = NAMES[table.name]
        with (tmp_path / f"{table.name.capitalize()}.csv").open(
            "w", encoding="utf-8-sig", newline=""
        ) as f:
            out = csv.writer(f)
            out.writerow(["URL", *names, "Cataloged"])
            for row in table.rows():
                values = [
                    0 if v is None and name.endswith("Date") and name != "Date" else v
                    for name, v in zip(names, row)
                ]
                out.writerow(["", *values, "Y"])
    return tmp_path


def test_declined_changes_nothing(empty):
    assert moma.loader.load(empty, confirm=lambda q: False) == {}
    assert tables(empty) == set()


def test_loads_and_says_so(empty):
    said = []
    assert moma.loader.load(empty, confirm=yes, progress=said.append) == {
        "artists": 300,
        "artworks": 2760,
    }
    assert [m.split(":")[0] for m in said] == [
        "connection created",
        "tables loaded",
    ] and "2,760 artworks" in said[1]
    assert DATABASE in said[0]


def test_every_value_arrives(loaded):
    """What the generator made is what PostgreSQL has, in a session that knows no schema."""
    for table in moma.sample_tables(0.02):
        with postgres.connect(loaded, DATABASE) as c:
            rows = c.execute(
                f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY 1"
            ).fetchall()
        assert rows == list(table.rows())


def test_logical_types(loaded):
    types = frame(
        loaded,
        """SELECT column_name, data_type, numeric_precision, numeric_scale, datetime_precision
                             FROM information_schema.columns WHERE table_name = 'artworks'""",
    ).set_index("column_name")
    assert types.loc["acquisition_date", "data_type"] == "date"
    assert list(types.loc["height_cm"][:3]) == ["numeric", 10, 4]
    assert list(types.loc["cataloged_at"])[::3] == ["timestamp without time zone", 6]
    row = frame(
        loaded,
        "SELECT acquisition_date, height_cm, cataloged_at FROM artworks WHERE num_nulls("
        "acquisition_date, height_cm, cataloged_at) = 0 LIMIT 1",
    ).iloc[0]
    assert [type(v) for v in row[:2]] == [datetime.date, decimal.Decimal] and row.iloc[
        2
    ].year >= 1995


def test_default_identity_and_no_foreign_key(loaded):
    """A delete brings its key alone; artists go while their artworks stay."""
    postgres.create_publication(loaded, "test_moma_p", TABLES, database=DATABASE)
    shown = postgres.publications(loaded, DATABASE)
    assert list(shown["table"]) == TABLES and set(shown["identity"]) == {"primary key"}
    for artist in (441, 299):
        assert execute(loaded, "DELETE FROM artists WHERE artist_id = %s", [artist]) == 1
        assert not frame(loaded, f"SELECT 1 FROM artworks WHERE artist_id = {artist}").empty


def test_updates_of_the_walkthrough_and_q9(loaded):
    before = frame(
        loaded,
        f"SELECT date, acquisition_date, dimensions FROM artworks WHERE artwork_id = {PICADOR}",
    )
    assert before.isna().all(axis=None)
    for column, value in CHANGES:
        assert (
            execute(
                loaded, f"UPDATE artworks SET {column} = %s WHERE artwork_id = %s", [value, PICADOR]
            )
            == 1
        )
    q9 = frame(
        loaded,
        f"""
        SELECT title, date AS created, w.name AS artist, nationality, classification
        FROM artworks w JOIN artists a USING (artist_id)
        WHERE artist_id = {PICASSO} AND nationality = 'Spanish' AND classification = 'Print' AND date IS NOT NULL
        ORDER BY created, title""",
    )
    assert len(q9) == 84 and "Picador (La Pique)" in set(q9["title"])
    # 299, as S5 changes it
    assert (
        execute(
            loaded,
            "UPDATE artists SET birth_year = 1907, nationality = 'German' WHERE artist_id = 299",
        )
        == 1
    )


def test_second_load_is_refused(loaded):
    with pytest.raises(SourceError, match="(?s)artists exists already.*Start clean"):
        moma.loader.load(loaded, confirm=yes, progress=silent)
    assert frame(loaded, "SELECT count(*) AS n FROM artworks")["n"][0] == 2760


def test_one_table_of_somebody_is_enough_to_refuse(empty):
    execute(empty, "CREATE TABLE artworks (mine int)")
    with pytest.raises(SourceError, match="artworks exists already"):
        moma.loader.load(empty, confirm=yes, progress=silent)
    assert tables(empty) == {"artworks"} and list(frame(empty, "SELECT * FROM artworks")) == [
        "mine"
    ]


def test_published_files_give_what_generated_rows_give(empty, folder):
    moma.loader.load(empty, scale=0.01, confirm=yes, progress=silent)
    queries = {
        "artists": "SELECT * FROM artists",
        "artworks": "SELECT *, NULL AS cataloged_at FROM (SELECT artwork_id, artist_id, title, name, date, "
        "dimensions, acquisition_date, classification, department, height_cm FROM artworks) w",
    }
    generated = {name: frame(empty, query) for name, query in queries.items()}
    moma.loader.unload(empty)
    counts = moma.loader.load(empty, from_dir=str(folder), confirm=yes, progress=silent)
    assert counts == {"artists": 150, "artworks": 1380}
    for name, key in (("artists", "artist_id"), ("artworks", "artwork_id")):
        check.same_rows(
            generated[name],
            frame(empty, f"SELECT * FROM {name}"),
            key=key,
            claim=f"{name} of the files",
        )


def test_the_database_knows_where_its_rows_come_from(empty, folder, monkeypatch):
    """So every notebook can ask, also one that runs alone, weeks later."""
    assert moma.loader.loaded_from(empty) == ""  # no tables
    monkeypatch.chdir(folder.parent)
    moma.loader.load(empty, from_dir=folder.name, confirm=yes, progress=silent)
    assert moma.loader.loaded_from(empty) == str(folder)
    moma.loader.unload(empty)
    moma.loader.load(empty, scale=0.01, confirm=yes, progress=silent)
    assert moma.loader.loaded_from(empty) == ""
    execute(empty, "COMMENT ON TABLE artists IS 'somebody wrote this'")
    assert moma.loader.loaded_from(empty) == ""


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda text: text + "\r\nx,1", "line"),
        (lambda text: text.replace(",128447,", ",63001,"), "ObjectID is 63001"),
        (lambda text: text.replace("128447", "128 447"), "ObjectID is '128 447'"),
    ],
)
def test_broken_file_rolls_back(empty, folder, change, says):
    """The artists, and a thousand artworks, were on their way already."""
    path = folder / "Artworks.csv"
    text = path.read_bytes().decode()
    assert change(text) != text
    path.write_bytes(change(text).encode())
    with pytest.raises(SourceError, match=says):
        moma.loader.load(empty, from_dir=str(folder), confirm=yes, progress=silent)
    assert tables(empty) == set()


def test_broken_script_rolls_back(empty, tmp_path, monkeypatch):
    text = moma.DDL.read_text(encoding="utf-8")
    monkeypatch.setattr(moma, "DDL", tmp_path / "broken.sql")
    moma.DDL.write_text(text + "\nSELECT no_such;", encoding="utf-8")
    with pytest.raises(SourceError, match=f"broken.sql, line {text.count(chr(10)) + 2}"):
        moma.loader.load(empty, confirm=yes, progress=silent)
    assert tables(empty) == set()


def test_the_other_database_stays_untouched(loaded):
    """Nothing of the museum is in the world's own database."""
    postgres.create_database(loaded)
    found = postgres.query(
        loaded, "SELECT 1 FROM pg_tables WHERE tablename IN ('artists', 'artworks')"
    )
    assert found.empty


def test_replication_role_reads_the_museum(loaded):
    postgres.grant_replication(loaded, TABLES, database=DATABASE)
    with postgres.connect(loaded, DATABASE, role="replication") as c:
        assert c.execute("SELECT count(*) FROM artists").fetchone() == (300,)


def test_reset_removes_what_is_ours_and_can_be_repeated(loaded):
    postgres.create_publication(loaded, "test_moma_p", TABLES, database=DATABASE)
    execute(loaded, "CREATE TABLE mine (x int PRIMARY KEY)")
    execute(loaded, "CREATE PUBLICATION mine FOR TABLE mine, artists")
    for published in (["public.mine"], TABLES):
        postgres.grant_replication(loaded, published, database=DATABASE)
    execute(loaded, "SELECT pg_create_logical_replication_slot('test_moma_other', 'pgoutput')")
    for _ in range(2):
        moma.loader.unload(loaded)
        postgres.drop_publication(loaded, "test_moma_p", DATABASE)
        assert tables(loaded) == {"mine"}
        assert list(postgres.publications(loaded, DATABASE)["publication"]) == ["mine"]
        assert list(postgres.slots(loaded, DATABASE)["slot_name"]) == ["test_moma_other"]
    with postgres.connect(loaded, DATABASE, role="replication") as c:
        assert c.execute("SELECT count(*) FROM mine").fetchone() == (0,)
    assert postgres.drop_slot(loaded, "test_moma_other", database=DATABASE) is True
    postgres.drop_publication(loaded, "mine", database=DATABASE)
    execute(loaded, "DROP TABLE mine")


def test_reset_leaves_all_when_a_view_needs_a_table(loaded):
    postgres.create_publication(loaded, "test_moma_p", TABLES, database=DATABASE)
    execute(loaded, "CREATE VIEW mine AS SELECT * FROM artists")
    try:
        with pytest.raises(SourceError, match="artists"):
            moma.loader.unload(loaded)
        assert (
            tables(loaded) == {"artists", "artworks"}
            and len(postgres.publications(loaded, DATABASE)) == 2
        )
    finally:
        execute(loaded, "DROP VIEW mine")


def test_reset_of_northwind_leaves_the_museum(loaded):
    """Both walkthroughs share a server and a topic prefix."""
    execute(loaded, "SELECT pg_create_logical_replication_slot('test_moma_slot', 'pgoutput')")
    own = with_settings(loaded, postgres={"database": "test_moma_northwind"})
    postgres.create_database(own)
    northwind.loader.unload(own)
    assert list(postgres.slots(loaded, DATABASE)["slot_name"]) == ["test_moma_slot"]
    assert tables(loaded) == {"artists", "artworks"}
    postgres.execute(loaded, "DROP DATABASE test_moma_northwind WITH (FORCE)", database="postgres")
