"""What notebooks show: tables, folded JSON, the files of the lake, and names as short as a page
needs them.
"""

import html
import inspect
import json as jsons
import re
import textwrap
from numbers import Integral
from pathlib import Path
from typing import Any, Mapping, Optional

import pandas as pd
from IPython import get_ipython
from IPython.display import HTML, Code
from rich.filesize import decimal as size

from ..base import LakeError, did_you_mean, files, paths
from ..hudi import Table
from ..hudi.timeline import timeline_files

MAX_CELL_CHARS = 120  # characters of a cell that are shown
SEGMENT_COLORS = ("#FBDCC8", "#D6E8F5", "#D3EEE4", "#FBEBCB")  # backgrounds of a message's parts
NULL = "<span style='color:#8A9099'>null</span>"
# A base file is <group>_<write token>_<instant>.parquet, a log
# .<group>_<instant>.log.<number>_<write token>, where the group is a UUID with a number behind it
# and the token three numbers of Spark (Hudi's FSUtils, makeBaseFileName and LOG_FILE_PATTERN). A
# partition is field=value, of several fields one folder each.
SHORTENING_RULES = {
    r"(^|/)[^/=]+=": r"\1",
    r"__HIVE_DEFAULT_PARTITION__": "(null)",
    r"([0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}": r"\1…",
    r"(…-\d+|\.log\.\d+)_\d+-\d+-\d+": r"\1",
}


def json(obj: Any, folded: bool = True, title: str = "JSON") -> HTML:
    """Show an object, or a text holding JSON, indented; folded it is one line to click on."""
    if isinstance(obj, (str, bytes)):
        obj = jsons.loads(obj)
    text = html.escape(jsons.dumps(obj, indent=2, ensure_ascii=False, default=str))
    pre = f"<pre style='margin:.3em 0 .3em 1em;overflow-x:auto;font-family:monospace'>{text}</pre>"
    return HTML(
        f"<details><summary>{html.escape(title)}</summary>{pre}</details>" if folded else pre
    )


def segments(parts: Mapping[str, bytes]) -> HTML:
    """Show the parts of a message as hexadecimal digits, each part marked in a color of its own and
    named below.
    """
    digits, names = [], []
    for number, (name, part) in enumerate(parts.items()):
        mark = f"<span style='background:{SEGMENT_COLORS[number % len(SEGMENT_COLORS)]};padding:.1em .3em'>{{}}</span>"
        digits.append(mark.format(part.hex(" ")))
        names.append(mark.format(html.escape(name)))
    text = f"{' '.join(digits)}<br><br>{'<br>'.join(names)}"
    return HTML(f"<div style='font-family:monospace;line-height:1.7'>{text}</div>")


def table(df: pd.DataFrame, caption: str = "", limit: int = 20) -> HTML:
    """Show the first `limit` rows of a frame without its index, and how many more there are.

    Whole numbers are whole, null is grey, and a column of numbers stands to the right, its
    fractions with equally many decimals. Whole numbers in a column of bytes (it has the word in its
    name) are in groups of three digits; of others the name does not tell a count from a key, a year
    or an offset, which must have none.
    """
    return HTML(_table_html(df, caption, limit, index=False))


def row(df: pd.DataFrame, caption: str = "") -> HTML:
    """Show the first row of a frame with a line for each of its columns."""
    return table(
        df.head(1).T.reset_index().set_axis(["column", "value"], axis=1),
        caption,
        limit=len(df.columns),
    )


def install_dataframe_formatter() -> None:
    """Let a notebook show every frame as `table` does, a wide one scrolling in its own box. The
    rows' names are shown where they have a meaning. Importing this module does it; outside of
    IPython nothing happens.
    """
    shell = get_ipython()
    if shell is not None:
        shell.display_formatter.formatters["text/html"].for_type(pd.DataFrame, _dataframe_html)


def _dataframe_html(df: pd.DataFrame) -> str:
    if all(name is not None and name not in df.columns for name in df.index.names):
        return _table_html(df.reset_index(), "", 20, index=False)
    return _table_html(df, "", 20, index=not pd.api.types.is_integer_dtype(df.index.dtype))


