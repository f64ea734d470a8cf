"""Draw pictures that fit on a slide: charts, tables of a database, histories."""

from .charts import costs, distribution, entities, matrix, panels
from .history import commits, lanes, record_history
from .picture import BARE_STYLE, GRAY, INK, PALETTE, STYLE, Picture
