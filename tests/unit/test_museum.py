"""The museum's names and its reference tables. What needs services is in the checks of the
notebooks."""

import csv

import pytest
from workbench import connect
from workbench.base import params, paths
from workbench.base.errors import LakeError
from workbench.source.row_files import read_dicts
from workbench.tracks import moma, museum

REFERENCE = paths.ROOT / "data" / "reference" / "S5"


@pytest.fixture
def world():
    return params.load("local")


def reference(name):
    with (REFERENCE / f"{name}.csv").open(encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f))


def test_both_kinds_of_both_tables(world):
    made = {t.name: t for t in museum.flow.tables(world)}
    assert list(made) == [
        "moma_artists_cow",
        "moma_artists_mor",
        "moma_artworks_cow",
        "moma_artworks_mor",
    ]
    assert {t.base.rpartition("/hudi/")[2] for t in made.values()} == {
        "moma/artists_cow",
        "moma/artists_mor",
        "moma/artworks_cow",
        "moma/artworks_mor",
    }  # S5, 5.1
    merged = made["moma_artists_mor"]
    assert (merged.partition, merged.ordering, merged.deletes) == (
        ("nationality",),
        "__lsn",
        "soft",
    )
    assert (
        merged.index.startswith("GLOBAL_") and merged.options()["hoodie.compact.inline"] == "false"
    )
    assert museum.scratch_table(world).deletes == "hard" and museum.scratch_table(
        world
    ).base not in {t.base for t in made.values()}
    with pytest.raises(LakeError, match="(?s)no captured table 'artist'.*artists"):
        museum.flow.table(world, "artist", "cow")


def test_the_envelope_is_the_same_connector_without_the_transform(world):
    plain, config = (
        connect.config(world, museum.ENVELOPE_CONNECTOR),
        connect.config(world, museum.CONNECTOR),
    )
    assert not [k for k in plain if k.startswith("transforms")] and [
        k for k in config if k.startswith("transforms")
    ]
    own = ("slot.name", "topic.prefix", "table.include.list")
    assert all(plain[key] != config[key] for key in own)
    kept = {k: v for k, v in config.items() if not k.startswith("transforms") and k not in own}
    assert {k: v for k, v in plain.items() if "override" not in k and k not in own} == kept
    assert museum.flow.topic(world, "artists") == f"{config['topic.prefix']}.public.artists"
    assert config["publication.name"] == museum.flow.publication


def test_the_changes_lead_to_the_published_table():
    """LIFE, applied to artist 299 as generated, gives the values of S5's six instants."""
    columns = ("name", "nationality", "gender", "birth_year", "death_year")
    artists = [list(row.values()) for row in read_dicts(moma.DATA / "Artists.csv")]
    generated = {int(key): values for key, *values in artists}
    row = dict(zip(columns, generated[museum.BAKKER]))
    states = {"t0": dict(row)}
    for label, changes in museum.RECORD_HISTORY.items():
        for values in changes:
            row = {**row, **values} if values else {}
        states[label] = row
    for published in reference("artist_299_instants"):
        state = states[published["t"]]
        assert {c: published[c] for c in columns} == {c: str(state.get(c, "")) for c in columns}
    named = {int(r["artist_id"]): tuple(r.values())[1:] for r in reference("artists_named")}
    assert named == {k: tuple(map(str, generated[k])) for k in (1, museum.BAKKER)}


def test_the_updates_lead_to_the_published_row():
    row, published = {}, reference("artwork_128447_rt")
    for state, values in zip(published, list(museum.UPDATES.values())[:4]):
        row.update(values)
        assert {c: state[c] for c in row} == row
    assert museum.UPDATES["u5"] == {"date": reference("artwork_128447_u5")[-1]["date"]}
