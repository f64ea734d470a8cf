"""Exploring tables that Debezium and Spark have filled, with seven labels: every difference equals the
source's change log, whichever engine reads it."""

import itertools
import time
from random import Random
from types import SimpleNamespace

import avro_help
import pandas as pd
import pytest
from captured import captured
from lake_help import new_table
from workbench import explore, flow, hudi
from workbench.base import LakeError
from workbench.explore import views
from workbench.source import postgres
from workbench.topic import registry, topics
from worlds import with_settings

NAME, ROWS, CHANGES, SEED = "explore_test", 300, 40, 11
TOPIC = f"{NAME}.public.artists"
LABELS = [f"t{n}" for n in range(7)]
PAIRS = list(itertools.combinations(LABELS, 2))
COLUMNS = ["artist_id", "name", "nationality", "birth_year"]
SCRIPT = f"""
    CREATE TABLE artists (artist_id int PRIMARY KEY, name text, nationality text, birth_year int);
    INSERT INTO artists SELECT n, 'Artist ' || n, CASE n % 2 WHEN 0 THEN 'German' ELSE 'American' END, 1900 + n % 90
      FROM generate_series(1, {ROWS}) n"""
NATIONS = ("American", "German", "Spanish/Basque", "Français", None)
KEPT = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


def statements(random):
    """Yield random statements, each with its number of messages. Some change nothing in the end."""
    for _ in range(CHANGES):
        key = random.randrange(1, ROWS + 20)
        name, nation = random.choice(["Gerhard", "O'Neill ☃", "", None]), random.choice(NATIONS)
        yield random.choice(
            [
                ("UPDATE artists SET name = %s WHERE artist_id = %s", [name, key], 1),
                ("UPDATE artists SET nationality = %s WHERE artist_id = %s", [nation, key], 1),
                ("UPDATE artists SET birth_year = birth_year WHERE artist_id = %s", [key], 1),
                ("DELETE FROM artists WHERE artist_id = %s", [key], 2),
                ("INSERT INTO artists VALUES (%s, %s, %s, 1900) ON CONFLICT DO NOTHING", [key, name, nation], 1),
            ]
        )  # fmt: skip


@pytest.fixture(scope="module")
def past(world, spark):
    with avro_help.museum(world, NAME, SCRIPT, tables=["artists"]) as lab:
        tables = [
            new_table(
                lab,
                key=("artist_id",),
                partition=("nationality",),
                index="GLOBAL_SIMPLE",
                type=kind,
                deletes=deletes,
                extra={**KEPT, "hoodie.compact.inline": "false"},
            )
            for kind, deletes in (("cow", "hard"), ("mor", "soft"))
        ]
        random, messages, ends = Random(SEED), ROWS, {}

        def go(label):
            nonlocal messages
            with postgres.connect(lab) as source:
                for text, values, count in statements(random) if label != "t0" else ():
                    messages += source.execute(text, values).rowcount * count
            topics.wait_for_messages(lab, TOPIC, messages, connector=NAME)
            for table in tables:
                hudi.ingest(spark, lab, hudi.Topic(TOPIC, format="avro"), table)
                hudi.label(lab, table, label)
            ends[label] = messages

        for label in LABELS:
            go(label)
        yield SimpleNamespace(lab=lab, tables=tables, ends=ends, go=go)
        for table in tables:
            hudi.drop(spark, lab, table)


def replay(past):
    """Return {label: {key: row}}, from nothing but the messages of the topic."""
    rows, contents = {}, {}
    values = topics.read(past.lab, TOPIC)["value"]
    for number, value in enumerate(values, 1):
        record = registry.inspect_message(past.lab, value)["record"] if value is not None else {}
        if record.get("__deleted") == "true":
            del rows[record["artist_id"]]
        elif record:
            rows[record["artist_id"]] = {name: record[name] for name in COLUMNS}
        for label, end in past.ends.items():
            if end == number:
                contents[label] = dict(rows)
    return contents


def plain(frame, *columns):
    """Return the rows of a frame as a set, None in place of each missing value."""
    rows = frame[[*columns]].astype(object)
    return set(map(tuple, rows.where(rows.notna(), None).to_numpy()))


def check_difference(found, before, after):
    assert plain(found.added, *COLUMNS) == {
        tuple(after[key].values()) for key in after.keys() - before.keys()
    }
    assert plain(found.removed, *COLUMNS) == {
        tuple(before[key].values()) for key in before.keys() - after.keys()
    }
    expected = {
        (key, column, before[key][column], after[key][column])
        for key in before.keys() & after.keys()
        for column in COLUMNS
        if before[key][column] != after[key][column]
    }
    assert plain(found.cells, "artist_id", "column", "before", "after") == expected
    assert len(found.cells) == len(expected)
    moved = {change for change in expected if change[1] == "nationality"}
    assert plain(found.moved, "artist_id", "column", "before", "after") == moved
    return expected


def no_spark(world):
    raise AssertionError("a Spark job")


def test_every_difference_is_that_of_the_change_log(past, monkeypatch):
    monkeypatch.setattr(views, "session", no_spark)
    contents, seen = replay(past), set()
    assert [*contents] == LABELS and len(PAIRS) == 21
    for table, (one, other) in itertools.product(past.tables, PAIRS):
        found = explore.diff(past.lab, table, one, other)
        seen |= check_difference(found, contents[one], contents[other])
    assert {change[1] for change in seen} == {"name", "nationality", "birth_year"}


