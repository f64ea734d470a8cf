"""Names and where they come from: Hudi's names of files and partitions, as short as a page needs them; the files of its
timeline; and what a change event's fields are called once it is flattened. Use it through `show`."""
from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict

import pandas as pd

from ..base.errors import LakeError, nearest
from ..hudi.timeline import written

if TYPE_CHECKING:
    from ..hudi.tables import Table

# A base file is <group>_<write token>_<instant>.parquet, a log .<group>_<instant>.log.<number>_<write token>, where the
# group is a UUID with a number behind it and the token three numbers of Spark (Hudi's FSUtils, makeBaseFileName and
# LOG_FILE_PATTERN). A partition is field=value, of several fields one folder each.
RULES = [(re.compile(pattern), short) for pattern, short in (
    (r"(^|/)[^/=]+=", r"\1"),
    (r"__HIVE_DEFAULT_PARTITION__", "(null)"),
    (r"([0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", r"\1…"),
    (r"(…-\d+|\.log\.\d+)_\d+-\d+-\d+", r"\1"),
)]


def short_names(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """A copy of a frame in which the file names and partition paths in these columns are short. What tells versions
    apart is left: where the file group begins, its number, the instant, and of a log its number.

    Of `nationality=American/18b75394-b518-415d-959b-e50fc55f4cdb-3_0-9236-0_20261121215023167.parquet` is left
    `American/18b75394…-3_20261121215023167.parquet`; the partition of null is `(null)`, and what is missing stays so.

    Raises:
        LakeError: the frame has no such column.
    """
    shown = frame.copy()
    for name in columns:
        if name not in frame.columns:
            raise LakeError(f"the frame has no column {name!r}", expected=nearest(name, list(frame.columns)))
        shown[name] = pd.Series([_short(v) for v in frame[name]], index=frame.index, dtype=frame[name].dtype)
    return shown


def _short(value: Any) -> Any:
    if isinstance(value, str):
        for pattern, short in RULES:
            value = pattern.sub(short, value)
    return value


def timeline_steps(table: Table, last: int = 2) -> pd.DataFrame:
    """The files that the last actions left on a table's timeline, in the order in which they were written: instant,
    step, what the file's name ends in. An action is requested (step 1), then inflight (2), then done (3)."""
    steps = {"requested": 1, "inflight": 2}
    rows = sorted((instant, steps.get(ends.rpartition(".")[2], 3), ends) for instant, ends, _ in written(table))
    newest = sorted({instant for instant, _, _ in rows})[-last:]
    return pd.DataFrame([row for row in rows if row[0] in newest], columns=["instant", "step", "file ends in"])


def flattened(event: Dict[str, Any], record: Dict[str, Any], added: str) -> pd.DataFrame:
    """A change event of Debezium beside the flat record that its transform made of it: each field of the envelope with
    its value, and the name and value in the record, empty where it was dropped. Fields of the record that come from
    nowhere in the envelope are the last rows.

    Args:
        added: `add.fields` of the transform. A name without a point is looked for in the envelope, then in its `source`
            (Debezium's documentation, "New Record State Extraction").
    """
    fields = {}
    for name, value in event.items():
        inner = value if isinstance(value, dict) else {}
        fields.update({f"{name}.{k}": v for k, v in inner.items()} if inner else {name: value})
    names = {f"after.{name}": name for name in event["after"]}
    names.update({name if name in fields else f"source.{name}": "__" + name.replace(".", "_")
                  for name in added.split(",")})
    rows = [(path, _said(value), names.get(path, ""), _said(record.get(names[path])) if path in names else "")
            for path, value in fields.items()]
    rows += [("", "", name, _said(value)) for name, value in record.items() if name not in names.values()]
    return pd.DataFrame(rows, columns=["envelope", "value", "flattened", "its value"])


def _said(value: Any) -> str:
    return "null" if value is None else str(value)
