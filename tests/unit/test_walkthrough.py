"""What is the same in every walkthrough: steps, starting clean, following. What needs services is
in tests/stack."""

import dataclasses
import json
from types import SimpleNamespace

import pandas as pd
import pytest
from workbench import connect, hudi, landing, walkthroughs
from workbench.base import files, params
from workbench.base.errors import ConnectorError, LakeError, SourceError, WorkbenchError
from workbench.source import postgres
from workbench.walkthroughs import flow as flows
from workbench.walkthroughs import log_based, movies, museum, outbox, resources, walkthrough
from workbench.walkthroughs.resources import Resources
from worlds import with_settings


@pytest.fixture
def world():
    return params.load("local")


# --- names
# -----------------------------------------------------------------------------------------------------------


def test_a_misspelt_name_is_told_with_the_nearest(world, monkeypatch):
    """Before anything is asked or run."""
    for asked in (
        lambda: outbox.flow.ensure(world, "11_source_database", "12_connector"),
        lambda: outbox.flow.is_done(world, "12_connector"),
        lambda: outbox.flow.reset(world, "12_connector"),
    ):
        with pytest.raises(
            WorkbenchError, match="(?s)no step '12_connector'.*did you mean '12_connectors'"
        ):
            asked()
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


def test_what_can_be_traced(world):
    found = [
        walkthroughs.traced_table(world, name) for name in ("artists", "artworks", "cdc_events")
    ]
    assert [(t.source, t.key, len(t.tables)) for t in found] == [
        ("public.artists", "artist_id", 2),
        ("public.artworks", "artwork_id", 2),
        ("datalake.cdc_events", "order_id", 1),
    ]


def test_two_walkthroughs_with_a_table_of_one_name_are_told_apart(world, monkeypatch):
    other = dataclasses.replace(
        museum.flow,
        folder=museum.flow.folder.with_name("60_other"),
        captures=tuple(dataclasses.replace(c, key="id") for c in museum.flow.captures),
    )
    monkeypatch.setattr(walkthroughs, "ALL", (*walkthroughs.ALL, other))
    with pytest.raises(
        LakeError, match="(?s)2 walkthroughs .*'artists'.*50_time_travel/artists, 60_other/artists"
    ):
        walkthroughs.traced_table(world, "artists")
    assert [
        walkthroughs.traced_table(world, f"{folder}/artists").key
        for folder in ("50_time_travel", "60_other")
    ] == ["artist_id", "id"]
    with pytest.raises(LakeError, match="no captured table '50_time_travels/artists'"):
        walkthroughs.traced_table(world, "50_time_travels/artists")


def test_a_capture_without_a_sink_says_the_format_of_its_messages(world):
    unlanded = dataclasses.replace(
        museum.flow, captures=tuple(dataclasses.replace(c, sink="") for c in museum.flow.captures)
    )
    assert (
        unlanded.traced_table(world, "artists").sink,
        unlanded.traced_table(world, "artists").format,
    ) == (
        None,
        "avro",
    )
    assert outbox.flow.traced_table(world).format == "json"


def test_a_lake_table_is_of_its_own_capture_also_where_keys_have_one_name(world):
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
# -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "published, there",
    [
        ([], False),
        (["public.artists"], False),
        (["public.artists", "public.artworks"], True),
        (["public.artists", "public.artworks", "public.loans"], True),
    ],
)
def test_the_source_is_there_when_all_captured_tables_are_published(
    world, monkeypatch, published, there
):
    monkeypatch.setattr(walkthrough.Walkthrough, "has_database", lambda *_: True)
    found = pd.DataFrame(
        {"publication": [museum.flow.publication] * len(published), "table": published}
    )
    monkeypatch.setattr(walkthrough.postgres, "publications", lambda *_: found)
    monkeypatch.setattr(walkthrough.baseline, "exists", lambda *_: True)
    assert museum.flow.is_done(world, "51_source_database") is there
    monkeypatch.setattr(walkthrough.baseline, "exists", lambda *_: False)
    assert not museum.flow.is_done(world, "51_source_database"), "nothing to set back from"


