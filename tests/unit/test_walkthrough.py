"""Walkthroughs: steps, clean starts, changes and syncing. tests/stack tests them with services."""

import dataclasses
import json
import uuid
from types import SimpleNamespace

import pandas as pd
import pytest
from workbench import connect, hudi, landing, tracks
from workbench.base import files, params
from workbench.base.errors import (
    CheckFailed,
    ConnectorError,
    LakeError,
    SourceError,
    WorkbenchError,
)
from workbench.flow import baseline, resources, steps, walkthrough
from workbench.flow import flow as flows
from workbench.flow.baseline import Baseline
from workbench.flow.flow import CaptureFlow
from workbench.flow.steps import Product
from workbench.source import mariadb, postgres
from workbench.tracks import (
    log_based,
    movies,
    museum,
    outbox,
)
from worlds import with_settings


@pytest.fixture
def world():
    return params.load("local")


REMOVED = ["tables removed", "topics removed", "source removed"]


def replace_kinds(monkeypatch, calls):
    """Have one kind of resource for each product, whose removal is recorded."""
    kinds = [
        resources.Kind(
            product.name, product, lambda *_: [], None, lambda *_, text=text: calls.append(text)
        )
        for product, text in zip(sorted(Product, reverse=True), REMOVED)
    ]
    monkeypatch.setattr(resources, "KINDS", kinds)


def kind_of(title):
    return next(kind for kind in resources.KINDS if kind.title == title)


def without_catalog(monkeypatch):
    """Leave out the kinds of the catalog and the source tables, which need Spark and a database."""
    titles = ("databases in the catalog", resources.SOURCE_TABLES)
    kinds = [kind for kind in resources.KINDS if kind.title not in titles]
    monkeypatch.setattr(resources, "KINDS", kinds)


# --- names


def test_a_misspelled_name_is_rejected_with_a_suggestion(world, monkeypatch):
    """Before any query, and before any notebook runs."""
    for call in (
        lambda: outbox.walkthrough.ensure(world, "11_source_database", "12_connector"),
        lambda: outbox.walkthrough.is_done(world, "12_connector"),
        lambda: outbox.walkthrough.reset(world, "12_connector"),
    ):
        with pytest.raises(
            WorkbenchError, match="(?s)no step '12_connector'.*did you mean '12_connectors'"
        ):
            call()
    with pytest.raises(LakeError, match="(?s)no captured table 'artist'.*did you mean 'artists'"):
        museum.flow.rows(world, "artist")
    with pytest.raises(LakeError, match="no captured table ''"):
        museum.flow.topic(world)
    with pytest.raises(LakeError, match="(?s)no lake table of kind 'mro'.*'mor'"):
        museum.flow.table(world, "artists", "mro")
    with pytest.raises(LakeError, match="(?s)cannot be read from 'topics'.*'topic'"):
        museum.flow.source(world, "artists", "topics")


def test_the_only_captured_table_needs_no_name(world):
    assert (
        outbox.flow.topic(world)
        == outbox.flow.topic(world, "cdc_events")
        == "msk.datalake.cdc_events"
    )
    assert outbox.flow.table(world).key == ("order_id",) and outbox.flow.landing_folder(
        world
    ).endswith("/cdc-events")


def test_two_walkthroughs_may_have_a_table_of_the_same_name(world, monkeypatch):
    flow = dataclasses.replace(
        museum.flow,
        captures=tuple(dataclasses.replace(c, key="id") for c in museum.flow.captures),
    )
    other = dataclasses.replace(museum.walkthrough, name="60_other", flow=flow)
    monkeypatch.setattr(tracks, "ALL", (*tracks.ALL, other))
    with pytest.raises(
        LakeError, match="(?s)2 walkthroughs .*'artists'.*50_time_travel/artists, 60_other/artists"
    ):
        tracks.find_captured_table("artists", world)
    for folder, track in (("50_time_travel", museum.walkthrough), ("60_other", other)):
        assert tracks.find_captured_table(f"{folder}/artists", world) == (track, "artists")
    with pytest.raises(LakeError, match="no captured table '50_time_travels/artists'"):
        tracks.find_captured_table("50_time_travels/artists", world)


