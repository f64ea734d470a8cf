"""Pictures: what stands in them."""
import matplotlib.pyplot as plt
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import select_figure_formats
from matplotlib.figure import Figure
from workbench.base.errors import LakeError
from workbench.results import draw, show

REVENUE = pd.Series({f"C{i:02}": 1000.0 / (i + 1) for i in range(30)})

COMMITS = pd.DataFrame({"instant": ["20260101120000001", "20260101120102003"], "operation": ["BULK_INSERT", "UPSERT"],
                        "written": [300, 1], "bytes": [240_000, 1_600]})
VALUES = pd.DataFrame({"name": ["H.", "H.", "M.", None], "born": [1906, 1907, 1907, None]},
                      index=["t0", "t1", "t2", "t3"])


def texts(figure):
    return [t.get_text() for axes in figure.axes for t in axes.texts]


def ticks(axis):
    return [t.get_text() for t in axis.get_ticklabels()]


def test_commits_show_bytes_rows_and_labels():
    figure = draw.commits({"CoW": COMMITS, "MoR": COMMITS[:1]}, {"CoW": {"20260101120102003": "u1"}}, "Two")
    assert texts(figure) == ["240.0 kB\n300 rows", "1.6 kB\n1 row", "240.0 kB\n300 rows"]
    assert ticks(figure.axes[0].xaxis) == ["bulk insert\n12:00:00", "u1\n12:01:02"]
    (foot,) = figure.texts[-1:]
    assert "logarithmic" in foot.get_text() and "UTC" in foot.get_text()
    for nothing in ({}, {"CoW": COMMITS[:0]}):
        with pytest.raises(LakeError, match="no commits"):
            draw.commits(nothing)


def test_life_has_a_band_for_each_value():
    figure = draw.life(VALUES, ["name", "born"])
    assert texts(figure) == ["H.", "M.", "null", "1906", "1907", "null"]
    bars = sorted((round(b.get_y() + b.get_height() / 2), round(b.get_x()), round(b.get_width()))
                  for b in figure.axes[0].patches)
    assert bars == [(0, 0, 2), (0, 2, 1), (0, 3, 1), (1, 0, 1), (1, 1, 2), (1, 3, 1)]
    shown, = texts(draw.life(VALUES.assign(name="long " * 40), ["name"]))
    assert shown.startswith("long long") and shown.endswith("…") and len(shown) < 100
    near = pd.DataFrame({"price": [14.2, 14.4, 14.4]}, index=["t0", "t1", "t2"])
    assert texts(draw.life(near, ["price"])) == ["14.2", "14.4"], "not rounded into one"
    with pytest.raises(LakeError, match="no column 'died'"):
        draw.life(VALUES, ["died"])


def test_costs_have_a_panel_for_each_unit_and_a_colour_for_each_group():
    frame = pd.DataFrame({"files": [30, 1], "bytes": [445_200, 0]}, index=["a key, _ro", "a key, _rt"])
    figure = draw.costs(frame, {"files": "files opened", "bytes": "bytes"}, groups=["_ro", "_rt"])
    assert texts(figure) == ["30", "1", "445.2 kB", "0 bytes"] and len(figure.axes) == 2
    first, second = figure.axes[0].patches
    assert first.get_facecolor() != second.get_facecolor()


def test_lanes_have_a_dot_for_each_row_and_a_ground_for_each_group():
    events = pd.DataFrame({"place": [0, 1, 2, 3], "table": ["film", "actor", "film", "film"], "op": list("uudu"),
                           "transaction": [7, 7, 8, 9]})
    figure = draw.lanes(events, "place", "table", "op", "Two tables", group="transaction", x_label="order",
                        ticks=[1.5])
    (axes,), (legend,) = figure.axes, figure.legends
    assert ticks(axes.yaxis) == ["film", "actor"] and [t.get_text() for t in legend.get_texts()] == ["u", "d"]
    dots = {tuple(point) for found in axes.collections for point in found.get_offsets()}
    assert dots == {(0, 0), (1, 1), (2, 0), (3, 0)}
    lines = [list(line.get_xdata()) for line in axes.lines]
    assert lines == [[0, 1], [1.5, 1.5]], "one transaction has several events"
    with pytest.raises(LakeError, match="nothing to draw"):
        draw.lanes(events[:0], "place", "table", "op")


