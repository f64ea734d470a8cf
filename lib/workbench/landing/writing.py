"""The part of the landing that runs inside a Spark task. It travels to the worker by value and imports only pyarrow."""
from __future__ import annotations

import base64
import json
import os
import re
import uuid
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

# what Hive escapes in a partition folder (org.apache.hadoop.hive.common.FileUtils.charToEscape)
ESCAPED = set('"#%\'*/:=?\\\x7f{[]^') | {chr(c) for c in range(1, 32)}
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
MOST_OF_NAME, MOST_OF_FOLDER = 255, 900  # bytes: a file system takes no longer name, S3 no key above 1024


def task(target: str, dead: str, fields: Sequence[str], most: int, envelope: bool) -> Callable:
    """Return the function for mapInPandas: writes the objects below `target`, yields one row of counts."""
    from pyspark import cloudpickle

    import workbench.landing.writing as this

    cloudpickle.register_pickle_by_value(this)  # a worker elsewhere does not have this package

    def land(batches: Iterator) -> Iterator:
        import pandas

        system, root = _open(target)
        dead_system, dead_root = _open(dead)
        total = {"records": 0, "tombstones": 0, "dead_letters": 0, "objects": 0, "bytes": 0}
        waiting: Dict[Tuple[str, str, int], List[Tuple[int, str]]] = {}
        bad: Dict[Tuple[str, str, int], List[Tuple[int, str]]] = {}

        def flush(key: Tuple[str, str, int], lines: List[Tuple[int, str]], into: Any, base: str) -> None:
            folder, topic, partition = key
            name = f"{topic}-{partition}-{lines[0][0]:020d}.json"
            text = "".join(line + "\n" for _, line in lines).encode("utf-8")
            _write(into, "/".join(p for p in (base, folder, name) if p), text)
            if into is system and base == root:
                total["objects"] += 1
                total["bytes"] += len(text)

        for frame in batches:
            for topic, partition, offset, keyed, value in frame.itertuples(index=False, name=None):
                if value is None and keyed:
                    total["tombstones"] += 1
                    continue
                folder, line, reason, text = judge(value, envelope, fields)
                if reason is not None:
                    total["dead_letters"] += 1
                    letter = {"reason": reason, "topic": topic, "partition": partition, "offset": offset, "text": text}
                    bad.setdefault(("", topic, partition), []).append((offset, json.dumps(letter)))
                    continue
                if folder is None:
                    total["tombstones"] += 1
                    continue
                key = (folder, topic, partition)
                lines = waiting.setdefault(key, [])
                lines.append((offset, line))
                total["records"] += 1
                if len(lines) == most:
                    flush(key, waiting.pop(key), system, root)
        for key, lines in waiting.items():
            flush(key, lines, system, root)
        for key, lines in bad.items():
            flush(key, lines, dead_system, dead_root)
        yield pandas.DataFrame([total])

    return land


def judge(value: Optional[bytes], envelope: bool,
          fields: Sequence[str]) -> Tuple[Optional[str], str, Optional[str], Optional[str]]:
    """Return (folder, line, why the message cannot be landed, its text); folder is None for an empty envelope.

    Nothing that a message holds may raise here: it would stop the landing of all that come after it.
    """
    try:
        text = None if value is None else bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        return None, "", "not UTF-8, the text is its base64", base64.b64encode(bytes(value or b"")).decode("ascii")
    try:
        payload, line, reason = unwrap(text, envelope)
        if payload is None:
            return None, line, reason, text
        folder = folder_of(payload, fields)
        parts = [len(part.encode("utf-8")) for part in folder.split("/")]
        line.encode("utf-8")
    except RecursionError:
        return None, "", "nested too deeply", text
    except UnicodeEncodeError:
        return None, "", "half of a surrogate pair", text
    if "\0" in folder:
        return None, "", "a partition value holds the character NUL", text
    if max(parts) > MOST_OF_NAME or sum(parts) + len(parts) > MOST_OF_FOLDER:
        return None, "", "a partition value is too long for the name of a folder", text
    return folder, line, None, text


def unwrap(text: Optional[str], envelope: bool) -> Tuple[Optional[dict], str, Optional[str]]:
    """Return (payload, the payload as one line of JSON, None), or (None, "", why it cannot be landed).

    The line is the payload's own text wherever it can be: numbers keep every digit they came with.
    """
    if text is None:
        return None, "", "no value and no key"
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


def _open(address: str) -> Tuple[Any, str]:
    from pyarrow import fs

    if address.startswith("file:"):
        return fs.LocalFileSystem(), re.sub(r"^file:(//)?", "", address)
    return fs.FileSystem.from_uri(re.sub(r"^s3a:", "s3:", address))


def _write(system: Any, path: str, text: bytes) -> None:
    """Write an object whole or not at all: a rename on a file system; an upload to S3 shows only when complete."""
    if system.type_name != "local":
        with system.open_output_stream(path) as out:
            out.write(text)
        return
    folder, name = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    scratch = os.path.join(folder, "." + uuid.uuid4().hex)  # Spark's listings skip names with a dot
    with open(scratch, "wb") as out:
        out.write(text)
    os.replace(scratch, path)
