"""The cell magic `%%sql`: run a query in Athena's dialect, and show its rows as a grid.

`%load_ext workbench.explore` registers it, in every kernel. The grid is that of itables, whose script is
loaded once, by `%load_ext`, and needs no network. Without scripts, or without itables, there is a table of
the first rows.
"""

from __future__ import annotations

import html
import importlib.util
import re
from typing import Any, Mapping, Optional

import pandas as pd
from IPython.core.getipython import get_ipython
from IPython.display import display
from pyspark.sql import DataFrame, SparkSession
from rich.filesize import decimal as format_size

from .. import hudi
from ..base import ParamsError, World, did_you_mean
from ..base.text import plural
from ..display import show
from ..query import dialect, readcost
from ..query.engines import backend
from ..query.spark_sql import SparkSql
from .finding import find

USAGE = "%%sql [name <<] [--at LABEL], and the statement below it"
SHOWN_ROWS = 25  # without scripts, and on each page of the grid
# The style of notebooks aligns texts to the right, too
GRID_CSS = "table.dataTable :is(th, td):not(.dt-type-numeric) {text-align: left !important}"


def load_ipython_extension(shell: Any) -> None:
    """Register `%%sql` in a shell of IPython, and load the script of the grid."""
    shell.register_magic_function(sql_cell, "cell", "sql")
    if importlib.util.find_spec("itables"):
        from itables import init_notebook_mode

        init_notebook_mode(all_interactive=False, connected=False)


def sql(
    world: World, statement: str, *, at: str = "", values: Optional[Mapping[str, Any]] = None
) -> pd.DataFrame:
    """Run a statement in Athena's dialect, as `%%sql` does.

    Args:
        world: the world.
        statement: the statement; `:name` is a placeholder for a value.
        at: label or instant as of which all its tables are read, by Spark; by default as they are, by the
            engine of the world. A view `…_ro` has the rows of `…_rt`.
        values: {name: value} of the placeholders.

    Returns:
        The rows, as `query.sql` returns them.

    Raises:
        LakeError: as `query.sql`; the lake has no such table; or the table has no such label.
    """

    def read_as_of(session: SparkSession, name: str) -> DataFrame:
        return hudi.as_of(session, world, find(world, name), at)

    engine = SparkSql(world, read_as_of) if at else backend(world)
    return engine.sql(statement, dict(values or {}))


def sql_cell(line: str, cell: str) -> None:
    """Run the cell as one statement in Athena's dialect, and show its rows.

    %%sql [name <<] [--at LABEL]

    name << assigns the rows, a pandas DataFrame, to a variable; they are also `_`, as the result of any
    cell. `:x` is a placeholder for the value of the notebook's variable `x`. --at reads all
    tables as of a label or an instant.

    Args:
        line: the options.
        cell: the statement.

    Raises:
        ParamsError: an option is invalid, the cell is empty, or the notebook has no such variable.
        LakeError: as `sql`.
    """
    shell: Any = get_ipython()
    match = re.fullmatch(r"\s*(?:([^\W\d]\w*)\s*<<)?\s*(?:--at\s+(\S+))?\s*", line)
    if not match or not cell.strip():
        raise ParamsError(
            "the cell has no statement" if match else "the options are not valid",
            location=f"%%sql {line}",
            expected=USAGE,
        )
    name, at = match.groups(default="")
    world = _variable(shell, "world")
    if not isinstance(world, World):
        raise ParamsError("`world` is no world", hint='world = params.load("local")')
    # a list has Python's own type for one of NumPy
    values = {
        token.text: pd.Series([_variable(shell, token.text)]).tolist()[0]
        for token in dialect.placeholders(cell)
    }
    frame = sql(world, cell.strip(), at=at, values=values)
    if name:
        shell.push({name: frame})
    shell.displayhook.update_user_ns(frame)  # `_` and Out, without a second output
    _show(frame, values)


def _variable(shell: Any, name: str) -> Any:
    if name not in shell.user_ns:
        names = [one for one in shell.user_ns if not one.startswith("_")]
        raise ParamsError(
            f"the notebook has no variable {name!r}", expected=did_you_mean(name, names)
        )
    return shell.user_ns[name]


def _show(frame: pd.DataFrame, values: Mapping[str, Any]) -> None:
    """Show the rows, their number, the bytes read, and the statement that the engine ran."""
    note, size = plural(len(frame), "row"), readcost.bytes_read(frame)
    if size is not None:
        note += f", {format_size(size)} read"
    statement = "\n".join([frame.attrs["statement"], *(f":{k} = {v!r}" for k, v in values.items())])
    page = f"<details><summary>{note}</summary><pre>{html.escape(statement)}</pre></details>"
    if len(frame.columns) and importlib.util.find_spec("itables"):
        from itables import to_html_datatable

        page += to_html_datatable(
            frame,
            connected=False,
            display_logo_when_loading=False,
            pageLength=SHOWN_ROWS,
            css=GRID_CSS,
        )
    else:
        page += show.table(frame, limit=SHOWN_ROWS).data
    text = f"{frame.head(SHOWN_ROWS).to_string(index=False)}\n{note}"
    display({"text/html": page, "text/plain": text}, raw=True)
