"""The breaks of the notebooks' checks (tests/notebooks), without running any: where each stands in
its notebook."""

import ast
import re
from types import ModuleType

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


def imported(module, name):
    """Return what `from module import name` binds; None if there is no such name."""
    try:
        exec(f"from {module} import {name} as value", namespace := {})
    except ImportError:
        return None
    return namespace["value"]


def missing_attributes(sources):
    """Return the names of the library that do not exist: imported ones, and those of modules and of
    new objects of their classes."""
    modules, missing = {}, set()
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("workbench"):
            for alias in node.names:
                value = imported(node.module, alias.name)
                if value is None:
                    missing.add(f"{node.module}.{alias.name}")
                if isinstance(value, ModuleType):
                    modules[alias.asname or alias.name] = value
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module and not hasattr(module, node.attr):
                missing.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
            owner = ast.unparse(node.value.func)  # such as rest.KafkaConnect
            module, _, name = owner.partition(".")
            value = getattr(modules.get(module), name, None)
            if isinstance(value, type) and not hasattr(value, node.attr):
                missing.add(f"{owner}.{node.attr}")
    return missing


@pytest.mark.parametrize("name", sorted(BREAKS))
def test_each_function_of_the_library_that_a_notebook_or_a_break_names_exists(name):
    cells = nbformat.read(NOTEBOOKS[name], as_version=4).cells
    sources = [cell.source for cell in cells if cell.cell_type == "code"]
    for run in BREAKS[name]:
        sources += [code for one in run.breaks for code in (one.code, one.undo)]
    sources = [source for source in sources if not source.startswith("%%")]  # SQL
    sources = [re.sub(r"(?m)^(\s*)[%!].*", r"\1pass", source) for source in sources]
    assert missing_attributes(sources) == set()


def test_a_missing_function_is_found():
    sources = ["from workbench.connect import rest", "rest.states(1)\nrest.quote(2)"]
    assert missing_attributes(sources) == {"rest.states"}
    sources[1] = "rest.KafkaConnect(world).halt(1)\nrest.KafkaConnect(world).stop(2)"
    assert missing_attributes(sources) == {"rest.KafkaConnect.halt"}
