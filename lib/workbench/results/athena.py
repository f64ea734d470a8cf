"""Queries asked of Amazon Athena itself, by PyAthena; the text is its own dialect. What a query
scanned, for which AWS charges, is shown below it, and the workgroup's limit of that ends a query
(BytesScannedCutoffPerQuery; Athena's guide, "Configure per-query and workgroup-wide data usage
controls").
"""

import datetime as dt
import logging
import math
import numbers
import re
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, Optional, Union

import pandas
from pyspark.sql import SparkSession
from rich.filesize import decimal as size
from sqlglot.dialects.trino import Trino
from sqlglot.errors import SqlglotError

from ..base import LakeError, World, aws, first_line
from ..spark import world_of
from . import dialect

TIMESTAMP_FORMAT = "%Y-%m-%d %H:%M:%S.%f"
POLL_SECONDS = 0.5  # seconds between two looks at a query that runs
# Athena's types as Spark gives them to pandas; all others stay objects of Python, and nested ones
# text (docs/limits.md)
PANDAS_TYPES = {
    "tinyint": "int8",
    "smallint": "int16",
    "integer": "int32",
    "int": "int32",
    "bigint": "int64",
    "real": "float32",
    "float": "float32",
    "double": "float64",
    "boolean": "bool",
    "timestamp": "datetime64[ns]",
    "timestamp with time zone": "datetime64[ns]",
}
TEXT_TYPES = (
    "array",
    "map",
    "row",
    "json",
    "time",
    "time with time zone",
)  # PyAthena would guess at what they hold
DDL_PATTERN = re.compile(
    rf"{dialect.SHARED_STATEMENT.pattern}|{dialect.CREATE_EXTERNAL_TABLE.pattern}|ALTER\b", re.I
)  # statements without values


def sql(where: Union[SparkSession, World], text: str, /, **values: Any) -> pandas.DataFrame:
    """The rows of a statement; `attrs["bytes_scanned"]` says what it took. Arguments and errors:
    see query.sql.
    """
    from pyathena import connect, error
    from pyathena.converter import DefaultTypeConverter
    from pyathena.util import RetryConfig

    world = world_of(where)
    asked = _bind(text, values)
    log = logging.getLogger("pyathena")  # it logs, with a traceback, what it raises
    log.handlers, log.propagate = [logging.NullHandler()], False
    converter = DefaultTypeConverter()
    for kind in TEXT_TYPES:
        converter.remove(kind)
    cursor = connect(
        work_group=world.stack.deployment,
        region_name=world.region,
        s3_staging_dir="",
        poll_interval=POLL_SECONDS,
        converter=converter,
        retry_config=RetryConfig(attempt=1),  # the client itself tries again, for some 20 s
        session=SimpleNamespace(client=lambda service, **_: aws.client(world.region, service)),
    ).cursor()
    try:
        rows = cursor.execute(asked).fetchall()
    except error.Error as e:
        with aws.translate_errors(f"Athena, workgroup {world.stack.deployment} in {world.region}"):
            raise _to_error(world, asked, cursor.query_id, e) from None
    found = _to_dataframe([column[:2] for column in cursor.description or ()], rows)
    found.attrs["bytes_scanned"] = cursor.data_scanned_in_bytes or 0
    print(
        f"scanned {size(found.attrs['bytes_scanned'])}, {(cursor.total_execution_time_in_millis or 0) / 1000:.1f} s"
    )
    return found


def _bind(text: str, values: dict[str, Any]) -> str:
    """A statement with a literal of Athena's SQL for each `:name`, wherever that stands outside
    quotes and comments. (Athena's own parameters stand in WHERE only; its guide, "Use parameterized
    queries".)

    Raises: LakeError: a value is missing, left over, or of a type that has no literal.
    """
    try:
        tokens = (
            []
            if DDL_PATTERN.match(dialect.LEADING_COMMENTS.sub("", text))
            else Trino().tokenize(text)
        )
    except SqlglotError as e:
        raise LakeError(
            f"the query is not Athena SQL: {first_line(e)}", location=text[:200]
        ) from None
    names = [
        b for a, b in zip(tokens, tokens[1:]) if a.text == ":" and a.start == a.end == b.start - 1
    ]
    dialect.require_values({name.text for name in names}, values)
    for name in reversed(names):
        text = (
            text[: name.start - 1] + _literal(name.text, values[name.text]) + text[name.end + 1 :]
        )
    return text


