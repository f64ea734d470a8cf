"""Tracks: steps, clean starts, and what they remove. tests/stack tests them with services."""

import dataclasses
from types import SimpleNamespace

import pandas as pd
import pytest
from workbench import connect, flow, landing, tracks
from workbench.base import files, params
from workbench.base.errors import ConnectorError, LakeError, WorkbenchError
from workbench.flow import resources
from workbench.flow.flow import CaptureFlow
from workbench.flow.resources import Product, Resources
from workbench.source import postgres
from workbench.source.loading import Loader
from workbench.topic import topics
from workbench.tracks import log_based, movies, museum, outbox
from workbench.tracks.track import is_done
from worlds import with_settings


@pytest.fixture
def world():
    return params.load("local")


@pytest.fixture
def empty(world, monkeypatch):
    """Services that have nothing: a test adds what exists."""
    for module, name in (
        (landing, "names"),
        (topics, "names"),
        (resources.registry, "names"),
        (resources.groups, "names"),
        (postgres, "databases"),
    ):
        monkeypatch.setattr(module, name, lambda *_: [])
    monkeypatch.setattr(postgres, "all_slots", lambda *_: pd.DataFrame({"slot_name": []}))
    monkeypatch.setattr(resources.landing, "drop", lambda *_: None)
    monkeypatch.setattr(resources.landing, "reset_offsets", lambda *_: None)
    monkeypatch.setattr(CaptureFlow, "has_database", lambda *_: False)
    catalog = SimpleNamespace(databaseExists=lambda name: False)
    monkeypatch.setattr(resources, "session", lambda world: SimpleNamespace(catalog=catalog))
    return world


def test_a_misspelled_name_is_rejected_with_a_suggestion(world):
    """Before any query, and before any notebook runs."""
    for call in (
        lambda: tracks.ensure(world, outbox.TRACK, "11_source_database", "12_connector"),
        lambda: is_done(world, outbox.TRACK, "12_connector"),
        lambda: tracks.reset(world, outbox.TRACK, since="12_connector"),
    ):
        with pytest.raises(
            WorkbenchError, match="(?s)no step '12_connector'.*did you mean '12_connectors'"
        ):
            call()


def test_two_tracks_may_have_a_table_of_the_same_name(world, monkeypatch):
    captures = tuple(dataclasses.replace(c, key="id") for c in museum.flow.captures)
    other = dataclasses.replace(
        museum.TRACK, name="60_other", flow=dataclasses.replace(museum.flow, captures=captures)
    )
    monkeypatch.setattr(tracks, "ALL", (*tracks.ALL, other))
    with pytest.raises(
        LakeError, match="(?s)2 tracks .*'artists'.*50_time_travel/artists, 60_other/artists"
    ):
        tracks.find_captured_table("artists")
    found = [
        tracks.find_captured_table(f"{name}/artists") for name in ("50_time_travel", "60_other")
    ]
    assert found == [(museum.TRACK, "artists"), (other, "artists")]
    with pytest.raises(LakeError, match="no captured table '50_time_travels/artists'"):
        tracks.find_captured_table("50_time_travels/artists")


def test_the_declared_steps_are_notebooks_in_their_order():
    for each in tracks.ALL:
        notebooks = [step.notebook for step in each.all_steps]
        there = {path.stem for path in each.folder.glob("*.ipynb")}
        assert notebooks == sorted(notebooks) and {*notebooks} <= there
        products = [step.product for step in each.all_steps]
        assert products == sorted(products)


def test_the_reserved_databases_are_those_of_the_tracks(world):
    """An own flow cannot have them."""
    used = {name for each in tracks.ALL for name in each.owns.databases}
    tables = [
        table
        for each in tracks.ALL
        for table in (*each.flow.tables(world), *each.owns.tables(world))
    ]
    used |= {table.database for table in tables}
    assert {*flow.RESERVED_DATABASES} == used | {"default"}


# --- whether a step is done


@pytest.mark.parametrize(
    "published, is_complete",
    [
        ([], False),
        (["public.artists"], False),
        (["public.artists", "public.artworks"], True),
        (["public.artists", "public.artworks", "public.loans"], True),
    ],
)
def test_the_source_is_complete_when_all_captured_tables_are_loaded_and_published(
    world, monkeypatch, published, is_complete
):
    monkeypatch.setattr(CaptureFlow, "has_database", lambda *_: True)
    publications = pd.DataFrame(
        {"publication": [museum.flow.publication] * len(published), "table": published}
    )
    monkeypatch.setattr(postgres, "publications", lambda *_: publications)
    monkeypatch.setattr(Loader, "is_loaded", lambda *_: True)
    assert is_done(world, museum.TRACK, "51_source_database") is is_complete
    unpublished = dataclasses.replace(museum.flow, publication="")
    polled = dataclasses.replace(museum.TRACK, flow=unpublished)
    assert is_done(world, polled, "51_source_database")
    monkeypatch.setattr(Loader, "is_loaded", lambda *_: False)
    for each in (museum.TRACK, polled):
        assert not is_done(world, each, "51_source_database"), "a table is missing"


