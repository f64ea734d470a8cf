"""Reading the museum's published CSV files: values, and errors in damaged files."""

import csv
import io
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest
from workbench.base import params
from workbench.base.errors import SourceError
from workbench.source import csv_files
from workbench.walkthroughs import moma

ARTISTS = "ConstituentID,DisplayName,ArtistBio,Nationality,Gender,BeginDate,EndDate,Wiki QID,ULAN"
ARTWORKS = (
    "Title,Artist,ConstituentID,ArtistBio,Nationality,BeginDate,EndDate,Gender,Date,Medium,Dimensions,"
    "CreditLine,AccessionNumber,Classification,Department,DateAcquired,Cataloged,ObjectID,URL,ImageURL,OnView,"
    "Circumference (cm),Depth (cm),Diameter (cm),Height (cm),Length (cm),Weight (kg),Width (cm),"
    "Seat Height (cm),Duration (sec.)"
)


def artist(key=1, **more):
    """One line of Artists.csv."""
    values = {
        "ConstituentID": key,
        "DisplayName": "Robert Arneson",
        "ArtistBio": "American, 1930–1992",
        "Nationality": "American",
        "Gender": "male",
        "BeginDate": 1930,
        "EndDate": 1992,
        **more,
    }
    return line(ARTISTS, values)


def artwork(key=33599, **more):
    """One line of Artworks.csv."""
    values = {
        "Title": "Study for Head Bath",
        "Artist": "Robert Arneson",
        "ConstituentID": 1,
        "Date": 1977,
        "Dimensions": '41 5/8 × 29 7/8" (105.8 × 75.8 cm)',
        "Classification": "Drawing",
        "Department": "Drawings",
        "DateAcquired": "1981-04-28",
        "Cataloged": "Y",
        "ObjectID": key,
        "Height (cm)": "105.8",
        **more,
    }
    return line(ARTWORKS, values)