def test_a_lake_table_has_its_own_capture_even_if_keys_have_the_same_name(world):
    alike = dataclasses.replace(
        museum.flow, captures=tuple(dataclasses.replace(c, key="id") for c in museum.flow.captures)
    )
    assert [alike._capture_for(world, t).name for t in alike.tables(world)] == ["artists"] * 2 + [
        "artworks"
    ] * 2
    experiment = museum.scratch_table(world)
    assert museum.flow._capture_for(world, experiment).name == "artists", (
        "the only one with this key"
    )
    with pytest.raises(LakeError, match="(?s)moma_scratch.*artists, artworks"):
        alike._capture_for(world, dataclasses.replace(experiment, key=("id",)))


# --- steps


@pytest.mark.parametrize(
    "published, is_complete",
    [
        ([], False),
        (["public.artists"], False),
        (["public.artists", "public.artworks"], True),
        (["public.artists", "public.artworks", "public.loans"], True),
    ],
)
def test_the_source_is_complete_when_all_captured_tables_are_published(
    world, monkeypatch, published, is_complete
):
    monkeypatch.setattr(CaptureFlow, "has_database", lambda *_: True)
    publications = pd.DataFrame(
        {"publication": [museum.flow.publication] * len(published), "table": published}
    )
    monkeypatch.setattr(postgres, "publications", lambda *_: publications)
    monkeypatch.setattr(Baseline, "exists", lambda *_: True)
    assert museum.walkthrough.is_done(world, "51_source_database") is is_complete
    monkeypatch.setattr(Baseline, "exists", lambda *_: False)
    assert not museum.walkthrough.is_done(world, "51_source_database"), "no baseline"


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
    monkeypatch.setattr(
        walkthrough.Walkthrough, "reset", lambda self, world, step: calls.append(step)
    )
    monkeypatch.setattr(
        walkthrough.Walkthrough, "ensure", lambda self, world, *steps: calls.append(steps)
    )
    movies.reset_if_evolved(world)
    assert calls == ["42_connectors"] * is_reset + [("41_source_database", "42_connectors")]
    assert movies.walkthrough.is_done(world, "43_evolve") is (lake and "COUNTRY" in columns)


@pytest.mark.parametrize("stays", [False, True])
def test_a_connector_that_failed_without_the_registry_is_restarted(world, monkeypatch, stays):
    """Once, and only by `ensure`; another failure is raised."""
    calls, failures = [], ["registry away"]

    def restart(world, name):
        calls.append(name)
        failures[:] = failures if stays else []

    def wait_running(world, name):
        if failures:
            raise ConnectorError(failures[0])

    for name, stub in (
        ("names", lambda _: [museum.CONNECTOR]),
        ("failure", lambda *_: failures[0] if failures else None),
        ("restart", restart),
        ("wait_running", wait_running),
    ):
        monkeypatch.setattr(connect, name, stub)
    monkeypatch.setattr(
        walkthrough.topics,
        "names",
        lambda world: [museum.flow.topic(world, n) for n in ("artists", "artworks")],
    )
    monkeypatch.setattr(walkthrough.topics, "offset_span", lambda *_: 5)
    with pytest.raises(ConnectorError, match="registry away"):
        museum.walkthrough.is_done(world, "52_connectors")
    assert calls == [], "is_done changes nothing"
    if stays:
        with pytest.raises(ConnectorError, match="registry away"):
            museum.walkthrough.ensure(world, "52_connectors")
    else:
        museum.walkthrough.ensure(world, "52_connectors")
        assert museum.walkthrough.is_done(world, "52_connectors")
    assert calls == [museum.CONNECTOR]


