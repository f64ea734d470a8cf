"""The table of contents and the picture of the flow, for the first notebook and for the README."""
from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import List

from ..base.paths import ROOT


@dataclass(frozen=True)
class Entry:
    """One notebook: path below notebooks/, title, and its promise (the first sentence below the title)."""

    path: str
    title: str
    promise: str


def entries() -> List[Entry]:
    """Return every notebook in reading order."""
    import nbformat

    folder = ROOT / "notebooks"
    out = []
    for path in sorted(folder.rglob("*.ipynb"), key=lambda p: p.relative_to(folder).as_posix()):
        if ".ipynb_checkpoints" in path.parts:
            continue
        text = next(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown")
        title, _, rest = text.partition("\n")
        promise = re.split(r"\n\s*\n", rest.strip())[0].replace("\n", " ")
        out.append(Entry(path.relative_to(folder).as_posix(), title.lstrip("# ").strip(), promise))
    return out


def contents():
    """Return the table of contents as Markdown, for display in a notebook at the top of notebooks/."""
    from IPython.display import Markdown

    return Markdown(as_markdown())


def as_markdown(prefix: str = "") -> str:
    """Return the table of contents as a Markdown table; links start with `prefix`."""
    short = {e.path: re.sub(r"^At the end of this notebook,? ", "", e.promise).strip() for e in entries()}
    rows = [f"| [{Path(e.path).stem}]({prefix}{e.path}) | {e.title} | {short[e.path][:1].upper()}{short[e.path][1:]} |"
            for e in entries()]
    return "\n".join(["| notebook | | at its end |", "|---|---|---|", *rows])


def flow():
    """Return the picture of the flow (docs/flow.svg)."""
    from IPython.display import HTML

    svg = (ROOT / "docs" / "flow.svg").read_text(encoding="utf-8")
    return HTML(f"<div style='max-width:960px'>{svg}</div>")
