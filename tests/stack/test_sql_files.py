"""SQL reaches the tables of the lake, and nothing else: no file, no variable of the server."""

from decimal import Decimal

import pytest
from test_athena import said, same
from workbench import query
from workbench.base import LakeError, local_path
from workbench.spark import session


@pytest.fixture
def secret(tmp_path):
    """A file outside the lake."""
    path = tmp_path / "secret.csv"
    path.write_text("password\nhunter2\n", encoding="utf-8")
    return path


def refused(spark, text, **values):
    """The error of a statement; the test fails where the statement runs."""
    with pytest.raises(LakeError) as e:
        query.sql(spark, text, **values)
    return str(e.value)


def test_files_outside_the_lake_are_no_tables(world, spark, secret):
    folder = secret.parent
    for kind in ("csv", "text", "json", "parquet", "binaryFile", "orc"):
        for name in (secret, f"file://{secret}"):
            assert "hunter2" not in refused(spark, f'SELECT * FROM "{kind}"."{name}"')
    assert "hunter2" not in refused(spark, f"DESCRIBE QUERY SELECT * FROM csv.`{secret}`")
    columns = "password string"
    for address in (
        folder,
        f"file://{folder}",
        f"{world.lake.root}/../../..{folder}",
        "s3://bucket/x",
    ):
        create = f"CREATE EXTERNAL TABLE leak ({columns}) STORED AS PARQUET LOCATION '{address}'"
        assert "outside the lake" in refused(spark, create)
        assert "outside the lake" in refused(
            spark, f"CREATE TABLE leak WITH (external_location = '{address}/out') AS SELECT 1 AS a"
        )
    assert [path.name for path in folder.iterdir()] == [secret.name]


def test_a_database_cannot_remove_a_folder_that_is_not_its_own(world, spark, secret):
    for text in (
        f"CREATE DATABASE evil LOCATION '{secret.parent}'",
        f"create schema if not exists evil comment 'x' location '{secret.parent}'",
        f"CREATE DATABASE evil LOCATION '{world.lake.root}'",
    ):
        assert "LOCATION is not supported" in refused(spark, text)
    escaped = rf"CREATE DATABASE evil COMMENT 'it\'s' LOCATION '{secret.parent}'"
    assert "this form of the statement" in refused(spark, escaped)
    query.sql(spark, "CREATE DATABASE fine COMMENT 'has no LOCATION'")
    query.sql(spark, "DROP DATABASE fine CASCADE")
    folder = secret.parent / "other"
    folder.mkdir()
    (folder / "kept.txt").write_text("kept", encoding="utf-8")
    spark.sql(f"CREATE DATABASE evil LOCATION 'file://{folder}'")
    try:
        for text in (
            "DROP DATABASE evil CASCADE",
            'DROP SCHEMA IF EXISTS "evil"',
            "CREATE TABLE evil.t AS SELECT 1 AS a",
        ):
            assert "database evil lies in" in refused(spark, text)
        for text in ("DROP SCHEMA\n--x\nevil CASCADE", "DROP DATABASE spark_catalog.evil CASCADE"):
            assert "this form of the statement" in refused(spark, text)
        assert [path.name for path in folder.iterdir()] == ["kept.txt"]
        assert (folder / "kept.txt").exists()
    finally:
        spark.sql("DROP DATABASE evil CASCADE")  # Spark's own dialect does
    assert secret.exists() and local_path(world.lake.root).exists()


@pytest.mark.parametrize(
    "text", ["${env:HOME}", "${system:user.home}", "${x}", "${spark:spark.master}"]
)
def test_a_text_is_not_replaced(world, spark, text):
    """In the translated dialect, in a session of Spark's own dialect, and in one that is new."""
    assert query.sql(spark, f"SELECT '{text}' AS x")["x"].tolist() == [text]
    for one in (spark, session(world)):
        assert one.sql(f"SELECT '{text}' AS x").toPandas()["x"].tolist() == [text]
        assert one.range(1).selectExpr(f"'{text}' AS x").toPandas()["x"].tolist() == [text]


def test_values_are_bound_as_they_are(spark):
    values = [
        ("it's", "it's"),
        (None, "NULL"),
        (Decimal("9.99"), "9.99"),
        (2**31, "2147483648"),
    ]
    for value, expected in values:
        assert same(said(query.sql(spark, "SELECT :x AS x", x=value)), expected)
