"""Hudi tables: made, filled from changes, asked for their past, kept in order."""
from .catalog import all_entries, entries, identifier, register, registered
from .changes import Landed, Topic
from .ingesting import Ingested, Stream, dead_letters_path
from .procedures import call, compact, run_compaction, schedule_compaction
from .tables import (
    NO_BLOOM_FILTER,
    TYPES,
    Table,
    check_version,
    dead_letters,
    drop,
    exists,
    ingest,
    properties,
    read,
    read_independent,
    reader_schema,
    table,
)
from .timeline import check_readable, commits, completed, mark, marks, pending_compactions, resolve
from .travel import as_of, between, reader

__all__ = ["Ingested", "Landed", "NO_BLOOM_FILTER", "Stream", "TYPES", "Table", "Topic", "all_entries", "as_of",
           "between", "call", "check_readable", "check_version", "commits", "compact", "completed", "dead_letters",
           "dead_letters_path", "drop", "entries", "exists", "identifier", "ingest", "mark", "marks",
           "pending_compactions", "properties", "read", "read_independent", "reader", "reader_schema", "register",
           "registered", "resolve", "run_compaction", "schedule_compaction", "table"]
