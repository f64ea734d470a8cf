"""Save the calls of a notebook session as a notebook of its own, which runs headless."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import statistics
import weakref
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, NamedTuple, TypeVar, Union, cast

import numpy as np
import pandas as pd
from IPython import get_ipython

from .. import hudi
from ..base import LakeError, ParamsError, World, first_line, paths
from .finding import find, relative_path

MAX_NAME_BYTES = 255
Function = TypeVar("Function", bound=Callable[..., Any])
INTRODUCTION = """\
# Explore {}

The steps of a session, saved by `explore.save`. A figure as of a label is the same in each run. Other
figures are compared with those of the session, and shown if they differ; so are all of them with other
parameters."""
# {name: import} for what the code of an argument may need
VALUE_IMPORTS = {
    "dataclasses": "import dataclasses",
    "datetime": "import datetime",
    "Decimal": "from decimal import Decimal",
    "Timestamp": "from pandas import Timestamp",
    "UUID": "from uuid import UUID",
}
SET_UP = """\
from workbench import explore, params, stack
from workbench import tracks# declares the captured tables, for explore.row
from workbench.checks import check
from workbench.display import show

saved = {}
changed = "" if saved == (world, table, since, until) else "other parameters"
world = params.load(world)
stack.ensure_running(world, "spark")
show.set_up(world)"""
# Arguments with the instant as of which a call reads. Without one its figures may change.
INSTANTS = ("instant", "at", "until")
LABELS = (*INSTANTS, "since", "against")


class _Code(str):
    """The code of an argument that an earlier step returned, such as `step_1.rows`."""


class _Call(NamedTuple):
    """A call without its result, which may be large.

    Attributes:
        step: name of its variable in the notebook.
        name: name of the function.
        arguments: the arguments, by name.
        frames: {code: frame} of the result, as long as the session keeps the frame.
        figures: {code: figure} of the result.
    """

    step: str
    name: str
    arguments: Mapping[str, Any]
    frames: Mapping[str, weakref.ref[pd.DataFrame]]
    figures: Mapping[str, int]


def _log() -> dict[str, _Call]:
    """Return the calls in this kernel; none without IPython."""
    shell = get_ipython()
    return shell.user_ns.setdefault("_explore_calls", {}) if shell else {}


def recorded(function: Function) -> Function:
    """Record the calls of a function, for `save`.

    A repeated call replaces the earlier one. A call with a frame that no earlier call returned is left
    out.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        signature = inspect.signature(function)
        arguments = {
            name: _refer(value)
            for name, value in signature.bind(*args, **kwargs).arguments.items()
            if not _is_default(value, signature.parameters[name].default)
        }
        if not any(isinstance(value, pd.DataFrame) for value in arguments.values()):
            log, key = _log(), repr((function, arguments))
            step = log[key].step if key in log else f"step_{len(log) + 1}"
            frames = _frames(step, result)
            references = {code: weakref.ref(frame) for code, frame in frames.items()}
            figures = dict(_figures(frames))
            log[key] = _Call(step, function.__name__, arguments, references, figures)
        return result

    return cast(Function, call)