@pytest.mark.parametrize("stays", [False, True])
def test_a_failed_connector_is_restarted_once_and_otherwise_deployed_again(
    world, monkeypatch, stays
):
    calls, failures = [], ["registry away"]

    def restart(world, name):
        calls.append(name)
        failures[:] = failures if stays else []

    def wait_running(world, name, stable_for):
        if failures:
            raise ConnectorError(failures[0])

    for name, stub in (
        ("names", lambda _: [museum.CONNECTOR]),
        ("failure", lambda *_: failures[0] if failures else None),
        ("restart", restart),
        ("wait_running", wait_running),
    ):
        monkeypatch.setattr(connect, name, stub)
    existing = [museum.flow.topic(world, name) for name in museum.flow.names]
    monkeypatch.setattr(topics, "names", lambda world: existing)
    monkeypatch.setattr(topics, "offset_span", lambda *_: 5)
    monkeypatch.setattr(
        tracks.track, "_run_notebook", lambda world, track, name: calls.append(name)
    )
    tracks.ensure(world, museum.TRACK, "52_connectors")
    assert calls == [museum.CONNECTOR, *["52_connectors"] * stays]


@pytest.mark.parametrize(
    "columns, lake, is_reset",
    [
        (["movie_id", "title"], False, False),
        (["movie_id", "title", "COUNTRY"], True, True),
        (["movie_id", "title", "COUNTRY"], False, True),
        ([], False, False),
    ],
)
def test_the_movies_are_reset_if_the_source_has_the_column_whatever_the_lake_has(
    world, monkeypatch, columns, lake, is_reset
):
    calls = []
    monkeypatch.setattr(movies.mariadb, "query", lambda *_: pd.DataFrame({"column_name": columns}))
    monkeypatch.setattr(movies.hudi, "exists", lambda _: lake)
    monkeypatch.setattr(movies, "reset", lambda world, track, since: calls.append(since))
    monkeypatch.setattr(movies, "ensure", lambda world, track, *steps: calls.append(steps))
    movies.reset_if_evolved(world)
    assert calls == ["42_connectors"] * is_reset + [("41_source_database", "42_connectors")]
    assert is_done(world, movies.TRACK, "43_evolve") is (lake and "COUNTRY" in columns)


# --- clean starts


@pytest.fixture
def loaded(world, monkeypatch):
    """The museum, loaded and captured; a test sets which rows and messages there are."""
    state = SimpleNamespace(changed=False, messages=5, topics=True, calls=[])
    monkeypatch.setattr(tracks.track, "_has_source", lambda *_: True)
    monkeypatch.setattr(postgres, "create_database", lambda *_: None)
    monkeypatch.setattr(Loader, "is_changed", lambda *_: state.changed)
    checked = lambda *_: state.calls.append("checked")  # noqa: E731
    monkeypatch.setattr(Loader, "require_reloadable", checked)
    monkeypatch.setattr(Loader, "reload", lambda *_: state.calls.append("loaded"))
    monkeypatch.setattr(CaptureFlow, "count", lambda *_: 5)
    monkeypatch.setattr(CaptureFlow, "deploy", lambda *_: state.calls.append("deployed"))
    monkeypatch.setattr(topics, "offset_span", lambda *_: state.messages)
    names = [each.flow.topic(world, name) for each in tracks.ALL for name in each.flow.names]
    monkeypatch.setattr(topics, "names", lambda world: names if state.topics else [])
    monkeypatch.setattr(
        Resources, "remove", lambda self, world, *products: state.calls.append([*products])
    )
    return state


@pytest.mark.parametrize("changed, messages", [(True, 5), (False, 7)])
def test_changed_rows_are_loaded_again_and_the_topics_restart(world, loaded, changed, messages):
    """Also if a user changed a row and changed it back: then only the topics have it."""
    loaded.changed, loaded.messages = changed, messages
    renewed = [*["checked"] * changed, [Product.TOPICS, Product.TABLES], *["loaded"] * changed]
    tracks.reset(world, museum.TRACK, since="53_hudi_ingest")
    assert loaded.calls == [*renewed, "deployed"]
    loaded.calls.clear()
    tracks.reset(world, museum.TRACK, since="52_connectors")
    assert loaded.calls == renewed, "its notebook deploys"
    loaded.calls.clear()
    tracks.reset(world, museum.TRACK, since="51_source_database")
    assert loaded.calls == [[*Product]], "its notebook loads"


