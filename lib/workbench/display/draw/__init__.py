"""Draw pictures that fit on a slide: charts and histories."""

from .charts import costs, distribution, matrix, panels, pie_top, ranking, scatter, stacked
from .history import commits, lanes, record_history, spans
from .picture import BARE_STYLE, GRAY, INK, PALETTE, STYLE, Picture