def test_a_failed_connector_does_not_prevent_a_clean_start(world, monkeypatch):
    def failed(*_):
        raise ConnectorError("connector moma_source FAILED")

    calls = []
    monkeypatch.setattr(connect, "wait_running", failed)
    monkeypatch.setattr(
        walkthrough.topics,
        "names",
        lambda world: [museum.flow.topic(world, n) for n in ("artists", "artworks")],
    )
    monkeypatch.setattr(steps, "has_source", lambda *_: True)
    monkeypatch.setattr(Baseline, "restore", lambda *_: calls.append("source restored") or 1)
    monkeypatch.setattr(CaptureFlow, "deploy", lambda *_: calls.append("deployed"))
    replace_kinds(monkeypatch, calls)
    museum.walkthrough.reset(world, "52_connectors")
    assert calls == ["source restored", *REMOVED[:2]]
    calls.clear()
    museum.walkthrough.reset(world, "53_hudi_ingest")
    assert calls == ["source restored", *REMOVED[:2], "deployed"]
    calls.clear()
    museum.walkthrough.reset(world, "source_database")
    assert calls == REMOVED, "the source is loaded again"


@pytest.mark.parametrize("changed, messages, renewed", [(0, 5, False), (1, 5, True), (0, 7, True)])
def test_the_topics_restart_if_they_hold_more_than_the_loaded_rows(
    world, monkeypatch, changed, messages, renewed
):
    """Also if a user changed a row and changed it back. With `watermark` only changed rows count."""
    monkeypatch.setattr(steps, "has_source", lambda *_: True)
    monkeypatch.setattr(Baseline, "restore", lambda *_: changed)
    monkeypatch.setattr(CaptureFlow, "count", lambda *_: 5)
    monkeypatch.setattr(walkthrough.topics, "offset_span", lambda *_: messages)
    all_topics = [w.flow.topic(world, n) for w in tracks.ALL for n in w.captured_names]
    monkeypatch.setattr(walkthrough.topics, "names", lambda world: all_topics)
    assert museum.walkthrough._restore_source(world) is renewed
    assert outbox.walkthrough._restore_source(world) is bool(changed)
    monkeypatch.setattr(walkthrough.topics, "names", lambda world: all_topics[:1])
    assert not museum.walkthrough._restore_source(world), "there are no topics to restart"


def test_a_source_column_that_was_renamed_is_named_by_a_reset():
    connection = SimpleNamespace(
        execute=lambda statement, values: [("title",)], info=SimpleNamespace(dbname="moma")
    )
    with pytest.raises(
        SourceError, match="(?s)public.artworks has no column title.*moma.*notebook"
    ):
        baseline._require_columns(connection, "public.artworks", "kept.copy", "public.artworks")
    connection.execute = lambda statement, values: []
    baseline._require_columns(connection, "public.artworks", "kept.copy", "public.artworks")


def test_a_source_column_that_the_lake_lacks_is_a_difference(world, monkeypatch):
    source = pd.DataFrame({"artist_id": [1], "renamed": ["Ada"]})
    lake = pd.DataFrame({"artist_id": [1], "name": ["Ada"]})
    monkeypatch.setattr(CaptureFlow, "rows", lambda *_: source)
    frame = SimpleNamespace(columns=[*lake], toPandas=lambda: lake, where=lambda _: frame)
    monkeypatch.setattr("workbench.flow.flow.hudi.read", lambda *_: frame)
    table = museum.flow.tables(world, "artists")[0]
    with pytest.raises(CheckFailed, match="column renamed: only in source"):
        museum.flow.compare(None, world, table)