@pytest.mark.parametrize(
    "columns, lake, anew",
    [
        (["movie_id", "title"], False, False),
        (["movie_id", "title", "COUNTRY"], True, True),
        (["movie_id", "title", "COUNTRY"], False, True),
        ([], False, False),
    ],
)
def test_the_movies_begin_anew_where_the_source_has_the_column_whatever_the_lake_has(
    world, monkeypatch, columns, lake, anew
):
    did = []
    monkeypatch.setattr(movies.mariadb, "query", lambda *_: pd.DataFrame({"column_name": columns}))
    monkeypatch.setattr(movies.hudi, "exists", lambda _: lake)
    monkeypatch.setattr(
        walkthrough.Walkthrough, "reset", lambda self, world, step: did.append(step)
    )
    monkeypatch.setattr(
        walkthrough.Walkthrough, "ensure", lambda self, world, *steps: did.append(steps)
    )
    movies.reset_if_evolved(world)
    assert did == ["42_connectors"] * anew + [("41_source_database", "42_connectors")]
    assert movies.flow.is_done(world, "43_evolve") is (lake and "COUNTRY" in columns)


def test_a_connector_with_the_addresses_of_before_is_not_done(world, monkeypatch):
    """Its state is RUNNING, and nothing new comes: the instance was started with another port
    base."""
    earlier = with_settings(world, postgres={"port": 1}, registry={"url": "https://127.0.0.1:2"})
    monkeypatch.setattr(landing, "names", lambda world: [museum.CONNECTOR])
    monkeypatch.setattr(connect, "names", lambda world: [museum.CONNECTOR])
    monkeypatch.setattr(connect, "wait_running", lambda *_: None)
    monkeypatch.setattr(
        walkthrough.topics,
        "names",
        lambda world: [museum.flow.topic(world, n) for n in ("artists", "artworks")],
    )
    monkeypatch.setattr(walkthrough.topics, "offset_span", lambda *_: 5)
    plain = with_settings(world, registry={"url": world.registry.url.replace("https:", "http:")})
    for of, done in ((earlier, False), (plain, False), (world, True)):
        monkeypatch.setattr(
            walkthrough.addresses,
            "deployed_configs",
            lambda world, of=of: {
                museum.CONNECTOR: {**connect.config(of, museum.CONNECTOR), "name": museum.CONNECTOR}
            },
        )
        assert museum.flow.is_done(world, "52_connectors") is done


@pytest.mark.parametrize("stays", [False, True])
def test_a_connector_that_failed_without_the_registry_is_started_again(world, monkeypatch, stays):
    """Once, and by `ensure` only; what fails it again is told."""
    did, why = [], ["registry away"]

    def restart(world, name):
        did.append(name)
        why[:] = why if stays else []

    def wait_running(world, name):
        if why:
            raise ConnectorError(why[0])

    for name, answer in (
        ("names", lambda _: [museum.CONNECTOR]),
        ("failure", lambda *_: why[0] if why else None),
        ("restart", restart),
        ("wait_running", wait_running),
    ):
        monkeypatch.setattr(connect, name, answer)
    monkeypatch.setattr(
        walkthrough.topics,
        "names",
        lambda world: [museum.flow.topic(world, n) for n in ("artists", "artworks")],
    )
    monkeypatch.setattr(walkthrough.topics, "offset_span", lambda *_: 5)
    monkeypatch.setattr(
        walkthrough.addresses,
        "deployed_configs",
        lambda world: {museum.CONNECTOR: connect.config(world, museum.CONNECTOR)},
    )
    with pytest.raises(ConnectorError, match="registry away"):
        museum.flow.is_done(world, "52_connectors")
    assert did == [], "a question changes nothing"
    if stays:
        with pytest.raises(ConnectorError, match="registry away"):
            museum.flow.ensure(world, "52_connectors")
    else:
        museum.flow.ensure(world, "52_connectors")
        assert museum.flow.is_done(world, "52_connectors")
    assert did == [museum.CONNECTOR]


def test_a_connector_that_failed_is_no_reason_not_to_start_clean(world, monkeypatch):
    def failed(*_):
        raise ConnectorError("connector moma_source FAILED")

    did = []
    monkeypatch.setattr(connect, "wait_running", failed)
    monkeypatch.setattr(
        walkthrough.topics,
        "names",
        lambda world: [museum.flow.topic(world, n) for n in ("artists", "artworks")],
    )
    for name, answer in (
        ("_has_source", lambda *_: True),
        ("restore_baseline", lambda *_: did.append("source restored") or 1),
        ("deploy", lambda *_: did.append("deployed")),
    ):
        monkeypatch.setattr(walkthrough.Walkthrough, name, answer)
    for name, answer in (
        ("remaining_tables", lambda *_: [museum.scratch_table(world)]),
        ("drop_connectors", lambda *_, **options: did.append("connector dropped")),
    ):
        monkeypatch.setattr(Resources, name, answer)
    monkeypatch.setattr(resources, "session", lambda world: None)
    monkeypatch.setattr(hudi, "drop", lambda *_: did.append("table dropped"))
    museum.flow.reset(world, "52_connectors")
    assert did == ["source restored", "table dropped", "connector dropped"]
    did.clear()
    museum.flow.reset(world, "53_hudi_ingest")
    assert did == ["source restored", "table dropped", "connector dropped", "deployed"]


