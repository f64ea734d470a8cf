"""The options of the library on Hudi 1.1.1, which EMR Spark 8.1 and Glue 6.0 have, with the Spark of this workbench.

Those have Spark 4.1, which is not tested here (docs/limits.md).
"""

from pathlib import Path
from unittest import mock

import hudi_spark
import pytest
from workbench import hudi
from workbench.stack import artifacts

pytestmark = pytest.mark.drill  # three starts of Spark, and a download of 80 MB

PINS = Path(__file__).with_name("hudi_next.lock")
KINDS = sorted(hudi_spark.KINDS)
MERGE_ON_READ = [kind for kind in KINDS if hudi_spark.KINDS[kind].get("type") == "mor"]
DAMAGED = "without_options"


@pytest.fixture(scope="module")
def bundles():
    """Return {version: jar} of the pinned Hudi and of 1.1.1, which is fetched."""
    artifacts.install()
    (pinned,) = [a for a in artifacts.locked_artifacts() if a.name.startswith("hudi-spark")]
    with mock.patch.object(artifacts, "LOCK", PINS):
        artifacts.install()
        (following,) = artifacts.locked_artifacts()
        return {pinned.rev: pinned.path, following.rev: following.path}


def rows(kind, *writes):
    """Return what these writes make of an empty table: [id, text, key as 1.0.2 stores it]."""
    newest = {id: v for ids, v in writes for id in range(*ids)}
    is_composite = kind == "two_keys"
    return [
        [id, f"{id} in {v}", f"id:{id},a:a{id % 2}" if is_composite else str(id)]
        for id, v in sorted(newest.items())
    ]


def test_both_versions_write_and_read_the_same_tables(bundles, tmp_path):
    # the ids of the rows, and their version
    first, second, third = ((0, 10), 1), ((5, 15), 2), ((12, 16), 3)
    old, new = bundles.values()

    def on_each(step, *arguments, kinds=KINDS):
        return [[step, kind, kind, *arguments] for kind in kinds]

    loaded = hudi_spark.run(
        old,
        tmp_path,
        [
            ["version"],
            *on_each("write", *first),
            ["write", "two_partitions", DAMAGED, *first],
        ],
    )
    assert loaded == ["1.0.2", *[""] * (len(KINDS) + 1)]

    steps = [
        ["version"],
        *on_each("write", *second),
        *on_each("read"),
        *on_each("compact", kinds=MERGE_ON_READ),
        *[["write", kind, f"new_{kind}", *first] for kind in KINDS],
        *[["write", kind, f"new_{kind}", *second] for kind in KINDS],
        *[["read", kind, f"new_{kind}"] for kind in KINDS],
        # without the options: refused; and with the refusal switched off, the updated rows are there twice
        ["write", "two_partitions", DAMAGED, *second, list(hudi_spark.KEY_OPTIONS)],
        ["write", "two_partitions", DAMAGED, *second, ["new.encoding"]],
        ["read", "two_partitions", DAMAGED],
    ]
    version, *results = hudi_spark.run(new, tmp_path, steps)
    assert version == "1.1.1"
    *results, refusal, unrefused, doubled = results
    expected = [rows(kind, first, second) for kind in KINDS]
    count = len(KINDS)
    assert results[:count] == [""] * count
    assert results[count : 2 * count] == expected
    assert results[-3 * count : -count] == [""] * (2 * count)
    assert results[-count:] == expected
    assert "complex key generator with a single record key" in refusal and "HUDI-7001" in refusal
    assert unrefused == ""
    assert [key for _, _, key in doubled if ":" in key] == [f"id:{id}" for id in range(*second[0])]
    assert len(doubled) == len(range(*first[0])) + len(range(*second[0]))

    last = hudi_spark.run(old, tmp_path, [*on_each("write", *third), *on_each("read")])
    assert last == [""] * count + [rows(kind, first, second, third) for kind in KINDS]
    for kind in KINDS:
        table = hudi_spark.make_table(tmp_path, kind, kind)
        assert hudi.properties(table)["hoodie.table.version"] == "6"
        arrow = hudi.read_arrow(table).to_pylist()
        assert (
            sorted([r["id"], r["text"], r["_hoodie_record_key"]] for r in arrow)
            == last[count + KINDS.index(kind)]
        )
