"""Pictures: what stands in them."""

import re

import matplotlib.pyplot as plt
import pandas as pd
import pictures
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import select_figure_formats
from matplotlib.colors import to_hex
from workbench import params
from workbench.base.errors import LakeError
from workbench.display import draw, show

COMMITS = pd.DataFrame(
    {
        "instant": ["20260101120000001", "20260101120102003"],
        "operation": ["BULK_INSERT", "UPSERT"],
        "written": [300, 1],
        "bytes": [240_000, 1_600],
    }
)
VALUES = pd.DataFrame(
    {"name": ["H.", "H.", "M.", None], "born": [1906, 1907, 1907, None]},
    index=["t0", "t1", "t2", "t3"],
)


@pytest.fixture(autouse=True)
def drawn(monkeypatch):
    """In every picture of a test no text overlaps another one or leaves the canvas."""
    figures = []
    create = draw.Picture.__init__

    def remember(self, *args, **options):
        create(self, *args, **options)
        figures.append(self)

    monkeypatch.setattr(draw.Picture, "__init__", remember)
    yield
    for figure in figures:
        assert pictures.text_faults(figure) == []


def test_texts_that_overlap_or_leave_the_canvas_are_found():
    figure = plt.figure()
    figure.text(0.5, 0.5, "one")
    figure.text(0.5, 0.51, "two")
    figure.text(0.9, 0.1, "a long line of text")
    plt.close(figure)
    overlap = "'one' and 'two' overlap"
    assert pictures.text_faults(figure) == ["'a long line of text' leaves the canvas", overlap]


def test_the_legend_of_lanes_leaves_room_for_a_long_title():
    events = pd.DataFrame({"at": [1, 2, 3], "row": ["a", "b", "a"]})
    events["seen by"] = ["both of the consumers", "the log only", "the log only: a delete"]
    title = "Eight rows, and which consumer saw which version of each of them, in order"
    meanings = {"both of the consumers": "good", "the log only": "bad"}
    meanings["the log only: a delete"] = "note"
    assert draw.lanes(events, "at", "row", "seen by", title, x_label="", meanings=meanings).legends


def texts(figure):
    return [t.get_text() for axes in figure.axes for t in axes.texts]


def ticks(axis):
    return [t.get_text() for t in axis.get_ticklabels()]


def test_commits_show_bytes_rows_and_labels():
    figure = draw.commits(
        {"CoW": COMMITS, "MoR": COMMITS[:1]}, {"CoW": {"20260101120102003": "u1"}}, "Two"
    )
    assert texts(figure) == ["240.0 kB\n300 rows", "1.6 kB\n1 row", "240.0 kB\n300 rows"]
    assert ticks(figure.axes[0].xaxis) == ["bulk insert\n12:00:00", "u1\n12:01:02"]
    (foot,) = figure.texts[-1:]
    assert "bytes written" in foot.get_text() and "UTC" in foot.get_text()
    scales = {(axes.get_yscale(), axes.get_ylim()) for axes in figure.axes}
    assert len(scales) == 1 and ("linear", 0) in {(name, low) for name, (low, _) in scales}
    for nothing in ({}, {"CoW": COMMITS[:0]}):
        with pytest.raises(LakeError, match="nothing to draw"):
            draw.commits(nothing)


def test_life_has_a_band_for_each_value():
    figure = draw.record_history(VALUES, ["name", "born"])
    assert texts(figure) == ["H.", "M.", "null", "1906", "1907", "null"]
    bars = sorted(
        (round(b.get_y() + b.get_height() / 2), round(b.get_x()), round(b.get_width()))
        for b in figure.axes[0].patches
    )
    assert bars == [(0, 0, 2), (0, 2, 1), (0, 3, 1), (1, 0, 1), (1, 1, 2), (1, 3, 1)]
    (shown,) = texts(draw.record_history(VALUES.assign(name="long " * 40), ["name"]))
    assert shown.startswith("long long") and shown.endswith("…") and len(shown) < 100
    near = pd.DataFrame({"price": [14.2, 14.4, 14.4]}, index=["t0", "t1", "t2"])
    assert texts(draw.record_history(near, ["price"])) == ["14.2", "14.4"], "not rounded into one"
    with pytest.raises(LakeError, match="nothing to draw"):
        draw.record_history(VALUES[:0], ["born"])


