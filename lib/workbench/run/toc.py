"""The notebooks in reading order, what each promises, and the picture of the flow, for the first notebook."""
from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List

from ..base import paths

if TYPE_CHECKING:
    from IPython.display import HTML, Markdown


def notebooks() -> List[Path]:
    """Every notebook, in reading order."""
    return sorted(p for p in (paths.ROOT / "notebooks").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)


def name(path: Path) -> str:
    """What a notebook is called: its path below notebooks/."""
    return path.relative_to(paths.ROOT / "notebooks").as_posix()


def introduction(cells: List[Any], otherwise: str) -> Dict[str, str]:
    """Title and promise of a notebook, as Markdown: heading and first paragraph of its first cell of text;
    `otherwise` where it has no title."""
    first = next((c["source"] for c in cells if c["cell_type"] == "markdown"), "")
    title, _, rest = first.strip().partition("\n")
    promise = " ".join(re.split(r"\n\s*\n", rest.strip())[0].split())
    return {"title": title.strip("# ") or otherwise, "promise": "" if promise.startswith("#") else promise}


def contents() -> Markdown:
    """The table of contents, for display in a notebook at the top of notebooks/."""
    import nbformat
    from IPython.display import Markdown

    rows = ["| notebook | | at its end |", "|---|---|---|"]
    for path in notebooks():
        intro = introduction(nbformat.read(path, as_version=4).cells, path.stem)
        promise = re.sub(r"^At the end of this notebook,? ", "", intro["promise"])
        rows.append(f"| [{path.stem}]({name(path)}) | {intro['title']} | {promise[:1].upper()}{promise[1:]} |")
    return Markdown("\n".join(rows))


def flow() -> HTML:
    """The picture of the flow (docs/flow.svg)."""
    from IPython.display import HTML

    svg = (paths.ROOT / "docs" / "flow.svg").read_text(encoding="utf-8")
    return HTML(f"<div style='max-width:960px'>{svg}</div>")
