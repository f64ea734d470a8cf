"""The folder of a record: by topic partition, by fields or by time.

Partitioning by fields works like Lenses' PARTITIONBY and Confluent's FieldPartitioner, partitioning
by time like TimeBasedPartitioner. This module is pickled by value into Spark tasks.
"""

import datetime as dt
import json
import re
from dataclasses import dataclass
from typing import Any, Callable, Protocol
from zoneinfo import ZoneInfo

from ..base.paths import is_safe_relative_path

# the characters that Hive escapes in partition folders
# (org.apache.hadoop.hive.common.FileUtils.charToEscape), and NUL, which file systems reject
HIVE_ESCAPES = {ord(c): f"%{ord(c):02X}" for c in (*map(chr, range(32)), *"\"#%'*/:=?\\\x7f{[]^")}
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
MAX_NAME_BYTES = 255  # a limit of file systems
MAX_FOLDER_BYTES = 900  # a key in S3 has at most 1024 bytes
STRFTIME_CODES = {
    "YYYY": "%Y",
    "yyyy": "%Y",
    "YY": "%y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}
EPOCH = dt.datetime(1970, 1, 1)


def get_field(payload: Any, name: str) -> Any:
    """Return a field of a row; `after.country` is a nested field.

    Raises:
        ValueError: there is no such field.
    """
    is_name = isinstance(payload, dict) and name in payload
    for key in [name] if is_name else name.split("."):
        if not isinstance(payload, dict) or key not in payload:
            raise ValueError(f"there is no field {name}")
        payload = payload[key]
    return payload


class Partitioner(Protocol):
    """Selects the folder of a record."""

    def folder(self, value: Any, partition: int, timestamp_ms: int) -> tuple[str, int]:
        """Return the folder of a record, relative to the folder of its topic, and the record's time.

        Args:
            value: the record.
            partition: partition of the message.
            timestamp_ms: timestamp of the message in ms since 1970.

        Returns:
            (folder, time in ms since 1970). The time is 0 if the folders are not by time.

        Raises:
            ValueError: a partition field or the time field is missing or invalid, or the folder's
                name is too long.
        """


@dataclass(frozen=True)
class NumberPartitioner:
    """Folders by the number of the topic partition, `partition=0`."""

    def folder(self, value: Any, partition: int, timestamp_ms: int) -> tuple[str, int]:
        """Return the folder of the message's topic partition."""
        return f"partition={partition}", 0


@dataclass(frozen=True)
class FieldPartitioner:
    """Folders by fields, `a=1/b=x`, escaped as Hive does it; no folders without fields.

    A null, empty or missing value becomes Hive's default partition.

    Attributes:
        fields: names of the partition fields.
        get: takes the row and the name of a field, and returns its value.
    """

    fields: tuple[str, ...]
    get: Callable[[Any, str], Any] = dict.get

    def folder(self, value: Any, partition: int, timestamp_ms: int) -> tuple[str, int]:
        """Return the folder of a record."""
        names = []
        for field in self.fields:
            text = self.get(value, field)
            if text is None:
                text = ""
            elif not isinstance(text, str):
                text = json.dumps(text)
            names.append(f"{field}={text.translate(HIVE_ESCAPES) or DEFAULT_PARTITION}")
        folder = "/".join(names)
        is_long = any(len(name.encode()) > MAX_NAME_BYTES for name in names)
        if is_long or len(folder.encode()) >= MAX_FOLDER_BYTES:
            raise ValueError("a partition value is too long for the name of a folder")
        return folder, 0


@dataclass(frozen=True)
class TimePartitioner:
    """Folders by time.

    Attributes:
        pattern: strftime pattern of the folders.
        duration_ms: length of the time range of a folder.
        timezone: name of the time zone.
        field: name of the field with the time (RecordField); "" for the timestamp of the message
            (Record).
    """

    pattern: str
    duration_ms: int
    timezone: str
    field: str = ""

    def folder(self, value: Any, partition: int, timestamp_ms: int) -> tuple[str, int]:
        """Return the folder and the time of a record."""
        time = get_field(value, self.field) if self.field else timestamp_ms
        if isinstance(time, str):
            import pandas

            time = round(pandas.to_datetime(time, utc=True).timestamp() * 1000)
        if type(time) is not int:
            raise ValueError(f"{self.field} is {time!r}, which is not a time")
        local = dt.datetime.fromtimestamp(time / 1000, ZoneInfo(self.timezone)).replace(tzinfo=None)
        start = local - (local - EPOCH) % dt.timedelta(milliseconds=self.duration_ms)
        return start.strftime(self.pattern), time


def to_strftime(pattern: str) -> str:
    """Convert a Joda-Time pattern (path.format) to a strftime pattern.

    Raises:
        ValueError: the pattern has unquoted letters that are not in STRFTIME_CODES, or the result is
            not a safe relative path.
    """

    def convert(match: "re.Match[str]") -> str:
        quoted, text = match[1], match[0]
        if quoted is not None:
            return quoted
        if text not in STRFTIME_CODES:
            raise ValueError(
                f"{text} is neither quoted text nor one of {', '.join(STRFTIME_CODES)}"
            )
        return STRFTIME_CODES[text]

    escaped = pattern.rstrip("/").replace("%", "%%")
    converted = re.sub(r"'([^']*)'|'|([A-Za-z])\2*", convert, escaped)
    if not is_safe_relative_path(converted):
        raise ValueError(
            "the path would leave the folder of the topic: a part is empty, . or .., or has a control character"
        )
    return converted
