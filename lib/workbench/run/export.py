"""Export an executed notebook as HTML."""

import functools
from pathlib import Path
from typing import Any

from ..base import ROOT

TEMPLATE = Path(__file__).with_name("notebook.html.j2")


def to_html(notebook: Any, folder: Path = ROOT) -> str:
    """Convert a notebook to one HTML page.

    The code of cells with the metadata `jupyter.source_hidden` is folded, as in JupyterLab; their
    outputs stay visible.

    Args:
        notebook: the executed notebook, an nbformat node.
        folder: the folder of the pictures that its texts name; the page contains them.

    Returns:
        The HTML text of the page.
    """
    html: str = _exporter().from_notebook_node(
        notebook, resources={"metadata": {"path": str(folder)}}
    )[0]
    return html


@functools.cache  # it compiles its templates once
def _exporter() -> Any:
    from nbconvert import HTMLExporter  # a local import, because it takes half a second

    return HTMLExporter(template_file=str(TEMPLATE), embed_images=True)
