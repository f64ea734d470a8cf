"""The museum's names, its reference tables, and the change log as of a position.

What needs services is in the checks of the notebooks.
"""
import csv
import dataclasses
import json
from types import SimpleNamespace

import pandas as pd
import pytest
import sqlglot
from sqlglot import exp
from workbench import connect, hudi, landing
from workbench.base import files, params, paths
from workbench.base.errors import ConnectorError, LakeError, SourceError
from workbench.hudi.tables import dead_letters_path
from workbench.results import query
from workbench.walkthroughs import generate_moma, museum, museum_flow

REFERENCE = paths.ROOT / "data" / "reference" / "S5"


@pytest.fixture
def world():
    return params.load("local")


def reference(name):
    with (REFERENCE / f"{name}.csv").open(encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f))


def test_both_kinds_of_both_tables(world):
    made = {t.name: t for t in museum.tables(world)}
    assert list(made) == ["moma_artists_cow", "moma_artists_mor", "moma_artworks_cow", "moma_artworks_mor"]
    assert {t.base.rpartition("/hudi/")[2] for t in made.values()} == {
        "moma/artists_cow", "moma/artists_mor", "moma/artworks_cow", "moma/artworks_mor"}  # S5, 5.1
    merged = made["moma_artists_mor"]
    assert (merged.partition, merged.ordering, merged.deletes) == (("nationality",), "__lsn", "soft")
    assert merged.index.startswith("GLOBAL_") and merged.options()["hoodie.compact.inline"] == "false"
    assert museum.scratch(world).deletes == "hard" and museum.scratch(world).base not in {t.base for t in made.values()}
    with pytest.raises(LakeError, match="(?s)no table 'artist'.*artists"):
        museum.table(world, "artist", "cow")


def test_the_envelope_is_the_same_connector_without_the_transform(world):
    plain, config = museum.envelope(world), museum.config(world)
    assert not [k for k in plain if k.startswith("transforms")] and [k for k in config if k.startswith("transforms")]
    assert plain["slot.name"] != config["slot.name"] and plain["topic.prefix"] != config["topic.prefix"]
    assert museum.envelope_topic().startswith(plain["topic.prefix"] + ".")
    assert museum.topic("artists") == f"{config['topic.prefix']}.public.artists"
    assert config["publication.name"] == museum.PUBLICATION


def test_a_source_that_is_not_there():
    with pytest.raises(LakeError, match="cannot be read from 'topics'"):
        museum.source("artists", "topics")


def test_a_hostile_name_stays_a_name(monkeypatch):
    """It is asked for as the one column that it names, and nothing of it becomes SQL."""
    asked = []

    def answer(spark, text, **values):
        asked.append((sqlglot.parse_one(text, read="athena"), query.translate(text), values))
        names = ["seen_in", hostile, "__op", "_hoodie_file_name", "_hoodie_commit_time"]
        return pd.DataFrame([["x", 1, "u", "a.parquet", "1"]], columns=names)

    monkeypatch.setattr(museum_flow.query, "sql", answer)
    hostile = 'name" FROM "moma_cow"."artworks" UNION ALL SELECT "x`, 1 -- \'\\'
    found = museum.views(None, "artists", 7, hostile)
    assert list(found.columns) == ["seen_in", hostile, "__op", "file", "_hoodie_file_name", "_hoodie_commit_time"]
    own, tables = {"__op", "_hoodie_file_name", "_hoodie_commit_time", "artist_id"}, set()
    for tree, translated, values in asked:
        for read in (tree, sqlglot.parse_one(translated, read="spark")):
            assert {c.name for c in read.find_all(exp.Column)} == {hostile, *own}
            (at,) = read.find_all(exp.Table)
            tables.add((at.db, at.name))
        assert values == {"id": 7}
    assert tables == {("moma_cow", "artists"), ("moma_mor", "artists_ro"), ("moma_mor", "artists_rt")}
    with pytest.raises(LakeError, match="no table 'artists; DROP'"):
        museum.views(None, "artists; DROP", 7)


def test_the_changes_lead_to_the_published_table():
    """LIFE, applied to artist 299 as generated, gives the values of S5's six instants."""
    row = dict(zip(generate_moma.ARTIST_COLUMNS[1:], generate_moma.NAMED[museum.BAKKER]))
    states = {"t0": dict(row)}
    for label, changes in museum.LIFE.items():
        for values in changes:
            row = {**row, **values} if values else {}
        states[label] = row
    for published in reference("artist_299_instants"):
        state = states[published["t"]]
        assert {c: published[c] for c in generate_moma.ARTIST_COLUMNS[1:]} == {
            c: str(state.get(c, "")) for c in generate_moma.ARTIST_COLUMNS[1:]}
    named = {int(r["artist_id"]): tuple(r.values())[1:] for r in reference("artists_named")}
    assert named == {k: tuple(map(str, generate_moma.NAMED[k])) for k in (1, museum.BAKKER)}


