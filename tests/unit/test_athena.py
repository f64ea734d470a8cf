"""Queries asked of Athena: what is sent, what comes back, and how a query that ended otherwise is
told."""

import datetime as dt
import decimal
import logging

import numpy as np
import on_aws
import pandas as pd
import pytest
import sqlglot
from sqlglot import exp
from workbench import query
from workbench.base import wait
from workbench.base.errors import LakeError, StackError
from workbench.query import athena
from workbench.spark import sessions

pytestmark = pytest.mark.aws

ID = "0a1b2c3d-0000-0000-0000-000000000001"
WORLD = on_aws.world()


def status(state="SUCCEEDED", reason="", scanned=1_234_567):
    said = {"State": state, **({"StateChangeReason": reason} if reason else {})}
    return {
        "QueryExecution": {
            "QueryExecutionId": ID,
            "Query": "SELECT",
            "Status": said,
            "StatementType": "DML",
            "ResultConfiguration": {"OutputLocation": f"s3://workbench-lake/athena/{ID}.csv"},
            "Statistics": {"DataScannedInBytes": scanned, "TotalExecutionTimeInMillis": 640},
        }
    }


def results(columns, *rows, labels=True):
    """The answer of GetQueryResults; columns: (name, type)."""
    rows = [[name for name, _ in columns], *rows] if labels else rows
    return {
        "ResultSet": {
            "Rows": [
                {"Data": [{} if value is None else {"VarCharValue": value} for value in row]}
                for row in rows
            ],
            "ResultSetMetadata": {
                "ColumnInfo": [
                    {
                        "CatalogName": "hive",
                        "SchemaName": "",
                        "TableName": "",
                        "Name": name,
                        "Label": name,
                        "Type": kind,
                        "Precision": 0,
                        "Scale": 0,
                        "Nullable": "UNKNOWN",
                        "CaseSensitive": False,
                    }
                    for name, kind in columns
                ]
            },
        }
    }


def asked(stub, text, *ends):
    """The query is sent so, and answered: each end is (operation, answer)."""
    stub.add_response(
        "start_query_execution",
        {"QueryExecutionId": ID},
        {
            "QueryString": text,
            "WorkGroup": "workbench",
            "QueryExecutionContext": {"Database": "default", "Catalog": "awsdatacatalog"},
        },
    )
    for operation, answer in ends:
        stub.add_response(operation, answer)


@pytest.fixture(autouse=True)
def fresh_logger():
    """pytest attaches its handler to loggers that do not propagate."""
    yield
    logging.getLogger("pyathena").propagate = True


def test_a_query_its_values_its_rows_and_what_it_scanned(capsys):
    with on_aws.stubbed_client("athena") as stub:
        asked(
            stub,
            "SELECT a, b FROM t WHERE a = 11077 AND b <> ':a' AND a >= 11077 -- :no",
            ("get_query_execution", status("RUNNING")),
            ("get_query_execution", status()),
            (
                "get_query_results",
                results([("a", "integer"), ("b", "varchar")], ["1", "x"], ["2", None]),
            ),
        )
        rows = query.sql(
            WORLD, "SELECT a, b FROM t WHERE a = :a AND b <> ':a' AND a >= :a -- :no", a=11077
        )
    pd.testing.assert_frame_equal(
        rows, pd.DataFrame({"a": np.array([1, 2], "int32"), "b": ["x", None]})
    )
    assert rows.attrs.pop("statement").startswith("SELECT a, b FROM t WHERE a = 11077")
    assert rows.attrs == {"bytes_scanned": 1_234_567}
    assert capsys.readouterr().out == "scanned 1.2 MB, 0.6 s\n"


