"""The history of one row: what changed, what a view shows, which commit and file it was."""

import dataclasses
import datetime as dt
import json
from types import SimpleNamespace

import pandas
import pytest
from captured import captured
from workbench import hudi, trace
from workbench.base import params
from workbench.base.errors import LakeError
from workbench.hudi import timeline
from workbench.landing.sinks import Sink
from workbench.topic import registry, topics
from workbench.trace import in_lake, in_topic, row_history
from workbench.tracks import log_based, museum, query_based

T1, T2, T3 = "20260101120000001", "20260101120000002", "20260101120000003"
UTC = dt.timezone.utc


@pytest.mark.parametrize(
    "before, record, says",
    [
        (None, {"__op": "r"}, "row read"),
        (None, {"__op": "c"}, "row inserted"),
        ({"__op": "d"}, {"__op": "c"}, "row inserted"),
        ({"a": 1, "__op": "u"}, {"a": None, "__op": "d"}, "row deleted"),
        (
            {"a": 1, "b": "x", "__lsn": 1},
            {"a": 2, "b": None, "__lsn": 2, "__op": "u"},
            "a 1 → 2, b x → null",
        ),
        ({"a": 1}, {"a": 1, "__op": "u"}, "nothing"),
        ({}, {"a": "x" * 50, "__op": "u"}, f"a null → {'x' * 39}…"),
    ],
)
def test_what_a_change_did(before, record, says):
    assert in_topic.describe_change(before, record) == says


MOR = hudi.Table("t", "file:/none", ("id",), "v", type="mor")


@pytest.mark.parametrize(
    "state, op, here, last, based, shows",
    [
        ("", "u", {1}, False, None, ""),
        ("never", "u", {2}, False, None, "never"),
        ("was", "u", {1}, True, None, "now"),
        ("was", "u", {2}, False, None, "was"),
        ("was", "u", {0}, True, {0}, "not yet"),
        ("was", "u", {0}, False, {0}, "never"),
        ("was", "u", {2}, False, {1, 2}, "was"),
        ("was", "d", set(), True, None, "now"),
        ("was", "d", {3}, True, None, "was"),
    ],
)
def test_what_a_view_shows(state, op, here, last, based, shows):
    assert row_history._visibility(state, {"v": 1, "__op": op}, MOR, here, last, based) == shows


def test_a_version_may_be_of_several_fields():
    several = dataclasses.replace(MOR, ordering="file,at")
    record = {"file": "bin.000001", "at": 40, "__op": "u"}
    for here, shows in (
        ({several.ordering_value(record)}, "now"),
        ({several.ordering_value({**record, "at": 7})}, "was"),
    ):
        assert row_history._visibility("was", record, several, here, True, None) == shows


def test_an_instant_is_a_time_in_utc():
    assert timeline.parse_instant("20260101120000001") == dt.datetime(
        2026, 1, 1, 12, 0, 0, 1000, UTC
    )
    assert timeline.parse_instant("20260101120000") == dt.datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_unknown_tables():
    with pytest.raises(LakeError, match="(?s)no captured table 'artist'.*did you mean 'artists'"):
        trace.row(params.load("local"), museum.flow, "artist", 299)


@pytest.mark.parametrize("key", [7, "A-7", "None"])
def test_a_key_is_a_number_or_a_text(monkeypatch, key):
    def found(*_, key_filter):
        assert not key_filter(None), "a message without a key is of no row"
        rows = [
            {
                "key": json.dumps({"id": k}).encode(),
                "partition": 0,
                "offset": n,
                "timestamp": pandas.Timestamp(0),
                "value": json.dumps({"id": k, "__op": "r"}),
            }
            for n, k in enumerate([6, key, 77])
        ]
        return pandas.DataFrame([r for r in rows if key_filter(r["key"])], columns=list(rows[0]))

    monkeypatch.setattr(topics, "read", found)
    monkeypatch.setattr(topics, "offset_span", lambda *_: 3)
    flow = captured("t")
    traced = trace.row(None, flow, "t", str(key))
    assert (traced.key, list(traced.changes["offset"]), list(traced.changes["what"])) == (
        key,
        [1],
        ["row read"],
    )
    with pytest.raises(
        LakeError, match="(?s)topic t has no message of id 8.*3 messages.*an? id of public.t"
    ):
        trace.row(None, flow, "t", "8")


