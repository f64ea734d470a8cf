"""Checks: equal by value, red when a row differs, and never unable to fail."""

import datetime as dt
import json
import time
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from workbench.base import params, paths
from workbench.base.errors import CheckFailed, ParamsError, WorkbenchError
from workbench.checks import check, check_values

ROWS = pd.DataFrame(
    {
        "order_id": [10248, 10249, 11077],
        "customer_id": ["VINET", "TOMSP", "RATTC"],
        "freight": [32.38, 11.61, 8.53],
        "shipped_date": [dt.date(1996, 7, 16), dt.date(1996, 7, 10), None],
        "items": ['[{"q": 12, "p": 14.0}]', "[]", None],
    }
)


def other(**columns):
    return ROWS.copy().assign(**columns)


@pytest.mark.parametrize(
    "lake",
    [
        ROWS.copy(),
        ROWS.iloc[::-1].reset_index(drop=True),
        ROWS[ROWS.columns[::-1]].copy(),
        other(order_id=[Decimal(10248), Decimal("10249.0"), Decimal(11077)]),
        other(freight=[Decimal("32.38"), Decimal("11.610"), Decimal("8.53")]),
        other(freight=np.array([32.38, 11.61, 8.53], dtype=np.float32)),
        other(shipped_date=pd.to_datetime(["1996-07-16", "1996-07-10", None])),
        other(shipped_date=pd.to_datetime(["1996-07-16", "1996-07-10", None]).tz_localize("UTC")),
        other(items=[[{"p": 14, "q": 12}], np.array([]), float("nan")]),
        other(items=['[{"p":14.0,"q":12}]', "[ ]", pd.NA]),
    ],
)
def test_same_rows_compares_by_value(lake, capsys):
    check.same_rows(ROWS, lake, "order_id", "orders")
    shown = "✔ orders: lake 3 rows × 5 columns, no value differs · source 3 rows × 5 columns"
    assert capsys.readouterr().out.startswith(shown)


@pytest.mark.parametrize(
    "lake, names",
    [
        (ROWS.iloc[:2], "order_id=11077: missing in lake"),
        (pd.concat([ROWS, other(order_id=[1, 2, 3])]), "order_id=1: not in source"),
        (pd.concat([ROWS, ROWS.iloc[:1]]), "order_id=10248: 2 rows in lake"),
        (
            other(freight=[32.38, 11.61, 8.530001]),
            "order_id=11077, freight: lake 8.530001, source 8.53",
        ),
        (
            other(customer_id=["VINET", "tomsp", "RATTC"]),
            "order_id=10249, customer_id: lake 'tomsp', source 'TOMSP'",
        ),
        (
            other(shipped_date=[dt.date(1996, 7, 16), dt.date(1996, 7, 10), dt.date(1998, 6, 15)]),
            "order_id=11077, shipped_date: lake 1998-06-15, source None",
        ),
        (other(items=['[{"q": 12, "p": 14.5}]', "[]", None]), "order_id=10248, items"),
        (
            other(items=['[{"q": 12, "p": 14.0}]', "", None]),
            "order_id=10249, items: lake '', source '[]'",
        ),
        (other(freight=["32.38", "11.61", "8.53"]), "order_id=10248, freight"),
        (other(freight=[32.38, 11.61, np.nan]), "order_id=11077, freight: lake nan, source 8.53"),
        (other(extra=1), "column extra: only in lake"),
        (ROWS.drop(columns="items"), "column items: only in source"),
    ],
)
def test_same_rows_names_what_differs(lake, names, capsys):
    with pytest.raises(CheckFailed, match="check failed: orders") as e:
        check.same_rows(ROWS, lake, "order_id", "orders")
    assert names in str(e.value)
    assert capsys.readouterr().out.startswith("✘ orders")  # the red line comes before the exception


@pytest.mark.parametrize(
    "lake, names",
    [
        (np.array(["a", "c"], dtype=object), "id=1, tags: files ['a', 'c'], table ['a', 'b']"),
        (np.array([], dtype=object), "id=1, tags: files none, table ['a', 'b']"),
        (["a", None], "id=1, tags: files ['a', None], table ['a', 'b']"),
        (None, "id=1, tags: files None, table ['a', 'b']"),
    ],
)
def test_an_array_that_differs_is_named(lake, names):
    rows = pd.DataFrame({"id": [1], "tags": [["a", "b"]]})
    with pytest.raises(CheckFailed) as e:
        check.same_rows(
            rows,
            rows.assign(tags=pd.Series([lake], dtype=object)),
            "id",
            lake_label="files",
            source_label="table",
        )
    assert names in str(e.value)


