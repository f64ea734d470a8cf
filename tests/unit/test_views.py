"""A record as each view shows it: what is asked."""

import pandas as pd
import pytest
import sqlglot
from sqlglot import exp
from workbench import hudi, query
from workbench.base import LakeError, params
from workbench.query import dialect, records
from workbench.tracks import museum


def test_a_hostile_name_stays_a_name(monkeypatch):
    """It is asked for as the one column that it names, and nothing of it becomes SQL."""
    asked = []

    def answer(spark, text, **values):
        translated = dialect.to_spark_sql(dialect.parse_statement(text)[0])
        asked.append((sqlglot.parse_one(text, read="athena"), translated, values))
        names = ["seen_in", hostile, "__op", "_hoodie_file_name", "_hoodie_commit_time"]
        return pd.DataFrame([["x", 1, "u", "a.parquet", "1"]], columns=names)

    monkeypatch.setattr(records, "sql", answer)
    hostile = 'name" FROM "moma_cow"."artworks" UNION ALL SELECT "x`, 1 -- \'\\'
    found = query.record(None, museum.flow.tables(params.load("local"), "artists"), 7, hostile)
    assert list(found.columns) == [
        "seen_in",
        hostile,
        "__op",
        "file",
        "_hoodie_file_name",
        "_hoodie_commit_time",
    ]
    own, tables = {"__op", "_hoodie_file_name", "_hoodie_commit_time", "artist_id"}, set()
    for tree, translated, values in asked:
        for read in (tree, sqlglot.parse_one(translated, read="spark")):
            assert {c.name for c in read.find_all(exp.Column)} == {hostile, *own}
            (at,) = read.find_all(exp.Table)
            tables.add((at.db, at.name))
        assert values == {"key0": 7}
    assert tables == {
        ("moma_cow", "artists"),
        ("moma_mor", "artists_ro"),
        ("moma_mor", "artists_rt"),
    }


def test_a_key_of_several_columns_is_asked_for_as_a_whole(monkeypatch):
    asked = []

    def answer(spark, text, **values):
        asked.append((text, values))
        return pd.DataFrame(
            [], columns=["__op", "_hoodie_file_name", "_hoodie_commit_time", "seen_in"]
        )

    monkeypatch.setattr(records, "sql", answer)
    rides = hudi.Table("rides", "/rides", ("id", "nr"), "__lsn")
    records.record(None, [rides], ("a", 2))
    assert asked[0][0].endswith('WHERE "id" = :key0 AND "nr" = :key1') and asked[0][1] == {
        "key0": "a",
        "key1": 2,
    }
    with pytest.raises(LakeError, match="'a'.* is no key of table rides\\n.*values of id, nr"):
        records.record(None, [rides], "a")