def test_restored_tables_are_read_from_their_earlier_source(world, monkeypatch):
    calls = []
    changed = SimpleNamespace(where=lambda _: changed, limit=lambda _: changed, collect=lambda: [1])
    for owner, name, stub in (
        (CaptureFlow, "events", lambda *_: changed),
        (walkthrough.Walkthrough, "reset", lambda self, world, step: calls.append(step)),
        (CaptureFlow, "sync", lambda self, spark, world, kind, label: calls.append((kind, label))),
    ):
        monkeypatch.setattr(owner, name, stub)
    for kind in ("topic", "landed"):
        monkeypatch.setattr(
            CaptureFlow,
            "source_kind",
            lambda self, world, table, kind=kind: kind if table.type == "mor" else "topic",
        )
        assert museum.walkthrough.reset_if_changed(None, world, "artists", 299)
    assert calls == [
        "hudi_ingest",
        ("topic", "after_load"),
        "hudi_ingest",
        ("landed", "after_load"),
    ]


def test_a_walkthrough_without_publication_drops_none(world, monkeypatch):
    calls = []
    monkeypatch.setattr(postgres, "create_database", lambda *_: calls.append("database"))
    monkeypatch.setattr(
        postgres, "drop_publication", lambda _, name, __: calls.append(f"drop {name!r}")
    )
    monkeypatch.setattr(Baseline, "delete", lambda *_: calls.append("baseline deleted"))
    loader = SimpleNamespace(unload=lambda world: calls.append("tables unloaded"))
    polled = dataclasses.replace(museum.flow, publication="", loader=loader)
    dataclasses.replace(museum.walkthrough.resources, flow=polled).remove(world, Product.SOURCE)
    assert calls == ["database", "tables unloaded", "baseline deleted"]


def test_a_source_without_publication_is_complete_with_its_baseline(world, monkeypatch):
    monkeypatch.setattr(CaptureFlow, "has_database", lambda *_: True)
    monkeypatch.setattr(
        postgres,
        "publications",
        lambda *_: pd.DataFrame(columns=["publication", "table"]),
    )
    monkeypatch.setattr(Baseline, "exists", lambda *_: True)
    flow = dataclasses.replace(museum.flow, publication="")
    assert dataclasses.replace(museum.walkthrough, flow=flow).is_done(world, "51_source_database")


def test_the_topics_are_those_of_tables_connectors_and_heartbeats(
    world,
):
    tables = {"moma.public.artists", "moma.public.artworks", "moma_envelope.public.artists"}
    heartbeats = {"__debezium-heartbeat.moma", "__debezium-heartbeat.moma_envelope"}
    assert museum.walkthrough.resources.topics(world) == tables | heartbeats
    schemas = resources.connector_schemas(museum.walkthrough.resources, world)
    assert "moma.public.artists-value" in schemas and len(schemas) == 10
    assert resources.connector_schemas(outbox.walkthrough.resources, world) == set(), (
        "without schemas no registry is needed"
    )


def test_topics_of_a_source_without_baseline_do_not_restart(world):
    assert movies.flow.db is mariadb
    assert not movies.walkthrough._restore_source(world)


def test_the_declared_steps_are_notebooks_in_their_order():
    for each in tracks.ALL:
        notebooks = [step.notebook for step in each.steps.steps]
        assert notebooks == sorted(notebooks) and each.steps.folder.name == each.name
        files_there = {path.stem for path in each.steps.folder.glob("*.ipynb")}
        assert {*notebooks} - files_there == set(), f"missing in {each.steps.folder}"
        products = [step.product for step in each.steps.steps]
        assert products == sorted(products) and products[0] == Product.SOURCE
        assert (each.flow, each.baseline) == (each.resources.flow, each.resources.baseline)


# --- changes


def test_the_change_log_as_of_a_position():
    changes = pd.DataFrame(
        [
            (1, "r", 16, "one"),
            (2, "r", 16, "two"),
            (1, "u", 32, "ONE"),
            (2, "d", 48, None),
            (3, "c", 64, "new"),
        ],
        columns=["artist_id", "__op", "__lsn", "name"],
    )

    def seen(position):
        return (
            museum.flow.rows_at(changes, "artists", position)
            .set_index("artist_id")["name"]
            .to_dict()
        )

    assert seen("0/20") == {1: "one", 2: "two"}, "the next change will have this position"
    assert seen("0/21") == {1: "ONE", 2: "two"}
    assert seen("0/10") == {1: "one", 2: "two"}, "snapshot rows always count"
    assert seen("1/0") == {1: "ONE", 2: None, 3: "new"}, "two halves of 32 bits"