def test_unchanged_rows_stay_with_their_topics(world, loaded):
    tracks.reset(world, museum.TRACK, since="53_hudi_ingest")
    tracks.reset(world, outbox.TRACK, since="13_hudi_ingest")
    assert loaded.calls == [[Product.TABLES]] * 2
    loaded.calls.clear()
    loaded.changed, loaded.topics = True, False
    tracks.reset(world, museum.TRACK, since="53_hudi_ingest")
    removed = [Product.TOPICS, Product.TABLES]
    assert loaded.calls == ["checked", removed, "loaded"], "no topics to restart"


def test_restored_tables_are_read_from_their_earlier_source(world, loaded, monkeypatch):
    calls = []
    monkeypatch.setattr(
        CaptureFlow, "sync", lambda self, spark, world, kind, label: calls.append((kind, label))
    )
    for kind in ("topic", "landed"):
        monkeypatch.setattr(
            CaptureFlow,
            "source_kind",
            lambda self, world, table, kind=kind: kind if table.type == "mor" else "topic",
        )
        tracks.restore(None, world, museum.TRACK)
    assert calls == [("topic", "after_load"), ("landed", "after_load")]


# --- what is removed


def test_the_topics_are_those_of_tables_connectors_and_heartbeats(world):
    tables = {"moma.public.artists", "moma.public.artworks", "moma_envelope.public.artists"}
    heartbeats = {"__debezium-heartbeat.moma", "__debezium-heartbeat.moma_envelope"}
    messages = {"moma.message", "moma_envelope.message"}
    assert museum.TRACK.resources.topics(world) == tables | heartbeats | messages
    schemas = museum.TRACK.resources.connector_schemas(world)
    assert "moma.public.artists-value" in schemas and len(schemas) == 14
    assert outbox.TRACK.resources.connector_schemas(world) == set(), "no registry is needed"


def test_objects_of_the_user_with_similar_names_stay(empty, monkeypatch):
    """Connectors, topics, schemas, slots, groups and publications are removed by exact name."""
    world, removed = empty, []
    config = connect.config(world, outbox.CONNECTOR)
    existing = {
        "connectors": ["outbox_source", "outbox_source_2", "my_outbox_sink"],
        "topics": ["msk.datalake.cdc_events", "msk.datalake.cdc_events_mine", "msk.mine"],
        "slots": [config["slot.name"], f"{config['slot.name']}_mine"],
        "publications": ["cdc_publication", "cdc_publication_mine"],
    }
    monkeypatch.setattr(landing, "names", lambda _: existing["connectors"])
    monkeypatch.setattr(topics, "names", lambda _: existing["topics"])
    monkeypatch.setattr(
        postgres, "all_slots", lambda _: pd.DataFrame({"slot_name": existing["slots"]})
    )
    monkeypatch.setattr(postgres, "databases", lambda _: [config["database.dbname"]])
    monkeypatch.setattr(
        postgres,
        "publications",
        lambda *_: pd.DataFrame({"publication": existing["publications"], "table": "t"}),
    )
    expected = ["outbox_source", "msk.datalake.cdc_events", config["slot.name"], "cdc_publication"]
    remaining = outbox.TRACK.resources.remaining(world)
    assert sorted(name for names in remaining.values() for name in names) == sorted(expected)
    monkeypatch.setattr(landing, "delete", lambda world, name: removed.append(name))
    monkeypatch.setattr(topics, "delete", lambda world, *names: removed.extend(names))
    monkeypatch.setattr(postgres, "drop_slot", lambda world, name, database: removed.append(name))
    monkeypatch.setattr(
        postgres, "drop_publication", lambda world, name, database: removed.append(name)
    )
    monkeypatch.setattr(Loader, "unload", lambda *_: None)
    monkeypatch.setattr(resources.registry, "delete", lambda world, *names: removed.extend(names))
    outbox.TRACK.resources.remove(world, *Product)
    assert sorted(removed) == sorted(expected)


