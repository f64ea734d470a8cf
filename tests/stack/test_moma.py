"""The museum on a real PostgreSQL: loader, published files, the walkthrough's updates and deletes,
reset."""

import csv
import dataclasses
import datetime
import decimal
import hashlib
import re

import pytest
from workbench.base.errors import SourceError
from workbench.checks import check
from workbench.source import postgres
from workbench.tracks import moma
from workbench.tracks.moma import PICADOR, PICASSO
from worlds import with_settings

DATABASE = "test_moma"
TABLES = ["public.artists", "public.artworks"]
ORDER = "SELECT * FROM {} ORDER BY 1"
# of the rows of scale 0.05, as Python shows them
DIGEST = "2dc0dc4995347b49b0b4ac7545d3b382b049396b851bb78b20800455868055ba"
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
    """The bundled rows, written as the published files are: more columns, in another order, a year 0,
    \\r\\n, a byte order mark."""
    for name in ("Artists", "Artworks"):
        path = tmp_path / f"{name}.csv"
        with path.open("w", encoding="utf-8-sig", newline="") as f:
            out = csv.writer(f)
            for number, row in enumerate(csv.reader((moma.DATA / path.name).open(newline=""))):
                row = row[:10] if name == "Artworks" else [*row[:4], *(v or "0" for v in row[4:])]
                more = ["URL", "Cataloged"] if number == 0 else ["", "Y"]
                out.writerow([more[0], *reversed(row), more[1]])
    return tmp_path


