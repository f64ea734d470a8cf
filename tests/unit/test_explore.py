"""Exploring tables that pyarrow has written: no service, no Spark."""

import datetime as dt
import itertools
import re
import time
from dataclasses import replace
from decimal import Decimal
from random import Random

import arrow_lake
import pandas as pd
import pyarrow as pa
import pytest
from captured import captured
from workbench import explore, flow, hudi
from workbench.base import LakeError, params
from workbench.explore import finding, views
from workbench.hudi.timeline import HistoryRemoved

PEOPLE = {
    "t0": [{"id": 1, "name": "Ada", "land": "uk"}, {"id": 2, "name": "Bo", "land": "se"}],
    "t1": [{"id": 1, "name": "Ada", "land": "uk"}, {"id": 2, "name": "Bo", "land": "dk"}],
    "t2": [{"id": 1, "name": "<b>Ada", "land": "uk"}, {"id": 3, "name": None, "land": "uk"}],
}


@pytest.fixture
def world(tmp_path, monkeypatch):
    def no_spark(world):
        raise AssertionError("a Spark job")

    monkeypatch.setattr(views, "session", no_spark)
    return arrow_lake.world_in(params.load("local"), tmp_path / "the lake")


@pytest.fixture
def people(world):
    table = arrow_lake.new_table(world, "people", partition=("land",))
    for number, (label, rows) in enumerate(PEOPLE.items()):
        arrow_lake.commit(world, table, rows, number, label, f"0/{number}")
    return table


def cells(frame):
    """Return the marked cells of a frame as {(key, column)}."""
    key = frame.rows.columns[0]
    return {
        (frame.rows.loc[row, key], column)
        for row, column in itertools.product(frame.rows.index, frame.rows.columns)
        if frame.changed.loc[row, column]
    }


# --- find


def test_a_table_is_found_by_each_of_its_names(world, people):
    for name in ("people", "datalake/people", "datalake.people", people):
        found = explore.find(world, name)
        assert (found.base, found.key, found.partition) == (people.base, ("id",), ("land",)), name


def test_names_that_no_table_or_several_have(world, people):
    arrow_lake.new_table(world, "people", path="other/people")
    with pytest.raises(LakeError, match="(?s)2 tables .*one of datalake/people, other/people"):
        explore.find(world, "people")
    assert explore.find(world, "other/people").base.endswith("other/people")
    arrow_lake.new_table(world, "people", path="people")
    assert explore.find(world, "people").base == f"{world.lake.tables}/people", "its path"
    with pytest.raises(LakeError, match="(?s)no table 'peple'.*did you mean 'people'"):
        explore.at(world, "peple")


def test_captured_tables_have_their_declared_names_and_fields(world, people, monkeypatch):
    declared = replace(people, catalog="persons", deletes="soft")
    again = arrow_lake.new_table(world, "people_mor")  # ingested from the same captured table
    humans = captured("humans", [declared, again])
    monkeypatch.setattr(flow.registry, "_declared", [lambda world: {"90_flow": humans}])
    for name in ("datalake.persons", "people"):
        assert explore.find(world, name) is declared, name
    with pytest.raises(LakeError, match="2 tables have the name 'humans'"):
        explore.find(world, "humans")
    traced = []
    monkeypatch.setattr(finding.trace, "row", lambda *args: traced.append(args))
    for name in ("people", "humans", "90_flow/humans"):
        explore.row(world, name, 7)
    assert traced == [(world, humans, "humans", 7)] * 3
    other = arrow_lake.new_table(world, "uncaptured")
    with pytest.raises(LakeError, match="no captured table"):
        explore.row(world, other, 7)


def test_the_walkthroughs_declare_their_tables():
    from workbench import tracks  # noqa: F401 - declares them

    world = params.load("local")
    tables = flow.declared(world)["50_time_travel"].tables(world, "artists")
    assert [table.name for table in tables] == ["moma_artists_cow", "moma_artists_mor"]


# --- at