def test_a_change_of_no_row_is_an_error(world, monkeypatch):
    monkeypatch.setattr(flows.topics, "end_offsets", lambda *_: {0: 5})
    monkeypatch.setattr(postgres, "execute", lambda *_: 0)
    monkeypatch.setattr(
        flows.topics, "wait_for_messages", lambda *_, **__: pytest.fail("waited for nothing")
    )
    with pytest.raises(SourceError, match="no row of artists was changed"):
        museum.flow.change(world, "artists", 7, name="x")
    waited = []
    monkeypatch.setattr(postgres, "execute", lambda *_: 3)
    monkeypatch.setattr(flows.topics, "wait_for_messages", lambda *a, **__: waited.append(a[2]))
    assert museum.flow.execute(world, "artists", "DELETE …", messages=2) == 3 and waited == [
        5 + 3 * 2
    ]


def test_the_changes_of_a_large_table_are_waited_for_longer(world, monkeypatch):
    waited = {}
    monkeypatch.setattr(postgres, "execute", lambda *_, **__: 1)
    monkeypatch.setattr(postgres, "log_position", lambda *_: "0/1")
    monkeypatch.setattr(CaptureFlow, "count", lambda *_: 1_000_000)
    monkeypatch.setattr(
        flows, "wait_until", lambda _, what, timeout, **__: waited.update({what: timeout})
    )
    outbox.flow.wait_until_captured(world)
    (seconds,) = waited.values()
    assert seconds == 60 + 1_000_000 / 500


@pytest.fixture
def two_keys():
    """The artists, with a key of two columns."""
    artists = dataclasses.replace(museum.flow.captures[0], key=("name", "artist_id"))
    return dataclasses.replace(museum.flow, captures=(artists,))


def test_a_row_is_changed_and_deleted_by_a_key_of_several_columns(world, monkeypatch, two_keys):
    executed = []

    def execute(world, statement, values, database):
        executed.append((statement.as_string(None), values))
        return 1

    monkeypatch.setattr(flows.topics, "end_offsets", lambda *_: {0: 5})
    monkeypatch.setattr(flows.topics, "wait_for_messages", lambda *_, **__: 0)
    monkeypatch.setattr(postgres, "execute", execute)
    two_keys.change(world, "artists", ("Ada", 7), gender="f")
    two_keys.delete(world, "artists", ("Ada", 7))
    museum.flow.delete(world, "artists", 7)
    row = 'WHERE ("name", "artist_id") = (%s, %s)'
    assert executed == [
        (f'UPDATE "public"."artists" SET "gender" = %s {row}', ["f", "Ada", 7]),
        (f'DELETE FROM "public"."artists" {row}', ["Ada", 7]),
        ('DELETE FROM "public"."artists" WHERE ("artist_id") = (%s)', [7]),
    ]
    for key in (7, "ab", ("Ada",)):
        with pytest.raises(SourceError, match="(?s)no key of artists.*name, artist_id"):
            two_keys.delete(world, "artists", key)


