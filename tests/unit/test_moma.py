"""The museum's rows at each scale: counts, named rows, messy values, and the same rows every
time."""

import hashlib
import itertools
import re
import tracemalloc
from decimal import Decimal

import pandas
import pytest
from workbench.base.errors import SourceError
from workbench.walkthroughs import moma
from workbench.walkthroughs.moma import PICADOR, PICASSO

PRINTS = "Prints & Illustrated Books"
DIGEST = "2dc0dc4995347b49b0b4ac7545d3b382b049396b851bb78b20800455868055ba"  # of scale 0.05


def rows(scale):
    return {t.name: list(t.rows()) for t in moma.sample_tables(scale)}


def frames(scale):
    return {
        t.name: pandas.DataFrame(t.rows(), columns=t.columns, dtype=object)
        for t in moma.sample_tables(scale)
    }


@pytest.fixture(scope="module")
def data():
    return frames(0.02)


@pytest.mark.parametrize(
    "scale, artists, artworks", [(0.01, 150, 1380), (0.02, 300, 2760), (0.29, 4350, 40020)]
)
def test_counts(scale, artists, artworks):
    made = rows(scale)
    assert (len(made["artists"]), len(made["artworks"])) == (artists, artworks)
    for table in made.values():
        keys = [row[0] for row in table]
        assert keys == sorted(set(keys)), "in the order of a key that is unique"
    known = {row[0] for row in made["artists"]}
    assert {row[1] for row in made["artworks"]} - {None} <= known, "every artist named is there"


def test_counts_at_full_size():
    for table, count in zip(moma.sample_tables(1), (15_000, 138_000)):
        assert sum(1 for _ in table.rows()) == count


def test_named_artists(data):
    artists = data["artists"].set_index("artist_id")
    assert list(artists.loc[1]) == ["Robert Arneson", "American", "Male", 1930, 1992]
    assert list(artists.loc[299]) == ["Gerhard H. Bakker", "American", "Male", 1906, 1988]
    assert list(artists.loc[PICASSO]) == ["Pablo Picasso", "Spanish", "Male", 1881, 1973]
    assert artists.loc[441].notna().all(), "its delete must null something"


def test_picador_waits_for_its_updates(data):
    row = data["artworks"].set_index("artwork_id").loc[PICADOR]
    assert list(row[["artist_id", "title", "name", "classification", "department"]]) == [
        PICASSO,
        "Picador (La Pique)",
        "Pablo Picasso",
        "Print",
        PRINTS,
    ]
    assert row[["date", "acquisition_date", "dimensions"]].isna().all()


@pytest.mark.parametrize("scale", [0.01, 0.02, 0.5])
def test_84_dated_prints_after_the_update(scale):
    """S5's Q9: joined with the artists, Spanish, Print, dated."""
    made = frames(scale)
    joined = made["artworks"].merge(made["artists"][["artist_id", "nationality"]], on="artist_id")
    his = joined[joined.artist_id == PICASSO]
    prints = his[(his.classification == "Print") & (his.nationality == "Spanish")]
    assert prints.date.notna().sum() == 83 and PICADOR in set(prints[prints.date.isna()].artwork_id)
    assert len(prints) > 84 and (his.date.notna() & (his.classification != "Print")).any(), (
        "each filter matters"
    )
    assert not prints.duplicated(["date", "title"]).any(), "so that Q9 has one order"
    assert set(his.name) == {"Pablo Picasso"}


def test_what_the_queries_ask_for_is_there(data):
    artists, artworks = data["artists"], data["artworks"]
    assert {"Afghan", "Albanian", "Algerian", "American", "German", "Spanish"} <= set(
        artists.nationality
    )
    assert (artworks.department == PRINTS).sum() >= 100 and (
        artworks.classification == "Print"
    ).sum() >= 10
    assert {1, 299, 441} <= set(artworks.artist_id), "artworks stay when their artist is deleted"


