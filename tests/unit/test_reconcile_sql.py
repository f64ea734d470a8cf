"""The text of a row identifies its values, and the parts of a reconciliation that need no service."""

import itertools

import pandas
import pyarrow
import pytest
from workbench import hudi, operate
from workbench.base import LakeError, params
from workbench.flow import reconcile_sql, reconciling
from worlds import with_settings

TEXTS = [None, "", "!", "|", "!n", "!e", "!p", "||", "a", "a|", "|a", "n", "!|"]


def side(columns, key=("id",), version="''", place="''"):
    rows = pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})
    kinds = {name: rows.schema.field(name).type for name in columns if name[0] != "_"}
    return reconciling.in_memory(rows, kinds, key, version, place)


def test_rows_with_other_values_have_other_hashes():
    pairs = [*itertools.product(TEXTS, TEXTS)]
    rows = side({"id": range(len(pairs)), "a": [a for a, _ in pairs], "b": [b for _, b in pairs]})
    without_id = reconcile_sql.Side(
        rows.dialect, rows.rows, {n: rows.columns[n] for n in "ab"}, ["a"], rows.run
    )
    sums = without_id.sums("id")  # of one row each
    assert len({total for _, total, _ in sums.values()}) == len(pairs)


def test_lists_with_other_items_have_other_texts():
    lists = [None, [], [None], [""], ["|"], ["", ""], ["a", "b"], ["a|b"], ["!n"], [None, None]]
    texts = side({"id": range(len(lists)), "v": lists}).texts("true")
    assert len({rows[0]["v"] for rows in texts.values()}) == len(lists)


def test_a_range_has_the_keys_between_its_bounds():
    rows = side({"id": [-(2**63), -5, 0, 2**63 - 1]})
    low, high = rows.bounds()
    width = (high - low) // 4 + 1
    parts = rows.sums(rows.range_number(low, width))
    assert {part: n for part, (n, *_) in parts.items()} == {0: 1, 1: 1, 2: 1, 3: 1}
    named = side({"id": ["a", None]})
    assert named.bounds() == [0, 2**60] and len(named.sums(named.number)) == 2


def test_what_differs_is_found_by_number_of_rows_and_sum():
    source = {1: (1, "7", ""), 2: (1, "7", ""), 3: (1, "7", ""), 4: (1, "7", "")}
    lake = {1: (1, "7", "x"), 2: (1, "8", "x"), 3: (2, "14", "x"), 5: (1, "7", "x")}
    pairs = reconciling._differing(source, lake)
    assert {key: reconciling._kind(*pair) for key, pair in pairs.items()} == {
        2: "different",
        3: "duplicate in the lake",
        4: "missing in the lake",
        5: "extra in the lake",
    }


@pytest.mark.parametrize(
    ("path", "is_wrong"),
    [
        ("region=a%2Fb c/n=3", False),
        ("region=a%2Fb c/n=4", True),
        ("region=__HIVE_DEFAULT_PARTITION__/n=3", True),
    ],
)
def test_a_partition_that_is_not_that_of_the_values_is_found(path, is_wrong):
    table = hudi.Table("t", "/t", ("id",), "v", ("region", "n"), index="GLOBAL_SIMPLE")
    kinds = {"region": pyarrow.string(), "n": pyarrow.int32()}
    place = reconciling._wrong_partition(table, kinds)
    rows = side(
        {"id": [1], "region": ["a/b c"], "n": [3], "_hoodie_partition_path": [path]}, place=place
    )
    assert rows.texts("true")[1][0]["(partition)"] == (path if is_wrong else "")


def result(**changed):
    fields = {
        "table": "trips",
        "position": "0/1",
        "instant": "20260101000000000",
        "rows": (3, 2),
        "counts": {"missing in the lake": 1},
        "differences": pandas.DataFrame({"key": ["<b>"], "source": ["1"]}),
        "excluded": 0,
        "undecided": 0,
        "not_compared": [],
        "seconds": 0.25,
    }
    return operate.Reconciliation(**{**fields, **changed})


def test_a_result_is_shown_and_stored(tmp_path):
    names = ("tables", "checkpoints", "dead_letters")
    roots = {name: f"file:{tmp_path}/{name}" for name in names}
    world = with_settings(params.load("local"), lake=roots)
    table = hudi.table(world, "trips", database="bikes", key=("id",), ordering="v")
    assert operate.last_reconciliation(world, table) is None
    different = result()
    assert "&lt;b&gt;" in different._repr_html_() and "<b>" in repr(different)
    many = pandas.DataFrame({"key": range(1000, 1025)})
    lines = repr(result(differences=many, counts={"different": 25})).splitlines()
    assert len(lines) == 23 and "25 different" in lines[0] and "first 20 of 25" in lines[-1]
    assert "1 missing in the lake" in different.title and not different.is_equal
    assert not result(counts={}, undecided=1).is_equal
    different.save(world, table)
    last = operate.last_reconciliation(world, table)
    assert (last["is_equal"], last["differences"], last["rows"]) == (False, 1, [3, 2])
    assert "<b>" not in str(last)
    (path,) = tmp_path.rglob("reconciliation.json")
    for damaged in (path.read_bytes()[:20], b"", b"[1]", b"null", b"{}", b"\xff"):
        path.write_bytes(damaged)
        with pytest.raises(LakeError, match="delete the file"):
            operate.last_reconciliation(world, table)
    hudi.drop(None, world, table)
    assert operate.last_reconciliation(world, table) is None