def test_the_labels_given_stand_in_the_detail_too():
    files, topic = ROWS.iloc[1:].assign(extra=1), ROWS.iloc[:2]
    with pytest.raises(CheckFailed, match="column extra: only in files"):
        check.same_rows(topic, files, "order_id", lake_label="files", source_label="topic")
    with pytest.raises(CheckFailed) as e:
        check.same_rows(topic, ROWS.iloc[1:], "order_id", lake_label="files", source_label="topic")
    assert "order_id=10248: missing in files" in str(
        e.value
    ) and "order_id=11077: not in topic" in str(e.value)


def test_a_blank_at_the_end_is_seen():
    with pytest.raises(CheckFailed) as e:
        check.same_rows(ROWS, other(customer_id=["VINET ", "TOMSP", "RATTC"]), "order_id")
    assert "lake 'VINET ', source 'VINET'" in str(e.value)
    with pytest.raises(CheckFailed) as e:
        check.same_rows(ROWS, other(customer_id=["VINET ", "TOMSP", "RATTC"]), "customer_id")
    assert "customer_id='VINET ': not in source" in str(e.value)
    for left, right, says in (
        ("RICSU ", "RICSU", "source 'RICSU', but lake 'RICSU '"),
        ({"RICSU "}, {"RICSU"}, "source 'RICSU', but lake 'RICSU '"),
        ({"id": "RICSU "}, {"id": "RICSU"}, "source 'id': 'RICSU', but lake 'id': 'RICSU '"),
    ):
        with pytest.raises(CheckFailed) as e:
            check.equal("customer", left, right)
        assert says in str(e.value)


def test_a_missing_whole_number_is_named():
    years = pd.DataFrame({"id": [1], "born": pd.array([1906], dtype="Int64")})
    with pytest.raises(CheckFailed, match="id=1, born: lake <NA>, source 1906"):
        check.same_rows(years, years.assign(born=pd.array([None], dtype="Int64")), key="id")


@pytest.mark.parametrize(
    "source, lake",
    [
        ([1, 0, 1], [True, False, True]),
        ([2**53 + 1, 1, 1], [float(2**53), 1.0, 1.0]),
        ([0.1234567890123, 1, 2], np.array([0.1234567890123, 1, 2], dtype=np.float32)),
    ],
)
def test_numbers_that_only_look_equal_differ(source, lake):
    with pytest.raises(CheckFailed, match="order_id=10248, freight"):
        check.same_rows(other(freight=source), other(freight=lake), "order_id")


def test_five_rows_are_named_and_the_rest_counted(capsys):
    source = pd.DataFrame({"id": range(100), "v": range(100)})
    with pytest.raises(CheckFailed) as e:
        check.same_rows(source, source.assign(v=-1), "id")
    assert "id=4, v: lake -1, source 4" in str(e.value) and "id=5" not in str(e.value)
    assert "… and 95 more" in str(e.value)
    assert "lake 100 rows × 2 columns, 100 differences · source" in capsys.readouterr().out


def test_keys_of_several_columns():
    source = pd.DataFrame({"order_id": [1, 1, 2], "product_id": [1, 2, 1], "q": [5, 6, 7]})
    check.same_rows(source, source.astype({"order_id": float}), ["order_id", "product_id"])
    with pytest.raises(CheckFailed, match="order_id=1, product_id=2, q: lake 60, source 6"):
        check.same_rows(source, source.assign(q=[5, 60, 7]), ["order_id", "product_id"])


def test_a_check_that_cannot_fail_is_refused():
    with pytest.raises(CheckFailed, match="both sides are empty"):
        check.same_rows(ROWS[:0], ROWS[:0].copy(), "order_id")
    with pytest.raises(CheckFailed, match="same object"):
        check.same_rows(ROWS, ROWS, "order_id")
    check.same_rows(ROWS[:0], ROWS[:0].copy(), "order_id", allow_empty=True)


