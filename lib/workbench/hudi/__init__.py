"""Hudi tables: create them, fill them from changes, query their history, maintain them."""

from .changes import Landed, Topic
from .ddl import call_procedure, compact, is_registered, register
from .decode import reader_schema
from .ingesting import Ingested, IngestJob, ingest, next_offsets, wait_for_changes
from .labeling import label, labels
from .lifecycle import dead_letters, drop, publish_dead_letters
from .reading import as_of, between, read, read_arrow, read_with_all_engines
from .tables import (
    Table,
    catalog_names,
    dead_letters_path,
    scratch_copy,
    spark_reader,
    table,
)
from .timeline import commits, exists, properties, schema_changes
