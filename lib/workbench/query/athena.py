"""Run queries on Amazon Athena with PyAthena.

A query prints the amount of data that it scanned, for which AWS charges. The workgroup's limit on
scanned data cancels a query (BytesScannedCutoffPerQuery; Athena's guide, "Configure per-query and
workgroup-wide data usage controls").
"""

import datetime as dt
import logging
import math
import numbers
import re
from dataclasses import dataclass
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, Optional

import pandas
from rich.filesize import decimal as format_size

from ..base import LakeError, World, aws, first_line
from . import dialect

TIMESTAMP_FORMAT = "%Y-%m-%d %H:%M:%S.%f"
POLL_SECONDS = 0.5  # between two requests for the state of a query
# {type of Athena: type in pandas, as Spark returns it}; columns of other types hold Python objects,
# and nested values are text (docs/athena.md)
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
# Types whose conversion in PyAthena is a guess; their values stay text
TEXT_TYPES = ("array", "map", "row", "json", "time", "time with time zone")


@dataclass(frozen=True)
class Athena:
    """Athena, with the workgroup of a deployment; a `QueryEngine`."""

    world: World

    def sql(self, text: str, values: dict[str, Any]) -> pandas.DataFrame:
        """Run one query or statement, and print the amount of scanned data and the time.

        See `query.sql`.
        """
        from pyathena import connect, error
        from pyathena.converter import DefaultTypeConverter
        from pyathena.util import RetryConfig

        world, query = self.world, _bind(text, values)
        log = logging.getLogger("pyathena")
        # it logs a traceback for each error; the user may have a handler for them
        if all(isinstance(each, logging.NullHandler) for each in log.handlers):
            log.addHandler(logging.NullHandler())
            log.propagate = False
        converter = DefaultTypeConverter()
        for kind in TEXT_TYPES:
            converter.remove(kind)
        cursor = connect(
            work_group=world.stack.deployment,
            region_name=world.region,
            s3_staging_dir="",
            poll_interval=POLL_SECONDS,
            converter=converter,
            retry_config=RetryConfig(attempt=1),  # the client itself retries for about 20 s
            session=SimpleNamespace(client=lambda service, **_: aws.client(world.region, service)),
        ).cursor()
        try:
            rows = cursor.execute(query).fetchall()
        except error.Error as e:
            location = f"Athena, workgroup {world.stack.deployment} in {world.region}"
            with aws.translate_errors(location):
                raise _to_error(world, query, cursor.query_id, e) from None
        frame = _to_dataframe([column[:2] for column in cursor.description or ()], rows)
        frame.attrs["statement"] = query
        frame.attrs["bytes_scanned"] = cursor.data_scanned_in_bytes or 0
        seconds = (cursor.total_execution_time_in_millis or 0) / 1000
        print(f"scanned {format_size(frame.attrs['bytes_scanned'])}, {seconds:.1f} s")
        return frame


def _bind(text: str, values: dict[str, Any]) -> str:
    """Replace each `:name` outside quotes and comments by a literal of Athena's SQL.

    Athena's own parameters are allowed only in WHERE (its guide, "Use parameterized queries").

    Raises:
        LakeError: a value is missing, unused, or of a type without a literal.
    """
    names = dialect.placeholders(text)
    dialect.require_values({name.text for name in names}, values)
    for name in reversed(names):
        literal = _literal(name.text, values[name.text])
        text = text[: name.start - 1] + literal + text[name.end + 1 :]
    return text


def _literal(name: str, value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, (bool, numbers.Integral)):
        return str(value).lower()
    if isinstance(value, Decimal):
        return f"DECIMAL '{value:f}'"
    if isinstance(value, float) and math.isfinite(value):
        return f"DOUBLE '{float(value)!r}'"
    if isinstance(value, dt.datetime):
        if value.tzinfo:
            return f"TIMESTAMP '{value.astimezone(dt.timezone.utc):{TIMESTAMP_FORMAT}} UTC'"
        return f"TIMESTAMP '{value:{TIMESTAMP_FORMAT}}'"
    if isinstance(value, dt.date):
        return f"DATE '{value}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"  # no other character has a special meaning
    raise LakeError(
        f"value {name} is of type {type(value).__name__}",
        location=repr(value)[:200],
        expected="text, a number, True or False, a date, a timestamp, None",
    )


def _to_dataframe(columns: list[tuple[Any, ...]], rows: list[Any]) -> pandas.DataFrame:
    """Convert rows to the frame that Spark would return.

    Args:
        columns: (name, type) of each column.
        rows: the rows. DESCRIBE returns each row as one text with tabs between the columns.
    """
    if rows and len(rows[0]) < len(columns):
        lines = ([column.strip() for column in (row[0] or "").split("\t")] for row in rows)
        rows = [tuple(parts + [""] * (len(columns) - len(parts))) for parts in lines if any(parts)]
    if not columns:
        return pandas.DataFrame()
    series = [_to_series(kind, [row[n] for row in rows]) for n, (_, kind) in enumerate(columns)]
    return pandas.concat(series, axis=1, keys=[name for name, _ in columns])


def _to_series(kind: str, values: list[Any]) -> pandas.Series:
    if kind == "timestamp with time zone":  # converted to UTC
        values = [v and v.astimezone(dt.timezone.utc).replace(tzinfo=None) for v in values]
    dtype = PANDAS_TYPES.get(kind, "object")
    if None in values and dtype.startswith("int"):
        dtype = "float64"
    if None in values and dtype == "bool":
        dtype = "object"
    try:
        return pandas.Series(values, dtype=dtype)
    except pandas.errors.OutOfBoundsDatetime:  # before 1678, or after 2262
        return pandas.Series(values, dtype=object)


def _to_error(world: World, text: str, query_id: Optional[str], error: Exception) -> BaseException:
    """Return the error to raise for an error of PyAthena: AWS's error, or a LakeError."""
    aws_error, message = error.__cause__, first_line(error)
    # Athena reports a syntax error as an invalid request
    if aws_error and aws.error_code(error) != "InvalidRequestException":
        return aws_error
    location, state = text.strip()[:1000], ""
    if query_id and not aws_error:
        response = aws.call(
            world.region, "athena", "get_query_execution", QueryExecutionId=query_id
        )
        status = response["QueryExecution"]["Status"]
        state, message = status["State"], status.get("StateChangeReason") or message
    if state != "CANCELLED":
        return LakeError(
            f"the query failed: {message}", location=location, hint=dialect.FAILED_QUERY_HINT
        )
    location = f"{location}\n{message}"
    if re.search("bytes scanned", message, re.I):
        return LakeError(
            f"the query was canceled: it would scan more than the limit of workgroup {world.stack.deployment}",
            location=location,
            hint="name the columns that you need, and a partition; the limit is CutOffBytes of deploy/2-lake.yaml",
        )
    return LakeError("a user canceled the query", location=location, hint="run it again")