@pytest.mark.parametrize(
    ("messages", "is_captured"),
    [
        (None, True),
        ([], True),
        ([("1", '{"__op": "c", "__lsn": 1}')], False),
        ([("1", '{"__op": "c"}'), ("2", '{"__op": "c"}'), ("1", None)], False),
        ([("1", '{"__op": "c"}'), ("2", '{"__op": "c"}'), ("1", None), ("2", '{"__deleted": "true"}')], True),
        ([("1", '{"payload": {"__op": "r"}}'), ("1", '{"payload": {"__op": "d"}}')], True),
    ],
)  # fmt: skip
def test_an_empty_table_is_captured_when_its_topic_has_a_delete_for_each_row(
    world, monkeypatch, messages, is_captured
):
    topic, outcomes = outbox.flow.topic(world), []
    monkeypatch.setattr(flows.topics, "names", lambda *_: [] if messages is None else [topic])
    frame = pd.DataFrame(messages or [], columns=["key", "value"], dtype=object)
    monkeypatch.setattr(flows.topics, "read", lambda *_: frame)
    monkeypatch.setattr(postgres, "execute", lambda *_, **__: 0)
    monkeypatch.setattr(postgres, "log_position", lambda *_: "0/5")
    monkeypatch.setattr(CaptureFlow, "count", lambda *_: 0)
    monkeypatch.setattr(flows, "wait_until", lambda done, *_, **__: outcomes.append(done()))
    outbox.flow.wait_until_captured(world)
    assert outcomes == [is_captured]


def test_a_row_that_an_empty_table_gets_meanwhile_is_the_watermark(world, monkeypatch):
    outcomes, changed = [], [1, 0]

    def wait_until(is_captured, *_, **__):
        outcomes.extend([is_captured(), is_captured()])

    monkeypatch.setattr(CaptureFlow, "_has_deletes_only", lambda *_: False)
    monkeypatch.setattr(CaptureFlow, "_last_captured_position", lambda *_: 5)
    monkeypatch.setattr(CaptureFlow, "count", lambda *_: 0)
    monkeypatch.setattr(postgres, "execute", lambda *_, **__: changed.pop())
    monkeypatch.setattr(postgres, "log_position", lambda *_: "0/5")
    monkeypatch.setattr(flows, "wait_until", wait_until)
    outbox.flow.wait_until_captured(world)
    assert outcomes == [False, True]


# --- syncing


@pytest.fixture
def sync_table(monkeypatch, tmp_path):
    """Return a function that syncs a table of the museum.

    Its last commit has read `before`. The function returns what was landed and read.
    """

    def write_dead_letters(uri, count, reason="column price is Dw==, which is no decimal(6,1)"):
        letter = {"reason": reason, "topic": "t", "partition": 0, "offset": 7}
        if count:
            files.write_text(f"{uri}/{uuid.uuid4()}.json", f"{json.dumps(letter)}\n" * count)

    def sync(world, before, *more, dead_letters=0, new=0, unlanded=False, **options):
        calls = []
        world = with_settings(world, lake={"dead_letters": f"file:{tmp_path}"})
        table = museum.flow.table(world, "artists", "cow")
        if unlanded:
            sink = landing.parse(connect.config(world, museum.SINK))
            write_dead_letters(landing.dead_letters_path(world, sink), 1)
        write_dead_letters(hudi.dead_letters_path(world, table), dead_letters, "before")
        monkeypatch.setattr(postgres, "log_position", lambda *_: "0/0")
        monkeypatch.setattr(
            flows,
            "last_ingest_commit",
            lambda table: (
                before and {"extraMetadata": {"_workbench_progress": json.dumps({before: {}})}}
            ),
        )
        monkeypatch.setattr(flows.landing, "run", lambda *_: calls.append("landed"))
        monkeypatch.setattr(flows.hudi, "is_registered", lambda *_: True)

        def run(job, stop):
            calls.append(job.source.id)
            write_dead_letters(hudi.dead_letters_path(world, job.table), new)
            return hudi.Ingested(dead_letters=new)

        monkeypatch.setattr(flows.hudi.IngestJob, "run", run)
        museum.flow.sync(None, world, table, *more, **options)
        return calls

    return sync


def test_a_table_is_synced_from_its_earlier_source(world, sync_table):
    topic, landed = (museum.flow.source(world, "artists", kind).id for kind in ("topic", "landed"))
    assert sync_table(world, {}) == sync_table(world, topic) == [topic]
    assert (
        sync_table(world, landed) == sync_table(world, topic, kind="landed") == ["landed", landed]
    )
    assert sync_table(world, landed, kind="topic") == [topic]