def test_a_message_of_a_schema_that_nobody_knows_is_passed_by_and_asked_for_once(monkeypatch):
    asked = []
    monkeypatch.setattr(in_topic.registry, "find", lambda world, id: asked.append(id))
    world = params.load("local")
    decode = registry.Decoder(world)
    raw = b"\0" + (7).to_bytes(8, "big") + b"\x02"
    assert (
        in_topic.extract_key(decode, raw, "id") is in_topic.extract_key(decode, raw, "id") is None
    )
    assert asked == [7]
    message = {"partition": 0, "offset": 3, "value": raw, "timestamp": pandas.Timestamp(0)}
    monkeypatch.setattr(topics, "read", lambda *_, key_filter: pandas.DataFrame([message]))
    monkeypatch.setattr(
        registry,
        "artifacts",
        lambda *_: pandas.DataFrame(columns=["artifact", "version", "global_id", "content_id"]),
    )
    with pytest.raises(
        LakeError,
        match="(?s)globalId 7 is not in the registry.*t, partition 0, offset 3.*dead_letters",
    ):
        trace.row(world, captured("t", format="avro"), "t", 1)


@pytest.mark.parametrize("kind", ["json", "avro"])
def test_a_row_that_nothing_lands_is_traced_by_the_format_of_its_messages(monkeypatch, kind):
    def found(*_, key_filter):
        message = {
            "key": b'{"id": 1}',
            "partition": 0,
            "offset": 3,
            "value": '{"id": 1, "__op": "r"}',
            "timestamp": pandas.Timestamp(0),
        }
        return pandas.DataFrame([message] if key_filter(message["key"]) else [])

    def decode(raw):
        return registry.Decoded({"id": 1, "__op": "r"}, "globalId 7", {})

    decode.world = params.load("local")
    monkeypatch.setattr(topics, "read", found)
    monkeypatch.setattr(registry, "Decoder", lambda world: decode)
    monkeypatch.setattr(registry, "versions_by_schema_id", lambda *_: {})
    found = trace.row(None, captured("t", format=kind), "", 1)
    assert list(found.changes["schema"]) == ["inline" if kind == "json" else "globalId 7"]
    assert list(found.changes["landed"]) == [""]


# --- the lake
# --------------------------------------------------------------------------------------------------------


def change(offset, **fields):
    """A change of a row, in partition 0."""
    unknown = dict.fromkeys(field.name for field in dataclasses.fields(in_topic.Change))
    made = {**unknown, "partition": 0, "offset": offset, "landed": "", "lake": {}}
    at = dt.datetime(2026, 1, 1, tzinfo=UTC)
    return in_topic.Change(**{**made, "in_topic_at": at, **fields})


@pytest.fixture
def world(tmp_path):
    lake = {n: f"file:{tmp_path}/{n}" for n in ("landing", "checkpoints", "tables")}
    return SimpleNamespace(lake=SimpleNamespace(**lake))


