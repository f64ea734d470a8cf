"""The longer SQL of this package.

QUERIES["slots"] is the text below `-- name: slots` in queries.sql; readiness.sql has further ones.
"""

import re
from pathlib import Path

QUERIES: dict[str, str] = {
    name: text
    for file in Path(__file__).parent.glob("*.sql")
    for name, text in re.findall(
        r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", file.read_text(encoding="utf-8"), re.M | re.S
    )
}