def test_changed_cells_are_marked_since_the_label_before(world, people):
    first, second, third = (explore.at(world, "people", label) for label in PEOPLE)
    assert cells(first) == set() and "since" not in first.title
    assert first.rows.to_dict("records") == PEOPLE["t0"]
    assert cells(second) == {(2, "land")}
    assert second.title.endswith("2 rows; since t0: 0 added, 0 removed, 1 changed")
    assert cells(third) == {(1, "name"), (3, "id"), (3, "name"), (3, "land")}
    assert third.title.endswith("since t1: 1 added, 1 removed, 1 changed")
    assert explore.at(world, people).title.startswith("people at t2 (2026-01-01 12:02:00 UTC)")


def test_a_frame_as_html_and_as_text(world, people):
    frame = explore.at(world, people, "t2")
    html = frame._repr_html_()
    marked = re.findall(r'class="[^"]*marked" >(.*?)</td>', html)
    assert marked == ["&lt;b&gt;Ada", "3", "<span style='color:#8A9099'>null</span>", "uk"]
    assert "<script" not in html and "http" not in html
    assert "<b>Ada *" in repr(frame) and repr(frame).startswith(frame.title)


def test_bytes_that_are_no_text_are_shown(world):
    table = arrow_lake.new_table(world, "hashes")
    for number, value in enumerate([b"\x00\x96", b"\xff\xfe"]):
        arrow_lake.commit(
            world, table, pa.table({"id": [1], "hash": [value]}), number, f"t{number}"
        )
    frame = explore.at(world, table, "t1")
    assert r"b'\xff\xfe' *" in repr(frame) and r"b&#x27;\xff" in frame._repr_html_().replace(
        "&#39;", "&#x27;"
    )
    assert r"b'\x00\x96'" in repr(explore.diff(world, table, "t0", "t1"))


def test_a_condition_selects_rows_of_both_frames(world, people):
    frame = explore.at(world, people, "t1", where="land = 'dk'")
    assert list(frame.rows["id"]) == [2] and "1 added, 0 removed" in frame.title
    empty = explore.at(world, people, "t1", where="id > 5")
    assert len(empty.rows) == 0 and "no rows" in empty._repr_html_() and repr(empty)
    assert list(explore.at(world, people, "t1", where="\"name\" LIKE 'A%' -- x").rows["id"]) == [1]


@pytest.mark.parametrize(
    "where, error",
    [
        ("id = 1; DROP TABLE x", "not Athena SQL"),
        ("true) UNION (SELECT 1", "not a condition"),
        ("true) LIMIT (1", "not a condition"),
        ("nme = 'a'", "(?s)nme.*location"),
        ("id IN (SELECT column0 FROM read_csv('/etc/passwd'))", "(?s)not a condition.*subquery"),
        ("'", "not Athena SQL"),
        ("(" * 2000, "nested too deeply"),
    ],
)
def test_invalid_conditions(world, people, where, error):
    with pytest.raises(LakeError, match=error):
        explore.at(world, people, "t1", where=where)


def test_an_unknown_label_and_one_instant_after_the_last(world, people):
    with pytest.raises(LakeError, match="(?s)no instant labeled 't9'.*valid: t0, t1, t2"):
        explore.at(world, people, "t9")
    with pytest.raises(LakeError, match="was written last at"):
        explore.diff(world, people, "t0", "20990101000000000")
    with pytest.raises(LakeError, match="no completed commit"):
        explore.at(world, arrow_lake.new_table(world, "empty"))


def test_the_same_label_in_two_tables_is_that_of_the_table(world, people):
    other = arrow_lake.new_table(world, "other")
    arrow_lake.commit(world, other, [{"id": 9}], 7, "t1")
    assert list(explore.at(world, other, "t1").rows["id"]) == [9]
    assert list(explore.at(world, people, "t1").rows["id"]) == [1, 2]


def test_without_labels_the_commit_before_is_the_previous_frame(world, people):
    arrow_lake.labels_file(world, people).unlink()
    frame = explore.at(world, people)
    assert "since 20260101120100000: 1 added, 1 removed, 1 changed" in frame.title