def _literal(name: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "true", False: "false"}[value]
    if isinstance(value, (numbers.Integral, Decimal)):
        return f"DECIMAL '{value:f}'" if isinstance(value, Decimal) else str(value)
    if isinstance(value, float) and math.isfinite(value):
        return f"DOUBLE '{float(value)!r}'"
    if isinstance(value, dt.datetime):
        utc = (
            f"{value.astimezone(dt.timezone.utc):{TIMESTAMP_FORMAT}} UTC"
            if value.tzinfo
            else f"{value:{TIMESTAMP_FORMAT}}"
        )
        return f"TIMESTAMP '{utc}'"
    if isinstance(value, dt.date):
        return f"DATE '{value}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"  # nothing else is special in there
    raise LakeError(
        f"value {name} is of type {type(value).__name__}",
        location=repr(value)[:200],
        expected="text, a number, True or False, a date, a timestamp, None",
    )


def _to_dataframe(columns: list[tuple[str, str]], rows: list[tuple]) -> pandas.DataFrame:
    """The rows as Spark gives them to pandas. What DESCRIBE says comes as lines, their columns
    apart by tabs.
    """
    if rows and len(rows[0]) < len(columns):
        lines = ([part.strip() for part in (row[0] or "").split("\t")] for row in rows)
        rows = [tuple(parts + [""] * (len(columns) - len(parts))) for parts in lines if any(parts)]
    found = [_to_series(kind, [row[n] for row in rows]) for n, (_, kind) in enumerate(columns)]
    return (
        pandas.concat(found, axis=1, keys=[name for name, _ in columns])
        if found
        else pandas.DataFrame()
    )


def _to_series(kind: str, values: list[Any]) -> pandas.Series:
    if kind == "timestamp with time zone":  # its instant, in UTC
        values = [v and v.astimezone(dt.timezone.utc).replace(tzinfo=None) for v in values]
    form = PANDAS_TYPES.get(kind, "object")
    if None in values and form[:3] in ("int", "boo"):
        form = "float64" if form[:3] == "int" else "object"
    try:
        return pandas.Series(values, dtype=form)
    except pandas.errors.OutOfBoundsDatetime:  # before 1678, or after 2262
        return pandas.Series(values, dtype=object)


def _to_error(world: World, text: str, query: Optional[str], error: Exception) -> Exception:
    """What is raised for an error of PyAthena's: AWS's own that is behind it, or how the query
    ended.
    """
    refused, said = error.__cause__, first_line(error)
    name = str(getattr(refused, "response", {}).get("Error", {}).get("Code", ""))
    if refused and name != "InvalidRequestException":  # it says so of a text that it cannot parse
        return refused
    where, stopped = text.strip()[:1000], None
    if query and not refused:
        seen = aws.call(world.region, "athena", "get_query_execution", QueryExecutionId=query)[
            "QueryExecution"
        ]
        stopped = seen["Status"]["State"]
        said = seen["Status"].get("StateChangeReason") or said
    if stopped == "CANCELLED" and re.search("bytes scanned", said, re.I):
        return LakeError(
            f"the query was cancelled: it would scan more than workgroup {world.stack.deployment} "
            "lets it",
            location=f"{where}\n{said}",
            hint="name the columns that you need, and a "
            "partition; the limit is CutOffBytes of deploy/2-lake.yaml",
        )
    if stopped == "CANCELLED":
        return LakeError(
            "somebody cancelled the query", location=f"{where}\n{said}", hint="run it again"
        )
    return LakeError(f"the query failed: {said}", location=where, hint=dialect.FAILED_QUERY_HINT)