@pytest.mark.parametrize(
    "kind, text, value, dtype",
    [
        ("bigint", "9007199254740993", 9007199254740993, "int64"),
        ("smallint", "7", 7, "int16"),
        ("tinyint", "7", 7, "int8"),
        ("real", "0.5", 0.5, "float32"),
        ("double", "Infinity", float("inf"), "float64"),
        ("boolean", "true", True, "bool"),
        ("decimal", "10.50", decimal.Decimal("10.50"), "object"),
        ("date", "1867-01-02", dt.date(1867, 1, 2), "object"),
        (
            "timestamp",
            "2026-11-22 19:17:04.939123",
            pd.Timestamp("2026-11-22 19:17:04.939123"),
            "datetime64[ns]",
        ),
        (
            "timestamp with time zone",
            "2026-11-22 19:17:04.939 Australia/Sydney",
            pd.Timestamp("2026-11-22 08:17:04.939"),
            "datetime64[ns]",
        ),
        ("timestamp", "0001-01-01 00:00:00.000", dt.datetime(1, 1, 1), "object"),
        ("varbinary", "68 69", b"hi", "object"),
        ("varchar", "", "", "object"),
        ("varchar", "[1, 2]", "[1, 2]", "object"),
        ("array", "[a, b=1, 2]", "[a, b=1, 2]", "object"),
        ("row", "{a=1, b=x}", "{a=1, b=x}", "object"),
        ("map", "{k=v}", "{k=v}", "object"),
        ("json", '{"a": 1}', '{"a": 1}', "object"),
        ("time", "01:02:03", "01:02:03", "object"),
    ],
)
def test_types_are_those_that_spark_gives(kind, text, value, dtype):
    with on_aws.stubbed_client("athena") as stub:
        asked(
            stub,
            "SELECT a FROM t",
            ("get_query_execution", status()),
            ("get_query_results", results([("a", kind)], [text])),
        )
        rows = query.sql(WORLD, "SELECT a FROM t")
        asked(
            stub,
            "SELECT b FROM t",
            ("get_query_execution", status()),
            ("get_query_results", results([("a", kind)], [text], [None])),
        )
        nulls = query.sql(WORLD, "SELECT b FROM t")
    assert rows["a"].tolist() == [value] and str(rows["a"].dtype) == dtype
    assert nulls["a"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    "value, literal",
    [
        ("it's", "'it''s'"),
        ("'; DROP TABLE t --", "'''; DROP TABLE t --'"),
        ("\\", "'\\'"),
        ("", "''"),
        (":b", "':b'"),
        (7, "7"),
        (np.int64(-7), "-7"),
        (True, "true"),
        (None, "NULL"),
        (decimal.Decimal("1E+2"), "DECIMAL '100'"),
        (decimal.Decimal("1.50"), "DECIMAL '1.50'"),
        (1.5, "DOUBLE '1.5'"),
        (np.float64(1e300), "DOUBLE '1e+300'"),
        (dt.date(2026, 1, 2), "DATE '2026-01-02'"),
        (pd.Timestamp("2026-01-02 03:04:05.000006"), "TIMESTAMP '2026-01-02 03:04:05.000006'"),
        (pd.Timestamp("2026-01-02 03:04:05+10:00"), "TIMESTAMP '2026-01-01 17:04:05.000000 UTC'"),
    ],
)
def test_values_are_literals(value, literal):
    text = athena._bind("SELECT :a, x FROM t WHERE a = :a AND b = :b", {"a": value, "b": "it"})
    assert text == f"SELECT {literal}, x FROM t WHERE a = {literal} AND b = 'it'"
    read = sqlglot.parse_one(text, read="athena")
    assert len(read.expressions) == 2 and read.find(exp.EQ).expression == read.expressions[0], (
        "it stays one value"
    )


def test_values_that_are_refused():
    for text, values in (
        ("SELECT :a", {}),
        ("SELECT 1", {"a": 1}),
        ("SELECT :a", {"b": 1}),
        ("SELECT ':a'", {"a": 1}),
        ("DROP TABLE t", {"a": 1}),
    ):
        with pytest.raises(LakeError, match="(?s)has placeholders for.*values: "):
            query.sql(WORLD, text, **values)
    for value in (["a"], b"x", float("nan"), object()):
        with pytest.raises(LakeError, match="value a is of type"):
            query.sql(WORLD, "SELECT :a", a=value)
    with pytest.raises(LakeError, match="not Athena SQL"):
        query.sql(WORLD, "SELECT 'x")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE EXTERNAL TABLE a.b (id int, c struct<d:int>) STORED AS PARQUET LOCATION 's3://b/it\\'s/'",
        "MSCK REPAIR TABLE a.b",
        "SELECT json_object('k' : a) FROM t",
        "-- it\nDROP TABLE IF EXISTS `a`.`b`",
        "ALTER TABLE t ADD COLUMNS (s struct<a:int>)",
        "CREATE TABLE a.b WITH (format = 'PARQUET') AS SELECT 100 % 7 AS a",
        "UNLOAD (SELECT 1) TO 's3://b/' WITH (format = 'JSON')",
    ],
)
def test_statements_go_as_they_are(text):
    with on_aws.stubbed_client("athena") as stub:
        asked(
            stub,
            text,
            ("get_query_execution", status(scanned=0)),
            ("get_query_results", results([])),
        )
        assert query.sql(WORLD, text).empty


