"""Athena's dialect becomes Spark's, or an error."""

import gc
from decimal import Decimal
from types import SimpleNamespace

import on_aws
import pandas
import pytest
from pyspark.sql import types
from sqlglot import exp
from workbench import query
from workbench.base import params, paths
from workbench.base.errors import LakeError, StackError
from workbench.query import athena_functions, athena_types, crawl, dialect, spark_sql
from workbench.spark import is_session_lost, java_stacktraces, unreachable_reason
from workbench.spark import sessions as spark_module

KEY_SQL = (
    "CASE WHEN NOT MAP_CONTAINS_KEY({0}, '{1}') THEN RAISE_ERROR('workbench: the key is not present in the map') "
    "ELSE ELEMENT_AT({0}, '{1}') END"
)
COLUMNS = {
    "n": types.IntegerType(),
    "d": types.DecimalType(6, 2),
    "f": types.DoubleType(),
    "day": types.DateType(),
    "at": types.TimestampType(),
    "zoned": types.TimestampNTZType(),
    "grid": types.ArrayType(types.ArrayType(types.IntegerType())),
    "m": types.MapType(types.StringType(), types.DoubleType()),
    "st": types.StructType(
        [
            types.StructField("P", types.IntegerType()),
            types.StructField("q", types.DoubleType()),
        ]
    ),
    "odd": types.StructType([types.StructField("p q: (,", types.IntegerType())]),
    "items": types.ArrayType(
        types.StructType(
            [
                types.StructField("q", types.IntegerType()),
                types.StructField("Price", types.DecimalType(6, 2)),
            ]
        )
    ),
}


def translated(text, **values):
    """The Spark SQL of a query; table db.typed has the columns of COLUMNS."""
    schema = dialect.new_schema()
    columns = types.StructType([types.StructField(*item) for item in COLUMNS.items()])
    table = exp.table_("typed", "db", "spark_catalog")
    schema.add_table(table, athena_types.column_types(columns))
    return dialect.to_spark_sql(dialect.parse_statement(text)[0], schema, values)


@pytest.mark.parametrize(
    "athena, spark",
    [
        (
            "SELECT CAST(json_parse(x) AS ARRAY(MAP(VARCHAR, VARCHAR))) AS a FROM t",
            "SELECT FROM_JSON(IF((x) IS NULL, NULL, COALESCE(GET_JSON_OBJECT(CONCAT('[', x, ']'), '$[*]'), "
            "RAISE_ERROR(CONCAT('Cannot convert value to JSON: ', x)))), 'ARRAY<MAP<STRING, STRING>>', "
            "MAP('mode', 'FAILFAST')) AS a FROM t",
        ),
        (
            "SELECT i FROM t CROSS JOIN UNNEST(a) AS u(i)",
            "SELECT i FROM t CROSS JOIN LATERAL EXPLODE(a) AS u(i)",
        ),
        (
            "SELECT i FROM t LEFT JOIN UNNEST(a) AS u(i) ON TRUE JOIN s ON s.i = u.i",
            "SELECT i FROM t LEFT JOIN LATERAL EXPLODE(a) AS u(i) ON TRUE JOIN s ON s.i = u.i",
        ),
        (
            "SELECT CAST(x['d'] AS DOUBLE) AS d FROM t",
            f"SELECT CAST({KEY_SQL.format('x', 'd')} AS DOUBLE) AS d FROM t",
        ),
        (
            "SELECT date_add('MONTH', d, a) AS d FROM t",
            "SELECT ((a) + (d) * INTERVAL '1' MONTH) AS d FROM t",
        ),
        ("SELECT random() AS r, rand() AS s", "SELECT RAND() AS r, RAND() AS s"),
        (
            "SELECT date_add('day', d, date '1970-01-01') AS d FROM t",
            "SELECT ((CAST('1970-01-01' AS DATE)) + CAST((d) * INTERVAL '1' DAY AS INTERVAL DAY)) AS d FROM t",
        ),
        (
            "SELECT date_format(x, 'on %Y-%m-%dT%h:%i %p') AS d FROM t",
            r"SELECT DATE_FORMAT(x, '\'on \'yyyy\'-\'MM\'-\'dd\'T\'hh\':\'mm\' \'a') AS d FROM t",
        ),
        (
            "SELECT array_agg(DISTINCT x) FILTER (WHERE x > 1) OVER (PARTITION BY y) AS a FROM t",
            "SELECT TRY_ELEMENT_AT(FILTER(ARRAY(TRANSFORM(COLLECT_LIST(DISTINCT STRUCT(x AS v)) FILTER(WHERE x > 1) OVER "
            "(PARTITION BY y), r -> r.v)), a -> SIZE(a) > 0), 1) AS a FROM t",
        ),
        (
            "SELECT date_parse(x, '%j %T %% %e') AS d FROM t",
            r"SELECT TO_TIMESTAMP(x, 'DDD\' \'HH:mm:ss\' \'%\' \'d') AS d FROM t",
        ),
        ("SELECT count(*), a, upper(b) FROM t", "SELECT COUNT(*), a, UPPER(b) FROM t"),
        ("SELECT a FROM t WHERE b = :b", "SELECT a FROM t WHERE b = :b"),
        ("SELECT a FROM t UNION ALL SELECT b FROM u", "SELECT a FROM t UNION ALL SELECT b FROM u"),
        ("WITH t AS (SELECT 1 AS a) SELECT a FROM t", "WITH t AS (SELECT 1 AS a) SELECT a FROM t"),
        (
            "SELECT a FROM t ORDER BY a OFFSET 2 LIMIT 1",
            "SELECT a FROM t ORDER BY a NULLS LAST LIMIT 1 OFFSET 2",
        ),
    ],
)
def test_translations(athena, spark):
    assert translated(athena) == spark


