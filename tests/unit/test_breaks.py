"""The breaks of the notebooks' checks (tests/notebooks), without running any: where each stands in
its notebook."""

import nbformat
import pytest
from breaking import has_anchor
from test_broken_checks import BREAKS
from workbench.base.paths import ROOT

NOTEBOOKS = {path.stem: path for path in (ROOT / "notebooks").rglob("*.ipynb")}


def test_every_notebook_has_breaks():
    assert set(BREAKS) == set(NOTEBOOKS)


@pytest.mark.parametrize("name", sorted(BREAKS))
def test_each_break_has_one_cell_before_which_it_runs(name):
    cells = [cell.source for cell in nbformat.read(NOTEBOOKS[name], as_version=4).cells]
    found = {
        one.before: sum(has_anchor(cell, one.before) for cell in cells)
        for run in BREAKS[name]
        for one in run.breaks
    }
    assert {before: n for before, n in found.items() if n != 1} == {}
