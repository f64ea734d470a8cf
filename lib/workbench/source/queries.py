"""The longer SQL for PostgreSQL.

QUERIES["slots"] is the text below `-- name: slots` in queries.sql.
"""

import re
from pathlib import Path

QUERIES: dict[str, str] = dict(
    re.findall(
        r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)",
        Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"),
        re.M | re.S,
    )
)
