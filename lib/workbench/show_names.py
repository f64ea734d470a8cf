"""Names that Hudi gives to files and partitions, as short as a page needs them. Use it through `show`."""
from __future__ import annotations

import re
from typing import Any

import pandas as pd

from .errors import LakeError, nearest

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
