"""One row's biography: what changed, what a view shows, which commit and file it was, and the picture."""
import dataclasses
import datetime as dt
import json
from contextlib import contextmanager
from decimal import Decimal
from types import SimpleNamespace

import pandas
import pyarrow
import pyarrow.parquet
import pytest
from workbench import hudi, trace
from workbench.base import params
from workbench.base.errors import LakeError, SourceError
from workbench.hudi import timeline
from workbench.landing.sinks import Sink
from workbench.source import postgres
from workbench.trace import biography, in_lake, in_source, in_topic, telling
from workbench.walkthroughs import traceable

T1, T2, T3 = "20260101120000001", "20260101120000002", "20260101120000003"
UTC = dt.timezone.utc


@pytest.mark.parametrize("before, record, says", [
    (None, {"__op": "r"}, "row read"), (None, {"__op": "c"}, "row inserted"),
    ({"__op": "d"}, {"__op": "c"}, "row inserted"), ({"a": 1, "__op": "u"}, {"a": None, "__op": "d"}, "row deleted"),
    ({"a": 1, "b": "x", "__lsn": 1}, {"a": 2, "b": None, "__lsn": 2, "__op": "u"}, "a 1 → 2, b x → null"),
    ({"a": 1}, {"a": 1, "__op": "u"}, "nothing"), ({}, {"a": "x" * 50, "__op": "u"}, f"a null → {'x' * 39}…"),
])
def test_what_a_change_did(before, record, says):
    assert in_topic.what(before, record) == says


MOR = SimpleNamespace(ordering="v", deletes="hard")


@pytest.mark.parametrize("state, op, here, last, based, shows", [
    ("", "u", {1}, False, None, ""), ("never", "u", {2}, False, None, "never"), ("was", "u", {1}, True, None, "now"),
    ("was", "u", {2}, False, None, "was"), ("was", "u", {0}, True, {0}, "not yet"),
    ("was", "u", {0}, False, {0}, "never"), ("was", "u", {2}, False, {1, 2}, "was"),
    ("was", "d", set(), True, None, "now"), ("was", "d", {3}, True, None, "was"),
])
def test_what_a_view_shows(state, op, here, last, based, shows):
    assert biography._state(state, {"v": 1, "__op": op}, MOR, here, last, based) == shows


def test_an_instant_is_a_time_in_utc():
    assert timeline.time_of("20260101120000001") == dt.datetime(2026, 1, 1, 12, 0, 0, 1000, UTC)
    assert timeline.time_of("20260101120000") == dt.datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_unknown_tables_and_keys():
    with pytest.raises(LakeError, match="(?s)no table 'artist' to trace.*did you mean 'artists'"):
        traceable.traced(params.load("local"), "artist")
    table = trace.Traced("artists", "public.artists", "artist_id", "t", None, ())
    with pytest.raises(LakeError, match="(?s)'x' is no artist_id.*a whole number"):
        trace.row(None, table, "x")


def test_a_message_of_a_schema_that_nobody_knows_is_passed_by_and_asked_for_once(monkeypatch):
    asked = []
    monkeypatch.setattr(in_topic.registry, "find", lambda world, *id_and_kind: asked.append(id_and_kind))
    world = SimpleNamespace(registry=SimpleNamespace(wire="apicurio_legacy8", kind="apicurio", url="http://r"))
    reading = in_topic._Reading(world, trace.Traced("artists", "public.artists", "artist_id", "t",
                                                         Sink("avro", "topics", 10, ("t",)), ()))
    raw = b"\0" + (7).to_bytes(8, "big") + b"\x02"
    assert reading.key(raw) is reading.key(raw) is None and asked == [(7, "globalId")]
    with pytest.raises(LakeError, match="(?s)no schema with globalId 7.*t, partition 0, offset 3.*dead_letters"):
        reading.value(raw, "t, partition 0, offset 3")


# --- the source ------------------------------------------------------------------------------------------------------

DAY, NOON = dt.date(1959, 4, 15), dt.datetime(2001, 2, 3, 12, 0, 0, 5000)


