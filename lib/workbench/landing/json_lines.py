"""JSON messages as files of lines, for the landing (see writing.task). It travels to the worker by value and imports
nothing but Python's own library."""
from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

# what Hive escapes in a partition folder (org.apache.hadoop.hive.common.FileUtils.charToEscape)
ESCAPED = set('"#%\'*/:=?\\\x7f{[]^') | {chr(c) for c in range(1, 32)}
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
MOST_OF_NAME, MOST_OF_FOLDER = 255, 900  # bytes: a file system takes no longer name, S3 no key above 1024


@dataclass(frozen=True)
class Lines:
    """Files of lines: the place of a record is the partition folder of its row.

    fields: those that name partitions. envelope: values come as {"schema": …, "payload": …}.
    """

    fields: Tuple[str, ...]
    envelope: bool
    modules = (__name__,)
    side_by_side = True

    def check(self) -> None:
        """Nothing is needed that a worker might not have."""

    def read(self, value: bytes) -> Tuple[Optional[str], str, Optional[str]]:
        """(folder, line, why there is none); an empty envelope is no record either.

        Nothing that a message holds may raise here: it would stop the landing of all that come after it.
        """
        try:
            payload, line, reason = unwrap(bytes(value).decode("utf-8"), self.envelope)
            if payload is None:
                return None, line, reason
            folder = folder_of(payload, self.fields)
            parts = [len(part.encode("utf-8")) for part in folder.split("/")]
            line.encode("utf-8")
        except UnicodeDecodeError:
            return None, "", "not UTF-8, the text is its base64"
        except RecursionError:
            return None, "", "nested too deeply"
        except UnicodeEncodeError:
            return None, "", "half of a surrogate pair"
        if "\0" in folder:
            return None, "", "a partition value holds the character NUL"
        if max(parts) > MOST_OF_NAME or sum(parts) + len(parts) > MOST_OF_FOLDER:
            return None, "", "a partition value is too long for the name of a folder"
        return folder, line, None

    def text(self, value: bytes) -> str:
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return base64.b64encode(value).decode("ascii")

    def object(self, topic: str, partition: int, first: int, folder: str, lines: List[str]) -> Tuple[str, bytes]:
        name = f"{topic}-{partition}-{first:020d}.json"
        return (f"{folder}/{name}" if folder else name), "".join(line + "\n" for line in lines).encode("utf-8")


def unwrap(text: str, envelope: bool) -> Tuple[Optional[dict], str, Optional[str]]:
    """Return (payload, the payload as one line of JSON, None), or (None, "", why it cannot be landed).

    The line is the payload's own text wherever it can be: numbers keep every digit they came with.
    """
    try:
        whole = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return None, "", "malformed JSON"
    payload, line = whole, text
    if envelope and isinstance(whole, dict) and set(whole) == {"schema", "payload"}:
        payload = whole["payload"]
        line = _payload_text(text)
    if payload is None:
        return None, "", None
    if not isinstance(payload, dict):
        return None, "", "not a JSON object"
    if not line or "\n" in line or "\r" in line:
        line = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    return payload, line, None


def folder_of(payload: dict, fields: Sequence[str]) -> str:
    """The partition folder of a row, `a=1/b=x`, escaped as Hive does; null, empty and absent become Hive's default."""
    parts = []
    for name in fields:
        value = payload.get(name)
        if isinstance(value, bool):
            value = str(value).lower()
        text = json.dumps(value) if isinstance(value, (dict, list)) else "" if value is None else str(value)
        parts.append(name + "=" + ("".join(_escape(c) for c in text) or NO_VALUE))
    return "/".join(parts)


def _escape(char: str) -> str:
    return f"%{ord(char):02X}" if char in ESCAPED else char


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")  # Python reads NaN and Infinity, nobody else does


def payload_start(text: str) -> int:
    """Where the payload begins in `{"schema":…,"payload":…}` as JsonConverter writes it; 0 in any other text."""
    start = re.match(r'\s*\{\s*"schema"\s*:\s*', text)
    if not start:
        return 0
    try:
        _, end = json.JSONDecoder().raw_decode(text, start.end())
    except ValueError:
        return 0
    after = re.compile(r'\s*,\s*"payload"\s*:\s*').match(text, end)
    return after.end() if after else 0


def _payload_text(text: str) -> str:
    """The text of the payload in `{"schema":…,"payload":…}` as JsonConverter writes it; else ""."""
    start = payload_start(text)
    return text[start:].rstrip()[:-1].rstrip() if start else ""
