"""Athena's SQL on the real Spark: documented functions with the documented values, statements, the
crawler."""

import datetime
import json
import re
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
import pandas
import pyarrow
import pytest
from pyarrow import parquet
from workbench import query
from workbench.base import LakeError, files

pytestmark = pytest.mark.aws

LINES = [
    line.rpartition("  --")[::2]
    for line in Path(__file__)
    .with_name("athena_queries.txt")
    .read_text(encoding="utf-8")
    .splitlines()
    if line and not line.startswith("#")
]


def shown(value):
    """A value as the documentation shows it."""
    if isinstance(value, (list, numpy.ndarray)):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{shown(k)}={shown(v)}" for k, v in value.items()) + "}"
    if value is None or value is pandas.NaT or value != value:
        return "NULL"
    if isinstance(value, (bool, numpy.bool_)):
        return str(bool(value)).lower()
    return (
        value.isoformat(" ", "milliseconds") if isinstance(value, datetime.datetime) else str(value)
    )


def said(rows):
    return " / ".join(
        " | ".join(map(shown, row))
        for row in rows.astype(object).itertuples(index=False, name=None)
    )


def same(got, expected):
    plain = [re.sub(r"(\d)\.0(?!\d)", r"\1", text) for text in (got, expected)]
    return plain[0] == plain[1]


def test_the_documented_functions_have_the_documented_values(spark):
    """Those of one row go in a few statements: Spark takes longer to begin one than to answer
    it."""
    assert len(LINES) >= 100
    single = [
        line for line in LINES if " FROM " not in re.sub(r"\w+\([^()]* FROM [^()]*\)", "", line[0])
    ]
    others = [[line] for line in LINES if line not in single]
    batches = [single[i : i + 12] for i in range(0, len(single), 12)] + others

    def ask(batch):
        try:
            asked = ", ".join(
                [batch[0][0], *(text.removeprefix("SELECT ") for text, _ in batch[1:])]
            )
            if same(
                said(query.sql(spark, asked)),
                " | ".join(expected.removeprefix(" ") for _, expected in batch),
            ):
                return []
        except LakeError as e:
            if len(batch) == 1:
                return [f"{batch[0][0]}\n  {e}"]
        if len(batch) > 1:  # which of them?
            return [found for line in batch for found in ask([line])]
        return [
            f"{batch[0][0]}\n  documented: {batch[0][1]}\n  answered:   {said(query.sql(spark, batch[0][0]))}"
        ]

    with ThreadPoolExecutor(4) as pool:
        wrong = [found for found in pool.map(ask, batches) for found in found]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text, says",
    [
        ("SELECT CAST('x' AS BIGINT)", "CAST_INVALID_INPUT"),
        ("SELECT CAST('1.5' AS INTEGER)", "CAST_INVALID_INPUT"),
        ("SELECT 1 / 0", "DIVIDE_BY_ZERO"),
        ("SELECT ARRAY[1][2]", "INVALID_ARRAY_INDEX"),
        ("SELECT 2147483647 + 1", "ARITHMETIC_OVERFLOW"),
        ("SELECT json_parse('not_json')", "Cannot convert value to JSON"),
        ("SELECT CAST(json_parse('[\"x\"]') AS ARRAY(INTEGER))", "(?i)malformed|cannot parse"),
        ("SELECT date_parse('x', '%Y')", "CANNOT_PARSE_TIMESTAMP"),
    ],
)
def test_what_fails_in_athena_fails(spark, text, says):
    with pytest.raises(LakeError, match=says):
        query.sql(spark, text)
    assert spark.conf.get("spark.sql.ansi.enabled") == "false", (
        "the rules are those of the queries' own session"
    )


NESTED = (
    "ARRAY(ROW(a ARRAY(VARCHAR)))",
    "ARRAY(ARRAY(ARRAY(VARCHAR)))",
    "ROW(a ARRAY(ARRAY(ARRAY(VARCHAR))))",
    "MAP(VARCHAR, ARRAY(ARRAY(VARCHAR)))",
)
NOTHING_IN_IT = """
import sys
from workbench.base import params
from workbench import query
from workbench.spark import session

world = params.load("local")
nested = [f"CAST(NULL AS {kind}) AS c{n}" for n, kind in enumerate(sys.argv[1:])]
for where in ("WHERE 1 = 0", "WHERE 1 = 1"):
    rows = query.sql(world, f"SELECT 1 AS n, {', '.join(nested)} {where}")
    print(len(rows), list(rows.columns), rows.notna().sum().sum(), rows["n"].dtype)
again = session(world).sql("SELECT CAST(NULL AS ARRAY<ARRAY<STRING>>) AS a WHERE 1 = 0")
print(len(again.toPandas()), again.collect())
"""


