"""The folder that a record goes into: by fields of it (Lenses' PARTITIONBY, Confluent's
FieldPartitioner), or by time (TimeBasedPartitioner). It travels into Spark tasks by value.
"""

import datetime as dt
import json
import re
from dataclasses import dataclass
from typing import Any, Callable, Sequence
from zoneinfo import ZoneInfo

from ..base.paths import is_safe_relative_path

# what Hive escapes in a partition folder (org.apache.hadoop.hive.common.FileUtils.charToEscape),
# and NUL, which no file system takes
HIVE_ESCAPES = {ord(c): f"%{ord(c):02X}" for c in (*map(chr, range(32)), *"\"#%'*/:=?\\\x7f{[]^")}
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
MAX_NAME_BYTES, MAX_FOLDER_BYTES = (
    255,
    900,
)  # bytes: a file system takes no longer name, S3 no key above 1024
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
    payload: Any, fields: Sequence[str], find: Callable[[Any, str], Any] = dict.get
) -> str:
    """The partition folder of a row, `a=1/b=x`, escaped as Hive does; null, empty and absent become
    Hive's default.

    Raises: ValueError: it is too long.
    """
    parts = []
    for name in fields:
        value = find(payload, name)
        text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
        parts.append(name + "=" + (text.translate(HIVE_ESCAPES) or DEFAULT_PARTITION))
    sizes = [len(part.encode("utf-8")) for part in parts]
    if max(sizes) > MAX_NAME_BYTES or sum(sizes) + len(sizes) > MAX_FOLDER_BYTES:
        raise ValueError("a partition value is too long for the name of a folder")
    return "/".join(parts)


def get_field(payload: Any, name: str) -> Any:
    """A field of a row, `after.country` one within another. Raises: ValueError: it is not there."""
    for part in [name] if isinstance(payload, dict) and name in payload else name.split("."):
        if not isinstance(payload, dict) or part not in payload:
            raise ValueError(f"there is no field {name}")
        payload = payload[part]
    return payload


@dataclass(frozen=True)
class TimePartitioner:
    """Folders by time. pattern: as strftime has it; duration: of a folder, in ms; zone: timezone;
    field: that holds the time (RecordField), "" for the time of the message (Record).
    """

    pattern: str
    duration_ms: int
    timezone: str
    field: str = ""

    def folder(self, value: Any, sent: int) -> tuple[str, int]:
        """The folder of a record, and its time in ms since 1970. Raises: ValueError: its field says
        no time.
        """
        time = get_field(value, self.field) if self.field else sent
        if isinstance(time, str):
            import pandas

            time = round(pandas.to_datetime(time, utc=True).timestamp() * 1000)
        if type(time) is not int:
            raise ValueError(f"{self.field} is {time!r}, which is no time")
        local = dt.datetime.fromtimestamp(time / 1000, ZoneInfo(self.timezone)).replace(tzinfo=None)
        begun = local - (local - EPOCH) % dt.timedelta(milliseconds=self.duration_ms)
        return begun.strftime(self.pattern), time


def to_strftime(pattern: str) -> str:
    """A pattern of Joda-Time (path.format) as strftime has it.

    Raises: ValueError: it has more than NUMBERS and quoted text, or what it makes is not a path
        below a folder.
    """

    def part(found: re.Match[str]) -> str:
        if found[1] is not None:
            return found[1]
        if found[0] not in STRFTIME_CODES:
            raise ValueError(
                f"{found[0]} is no quoted text, and none of {', '.join(STRFTIME_CODES)}"
            )
        return STRFTIME_CODES[found[0]]

    made = re.sub(r"'([^']*)'|'|([A-Za-z])\2*", part, pattern.rstrip("/").replace("%", "%%"))
    if not is_safe_relative_path(made):
        raise ValueError(
            "a folder stays below that of its topic: no part is empty, . or .., nor a control character"
        )
    return made