SCALE = "CAST(REGEXP_EXTRACT(TYPEOF({}), ',([0-9]+)', 1) AS INT)"


def decimal_sql(a, b):
    return f"ROUND(({a}) / ({b}), {SCALE.format(f'({a}) + ({b})')})"


@pytest.mark.parametrize(
    "athena, spark",
    [
        ("n / 2", "((n) DIV (2))"),
        ("st.p / 2", "((st.p) DIV (2))"),
        ("d / n", decimal_sql("d", "n")),
        ("7.0 / 2", decimal_sql("7.0", "2")),
        ("d * f / 2", "((d * f) / (2))"),
        ("n / 2e0", "((n) / (2e0))"),
        ("n / NULL", "((n) DIV (NULL))"),
        ("CAST(d AS DOUBLE) / n", "((CAST(d AS DOUBLE)) / (n))"),
        ("sum(n) / count(*)", "((SUM(n)) DIV (COUNT(*)))"),
        ("m['a'] / 2", f"(({KEY_SQL.format('m', 'a')}) / (2))"),
        ("element_at(items, 1).price / 2", decimal_sql("TRY_ELEMENT_AT(items, 1).price", "2")),
        ("ceil(n), floor(f), sign(n)", "(n), CAST(FLOOR(f) AS DOUBLE), CAST(SIGN(n) AS BIGINT)"),
        ("ceil(d)", f"ROUND(CEIL(d), {SCALE.format('d')})"),
        ("avg(n), avg(DISTINCT f)", "AVG(n), AVG(DISTINCT f)"),
        (
            "avg(d) FILTER (WHERE n > 1)",
            f"ROUND(AVG(d) FILTER(WHERE n > 1), {SCALE.format('MAX(d) FILTER(WHERE n > 1)')})",
        ),
        ("date_trunc('day', day)", "CAST(DATE_TRUNC('day', day) AS DATE)"),
        ("date_trunc('day', at + interval '1' day)", "DATE_TRUNC('day', at + INTERVAL '1' DAY)"),
        ("date_trunc('day', zoned)", "CAST(DATE_TRUNC('day', zoned) AS TIMESTAMP_NTZ)"),
        ("to_iso8601(day)", "DATE_FORMAT(day, 'yyyy-MM-dd')"),
        ("to_iso8601(zoned)", "DATE_FORMAT(zoned, \"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\")"),
        (":a / 2, :b / 2", "((:a) DIV (2)), ((:b) / (2))"),
    ],
)
def test_a_translation_depends_on_types(athena, spark):
    values = {"a": 1, "b": 0.5} if ":a" in athena else {}
    sql = translated(f"SELECT {athena} FROM db.typed", **values)
    assert sql == f"SELECT {spark} FROM db.typed"