def test_nested_lists_without_elements_do_not_end_the_process(world):
    """In a process of its own: pyarrow ended it with SIGSEGV."""
    done = subprocess.run(
        [sys.executable, "-c", NOTHING_IN_IT, *NESTED], capture_output=True, text=True, timeout=300
    )
    columns = ["n", *(f"c{n}" for n in range(len(NESTED)))]
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"0 {columns} 0 int32", f"1 {columns} 1 int32", "0 []"]


@pytest.fixture
def place(world, spark):
    name = f"athena_{uuid.uuid4().hex[:8]}"
    query.sql(spark, f"CREATE DATABASE {name}")
    yield name, f"{world.lake.root}/{name}"
    spark.sql(f"DROP DATABASE {name} CASCADE")
    files.remove(f"{world.lake.root}/{name}")


def write(address, rows, twice=False):
    """Parquet files below `country=…`, as a sink with a field partitioner lands them: with the
    column in them, too."""
    for n, (country, some) in enumerate(pandas.DataFrame(rows).groupby("country")):
        buffer = pyarrow.BufferOutputStream()
        kept = some if twice else some.drop(columns="country")
        parquet.write_table(
            pyarrow.Table.from_pandas(kept, preserve_index=False), buffer, coerce_timestamps="us"
        )
        files.write_bytes(
            *files.open_filesystem(f"{address}/country={country}/t+0+{n:010}.gz.parquet"),
            buffer.getvalue().to_pybytes(),
        )


VERSIONS = [
    (100, "1308 Arecibo Way", "US", 1),
    (100, "123 CDC Test Lane", "US", 2),
    (101, "1599 Plock Drive", "MZ", 1),
    (102, "669 Firozabad Loop", "AE", 1),
    (102, "669 Firozabad Loop", "WK", 2),
]
ROWS = [
    {"address_id": i, "address": a, "country": c, "last_update": pandas.Timestamp(2021, 8, d)}
    for i, a, c, d in VERSIONS
]
LATEST = """
    SELECT address_id, last_update, address, country FROM (
      SELECT *, ROW_NUMBER() OVER (PARTITION BY address_id ORDER BY last_update DESC) AS row_num FROM {}) AS x
    WHERE row_num = 1 AND address_id BETWEEN :low AND 101"""


def test_the_crawled_table_has_a_column_twice_and_the_declared_one_does_not(spark, place):
    name, address = place
    write(f"{address}/landed", ROWS, twice=True)
    with pytest.raises(
        LakeError, match="(?s)HIVE_INVALID_METADATA.*duplicate columns.*country.*CREATE EXTERNAL"
    ) as e:
        query.create_table_from_files(spark, f"{address}/landed", f"{name}.pagila_query")
    assert query.sql(spark, f"SHOW TABLES IN {name}").empty
    cure = str(e.value)[str(e.value).index("CREATE EXTERNAL TABLE") :]
    query.sql(spark, cure)
    assert query.sql(spark, f"SELECT 1 FROM {name}.pagila_query").empty, (
        "no partition is told of yet"
    )
    query.sql(spark, f"MSCK REPAIR TABLE {name}.pagila_query")
    partitions = query.sql(spark, f"SHOW PARTITIONS {name}.pagila_query")["partition"].tolist()
    assert partitions == [f"country={c}" for c in ("AE", "MZ", "US", "WK")]
    rows = query.sql(
        spark, f"SELECT address_id, country FROM {name}.pagila_query ORDER BY 1, last_update"
    )
    assert said(rows) == "100 | US / 100 | US / 101 | MZ / 102 | AE / 102 | WK"
    latest = LATEST.format(f"{name}.pagila_query")
    # CTAS: Snappy, one folder for each value of a partition column, at its place
    with pytest.raises(LakeError, match="non-empty|ALREADY_EXISTS"):
        query.sql(
            spark,
            f"CREATE TABLE {name}.silver WITH (external_location = '{address}/landed') AS {latest}",
            low=0,
        )
    query.sql(
        spark,
        f"""
        CREATE TABLE {name}.silver WITH (
          format = 'PARQUET', parquet_compression = 'SNAPPY', partitioned_by = ARRAY['country'],
          external_location = '{address}/silver'
        ) AS {latest}""",
        low=0,
    )
    silver = query.sql(spark, f"SELECT * FROM {name}.silver ORDER BY address_id")
    assert list(silver) == ["address_id", "last_update", "address", "country"]
    assert silver["address"].tolist() == ["123 CDC Test Lane", "1599 Plock Drive"]
    written = sorted(files.list_files(f"{address}/silver"))
    written = [path for path in written if path.endswith(".parquet")]
    assert [path.split("/")[0] for path in written] == ["country=MZ", "country=US"]
    system, root = files.open_filesystem(f"{address}/silver")
    first = (
        parquet.ParquetFile(system.open_input_file(f"{root}/{written[0]}"))
        .metadata.row_group(0)
        .column(0)
    )
    assert first.compression == "SNAPPY"
    query.sql(spark, f"DROP TABLE {name}.silver")
    assert files.list_files(f"{address}/silver"), "the files stay, as in Athena"