def test_shares():
    made = frames(0.5)
    artists, artworks = made["artists"], made["artworks"]
    assert (
        0.42 < (artists.nationality == "American").mean() < 0.48
        and artists.nationality.nunique() > 25
    )
    classes = artworks.classification.value_counts(normalize=True)
    assert {*classes.index[:4]} == {
        "Print",
        "Photograph",
        "Illustrated Book",
        "Mies van der Rohe Archive",
    }
    assert len(classes) >= 25 and 0.2 < classes.iloc[0] < 0.3
    assert (
        artworks.artist_id.value_counts().iloc[0] > 20 * artworks.artist_id.value_counts().median()
    )


def test_messy_values(data):
    artists, artworks = data["artists"], data["artworks"]
    assert {None, "Male", "Female", "male"} <= set(artists.gender)
    for column in ("nationality", "birth_year", "death_year"):
        assert 0 < artists[column].isna().sum() < 200
    for column in set(artworks) - {"artwork_id", "department"}:
        assert 0 < artworks[column].isna().sum() < 700, column
    for texts in (artists.name, artworks.title, artworks.name):
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
        assert artworks.date.str.fullmatch(pattern).any(), pattern
    for part in (
        r"\d \d+/\d+ × ",
        r"/16 x ",
        r"^composition: .*; sheet: ",
        "^Overall",
        "^Dimensions variable$",
    ):
        assert artworks.dimensions.str.contains(part).any(), part
    for part in (r"\r\n", '"', r"\\", ","):  # what COPY and CSV must quote
        assert artworks.title.str.contains(part).any(), part
    assert "(not assigned)" in set(artworks.classification)


def test_several_artists(data):
    """The first is artist_id; name has them all."""
    names = dict(zip(data["artists"].artist_id, data["artists"].name))
    known = data["artworks"].dropna(subset=["artist_id"])
    assert all(
        name.split(", ")[0] == names[artist].split(", ")[0]
        for artist, name in zip(known.artist_id, known.name)
    )
    several = sum(name != names[artist] for artist, name in zip(known.artist_id, known.name))
    assert 0.01 < several / len(known) < 0.08
    assert data["artworks"][data["artworks"].artist_id.isna()].name.isna().all()


def test_values_fit_together(data):
    artists = data["artists"].dropna(subset=["death_year"])
    assert (artists.death_year - artists.birth_year).astype(int).between(35, 95).all()
    artworks = data["artworks"].dropna(subset=["height_cm"])
    assert artworks.height_cm.map(
        lambda h: isinstance(h, Decimal) and h.as_tuple().exponent == -4
    ).all()
    for text, height in zip(artworks.dimensions, artworks.height_cm):
        shown = Decimal(re.search(r"\(([\d.]+) [x×]", text).group(1))
        assert shown <= height < shown + Decimal("0.1"), text
    assert artworks.dimensions.notna().all()
    times = data["artworks"].dropna(subset=["cataloged_at", "acquisition_date"])
    assert all(c.date() >= a for c, a in zip(times.cataloged_at, times.acquisition_date))
    assert any(c.microsecond % 1000 for c in times.cataloged_at), "microseconds"


def test_same_rows_every_time():
    """Rows may change only on purpose: readers keep figures made of them."""
    made = itertools.chain.from_iterable(t.rows() for t in moma.sample_tables(0.05))
    assert hashlib.sha256("\n".join(map(repr, made)).encode()).hexdigest() == DIGEST


def test_a_larger_scale_has_the_rows_of_the_smaller_one():
    small, large = rows(0.02), rows(0.1)
    for name in small:
        assert set(small[name]) < set(large[name])


def test_rows_stream():
    """The first rows come without making the rest, and none is kept."""
    tracemalloc.start()
    artworks = {t.name: t for t in moma.sample_tables(1)}["artworks"].rows()
    assert iter(artworks) is artworks
    assert len(list(itertools.islice(artworks, 10_000, 10_100))) == 100
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000, "bytes, for the names of the artists met so far and these rows"


@pytest.mark.parametrize(
    "scale", [0, -1, 0.009, 0.015, 10.1, "1", True, None, float("nan"), float("inf")]
)
def test_wrong_scale(scale):
    with pytest.raises(SourceError, match="0.01 to 10"):
        moma.sample_tables(scale)
