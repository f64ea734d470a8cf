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
    newest = {}
    for ids, v in writes:
        newest.update({id: max(v, newest.get(id, v)) for id in range(*ids)})
    is_composite = kind == "two_keys"
    return [
        [id, f"{id} in {v}", f"id:{id},a:a{id % 2}" if is_composite else str(id)]
        for id, v in sorted(newest.items())
    ]


def on_each(step, *arguments, prefix="", kinds=KINDS):
    """Return the step for each table: of all kinds, or of some."""
    return [[step, kind, f"{prefix}{kind}", *arguments] for kind in kinds]


def test_both_versions_write_and_read_the_same_tables(bundles, tmp_path):
    # (first id and the one behind the last, version of the rows); a late one changes nothing
    first, second, third, late = ((0, 10), 1), ((5, 15), 2), ((12, 16), 3), ((6, 13), 0)
    old, new = bundles.values()
    count = len(KINDS)

    steps = [["bundle"], *on_each("write", *first)]
    steps += [["write", "two_partitions", DAMAGED, *first]]
    assert hudi_spark.run(old, tmp_path, steps) == [old.name, *[""] * (count + 1)]

    writes = [
        *on_each("write", *second),
        *on_each("write", *late),
        *on_each("write", *first, prefix="new_"),
        *on_each("write", *second, prefix="new_"),
        *on_each("write", *late, prefix="new_"),
    ]
    reads = [*on_each("read"), *on_each("read", prefix="new_")]
    compactions = on_each("compact", kinds=MERGE_ON_READ)
    # without the options: refused; and with the refusal switched off, the updated rows are there twice
    damage = [
        ["write", "two_partitions", DAMAGED, *second, list(hudi_spark.KEY_OPTIONS)],
        ["write", "two_partitions", DAMAGED, *second, ["new.encoding"]],
        ["read", "two_partitions", DAMAGED],
    ]
    results = hudi_spark.run(
        new, tmp_path, [["bundle"], *writes, *reads, *compactions, *reads, *damage]
    )
    refusal, accepted, doubled = results[-3:]
    expected = [rows(kind, first, second, late) for kind in KINDS] * 2
    assert results[: 1 + len(writes)] == [new.name, *[""] * len(writes)]
    assert results[1 + len(writes) :][: len(reads)] == expected
    assert results[-3 - len(reads) : -3] == expected
    assert "complex key generator with a single record key" in refusal and "HUDI-7001" in refusal
    assert accepted == "" and len(doubled) == len(range(*first[0])) + len(range(*second[0]))
    assert [key for _, _, key in doubled if ":" in key] == [f"id:{id}" for id in range(*second[0])]

    steps = [*on_each("write", *third), *on_each("write", *late), *on_each("read")]
    expected = [rows(kind, first, second, third) for kind in KINDS]
    assert hudi_spark.run(old, tmp_path, steps) == [*[""] * (2 * count), *expected]
    for kind, stored in zip(KINDS, expected):
        table = hudi_spark.make_table(tmp_path, kind, kind)
        assert hudi.properties(table)["hoodie.table.version"] == "6"
        arrow = hudi.read_arrow(table).to_pylist()
        assert sorted([r["id"], r["text"], r["_hoodie_record_key"]] for r in arrow) == stored

    # docs/limits.md: in a Merge-on-Read table that 1.1.1 has made, 1.0.2 does not find the ordering field, and
    # a late row of a log wins
    found = dict(zip(KINDS, hudi_spark.run(old, tmp_path, on_each("read", prefix="new_"))))
    wrong = {kind for kind in KINDS if found[kind] != rows(kind, first, second, late)}
    assert {"buckets"} <= wrong <= {*MERGE_ON_READ}
