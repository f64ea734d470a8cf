"""The longer SQL of this package.

QUERIES["slots"] is the text below `-- name: slots` in queries.sql; readiness.sql has further ones. The name of
a query in braces stands for its text.
"""

import re
from pathlib import Path

_TEXTS: dict[str, str] = {
    name: text
    for file in Path(__file__).parent.glob("*.sql")
    for name, text in re.findall(
        r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", file.read_text(encoding="utf-8"), re.M | re.S
    )
}


def _complete(text: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda m: _complete(_TEXTS[m[1]]) if m[1] in _TEXTS else m[0], text)


QUERIES: dict[str, str] = {name: _complete(text) for name, text in _TEXTS.items()}
