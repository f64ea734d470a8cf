"""The museum's bundled rows: counts, named rows and messy values."""

import re
from decimal import Decimal

import pandas
import pytest
from workbench.base import params
from workbench.base.errors import SourceError
from workbench.source.row_files import read_dicts
from workbench.tracks import moma
from workbench.tracks.moma import PICADOR, PICASSO

PRINTS = "Prints & Illustrated Books"
INTEGERS = ["ConstituentID", "BeginDate", "EndDate", "ObjectID"]


@pytest.fixture(scope="module")
def data():
    """The rows of the two files; an empty value is None."""
    made = {}
    for name in ("Artists", "Artworks"):
        rows = read_dicts(moma.DATA / f"{name}.csv")
        frame = pandas.DataFrame(
            [{column: value or None for column, value in row.items()} for row in rows], dtype=object
        )
        for column in frame.columns.intersection(INTEGERS):
            first = frame[column].map(lambda text: text and int(text.split(",")[0]) or None)
            frame[column] = first.astype(object).where(first.notna(), None)
        made[name] = frame
    return made


def test_counts_and_keys(data):
    assert [len(table) for table in data.values()] == [150, 1380]
    for table in data.values():
        keys = list(table.iloc[:, 0])
        assert keys == sorted(set(keys)), "in the order of a key that is unique"
    known = set(data["Artists"]["ConstituentID"])
    assert set(data["Artworks"]["ConstituentID"].dropna()) <= known, "every artist named is there"


def test_named_artists(data):
    artists = data["Artists"].set_index("ConstituentID")
    assert list(artists.loc[1]) == ["Robert Arneson", "American", "Male", 1930, 1992]
    assert list(artists.loc[299]) == ["Gerhard H. Bakker", "American", "Male", 1906, 1988]
    assert list(artists.loc[PICASSO]) == ["Pablo Picasso", "Spanish", "Male", 1881, 1973]
    assert artists.loc[441].notna().all(), "its delete must null something"


def test_picador_waits_for_its_updates(data):
    row = data["Artworks"].set_index("ObjectID").loc[PICADOR]
    assert list(row[["ConstituentID", "Title", "Artist", "Classification", "Department"]]) == [
        PICASSO,
        "Picador (La Pique)",
        "Pablo Picasso",
        "Print",
        PRINTS,
    ]
    assert row[["Date", "DateAcquired", "Dimensions"]].isna().all()


def test_84_dated_prints_after_the_update(data):
    """S5's Q9: joined with the artists, Spanish, Print, dated."""
    his = data["Artworks"][data["Artworks"]["ConstituentID"] == PICASSO]
    prints = his[his["Classification"] == "Print"]
    undated = prints[prints["Date"].isna()]
    assert prints["Date"].notna().sum() == 83 and PICADOR in set(undated["ObjectID"])
    others = his["Date"].notna() & (his["Classification"] != "Print")
    assert len(prints) > 84 and others.any(), "each filter matters"
    assert not prints.duplicated(["Date", "Title"]).any(), "so that Q9 has one order"
    assert set(his["Artist"]) == {"Pablo Picasso"}


def test_what_the_queries_ask_for_is_there(data):
    artists, artworks = data["Artists"], data["Artworks"]
    partitions = {"Afghan", "Albanian", "Algerian", "American", "German", "Spanish"}
    assert partitions <= set(artists["Nationality"])
    assert (artworks["Department"] == PRINTS).sum() >= 100
    assert (artworks["Classification"] == "Print").sum() >= 10
    assert {1, 299, 441} <= set(artworks["ConstituentID"]), "artworks stay without their artist"


def test_shares(data):
    artists, artworks = data["Artists"], data["Artworks"]
    assert 0.42 < (artists["Nationality"] == "American").mean() < 0.48
    assert artists["Nationality"].nunique() > 25
    classes = artworks["Classification"].value_counts(normalize=True)
    assert {*classes.index[:4]} == {
        "Print",
        "Photograph",
        "Illustrated Book",
        "Mies van der Rohe Archive",
    }
    assert len(classes) >= 25 and 0.2 < classes.iloc[0] < 0.3
    counts = artworks["ConstituentID"].value_counts()
    assert counts.iloc[0] > 20 * counts.median()


def test_messy_values(data):
    artists, artworks = data["Artists"], data["Artworks"]
    assert {None, "Male", "Female", "male"} <= set(artists["Gender"])
    for column in ("Nationality", "BeginDate", "EndDate"):
        assert 0 < artists[column].isna().sum() < 100
    for column in set(artworks) - {"ObjectID", "Department"}:
        assert 0 < artworks[column].isna().sum() < 350, column
    for texts in (artists["DisplayName"], artworks["Title"], artworks["Artist"]):
        assert texts.str.contains("[^\x00-\x7f]").any()
    for pattern in (
        r"\d{4}",
        r"c\. \d{4}",
        r"\d{4}-\d\d",
        r"\d{4}–\d\d",
        r"n\.d\.",
        r"\(\d{4}\)",
        r"\d{3}0s",
    ):
        assert artworks["Date"].str.fullmatch(pattern).any(), pattern
    for part in (
        r"\d \d+/\d+ × ",
        r"/16 x ",
        r"^composition: .*; sheet: ",
        "^Overall",
        "^Dimensions variable$",
    ):
        assert artworks["Dimensions"].str.contains(part).any(), part
    for part in (r"\r\n", '"', r"\\", ","):  # what COPY and CSV must quote
        assert artworks["Title"].str.contains(part).any(), part
    assert "(not assigned)" in set(artworks["Classification"])


def test_several_artists(data):
    """The number is that of the first; the name has them all."""
    names = dict(zip(data["Artists"]["ConstituentID"], data["Artists"]["DisplayName"]))
    known = data["Artworks"].dropna(subset=["ConstituentID"])
    pairs = [(name, names[key]) for key, name in zip(known["ConstituentID"], known["Artist"])]
    assert all(name.split(", ")[0] == first.split(", ")[0] for name, first in pairs)
    assert 0.01 < sum(name != first for name, first in pairs) / len(pairs) < 0.08
    assert data["Artworks"][data["Artworks"]["ConstituentID"].isna()]["Artist"].isna().all()


def test_values_fit_together(data):
    artists = data["Artists"].dropna(subset=["EndDate"])
    assert (artists["EndDate"] - artists["BeginDate"]).astype(int).between(35, 95).all()
    artworks = data["Artworks"].dropna(subset=["Height (cm)"])
    for text, height in zip(artworks["Dimensions"], map(Decimal, artworks["Height (cm)"])):
        shown = Decimal(re.search(r"\(([\d.]+) [x×]", text).group(1))
        assert shown <= height < shown + Decimal("0.1"), text
    times = data["Artworks"].dropna(subset=["cataloged_at", "DateAcquired"])
    assert (times["cataloged_at"].str[:10] >= times["DateAcquired"]).all()


@pytest.mark.parametrize(
    "scale", [0, -1, 0.009, 0.015, 10.1, "1", True, float("nan"), float("inf")]
)
def test_wrong_scale(scale):
    with pytest.raises(SourceError, match=r"0\.01 to 10"):
        moma.loader.validate(params.load("local"), scale=scale)