def test_an_unreadable_message_stops_the_sync_with_its_reason(world, sync_table):
    decoded = (
        r"messages could not be decoded: 2 of moma_artists_cow, column price is Dw==, which is no decimal\(6,1\) "
        r"\(t, partition 0, offset 7\)\n.*moma/artists_cow\n.*`workbench dlq show moma/artists_cow --world local`; "
        "fix the cause, then run hudi.ingest"
    )
    with pytest.raises(LakeError, match=f"(?s){decoded}"):
        sync_table(world, {}, dead_letters=1, new=2)
    assert sync_table(world, {}, dead_letters=3), "only new ones stop it"
    other = museum.flow.table(world, "artworks", "cow")
    several = (
        "1 of moma_artists_cow, .*; 1 of moma_artworks_cow, .*moma/artists_cow, .*moma/artworks_cow"
    )
    with pytest.raises(LakeError, match=f"(?s){several}"):
        sync_table(world, {}, other, new=1)
    landed = "could not be landed.*landing/topics.sink[^ ]*, such as: column price.*connectors"
    with pytest.raises(LakeError, match=f"(?s){landed}"):
        sync_table(world, {}, kind="landed", unlanded=True)


# --- keys of several columns, tables made with SQL


def test_a_key_may_have_several_columns(world):
    capture = dataclasses.replace(museum.flow.captures[0], key=("artist_id", "name"))
    several = dataclasses.replace(museum.flow, captures=(capture, museum.flow.captures[1]))
    assert several.table(world, "artists").key == capture.keys == ("artist_id", "name")
    assert several.capture("artworks").keys == ("artwork_id",)
    assert (
        several._capture_for(world, several.table(world, "artists", name="other", base="elsewhere"))
        == capture
    )


def test_a_reset_removes_databases_and_folders_of_sql_tables(world, monkeypatch, tmp_path):
    statements = []
    fake_session = SimpleNamespace(
        catalog=SimpleNamespace(databaseExists=lambda name: name == "made"), sql=statements.append
    )
    monkeypatch.setattr(resources, "session", lambda world: fake_session)
    lake = with_settings(world, lake={"tables": f"file:{tmp_path}"})
    (tmp_path / "refined").mkdir()
    (tmp_path / "refined" / "part-0.parquet").write_text("x")
    monkeypatch.setattr(steps, "has_source", lambda *_: False)
    owned = dataclasses.replace(
        museum.walkthrough.resources, catalog_databases=("made", "gone"), lake_folders=("refined",)
    )
    dataclasses.replace(museum.walkthrough, resources=owned).reset(lake, "53_hudi_ingest")
    assert statements == ["DROP DATABASE `made` CASCADE"] and not (tmp_path / "refined").exists()


def test_a_reset_removes_topics_and_offsets_of_polling_connectors(world, monkeypatch):
    polling = dataclasses.replace(
        log_based.walkthrough.resources, extra_connectors=("pagila_poll",)
    )
    existing = [
        "pagila.polled.actor",
        "pagila.polled.other",
        "pagila.public.film",
        "pagila.public.address",
    ]
    reset_prefixes = []
    monkeypatch.setattr(walkthrough.topics, "names", lambda world: existing)
    assert kind_of("topics").remaining(polling, world) == [
        "pagila.polled.actor",
        "pagila.public.film",
    ]
    monkeypatch.setattr(resources.landing, "names", lambda world: [])
    monkeypatch.setattr(postgres, "databases", lambda _: [])
    for module, name in (("postgres", "drop_slot"), ("registry", "delete"), ("topics", "delete")):
        monkeypatch.setattr(getattr(resources, module), name, lambda *_, **__: None)
    monkeypatch.setattr(CaptureFlow, "has_database", lambda *_: True)
    monkeypatch.setattr(resources.landing, "drop", lambda *_: None)
    monkeypatch.setattr(
        resources.landing,
        "reset_offsets",
        lambda _, config: reset_prefixes.append(config["topic.prefix"]),
    )
    polling.remove(world, Product.TOPICS)
    assert reset_prefixes == ["pagila.polled."]