def test_a_reset_removes_databases_and_folders_of_sql_tables(empty, monkeypatch, tmp_path):
    statements = []
    fake_session = SimpleNamespace(
        catalog=SimpleNamespace(databaseExists=lambda name: name == "made"), sql=statements.append
    )
    monkeypatch.setattr(resources, "session", lambda world: fake_session)
    lake = with_settings(empty, lake={"tables": f"file:{tmp_path}"})
    for folder in ("refined", "refined_by_me"):
        files.write_text(f"file:{tmp_path}/{folder}/part-0.parquet", "x")
    owns = resources.Owns(databases=("made", "gone"), folders=("tables/refined",))
    Resources(museum.flow, owns).remove(lake, Product.TABLES)
    assert statements == ["DROP DATABASE `made` CASCADE"]
    assert [path.name for path in tmp_path.iterdir()] == ["refined_by_me"]


def test_a_reset_removes_the_offsets_of_polling_connectors(empty, monkeypatch):
    """Also of one that is not deployed."""
    prefixes = []
    monkeypatch.setattr(
        resources.landing,
        "reset_offsets",
        lambda _, config: prefixes.append(config["topic.prefix"]),
    )
    assert "pagila_poll" in log_based.TRACK.owns.connectors
    log_based.TRACK.resources.remove(empty, Product.TOPICS)
    assert prefixes == ["pagila.polled."]


def test_a_reset_removes_files_of_further_sinks_and_connectors(world, empty, tmp_path, monkeypatch):
    monkeypatch.undo()
    parts = ("landing", "tables", "checkpoints", "dead_letters")
    lab = with_settings(world, lake={part: f"file:{tmp_path}/{part}" for part in parts})
    for module, name, stub in (
        (landing, "names", []),
        (topics, "names", []),
        (resources.registry, "names", []),
        (resources.registry, "delete", None),
        (topics, "delete", None),
        (resources.groups, "names", []),
        (resources.groups, "delete", None),
        (CaptureFlow, "has_database", False),
    ):
        monkeypatch.setattr(module, name, lambda *_, stub=stub: stub)
    monkeypatch.setattr(resources, "KINDS", [k for k in resources.KINDS if k.title != CATALOG])
    sink = landing.parse(movies.flow.config(lab, movies.POISONED_SINK))
    path = connect.config(lab, movies.FILE_SINK)["file"]
    places = (
        f"landing/topics/{movies.POISONED_TOPIC}/partition=0/a.parquet",
        f"checkpoints/landing/topics/{movies.POISONED_TOPIC}.progress.json",
        f"dead_letters/landing/{sink.state_path}/0.json",
        f"checkpoints/replayed/{movies.DLQ_TOPICS['lake']}/an id/0-0.json",
    )
    assert not any(movies.TRACK.resources.remaining(lab).values())
    for each in (path, *(f"{tmp_path}/{place}" for place in places)):
        files.write_text(f"file:{each}", '{"topic_id": "id", "offsets": {}}')
    remaining = movies.TRACK.resources.remaining(lab)
    assert {kind: names for kind, names in remaining.items() if names} == {
        "files": [
            f"file:{tmp_path}/checkpoints/replayed/{movies.DLQ_TOPICS['lake']}",
            f"file:{tmp_path}/landing/topics/{movies.POISONED_TOPIC}",
            f"file:{tmp_path}/dead_letters/landing/{sink.state_path}",
            f"file:{path}",
        ]
    }
    others = f"file:{tmp_path}/checkpoints/replayed/others.dlq"
    files.write_text(f"{others}/an id/0-0.json", "[]")
    movies.TRACK.resources.remove(lab, Product.TOPICS)
    assert not any(movies.TRACK.resources.remaining(lab).values())
    files.remove(others)  # of another track, or of yours
    assert all(path.endswith(".lock") for path in files.list_files(f"file:{tmp_path}"))


CATALOG = "databases in the catalog"


def test_a_reset_removes_the_consumer_groups_of_schema_histories(empty, monkeypatch):
    existing = ["db1-schemahistory", "db1_positions-schemahistory", "others-schemahistory"]
    monkeypatch.setattr(resources.groups, "names", lambda world: existing)
    monkeypatch.setattr(resources.groups, "delete", lambda world, group: existing.remove(group))
    monkeypatch.setattr(resources.topics, "delete", lambda *_: None)
    monkeypatch.setattr(resources.registry, "delete", lambda *_: None)
    assert movies.TRACK.resources.remaining(empty)["consumer groups"] == existing[:2]
    movies.TRACK.resources.remove(empty, Product.TOPICS)
    assert existing == ["others-schemahistory"]
    assert not movies.TRACK.resources.remaining(empty)["consumer groups"]
