"""A slider over the labels of a table: its rows as of each of them.

The result is HTML with the rows of all labels, which is complete without scripts; scripts add the range
input. The parameter `at` is its state, so a headless run shows the same frame.
"""

from __future__ import annotations

import html
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Union

import jinja2

from .. import hudi
from ..base import LakeError, World, did_you_mean
from . import frames
from .finding import find

TEMPLATE = jinja2.Template(
    Path(__file__).with_name("slider.html.j2").read_text(encoding="utf-8"), autoescape=True
)
MAX_FRAMES = 50  # the newest labels


@dataclass(frozen=True, eq=False)
class Slider:
    """The rows of a table as of several labels, one of which is selected.

    Attributes:
        label: the selected label.
        frame: its frame.
        pages: {label: its frame as HTML, or why it cannot be read}, in the order of the slider.
    """

    label: str
    frame: frames.Frame
    pages: Mapping[str, str]

    def __repr__(self) -> str:
        """Return the selected frame as text, and the labels."""
        return f"{self.frame}\nlabels: {', '.join(self.pages)}"

    def _repr_html_(self) -> str:
        """Return all frames, and a range input that selects one; its id is new in each output."""
        index = list(self.pages).index(self.label)
        page: str = TEMPLATE.render(id=f"slider-{uuid.uuid4()}", pages=self.pages, index=index)
        return page


def slider(
    world: World, table: Union[hudi.Table, str], *, at: str = "", where: str = "true"
) -> Slider:
    """Show the rows of a table as of each of its labels, the newest 50, with a slider.

    Args:
        world: the world.
        table: the table, or its name (see `find`).
        at: the label that is selected; by default the last one.
        where: a condition on the rows in Athena's SQL, such as "birth_year > 1900".

    Returns:
        The slider; `frame` is that of the selected label, as `explore.at` returns it.

    Raises:
        LakeError: the slider has no such label; or as `explore.at` for the selected label. Another
            label that cannot be read shows the error in its frame.
    """
    table = find(world, table)
    names = list(hudi.labels(world, table)["label"].tail(MAX_FRAMES))
    selected = at or "".join(names[-1:])
    if selected not in names:
        raise LakeError(
            f"the slider of {table.name} has no label {selected!r}",
            expected=did_you_mean(selected, names),
            hint="hudi.label(world, table, name) gives one",
        )
    frame, pages = frames.at(world, table, selected, where=where), {}
    for name in names:
        try:
            is_read = name == selected
            page = frame if is_read else frames.at(world, table, name, where=where)
            pages[name] = page._repr_html_()
        except LakeError as e:  # such as an instant whose files were cleaned away
            pages[name] = f"<pre>{html.escape(str(e))}</pre>"
    return Slider(selected, frame, pages)
