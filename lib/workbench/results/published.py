"""The published configurations beside ours: data/reference/<walkthrough>/<part>.json, and one table of what differs."""
from __future__ import annotations

import csv
import json
import re
from fnmatch import fnmatch
from typing import Mapping, Tuple

import pandas

from .. import connect
from ..base.errors import WorkbenchError, nearest
from ..base.params import World
from ..base.paths import ROOT
from . import check

REFERENCE = ROOT / "data" / "reference"
COLUMNS = ["key", "published", "here"]


def compare(world: World, name: str, here: Mapping[str, str], **more: str) -> pandas.DataFrame:
    """Check that a configuration differs from the published one as it is known to, and in nothing else.

    Args: as of `against`.
    Returns: the differences: key, published, here, reason.
    Raises: CheckFailed: a difference without a reason, or a reason for what is no difference. WorkbenchError: there is
        no such configuration.
    """
    seen, known = against(world, name, here, **more)
    check.same_rows(known[COLUMNS], seen, key="key", what=f"differences from {name}", lake_label="here",
                    source_label="table")
    return known


def against(world: World, name: str, here: Mapping[str, str], **more: str) -> Tuple[pandas.DataFrame, pandas.DataFrame]:
    """Return how a configuration differs from the published one, and how it is known to differ.

    Args:
        name: of the published one, such as "S1/sink_connector".
        here: ours. A key that is not there counts as an empty text.
        more: what `${…}` stands for in the published one and in data/reference/differences.csv, beside what every
            world fills in (connect.placeholders).
    Returns: two frames that should hold the same: key, published and here of each difference; the second, from
        differences.csv, has the reason, too. What is no difference in this world is left out of both.
    Raises: WorkbenchError: there is no such configuration.
    """
    path = REFERENCE / f"{name}.json"
    if not path.is_file():
        names = [f"{p.parent.name}/{p.stem}" for p in REFERENCE.glob("*/*.json")]
        raise WorkbenchError(f"there is no published configuration {name!r}", where=f"data/reference/{name}.json",
                             expected=nearest(name, names))
    fill = {**connect.placeholders(world), **more}

    def filled(text: str) -> str:
        return re.sub(r"\$\{(\w+)\}", lambda match: fill.get(match[1], match[0]), text)

    theirs = {key: filled(value) for key, value in json.loads(path.read_text(encoding="utf-8")).items()}
    seen = [(key, theirs.get(key, ""), here.get(key, "")) for key in {**theirs, **here}]
    with open(REFERENCE / "differences.csv", encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if fnmatch(name, f"{row['walkthrough']}/{row['part']}")]
    known = [(row["key"], filled(row["published"]), filled(row["here"]), row["reason"]) for row in rows]
    return (pandas.DataFrame([row for row in seen if row[1] != row[2]], columns=COLUMNS),
            pandas.DataFrame([row for row in known if row[1] != row[2]], columns=[*COLUMNS, "reason"]))
