"""Show tables, folded JSON and the files of the lake in notebooks, and shorten file names."""

import html
import json as jsons
import re
from decimal import Decimal
from numbers import Integral
from pathlib import Path
from typing import Any, Iterable, Mapping, Optional

import numpy as np
import pandas as pd
from IPython.core.getipython import get_ipython
from IPython.display import HTML
from rich.filesize import decimal as format_size

from ..base import LakeError, World, files
from ..base.text import plural

MAX_CELL_CHARS = 600  # characters of a cell that are shown; a long text wraps
# A float with more decimals is the result of a computation, and is shown with fewer
MAX_EXACT_DECIMALS, ROUNDED_DECIMALS = 8, 4
MARK_COLOR = "#FBEBCB"  # background of a highlighted cell
NULL = "<span style='color:#8A9099'>null</span>"
NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")  # types that pandas infers
# A base file is <group>_<write token>_<instant>.parquet, and a log is
# .<group>_<instant>.log.<number>_<write token>. The group is a UUID and a number, the token three
# numbers of Spark (Hudi's FSUtils, makeBaseFileName and LOG_FILE_PATTERN). A partition is
# field=value, one folder for each field.
SHORTENING_RULES = {
    r"(^|/)[^/=]+=": r"\1",
    r"__HIVE_DEFAULT_PARTITION__": "(null)",
    r"([0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}": r"\1…",
    r"(…-\d+|\.log\.\d+)_\d+-\d+-\d+": r"\1",
}


def json(obj: Any, folded: bool = True, title: str = "JSON") -> HTML:
    """Show an object, or a text that holds JSON, with indentation.

    Args:
        obj: the object or text.
        folded: show one line that opens on a click.
        title: the text of the folded line.
    """
    if isinstance(obj, (str, bytes)):
        obj = jsons.loads(obj)
    text = html.escape(jsons.dumps(obj, indent=2, ensure_ascii=False, default=str))
    block = (
        f"<pre style='margin:.3em 0 .3em 1em;overflow-x:auto;font-family:monospace'>{text}</pre>"
    )
    if folded:
        block = f"<details><summary>{html.escape(title)}</summary>{block}</details>"
    return HTML(block)


def table(
    df: pd.DataFrame, caption: str = "", limit: int = 20, marked: Optional[pd.DataFrame] = None
) -> HTML:
    """Show the first rows of a frame without its index, and the number of rows.

    Whole numbers are shown without decimals, and null is gray. A column of numbers is aligned to
    the right, with the same number of decimals in each cell. A float with up to eight decimals is
    shown exactly; if a longer one is rounded, the line above the table says so. Whole numbers have
    thousands separators in a column with the word "bytes" in its name only: a key, a year or an
    offset must have none.

    Args:
        df: the frame.
        caption: a title above the table.
        limit: number of rows shown.
        marked: True for each cell that is highlighted, with the index and columns of `df`.
    """
    return HTML(_table_html(df, caption, limit, has_index=False, marked=marked))


def row(df: pd.DataFrame, caption: str = "") -> HTML:
    """Show the first row of a frame, one line for each of its columns.

    Args:
        df: the frame.
        caption: a title above the table.
    """
    columns = df.head(1).T.reset_index().set_axis(["column", "value"], axis=1)
    return table(columns, caption, limit=len(df.columns))


def set_up(world: World) -> World:
    """Show every frame in this notebook as `table` does from now on; return the world, to show it.

    A wide frame scrolls in its own box. The index is shown if it has a meaning.
    """
    shell: Any = get_ipython()
    if shell is not None:
        shell.display_formatter.formatters["text/html"].for_type(pd.DataFrame, _dataframe_html)
    return world


def _dataframe_html(df: pd.DataFrame) -> str:
    if all(name is not None and name not in df.columns for name in df.index.names):
        return _table_html(df.reset_index(), "", 20, has_index=False)
    return _table_html(df, "", 20, has_index=not pd.api.types.is_integer_dtype(df.index.dtype))


def _table_html(
    df: pd.DataFrame,
    caption: str,
    limit: int,
    has_index: bool,
    marked: Optional[pd.DataFrame] = None,
) -> str:
    formatted = df.head(limit).copy()
    # Text is aligned to the left; the style of nbconvert aligns everything to the right
    styles = [{"selector": "th, td", "props": "text-align: left"}]
    is_rounded = False
    for position, (name, column) in enumerate(df.items()):
        if column.dtype.kind == "f" and column.hasnans:
            # Whole numbers with a missing value are floats
            column = column.convert_dtypes(convert_floating=False)
        column = column.head(limit)
        is_numeric = pd.api.types.infer_dtype(column) in NUMBERS
        values = column.array  # a float32 stays one: its text is short
        cells = [_format_cell(value) for value in values]
        if is_numeric:
            _align_numbers(str(name), values, cells)
        is_rounded = is_rounded or any(map(_is_rounded, values, cells))
        formatted.isetitem(position, pd.Series(cells, index=formatted.index, dtype=object))
        if is_numeric:
            styles.append({"selector": f".col{position}", "props": "text-align: right"})
    styler = formatted.style.format(na_rep=NULL, escape="html")  # HTML in the data is escaped
    styler.format_index(escape="html").format_index(escape="html", axis=1)
    if marked is not None:
        styles.append({"selector": ".marked", "props": f"background-color: {MARK_COLOR}"})
        is_marked = marked.loc[formatted.index]
        styler.set_td_classes(is_marked.map(lambda is_set: "marked" if is_set else ""))
    styler.hide(names=True, axis=1)
    styler.hide(names=has_index)  # the heading of the index, or the whole index
    styler.set_table_styles(styles)
    notes = [f"<b>{html.escape(caption)}</b>"] if caption else []
    if len(df) > limit:
        notes.append(f"first {limit} of {len(df):,} rows")
    elif not len(df):
        notes.append("no rows")
    if is_rounded:
        notes.append("some decimals are rounded")
    head = f"<div style='margin:.2em 0'>{' – '.join(notes)}</div>" if notes else ""
    body = styler.to_html(max_columns=60)
    return f"{head}<div style='overflow-x:auto;max-width:100%'>{body}</div>"


