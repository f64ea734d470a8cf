"""The slider: complete without scripts, moved in Chromium, and the same in a headless run."""

import re

import nbformat
import pandas as pd
import pytest
from browser import needs_browser, shown
from nbformat.v4 import new_code_cell, new_notebook, new_output
from workbench import explore, hudi
from workbench.base import params
from workbench.base.errors import LakeError
from workbench.explore import frames
from workbench.run import export, run_record

TABLE = hudi.Table("artists", "file:/lake/artists", ("id",), "__lsn")
LABELS = ["loaded", "moved", "cleaned"]
MOVE = """const input = document.querySelector("input");
input.value = 0; input.dispatchEvent(new Event("input"));"""


@pytest.fixture
def world(monkeypatch):
    """World with a table of three labels; the files of the last one were cleaned away."""

    def at(world, table, label, where):
        if label == "cleaned":
            raise LakeError("the files of <cleaned> are gone")
        rows = pd.DataFrame({"id": [1, 2], "name": [f"<b>{label}</b>", where]})
        return frames.Frame(f"artists at {label}", rows, rows == f"<b>{label}</b>")

    monkeypatch.setattr(frames, "at", at)
    monkeypatch.setattr(hudi, "labels", lambda *_: pd.DataFrame({"label": LABELS}))
    return params.load("local")


def details(page):
    return dict(
        (label, (bool(is_open), body))
        for is_open, label, body in re.findall(
            r"<details( open[^>]*)?><summary>(.*?)</summary>(.*?)</details>", page, re.S
        )
    )


def test_all_frames_are_in_the_page_and_the_selected_one_is_open(world):
    slider = explore.slider(world, TABLE, at="moved", where="id < 3")
    frames_shown = details(slider._repr_html_())
    assert list(frames_shown) == LABELS
    assert [label for label, (is_open, _) in frames_shown.items() if is_open] == ["moved"]
    for label in LABELS[:2]:
        assert f"&lt;b&gt;{label}&lt;/b&gt;" in frames_shown[label][1], (
            "HTML in the data is escaped"
        )
    assert "<b>moved" not in slider._repr_html_() and "id &lt; 3" in slider._repr_html_()
    assert "&lt;cleaned&gt; are gone" in frames_shown["cleaned"][1]
    assert "artists at moved" in repr(slider) and "loaded, moved, cleaned" in repr(slider)


def test_the_selected_frame_is_that_of_at(world):
    slider = explore.slider(world, TABLE, at="loaded")
    assert slider.frame.rows.equals(frames.at(world, TABLE, "loaded", "true").rows)


def test_labels_that_are_not_there_or_cannot_be_read(world):
    with pytest.raises(LakeError, match="(?s)no label 'movd'.*did you mean 'moved'"):
        explore.slider(world, TABLE, at="movd")
    with pytest.raises(LakeError, match="cleaned> are gone"):
        explore.slider(world, TABLE)  # the selected one, by default the last


def test_a_table_without_labels(world, monkeypatch):
    monkeypatch.setattr(hudi, "labels", lambda *_: pd.DataFrame({"label": []}))
    with pytest.raises(LakeError, match="(?s)no label ''.*hudi.label"):
        explore.slider(world, TABLE)


def test_only_the_newest_labels_have_a_frame(world, monkeypatch):
    many = pd.DataFrame({"label": [f"t{n}" for n in range(60)]})
    monkeypatch.setattr(hudi, "labels", lambda *_: many)
    assert list(explore.slider(world, TABLE).pages) == [f"t{n}" for n in range(10, 60)]


def test_each_output_has_an_id_of_its_own(world):
    slider = explore.slider(world, TABLE, at="moved")
    first, second = (set(re.findall(r"slider-[\w-]+", slider._repr_html_())) for _ in range(2))
    assert len(first) == len(second) == 1 and first != second


def test_the_page_of_a_headless_run_has_the_frames(world):
    page = explore.slider(world, TABLE, at="moved")._repr_html_()
    output = new_output("display_data", {"text/html": page})
    cell = new_code_cell("slider", outputs=[output])
    book = nbformat.from_dict(run_record.mask_secrets(new_notebook(cells=[cell])))
    assert list(details(export.to_html(book))) == LABELS


@needs_browser
@pytest.mark.parametrize("is_exported", [False, True])
def test_a_move_shows_the_frame_of_the_label(world, tmp_path, is_exported):
    page = explore.slider(world, TABLE, at="moved")._repr_html_()
    if is_exported:  # the page of a headless run
        output = new_output("display_data", {"text/html": page})
        page = export.to_html(new_notebook(cells=[new_code_cell("slider", outputs=[output])]))
    before, after = (shown(tmp_path, page, *actions) for actions in ((), (MOVE,)))
    for dom, label in ((before, "moved"), (after, "loaded")):
        (visible,) = re.findall(r"<details(?![^>]*hidden)[^>]*\bopen\b[^>]*><summary>(\w+)", dom)
        assert visible == label and f"<output>{label}</output>" in dom
        assert len(re.findall(r"<details[^>]* hidden", dom)) == 2
        assert "<label>" in dom, "the input is visible"


@needs_browser
def test_without_scripts_each_frame_opens_on_a_click(world, tmp_path):
    page = explore.slider(world, TABLE, at="moved")._repr_html_()
    dom = shown(tmp_path, page, MOVE, scripts=False)
    assert "<label hidden" in dom and not re.search("<details[^>]*hidden", dom)
    assert [label for label, (is_open, _) in details(dom).items() if is_open] == ["moved"]
    assert list(details(dom)) == LABELS
