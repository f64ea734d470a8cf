"""The lakehouse workbench: the library behind the notebooks.

Its packages in the order of the data flow (docs/design.md):

- base: errors for users, waiting, files by URI, paths, worlds (`params`), secrets.
- stack: the embedded services (ensure_running, up, status, down), pinned jars (artifacts), checks
  of the machine (doctor).
- source: the source databases (postgres, mariadb) and their loaders (loading).
- connect: connectors (config, validate, apply, status, delete).
- topic: topics, the schema registry, the wire formats of messages, the dead-letter queue.
- spark: sessions of a world, and the embedded Spark Connect server.
- landing: topics to raw files, and tables to topics, configured by the JSON of connectors.
- hudi: tables (ingest, labels and time travel, catalog, compaction).
- query: SQL in Athena's dialect.
- checks: claims, compared with the source.
- display: tables (show) and charts (draw).
- run: headless execution of notebooks in their order, with a report.
- flow: captured tables, from the source to the lake, and their comparison by checksums.
- trace: one row through all stages.
- explore: the tables of the lake, their rows at an instant, and what changed.
- own: flows of the user's own tables.
- tracks: one module for each track of notebooks.
- operate: the state of all flows, their reconciliation with the sources, and new snapshots.

A package imports only from packages above it. `cli`, the command `workbench`, is last. None imports
`storefront`, the package of the example application of track 70.

A world is an environment profile: one params file names its services. Three interfaces have several
backends, with one class per backend: Connect (connect.operations), SchemaRegistry (topic.registry),
QueryEngine (query.engines). URIs are file:, s3a: or s3:.
"""

import logging

from .base import params as params

# The library is silent unless the program configures logging (see base/logs.py).
logging.getLogger(__name__).addHandler(logging.NullHandler())
