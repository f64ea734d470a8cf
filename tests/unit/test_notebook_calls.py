"""Notebooks call the library as it is: each imported name exists, and each call has arguments that fit."""

import ast
import importlib
import inspect
import json

import pytest
from workbench.base import ROOT

NOTEBOOKS = sorted(
    path
    for path in (ROOT / "notebooks").rglob("*.ipynb")
    if not {"own", ".ipynb_checkpoints"} & {*path.parts}
)
LIBRARIES = ("workbench", "storefront")


def code(path):
    """Return the code cells as a tree, without magics."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    lines = [line for text in texts if "%%" not in text for line in text.splitlines()]
    return ast.parse("\n".join(line for line in lines if not line.startswith("%")))


def imported_names(tree):
    """Return {name: object} of what a notebook imports from the libraries, and never assigns anew."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LIBRARIES:
            package = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(package, alias.name):  # a module that nothing has imported yet
                    importlib.import_module(f"{node.module}.{alias.name}")
                names[alias.asname or alias.name] = getattr(package, alias.name)
    assigned = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return {name: value for name, value in names.items() if name not in assigned}


def resolve(node, names):
    """Return (whether a node begins with an imported name, the object that it is)."""
    if isinstance(node, ast.Name):
        return node.id in names, names.get(node.id)
    if isinstance(node, ast.Attribute):
        is_known, owner = resolve(node.value, names)
        is_library = inspect.ismodule(owner) and owner.__name__.split(".")[0] in LIBRARIES
        if is_known and is_library:
            return True, getattr(owner, node.attr)
        is_own = type(owner).__module__.split(".")[0] in LIBRARIES
        if is_known and is_own and not isinstance(getattr(type(owner), node.attr, None), property):
            return True, getattr(owner, node.attr)
    return False, None


def positional_only(signature):
    kinds = inspect.Parameter
    return [p.name for p in signature.parameters.values() if p.kind == kinds.POSITIONAL_ONLY]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_arguments_of_each_call_fit(path):
    tree = code(path)
    names = imported_names(tree)
    wrong = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        is_known, function = resolve(node.func, names)
        has_unknown_arguments = any(isinstance(each, ast.Starred) for each in node.args) or any(
            keyword.arg is None for keyword in node.keywords
        )
        if not is_known or has_unknown_arguments:
            continue
        try:
            signature = inspect.signature(function)
            # Python's `bind` refuses f(name=1) of f(name, /, **others), which is a valid call
            keywords = {k.arg: k for k in node.keywords if k.arg not in positional_only(signature)}
            signature.bind(*node.args, **keywords)
        except TypeError as e:
            wrong.append(f"{ast.unparse(node)[:100]}: {e}")
    assert not wrong, "\n".join(wrong)