@pytest.fixture
def lake(tmp_path, world, monkeypatch):
    """A Merge-on-Read table: a load, an update into a log, a compaction; what its commits have
    read, and what hudi-rs shows of record 1 as of each."""
    table = hudi.Table(
        "t", f"file:{tmp_path}/t", ("id",), "v", partition=("p",), type="mor", index="GLOBAL_SIMPLE"
    )

    def commit(instant, action, path, progress, **stat):
        (tmp_path / "t" / ".hoodie").mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / "p=a").mkdir(exist_ok=True)
        stats = {"p=a": [{"fileId": "f", "path": f"p=a/{path}", **stat}]}
        extra = {"_workbench_progress": json.dumps(progress)} if progress else {}
        for name in (f"{instant}.{action}.requested", f"{instant}.{action}"):
            (tmp_path / "t" / ".hoodie" / name).write_text(
                json.dumps({"partitionToWriteStats": stats, "extraMetadata": extra})
            )
        (tmp_path / "t" / "p=a" / path).touch()

    def shown(lake, *, as_of, optimized, where):
        seen = {
            T1: (10, f"f_0_{T1}.parquet"),
            T2: (10, f"f_0_{T1}.parquet") if optimized else (30, "f"),
            T3: (30, f"f_0_{T3}.parquet"),
        }
        found = [seen[as_of[1]]] if where == {"id": 1} else []
        frame = pandas.DataFrame(found, columns=["v", "_hoodie_file_name"])
        return SimpleNamespace(to_pandas=lambda: frame)

    monkeypatch.setattr(hudi, "read_arrow", shown)
    commit(T1, "deltacommit", f"f_0_{T1}.parquet", {"topic-x": {"start": 0, "offsets": {"0": 5}}})
    commit(
        T2,
        "deltacommit",
        ".f.log.1",
        {
            "topic-x": {"start": 5, "offsets": {"0": 9}},
            "landed-y": {"start": 0, "offsets": {"y/z-0": 3}},
        },
        baseFile=f"f_0_{T1}.parquet",
    )
    commit(T3, "commit", f"f_0_{T3}.parquet", None)
    return table


@pytest.mark.parametrize(
    "offset, landed, instant",
    [
        (0, "", T1),
        (4, "", T1),
        (5, "", T2),
        (8, "", T2),
        (9, "", None),
        (9, "y/z-0-2.json", T2),
        (9, "y/z-0-3.json", None),
    ],
)
def test_the_commit_of_a_message(lake, offset, landed, instant):
    event = change(offset, landed=landed)
    found = in_lake.find_commit(timeline.completed_actions(lake), "x", event)
    assert (found and found.instant) == instant


def test_a_commit_that_was_archived_is_not_guessed(lake, tmp_path):
    for file in (tmp_path / "t" / ".hoodie").glob(f"{T1}*"):
        file.unlink()
    event = change(3)
    assert in_lake.find_commit(timeline.completed_actions(lake), "x", event) is None


def test_the_file_of_a_version(world, lake, tmp_path, monkeypatch):
    first, second, _ = timeline.completed_actions(lake)

    def place(commit, record, group="", key=1):
        return in_lake.written_file(world, lake, commit, {"id": key}, record, group)

    assert place(first, {"v": 10})["path"] == f"p=a/f_0_{T1}.parquet"
    assert place(first, {"v": 11}) == {}, "the table had another version then"
    found = place(second, {"v": 30})
    assert (found["path"], found["fileId"]) == ("p=a/.f.log.1", "f")
    gone = place(second, {"p": None, "v": 31, "__deleted": "true"}, "f")
    assert gone["path"] == "p=a/.f.log.1", "a hard delete goes to where the row was"
    assert place(second, {"v": 31, "__deleted": "true"}) == {}, "nobody knows where the row was"
    soft = dataclasses.replace(lake, deletes="soft")
    assert (
        in_lake.written_file(world, soft, second, {"id": 1}, {"v": 31, "__deleted": "true"}, "f")
        == {}
    )
    assert place(second, {"v": 30}, key=3) == {}
    (tmp_path / "t" / "p=a" / f"f_0_{T1}.parquet").unlink()
    independent = hudi.read_arrow

    def refuse(lake, **how):
        timeline.check_readable(lake, how["as_of"][1])
        return independent(lake, **how)

    monkeypatch.setattr(hudi, "read_arrow", refuse)
    assert place(first, {"v": 10}) == {}, "cleaned away; and no Spark is asked for it"