@pytest.mark.parametrize(
    "text, part",
    [
        ("WITH c AS (SELECT * FROM db.typed) SELECT n / 2 FROM c", "((n) DIV (2))"),
        ("SELECT N / 2 FROM (SELECT * FROM db.typed) AS x", "((N) DIV (2))"),
        ('SELECT "Day" / 2 FROM (SELECT n AS "Day" FROM db.typed) AS x', "((`Day`) DIV (2))"),
        ("SELECT t.n / u.n FROM db.typed t JOIN db.typed u USING (d)", "((t.n) DIV (u.n))"),
        ("SELECT v FROM db.typed CROSS JOIN UNNEST(m) AS u(k, v)", "INLINE(MAP_ENTRIES(m)) AS"),
        ("SELECT q FROM db.typed CROSS JOIN UNNEST(items) AS u(q, p)", "INLINE(items) AS"),
        ("SELECT i.q / 2 FROM db.typed CROSS JOIN UNNEST(items) AS u(i)", "((i.q) DIV (2))"),
        ("SELECT (SELECT max(f) FROM db.typed) / 2", "SELECT MAX(f) FROM db.typed)) / (2))"),
        ("SELECT x / 2 FROM (VALUES (1, 2e0)) AS t(y, x)", "((x) / (2))"),
        (
            "SELECT n / 2 AS h FROM db.typed GROUP BY n / 2 HAVING sum(n) / 2 > 1 ORDER BY n / 2",
            "HAVING ((SUM(n)) DIV (2)) > 1 ORDER BY ((n) DIV (2))",
        ),
        ("SELECT n, sum(n) AS s FROM db.typed GROUP BY n ORDER BY s / 2", "((s) DIV (2))"),
    ],
)
def test_types_are_found_through_a_query(text, part):
    assert part in translated(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a / 2 FROM t",
        "SELECT a[i] FROM t",
        "SELECT avg(nosuch) FROM db.typed",
        "SELECT ceil(:a)",
        "SELECT odd.p / 2 FROM db.typed",
        "SELECT transform(grid, x -> x / 2) FROM db.typed",
        "SELECT v / 2 FROM db.typed CROSS JOIN UNNEST(m) AS u(k, v)",
        "SELECT price / 2 FROM db.typed CROSS JOIN UNNEST(items) AS u(price, q)",
    ],
)
def test_an_unknown_type_is_an_error(text):
    with pytest.raises(LakeError, match="(?s)depends on the type.*unknown.*CAST"):
        translated(text, **({"a": object()} if ":a" in text else {}))


def test_a_function_is_in_one_table():
    same = [name for names in athena_functions.SAME_NAMES.values() for name in names]
    assert not {*same} & {*athena_functions.FUNCTIONS}
    known = {*same, *athena_functions.FUNCTIONS}
    typed = set(athena_functions.RESULTS)
    with_unit = {name.split()[0] for name in known if " " in name}
    assert typed <= known | with_unit, "a result type of a function that is not translated"