@pytest.mark.parametrize("changed, messages, renewed", [(0, 5, False), (1, 5, True), (0, 7, True)])
def test_the_topics_begin_again_when_they_hold_more_than_was_loaded(
    world, monkeypatch, changed, messages, renewed
):
    """Also where a row was changed and changed back by hand. Where `settle` writes, only what was
    changed counts."""
    monkeypatch.setattr(walkthrough.Walkthrough, "_has_source", lambda *_: True)
    monkeypatch.setattr(walkthrough.Walkthrough, "restore_baseline", lambda *_: changed)
    monkeypatch.setattr(walkthrough.Walkthrough, "count", lambda *_: 5)
    monkeypatch.setattr(walkthrough.topics, "offset_span", lambda *_: messages)
    every = [f.topic(world, n) for f in walkthroughs.ALL for n in f.names]
    monkeypatch.setattr(walkthrough.topics, "names", lambda world: every)
    assert museum.flow._restore_source(world) is renewed
    assert outbox.flow._restore_source(world) is bool(changed)
    monkeypatch.setattr(walkthrough.topics, "names", lambda world: every[:1])
    assert not museum.flow._restore_source(world), "there are no topics to begin again"


def test_what_is_set_back_is_read_from_where_it_was(world, monkeypatch):
    did = []
    changed = SimpleNamespace(where=lambda _: changed, limit=lambda _: changed, collect=lambda: [1])
    for name, answer in (
        ("events", lambda *_: changed),
        ("reset", lambda self, world, step: did.append(step)),
        ("sync", lambda self, spark, world, kind, label: did.append((kind, label))),
    ):
        monkeypatch.setattr(walkthrough.Walkthrough, name, answer)
    for kind in ("topic", "landed"):
        monkeypatch.setattr(
            walkthrough.Walkthrough,
            "source_kind",
            lambda self, world, table, kind=kind: kind if table.type == "mor" else "topic",
        )
        assert museum.flow.reset_if_changed(None, world, "artists", 299)
    assert did == ["hudi_ingest", ("topic", "after_load"), "hudi_ingest", ("landed", "after_load")]


def test_a_walkthrough_without_publication_starts_clean_without_one(world, monkeypatch):
    polled = dataclasses.replace(museum.flow, publication="")
    did = []
    monkeypatch.setattr(walkthrough.Walkthrough, "_has_source", lambda *_: [])
    for name in ("remaining_tables", "drop_connectors"):
        monkeypatch.setattr(Resources, name, lambda *_, **options: [])
    monkeypatch.setattr(walkthrough.postgres, "create_database", lambda *_: did.append("database"))
    monkeypatch.setattr(
        walkthrough.postgres, "drop_publication", lambda _, name, __: did.append(f"drop {name!r}")
    )
    monkeypatch.setattr(walkthrough.baseline, "delete", lambda *_: did.append("forgotten"))
    dataclasses.replace(polled, loader=None).reset(world)
    assert did == ["database", "forgotten"]


def test_a_source_without_publication_is_there_with_its_copies(world, monkeypatch):
    monkeypatch.setattr(walkthrough.Walkthrough, "has_database", lambda *_: True)
    monkeypatch.setattr(
        walkthrough.postgres,
        "publications",
        lambda *_: pd.DataFrame(columns=["publication", "table"]),
    )
    monkeypatch.setattr(walkthrough.baseline, "exists", lambda *_: True)
    assert dataclasses.replace(museum.flow, publication="").is_done(world, "51_source_database")


def test_the_topics_of_a_walkthrough_are_those_of_its_tables_its_connectors_and_their_heartbeats(
    world,
):
    ours = {"moma.public.artists", "moma.public.artworks", "moma_envelope.public.artists"}
    beats = {"__debezium-heartbeat.moma", "__debezium-heartbeat.moma_envelope"}
    assert museum.flow.resources(world).topics == ours | beats
    assert (
        "moma.public.artists-value" in museum.flow.resources(world).schemas
        and len(museum.flow.resources(world).schemas) == 10
    )
    assert outbox.flow.resources(world).schemas == set(), "who makes no schemas needs no registry"