def _table_html(df: pd.DataFrame, caption: str, limit: int, index: bool) -> str:
    shown, right = df.head(limit).copy(), []
    for at, (name, column) in enumerate(df.items()):
        if (
            column.dtype.kind == "f" and column.hasnans
        ):  # whole numbers beside which one is missing are whole again
            column = column.convert_dtypes(convert_floating=False)
        cells, numbers = _format_column(str(name), column.head(limit))
        shown.isetitem(at, pd.Series(cells, index=shown.index, dtype=object))
        right += [{"selector": f".col{at}", "props": "text-align: right"}] * numbers
    styler = shown.style.format(na_rep=NULL, escape="html")  # an HTML text in the data stays text
    styler.format_index(escape="html").format_index(escape="html", axis=1)
    styler.hide(names=True, axis=1).hide(
        names=index
    )  # with `names` a heading above the index, without it the index
    # text reads from the left; nbconvert's style puts everything to the right
    styler.set_table_styles([{"selector": "th, td", "props": "text-align: left"}, *right])
    body = styler.to_html(max_columns=60)
    more = (
        f" – first {limit} of {len(df):,} rows"
        if len(df) > limit
        else ""
        if len(df)
        else " no rows"
    )
    head = (
        f"<div style='margin:.2em 0'><b>{html.escape(caption)}</b>{more}</div>"
        if caption or more
        else ""
    )
    return f"{head}<div style='overflow-x:auto;max-width:100%'>{body}</div>"


def _format_column(name: str, column: pd.Series) -> tuple[list[Optional[str]], bool]:
    """A column's values as they are shown, None for what is missing, and whether they are
    numbers.
    """
    cells = [_format_cell(value) for value in column]
    if pd.api.types.infer_dtype(column) not in (
        "integer",
        "floating",
        "mixed-integer-float",
        "decimal",
    ):
        return cells, False
    if "bytes" in re.findall("[a-z]+", name.lower()):
        cells = [
            f"{value:,}" if isinstance(value, Integral) else cell
            for value, cell in zip(column, cells)
        ]
    most = max(
        (len(cell.partition(".")[2]) for cell in cells if cell and "e" not in cell), default=0
    )
    return [
        f"{value:.{most}f}" if isinstance(value, float) and cell and "e" not in cell else cell
        for value, cell in zip(column, cells)
    ], True


def _format_cell(value: Any) -> Optional[str]:
    """A cell's value as it is shown: None for None, NaN and NA, and what was parsed from JSON as
    JSON.
    """
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    if isinstance(value, float):  # four decimals at most, and at least one
        return str(value if 0 < abs(value) < 1e-3 else round(value, 4))
    if isinstance(value, tuple):
        value = ", ".join(map(str, value))
    text = (
        jsons.dumps(value, ensure_ascii=False, default=str)
        if isinstance(value, (dict, list))
        else str(value)
    )
    return text if len(text) <= MAX_CELL_CHARS else text[: MAX_CELL_CHARS - 1] + "…"


def code(*of: Any) -> Code:
    """Show the text of functions of the library: what runs is what is seen."""
    return Code(
        "\n\n".join(textwrap.dedent(inspect.getsource(one)) for one in of), language="python"
    )


def avro(name: str) -> HTML:
    """Show the fields of data/schemas/<name>.avsc: type, whether one may be missing, and what the
    type stands for (the name that Kafka Connect gives to it, e.g. io.debezium.time.Date). Raises
    LakeError: a name that leads elsewhere.
    """
    file = paths.join_uri(str(paths.ROOT / "data" / "schemas"), f"{name}.avsc")
    schema = jsons.loads(Path(file).read_text(encoding="utf-8"))
    rows = []
    for field in schema["fields"]:
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        (kind,) = [k if isinstance(k, dict) else {"type": k} for k in kinds if k != "null"]
        meaning = (
            kind.get("logicalType") or kind.get("connect.name") or kind.get("connect.type", "")
        )
        rows.append((field["name"], kind["type"], "yes" if "null" in kinds else "", meaning))
    return table(
        pd.DataFrame(rows, columns=["field", "type", "may be missing", "meaning"]), limit=len(rows)
    )


