"""The packages in the order of the data flow.

None imports from a later one, and there are no cycles.
"""

import ast
import re
from pathlib import Path

import pytest
import workbench

LIB = Path(workbench.__file__).parent
STOREFRONT = LIB.parent / "storefront"
# names of topics and consumer groups that look like modules
DATA = ("storefront.dead_letters", "storefront.orders", "storefront.fulfillment")
ROOMS = (
    "base",
    "stack",
    "source",
    "connect",
    "topic",
    "spark",
    "landing",
    "hudi",
    "query",
    "checks",
    "display",
    "run",
    "flow",
    "trace",
    "explore",
    "own",
    "tracks",
    "operate",
    "cli",
)


def imported(text, module, modules, root="workbench"):
    """Return the package's modules that a module imports anywhere, including for annotations."""
    package = module.split(".") if module + ".__init__" in modules else module.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [a.name.split(".", 1)[1] for a in node.names if a.name.startswith(f"{root}.")]
        elif isinstance(node, ast.ImportFrom) and (
            node.level or (node.module or "").split(".")[0] == root
        ):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (
                (node.module or "").split(".")[0 if node.level else 1 :] if node.module else []
            )
            names = [".".join([*base, a.name]) for a in node.names]
        else:
            continue
        for name in names:  # a name may be a module, or something in one
            name = (
                name
                if name in modules or f"{name}.__init__" in modules
                else name.rpartition(".")[0]
            )
            found.add(f"{name}.__init__" if f"{name}.__init__" in modules else name)
    return found - {module, "", "__init__"}


def graph(root=LIB, package="workbench"):
    """Return {module: imported modules}, by names below the package.

    A package itself is `room.__init__`.
    """
    paths = {
        p.relative_to(root).with_suffix("").as_posix().replace("/", "."): p
        for p in root.rglob("*.py")
    }
    return {
        name: imported(
            path.read_text(encoding="utf-8"), name.removesuffix(".__init__"), set(paths), package
        )
        for name, path in paths.items()
    }


def upward(imports):
    room = {name: ROOMS.index(name.split(".")[0]) for name in imports if name != "__init__"}
    return sorted(f"{a} imports {b}" for a in room for b in imports[a] if room[a] < room[b])


def circles(imports):
    """Return the shortest cycle of each module that imports itself indirectly."""
    found = set()
    for start in imports:
        ways, seen = [[start]], set()
        while ways:
            way = ways.pop(0)
            for other in sorted(imports.get(way[-1], ())):
                if other == start:
                    found.add(" → ".join([*way, start]))
                    ways = []
                    break
                if other not in seen:
                    seen.add(other)
                    ways.append([*way, other])
    return sorted(found)


def test_nothing_is_imported_from_a_room_below():
    assert upward(graph()) == []


def test_nothing_goes_in_circles():
    assert circles(graph()) == []
    assert circles(graph(STOREFRONT, "storefront")) == []


def test_the_library_does_not_import_the_storefront():
    """Neither anywhere in a module, nor as the name of a module to import or to run."""
    for path in LIB.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names = re.findall(r"^storefront(?:\.[a-z_]+)*$", node.value)
            imported_packages = [name.split(".")[0] for name in names if name not in DATA]
            assert "storefront" not in imported_packages, path


@pytest.mark.parametrize(
    "text, edge",
    [
        ("from ..hudi.tables import Table", "hudi.tables"),
        ("def f():\n    from .. import hudi", "hudi.__init__"),
        ("if TYPE_CHECKING:\n    from ..hudi import Table", "hudi.__init__"),
        ("from . import b", "base.b"),
        ("import workbench.hudi.tables", "hudi.tables"),
    ],
)
def test_every_way_to_import_is_seen(tmp_path, text, edge):
    for name, content in {
        "base/__init__": "",
        "base/a": text,
        "base/b": "from .a import x",
        "hudi/__init__": "",
        "hudi/tables": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(content)
    found = graph(tmp_path)
    assert found["base.a"] == {edge}
    assert upward(found) == ([f"base.a imports {edge}"] if edge.startswith("hudi") else [])
    assert circles(found) == (
        ["base.a → base.b → base.a", "base.b → base.a → base.b"] if edge == "base.b" else []
    )