def test_no_topic_of_mariadb_is_begun_again(world):
    assert not dataclasses.replace(museum.flow, engine="mariadb")._restore_source(world)


# --- changes
# ---------------------------------------------------------------------------------------------------------


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

    assert seen("0/20") == {1: "one", 2: "two"}, "the position is where the next change stands"
    assert seen("0/21") == {1: "ONE", 2: "two"}
    assert seen("0/10") == {1: "one", 2: "two"}, "the snapshot is always in"
    assert seen("1/0") == {1: "ONE", 2: None, 3: "new"}, "two halves of 32 bits"


def test_a_change_of_no_row_says_so(world, monkeypatch):
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


# --- following
# -------------------------------------------------------------------------------------------------------


@pytest.fixture
def followed(monkeypatch, tmp_path):
    """Follow one table of the museum's, whose last commit has read `before`; return what was read
    and landed."""

    def follow(world, before, letters=0, unlanded=False, **how):
        seen = []
        world = with_settings(world, lake={"dead_letters": f"file:{tmp_path}"})
        table = museum.flow.table(world, "artists", "cow")
        if unlanded:
            sink = landing.parse(connect.config(world, museum.SINK))
            files.write_text(f"{landing.dead_letters_path(world, sink)}/00000000/part-0.json", "{}")
        monkeypatch.setattr(postgres, "log_position", lambda *_: "0/0")
        monkeypatch.setattr(
            flows,
            "last_ingest_commit",
            lambda table: (
                before and {"extraMetadata": {"_workbench_progress": json.dumps({before: {}})}}
            ),
        )
        monkeypatch.setattr(flows.landing, "run", lambda *_: seen.append("landed"))
        monkeypatch.setattr(flows.hudi, "is_registered", lambda *_: True)

        def ingest(spark, world, source, table, stop):
            seen.append(source.id)
            return hudi.Ingested()  # a later try: the letters lie there since an earlier one

        monkeypatch.setattr(flows.hudi, "ingest", ingest)
        monkeypatch.setattr(
            flows.hudi, "dead_letters", lambda *_: SimpleNamespace(count=lambda: letters)
        )
        if letters:
            files.write_text(
                f"{hudi.dead_letters_path(world, table)}/topic-x/00000000/part-0.json", "{}"
            )
        museum.flow.sync(None, world, table, **how)
        return seen

    return follow


def test_a_table_is_followed_from_where_it_was_read(world, followed):
    topic, landed = (museum.flow.source(world, "artists", kind).id for kind in ("topic", "landed"))
    assert followed(world, {}) == followed(world, topic) == [topic]
    assert followed(world, landed) == followed(world, topic, kind="landed") == ["landed", landed]
    assert followed(world, landed, kind="topic") == [topic]


def test_a_message_that_nobody_can_read_stops_the_following(world, followed):
    with pytest.raises(
        LakeError, match="(?s)messages could not be decoded.*moma/artists_cow.*hudi.dead_letters"
    ):
        followed(world, {}, letters=2)
    with pytest.raises(LakeError, match="(?s)could not be landed.*landing/topics.sink.*connectors"):
        followed(world, {}, kind="landed", unlanded=True)


# --- keys of several columns, tables made with SQL
# -------------------------------------------------------------------


def test_a_key_may_have_several_columns(world):
    capture = dataclasses.replace(museum.flow.captures[0], key=("artist_id", "name"))
    several = dataclasses.replace(museum.flow, captures=(capture, museum.flow.captures[1]))
    assert several.table(world, "artists").key == capture.keys == ("artist_id", "name")
    assert several.capture("artworks").keys == ("artwork_id",)
    assert (
        several._capture_for(world, several.table(world, "artists", name="other", base="elsewhere"))
        == capture
    )
    with pytest.raises(LakeError, match="artists cannot be traced: its key is artist_id, name"):
        several.traced_table(world, "artists")