@pytest.mark.parametrize("said, has, equal", [
    (1, 1, True), (1, 2, False), (None, None, True), (None, "", False), (0, None, False), ("None", None, False),
    ("x", "x", True), ("x", "X", False), (Decimal("1.50"), Decimal("1.5"), True), (True, True, True),
    (DAY, DAY, True), (-3914, DAY, True), (-3913, DAY, False), (10**12, DAY, False),
    (NOON.replace(tzinfo=UTC), NOON, True), (NOON.replace(microsecond=6000, tzinfo=UTC), NOON, False),
    (981201600005, NOON, True), (981201600005000, NOON, True), (981201600006, NOON, False), ("noon", NOON, False),
    ("2001-02-03T12:00:00.005Z", NOON.replace(tzinfo=dt.timezone.utc), True), (DAY, NOON, False),
    ("2001-02-03T13:00:00.005Z", NOON.replace(tzinfo=dt.timezone.utc), False),
    ("2001-02-03T12:00:00.005Z", NOON.replace(hour=14, tzinfo=dt.timezone(dt.timedelta(hours=2))), True),
    (36_000_000_000, dt.time(10), True), (36_000_000, dt.time(10), True), (36_000_001, dt.time(10), False),
    ('{"a": [1]}', {"a": [1]}, True), ('{"a": [2]}', {"a": [1]}, False), ("{", {}, False),
])
def test_a_value_of_a_change_beside_that_of_the_source(said, has, equal):
    assert in_source.same(said, has) is equal


@pytest.fixture
def answer(monkeypatch):
    """Stands for the source: one row of artist 299, or an error; a trace of that artist with no lake."""
    record = {"artist_id": 299, "birth_year": 1905, "born": DAY, "left_out": "x", "__lsn": 7, "__op": "u"}
    event = {"transaction": None, "partition": 0, "offset": 1, "record": record, "needle": b""}
    monkeypatch.setattr(in_topic, "events", lambda *_: [{**event, "record": dict(record)}])
    monkeypatch.setattr(biography, "_landed", lambda *_: "")
    table = trace.Traced("artists", "public.artists", "artist_id", "t", None, ())

    def trace_with(row, raises=None):
        @contextmanager
        def session(world, database):
            if raises:
                raise raises
            cursor = SimpleNamespace(description=[SimpleNamespace(name=n) for n in row or ()],
                                     fetchone=lambda: row and tuple(row.values()))
            yield SimpleNamespace(execute=lambda query, values: cursor)

        monkeypatch.setattr(postgres, "session", session)
        life = trace.row(None, table, 299)
        return life.changes["transaction"].iloc[0], life.notes

    return trace_with


ROW = {"xmin": 700, "artist_id": 299, "birth_year": 1905, "born": DAY, "added": 1, "__lsn": 0}


def test_the_transaction_of_a_row_that_is_as_the_change_says(answer):
    assert answer(ROW) == (700, ())


def test_the_transaction_of_another_state_of_the_row_is_not_taken(answer):
    found, notes = answer({**ROW, "birth_year": 1906, "born": None})
    assert found is None
    assert notes == ("the row in the source is not as the last change says (birth_year, born), "
                     "so no transaction is known",)
    assert answer(None) == (None, ("the source has no such row any more, so no transaction is known",))


def test_transactions_that_nobody_says_are_noted():
    events, gone = [{"transaction": None}, {"transaction": None}], [{"__op": "r"}, {"__op": "d"}]
    assert in_source.complete(None, None, 1, events, gone) == [
        "a deleted row is not there to be asked, so no transaction is known of its deletion",
        "the events carry no transaction, and PostgreSQL keeps that of a row's last change only "
        "(its hidden column xmin)"]
    said = [{"transaction": 1}, {"transaction": 2}]
    assert in_source.complete(None, None, 1, said, gone) == []


def test_a_source_that_is_not_reached_is_noted(answer):
    found, notes = answer(ROW, SourceError("cannot connect to PostgreSQL", where="admin@host:1/moma"))
    assert (found, notes) == (None, ("the source was not reached: cannot connect to PostgreSQL (admin@host:1/moma), "
                                     "so no transaction is known",))


# --- the lake --------------------------------------------------------------------------------------------------------

@pytest.fixture
def world(tmp_path):
    lake = {n: f"file:{tmp_path}/{n}" for n in ("landing", "checkpoints")}
    return SimpleNamespace(lake=SimpleNamespace(**lake))


