"""The published configurations beside ours: data/reference/<walkthrough>/<part>.json, and one table
of what differs.
"""

import json
from fnmatch import fnmatch
from string import Template
from typing import Mapping

import pandas

from .. import connect
from ..base import errors, params, paths
from . import check

REFERENCE_DIR = paths.ROOT / "data" / "reference"


def compare(
    world: params.World, name: str, here: Mapping[str, str], **more: str
) -> pandas.DataFrame:
    """Check that a configuration differs from the published one as it is known to, and in nothing
    else.

    Args:
        name: of the published one, such as "S1/sink_connector".
        here: ours. A key that is not there counts as an empty text.
        more: what `${…}` stands for in the published one and in data/reference/differences.csv,
            beside what every world fills in (connect.placeholders) and `${deployment}`.
    Returns: the differences: key, published, here, and the reason that differences.csv gives. What
        is no difference in this world is left out.
    Raises: CheckFailed: a difference without a reason, or a reason for what is no difference.
        WorkbenchError: there is no such configuration.
    """
    path = REFERENCE_DIR / f"{name}.json"
    if not path.is_file():
        names = [f"{p.parent.name}/{p.stem}" for p in REFERENCE_DIR.glob("*/*.json")]
        raise errors.WorkbenchError(
            f"there is no published configuration {name!r}",
            location=f"data/reference/{name}.json",
            expected=errors.did_you_mean(name, names),
        )

    values = {"deployment": world.stack.deployment, **connect.placeholders(world), **more}

    def filled(text: str) -> str:
        return Template(text).safe_substitute(values)

    both = {
        "published": pandas.Series(json.loads(path.read_text(encoding="utf-8"))).map(filled),
        "here": pandas.Series(here),
    }
    seen = pandas.DataFrame(both).fillna("").rename_axis("key").reset_index()
    table = pandas.read_csv(REFERENCE_DIR / "differences.csv", dtype=str, keep_default_na=False)
    which = (name, f"{name}@{world.registry.kind}", f"{name}@{world.kafka.security_protocol}")
    known = (
        table[
            [
                any(fnmatch(one, f"{row.walkthrough}/{row.part}") for one in which)
                for row in table.itertuples()
            ]
        ]
        .filter(["key", "published", "here", "reason"])
        .map(filled)
    )
    seen, known = (
        frame[frame["published"] != frame["here"]].reset_index(drop=True) for frame in (seen, known)
    )
    check.same_rows(
        known[seen.columns],
        seen,
        key="key",
        claim=f"differences from {name}",
        lake_label="here",
        source_label="table",
    )
    return known