def test_panels_leave_out_an_instant_that_is_none():
    days = pd.to_datetime([None, "2021-10-03", "2021-10-04"], utc=True)
    frame = pd.DataFrame({"batch": [0, 1, 2], "watermark": days})
    (line,) = draw.panels(frame, "batch", {"event time": ["watermark"]}).axes[0].lines
    assert list(line.get_xdata()) == [1, 2]


def test_pie_top_names_twenty_and_the_rest():
    figure = draw.pie_top(REVENUE, 20, "Revenue")
    assert isinstance(figure, Figure)
    shown = texts(figure)
    assert "10 others" in shown and "C19" in shown and "C20" not in shown
    assert "top 20 of 30\nof 3,995" in shown
    for series in (REVENUE[:0], -REVENUE, REVENUE * 0):
        with pytest.raises(LakeError):
            draw.pie_top(series)


def test_pie_top_names_beside_the_ring_only_the_largest_whose_labels_cannot_collide():
    names = ["Hungry Owl All-Night Grocers of the Northern Harbour", "Rattlesnake Canyon Grocery of the Southern Hills"]
    shares = pd.Series([35, 35, 3.1, 3.05, 23.85], index=["A", "B", *names, "C"])
    labels = [t for t in texts(draw.pie_top(shares)) if t.endswith("%") and "\n" in t]
    assert labels == ["A\n35.0%", "B\n35.0%", "C\n23.9%"]


def test_scatter_labels_the_named():
    df = pd.DataFrame({"q": [1, 2, 3], "r": [1, 2, 3], "n": [1, 1, 4]}, index=["A", "B", "C"])
    assert texts(draw.scatter(df, "q", "r", "n", {"big": ["C", "B"]})) == ["C", "B"]
    with pytest.raises(LakeError, match="no row is named 'Z'"):
        draw.scatter(df, "q", "r", "n", {"big": ["Z"]})


def test_figures_are_closed_so_that_a_cell_shows_them_once():
    draw.pie_top(REVENUE)
    assert plt.get_fignums() == []


def test_a_picture_bears_its_title_as_text(monkeypatch):
    """In a notebook, also after matplotlib has set up its own way of showing figures there."""
    shell, figure = InteractiveShell(), draw.Picture()
    monkeypatch.setattr(show, "get_ipython", lambda: shell)
    show.frames()

    def shown():
        return shell.display_formatter.format(figure)[0]["text/plain"]

    assert shown() == f"<Picture size {figure.bbox.width:.0f}x{figure.bbox.height:.0f} with 0 Axes>"
    assert draw.pie_top(REVENUE)._repr_png_()[1:4] == b"PNG"  # also where pyplot has made no figure
    select_figure_formats(shell, {"png"})
    figure.suptitle("Twice\nthe bytes")
    assert shown() == "Twice the bytes"
    for drawn in (draw.pie_top(REVENUE, title="Revenue"), draw.commits({"CoW": COMMITS}, title="Revenue"),
                  draw.life(VALUES, ["name"], "Revenue"), draw.costs(COMMITS, {"bytes": ""}, "Revenue")):
        assert repr(drawn) == "Revenue"


@pytest.mark.parametrize("name", [r"A $\frac B$", "$x$ & $y$"])
def test_a_name_with_dollars_is_no_formula(name):
    """A malformed one ended the chart."""
    figure = draw.pie_top(pd.Series({name: 3.0, "B": 1.0}), title=name, unit="$")
    figure.canvas.draw()
    assert any(name in text for text in texts(figure) + [figure.axes[0].get_title(), figure.get_suptitle(),
                                                         figure.axes[0].get_title(loc="left")])