def test_of_changes_that_came_with_one_commit_the_last_was_written(world, lake):
    changes = [
        change(offset, record={"p": "a", "v": version, "__op": "u"})
        for offset, version in ((3, 10), (5, 20), (8, 30), (9, 40))
    ]
    shown = pandas.DataFrame({"view": ["datalake.t_ro", "datalake.t_rt"], "v": [30, 30]})
    row_history._add_table_columns(world, "x", lake, "mor", {"id": 1}, changes, shown)
    columns = [each.lake for each in changes]
    assert [c["mor_commit"] for c in columns] == [T1, T2, T2, ""]
    assert (
        [c["mor_rt"] for c in columns]
        == [c["mor_ro"] for c in columns]
        == ["was", "never", "now", ""]
    )
    assert [c["mor_file"] for c in columns] == [f"p=a/f_0_{T1}.parquet", "", "p=a/.f.log.1", ""]
    assert [c["mor_file_group"] for c in columns] == ["f", "", "f", ""]


def test_what_hudi_rs_cannot_read_is_read_by_spark_as_each_view(world, lake, monkeypatch):
    class Spark:
        """Stands for a session and its reader; a read gives one row, holding the options it was
        asked with."""

        def __init__(self):
            self.asked = {}

        @property
        def read(self):
            return Spark()

        def option(self, name, value):
            return self.options(**{name: value})

        def options(self, **asked):
            self.asked.update(asked)
            return self

        def load(self, *_):
            return self

        format = where = load

        def toPandas(self):  # noqa: N802 - Spark's name
            assert self.asked["hoodie.enable.data.skipping"] == "false"
            return pandas.DataFrame(
                {"kind": [self.asked.get("hoodie.datasource.query.type", "snapshot")]}
            )

    def refuse(lake, *, as_of, optimized, where):
        raise LakeError("a compaction is pending")

    monkeypatch.setattr(row_history.hudi, "exists", lambda lake: True)
    monkeypatch.setattr(hudi, "read_arrow", refuse)
    monkeypatch.setattr(in_lake, "session", lambda world: Spark())
    found = row_history._current_rows(world, [lake], {"id": 1})
    assert dict(zip(found["view"].str[-3:], found["kind"])) == {
        "_ro": "read_optimized",
        "_rt": "snapshot",
    }


def test_only_a_history_that_was_removed_holds_nothing(world, monkeypatch):
    lake, errors = hudi.Table("t", f"{world.lake.tables}/t", key=("id",), ordering="__lsn"), []

    def refuse(*_):
        raise errors[-1]

    monkeypatch.setattr(in_lake, "rows_of_key", refuse)
    commit = SimpleNamespace(instant="20260101000000000")
    errors.append(timeline.HistoryRemoved("the commits were archived"))
    assert in_lake.versions_at(world, lake, {"id": 1}, commit) == {}
    errors.append(LakeError("the table cannot be read"))
    with pytest.raises(LakeError, match="the table cannot be read"):
        in_lake.versions_at(world, lake, {"id": 1}, commit)


# --- files and texts
# -------------------------------------------------------------------------------------------


def test_the_landed_file_of_a_message(world, tmp_path):
    def find(sink, offset, payload_bytes, record=None):
        event = change(offset, record=record or {}, payload_bytes=payload_bytes)
        return row_history._landed_file(world, sink, "t", event)

    for name, data in (
        ("topics/t/partition=0/t+0+0000000000.avro", b"..one..two"),
        ("topics/t/partition=0/t+0+0000000002.avro", b"three"),
        ("out/p=a/t-0-00000000000000000000.json", b'{"x":1}\n'),
    ):
        (tmp_path / "landing" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "landing" / name).write_bytes(data)
    avro, lines = (
        Sink("avro", "topics", 10, "t", ("t",), None, is_confluent=True),
        Sink("json", "out", 10, "t", ("t",), ("p",)),
    )
    assert find(avro, 1, b"two") == "topics/t/partition=0/t+0+0000000000.avro"
    assert find(avro, 2, b"three").endswith("02.avro") and find(avro, 2, b"two") == ""
    assert (
        find(lines, 0, b'{"x":1}', {"p": "a"}).startswith("out/p=a/")
        and find(lines, 0, b"x", {"p": "b"}) == ""
    )