def tree(uri: str, limit: int = 20, last: int = 0) -> HTML:
    """Show the files below an address (or a path), with sizes; hidden files and checksums are left
    out.

    Args:
        limit: how many files are shown from the beginning. last: and how many from the end.

    Raises:
        LakeError: there is no such folder.
    """
    from pyarrow.fs import FileType

    text = str(uri).rstrip("/")
    text = text if ":" in text else f"file:{text}"
    system, place = files.open_filesystem(text)
    if system.get_file_info(place).type != FileType.Directory:
        raise LakeError(
            "there is no such folder", location=text, hint="run the cells above: they write it"
        )
    sizes = {Path(path): info.size for path, info in files.list_files(text).items()}
    found = sorted(
        p for p in sizes if p.name[0] != "_" and not any(part.startswith(".") for part in p.parts)
    )
    more = len(found) - limit - last
    lines = [f"{Path(place).name}/", *_file_lines(sizes, found[:limit] if more > 0 else found)]
    if more > 0:
        lines += [f"  … and {more:,} more", *_file_lines(sizes, found[len(found) - last :])]
    total = sum(sizes[p] for p in found)
    lines.append(f"{len(found):,} file{'s'[len(found) == 1 :]}, {size(total)}")
    return HTML(
        f"<pre style='line-height:1.35;font-family:monospace'>{html.escape(chr(10).join(lines))}</pre>"
    )


def _file_lines(sizes: dict[Path, int], found: list[Path]) -> list[str]:
    """A line for each file, with its size, and for each folder before the first file in it."""
    lines: dict[Path, str] = {}
    for file in found:
        for path in (*reversed(file.parents), file):
            end = f"  ({size(sizes[path])})" if path == file else "/"
            lines.setdefault(path, "  " * len(path.parts) + path.name + end)
    return list(lines.values())[1:]  # the first one is the folder itself


def short_names(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """A copy of a frame in which the file names and partition paths in these columns are short.
    What tells versions apart is left: where the file group begins, its number, the instant, and of
    a log its number.

    Of
    `nationality=American/18b75394-b518-415d-959b-e50fc55f4cdb-3_0-9236-0_20261121215023167.parquet`
    is left `American/18b75394…-3_20261121215023167.parquet`; the partition of null is `(null)`, and
    what is missing stays so.

    Raises:
        LakeError: the frame has no such column.
    """
    shown = frame.copy()
    for name in columns:
        if name not in frame.columns:
            raise LakeError(
                f"the frame has no column {name!r}",
                expected=did_you_mean(name, list(frame.columns)),
            )
        for pattern, short in SHORTENING_RULES.items():
            shown[name] = shown[name].str.replace(pattern, short, regex=True)
    return shown


def timeline_steps(table: Table, last: int = 2) -> pd.DataFrame:
    """The files that the last actions left on a table's timeline, in the order in which they were
    written: instant, step, what the file's name ends in. An action is requested (step 1), then
        inflight (2), then done (3).
    """
    steps = {"requested": 1, "inflight": 2}
    rows = sorted(
        (instant, steps.get(ends.rpartition(".")[2], 3), ends)
        for instant, ends, _ in timeline_files(table)
    )
    newest = sorted({instant for instant, _, _ in rows})[-last:]
    return pd.DataFrame(
        [row for row in rows if row[0] in newest], columns=["instant", "step", "file ends in"]
    )


def field_mapping(event: dict[str, Any], record: dict[str, Any], added: str) -> pd.DataFrame:
    """A change event of Debezium beside the flat record that its transform made of it: each field
    of the envelope with its value, and the name and value in the record, empty where it was
    dropped. Fields of the record that come from nowhere in the envelope are the last rows.

    Args:
        added: `add.fields` of the transform. A name without a point is looked for in the envelope,
            then in its `source` (Debezium's documentation, "New Record State Extraction").
    """
    fields = {
        f"{name}.{inner}" if inner else name: v
        for name, value in event.items()
        for inner, v in (value.items() if value and isinstance(value, dict) else [("", value)])
    }
    names = {f"after.{name}": name for name in event["after"]}
    names.update(
        {
            name if name in fields else f"source.{name}": "__" + name.replace(".", "_")
            for name in added.split(",")
        }
    )
    rows = [
        (
            path,
            _format_null(value),
            names.get(path, ""),
            _format_null(record.get(names[path])) if path in names else "",
        )
        for path, value in fields.items()
    ]
    rows += [
        ("", "", name, _format_null(value))
        for name, value in record.items()
        if name not in names.values()
    ]
    return pd.DataFrame(rows, columns=["envelope", "value", "flattened", "its value"])


def _format_null(value: Any) -> str:
    return "null" if value is None else str(value)


install_dataframe_formatter()