@pytest.mark.parametrize(
    "text, says",
    [
        ("SELECT nosuch(a) FROM t", "nosuch of 1 arg(?s:.*)NOSUCH"),
        ("SELECT 1; SELECT 2", "not one statement"),
        (f"SELECT {'(' * 4_000}1{')' * 4_000}", "nested too deeply"),
        ("SELEC a FROM t WHERE", "not Athena SQL"),
        ("SELECT try(a / b)", "try of 1 arg"),
        ("SELECT CAST(x AS TIME)", "(?s)the type TIME "),
        ("SELECT CAST(x AS ROW(a CHAR(3)))", "(?s)the type CHAR"),
        ("SELECT CAST('::1' AS IPADDRESS)", "(?s)the type IPADDRESS .*::1"),
        ("SELECT CAST(x AS IPPREFIX)", "the type IPPREFIX "),
        ("SELECT a = ALL (SELECT 1)", "(?s)this clause.*ALL"),
        ("SELECT json_value(a, 'lax $')", "json_value"),
        ("SELECT a FROM t ORDER BY a FETCH FIRST 2 ROWS WITH TIES", "(?s)this clause.*TIES"),
        ("SELECT date_format(a, '%Y week %V')", "(?s)this pattern.*%V"),
        ("SELECT date_parse(a, '%y')", "(?s)pattern.*%y"),
        ("SELECT date_format(a, '100 %')", "(?s)this pattern.*100 %"),
        ("SELECT date_format(a, b)", "this pattern"),
        ("SELECT format_datetime(a, 'YYYY')", "format_datetime of 2"),
        ("SELECT date_add('eon', 1, a)", "date_add of 3"),
        ("SELECT date_add(day, 1, a)", "date_add of 3"),
        ("SELECT checksum(a)", "checksum"),
        ("SELECT random(5)", "random of 1"),
        ("SELECT rand(1, 3)", "rand of 2"),
        ("SELECT cardinality(a, 1)", "cardinality of 2"),
        ("SELECT contains(a, 1, 2)", "contains of 3"),
        ("SELECT from_utf8(a, '?')", "from_utf8 of 2"),
        ("SELECT log(8)", "log of 1"),
        ("SELECT date_diff('century', a, b)", "date_diff of 3"),
        ("SELECT date_diff(c, a, b)", "date_diff of 3"),
        ("SELECT extract(century FROM a)", "(?s)this field.*a"),
        ("SELECT extract(timezone_hour FROM a)", "(?s)this field.*a"),
        ("SELECT truncate(a, 2)", "truncate of 2"),
        ("SELECT split_part(a, 'b')", "split_part of 2"),
        ("SELECT array_agg(a, TRUE)", "array_agg of 2"),
        ("SELECT regexp_replace(a, 'b', 'c', 'd')", "regexp_replace of 4"),
        ("", "not one statement"),
        ("SELECT json_extract(a, '$[b]')", "(?s)this path.*b"),
        ("SELECT json_extract(a, 'b')", "this path"),
        ("SELECT json_extract(a, b)", "this path"),
        ("SELECT approx_distinct(DISTINCT a)", "distinct approx_distinct of 1"),
        ("SELECT max_by(a, b ORDER BY c)", "(?s)this clause.*ORDER BY"),
        ("SELECT array_agg(a ORDER BY a)", "this clause"),
        ("SELECT url_extract_host(a), md5(b)", "url_extract_host of 1"),
        ("SELECT (a, b) = (1, 2)", "comparison of arrays or rows"),
        ("SELECT ROW(a, 1) IN (ROW(1, 2))", "comparison of arrays or rows"),
        ("SELECT a = ARRAY[1, b]", "comparison of arrays or rows"),
        ("SELECT CAST(a AS MAP(VARCHAR, INTEGER))", "a cast to a map or a row"),
        ("SELECT CAST(ROW(1) AS ROW(a INTEGER, b INTEGER))", "another number of fields"),
        ("SELECT CAST(TIMESTAMP '2020-01-01 10:00:00' AS VARCHAR)", "text of a literal TIMESTAMP"),
        ("SELECT to_iso8601(TIMESTAMP '2020-01-01 10:00:00')", "text of a literal TIMESTAMP"),
        ("SELECT CAST(a AS TIMESTAMP(6))", "TIMESTAMP with a precision"),
        ("SELECT TRY_CAST(a AS JSON)", "TRY_CAST to JSON"),
        ("SELECT from_unixtime(a, 'Asia/Tokyo')", "from_unixtime of 2"),
        ("SELECT `a` FROM t", '(?s)a backtick.*replace each `name` by "name"'),
        ("SELECT '`' FROM `t`", "a backtick"),
        ("SELECT '`' FROM FROM", r"not Athena SQL: (?!a backtick)"),
        ("USE db", "(?s)no statement USE.*database.table"),
        ("-- mine\nuse db;", "(?s)no statement USE.*database.table"),
        (
            "UNLOAD (SELECT 1) TO 's3://b' WITH (format = 'JSON')",
            "(?s)no statement UNLOAD.*CREATE TABLE",
        ),
        ("SELECT listagg(a, ',') WITHIN GROUP (ORDER BY a)", "(?s)this clause.*WITHIN GROUP"),
        ("SELECT * FROM UNNEST(a, b, c) AS t(x, y, z)", "unnest rows of 3|unnest of 3"),
    ],
)
def test_what_cannot_be_translated_is_an_error(text, says):
    with pytest.raises(LakeError, match=f"(?i){says}"):
        translated(text)