@pytest.fixture
def lake(tmp_path, world):
    """A Merge-on-Read table: a load, an update into a log, a compaction; and what its commits have read."""
    table = hudi.Table(name="t", base=f"file:{tmp_path}/t", key=("id",), ordering="v", partition=("p",), type="mor")

    def commit(instant, action, path, progress, rows=None, **stat):
        (tmp_path / "t" / ".hoodie").mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / "p=a").mkdir(exist_ok=True)
        stats = {"p=a": [{"fileId": "f", "path": f"p=a/{path}", **stat}]}
        extra = {"_workbench_progress": json.dumps(progress)} if progress else {}
        for name in (f"{instant}.{action}.requested", f"{instant}.{action}"):
            (tmp_path / "t" / ".hoodie" / name).write_text(
                json.dumps({"partitionToWriteStats": stats, "extraMetadata": extra}))
        if rows is not None:
            frame = pandas.DataFrame(rows, columns=["_hoodie_record_key", "v"])
            pyarrow.parquet.write_table(pyarrow.Table.from_pandas(frame), tmp_path / "t" / "p=a" / path)

    commit(T1, "deltacommit", f"f_0_{T1}.parquet", {"topic-x": {"batch": 0, "offsets": {"0": 5}}},
           [("1", 10), ("2", 10)])
    commit(T2, "deltacommit", ".f.log.1", {"topic-x": {"batch": 1, "offsets": {"0": 9}},
                                           "landed-y": {"batch": 0}}, baseFile=f"f_0_{T1}.parquet")
    commit(T3, "commit", f"f_0_{T3}.parquet", None, [("1", 30), ("2", 10)])
    place = tmp_path / "checkpoints" / "t" / "landed-y" / "0.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps([f"{tmp_path}/landing/y/a.json"]))
    return table


@pytest.mark.parametrize("offset, landed, instant", [
    (0, "", T1), (4, "", T1), (5, "", T2), (8, "", T2), (9, "", None), (9, "y/a.json", T2), (9, "y/b.json", None)])
def test_the_commit_of_a_message(world, lake, offset, landed, instant):
    found = in_lake.History(world, lake, 1).commit("x", 0, offset, landed)
    assert (found and found.instant) == instant


def test_a_commit_that_was_archived_is_not_guessed(world, lake, tmp_path):
    for file in (tmp_path / "t" / ".hoodie").glob(f"{T1}*"):
        file.unlink()
    assert in_lake.History(world, lake, 1).commit("x", 0, 3) is None


def test_the_file_of_a_version(world, lake):
    history = in_lake.History(world, lake, 1)
    first, second, _ = history.done
    assert history.place(first, {"p": "a", "v": 10}, None).file == f"p=a/f_0_{T1}.parquet"
    assert history.place(first, {"p": "a", "v": 11}, None) is None, "that file holds another version"
    place = history.place(second, {"p": "a", "v": 30}, None)
    assert (place.file, place.file_group) == ("p=a/.f.log.1", "f")
    gone = history.place(second, {"p": None, "v": 31, "__deleted": "true"}, place)
    assert gone.file == "p=a/.f.log.1", "a hard delete goes to where the row was"
    assert history.in_base_files({"f"}) == [10, 30] and history.in_base_files({"g"}) == []
    assert in_lake.History(world, lake, 3).place(second, {"p": "a", "v": 30}, None) is None
    commits = [first, second, second, None]
    assert [history.merged_away(commits, n) for n in range(4)] == [False, True, False, False]


def test_what_hudi_rs_cannot_read_is_read_by_spark_as_each_view(world, lake, monkeypatch):
    class Spark:
        """Stands for a session and its reader; a read gives one row, holding the options it was asked with."""

        def __init__(self):
            self.options = {}

        @property
        def read(self):
            return Spark()

        def option(self, name, value):
            self.options[name] = value
            return self

        def load(self, *_):
            return self

        format = where = load

        def toPandas(self):  # noqa: N802 - Spark's name
            assert self.options["hoodie.enable.data.skipping"] == "false"
            return pandas.DataFrame({"kind": [self.options.get("hoodie.datasource.query.type", "snapshot")]})

    def refuse(lake, *, optimized, where):
        raise LakeError("a compaction is pending")

    monkeypatch.setattr(biography.hudi, "exists", lambda lake: True)
    monkeypatch.setattr(hudi, "read_independent", refuse)
    monkeypatch.setattr(biography, "session", lambda world: Spark())
    table = trace.Traced("x", "public.x", "id", "t", None, (lake,))
    found = trace.views(world, table, 1)
    assert dict(zip(found["view"].str[-3:], found["kind"])) == {"_ro": "read_optimized", "_rt": "snapshot"}


# --- files and the picture -------------------------------------------------------------------------------------------

