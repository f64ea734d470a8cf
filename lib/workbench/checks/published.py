"""Compare the published configurations, data/reference/<walkthrough>/<part>.json, with ours."""

import json
from fnmatch import fnmatch
from string import Template
from typing import Mapping

import pandas

from ..base import params, paths
from ..connect.configs import placeholders
from . import check

REFERENCE_DIR = paths.ROOT / "data" / "reference"


def compare(
    world: params.World, name: str, config: Mapping[str, str], **variables: str
) -> pandas.DataFrame:
    """Check that a configuration has the documented differences from the published one, and no other.

    Args:
        world: the world.
        name: name of the published configuration, such as "S1/sink_connector".
        config: our configuration. A missing key counts as an empty text.
        variables: values of placeholders `${name}` in the published configuration and in
            data/reference/differences.csv, in addition to connect.placeholders and `${deployment}`.

    Returns:
        The differences of this world: columns key, published, here, and the reason from
        differences.csv.

    Raises:
        CheckFailed: a difference is not in differences.csv, or one in it does not exist.
        FileNotFoundError: there is no such configuration.
    """
    path = REFERENCE_DIR / f"{name}.json"
    values = {"deployment": world.stack.deployment, **placeholders(world), **variables}

    def render(text: str) -> str:
        return Template(text).safe_substitute(values)

    published = pandas.Series(json.loads(path.read_text(encoding="utf-8"))).map(render)
    both = pandas.DataFrame({"published": published, "here": pandas.Series(config)})
    actual = both.fillna("").rename_axis("key").reset_index()

    documented = pandas.read_csv(
        REFERENCE_DIR / "differences.csv", dtype=str, keep_default_na=False
    )
    # `@` in a part of differences.csv: the row applies only to this registry or security protocol
    variants = (name, f"{name}@{world.registry.kind}", f"{name}@{world.kafka.security_protocol}")
    patterns = documented["walkthrough"] + "/" + documented["part"]
    applies = [any(fnmatch(v, pattern) for v in variants) for pattern in patterns]
    documented = documented[applies].filter(["key", "published", "here", "reason"]).map(render)

    actual, documented = (
        frame[frame["published"] != frame["here"]].reset_index(drop=True)
        for frame in (actual, documented)
    )
    check.same_rows(
        documented[actual.columns],
        actual,
        key="key",
        claim=f"differences from {name}",
        lake_label="here",
        source_label="table",
    )
    return documented