def test_databases_and_files_that_were_made_with_sql_go(world, monkeypatch, tmp_path):
    said = []
    there = SimpleNamespace(
        catalog=SimpleNamespace(databaseExists=lambda name: name == "made"), sql=said.append
    )
    monkeypatch.setattr(resources, "session", lambda world: there)
    lake = with_settings(world, lake={"tables": f"file:{tmp_path}"})
    (tmp_path / "refined").mkdir()
    (tmp_path / "refined" / "part-0.parquet").write_text("x")
    monkeypatch.setattr(walkthrough.Walkthrough, "_has_source", lambda *_: [])
    monkeypatch.setattr(Resources, "remaining_tables", lambda *_: [])
    queried = dataclasses.replace(
        museum.flow, catalog_databases=("made", "gone"), lake_folders=("refined",)
    )
    queried.reset(lake, "53_hudi_ingest")
    assert said == ["DROP DATABASE `made` CASCADE"] and not (tmp_path / "refined").exists()


def test_what_is_polled_goes_with_its_topics_and_its_offsets(world, monkeypatch):
    polling = dataclasses.replace(log_based.flow, extra_connectors=("pagila_poll",))
    there = [
        "pagila.polled.actor",
        "pagila.polled.other",
        "pagila.public.film",
        "pagila.public.address",
    ]
    forgotten = []
    monkeypatch.setattr(walkthrough.topics, "names", lambda world: there)
    assert polling.resources(world).remaining_topics() == [
        "pagila.polled.actor",
        "pagila.public.film",
    ]
    monkeypatch.setattr(resources.landing, "names", lambda world: [])
    monkeypatch.setattr(walkthrough.postgres, "databases", lambda _: [])
    for part, name in (("postgres", "drop_slot"), ("registry", "delete"), ("topics", "delete")):
        monkeypatch.setattr(getattr(resources, part), name, lambda *_, **__: None)
    monkeypatch.setattr(walkthrough.Walkthrough, "has_database", lambda *_: True)
    monkeypatch.setattr(resources.landing, "drop", lambda *_: None)
    monkeypatch.setattr(
        resources.landing,
        "reset_offsets",
        lambda _, config: forgotten.append(config["topic.prefix"]),
    )
    polling.resources(world).drop_connectors()
    assert forgotten == ["pagila.polled."]


