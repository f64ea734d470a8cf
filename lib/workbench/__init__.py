"""The lakehouse workbench: the library behind the notebooks.

Its packages in the order of the data flow (docs/design.md):

- base: errors for users, waiting, URIs of files, paths, worlds (`params`, also importable from
  here), secrets.
- stack: the embedded services (ensure_running, up, status, down), pinned jars (artifacts), checks
  of the machine (doctor).
- source: the source databases (postgres, mariadb) and their loaders (loading).
- connect: connectors (config, validate, apply, status, delete).
- topic: topics, the schema registry, the wire formats of messages, the dead-letter queue.
- storefront: three services, each with its own store, that are eventually consistent.
- spark: sessions of a world, and the embedded Spark Connect server.
- landing: from a topic to raw files, as the JSON of a sink connector describes.
- hudi: tables (ingest, labels and time travel, catalog, compaction).
- results: query (Athena's SQL), check (claims against the source), show and draw (tables, charts).
- recapture: a new capture of tables whose types changed.
- trace: one row through all stages.
- run: headless execution of notebooks in their order, with a report.
- walkthroughs: the framework of a walkthrough, and one module for each.

A package imports only from packages above it. `cli`, the command `workbench`, is last.

A world is an environment profile: one params file names its services. An interface with two
backends is two modules with the same functions: Kafka Connect and MSK Connect, the registries of
Apicurio and Glue, SQL of Spark and Athena. `spark.session` supports Spark Connect (embedded or on
EMR Serverless), an existing session, and one in this process. URIs are file:, s3a: or s3:.
"""

from .base import logs
from .base import params as params

logs.configure()