def test_the_updates_lead_to_the_published_row():
    row, published = {}, reference("artwork_128447_rt")
    for state, values in zip(published, list(museum.UPDATES.values())[:4]):
        row.update(values)
        assert {c: state[c] for c in row} == row
    assert museum.UPDATES["u5"] == {"date": reference("artwork_128447_u5")[-1]["date"]}


def log(*events):
    return pd.DataFrame(events, columns=["artist_id", "__op", "__lsn", "name"])


def test_the_change_log_as_of_a_position():
    changes = log((1, "r", 16, "one"), (2, "r", 16, "two"), (1, "u", 32, "ONE"), (2, "d", 48, None),
                  (3, "c", 64, "new"))

    def seen(position):
        return museum.at(changes, "artists", position).set_index("artist_id")["name"].to_dict()

    assert seen("0/20") == {1: "one", 2: "two"}, "the position is where the next change stands"
    assert seen("0/21") == {1: "ONE", 2: "two"}
    assert seen("0/10") == {1: "one", 2: "two"}, "the snapshot is always in"
    assert seen("1/0") == {1: "ONE", 2: None, 3: "new"}, "two halves of 32 bits"


def test_a_change_of_no_row_says_so(world, monkeypatch):
    monkeypatch.setattr(museum_flow.topics, "ends", lambda *_: {0: 5})
    monkeypatch.setattr(museum_flow.postgres, "execute", lambda *_: 0)
    monkeypatch.setattr(museum_flow.topics, "wait_count", lambda *_, **__: pytest.fail("waited for nothing"))
    with pytest.raises(SourceError, match="no row of artists was changed"):
        museum.change(world, "artists", 7, name="x")
    waited = []
    monkeypatch.setattr(museum_flow.postgres, "execute", lambda *_: 3)
    monkeypatch.setattr(museum_flow.topics, "wait_count", lambda *a, **__: waited.append(a[2]))
    assert museum.execute(world, "artists", "DELETE …", messages=2) == 3 and waited == [5 + 3 * 2]


def test_a_connector_that_failed_is_no_reason_not_to_start_clean(world, monkeypatch):
    def failed(*_):
        raise ConnectorError("connector moma_source FAILED")

    did = []
    monkeypatch.setattr(museum.connect, "wait_running", failed)
    monkeypatch.setattr(museum.connect, "names", lambda world: [museum.CONNECTOR])
    monkeypatch.setattr(museum.topics, "names", lambda world: [museum.topic(n) for n in museum.TABLES])
    monkeypatch.setattr(museum.postgres, "create_database", lambda *_: None)
    monkeypatch.setattr(museum.postgres, "publications", lambda *_: pd.DataFrame(
        {"publication": museum.PUBLICATION, "table": ["public.artists", "public.artworks"]}))
    monkeypatch.setattr(museum, "session", lambda world: None)
    monkeypatch.setattr(museum, "undo_changes", lambda *_: did.append("source set back") or True)
    monkeypatch.setattr(museum, "tables_left", lambda world: [museum.scratch(world)])
    monkeypatch.setattr(museum.hudi, "drop", lambda *_: did.append("table dropped"))
    monkeypatch.setattr(museum, "_drop_connectors", lambda world: did.append("connector dropped"))
    museum.clear(world, "52_connectors")
    assert did == ["source set back", "table dropped", "connector dropped"]


def test_what_is_set_back_is_what_the_snapshot_had():
    log = [dict(artist_id=k, __op=op, __lsn=lsn) for k, op, lsn in (
        (1, "u", 9), (1, "r", 5), (2, "r", 5), (2, "d", 8), (3, "c", 7), (3, "u", 10))]
    first = museum.first_events("artists", log)
    assert {k: (e["__op"], e["__lsn"]) for k, e in first.items()} == {1: ("r", 5), 2: ("r", 5), 3: ("c", 7)}
    with pytest.raises(LakeError, match="(?s)moma.public.artists has no snapshot of 1 rows.*artist_id 1\\b.*51_source"):
        museum.first_events("artists", [e for e in log if (e["artist_id"], e["__op"]) != (1, "r")])


def test_a_topic_that_has_forgotten_changes_nothing_in_the_source(world, monkeypatch):
    """One table's changes could be taken back, the other's not: then neither is."""
    logs = {"artists": [dict(artist_id=1, __op="r", __lsn=5)], "artworks": [dict(artwork_id=2, __op="u", __lsn=9)]}
    monkeypatch.setattr(museum, "_changed", lambda spark, world, name: logs[name])
    monkeypatch.setattr(museum.postgres, "session", lambda *_: pytest.fail("the source was asked"))
    with pytest.raises(LakeError, match="artworks has no snapshot"):
        museum.undo_changes(None, world)
    monkeypatch.undo()
    monkeypatch.setattr(museum.topics, "count", lambda *_: 0)
    with pytest.raises(LakeError, match="(?s)moma.public.artists is empty.*51_source_database"):
        museum.undo_changes(None, world)