def test_the_previous_frame_is_that_of_the_label_before_not_of_the_commit(world, people):
    arrow_lake.commit(world, people, PEOPLE["t2"] + [{"id": 8, "name": "x", "land": "uk"}], 5)
    arrow_lake.commit(world, people, PEOPLE["t2"] + [{"id": 9, "name": "x", "land": "uk"}], 6, "t9")
    assert explore.at(world, people, "t9").title.endswith("since t2: 1 added, 0 removed, 0 changed")


def test_whole_numbers_stay_whole_beside_nulls(world):
    table = arrow_lake.new_table(world, "numbers")
    for number, year in enumerate((1906, None)):
        rows = {"id": [1, 2], "year": [year, 1907], "small": pa.array([None, 7], pa.int32())}
        arrow_lake.commit(world, table, pa.table(rows), number, f"t{number}")
    assert " 1907" in repr(explore.at(world, table, "t1")) and "1907.0" not in repr(
        explore.at(world, table, "t1")
    )
    assert explore.diff(world, table, "t1", "t0").cells["after"].map(repr).tolist() == ["1906"]


def test_times_are_utc_wherever_the_machine_is(world, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        table = arrow_lake.new_table(world, "times")
        noon = pa.array([dt.datetime(2026, 1, 1, 12)], pa.timestamp("us", "UTC"))
        arrow_lake.commit(world, table, pa.table({"id": [1], "at": noon}), 0, "t0")
        assert explore.at(world, table).rows["at"].map(str).tolist() == [
            "2026-01-01 12:00:00+00:00"
        ]
        assert explore.profile(world, table).rows["min"][1].startswith("2026-01-01 12:00:00")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_an_instant_that_was_cleaned_away(world, people):
    arrow_lake.remove_files(people, "20260101120000000")
    with pytest.raises(
        HistoryRemoved, match="(?s)were cleaned away.*an instant from 2026010112010"
    ):
        explore.at(world, people, "t0")
    with pytest.raises(HistoryRemoved):
        explore.diff(world, people, "t0", "t2")
    with pytest.raises(HistoryRemoved):
        explore.profile(world, people, against="t0")
    frame = explore.at(world, people, "t1")  # readable; its previous frame is not
    assert list(frame.rows["id"]) == [1, 2] and not cells(frame)
    history = explore.history(world, people).frame
    assert list(history["readable"]) == [False, True, True]


def test_a_frame_that_is_too_large_is_refused_with_the_figure(world, people, monkeypatch):
    monkeypatch.setattr("workbench.explore.views.MAX_RESULT_ROWS", 1)
    with pytest.raises(LakeError, match="(?s)has 2 rows.*at most 1 rows.*where=.*explore.profile"):
        explore.at(world, people, "t2")
    assert len(explore.at(world, people, "t2", where="id = 1").rows) == 1
    with pytest.raises(LakeError, match="(?s)has 2 rows or more"):
        explore.at(world, people, "t2", where="id < 9")
    monkeypatch.setattr(views, "_read", None)
    with pytest.raises(LakeError, match="(?s)has 2 rows"):  # before anything is read
        explore.at(world, people, "t2")


def test_soft_deleted_rows_are_removed_and_technical_columns_hidden(world):
    table = arrow_lake.new_table(world, "soft")
    row = {"id": 1, "name": "Ada", "__deleted": "false", "__lsn": 5, "v": 1}
    arrow_lake.commit(world, table, [row], 0, "t0")
    again = {**row, "__lsn": 6}
    arrow_lake.commit(world, table, [again], 1, "t1")
    schema = pa.Table.from_pylist([row]).schema
    gone = {"id": 1, "name": None, "__deleted": "true", "__lsn": 7, "v": None}
    arrow_lake.commit(world, table, pa.Table.from_pylist([gone], schema), 2, "t2")
    assert list(explore.at(world, table, "t1").rows) == ["id", "name", "v"]
    assert explore.diff(world, table, "t0", "t1").title.endswith("0 added, 0 removed, 0 changed")
    assert explore.diff(world, table, "t0", "t2").removed.to_dict("records") == [
        {"id": 1, "name": "Ada", "v": 1}
    ]


@pytest.mark.parametrize("reason", ["no DuckDB", "too many rows", "hudi-rs cannot"])
def test_spark_reads_what_the_others_cannot(world, people, monkeypatch, reason):
    def refuse(*args, **kwargs):
        raise LakeError("hudi-rs cannot read it")

    if reason == "no DuckDB":
        monkeypatch.setattr(views.importlib.util, "find_spec", lambda name: None)
    elif reason == "too many rows":
        monkeypatch.setattr(views, "MAX_ROWS", 1)
    else:
        monkeypatch.setattr(views.hudi, "read_arrow", refuse)
    with pytest.raises(AssertionError, match="a Spark job"):
        explore.diff(world, people, "t0", "t1")


# --- diff


def test_a_difference(world, people):
    found = explore.diff(world, "people", "t0", "t2")
    assert found.title == "people from t0 to t2: 1 added, 1 removed, 1 changed"
    assert found.added.fillna("-").to_dict("records") == [{"id": 3, "name": "-", "land": "uk"}]
    assert found.removed.to_dict("records") == [{"id": 2, "name": "Bo", "land": "se"}]
    assert found.cells.to_dict("records") == [
        {"id": 1, "column": "name", "before": "Ada", "after": "<b>Ada"}
    ]
    assert found.columns.to_dict("records") == [{"column": "name", "count": 1}]
    moved = explore.diff(world, people, "t0", "t1").moved
    assert moved.to_dict("records") == [{"id": 2, "column": "land", "before": "se", "after": "dk"}]
    backwards = explore.diff(world, people, "t2", "t0")
    assert (len(backwards.added), len(backwards.removed)) == (1, 1)
    html = found._repr_html_()
    assert "&lt;b&gt;Ada" in html and "<b>Ada" not in html and "before and after" in html
    assert "no rows" not in html and found.title in html
    assert "before and after" in repr(found)
    until_now = explore.diff(world, people, "t0")
    assert until_now.cells.equals(found.cells) and "from t0 to 2026" in until_now.title
    nothing = explore.diff(world, people, "t1", "t1")
    assert (
        nothing.title.endswith("0 added, 0 removed, 0 changed") and repr(nothing) == nothing.title
    )


def _expected(before, after, key):
    """Return the added, removed and changed cells of two lists of rows, without pandas or SQL."""
    old, new = ({tuple(r[k] for k in key): r for r in rows} for rows in (before, after))
    changed = {
        (k, column, repr(old[k][column]), repr(new[k][column]))
        for k in old.keys() & new.keys()
        for column in new[k]
        if old[k][column] != new[k][column]
    }
    return new.keys() - old.keys(), old.keys() - new.keys(), changed


def test_random_tables_with_odd_names_and_nested_columns(world):
    random = Random(1)
    key = ('Kü"nst ler', "select")
    odd = ("a'b", "ä ö", "Σ", "from")
    table = arrow_lake.new_table(world, "Größe: 100% 'x' \"y\"", key)

    def row(number):
        values = [None, "x", "", "ä'\"", 0, 1]
        return {
            key[0]: number,
            key[1]: str(number % 3),
            **{name: random.choice(values[:4]) for name in odd},
            "struct": random.choice([None, {"a": 1, "b": None}, {"a": 2, "b": "x"}]),
            "list": random.choice([None, [], [1, 2], [2, 1]]),
            "rows": random.choice([None, [{"c": 1.5}], [{"c": None}]]),
            "decimal": random.choice([None, Decimal("1.50"), Decimal("2.25")]),
            "time": random.choice([None, dt.datetime(2026, 1, 1, 12), dt.datetime(1, 1, 1)]),
            "day": random.choice([None, dt.date(2026, 1, 1), dt.date(9999, 12, 31)]),
            "flag": random.choice([None, True, False]),
            "bytes": random.choice([None, b"", b"\x00\xff"]),
        }

    sample = row(0)
    assert explore.find(world, table.name).key == key
    schema = pa.schema(
        [
            (key[0], pa.int32()),
            *((name, pa.string()) for name in (key[1], *odd)),
            ("struct", pa.struct([("a", pa.int64()), ("b", pa.string())])),
            ("list", pa.list_(pa.int64())),
            ("rows", pa.list_(pa.struct([("c", pa.float64())]))),
            ("decimal", pa.decimal128(10, 2)),
            ("time", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
            ("flag", pa.bool_()),
            ("bytes", pa.binary()),
        ]
    )
    assert schema.names == list(sample)
    current, contents = {}, {}
    for number in range(4):
        for n in random.sample(range(60), 25):
            current[n] = row(n)
        for n in random.sample(sorted(current), 4):
            del current[n]
        rows = pa.Table.from_pylist([current[n] for n in sorted(current)], schema)
        arrow_lake.commit(world, table, rows, number, f"t{number}")
        contents[f"t{number}"] = rows.to_pylist()
    for one, other in itertools.product(contents, contents):
        found = explore.diff(world, table, one, other)
        added, removed, changed = _expected(contents[one], contents[other], key)
        assert {tuple(r) for r in found.added[[*key]].itertuples(index=False)} == added
        assert {tuple(r) for r in found.removed[[*key]].itertuples(index=False)} == removed
        cells_ = found.cells.to_dict("records")
        assert {(tuple(c[k] for k in key), c["column"]) for c in cells_} == {c[:2] for c in changed}
        texts = {
            c[1:] for c in changed if c[1] in (*odd, "struct", "list", "rows", "decimal", "flag")
        }
        assert {
            (c["column"], repr(c["before"]), repr(c["after"]))
            for c in cells_
            if c["column"] in (*odd, "struct", "list", "rows", "decimal", "flag")
        } == texts
    assert explore.at(world, table, "t3")._repr_html_() and found._repr_html_()
    assert len(explore.profile(world, table, against="t0").rows) == len(schema)


def test_a_column_that_was_added_or_has_another_type(world):
    table = arrow_lake.new_table(world, "evolved")
    arrow_lake.commit(world, table, pa.table({"id": [1, 2], "n": [5, 6]}), 0, "t0")
    rows = pa.table({"id": [1, 2], "n": ["5", "x"], "new": [None, "y"]})
    arrow_lake.commit(world, table, rows, 1, "t1")
    assert explore.diff(world, table, "t0", "t1").cells.fillna("-").to_dict("records") == [
        {"id": 2, "column": "n", "before": "6", "after": "x"},
        {"id": 2, "column": "new", "before": "-", "after": "y"},
    ]


def test_a_table_that_was_empty(world):
    table = arrow_lake.new_table(world, "growing")
    arrow_lake.commit(world, table, [{"id": 1, "name": "Ada"}], 0, "t0")
    before = "20250101000000000"
    assert len(explore.diff(world, table, before, "t0").added) == 1
    assert len(explore.diff(world, table, "t0", before).removed) == 1
    assert explore.profile(world, table, against=before).rows["null_percent"].tolist() == [0, 0]
    with pytest.raises(LakeError, match="no row at that time"):
        explore.diff(world, table, before, before)


def test_a_table_without_key(world):
    table = arrow_lake.new_table(world, "log", key=())
    arrow_lake.commit(world, table, [{"a": 1, "b": 2}], 0, "t0")
    arrow_lake.commit(world, table, [{"a": 1, "b": 3}], 1, "t1")
    found = explore.find(world, "log")
    with pytest.raises(LakeError, match="(?s)no record key.*dataclasses.replace.*profile"):
        explore.diff(world, "log", "t0", "t1")
    assert len(explore.diff(world, replace(found, key=("a",)), "t0", "t1").cells) == 1
    assert len(explore.at(world, "log", "t1").rows) == 1
    assert len(explore.profile(world, "log", against="t0").rows)


def test_300_columns(world):
    table = arrow_lake.new_table(world, "wide")
    for number in range(2):
        rows = {f"column {c}": [c, c + number * (c == 7)] for c in range(300)}
        arrow_lake.commit(world, table, pa.table({"id": [1, 2], **rows}), number, f"t{number}")
    frame = explore.at(world, table, "t1")
    assert cells(frame) == {(2, "column 7")} and len(frame._repr_html_()) < 200_000
    assert explore.diff(world, table, "t0", "t1").columns["column"].tolist() == ["column 7"]
    profile = explore.profile(world, table, against="t0")
    assert profile.title.endswith("301 columns; 1 differ from t0") and len(profile.rows) == 301


# --- profile


def test_a_profile(world):
    table = arrow_lake.new_table(world, "measures")
    nan, inf = float("nan"), float("inf")
    rows = pa.table(
        {
            "id": range(100),
            "kind": ["a"] * 60 + ["b"] * 20 + [None] * 20,
            "n": [*range(90), None, *[1] * 9],
            "odd": [nan, inf, -inf, *[1.5] * 97],
            "day": [dt.date(2026, 1, 1)] * 50 + [dt.date(2026, 12, 31)] * 50,
            "empty": pa.nulls(100, pa.string()),
        }
    )
    arrow_lake.commit(world, table, rows, 0, "t0")
    later = rows.set_column(1, "kind", pa.array(["a"] * 30 + ["c"] * 70))
    arrow_lake.commit(world, table, later, 1, "t1")
    before = explore.profile(world, table, at="t0").rows.set_index("column")
    assert list(before) == ["type", "null_percent", "distinct", "min", "max"]
    assert before.loc["kind"].tolist() == ["string", 20.0, 2, "a", "b"]
    assert before.loc["n"].tolist()[1:] == [1, 90, "0", "89"]
    assert before.loc["empty", ["null_percent", "distinct"]].tolist() == [100, 0]
    profile = explore.profile(world, table, at="t1", against="t0")
    drifted = profile.changed.set_axis(profile.rows["column"]).loc["kind"]
    assert profile.title == "measures at t1: 100 rows, 6 columns; 1 differ from t0"
    assert drifted[drifted].index.tolist() == ["drift"]
    assert profile.rows.set_index("column")["drift"].tolist() == [0, 0.7, 0, 0, 0, 0]
    assert profile._repr_html_().count('marked"') == 1


def test_the_drift_of_numbers_is_over_intervals(world):
    table = arrow_lake.new_table(world, "amounts")
    for number, factor in enumerate((1, 1.001, 100)):
        rows = {"id": range(1200), "amount": [n * (factor if n % 2 else 1) for n in range(1200)]}
        arrow_lake.commit(world, table, pa.table(rows), number, f"t{number}")
    drifts = [
        explore.profile(world, table, at=at, against="t0").rows["drift"][1] for at in ("t1", "t2")
    ]
    assert drifts[0] < 0.01 and 0.4 < drifts[1] <= 0.5


# --- tables and history


def test_30_tables_within_two_seconds(world, people, monkeypatch):
    for number in range(30):
        table = arrow_lake.new_table(world, f"t{number}", partition=("p",))
        for n in range(4):
            rows = [{"id": i, "p": f"p{i % 9}"} for i in range(20)]
            arrow_lake.commit(world, table, rows, n, f"l{n}")
    begun = time.monotonic()
    found = explore.tables(world)
    assert time.monotonic() - begun < 2
    by_name = found.set_index("table")
    assert len(found) == 31 and by_name.loc["datalake/t7", "rows"] == 20
    row = by_name.loc["datalake/people"]
    assert (row["kind"], row["rows"], row["labels"]) == ("Hudi, Copy-on-Write", 2, "t0, t1, t2")
    assert row["last_commit"] == pd.Timestamp("2026-01-01 12:02", tz="UTC") and row["lag_s"] > 0
    assert row["files"] == 8 and row["bytes"] > 0


def test_tables_of_an_empty_lake_and_of_sources(world, monkeypatch):
    assert len(explore.tables(world)) == 0
    (arrow_lake.local_path(world.lake.tables) / "datalake/new/.hoodie").mkdir(parents=True)
    assert len(explore.tables(world)) == 0, "a table that is being created"
    rows = pd.DataFrame({"name": ["devdb.public.a"], "n": [3], "bytes": [8192]})
    monkeypatch.setattr("workbench.explore.overview.postgres.databases", lambda world: ["devdb"])
    monkeypatch.setattr("workbench.explore.overview.postgres.query", lambda *a, **k: rows)
    arrow_lake.new_table(world, "empty")
    found = explore.tables(world)
    found = found[~found["table"].str.startswith("bikeshare")]
    assert found["table"].tolist() == ["datalake/empty", "postgres: devdb.public.a"]
    assert found["rows"].tolist() == [0, 3] and found["bytes"].tolist() == [0, 8192]
    assert found["last_commit"].isna().all()


def test_a_long_history_is_drawn_in_part(world):
    table = arrow_lake.new_table(world, "long")
    for number in range(30):
        arrow_lake.commit(world, table, [{"id": 1, "n": number}], number)
    history = explore.history(world, table)
    assert len(history.frame) == 30 and len(history.picture.axes[0].patches) == 24


def test_a_history(world, people):
    hudi.label(world, people, "now")
    history = explore.history(world, "people")
    assert history.frame["label"].tolist() == ["t0", "t1", "t2, now"]
    assert history.frame["inserted"].tolist() == [2, 0, 1] and history.frame["readable"].all()
    assert "data:image/png;base64," in history._repr_html_() and "t2, now" in repr(history)
    with pytest.raises(LakeError, match="nothing to draw"):
        explore.history(world, arrow_lake.new_table(world, "empty"))


def test_drift_is_over_all_values_not_only_the_frequent_ones(world):
    table = arrow_lake.new_table(world, "texts")
    for number, prefix in enumerate("ab"):
        rows = {"id": range(3000), "text": [f"{prefix}{n}" for n in range(3000)]}
        rows["half"] = [f"{prefix if n % 2 else ''}{n}" for n in range(3000)]
        arrow_lake.commit(world, table, pa.table(rows), number, f"t{number}")
    drift = explore.profile(world, table, at="t1", against="t0").rows["drift"]
    assert drift.tolist() == [0, 1, 0.5]


def test_a_null_in_a_part_of_the_key_is_a_key(world):
    table = arrow_lake.new_table(world, "pairs", key=("a", "b"))
    rows = [
        {"a": None, "b": 1, "here": 1},
        {"a": 2, "b": None, "here": 1},
        {"a": 3, "b": 3, "here": 1},
    ]
    arrow_lake.commit(world, table, rows, 0, "t0")
    rows = [rows[0], {**rows[1], "here": 2}, {"a": None, "b": 4, "here": 1}]
    arrow_lake.commit(world, table, rows, 1, "t1")
    diff = explore.diff(world, table, "t0", "t1")
    assert diff.title.endswith("1 added, 1 removed, 1 changed")
    assert diff.cells[["column", "before", "after"]].to_numpy().tolist() == [["here", 1, 2]]
    frame = explore.at(world, table, "t1")
    assert frame.changed.to_numpy().sum() == 4, "one cell of a row, and a new row of three"


@pytest.mark.parametrize(
    "where",
    [
        "id / 2 = 3",
        "day_of_week(id) = 7",
        "id % 2 = 1",
        "name LIKE 'a\\_'",
        "CAST(name AS DECIMAL) = 10",
        "lower(name) = 'x'",
    ],
)
def test_duckdb_answers_no_condition_otherwise_than_athena(world, people, where):
    with pytest.raises(AssertionError, match="a Spark job"):
        explore.at(world, people, "t1", where=where)


def test_an_empty_table_is_read_once(world, monkeypatch):
    table, reads = arrow_lake.new_table(world, "emptied"), []
    rows = pa.table({"id": [1], "name": ["Ada"]})
    arrow_lake.commit(world, table, rows, 0, "t0")
    arrow_lake.commit(world, table, rows[:0], 1, "t1")
    read = hudi.read_arrow
    monkeypatch.setattr(hudi, "read_arrow", lambda *a, **k: (reads.append(1), read(*a, **k))[1])
    for _ in range(2):
        assert explore.at(world, table, "t1").title.endswith("0 added, 1 removed, 0 changed")
    assert len(reads) == 2