def _align_numbers(name: str, values: Iterable[Any], cells: list[Optional[str]]) -> None:
    """Give the cells of a column of numbers the same number of decimals."""
    plain = [cell for cell in cells if cell and "e" not in cell]
    decimals = max((len(cell.partition(".")[2]) for cell in plain), default=0)
    is_size = "bytes" in re.findall("[a-z]+", name.lower())
    for position, value in enumerate(values):
        if isinstance(value, (float, np.floating)) and cells[position] in plain:
            cells[position] = f"{value:.{decimals}f}"
        elif is_size and isinstance(value, Integral):
            cells[position] = f"{value:,}"


def _is_rounded(value: Any, cell: Optional[str]) -> bool:
    return isinstance(value, float) and cell is not None and float(cell) != value


def _format_cell(value: Any) -> Optional[str]:
    """Format a value as a cell; None for None, NaN and NA."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    if isinstance(value, (dict, list)):
        text = jsons.dumps(value, ensure_ascii=False, default=str)
    elif isinstance(value, tuple):
        text = ", ".join(map(str, value))
    elif isinstance(value, Decimal):
        text = f"{value:f}"  # not 0E-10
    else:
        text = str(value)
    if isinstance(value, float) and len(text.partition(".")[2]) > MAX_EXACT_DECIMALS:
        # A small number would lose its digits
        return text if abs(value) < 1e-3 else str(round(value, ROUNDED_DECIMALS))
    return text if len(text) <= MAX_CELL_CHARS else text[: MAX_CELL_CHARS - 1] + "…"


def tree(uri: str, limit: int = 20, last: int = 0) -> HTML:
    """Show the files below a folder, with sizes, without hidden files and checksums.

    Args:
        uri: URI or path of the folder.
        limit: number of files shown from the beginning.
        last: number of files shown from the end.

    Raises:
        LakeError: the folder does not exist.
    """
    from pyarrow.fs import FileType

    uri = str(uri).rstrip("/")
    if ":" not in uri:
        uri = f"file:{uri}"
    filesystem, folder = files.open_filesystem(uri)
    if filesystem.get_file_info(folder).type != FileType.Directory:
        raise LakeError(
            "there is no such folder", location=uri, hint="run the cells above, which create it"
        )
    sizes = {
        path: info.size
        for path, info in sorted((Path(name), info) for name, info in files.list_files(uri).items())
        if not path.name.startswith("_") and not any(p.startswith(".") for p in path.parts)
    }
    visible = list(sizes)
    lines = [f"{Path(folder).name}/"]
    hidden_count = len(visible) - limit - last
    if hidden_count > 0:
        lines += _file_lines(sizes, visible[:limit])
        lines.append(f"  … and {hidden_count:,} more")
        visible = visible[limit + hidden_count :]
    lines += _file_lines(sizes, visible)
    lines.append(f"{plural(len(sizes), 'file')}, {format_size(sum(sizes.values()))}")
    text = html.escape("\n".join(lines))
    return HTML(f"<pre style='line-height:1.35;font-family:monospace'>{text}</pre>")


def _file_lines(sizes: Mapping[Path, int], visible: Iterable[Path]) -> list[str]:
    """Return a line for each file with its size, and one for each folder before its first file."""
    lines: dict[Path, str] = {}
    for file in visible:
        for path in (*reversed(file.parents), file):
            end = f"  ({format_size(sizes[path])})" if path == file else "/"
            lines.setdefault(path, "  " * len(path.parts) + path.name + end)
    return list(lines.values())[1:]  # the first one is the folder itself


def short_names(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Return a copy of a frame with short file names and partition paths.

    A short name has the parts that distinguish versions: the beginning of the file group and its
    number, the instant, and the number of a log. The short name of
    `nationality=American/18b75394-b518-415d-959b-e50fc55f4cdb-3_0-9236-0_20261121215023167.parquet`
    is `American/18b75394…-3_20261121215023167.parquet`. The partition of null is `(null)`.

    Args:
        frame: the frame.
        columns: columns with file names or partition paths; missing values stay.
    """
    formatted = frame.copy()
    for name in columns:
        for pattern, short in SHORTENING_RULES.items():
            formatted[name] = formatted[name].str.replace(pattern, short, regex=True)
    return formatted
