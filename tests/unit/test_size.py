"""The library stays small: each package keeps to its budget, and each public name has a use."""

import ast
import io
import json
import re
import tokenize

import pytest
from workbench.base import ROOT

COUNTED = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
PACKAGES = {
    path.parent.name: path.parent for path in (ROOT / "lib/workbench").glob("*/__init__.py")
}
PACKAGES["storefront"] = ROOT / "lib/storefront"
CALLED_BY_LIBRARIES = {"authenticate"}  # PyMySQL's interface of a way to log in
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def count_tokens(text):
    """Return the number of names, operators, numbers and texts, without comments and docstrings."""
    docstring_lines = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, *DEFINITIONS)) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            docstring_lines.update(range(docstring.lineno, docstring.end_lineno + 1))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(t.type in COUNTED and t.start[0] not in docstring_lines for t in tokens)


def package_size(folder):
    return sum(count_tokens(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py"))


def budgets():
    """Return {package: tokens}: the last column of the table of packages in docs/design.md, and the storefront's."""
    text = (ROOT / "docs/design.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| `(\w+)` \|.*\| ([\d,]+) \|$", text)
    rows += re.findall(r"`lib/(storefront)/` \(at most ([\d,]+) tokens\)", text)
    return {name: int(tokens.replace(",", "")) for name, tokens in rows}


def test_tokens_are_counted_without_comments_and_docstrings():
    text = '"""A module."""\n\nx = f(1)  # a call\n\n\ndef g():\n    """Return a text."""\n    return "a"\n'
    assert count_tokens(text) == len(["x", "=", "f", "(", "1", ")"]) + len(
        ["def", "g", "(", ")", ":", "return", "'a'"]
    )


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_a_package_keeps_to_its_budget(package):
    size, budget = package_size(PACKAGES[package]), budgets()[package]
    assert size <= budget, (
        f"{package} has {size:,} tokens, and its budget is {budget:,}: remove what nobody needs, or say in "
        "docs/design.md (Packages) why it grew"
    )


def names_in(code):
    """Return the names that Python code uses: variables, attributes and imports. A definition is no use."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(part for alias in node.names for part in alias.name.split("."))
    return names


def code_of_notebook(path):
    """Return the code cells as one text, without cells of SQL."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return "\n".join(text for text in texts if not text.startswith("%"))


def used_names():
    """Return the names that library, commands, jobs and notebooks use."""
    modules = [*(ROOT / "lib").rglob("*.py"), *(ROOT / "deploy").rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in modules]
    texts += map(code_of_notebook, (ROOT / "notebooks").rglob("*.ipynb"))
    return set().union(*map(names_in, texts))


def public_names(path):
    """Yield the public functions, classes and methods of a module.

    A method of a subclass can override one that a library calls, and a decorator can register a function: neither is
    listed.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own_classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.bases]
    for node in [*tree.body, *(method for each in own_classes for method in each.body)]:
        is_registered = isinstance(node, DEFINITIONS[:2]) and node.decorator_list
        if isinstance(node, DEFINITIONS) and not is_registered and not node.name.startswith("_"):
            yield node.name


def test_each_public_name_has_a_use():
    """A test alone is no use: what only a test calls can go. Names are compared, so a common name is always used."""
    used = used_names() | CALLED_BY_LIBRARIES
    unused = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "lib").rglob("*.py"))
        for name in public_names(path)
        if name not in used
    ]
    assert not unused, "\n".join(unused)