FILM = """
    SELECT * FROM (VALUES
      (1, 'ACADEMY DINOSAUR', 2.99, '1629423817389', '10', 'false'),
      (1, 'ACADEMY DINOSAUR', 3.99, '1629427292001', '11', 'false'),
      (2, 'ACE GOLDFINGER', 4.99, '1629427773100', '12', 'false'),
      (2, 'ACE GOLDFINGER', 2.50, '1629427773100', '13', 'false'),
      (5, NULL, 4.99, '1629428449000', '14', 'true'))
    AS t(film_id, title, rental_rate, "__source_ts_ms", "__lsn", "__deleted")"""


def test_the_published_queries_of_log_based_capture(spark):
    """A text timestamp of milliseconds with a 12-hour pattern; the latest row, not deleted, by time
    and position."""
    rows = query.sql(
        spark,
        f"""
        WITH film AS ({FILM})
        SELECT film_id, rental_rate,
          date_format(from_unixtime(CAST("__source_ts_ms" AS bigint) / 1000), '%Y-%m-%d %h:%i:%s') AS timestamp
        FROM film ORDER BY film_id, timestamp, "__lsn" ASC""",
    )
    assert said(rows) == (
        "1 | 2.99 | 2021-08-20 01:43:37 / 1 | 3.99 | 2021-08-20 02:41:32 / 2 | 4.99 | 2021-08-20 02:49:33 / "
        "2 | 2.50 | 2021-08-20 02:49:33 / 5 | 4.99 | 2021-08-20 03:00:49"
    )
    rows = query.sql(
        spark,
        f"""
        WITH film AS ({FILM})
        SELECT film_id, rental_rate FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY film_id ORDER BY CAST("__source_ts_ms" AS bigint) DESC,
                                       CAST("__lsn" AS bigint) DESC) AS row_num FROM film) AS x
        WHERE row_num = 1 AND "__deleted" != 'true' ORDER BY film_id""",
    )
    assert said(rows) == "1 | 3.99 / 2 | 2.50"


def test_a_crawled_table_of_json_lines_and_a_line_that_is_none(spark, place):
    name, address = place
    lines = [{"address_id": i, "last_update": 1487151930000, "tags": {"a": [i]}} for i in (1, 2)]
    files.write_text(
        f"{address}/topics/t/partition=0/t+0+0000000000.json", "\n".join(map(json.dumps, lines))
    )
    made = query.create_table_from_files(spark, f"{address}/topics/t", f"{name}.t")
    assert "`tags` struct<a:array<bigint>>" in made and "JsonSerDe" in made
    rows = query.sql(
        spark,
        f"""
        SELECT address_id, tags.a[1] AS tag, date_format(from_unixtime(last_update / 1000), '%Y-%m-%d %h:%i:%s') AS at,
               last_update / 1000 AS seconds, "partition" FROM {name}.t ORDER BY 1""",
    )
    assert (
        said(rows)
        == "1 | 1 | 2017-02-15 09:45:30 | 1487151930 | 0 / 2 | 2 | 2017-02-15 09:45:30 | 1487151930 | 0"
    )
    files.write_text(f"{address}/topics/t/partition=0/t+0+0000000002.json", "{not json")
    with pytest.raises(LakeError, match="error while reading file"):
        query.sql(spark, f"SELECT sum(address_id) FROM {name}.t")


def test_a_crawler_finds_nothing_and_files_of_two_kinds(spark, place):
    name, address = place
    with pytest.raises(LakeError, match="0 files"):
        query.create_table_from_files(spark, f"{address}/absent", f"{name}.t")
    files.write_text(f"{address}/mixed/a.json", "{}")
    files.write_text(f"{address}/mixed/b.parquet", "x")
    with pytest.raises(LakeError, match="cannot create one table"):
        query.create_table_from_files(spark, f"{address}/mixed", f"{name}.t")