def history():
    lake = hudi.Table(name="t", base="file:/none", key=("id",), ordering="v", type="mor")
    at = [dt.datetime(2026, 1, 1, 12, 0, n, tzinfo=UTC) for n in range(3)]
    changes = pandas.DataFrame(
        {
            "change": [1, 2],
            "made_at": at[:2],
            "op": ["snapshot", "update"],
            "what": ["row read", "a 1 → 2"],
            "lsn": [5, 6],
            "transaction": pandas.array([None, 700], "Int64"),
            "partition": [0, 0],
            "offset": [0, 9],
            "in_topic_at": at[1:],
            "schema": ["globalId 2", "inline"],
            "version": ["1", None],
            "landed": ["", "x/y.avro"],
            "mor_commit": [T1, ""],
            "mor_file_group": ["f", ""],
            "mor_file": ["p/f.parquet", ""],
            "mor_ro": ["now", ""],
            "mor_rt": ["now", ""],
        }
    )
    views = pandas.DataFrame({"view": ["d.t_ro"], "_hoodie_record_key": ["7"], "id": [7], "a": [1]})
    return trace.RowHistory("artists 7: 2 changes", 7, "m.artists", [lake], changes, views)


def test_its_text_and_its_html():
    text = repr(history())
    for part in (
        "artists 7: 2 changes",
        "topic m.artists:",
        "a 1 → 2",
        "700",
        "globalId 2",
        "x/y.avro",
        "p/f.parquet",
        "d.t_ro",
    ):
        assert part in text
    assert "700.0" not in text and "_hoodie_record_key" not in text
    page = history()._repr_html_()
    assert "artists 7: 2 changes" in page and page.count("<table") == 4


def test_what_a_row_holds_is_printed_as_text():
    changes = history().changes.assign(what="x\x1b[2Jy")
    views = pandas.DataFrame({"view": ["a", "a"], "tags": [["x", None], []]})
    traced = dataclasses.replace(
        history(), title="artists [/b] \x1b]0;title\x07", changes=changes, views=views
    )
    text = repr(traced)
    assert text.startswith(r"artists [/b] \x1b]0;title\x07") and "x\\x1b[2Jy" in text
    assert "['x', None]" in text and "\x1b" not in text and "\x07" not in text


@pytest.mark.parametrize(
    "flow, name, reason",
    [
        (query_based.flow, "address", "the table is polled"),
        (log_based.flow, "film_actor", "the key is actor_id, film_id"),
    ],
)
def test_what_cannot_be_traced(flow, name, reason):
    with pytest.raises(LakeError, match=f"{name} cannot be traced: {reason}"):
        trace.row(params.load("local"), flow, name, 1)


def test_two_tables_of_one_type_have_columns_of_their_own():
    one, two = (hudi.Table(n, f"file:/{n}", ("id",), "v", type="cow") for n in ("one", "two"))
    mor = dataclasses.replace(one, name="log", type="mor")
    tables = (one, two, mor)
    shorts = [in_lake.short_name(each, tables) for each in tables]
    assert (
        shorts == ["datalake.one", "datalake.two", "mor"]
        and in_lake.short_name(one, (one, mor)) == "cow"
    )
    views = [[*in_lake.view_names(each, short)] for each, short in zip(tables, shorts)]
    assert views == [["datalake.one"], ["datalake.two"], ["mor_ro", "mor_rt"]]