def test_the_landed_file_of_a_message(world, tmp_path):
    def find(sink, offset, needle, record=None):
        table = SimpleNamespace(sink=sink, topic="t")
        return biography._landed(world, table, {"partition": 0, "offset": offset}, record or {}, needle)

    for name, data in (("topics/t/partition=0/t+0+0000000000.avro", b"..one..two"),
                       ("topics/t/partition=0/t+0+0000000002.avro", b"three"),
                       ("out/p=a/t-0-00000000000000000000.json", b'{"x":1}\n')):
        (tmp_path / "landing" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "landing" / name).write_bytes(data)
    avro, lines = Sink("avro", "topics", 10, pattern="t"), Sink("json", "out", 10, ("t",), fields=("p",))
    assert find(avro, 1, b"two") == "topics/t/partition=0/t+0+0000000000.avro"
    assert find(avro, 2, b"three").endswith("02.avro") and find(avro, 2, b"two") == ""
    assert find(lines, 0, b'{"x":1}', {"p": "a"}).startswith("out/p=a/") and find(lines, 0, b"x", {"p": "b"}) == ""


def life():
    lake = hudi.Table(name="t", base="file:/none", key=("id",), ordering="v", type="mor")
    table = trace.Traced("artists", "public.artists", "id", "m.artists", None, (lake,))
    at = [dt.datetime(2026, 1, 1, 12, 0, n, tzinfo=UTC) for n in range(3)]
    changes = pandas.DataFrame({
        "change": [1, 2], "made_at": at[:2], "op": ["snapshot", "update"], "what": ["row read", "a 1 → 2"],
        "lsn": [5, 6], "transaction": [None, 700], "partition": [0, 0], "offset": [0, 9], "in_topic_at": at[1:],
        "schema": ["globalId 2", "inline"], "version": ["1", None], "landed": ["", "x/y.avro"],
        "mor_commit": [T1, ""], "mor_file_group": ["f", ""], "mor_file": ["p/f.parquet", ""],
        "mor_ro": ["now", ""], "mor_rt": ["now", ""]})
    views = pandas.DataFrame({"view": ["d.t_ro"], "_hoodie_commit_time": [T1], "id": [7], "a": [1]})
    return trace.Biography(table, 7, changes, views)


def test_it_is_printed_line_by_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    trace.show(life())
    out = capsys.readouterr().out
    for text in ("artists 7", "a 1 → 2", "700", "globalId 2, version 1", "0:9", "x/y.avro", "p/f.parquet",
                 "datalake.t_ro"):
        assert text in out
    assert "700.0" not in out and "NaN" not in out
    note = "the source was not reached: [b]x[/b]"
    assert "reached" not in out
    trace.show(dataclasses.replace(life(), notes=(note,)))
    assert capsys.readouterr().out.rstrip().endswith(note)


def test_the_picture_has_a_line_for_each_change():
    figure = trace.draw(life())
    (axes,) = figure.axes
    assert [len(line.get_markevery()) for line in axes.lines] == [3, 2], "the second change is not in the lake yet"
    assert [t.get_text() for t in axes.get_yticklabels()] == ["source", "topic m.artists", "commit of t"]


def test_a_line_of_the_picture_goes_from_the_topic_to_each_table():
    source, topic, cow, mor = (0, 0), (1, -1), (3, -2), (2, -3)
    path, marks = telling._path([source, topic, cow, mor])
    assert [path[n] for n in marks] == [source, topic, cow, mor]
    assert path[2] == (3, -1.5) and path[5:] == [topic, (2, -1.5), mor], "a bend before each table"
    assert path[4][0] != path[4][0], "a gap: from one table nothing goes to the other"
    assert telling._path([source, topic, None, None]) == ([source, topic], [0, 1])
    assert telling._path([None, None, cow, None]) == ([cow], [0])


def test_labels_of_times_stand_apart():
    assert telling._apart([0, 1, 4, 5, 9], 4) == [0, 4, 9]


def test_no_two_changes_of_the_picture_look_alike():
    two = life()
    changes = pandas.concat([two.changes[:1]] * 30, ignore_index=True).assign(change=range(1, 31))
    figure = trace.draw(dataclasses.replace(two, changes=changes))
    looks = [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in figure.axes[0].lines]
    assert len(set(looks)) == 30 and len({colour for colour, *_ in looks[:7]}) == 7
    assert figure.get_suptitle().startswith("artists 7: ") and figure._suptitle.get_ha() == "left"
