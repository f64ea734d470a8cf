"""Texts of a picture that overlap or leave the canvas, and a contact sheet of a run's pictures.

usage: tests/help/pictures.py RUN OUT.png, where RUN is the folder of a run
"""

import base64
import io
import json
import sys
from itertools import combinations
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

TOLERANCE = 2  # pixels: the extent of a text includes the space around its letters
COLUMNS = 4


def text_faults(figure):
    """Return a line for each text that leaves the canvas, and for each pair of texts that overlap."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    hidden = {label for axes in figure.axes for label in _undrawn(axes)}
    boxes = [
        (" ".join(text.get_text().split()), text.get_window_extent(renderer).padded(-TOLERANCE))
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in hidden
    ]
    page = figure.bbox
    faults = [
        f"{name!r} leaves the canvas"
        for name, box in boxes
        if not (page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1)
    ]
    faults += [
        f"{one!r} and {other!r} overlap"
        for (one, box), (other, its_box) in combinations(boxes, 2)
        if box.overlaps(its_box)
    ]
    return faults


def _undrawn(axes):
    """Return the labels of ticks that are not drawn: those beyond the limits, all if the axes are off."""
    labels, drawn = set(), set()
    for axis in (axes.xaxis, axes.yaxis):
        ticks = axis._update_ticks() if axes.axison else []
        drawn |= {label for tick in ticks for label in (tick.label1, tick.label2)}
        labels |= {*axis.findobj(Text)} - {axis.label}
    return labels - drawn


def pictures_of(run):
    """Yield (notebook, title, PNG) of each picture in the executed notebooks of a run."""
    for path in sorted(Path(run).rglob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", ()):
                png = output.get("data", {}).get("image/png")
                if png:
                    title = "".join(output["data"].get("text/plain", ""))
                    yield path.stem, title, base64.b64decode(png)


def contact_sheet(run, out):
    """Write all pictures of a run into one PNG."""
    found = [*pictures_of(run)]
    rows = -(-len(found) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(COLUMNS * 6, rows * 4), squeeze=False)
    for ax in axes.flat:
        ax.axis("off")
    for ax, (notebook, _, png) in zip(axes.flat, found):
        ax.imshow(plt.imread(io.BytesIO(png)))
        ax.set_title(notebook, fontsize=9, parse_math=False)
    figure.tight_layout()
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    contact_sheet(sys.argv[1], sys.argv[2])