def test_what_notebooks_land_beside_the_captures_and_what_connectors_write_goes_too(
    world, tmp_path, monkeypatch
):
    lab = with_settings(
        world,
        lake={
            part: f"file:{tmp_path}/{part}"
            for part in ("landing", "tables", "checkpoints", "dead_letters")
        },
    )
    for module, name, answer in (
        (landing, "names", []),
        (walkthrough.topics, "names", []),
        (resources.registry, "delete", None),
        (resources.registry, "artifacts", pd.DataFrame({"artifact": []})),
        (walkthrough.topics, "delete", None),
        (resources.groups, "names", []),
        (resources.groups, "delete", None),
    ):
        monkeypatch.setattr(module, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(walkthrough.Walkthrough, "has_database", lambda *_: False)
    for name in ("remaining_catalog_databases", "remaining_source_tables"):
        monkeypatch.setattr(Resources, name, lambda *_: [])
    sink = landing.parse(movies.poisoned_sink(lab))
    made = [
        connect.config(lab, movies.FILE_SINK)["file"],
        *(
            f"{tmp_path}/{place}"
            for place in (
                f"landing/topics/{movies.POISONED_TOPIC}/partition=0/a.parquet",
                f"checkpoints/landing/{sink.state_path}/offsets/0",
                f"checkpoints/landing/topics/{movies.POISONED_TOPIC}.topic-id",
                f"dead_letters/landing/{sink.state_path}/0.json",
                f"checkpoints/replayed/{movies.DLQ_TOPICS['lake']}/an id/0-0.json",
                f"checkpoints/replayed/{movies.DLQ_TOPICS['connect']}.json",
            )
        ),
    ]
    assert not any(movies.flow.remaining_resources(lab).values())
    for path in made:
        files.write_text(f"file:{path}", "x")
    left = {what: names for what, names in movies.flow.remaining_resources(lab).items() if names}
    assert left == {
        "files": [
            f"file:{tmp_path}/checkpoints/landing/{sink.state_path}",
            f"file:{tmp_path}/landing/topics/{movies.POISONED_TOPIC}",
            f"file:{tmp_path}/dead_letters/landing/{sink.state_path}",
            f"file:{tmp_path}/checkpoints/replayed/{movies.DLQ_TOPICS['lake']}",
            f"file:{tmp_path}/checkpoints/replayed/{movies.DLQ_TOPICS['connect']}.json",
            made[0],
        ]
    }
    files.write_text(f"file:{tmp_path}/checkpoints/replayed/others.dlq/an id/0-0.json", "[]")
    movies.flow.resources(lab).drop_connectors()
    assert not any(movies.flow.remaining_resources(lab).values())
    files.remove(
        f"file:{tmp_path}/checkpoints/replayed/others.dlq"
    )  # of another walkthrough, or of yours
    assert all(path.endswith(".lock") for path in files.list_files(f"file:{tmp_path}"))


def test_what_a_recapture_has_made_is_seen_and_goes(world, tmp_path, monkeypatch):
    lab = with_settings(
        world,
        lake={
            part: f"file:{tmp_path}/{part}"
            for part in ("landing", "tables", "checkpoints", "dead_letters")
        },
    )
    prefix = connect.config(lab, museum.CONNECTOR)["topic.prefix"]
    made = {
        "topic.prefix": f"{prefix}_r2",
        "slot.name": "local_moma_r2",
        "database.dbname": "moma",
        "table.include.list": "public.artists",
    }
    topic, journal = (
        f"{prefix}_r2.public.artists",
        f"file:{tmp_path}/checkpoints/recapture/{museum.CONNECTOR}.json",
    )
    there = {
        "connectors": [f"{museum.CONNECTOR}_r2", "other_r2"],
        "topics": [topic, "other_r2.public.artists"],
        "schemas": [f"{topic}-value"],
        "slots": ["local_moma_r2"],
    }

    def gone(kind):
        return lambda _, *names, **__: there.update(
            {kind: [n for n in there[kind] if n not in names]}
        )

    for module, name, answer in (
        (landing, "names", lambda _: there["connectors"]),
        (landing, "delete", gone("connectors")),
        (walkthrough.topics, "names", lambda _: there["topics"]),
        (walkthrough.topics, "delete", gone("topics")),
        (resources.registry, "artifacts", lambda _: pd.DataFrame({"artifact": there["schemas"]})),
        (resources.registry, "delete", gone("schemas")),
        (walkthrough.postgres, "drop_slot", gone("slots")),
        (walkthrough.postgres, "connector_slots", lambda *_: there["slots"]),
        (walkthrough.postgres, "databases", lambda _: ["moma"]),
        (walkthrough.postgres, "publications", lambda *_: pd.DataFrame({"publication": []})),
    ):
        monkeypatch.setattr(module, name, answer)
    monkeypatch.setattr(walkthrough.Walkthrough, "has_database", lambda *_: True)
    for name in ("remaining_catalog_databases", "remaining_source_tables"):
        monkeypatch.setattr(Resources, name, lambda *_: [])
    files.write_text(journal, json.dumps({"made": {f"{museum.CONNECTOR}_r2": made}}))
    files.write_text(
        journal.replace(museum.CONNECTOR, "other"), json.dumps({"made": {"other_r2": made}})
    )
    assert {
        what: names for what, names in museum.flow.remaining_resources(lab).items() if names
    } == {
        "connectors": [f"{museum.CONNECTOR}_r2"],
        "replication slots": ["local_moma_r2"],
        "topics": [topic],
        "schemas in the registry": [f"{topic}-value"],
        "files": [journal],
    }
    museum.flow.resources(lab).drop_connectors()
    assert not any(museum.flow.remaining_resources(lab).values())
    assert there["connectors"] == ["other_r2"] and there["topics"] == ["other_r2.public.artists"], (
        "another's stay"
    )
    assert files.read_text(journal.replace(museum.CONNECTOR, "other"))


def test_the_groups_of_schema_histories_go_with_their_connectors(world, monkeypatch):
    there = ["db1-schemahistory", "db1_positions-schemahistory", "others-schemahistory"]
    monkeypatch.setattr(resources.groups, "names", lambda world: there)
    monkeypatch.setattr(resources.groups, "delete", lambda world, group: there.remove(group))
    for module, name, answer in (
        (landing, "names", []),
        (walkthrough.topics, "names", []),
        (resources.registry, "delete", None),
        (resources.registry, "artifacts", pd.DataFrame({"artifact": []})),
        (walkthrough.topics, "delete", None),
        (landing, "drop", None),
    ):
        monkeypatch.setattr(module, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(walkthrough.Walkthrough, "has_database", lambda *_: False)
    for name in ("remaining_catalog_databases", "remaining_source_tables"):
        monkeypatch.setattr(Resources, name, lambda *_: [])
    assert movies.flow.remaining_resources(world)["consumer groups"] == there[:2]
    movies.flow.resources(world).drop_connectors()
    assert (
        there == ["others-schemahistory"]
        and not movies.flow.remaining_resources(world)["consumer groups"]
    )
