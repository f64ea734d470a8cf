"""What a trace is about, and what it finds."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Tuple

import pandas

from ..hudi import Table


@dataclass(frozen=True)
class Traced:
    """A source table whose rows can be traced. sink: what its landing does, None where nothing lands them; tables:
    those of the lake it goes into; format: of its messages, "json" or "avro"."""

    name: str
    source: str  # schema.table
    key: str
    topic: str
    sink: Any
    tables: Tuple[Table, ...]
    format: str = "json"


@dataclass(frozen=True)
class Biography:
    """What `row` found: `changes`, one line per change, and `views`, the row as each view shows it now."""

    table: Traced
    key: Any
    changes: pandas.DataFrame
    views: pandas.DataFrame