@pytest.mark.parametrize(
    "text, says",
    [
        ("DELETE FROM t WHERE a = 1", "not one statement"),
        ("UPDATE t SET a = 1", "not one statement"),
        ("INSERT INTO t SELECT 1", "not one statement"),
        ("CREATE TABLE t (a INT)", "not one statement"),
        ("CREATE VIEW t AS SELECT 1", "not one statement"),
        (
            "CREATE EXTERNAL TABLE t (a INT) STORED AS PARQUET",
            "not create one table of files.*has.*LOCATION.*PARQUET",
        ),
        ("CREATE EXTERNAL TABLE t (a INT) LOCATION 's3://b/'", "such a table has STORED AS"),
        (
            "CREATE EXTERNAL TABLE t (a INT) STORED AS TEXTFILE LOCATION 's3://b/'",
            "such a table has STORED AS.*TEXTFILE",
        ),
        (
            "CREATE EXTERNAL TABLE t (a INT) CLUSTERED BY (a) INTO 4 BUCKETS STORED AS ORC LOCATION 's3://b/'",
            "CLUSTERED",
        ),
        (
            "CREATE EXTERNAL TABLE t (a INT) STORED AS ORC LOCATION 's3://b/' TBLPROPERTIES ('projection.enabled'='true')",
            "this clause.*projection",
        ),
        (
            "CREATE EXTERNAL TABLE t (a INT) ROW FORMAT SERDE 'org.openx.data.jsonserde.JsonSerDe' WITH SERDEPROPERTIES "
            "('ignore.malformed.json' = 'true') LOCATION 's3://b/'",
            "without properties.*malformed",
        ),
        (
            "CREATE EXTERNAL TABLE t (a INT) STORED AS ORC LOCATION 's3://b/'; SELECT 1",
            "not create one table",
        ),
        ("CREATE EXTERNAL TABLE t (a CHAR(3)) STORED AS ORC LOCATION 's3://b/'", "the type CHAR"),
    ],
)
def test_statements_that_are_refused(text, says):
    with pytest.raises(LakeError, match=f"(?is){says}"):
        translated(text)


@pytest.mark.parametrize(
    "text",
    [
        r"CREATE DATABASE v COMMENT 'it\'s' LOCATION '/x'",
        "CREATE DATABASE v COMMENT 'a' 'b'",
        "CREATE DATABASE v -- it's\n LOCATION '/x'",
        "CREATE DATABASE v WITH DBPROPERTIES ('a'='b')",
        "CREATE DATABASE spark_catalog.v",
        "DROP SCHEMA\n--x\nv CASCADE",
        "DROP DATABASE /* x */ v CASCADE",
        "DROP DATABASE spark_catalog.v CASCADE",
        "DROP DATABASE `v CASCADE",
        "DROP DATABASE v; DROP DATABASE w",
    ],
)
def test_a_statement_on_a_database_has_a_known_form(text):
    with pytest.raises(LakeError, match="this form of the statement on a database"):
        dialect.parse_statement(text)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE DATABASE v",
        "create schema if not exists `v` comment 'has no LOCATION';",
        "-- x\nDROP DATABASE IF EXISTS v CASCADE",
        'DROP\nSCHEMA "v" RESTRICT',
    ],
)
def test_known_forms_of_statements_on_databases(text):
    assert isinstance(dialect.parse_statement(text)[0], exp.Command)


@pytest.mark.parametrize(
    "value",
    [
        [1, 2],
        (1, 2),
        {"a": 1},
        2**63,
        pandas.NaT,
        pandas.NA,
        Decimal("NaN"),
        "lone \ud800",
    ],
)
def test_a_value_that_cannot_be_bound_as_it_is_is_refused(value):
    with pytest.raises(LakeError, match="value x .*cannot be bound as it is") as e:
        query.sql(object(), "SELECT :x", x=value)
    str(e.value).encode()


def test_own_words_are_those_that_the_query_raised():
    def message(cause):
        with pytest.raises(LakeError) as e, spark_sql._own_words("SELECT"):
            raise LakeError("the query failed") from Exception(cause)
        return e.value.message

    raised = "Job aborted: java.lang.RuntimeException: workbench: the reason\nmore"
    assert message(raised) == "the query failed: the reason"
    assert message("INVALID_INLINE_TABLE: raise_error('workbench: x')") == "the query failed"