def test_every_frame_has_the_rows_and_the_changes_since_the_one_before(past, monkeypatch):
    monkeypatch.setattr(views, "session", no_spark)
    contents = replay(past)
    for table, (number, label) in itertools.product(past.tables, enumerate(LABELS)):
        frame = explore.at(past.lab, table, label)
        now, then = contents[label], contents[LABELS[max(0, number - 1)]]
        assert plain(frame.rows, *COLUMNS) == {tuple(row.values()) for row in now.values()}
        marked = {
            (frame.rows.loc[row, "artist_id"], column)
            for row, column in itertools.product(frame.rows.index, COLUMNS)
            if frame.changed.loc[row, column]
        }
        assert marked == {
            (key, column)
            for key, row in now.items()
            for column in COLUMNS
            if key not in then or row[column] != then[key][column]
        }


def test_spark_gives_the_same_results(past, monkeypatch):
    def results(table):
        where = "nationality = 'German' OR name LIKE 'O%'"
        frame = explore.at(past.lab, table, "t4", where=where)
        if table is not past.tables[0]:  # Spark takes a second for each column
            return frame.title, plain(frame.rows, *COLUMNS), frame.changed.to_numpy().tolist()
        profile = explore.profile(past.lab, table, at="t6", against="t0")
        return (
            frame.title,
            plain(frame.rows, *COLUMNS),
            frame.changed.to_numpy().tolist(),
            profile.title,
            plain(profile.rows.drop(columns="type"), *profile.rows.columns.drop("type")),
            profile.changed.to_numpy().tolist(),
        )

    expected = [results(table) for table in past.tables]
    contents = replay(past)
    monkeypatch.setattr(views, "MAX_ROWS", 0)
    used = []
    session = views.session
    monkeypatch.setattr(views, "session", lambda world: used.append(1) or session(world))
    assert [results(table) for table in past.tables] == expected
    for table in past.tables:
        found = explore.diff(past.lab, table, "t0", "t6")
        check_difference(found, contents["t0"], contents["t6"])
    assert len(used) == 5


@pytest.mark.parametrize(
    "where, is_chosen",
    [
        ("artist_id / 2 = 3", lambda key: key // 2 == 3),
        (
            "day_of_week(date_add('day', artist_id, DATE '2026-01-04')) = 7",
            lambda key: key % 7 == 0,
        ),
    ],
)
def test_a_condition_has_the_result_that_it_has_in_athena(past, where, is_chosen):
    expected = {key for key in replay(past)["t4"] if is_chosen(key)}
    frame = explore.at(past.lab, past.tables[1], "t4", where=where)
    assert set(frame.rows["artist_id"]) == expected and expected
    difference = explore.diff(past.lab, past.tables[1], "t0", "t4", where=where)
    assert all(map(is_chosen, difference.cells["artist_id"]))
    with pytest.raises(LakeError, match="(?s)cannot be read.*nosuch"):
        explore.at(past.lab, past.tables[1], "t4", where=f"{where} AND nosuch = 1")


def test_a_table_with_a_pending_compaction_is_read_by_spark(past, spark):
    mor = past.tables[1]
    hudi.compact(spark, mor, "schedule")
    past.go("t7")
    found = explore.diff(past.lab, mor, "t5", "t7")
    contents = replay(past)
    assert check_difference(found, contents["t5"], contents["t7"])


def test_the_lists_of_tables_and_of_instants(past, spark, monkeypatch):
    hudi.compact(spark, past.tables[1])  # writes rows anew, and inserts none
    monkeypatch.setattr(views, "session", no_spark)
    found = explore.tables(past.lab).set_index("table")
    source = found.loc[f"postgres: {NAME}.public.artists"]
    assert source["kind"] == "postgres" and source["bytes"] > 0
    for table in past.tables:
        row = found.loc[f"{table.database}/{table.name}"]
        current = len(hudi.read(spark, table).select("artist_id").collect())
        assert row["rows"] == current, "the statistics of the commits"
        assert row["labels"].startswith("t0, t1, t2, t3") and row["lag_s"] >= 0
        history = explore.history(past.lab, table).frame
        assert set(LABELS) <= set(history["label"]) and history["readable"].all()


def test_the_messages_that_a_table_has_not_ingested(past):
    def unread(world):
        found = explore.tables(world).set_index("table")["unread"]
        return [found[f"{table.database}/{table.name}"] for table in past.tables]

    assert unread(past.lab) == [0, 0]
    end = topics.offset_span(past.lab, TOPIC) + 2
    with postgres.connect(past.lab) as source:
        source.execute("INSERT INTO artists VALUES (1001, 'a'), (1002, 'b')")
    topics.wait_for_messages(past.lab, TOPIC, end, connector=NAME)
    assert unread(past.lab) == [2, 2]
    begun = time.monotonic()
    away = with_settings(past.lab, kafka={"bootstrap": "127.0.0.1:1"})
    assert all(pd.isna(count) for count in unread(away)) and time.monotonic() - begun < 3


def test_the_history_of_a_row(past, monkeypatch):
    artists = captured(TOPIC, past.tables, "artist_id", "avro")
    monkeypatch.setattr(flow.registry, "_declared", [lambda world: {"own": artists}])
    history = explore.row(past.lab, past.tables[0], 7)
    assert isinstance(history.changes, pd.DataFrame) and history.changes["op"].iloc[0] == "snapshot"
