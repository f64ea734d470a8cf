"""A record as each view shows it: what is asked."""

import pandas as pd
import sqlglot
from sqlglot import exp
from workbench.base import params
from workbench.query import dialect
from workbench.tracks import museum


def test_a_hostile_name_stays_a_name(monkeypatch):
    """It is asked for as the one column that it names, and nothing of it becomes SQL."""
    hostile = 'name" FROM "moma_cow"."artworks" UNION ALL SELECT "x`, 1 -- \'\\'
    asked = []

    def answer(spark, text, **values):
        translated = dialect.to_spark_sql(dialect.parse_statement(text)[0])
        asked.append((sqlglot.parse_one(translated, read="spark"), values))
        names = ["seen_in", hostile, "__op", "_hoodie_file_name", "_hoodie_commit_time"]
        return pd.DataFrame([["x", 1, "u", "a.parquet", "1"]], columns=names)

    monkeypatch.setattr(museum.query, "sql", answer)
    found = museum.record(None, museum.flow.tables(params.load("local"), "artists"), 7, hostile)
    technical = ["__op", "file", "_hoodie_file_name", "_hoodie_commit_time"]
    assert list(found.columns) == ["seen_in", hostile, *technical]
    ((tree, values),) = asked
    assert values == {"key": 7}
    assert {column.name for column in tree.find_all(exp.Column)} == {
        hostile,
        "artist_id",
        *technical,
    } - {"file"}
    assert {(table.db, table.name) for table in tree.find_all(exp.Table)} == {
        ("moma_cow", "artists"),
        ("moma_mor", "artists_ro"),
        ("moma_mor", "artists_rt"),
    }