def test_200_000_rows_take_less_time_than_twice_their_text():
    """Some two seconds on a quiet machine. Processor time, of both in one run: other tests may
    share the machine."""
    n = 200_000
    source = pd.DataFrame(
        {
            "id": np.arange(n),
            "name": [f"name {i}" for i in range(n)],
            "price": np.arange(n) / 7,
            "when": pd.date_range("2020-01-01", periods=n, freq="min"),
            "note": [None, "x"] * (n // 2),
        }
    )
    lake = source.sample(frac=1, random_state=1).reset_index(drop=True)
    lake.loc[lake.id == 137_000, "name"] = "other"
    began = time.process_time()
    assert (
        len(
            [
                str(row)
                for frame in (source, lake)
                for row in frame.itertuples(index=False, name=None)
            ]
        )
        == 2 * n
    )
    baseline, began = time.process_time() - began, time.process_time()
    with pytest.raises(CheckFailed, match="id=137000, name: lake 'other', source 'name 137000'"):
        check.same_rows(source, lake, "id")
    assert time.process_time() - began < 2 * baseline


@pytest.mark.parametrize("make", [list, tuple, set, lambda values: dict(enumerate(values))])
def test_numbers_of_numpy_in_a_collection_are_shown_as_numbers(make, capsys):
    check.equal("sizes", make([np.int64(831), np.float64(0.5)]), make([831, 0.5]))
    assert "np." not in capsys.readouterr().out


def test_equal():
    check.equal("orders", 829, np.int64(829))
    check.equal("revenue", Decimal("498.10"), 498.1)
    with pytest.raises(CheckFailed, match="source 829, but lake 828"):
        check.equal("orders", 828, 829)
    with pytest.raises(WorkbenchError, match="single values"):
        check.equal("orders", ROWS, ROWS)


def test_arrays_are_values_like_lists(capsys):
    check.equal("items", np.array([1, 2]), [1, 2])
    assert capsys.readouterr().out == "✔ items: lake [1, 2] · source [1, 2]\n"
    for left, right, says in (
        (np.array([1, 2]), [1, 3], "source [1, 3], but lake [1, 2]"),
        (np.array([1, 2]), 1, "source 1, but lake [1, 2]"),
    ):
        with pytest.raises(CheckFailed) as e:
            check.equal("items", left, right)
        assert says in str(e.value)
    with pytest.raises(CheckFailed, match=r"but actual \[1, 2\]"):
        check.true("one item", False, np.array([1, 2]))
    with pytest.raises(CheckFailed, match=r"no failure, returned \[1, 2\]"):
        check.expect_failure("refused", lambda: np.array([1, 2]))


@pytest.mark.parametrize(
    "value, said",
    [
        ({441}, "441"),
        ({"20211230"}, "'20211230'"),
        ({""}, "''"),
        ({"r": 150}, "'r': 150"),
        ({0, 1}, "{0, 1}"),
        (set(), "none"),
        ([1], "[1]"),
        ({"ro": 1, "rt": 0}, "{'ro': 1, 'rt': 0}"),
    ],
)
def test_a_collection_of_one_is_shown_without_brackets(value, said, capsys):
    check.equal("keys", value, value)
    assert f"lake {said} · source {said}" in capsys.readouterr().out


def test_two_sides_that_read_alike_and_differ_say_how():
    with pytest.raises(CheckFailed, match="lake: set, source: int"):
        check.equal("keys", {441}, 441)


def test_true_takes_only_a_bool():
    check.true("shipped", np.bool_(True), actual="1998-06-15")
    with pytest.raises(CheckFailed, match="but actual 0 rows"):
        check.true("shipped", False, actual="0 rows")
    for condition in (lambda: False, (False, "why"), [False], "no"):
        with pytest.raises(WorkbenchError, match="the condition is of type"):
            check.true("shipped", condition)


@pytest.fixture
def reference_table(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    path = tmp_path / "data" / "reference" / "S1" / "orders.csv"
    path.parent.mkdir(parents=True)
    ROWS.to_csv(path, index=False)
    return path


def test_reference(reference_table):
    check.reference("S1/orders", ROWS)
    check.reference(
        "S1/orders", other(freight=[Decimal("32.38"), Decimal("11.61"), Decimal("8.53")])
    )
    texts = other(customer_id=["007", "n/a", "RATTC"])
    texts.to_csv(reference_table, index=False)
    check.reference("S1/orders", texts)
    ROWS.to_csv(reference_table, index=False)
    with pytest.raises(CheckFailed, match="row=1, customer_id: actual 7, reference 'VINET'"):
        check.reference("S1/orders", other(customer_id=[7, 8, 9]))
    with pytest.raises(CheckFailed, match="row=3, freight: actual 8.54, reference 8.53"):
        check.reference("S1/orders", other(freight=[32.38, 11.61, 8.54]))
    with pytest.raises(CheckFailed, match="row=1, order_id"):
        check.reference("S1/orders", ROWS.iloc[::-1])
    with pytest.raises(CheckFailed, match="row=3: missing in actual"):
        check.reference("S1/orders", ROWS[:2])
    with pytest.raises(CheckFailed, match="columns: actual"):
        check.reference("S1/orders", ROWS[ROWS.columns[::-1]])


def test_reference_that_is_missing_or_empty(reference_table):
    with pytest.raises(WorkbenchError, match="to_csv"):
        check.reference("S1/absent", ROWS)
    ROWS[:0].to_csv(reference_table, index=False)
    with pytest.raises(CheckFailed, match="both sides are empty"):
        check.reference("S1/orders", ROWS[:0])


def test_eventually(capsys):
    answers = iter([0, 0, 829])
    assert check.eventually("829 messages", lambda: next(answers), interval=0.01) == 829
    with pytest.raises(CheckFailed, match="condition still false"):
        check.eventually("a message", lambda: False, timeout=0.05, interval=0.01)
    assert "✘ a message: actual not yet" in capsys.readouterr().out
    began = time.monotonic()
    with pytest.raises(CheckFailed, match="its task 0 is FAILED"):
        check.eventually("a message", lambda: False, failure_reason=lambda: "its task 0 is FAILED")
    assert time.monotonic() - began < 5


def test_expect_failure(capsys):
    e = check.expect_failure(
        "no such world", lambda: params.load("locale"), error=ParamsError, contains="no world"
    )
    assert isinstance(e, ParamsError) and "did you mean 'local'" in capsys.readouterr().out
    with pytest.raises(CheckFailed, match="no failure, returned 3"):
        check.expect_failure("fails", lambda: 3)
    with pytest.raises(
        CheckFailed, match="expected ParamsError, but failed with ZeroDivisionError"
    ):
        check.expect_failure("fails", lambda: 1 / 0, error=ParamsError)
    with pytest.raises(CheckFailed, match="whose message contains 'mars'"):
        check.expect_failure("fails", lambda: params.load("locale"), contains="mars")


def test_an_expected_red_line_is_not_shown(capsys):
    check.expect_failure(
        "a lost row is seen",
        lambda: check.equal("orders", 828, 829),
        contains="828",
    )
    out = capsys.readouterr().out
    assert out.startswith("✔ a lost row is seen") and "✘" not in out
    check.equal("orders", 829, 829)
    assert capsys.readouterr().out.startswith("✔ orders")


def test_notebook_shows_a_bundle_with_both_sides(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: object())
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: shown.append(bundle))
    with pytest.raises(CheckFailed):
        check.equal("<orders>", 828, 829)
    line = shown[0][check.MIME]
    assert json.loads(json.dumps(line)) == line
    assert (line["ok"], line["left"], line["right"], line["left_label"]) == (
        False,
        "828",
        "829",
        "lake",
    )
    assert "&lt;orders&gt;: " in shown[0]["text/html"] and "✘" in shown[0]["text/plain"]


def test_own_data_that_differ_from_what_was_published_are_shown(
    reference_table, capsys, monkeypatch
):
    """Neither red nor green: nothing is raised, `ok` is null, and the line says why. What is equal
    stays green."""
    for claim in (
        lambda own: check.equal("title", "Toro", "Picador", "source", "stated", custom_data=own),
        lambda own: check.true("84 rows", False, "97", custom_data=own),
        lambda own: check.reference("S1/orders", ROWS[:1], custom_data=own),
    ):
        claim("/my/data")
        shown = capsys.readouterr().out
        assert (
            shown.startswith("≠ ")
            and "shown, not raised: the data are your own, from /my/data" in shown
        )
        with pytest.raises(CheckFailed):
            claim("")
        assert capsys.readouterr().out.startswith("✘ ")
    check.equal("title", "Picador", "Picador", custom_data="/my/data")
    assert capsys.readouterr().out == "✔ title: lake Picador · source Picador\n"
    bundles = []
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: object())
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: bundles.append(bundle))
    check.equal("title", "Toro", "Picador", custom_data="/my/data")
    assert bundles[0][check.MIME]["ok"] is None and "≠" in bundles[0]["text/html"]