def line(header, values):
    names = header.split(",")
    assert set(k.replace("_", " ") for k in values) <= set(names)
    out = io.StringIO()
    csv.writer(out).writerow([str(values.get(name, "")).replace("\0", "\1") for name in names])
    return out.getvalue().replace(
        "\1", "\0"
    )  # Python 3.10 writes no zero byte; ends with \r\n, as the files do


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes both files and returns their folder."""

    def write(artists=(artist(),), artworks=(artwork(),), before=b""):
        for name, header, lines in (
            ("Artists.csv", ARTISTS, artists),
            ("Artworks.csv", ARTWORKS, artworks),
        ):
            (tmp_path / name).write_bytes(before + (header + "\r\n" + "".join(lines)).encode())
        return str(tmp_path)

    return write


def rows(folder, table="artworks"):
    (found,) = csv_files.read_tables(
        folder, {table: replace(moma.FILES[table], required_keys=frozenset())}
    )
    return [dict(zip(found.columns, row)) for row in found.rows()]


def published(folder):
    return csv_files.read_tables(folder, moma.FILES)


def test_values_as_published(folder):
    assert rows(folder(), "artists") == [
        {
            "artist_id": 1,
            "name": "Robert Arneson",
            "nationality": "American",
            "gender": "male",
            "birth_year": 1930,
            "death_year": 1992,
        }
    ]
    assert rows(folder()) == [
        {
            "artwork_id": 33599,
            "artist_id": 1,
            "title": "Study for Head Bath",
            "name": "Robert Arneson",
            "date": "1977",
            "dimensions": '41 5/8 × 29 7/8" (105.8 × 75.8 cm)',
            "acquisition_date": date(1981, 4, 28),
            "classification": "Drawing",
            "department": "Drawings",
            "height_cm": Decimal("105.8000"),
        }
    ]


def test_empty_is_null_and_year_0_unknown(folder):
    there = folder(
        [artist(Nationality="", Gender="", BeginDate=0, EndDate="0")],
        [
            artwork(
                Artist="",
                ConstituentID="",
                Date="",
                Classification="",
                DateAcquired="",
                **{"Height (cm)": ""},
            )
        ],
    )
    assert list(rows(there, "artists")[0].values())[2:] == [None] * 4
    got = rows(there)[0]
    assert [k for k, v in got.items() if v is None] == [
        "artist_id",
        "name",
        "date",
        "acquisition_date",
        "classification",
        "height_cm",
    ]


def test_several_artists(folder):
    got = rows(
        folder(
            artworks=[
                artwork(
                    Artist="Zoë Li, Studio A, Inc.",
                    ConstituentID="7520, 6931",
                    Nationality="(American) ()",
                    BeginDate="(1940) (0)",
                )
            ]
        )
    )[0]
    assert got["artist_id"] == 7520 and got["name"] == "Zoë Li, Studio A, Inc."


@pytest.mark.parametrize(
    "before, change",
    [
        (b"\xef\xbb\xbf", lambda text: text),  # a byte order mark
        (b"", lambda text: text.replace(b"\r\n", b"\n")),
        (b"", lambda text: text.rstrip(b"\r\n")),
        (b"", lambda text: text + b"\r\n\r\n"),
    ],
)
def test_ways_to_write_the_same(folder, tmp_path, before, change):
    there = folder(before=before)
    for path in tmp_path.iterdir():
        path.write_bytes(change(path.read_bytes()))
    assert rows(there)[0]["artwork_id"] == 33599 and rows(there, "artists")[0]["artist_id"] == 1


def test_a_value_may_have_lines(folder):
    there = folder(
        artworks=[artwork(1, Title='One\r\n"two"\nthree'), artwork(2), artwork(3, ObjectID="x")]
    )
    with pytest.raises(
        SourceError, match="line 6, ObjectID"
    ):  # lines of the file, as an editor counts them
        rows(there)
    there = folder(artworks=[artwork(1, Title='One\r\n"two"\nthree')])
    assert rows(there)[0]["title"] == 'One\r\n"two"\nthree'


def test_columns_are_found_by_name(tmp_path, folder):
    there = folder()
    (tmp_path / "Artists.csv").write_text(
        "Gender,New,EndDate,BeginDate,Nationality,DisplayName,ConstituentID\n"
        "male,x,1992,1930,American,Robert Arneson,1\n",
        encoding="utf-8",
    )
    assert list(rows(there, "artists")[0].values()) == [
        1,
        "Robert Arneson",
        "American",
        "male",
        1930,
        1992,
    ]


@pytest.mark.parametrize(
    "column, value",
    [
        ("ObjectID", "12a"),
        ("ObjectID", ""),
        ("ObjectID", "-1"),
        ("ObjectID", "1_0"),
        ("ObjectID", "2147483648"),
        ("ConstituentID", "x, 2"),
        ("ConstituentID", "1;2"),
        ("DateAcquired", "1981"),
        ("DateAcquired", "1981-02-30"),
        ("DateAcquired", "19810428"),
        ("Height (cm)", "tall"),
        ("Height (cm)", "NaN"),
        ("Height (cm)", "1e3"),
        ("Height (cm)", "1000000"),
        ("Title", "a\0b"),
    ],
)
def test_broken_value_is_named(folder, column, value):
    there = folder(artworks=[artwork(1), artwork(2, **{column: value}), artwork(3)])
    with pytest.raises(SourceError) as e:
        rows(there)
    assert (
        "Artworks.csv, line 3" in e.value.location
        and e.value.expected
        and "nothing was changed" in e.value.hint
    )
    if "\0" not in value:  # older csv modules refuse the whole line
        assert column in e.value.location and repr(value) in e.value.message


@pytest.mark.parametrize(
    "column, value", [("ConstituentID", ""), ("BeginDate", "c. 1930"), ("EndDate", "1992.0")]
)
def test_broken_artist_is_named(folder, column, value):
    with pytest.raises(
        SourceError, match=f"(?s){column} is {value!r}.*Artists.csv, line 2, {column}"
    ):
        rows(folder([artist(**{column: value})]), "artists")


def test_a_key_is_what_the_database_holds(folder):
    artists, _ = published(folder([*FOLLOWED, artist(2147483647)], [artwork(128447)]))
    assert [row[0] for row in artists.rows()][-1] == 2147483647
    with pytest.raises(SourceError, match="'2147483648'(?s:.*)a whole number below 2,147,483,648"):
        published(folder([*FOLLOWED, artist(2147483648)], [artwork(128447)]))


def test_key_twice(folder):
    with pytest.raises(SourceError, match="(?s)ObjectID is 5.*line 4, ObjectID.*line 2 has it"):
        rows(folder(artworks=[artwork(5), artwork(6), artwork(5)]))


@pytest.mark.parametrize(
    "end, says",
    [
        (b'"cut off, Robert', "line 3, record"),  # inside of a quoted value
        (b"cut off,Robert", "line 3, record"),
        (artwork(2).rstrip().encode() + b'"cut off in the last column', "line 3, record"),
        (b"too,long" + b"," * 40, "30 values, not 42"),
        ("Genève".encode("latin-1"), r"line 3, byte 4[\s\S]*UTF-8"),
    ],
)
def test_broken_line_is_named(folder, tmp_path, end, says):
    there = folder()
    with (tmp_path / "Artworks.csv").open("ab") as f:
        f.write(end + b"\n")
    with pytest.raises(SourceError, match=says):
        rows(there)


@pytest.mark.parametrize(
    "text, says",
    [
        (b"", "the file is empty"),
        (b"\r\n\r\n", "the file is empty"),
        (ARTWORKS.replace(",", ";").encode(), "commas between the values, not ';'"),
        (ARTWORKS.replace(",", "\t").encode(), r"commas between the values, not '\\t'"),
        (ARTWORKS.replace("Date,", "Date,Date,", 1).encode(), "'Date' occurs 2 times"),
        (ARTWORKS.replace("Height (cm)", "height").encode(), r"column 'Height \(cm\)' is missing"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:fc8c\nsize 52334926\n",
            "pointer",
        ),
        (ARTWORKS.encode("utf-16"), "UTF-8"),
    ],
)
def test_broken_header_is_seen_before_anything_is_read(folder, tmp_path, text, says):
    there = folder()
    (tmp_path / "Artworks.csv").write_bytes(text)
    with pytest.raises(SourceError, match=says) as e:
        published(there)
    assert "Artworks.csv, line 1" in e.value.location


FOLLOWED = [artist(key) for key in (1, 299, 441, 4609)]


def test_all_bad_values_are_named_at_once(folder):
    works = [
        artwork(128447),
        artwork(2, DateAcquired="11-17-2009", ObjectID="x"),
        "cut off\r\n",
        artwork(128447),
        artwork(5, ConstituentID="1;2"),
    ]
    with pytest.raises(SourceError) as e:
        published(folder([*FOLLOWED, artist(5, BeginDate="c. 1930")], works))
    assert (
        e.value.message == "6 values of the files cannot be loaded"
        and "nothing was changed" in e.value.hint
    )
    for text in (
        "Artists.csv, line 6, BeginDate: 'c. 1930', not a whole number",
        "Artworks.csv, line 3, ObjectID: 'x'",
        "line 3, DateAcquired: '11-17-2009', not a date",
        "line 4, record",
        "line 5, ObjectID: 128447",
        "line 6, ConstituentID: '1;2'",
    ):
        assert text in e.value.location


def test_what_is_wrong_above_a_line_that_cannot_be_read_is_told_with_it(folder):
    there = folder(
        [*FOLLOWED, artist(5, BeginDate="c. 1930")], [artwork(2, ObjectID="x"), '3,"cut']
    )
    with pytest.raises(SourceError) as e:
        published(there)
    assert e.value.message.startswith("3 values")
    for text in (
        "Artists.csv, line 6, BeginDate",
        "Artworks.csv, line 2, ObjectID",
        "line 3, record",
    ):
        assert text in e.value.location


def test_ten_bad_values_are_named_and_all_are_counted(folder):
    with pytest.raises(SourceError) as e:
        published(folder(FOLLOWED, [artwork(n, DateAcquired="1941") for n in range(1, 1235)]))
    assert e.value.message.startswith("1,234 values") and e.value.location.count("'1941'") == 10
    assert e.value.location.endswith("… and 1,224 more") and "line 11," in e.value.location


def test_what_is_judged_is_what_is_loaded(folder):
    there = folder(FOLLOWED, [artwork(128447), artwork(2, Title="", Dimensions="one\ntwo")])
    artists, works = published(there)
    assert [row[0] for row in artists.rows()] == [1, 299, 441, 4609]
    assert [row[2] for row in works.rows()] == ["Study for Head Bath", None]


@pytest.mark.parametrize(
    "artists, works, says",
    [
        (
            (),
            [artwork(128447)],
            "Artists.csv.*a header and no rows|a header and no rows.*Artists.csv",
        ),
        (FOLLOWED, (), "a header and no rows.*Artworks.csv"),
        (
            FOLLOWED[:2],
            [artwork(128447)],
            r"requires are missing: \[441, 4609\].*Artists.csv, ConstituentID",
        ),
        (FOLLOWED, [artwork(1)], r"\[128447\].*Artworks.csv, ObjectID"),
    ],
)
def test_files_without_the_rows_that_are_followed(folder, artists, works, says):
    with pytest.raises(SourceError, match=f"(?s){says}"):
        published(folder(artists, works))


@pytest.mark.parametrize("scale", [0, -1, 0.009, 10.1, float("nan"), "1", True])
def test_a_scale_out_of_range_is_refused(scale):
    with pytest.raises(SourceError, match="scale is"):
        moma.loader.validate(params.load("local"), scale=scale)


def test_a_packed_file_is_to_be_unpacked(folder, tmp_path):
    there = folder()
    (tmp_path / "Artworks.csv").rename(tmp_path / "Artworks.csv.xz")
    with pytest.raises(SourceError, match="unpack Artworks.csv.xz"):
        published(there)


@pytest.mark.parametrize("name", ["Artists.csv", "Artworks.csv"])
def test_missing_file(folder, tmp_path, name):
    there = folder()
    (tmp_path / name).unlink()
    with pytest.raises(SourceError, match=f"(?s)does not exist.*{name}.*expected"):
        moma.loader.load(params.load("local"), from_dir=there, confirm=lambda question: True)


def test_nothing_is_done_without_confirmation():
    """Declined: not even a connection is made (none is there in a unit test)."""
    asked = []
    assert moma.loader.load(params.load("local"), confirm=lambda q: bool(asked.append(q))) == {}
    assert len(asked) == 1 and "moma" in asked[0] and "artworks" in asked[0]
