"""The folder of a record: by its fields or by time.

By fields as Lenses' PARTITIONBY and Confluent's FieldPartitioner do it, by time as
TimeBasedPartitioner does it. This module is pickled by value into Spark tasks.
"""

import datetime as dt
import json
import re
from dataclasses import dataclass
from typing import Any, Callable, Sequence
from zoneinfo import ZoneInfo

from ..base.paths import is_safe_relative_path

# what Hive escapes in a partition folder (org.apache.hadoop.hive.common.FileUtils.charToEscape),
# and NUL, which no file system allows
HIVE_ESCAPES = {ord(c): f"%{ord(c):02X}" for c in (*map(chr, range(32)), *"\"#%'*/:=?\\\x7f{[]^")}
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
MAX_NAME_BYTES = 255  # a limit of file systems
MAX_FOLDER_BYTES = 900  # the limit of a key in S3 is 1024
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


def partition_folder(
    payload: Any, fields: Sequence[str], get: Callable[[Any, str], Any] = dict.get
) -> str:
    """Return the partition folder of a row, `a=1/b=x`, escaped as Hive does it.

    A null, empty or missing value becomes Hive's default partition.

    Args:
        payload: the row.
        fields: names of the partition fields.
        get: returns a field of the row.

    Raises:
        ValueError: the folder is too long.
    """
    names = []
    for field in fields:
        value = get(payload, field)
        if value is None:
            value = ""
        elif not isinstance(value, str):
            value = json.dumps(value)
        names.append(f"{field}={value.translate(HIVE_ESCAPES) or DEFAULT_PARTITION}")
    folder = "/".join(names)
    longest = max(len(folder_name.encode()) for folder_name in names)
    if longest > MAX_NAME_BYTES or len(folder.encode()) >= MAX_FOLDER_BYTES:
        raise ValueError("a partition value is too long for the name of a folder")
    return folder


def get_field(payload: Any, name: str) -> Any:
    """Return a field of a row; `after.country` is a field within another.

    Raises:
        ValueError: there is no such field.
    """
    is_name = isinstance(payload, dict) and name in payload
    for key in [name] if is_name else name.split("."):
        if not isinstance(payload, dict) or key not in payload:
            raise ValueError(f"there is no field {name}")
        payload = payload[key]
    return payload


@dataclass(frozen=True)
class TimePartitioner:
    """Folders by time.

    Attributes:
        pattern: of the folders, as strftime has it.
        duration_ms: length of the time range of a folder.
        timezone: name of the time zone.
        field: the field with the time (RecordField); "" for the timestamp of the message (Record).
    """

    pattern: str
    duration_ms: int
    timezone: str
    field: str = ""

    def folder(self, value: Any, timestamp_ms: int) -> tuple[str, int]:
        """Return the folder of a record, and its time in ms since 1970.

        Args:
            value: the record.
            timestamp_ms: the timestamp of its message.

        Raises:
            ValueError: the field has no time.
        """
        time = get_field(value, self.field) if self.field else timestamp_ms
        if isinstance(time, str):
            import pandas

            time = round(pandas.to_datetime(time, utc=True).timestamp() * 1000)
        if type(time) is not int:
            raise ValueError(f"{self.field} is {time!r}, which is no time")
        local = dt.datetime.fromtimestamp(time / 1000, ZoneInfo(self.timezone)).replace(tzinfo=None)
        start = local - (local - EPOCH) % dt.timedelta(milliseconds=self.duration_ms)
        return start.strftime(self.pattern), time


def to_strftime(pattern: str) -> str:
    """Convert a pattern of Joda-Time (path.format) to strftime's.

    Raises:
        ValueError: the pattern has other letters than those in STRFTIME_CODES and quoted text, or
            its result is no path below a folder.
    """

    def convert(match: "re.Match[str]") -> str:
        quoted, text = match[1], match[0]
        if quoted is not None:
            return quoted
        if text not in STRFTIME_CODES:
            raise ValueError(f"{text} is no quoted text, and none of {', '.join(STRFTIME_CODES)}")
        return STRFTIME_CODES[text]

    escaped = pattern.rstrip("/").replace("%", "%%")
    converted = re.sub(r"'([^']*)'|'|([A-Za-z])\2*", convert, escaped)
    if not is_safe_relative_path(converted):
        raise ValueError(
            "a folder stays below that of its topic: no part is empty, . or .., nor a control character"
        )
    return converted
