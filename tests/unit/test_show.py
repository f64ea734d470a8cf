"""Display helpers: what they show is complete, and text from data stays text."""

import re
from decimal import Decimal

import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from workbench import params
from workbench.base.errors import LakeError
from workbench.display import show


def test_json_is_folded_and_escaped():
    shown = show.json('{"a": "<b>"}').data
    assert "<details>" in shown and "&lt;b&gt;" in shown and "<b>" not in shown
    assert "<details>" not in show.json({"a": 1}, folded=False).data


def test_table_says_how_many_rows_there_are():
    shown = show.table(pd.DataFrame({"a": range(50), "b": "<i>"}), "<Orders>", limit=5).data
    assert "first 5 of 50 rows" in shown and "&lt;Orders&gt;" in shown and "<i>" not in shown


def test_tree_lists_files_with_sizes(tmp_path):
    for name in (
        "a=1/b=2/one.json",
        "a=1/b=3/two.json",
        "a=2/three.json",
        ".hoodie/hidden",
        "a=2/.three.json.crc",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * 1500)
    shown = show.tree(f"file:{tmp_path}").data
    assert "  a=1/\n    b=2/\n      one.json  (1.5 kB)\n    b=3/\n      two.json" in shown
    assert "hidden" not in shown and "crc" not in shown and "3 files, 4.5 kB" in shown
    assert "… and 2 more" in show.tree(str(tmp_path), limit=1).data
    both_ends = show.tree(str(tmp_path), limit=1, last=1).data
    assert (
        "one.json  (1.5 kB)\n  … and 1 more\n  a=2/\n    three.json  (1.5 kB)\n3 files" in both_ends
    )
    assert show.tree(str(tmp_path), limit=2, last=2).data == shown
    with pytest.raises(LakeError, match="no such folder"):
        show.tree(f"file:{tmp_path}/absent")


def cells(shown):
    return re.findall(r"<td[^>]*>(.*?)</td>", shown)


def sides(shown, tag="td"):
    """The sides at which cells stand, as the table's own style has it: to the left where it does
    not name them."""
    assert re.search(r"#T_\w+ +td \{\s*text-align: left;", shown)
    right = re.findall(r"#T_\w+ \.(col\d+) \{\s*text-align: right;", shown)
    return [
        "right" if any(name in right for name in names.split()) else "left"
        for names in re.findall(f'<{tag} [^>]*class="([^"]*)"', shown)
    ]


GREY_NULL = "<span style='color:#8A9099'>null</span>"


def test_whole_numbers_are_whole_and_what_is_missing_is_a_grey_null():
    frame = pd.DataFrame(
        {
            "order_id": pd.array([11075, None], dtype="Int64"),
            "shipped_date": [10392.0, None],
            "region": ["", "<b>"],
            "freight": [14.0, 110184.2],
            "lsn": [27189760, 27136440],
            "items": [None, [{"q": 1}]],
        }
    )
    assert cells(show.table(frame).data) == [
        "11075",
        "10392",
        "",
        "14.0",
        "27189760",
        GREY_NULL,
        GREY_NULL,
        GREY_NULL,
        "&lt;b&gt;",
        "110184.2",
        "27136440",
        "[{&#34;q&#34;: 1}]",
    ]
    assert "overflow-x:auto" in show.table(frame).data
    assert "no rows" in show.table(frame[:0]).data
    assert cells(show.table(pd.DataFrame({"said": ["null", None]})).data) == ["null", GREY_NULL]


def test_numbers_stand_to_the_right_with_their_heading_and_everything_else_to_the_left():
    frame = pd.DataFrame(
        {
            "year": [1906.0, None],
            "date": ["1906", "1907"],
            "flag": [True, False],
            "price": [Decimal("0E-2"), None],
            "mixed": [1, "x"],
            "none": [None, None],
        }
    )
    right = ["right", "left", "left", "right", "left", "left"]
    shown = show.table(frame).data
    assert sides(shown) == right * 2 and sides(shown, "th") == right
    assert cells(shown)[3] == "0.00"
    named = show._dataframe_html(frame.set_axis(["a", "b"]))  # the rows' names read from the left
    assert sides(named) == right * 2 and sides(named, "th") == ["left", *right, "left", "left"]
    assert set(sides(show.row(frame).data)) == {"left"}