def test_a_big_collection_is_counted_on_its_sides_and_shown_once(capsys):
    folders = {f"customer_id={n:05}" for n in range(829)}
    check.equal("folders", folders, set(folders), "files", "source")
    line, once = capsys.readouterr().out.splitlines()
    assert (
        line == "✔ folders: files 829 values · source 829 values"
        and once.count("customer_id=00000") == 1
    )
    check.equal("file", {"x" * 61}, {"x" * 61})
    assert capsys.readouterr().out.startswith("✔ file: lake 1 value · source 1 value\n")
    check.equal("items", [1, 2, 3], [1, 2, 3])  # a small one stands on both sides
    assert capsys.readouterr().out == "✔ items: lake [1, 2, 3] · source [1, 2, 3]\n"


def test_evidence_lists_the_first_elements_and_counts_the_others(capsys):
    check.equal("customers", set(range(1800)), set(range(1800)))
    line, detail = capsys.readouterr().out.splitlines()
    assert line == "✔ customers: lake 1,800 values · source 1,800 values"
    assert detail.endswith("… and 1,788 more}") and len(detail) < 100
    check.equal("offsets", list(range(13)), list(range(13)))
    assert "lake 13 values" in capsys.readouterr().out


@pytest.mark.parametrize(
    "value, text",
    [
        ({"at": pd.Timestamp("2017-02-15 09:45:30"), "day": pd.Timestamp("2017-02-15")},
         "{'at': 2017-02-15 09:45:30, 'day': 2017-02-15 00:00:00}"),
        ((np.int64(1), Decimal("2.50"), np.float64(0.5)), "(1, 2.50, 0.5)"),
        ([(np.int32(1), dt.date(2026, 1, 2)), (None, True)], "[(1, 2026-01-02), (None, true)]"),
    ],
)  # fmt: skip
def test_evidence_has_no_types_of_python(value, text):
    assert check_values.format_value(value) == text