class Rows:
    """A data frame that notes how it would be written."""

    def __init__(self):
        self.write, self.said = self, {}

    def format(self, name):
        self.said["format"] = name
        return self

    def partitionBy(self, *columns):
        self.said["by"] = columns
        return self

    def options(self, **options):
        self.said.update(options)
        return self

    def saveAsTable(self, name):
        self.said["table"] = name


@pytest.mark.parametrize(
    "text, said",
    [
        (
            """CREATE TABLE "a"."b" WITH (format = 'ORC', partitioned_by = ARRAY['c', 'd'],
        external_location = 's3://bucket/x') AS SELECT 1 AS a, 2 AS c, 3 AS d""",
            {
                "format": "orc",
                "by": ("c", "d"),
                "compression": "zlib",
                "path": "s3://bucket/x",
                "table": "`a`.`b`",
            },
        ),
        (
            "CREATE TABLE b AS SELECT ') TO' AS a",
            {"format": "parquet", "by": (), "compression": "gzip", "table": "b"},
        ),
    ],
)
def test_where_the_rows_of_a_query_go(text, said):
    rows = Rows()
    spark_sql._write_table(rows, dialect.parse_statement(text)[1])
    assert rows.said == said


@pytest.mark.parametrize(
    "text, says",
    [
        ("CREATE TABLE t WITH (bucket_count = 4) AS SELECT 1 AS a", "bucket_count"),
        ("CREATE TABLE t WITH (table_type = 'ICEBERG') AS SELECT 1 AS a", "table_type"),
        ("CREATE TABLE t WITH (format = 'AVRO') AS SELECT 1 AS a", "avro"),
        ("CREATE TABLE IF NOT EXISTS t AS SELECT 1 AS a", "IF NOT EXISTS"),
        ("CREATE TABLE t AS SELECT 1 AS a WITH NO DATA", "NO DATA"),
        (
            "CREATE TABLE t WITH (write_compression = 'SNAPPY', orc_compression = 'ZLIB') AS SELECT 1",
            "orc_compression",
        ),
    ],
)
def test_settings_that_are_refused(text, says):
    with pytest.raises(LakeError, match=f"(?s)(?=.*not supported).*{says}"):
        spark_sql._write_table(Rows(), dialect.parse_statement(text)[1])


def test_statements():
    assert (
        translated("-- tell it\n/* the\n folders */ MSCK REPAIR TABLE a.b").strip()
        == "MSCK REPAIR TABLE a.b"
    )
    assert (
        translated("""
        CREATE EXTERNAL TABLE IF NOT EXISTS a.b (id int COMMENT 'x', `a b` struct<c:int>) PARTITIONED BY (country
        string) ROW FORMAT SERDE 'org.openx.data.jsonserde.JsonSerDe' LOCATION 's3://bucket/it\\'s/'""")
        == (
            "CREATE TABLE IF NOT EXISTS a.b (id INT COMMENT 'x', `a b` STRUCT<c: INT>, country STRING) "
            "USING JSON OPTIONS (MODE 'FAILFAST') PARTITIONED BY (country) LOCATION 's3://bucket/it\\'s/'"
        )
    )


def test_values_are_neither_missing_nor_left_over():
    for text, values in (("SELECT :a", {}), ("SELECT 1", {"a": 1}), ("SELECT :a", {"b": 1})):
        with pytest.raises(LakeError):
            query.sql(object(), text, **values)


class Remote:
    """A Spark Connect session whose server is gone."""

    def __init__(self):
        self.client = SimpleNamespace(
            is_closed=False, _builder=SimpleNamespace(endpoint="127.0.0.1:1")
        )