def test_a_column_has_equally_many_decimals():
    frame = pd.DataFrame({"seconds": [0.247, 0.39, None, 12.0], "ratio": [2.0, 15.0, 1.0, 1.0]})
    assert cells(show.table(frame).data) == [
        "0.247",
        "2.0",
        "0.390",
        "15.0",
        GREY_NULL,
        "1.0",
        "12.000",
        "1.0",
    ]


def test_bytes_are_in_groups_of_three_and_keys_years_and_offsets_are_not():
    frame = pd.DataFrame(
        {
            "artwork_id": [128447],
            "year": [1906],
            "offset": [1530],
            "bytes": [313713],
            "total_bytes_written": pd.array([21217], dtype="Int64"),
            "kilobytes": [1234],
        }
    )
    assert cells(show.table(frame).data) == ["128447", "1906", "1530", "313,713", "21,217", "1234"]


def test_a_long_text_is_shown_whole_up_to_600_characters():
    reason, change = "word " * 60, {f"column_{n}": n for n in range(25)}
    shown = cells(show.table(pd.DataFrame({"reason": [reason], "after": [change]})).data)
    assert shown[0] == reason and "column_24" in shown[1]
    (cut,) = cells(show.table(pd.DataFrame({"a": ["x" * 601]})).data)
    assert cut == "x" * 599 + "…"


def test_a_notebook_shows_every_frame_like_a_table(monkeypatch):
    shell = InteractiveShell()
    monkeypatch.setattr(show, "get_ipython", lambda: shell)
    show.set_up(params.load("local"))

    def shown(frame):
        return shell.display_formatter.format(frame)[0]["text/html"]

    frame = pd.DataFrame({"n": pd.array([1, None], dtype="Int64")})
    assert cells(shown(frame)) == ["1", GREY_NULL] and "overflow-x:auto" in shown(frame)
    assert ">VINET</th>" in shown(
        frame.set_axis(["VINET", "TOMSP"])
    )  # rows that have names keep them
    assert ">0</th>" not in shown(frame)
    customers = pd.Index(["VINET", "TOMSP"], name="customer")
    assert cells(shown(frame.set_axis(customers))) == ["VINET", "1", "TOMSP", GREY_NULL]


def test_a_row_is_shown_whole_a_line_for_each_column():
    frame = pd.DataFrame(
        [{f"c{n}": n for n in range(25)}, dict.fromkeys((f"c{n}" for n in range(25)), -1)]
    )
    assert cells(show.row(frame, "one").data) == [x for n in range(25) for x in (f"c{n}", str(n))]


def test_a_float_is_shown_exactly_or_the_table_says_that_it_is_rounded():
    exact = show.table(pd.DataFrame({"lat": [52.520008, 52.520049, 1.0]})).data
    assert cells(exact) == ["52.520008", "52.520049", "1.000000"] and "rounded" not in exact
    for shown in (
        show.table(pd.DataFrame({"sum": [0.1 + 0.2, 1.0]})).data,
        show.row(pd.DataFrame({"sum": [0.1 + 0.2], "text": ["0.1"]})).data,
    ):
        assert ">0.3<" in shown and "some decimals are rounded" in shown
    single = show.table(pd.DataFrame({"amount": pd.Series([3.99, 4], dtype="float32")})).data
    assert cells(single) == ["3.99", "4.00"] and "rounded" not in single
    small = show.table(pd.DataFrame({"share": [0.00012345678912, float("inf")]})).data
    assert "0.00012345678912" in small and "inf" in small and "rounded" not in small