def write(folder, name, **values):
    """Append a line to a file, with these values and otherwise empty ones."""
    path = folder / name
    header = next(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    assert {*values} <= {*header}
    with path.open("a", encoding="utf-8", newline="") as f:
        csv.writer(f).writerow([values.get(column, "") for column in header])
    return path.read_bytes().count(b"\n")


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


def every_row(world):
    """The rows of both tables, in a session that knows no schema."""
    with postgres.connect(world, DATABASE) as c:
        return [c.execute(ORDER.format(name)).fetchall() for name in ("artists", "artworks")]


def test_same_rows_every_time(empty):
    """Rows may change only on purpose: readers keep figures made of them."""
    moma.loader.load(empty, scale=0.05, confirm=yes, progress=silent)
    rows = [row for table in every_row(empty) for row in table]
    assert hashlib.sha256("\n".join(map(repr, rows)).encode()).hexdigest() == DIGEST


def test_a_larger_scale_has_the_rows_of_the_smaller_one(loaded):
    small = every_row(loaded)
    moma.loader.unload(loaded)
    counts = moma.loader.load(loaded, scale=0.29, confirm=yes, progress=silent)
    assert counts == {"artists": 4350, "artworks": 40020}
    for fewer, more in zip(small, every_row(loaded)):
        assert set(fewer) < set(more)
    unknown = "SELECT 1 FROM artworks WHERE artist_id NOT IN (SELECT artist_id FROM artists)"
    assert frame(loaded, unknown).empty, "every artist named is there"


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


BROKEN = [
    ("Artworks.csv", {"ObjectID": "12a"}, 'column ObjectID: "12a"'),
    ("Artworks.csv", {"ObjectID": ""}, 'null value in column "ObjectID"'),
    ("Artworks.csv", {"ObjectID": "2147483648"}, 'column ObjectID: "2147483648"'),
    ("Artworks.csv", {"ObjectID": "128447"}, r"duplicate key .*\(128447\) already exists"),
    ("Artworks.csv", {"ConstituentID": "x, 2"}, 'column ConstituentID: "x, 2"'),
    ("Artworks.csv", {"ConstituentID": "1;2"}, 'column ConstituentID: "1;2"'),
    (
        "Artworks.csv",
        {"DateAcquired": "1981"},
        'a date such as 2009-04-15.*column DateAcquired: "1981"',
    ),
    ("Artworks.csv", {"DateAcquired": "11-17-2009"}, 'column DateAcquired: "11-17-2009"'),
    ("Artworks.csv", {"DateAcquired": "1981-02-30"}, 'column DateAcquired: "1981-02-30"'),
    ("Artworks.csv", {"Height (cm)": "tall"}, r'column Height \(cm\): "tall"'),
    ("Artworks.csv", {"Height (cm)": "NaN"}, r'column Height \(cm\): "NaN"'),
    ("Artworks.csv", {"Height (cm)": "1000000"}, r'column Height \(cm\): "1000000"'),
    ("Artists.csv", {"BeginDate": "c. 1930"}, 'column BeginDate: "c. 1930"'),
    ("Artists.csv", {"EndDate": "1992.0"}, 'column EndDate: "1992.0"'),
]


@pytest.mark.parametrize("name, values, says", BROKEN)
def test_a_broken_value_is_named_and_rolls_back(empty, folder, name, values, says):
    """By file, line, column and value; the rows before it were on their way already."""
    key = "ObjectID" if name == "Artworks.csv" else "ConstituentID"
    write(folder, name, **{key: "900001", "URL": "two\r\nlines"})
    line = write(folder, name, **{key: "900002", **values})
    for judge, more in (
        (moma.loader.validate, {}),
        (moma.loader.load, {"confirm": yes, "progress": silent}),
    ):
        with pytest.raises(SourceError, match=f"(?s){says}") as e:
            judge(empty, from_dir=str(folder), **more)
        assert f"{name}: COPY {name}, line {line}" in e.value.location
        assert "nothing was changed" in e.value.hint
        assert tables(empty) == set()
    schemas = frame(empty, "SELECT nspname FROM pg_namespace WHERE nspname LIKE '%trial%'")
    assert schemas.empty


@pytest.mark.parametrize(
    "end, says",
    [
        (b'"cut off, Robert', "unterminated CSV quoted field"),
        (b"cut off", "missing data for column"),
        (b"too,long" + b"," * 40, "extra data after last expected column"),
        ("Genève".encode("latin-1"), "invalid byte sequence"),
        (b"a\0b", "invalid byte sequence"),
    ],
)
def test_a_broken_line_is_named_and_rolls_back(empty, folder, end, says):
    path = folder / "Artworks.csv"
    line = path.read_bytes().count(b"\n") + 1
    with path.open("ab") as f:
        f.write(end + b"\r\n")
    with pytest.raises(SourceError, match=says) as e:
        moma.loader.load(empty, from_dir=str(folder), confirm=yes, progress=silent)
    found = int(re.search(r"Artworks.csv: COPY Artworks.csv, line (\d+)", e.value.location)[1])
    assert line <= found <= line + 1 and tables(empty) == set()


def test_files_without_the_rows_that_are_followed(empty, folder):
    for name, old, new in (
        ("Artists.csv", ",441,", ",900001,"),
        ("Artists.csv", ",4609,", ",900002,"),
        ("Artworks.csv", ",128447,", ",900001,"),
    ):
        path = folder / name
        text = path.read_bytes().decode()
        assert text.count(old) == 1
        path.write_bytes(text.replace(old, new).encode())
    with pytest.raises(SourceError) as e:
        moma.loader.validate(empty, from_dir=str(folder))
    for text in ("Artists.csv: ConstituentID 441", "4609", "Artworks.csv: ObjectID 128447"):
        assert text in e.value.message
    assert e.value.hint == "use the complete files; nothing was changed"


def test_an_empty_value_is_null_the_year_0_is_unknown_and_the_first_of_several_artists_counts(
    empty, folder
):
    write(folder, "Artists.csv", ConstituentID=" 2147483647 ", BeginDate="0")
    text = 'One\r\n"two"\n\\N'
    write(folder, "Artworks.csv", ObjectID="900005", ConstituentID="7520, 6931", Title=text)
    write(folder, "Artworks.csv", ObjectID="900006", Dimensions="NULL")
    with (folder / "Artworks.csv").open("a", encoding="utf-8") as f:
        f.write('""' + ',""' * 8 + ',"","900007",""\r\n')
    moma.loader.load(empty, from_dir=str(folder), confirm=yes, progress=silent)
    artists, artworks = every_row(empty)
    assert artists[-1] == (2147483647, *[None] * 5)
    found = {row[0]: row for row in artworks}
    assert found[900005] == (900005, 7520, text, *[None] * 8)
    assert found[900006][5] == "NULL" and found[900007] == (900007, *[None] * 10)


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