def test_costs_have_a_panel_for_each_unit_and_a_color_for_each_row():
    frame = pd.DataFrame(
        {"files": [30, 1], "bytes": [445_200, 0]}, index=["a key, _ro", "a key, _rt"]
    )
    units = {"files": "files opened", "bytes": "bytes"}
    figure = draw.costs(frame, units, colors=[draw.PALETTE[3], draw.PALETTE[1]])
    assert texts(figure) == ["30", "1", "445.2 kB", "0 bytes"] and len(figure.axes) == 2
    first, second = figure.axes[0].patches
    assert first.get_facecolor() != second.get_facecolor()


def test_panels_of_one_unit_have_one_scale():
    frame = pd.DataFrame(
        {"median": [0.1, 0.2], "p95": [1.0, 3.0], "files": [7, 9]}, index=["a", "b"]
    )
    units = {"median": "median, in s", "p95": "p95, in s", "files": "files"}
    median, p95, files = draw.costs(frame, units).axes
    assert median.get_xlim() == p95.get_xlim() != files.get_xlim()


def test_equal_lines_of_a_panel_are_both_seen():
    frame = pd.DataFrame({"batch": [0, 1], "complete": [5, 6], "update": [5, 6]})
    first, second = draw.panels(frame, "batch", {"rows": ["complete", "update"]}).axes[0].lines
    assert first.get_linewidth() > second.get_linewidth()


def test_lanes_have_a_dot_for_each_row_and_a_ground_for_each_group():
    events = pd.DataFrame(
        {
            "place": [0, 1, 2, 3],
            "table": ["film", "actor", "film", "film"],
            "op": list("uudu"),
            "transaction": [7, 7, 8, 9],
        }
    )
    figure = draw.lanes(
        events,
        "place",
        "table",
        "op",
        "Two tables",
        group="transaction",
        x_label="order",
        meanings={"u": "good", "d": "bad"},
        ticks=[1.5],
    )
    (axes,), (legend,) = figure.axes, figure.legends
    assert ticks(axes.yaxis) == ["film", "actor"] and [
        t.get_text() for t in legend.get_texts()
    ] == ["u", "d"]
    dots = {tuple(point) for found in axes.collections for point in found.get_offsets()}
    assert dots == {(0, 0), (1, 1), (2, 0), (3, 0)}
    lines = [list(line.get_xdata()) for line in axes.lines]
    assert lines == [[0, 1], [1.5, 1.5]], "one transaction has several events"
    with pytest.raises(LakeError, match="nothing to draw"):
        draw.lanes(events[:0], "place", "table", "op", "", x_label="", meanings={})
    with pytest.raises(ValueError, match="'d' is not in list"):
        draw.lanes(events, "place", "table", "op", "", x_label="", meanings={"u": "good"})


def test_lanes_are_coloured_by_meaning():
    events = pd.DataFrame(
        {"place": [0, 1, 2], "row": ["1", "1", "2"], "kind": ["lost", "seen", "other"]}
    )
    meanings = {"seen": "good", "lost": "bad", "other": "neutral"}
    figure = draw.lanes(events, "place", "row", "kind", "", x_label="", meanings=meanings)
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["seen", "lost", "other"]
    _, lost, seen = (found.get_facecolor()[0] for found in figure.axes[0].collections)
    assert to_hex(seen).endswith("009e73") and to_hex(lost).endswith("d55e00"), (
        "a loss is never green"
    )


def test_entities_have_a_box_for_each_table_and_an_arrow_for_each_reference():
    rows = [
        ("film", 0, 4.3, "film\n◆ film_id\n→ language_id\n… 13 more", "language"),
        ("store", 0, 8.6, "store\n◆ store_id\n→ next_id\n… 1 more", ""),
        ("language", 1, 3.3, "language\n◆ language_id\n… 2 more", ""),
    ]
    tables = pd.DataFrame(rows, columns=["table", "lane", "y", "content", "refers_to"])
    figure = draw.entities(tables, "Films", ["language"])
    ink = to_hex(draw.INK)
    *boxes, arrow = figure.axes[0].texts
    assert [box.get_text() for box in boxes] == list(tables["content"])
    assert [to_hex(box.get_color()) for box in boxes] == [ink, ink, "#0072b2"]
    assert (arrow.anncoords, arrow.xycoords) == (boxes[0], boxes[2]), (
        "from the film to its language"
    )
    with pytest.raises(LakeError, match="nothing to draw"):
        draw.entities(tables[:0], "Nothing")