@pytest.mark.parametrize("stays", [False, True])
def test_a_connector_that_failed_without_the_registry_is_started_again(world, monkeypatch, stays):
    """Once; what fails it again is told."""
    did, why = [], ["registry away"]

    def restart(world, name):
        did.append(name)
        why[:] = why if stays else []

    def wait_running(world, name):
        if why:
            raise ConnectorError(why[0])

    for name, answer in (("names", lambda _: [museum.CONNECTOR]), ("failure", lambda *_: why[0] if why else None),
                         ("restart", restart), ("wait_running", wait_running)):
        monkeypatch.setattr(museum.connect, name, answer)
    monkeypatch.setattr(museum.topics, "names", lambda world: [museum.topic(n) for n in museum.TABLES])
    monkeypatch.setattr(museum.topics, "count", lambda *_: 5)
    monkeypatch.setattr(museum, "wait_until", lambda condition, *_, **__: condition() or (_ for _ in ()).throw(
        ConnectorError("gave up")))
    if stays:
        with pytest.raises(ConnectorError, match="registry away"):
            museum.made(world, "52_connectors")
    else:
        assert museum.made(world, "52_connectors")
    assert did == [museum.CONNECTOR]


@pytest.mark.parametrize("published, there", [
    ([], False), (["public.artists"], False), (["public.artists", "public.artworks"], True)])
def test_the_source_is_there_when_both_tables_are_published(world, monkeypatch, published, there):
    monkeypatch.setattr(museum.postgres, "create_database", lambda *_: None)
    found = pd.DataFrame({"publication": [museum.PUBLICATION] * len(published), "table": published})
    monkeypatch.setattr(museum.postgres, "publications", lambda *_: found)
    assert museum.made(world, "51_source_database") is there


def test_what_is_set_back_is_read_from_where_it_was(world, monkeypatch):
    did = []
    changed = SimpleNamespace(where=lambda _: changed, limit=lambda _: changed, collect=lambda: [1])
    monkeypatch.setattr(museum, "events", lambda *_: changed)
    monkeypatch.setattr(museum, "clear", lambda world, step: did.append(step))
    monkeypatch.setattr(museum, "follow", lambda spark, world, kind, label: did.append((kind, label)))
    for kind in ("topic", "landed"):
        monkeypatch.setattr(museum, "kind_of", lambda table, kind=kind: kind if table.type == "mor" else "topic")
        assert museum.begin(None, world, "artists", 299)
    assert did == ["53_hudi_ingest", ("topic", "after_load"), "53_hudi_ingest", ("landed", "after_load")]


@pytest.fixture
def followed(monkeypatch, tmp_path):
    """Follow one table of the museum's, whose last commit has read `before`; return what was read and landed."""
    def follow(world, before, letters=0, unlanded=False, **how):
        seen = []
        world = dataclasses.replace(world, lake=dataclasses.replace(world.lake, dead_letters=f"file:{tmp_path}"))
        if unlanded:
            sink = landing.parse(connect.config(world, museum.SINK))
            files.write_text(f"{landing.dead_letters_path(world, sink)}/00000000/part-0.json", "{}")
        monkeypatch.setattr(museum_flow.postgres, "wal_position", lambda *_: "0/0")
        monkeypatch.setattr(museum_flow, "last_commit", lambda table: before and {
            "extraMetadata": {"_workbench_progress": json.dumps({before: {}})}})
        monkeypatch.setattr(museum_flow.landing, "run", lambda *_: seen.append("landed"))
        monkeypatch.setattr(museum_flow.hudi, "registered", lambda *_: True)

        def ingest(spark, world, source, table):
            seen.append(source.id)
            return hudi.Ingested()  # a later try: the letters lie there since an earlier one

        monkeypatch.setattr(museum_flow.hudi, "ingest", ingest)
        monkeypatch.setattr(museum_flow.hudi, "dead_letters", lambda *_: SimpleNamespace(count=lambda: letters))
        if letters:
            place = dead_letters_path(world, museum.table(world, "artists", "cow"))
            files.write_text(f"{place}/topic-x/00000000/part-0.json", "{}")
        museum.follow(None, world, museum.table(world, "artists", "cow"), **how)
        return seen

    return follow


def test_a_table_is_followed_from_where_it_was_read(world, followed):
    topic, landed = (museum.source("artists", kind).id for kind in ("topic", "landed"))
    assert followed(world, {}) == followed(world, topic) == [topic]
    assert followed(world, landed) == followed(world, topic, kind="landed") == ["landed", landed]
    assert followed(world, landed, kind="topic") == [topic]


def test_a_message_that_nobody_can_read_stops_the_museum(world, followed):
    with pytest.raises(LakeError, match="(?s)2 messages could not be decoded.*moma_artists_cow.*dead_letters"):
        followed(world, {}, letters=2)
    with pytest.raises(LakeError, match="(?s)could not be landed.*landing/topics.sink.*52_connectors"):
        followed(world, {}, kind="landed", unlanded=True)