def test_describe_is_one_text_apart_by_tabs():
    columns = [("col_name", "string"), ("data_type", "string"), ("comment", "string")]
    with on_aws.stubbed_client("athena") as stub:
        asked(
            stub,
            "DESCRIBE a.b",
            ("get_query_execution", status()),
            (
                "get_query_results",
                results(
                    columns,
                    *[
                        [line]
                        for line in (
                            "order_id            \tint         \t   ",
                            "\t \t ",
                            "# Partition Information\t\t",
                            "",
                            "year",
                        )
                    ],
                    labels=False,
                ),
            ),
        )
        rows = query.sql(WORLD, "DESCRIBE a.b")
    assert rows.values.tolist() == [
        ["order_id", "int", ""],
        ["# Partition Information", "", ""],
        ["year", "", ""],
    ]


@pytest.mark.parametrize(
    "state, reason, says",
    [
        (
            "CANCELLED",
            "Query cancelled! : Bytes scanned limit was exceeded",
            "canceled: it would scan more than the limit of workgroup workbench.*SELECT a FROM t.*2-lake.yaml",
        ),
        ("CANCELLED", "Query cancelled by user", "a user canceled the query"),
        ("CANCELLED", "", "a user canceled the query"),
        (
            "FAILED",
            "TABLE_NOT_FOUND: line 1:15: Table 'awsdatacatalog.default.t' does not exist",
            "the query failed: TABLE_NOT_FOUND.*hudi.register",
        ),
    ],
)
def test_a_query_that_ends_otherwise(state, reason, says, capsys):
    with on_aws.stubbed_client("athena") as stub:
        asked(stub, "SELECT a FROM t", *[("get_query_execution", status(state, reason))] * 2)
        with pytest.raises(LakeError, match=f"(?s){says}"):
            query.sql(WORLD, "SELECT a FROM t")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "code, message, error, says",
    [
        (
            "AccessDeniedException",
            "User: arn:a is not authorized to perform: athena:StartQueryExecution on resource: arn:b",
            StackError,
            "athena:StartQueryExecution is not allowed on arn:b",
        ),
        (
            "TooManyRequestsException",
            "Rate exceeded",
            StackError,
            "throttled all 6 attempts",
        ),
        ("ExpiredTokenException", "expired", StackError, "credentials have expired"),
        (
            "InvalidRequestException",
            "line 1:1: mismatched input 'SELEC'",
            LakeError,
            "the query failed.*mismatched",
        ),
    ],
)
def test_what_athena_refuses(code, message, error, says, caplog, monkeypatch):
    monkeypatch.setattr(wait.time, "sleep", lambda seconds: None)
    with on_aws.stubbed_client("athena") as stub:
        stub.add_client_error("start_query_execution", code, message)
        with pytest.raises(error, match=f"(?s){says}"):
            query.sql(WORLD, "SELECT 1")
    assert caplog.text == "", "what is raised is not logged beside it"


def test_a_handler_of_the_user_stays(monkeypatch):
    log, seen = logging.getLogger("pyathena"), []
    kept = logging.StreamHandler()
    monkeypatch.setattr(kept, "emit", seen.append)
    monkeypatch.setattr(log, "handlers", [kept])
    with on_aws.stubbed_client("athena") as stub:
        stub.add_client_error("start_query_execution", "ExpiredTokenException", "expired")
        with pytest.raises(StackError):
            query.sql(WORLD, "SELECT 1")
    assert log.handlers == [kept] and seen


def test_a_session_of_world_aws_asks_athena_and_one_of_another_does_not(monkeypatch):
    class Session:
        pass

    ours, theirs = Session(), Session()
    sessions._worlds[ours] = WORLD
    monkeypatch.setattr(athena.Athena, "sql", lambda *given: given)
    monkeypatch.setattr(query.spark_sql.SparkSql, "sql", lambda self, *_: ("spark", self.target))
    asked = query.sql(ours, "SELECT :world", world=1)
    assert asked == (athena.Athena(WORLD), "SELECT :world", {"world": 1})
    assert query.sql(theirs, "SELECT 1") == ("spark", theirs)
