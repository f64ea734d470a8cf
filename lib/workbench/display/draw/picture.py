"""The figure, the style and the colors that all pictures share."""

from pathlib import Path
from typing import Any, Callable, Iterable, Optional, Sized, TypeVar, cast

import matplotlib.pyplot as plt
from IPython.core.pylabtools import print_figure
from matplotlib import rc_params_from_file
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ...base import LakeError

STYLE = cast(
    "dict[str, Any]",
    rc_params_from_file(Path(__file__).parents[1] / "picture.mplstyle", use_default_template=False),
)
# Without axis lines: for lanes
BARE_STYLE = {
    **STYLE,
    "axes.spines.left": False,
    "axes.spines.bottom": False,
    "axes.grid.axis": "x",
}
PALETTE = STYLE["axes.prop_cycle"].by_key()["color"]
GRAY, INK = STYLE["axes.edgecolor"], STYLE["text.color"]
Function = TypeVar("Function")
# rc_context is also a decorator, which the type stubs of matplotlib do not declare
styled = cast(Callable[[dict[str, Any]], Callable[[Function], Function]], plt.rc_context)


class Picture(Figure):
    """A figure whose text form is its title.

    A notebook stores that text beside the image, and the report uses it as the alternative text.
    The figure is not registered with pyplot, so a cell that returns it shows it once.
    """

    def __init__(self, height: float = 6.2, title: str = "") -> None:
        """Create a figure of a height in inches."""
        super().__init__(figsize=(11, height), layout="constrained")
        FigureCanvasAgg(self)
        self.suptitle(title, x=0.03, ha="left", fontsize=15, weight="bold")

    def __repr__(self) -> str:
        """Return the title."""
        return " ".join(self.get_suptitle().split()) or super().__repr__()

    def _repr_png_(self) -> Optional[bytes]:  # called by IPython; None if nothing is drawn yet
        png: Optional[bytes] = print_figure(self, "png")
        return png


def label_lanes(ax: Axes, names: Iterable[Any], top: float = 0.6, bottom: float = 0.5) -> None:
    """Label the lanes of a picture, the first one at the top, with margins above and below."""
    labels = list(names)
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 1 + bottom, -top)


def require_rows(data: Sized) -> None:
    """Raise LakeError if there are no rows to draw."""
    if not len(data):
        raise LakeError("there is nothing to draw", expected="at least one row")
