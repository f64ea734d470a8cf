"""The parameters of notebooks: what their parameters cells declare, and whether what is given fits."""
from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, Dict, List

import yaml

from ..base import params
from ..base.errors import ParamsError, nearest
from . import toc


def declared(book: Any, shown: str) -> Dict[str, Any]:
    """Return name → default of a notebook's parameters cell.

    Raises:
        ParamsError: no such cell, or a value in it that is not a literal. (A derived value would keep its default
            when papermill sets what it was derived from.)
    """
    cells = [c for c in book.cells if c.cell_type == "code" and "parameters" in c.metadata.get("tags", [])]
    if len(cells) != 1:
        raise ParamsError(f"the notebook has {len(cells) or 'no'} parameters cell{'s'[:len(cells) > 1]}", where=shown,
                          expected="one code cell tagged `parameters`", next_step="tag the cell that says world = …")
    found: Dict[str, Any] = {}
    try:
        statements = ast.parse(cells[0].source).body
    except SyntaxError as e:
        raise ParamsError("the parameters cell is not Python", where=f"{shown}: {e}") from None
    for node in statements:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        try:
            found[target.id] = ast.literal_eval(node.value)
        except (ValueError, TypeError, AttributeError):
            raise ParamsError("the parameters cell holds something else than literals",
                              where=f"{shown}: {ast.unparse(node)}", expected="lines such as scale = 1",
                              next_step="compute it in the cell below") from None
    if "world" not in found:
        raise ParamsError("the parameters cell does not declare `world`", where=shown, expected='world = "local"')
    return found


def choices(book: Any) -> Dict[str, List[str]]:
    """Return name → the values that the parameters cell allows: those that its comment names in the form of
    `source = "landed"  # "landed": the files; "topic": straight from Kafka`."""
    (cell,) = (c for c in book.cells if "parameters" in c.metadata.get("tags", []))
    lines = re.findall(r"""^(\w+) *= *(?:"[^"]*"|'[^']*') *#(.*)""", cell.source, re.M)
    return {name: found for name, comment in lines if (found := re.findall(r'"([^"]+)":', comment))}


def as_declared(books: Dict[Path, Any], parameters: Dict[str, Any]) -> Dict[str, Any]:
    """Check parameters against the notebooks, and return them in the declared types. Raises ParamsError."""
    declarations = {toc.name(p): declared(b, toc.name(p)) for p, b in books.items()}
    every = {k: v for d in declarations.values() for k, v in d.items() if k != "world"}
    for name, value in parameters.items():
        if name == "world":
            raise ParamsError("the world is not a parameter", next_step="name it with --world")
        if name not in every:
            raise ParamsError(f"no selected notebook declares the parameter {name!r}",
                              where=", ".join(declarations), expected=nearest(name, every) if every else "none")
        parameters[name] = _converted(name, value, every[name])
        for book in books.values():
            if name in choices(book):
                params.choice(name, parameters[name], *choices(book)[name])
    return parameters


def _converted(name: str, value: Any, default: Any) -> Any:
    if isinstance(value, str) and not isinstance(default, str):
        value = yaml.safe_load(value)
    if isinstance(default, float) and type(value) is int:
        value = float(value)
    if default is not None and type(value) is not type(default):
        raise ParamsError(f"parameter {name} is {value!r} ({type(value).__name__})",
                          expected=f"a value of type {type(default).__name__}, such as {default!r}")
    if name.endswith("_dir") and value:  # from where the user typed it; the kernel starts in the notebook's folder
        return str(Path(value).expanduser().absolute())
    return value
