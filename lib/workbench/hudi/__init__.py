"""Hudi tables: made, filled from changes, asked for their past, kept in order."""

from .catalog import call, compact
from .changes import Landed, Topic
from .ddl import register, registered
from .decode import reader_schema
from .ingesting import Ingested, Stream, ingest, stream
from .keeping import dead_letters, drop, label, labels, send_dead_letters
from .reading import as_of, between, read, read_independent, readers
from .tables import Table, dead_letters_path, entries, reader, table
from .timeline import commits, exists, properties, schema_changes
