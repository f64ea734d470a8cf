"""Draw pictures that fit on a slide: charts, histories and diagrams."""

from .charts import costs, distribution, matrix, panels
from .diagram import Arrow, Box, flow
from .history import commits, lanes, record_history
from .picture import BARE_STYLE, GRAY, INK, PALETTE, STYLE, Picture