def test_panels_leave_out_an_instant_that_is_none():
    days = pd.to_datetime([None, "2021-10-03", "2021-10-04"], utc=True)
    frame = pd.DataFrame({"batch": [0, 1, 2], "watermark": days})
    (line,) = draw.panels(frame, "batch", {"event time": ["watermark"]}).axes[0].lines
    assert list(line.get_xdata()) == [1, 2]


def test_panels_of_numbers_begin_at_zero():
    frame = pd.DataFrame(
        {
            "batch": [0, 1],
            "seconds": [4.0, 5.0],
            "rows": [300, 300],
            "newest": pd.to_datetime(["2021-10-03", "2021-10-04"], utc=True),
        }
    )
    seconds, several, instants = draw.panels(
        frame, "batch", {"a": ["seconds"], "b": ["rows", "seconds"], "c": ["newest"]}
    ).axes
    assert seconds.get_ylim()[0] == several.get_ylim()[0] == 0 and several.get_ylim()[1] > 300
    assert instants.get_ylim()[0] > 0, "an axis of instants begins where they do"
    assert all(re.fullmatch(r"\d\d:\d\d", text) for text in ticks(instants.yaxis))


def test_panels_hold_zero_and_both_ends_also_of_negative_numbers_and_of_none():
    frame = pd.DataFrame(
        {
            "batch": [0, 1],
            "below": [-4.0, -5.0],
            "both": [-1, 3],
            "none": [float("nan")] * 2,
            "zero": [0, 0],
            "nothing": [None, None],
        }
    )
    lines = {name: [name] for name in ("below", "both", "none", "zero", "nothing")}
    below, both, *empty = [ax.get_ylim() for ax in draw.panels(frame, "batch", lines).axes]
    assert below[0] < -5 and below[1] == 0 and both[0] < -1 and both[1] > 3
    assert all(low < high for low, high in empty)
    with pytest.raises(LakeError, match="nothing to draw"):
        draw.panels(frame[:0], "batch", lines)


def test_figures_are_closed_so_that_a_cell_shows_them_once():
    draw.commits({"CoW": COMMITS})
    assert plt.get_fignums() == []


def test_a_picture_bears_its_title_as_text(monkeypatch):
    """In a notebook, also after matplotlib has set up its own way of showing figures there."""
    shell, figure = InteractiveShell(), draw.Picture()
    monkeypatch.setattr(show, "get_ipython", lambda: shell)
    show.set_up(params.load("local"))

    def shown():
        return shell.display_formatter.format(figure)[0]["text/plain"]

    assert shown() == f"<Picture size {figure.bbox.width:.0f}x{figure.bbox.height:.0f} with 0 Axes>"
    assert (
        draw.commits({"CoW": COMMITS})._repr_png_()[1:4] == b"PNG"
    )  # also where pyplot has made no figure
    assert draw.Picture(0.1)._repr_png_() is None, "nothing is drawn yet"
    select_figure_formats(shell, {"png"})
    figure.suptitle("Twice\nthe bytes")
    assert shown() == "Twice the bytes"
    for drawn in (
        draw.commits({"CoW": COMMITS}, title="Revenue"),
        draw.record_history(VALUES, ["name"], "Revenue"),
        draw.costs(COMMITS, {"bytes": ""}, "Revenue"),
    ):
        assert repr(drawn) == "Revenue"


@pytest.mark.parametrize("name", [r"A $\frac B$", "$x$ & $y$"])
def test_a_name_with_dollars_is_no_formula(name):
    """A malformed one ended the chart."""
    figure = draw.record_history(VALUES.assign(name=name), ["name"], name)
    figure.canvas.draw()
    assert texts(figure)[0] == figure.get_suptitle() == name