def _is_default(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


def _refer(argument: Any) -> Any:
    """Return the code for a frame that an earlier call returned; any other argument as it is.

    A value of NumPy becomes one of Python, whose text is code.
    """
    if isinstance(argument, np.generic):
        return pd.Series([argument]).tolist()[0]
    if isinstance(argument, pd.DataFrame):
        for call in _log().values():
            for code, frame in call.frames.items():
                if frame() is argument:
                    return _Code(code)
    return argument


def _frames(code: str, result: Any) -> dict[str, pd.DataFrame]:
    """Return {code: frame}: the result itself, or its public attributes that are frames."""
    attributes = getattr(result, "__dict__", {}).items()
    public = {f"{code}.{name}": value for name, value in attributes if not name.startswith("_")}
    parts = {code: result, **public}
    return {code: value for code, value in parts.items() if isinstance(value, pd.DataFrame)}


def _figures(frames: Mapping[str, pd.DataFrame]) -> Iterator[tuple[str, int]]:
    """Yield (code, number of rows) of each frame; of marks also (code, marked cells)."""
    for code, frame in frames.items():
        yield f"len({code})", len(frame)
        if (frame.dtypes == "bool").all():
            yield f"{code}.to_numpy().sum()", int(frame.to_numpy().sum())


def save(name: str, folder: Union[str, Path] = paths.OWN_NOTEBOOKS) -> Path:
    """Write a notebook with the calls of this session, and the figures that they showed as checks.

    Its steps are the calls of `explore` and the statements of `%%sql` in this kernel. Its parameters are
    world, table, since and until: the table of most calls, and the first and last label that they name.

    Args:
        name: name of the notebook, without `.ipynb`.
        folder: its folder, by default notebooks/own, where `workbench run NAME` finds it.

    Returns:
        The path of the notebook.

    Raises:
        ParamsError: the name is not the name of a file, or there is such a file.
        LakeError: this session has no call to save, or the file cannot be written.
    """
    import nbformat  # local imports: it takes two seconds, in each kernel that imports the package

    path = Path(folder) / f"{name}.ipynb"
    is_name = re.fullmatch(r"\w[\w.-]*", name) and len(path.name.encode()) <= MAX_NAME_BYTES
    if not is_name or path.exists() or path.is_symlink():
        raise ParamsError(
            f"a notebook {name!r} cannot be made",
            location=str(path),
            expected="a new name: letters, digits, _, - and dots",
            hint="the folder is the second argument; remove a file to save it anew",
        )
    cells = list(_cells(name, list(_log().values())))
    for number, cell in enumerate(cells, 1):
        cell["id"] = f"cell-{number}"  # the same calls give the same file
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    _write(path, nbformat.writes(notebook) + "\n")
    return path


def _write(path: Path, text: str) -> None:
    """Write a new file as a whole or not at all.

    Raises:
        LakeError: the file cannot be written; nothing is left of it.
    """
    scratch = path.with_name(f".{os.getpid()}.ipynb")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(text, encoding="utf-8")
        os.link(scratch, path)  # fails if the file exists meanwhile
    except (OSError, UnicodeEncodeError) as e:
        raise LakeError(
            f"the notebook cannot be written: {first_line(e)}", location=str(path)
        ) from None
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()


def _cells(name: str, calls: list[_Call]) -> Iterator[Any]:
    from nbformat.v4 import new_code_cell, new_markdown_cell

    worlds = [call.arguments["world"] for call in calls if "world" in call.arguments]
    if not worlds:
        raise LakeError("this session has no call to save", hint="explore.at(world, table, label)")
    world = worlds[-1]
    names = _shared_names(world, calls)
    parameters = {"world": world.name, **names}
    yield new_markdown_cell(INTRODUCTION.format(name.replace("_", " ")))
    source = "\n".join(f"{key} = {value!r}" for key, value in parameters.items())
    yield new_code_cell(source, metadata={"tags": ["parameters"]})
    sources = [
        ", ".join(_argument(world, *item, names) for item in call.arguments.items())
        for call in calls
    ]
    imports = [
        f"{line}\n"
        for key, line in VALUE_IMPORTS.items()
        if re.search(rf"\b{key}[.(]", str(sources))
    ]
    yield new_code_cell("".join(imports) + SET_UP.format(tuple(parameters.values())))
    for number, (call, source) in enumerate(zip(calls, sources), 1):
        yield new_markdown_cell(f"## {number}. {call.name}")
        yield new_code_cell(f"{call.step} = explore.{call.name}({source})\n{call.step}")
        differs = "changed" if any(map(call.arguments.get, INSTANTS)) else "'a later state'"
        checks = [
            f"check.equal({f'{call.name}: {code}'!r}, {code}, {figure}, 'now', 'saved', custom_data={differs})"
            for code, figure in call.figures.items()
        ]
        if checks:
            hidden = {"jupyter": {"source_hidden": True}}
            yield new_code_cell("\n".join(checks), metadata=hidden)


def _shared_names(world: World, calls: list[_Call]) -> dict[str, str]:
    """Return {parameter: value}: the table of most calls, the first and the last label that they name."""
    tables = [_path(world, call.arguments["table"]) for call in calls if "table" in call.arguments]
    table = statistics.mode(tables or [""])
    labels = list(hudi.labels(world, find(world, table))["label"]) if table else []
    values = {label for call in calls for label in _label_values(call)}
    named = [label for label in labels if label in values]
    since, until = [*(named[:-1] or labels), ""][0], ["", *labels, *named][-1]
    return {"table": table, "since": since, "until": until}


def _label_values(call: _Call) -> Iterator[str]:
    for name, value in call.arguments.items():
        if name in LABELS:
            yield value
    yield from call.arguments.get("labels") or ()


def _path(world: World, table: Union[hudi.Table, str]) -> str:
    return relative_path(world, find(world, table))


def _argument(world: World, name: str, value: Any, names: Mapping[str, str]) -> str:
    """Return the code of an argument: the name of the parameter of its role, or a literal."""
    if name == "world":
        return name
    label_names = {names[role]: role for role in ("since", "until")}
    if name == "table":
        code = _name_or_literal(_path(world, value), {names["table"]: "table"})
        if isinstance(value, hudi.Table) and value.key != find(world, _path(world, value)).key:
            code = f"dataclasses.replace(explore.find(world, {code}), key={value.key!r})"
    elif name in LABELS:
        code = _name_or_literal(value, label_names)
    elif name == "labels":
        code = f"[{', '.join(_name_or_literal(label, label_names) for label in value or ())}]"
    elif isinstance(value, _Code):
        code = str(value)
    elif isinstance(value, str) and "\n" in value:  # a statement, one line below the other
        code = "(" + "\n    ".join(map(repr, value.splitlines(True))) + ")"
    else:
        code = repr(value)
    return f"{name}={code}"


def _name_or_literal(text: str, names: Mapping[str, str]) -> str:
    """Return the name of the parameter with this text; an empty text is a literal."""
    return names[text] if text and text in names else repr(text)
