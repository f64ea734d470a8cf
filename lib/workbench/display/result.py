"""A result that shows itself: as HTML in a notebook, and as text elsewhere."""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING, Mapping, Optional

import pandas as pd

from ..base.terminal import LAYOUT_CHARACTERS, escape_unprintable
from . import show

if TYPE_CHECKING:  # matplotlib is slow to import
    from .draw import Picture


class Result:
    """A title, tables, and perhaps a picture. A subclass defines `title` and `parts`.

    Attributes:
        title: the result in one line.
        limit: the number of rows that are shown of each table.
        changed: True for each cell that is highlighted, with the index and columns of each table.
        picture: shown below the tables; in a text its title is enough.
    """

    title: str
    limit: int = 20
    changed: Optional[pd.DataFrame] = None
    picture: Optional[Picture] = None

    def parts(self) -> Mapping[str, pd.DataFrame]:
        """Return {caption: table}."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """Return the title, and the first rows of each table; a marked cell ends with `*`."""
        lines = [self.title]
        for caption, frame in self.parts().items():
            # `astype(str)` would decode bytes
            texts = frame.head(self.limit).astype(object).map(str)
            if self.changed is not None:
                texts = texts.mask(self.changed.loc[texts.index], texts + " *")
            if caption:
                lines.append(f"{caption}:")
            lines.append(texts.to_string(index=False))
        return escape_unprintable("\n".join(lines), LAYOUT_CHARACTERS)

    def _repr_html_(self) -> str:
        blocks = [f"<b>{html.escape(self.title)}</b>"]
        for caption, frame in self.parts().items():
            blocks.append(str(show.table(frame, caption, self.limit, self.changed).data))
        if self.picture is not None:
            png = base64.b64encode(self.picture._repr_png_() or b"").decode()
            blocks.append(f"<img style='max-width:100%' src='data:image/png;base64,{png}'>")
        return "".join(blocks)