@pytest.mark.parametrize(
    "left, right, says",
    [
        (
            {f"order {n}" for n in range(20)},
            {f"order {n}" for n in range(21)},
            "only source: 'order 20'",
        ),
        (
            list(range(40)),
            [*range(30), 99, *range(31, 40)],
            "only source: position 31: 99",
        ),
        (list(range(40)), list(range(39)), "only lake: position 40: 39"),
        (
            {"table.type": "COPY_ON_WRITE", "key": "order_id" * 9},
            {"table.type": "MERGE_ON_READ", "key": "order_id" * 9},
            "only source: 'table.type': 'MERGE_ON_READ'",
        ),
    ],
)
def test_what_differs_in_a_big_collection_is_named(left, right, says):
    with pytest.raises(CheckFailed) as e:
        check.equal("both", left, right)
    assert says in str(e.value)


def test_true_says_what_was_expected(capsys):
    check.true("memory", True, actual="999 MB", expected="below 6,144 MB")
    assert capsys.readouterr().out == "✔ memory: actual 999 MB · expected below 6,144 MB\n"
    with pytest.raises(CheckFailed, match="expected below 6,144 MB, but actual 7,000 MB"):
        check.true("memory", False, actual="7,000 MB", expected="below 6,144 MB")
    with pytest.raises(CheckFailed, match="expected yes, but actual no"):
        check.true("memory", False)


# --- instants that one side has as texts
# ------------------------------------------------------------------------------

ZONED = pd.DataFrame(
    {
        "id": [1, 2, 3],
        "at": pd.Series(
            ["2024-02-29T10:00:00.5Z", None, "2024-03-01T00:00:00Z"], dtype="datetime64[ns, UTC]"
        ),
    }
)
AS_TEXT = ZONED.assign(at=["2024-02-29T10:00:00.500000Z", None, "2024-03-01T01:00:00+01:00"])


@pytest.mark.parametrize("source, lake", [(ZONED, AS_TEXT), (AS_TEXT, ZONED)])
def test_a_text_with_a_zone_is_the_instant_that_the_other_side_has(source, lake):
    check.same_rows(source, lake, "id")
    check.same_rows(source[source.id != 2], lake[lake.id != 2], "at")


@pytest.mark.parametrize(
    "text", ["2024-02-29T10:00:00.6Z", "2024-02-29T10:00:00.5", "infinity", ""]
)
def test_another_instant_or_no_instant_is_a_difference(text):
    with pytest.raises(CheckFailed, match="id=1, at"):
        check.same_rows(ZONED, AS_TEXT.assign(at=[text, *AS_TEXT["at"][1:]]), "id")


def test_keys_of_different_types_are_seen_side_by_side():
    source, lake = (
        pd.DataFrame({"id": range(1000)}),
        pd.DataFrame({"id": list(map(str, range(1000)))}),
    )
    with pytest.raises(CheckFailed, match=r"id=0: missing in lake\n +id='0': not in source"):
        check.same_rows(source, lake, "id")
