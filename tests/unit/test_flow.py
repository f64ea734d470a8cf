"""Captured tables: names, changes and syncing. tests/stack tests them with services."""

import dataclasses
import json
import uuid
from types import SimpleNamespace

import pandas as pd
import pytest
from workbench import connect, hudi, landing
from workbench.base import files, params
from workbench.base.errors import CheckFailed, LakeError, SourceError, WorkbenchError
from workbench.flow import flow as flows
from workbench.flow.flow import CaptureFlow
from workbench.source import postgres
from workbench.tracks import museum, outbox
from worlds import with_settings


@pytest.fixture
def world():
    return params.load("local")


def test_a_misspelled_name_is_rejected_with_a_suggestion(world):
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


def test_a_source_column_that_the_lake_lacks_is_a_difference(world, monkeypatch):
    source = pd.DataFrame({"artist_id": [1], "renamed": ["Ada"]})
    lake = pd.DataFrame({"artist_id": [1], "name": ["Ada"]})
    monkeypatch.setattr(CaptureFlow, "rows", lambda *_: source)
    frame = SimpleNamespace(columns=[*lake], toPandas=lambda: lake, where=lambda _: frame)
    monkeypatch.setattr("workbench.flow.flow.hudi.read", lambda *_: frame)
    table = museum.flow.tables(world, "artists")[0]
    with pytest.raises(CheckFailed, match="column renamed: only in source"):
        museum.flow.compare(None, world, table)


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


def test_a_connector_is_waited_for_while_its_messages_arrive(world, monkeypatch):
    ends = iter([1, 2, 2])
    flow, waits = museum.flow, []
    monkeypatch.setattr(flows.topics, "all_end_offsets", lambda *_: next(ends))

    def wait_until(*args, **options):
        waits.append(args)
        raise WorkbenchError("waited 300 s")

    monkeypatch.setattr(flows, "wait_until", wait_until)
    with pytest.raises(WorkbenchError, match="waited 300 s"):
        flow._wait_for(world, flow.captures[0].connector, lambda: False)
    assert len(waits) == 2 and not [*ends]


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
        monkeypatch.setattr(CaptureFlow, "wait_until_captured", lambda *_: None)
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


def test_a_key_may_have_several_columns(world):
    capture = dataclasses.replace(museum.flow.captures[0], key=("artist_id", "name"))
    several = dataclasses.replace(museum.flow, captures=(capture, museum.flow.captures[1]))
    assert several.table(world, "artists").key == capture.keys == ("artist_id", "name")
    assert several.capture("artworks").keys == ("artwork_id",)
    assert (
        several._capture_for(world, several.table(world, "artists", name="other", base="elsewhere"))
        == capture
    )
