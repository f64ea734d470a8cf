"""Captured tables: their topics, their ingest into the lake, their comparison with the source, their removal."""

from .capture import Capture
from .flow import CaptureFlow

# the catalog databases of the bundled tracks, and Spark's own
RESERVED_DATABASES = (
    "default",
    "datalake",
    "moma_cow",
    "moma_mor",
    "moma_scratch",
    "operations",
    "pagila_kafka_connect",
    "pagila_polled",
    "sales",
    "sampledatabase",
)