def test_a_dead_server_is_told_at_once_and_not_tried_for_ten_minutes(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    session = Remote()
    spark_module._worlds[session] = params.load("local")
    with pytest.raises(
        StackError, match="(?s)the service spark is stopped.*127.0.0.1:1.*set-up cell"
    ):
        query.sql(session, "SELECT 1")
    session.client.is_closed = True
    assert unreachable_reason(session) == "the session was closed"
    assert unreachable_reason(object()) == ""  # a classic session is its own server


@pytest.mark.parametrize(
    "text, gone",
    [
        ('_InactiveRpcError: status = StatusCode.UNAVAILABLE details = "Socket closed"', True),
        ("[INVALID_HANDLE.SESSION_NOT_FOUND] The handle is invalid. Session not found.", True),
        (
            "(java.lang.NullPointerException) … because SparkEnv.get() is null",
            True,
        ),  # it is being stopped
        (
            "[UNKNOWN] the query failed\n\nJVM stacktrace:\nCaused by: ConnectException: Connection refused",
            False,
        ),
        ("[TABLE_OR_VIEW_NOT_FOUND] The table or view `session` cannot be found", False),
        ("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `nosuch` cannot be resolved", False),
    ],
)
def test_which_errors_say_that_spark_is_gone(text, gone):
    assert is_session_lost(RuntimeError(text)) is gone


def test_a_server_that_ends_within_a_query():
    class Ended:
        def newSession(self):
            raise RuntimeError('StatusCode.UNAVAILABLE details = "Socket closed"')

    with pytest.raises(StackError, match="Spark was restarted or is gone"):
        query.sql(Ended(), "SELECT 1")


class Session:
    """A session whose server lives and that notes what it is set to; ended, it refuses."""

    def __init__(self):
        self.conf, self.ended, self.said = self, False, []

    def set(self, key, value):
        if self.ended:
            raise RuntimeError("[INVALID_HANDLE.SESSION_CLOSED]")
        self.said.append(value)


@pytest.mark.parametrize(
    "text, says",
    [
        (
            "ParseException: \n[PARSE_SYNTAX_ERROR] Syntax error.\n\n== SQL ==\nx",
            "ParseException: [PARSE_SYNTAX_ERROR]",
        ),
        (
            "SparkException: aborted\nCaused by: a.b.C: \n\n  the file is gone\n\tat a.b(C.scala:1)",
            "a.b.C: the file is ",
        ),
        ("Py4JError: it failed\nmore", "Py4JError: it failed"),
        ("Py4JError: it failed. Caused by: a.b.C", "Py4JError: it failed. Caused by: a.b.C"),
    ],
)
def test_the_cause_of_an_error_whose_first_line_is_empty_is_its_next_line(text, says):
    assert spark_module.innermost_cause(text).startswith(says)


def test_causes_are_told_until_the_last_that_asks_has_ended():
    session = Session()
    with java_stacktraces(session):
        with java_stacktraces(session):
            assert session.said == ["true", "true"]
        assert session.said[-1] == "true"
    assert session.said[-1] == "false"


def test_a_session_that_ended_hides_no_error_and_its_count_goes_with_it():
    session = Session()
    with pytest.raises(ValueError, match="the error under way"), java_stacktraces(session):
        session.ended = True
        raise ValueError("the error under way")
    with pytest.raises(ValueError, match="what is asked then"), java_stacktraces(session):
        raise ValueError("what is asked then")
    session.ended = False
    with java_stacktraces(session):
        pass
    assert session.said == ["true", "true", "false"]
    address = id(session)
    del session
    gc.collect()
    holders = spark_module._process_state.get("stack traces", dict)
    assert address not in map(id, holders), "another at the same address begins at nought"


def test_only_a_session_of_an_embedded_world_is_told_as_our_service(tmp_path, monkeypatch):
    """A Spark Connect of others at a loopback port, through a tunnel: none of ours."""
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    theirs, ours = Remote(), Remote()
    assert "Spark was restarted or is gone" in str(spark_module.session_lost_error(theirs, "why"))
    spark_module._worlds[ours] = params.load("local")
    assert "the service spark is stopped" in str(spark_module.session_lost_error(ours, "why"))
    spark_module._worlds[ours] = on_aws.world()
    assert "Spark was restarted or is gone" in str(spark_module.session_lost_error(ours, "why"))


def test_a_crawled_table_quotes_the_names_of_foreign_columns_and_its_address(monkeypatch):
    asked = []
    monkeypatch.setattr(crawl.files, "list_files", lambda address: {"p`x=1/a.parquet": None})
    monkeypatch.setattr(spark_sql, "columns", lambda *given: {"a` int) LOCATION 'x' --": "string"})
    monkeypatch.setattr(crawl.ddl, "create_database", lambda *given: None)
    monkeypatch.setattr(crawl, "sql", lambda spark, text: asked.append(text))
    made = query.create_table_from_files(None, "file:/it's", "d.t")
    assert made in asked and "(\n  `a`` int) LOCATION 'x' --` string)" in made
    assert "PARTITIONED BY (`p``x` string)" in made and made.endswith(r"LOCATION 'file:/it\'s'")