def test_a_reset_removes_files_of_further_sinks_and_connectors(world, tmp_path, monkeypatch):
    lab = with_settings(
        world,
        lake={
            part: f"file:{tmp_path}/{part}"
            for part in ("landing", "tables", "checkpoints", "dead_letters")
        },
    )
    for module, name, stub in (
        (landing, "names", []),
        (walkthrough.topics, "names", []),
        (resources.registry, "delete", None),
        (resources.registry, "artifacts", pd.DataFrame({"artifact": []})),
        (walkthrough.topics, "delete", None),
        (resources.groups, "names", []),
        (resources.groups, "delete", None),
    ):
        monkeypatch.setattr(module, name, lambda *_, stub=stub: stub)
    monkeypatch.setattr(CaptureFlow, "has_database", lambda *_: False)
    without_catalog(monkeypatch)
    sink = landing.parse(movies.poisoned_sink(lab))
    paths = [
        connect.config(lab, movies.FILE_SINK)["file"],
        *(
            f"{tmp_path}/{place}"
            for place in (
                f"landing/topics/{movies.POISONED_TOPIC}/partition=0/a.parquet",
                f"checkpoints/landing/topics/{movies.POISONED_TOPIC}.progress.json",
                f"dead_letters/landing/{sink.state_path}/0.json",
                f"checkpoints/replayed/{movies.DLQ_TOPICS['lake']}/an id/0-0.json",
            )
        ),
    ]
    assert not any(movies.walkthrough.resources.remaining(lab).values())
    for path in paths:
        files.write_text(f"file:{path}", '{"topic_id": "id", "offsets": {}}')
    remaining = {
        kind: names for kind, names in movies.walkthrough.resources.remaining(lab).items() if names
    }
    assert remaining == {
        "files": [
            f"file:{tmp_path}/checkpoints/replayed/{movies.DLQ_TOPICS['lake']}",
            f"file:{tmp_path}/landing/topics/{movies.POISONED_TOPIC}",
            f"file:{tmp_path}/dead_letters/landing/{sink.state_path}",
            paths[0],
        ]
    }
    files.write_text(f"file:{tmp_path}/checkpoints/replayed/others.dlq/an id/0-0.json", "[]")
    movies.walkthrough.resources.remove(lab, Product.TOPICS)
    assert not any(movies.walkthrough.resources.remaining(lab).values())
    files.remove(
        f"file:{tmp_path}/checkpoints/replayed/others.dlq"
    )  # of another walkthrough, or of yours
    assert all(path.endswith(".lock") for path in files.list_files(f"file:{tmp_path}"))


def test_a_reset_removes_the_consumer_groups_of_schema_histories(world, monkeypatch):
    existing = ["db1-schemahistory", "db1_positions-schemahistory", "others-schemahistory"]
    monkeypatch.setattr(resources.groups, "names", lambda world: existing)
    monkeypatch.setattr(resources.groups, "delete", lambda world, group: existing.remove(group))
    for module, name, stub in (
        (landing, "names", []),
        (walkthrough.topics, "names", []),
        (resources.registry, "delete", None),
        (resources.registry, "artifacts", pd.DataFrame({"artifact": []})),
        (walkthrough.topics, "delete", None),
        (landing, "drop", None),
    ):
        monkeypatch.setattr(module, name, lambda *_, stub=stub: stub)
    monkeypatch.setattr(CaptureFlow, "has_database", lambda *_: False)
    without_catalog(monkeypatch)
    assert movies.walkthrough.resources.remaining(world)["consumer groups"] == existing[:2]
    movies.walkthrough.resources.remove(world, Product.TOPICS)
    assert (
        existing == ["others-schemahistory"]
        and not movies.walkthrough.resources.remaining(world)["consumer groups"]
    )
