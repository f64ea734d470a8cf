"""The lakehouse workbench: what the notebooks share. Thirteen rooms in the order of the flow
(docs/design.md):

base          errors for people, waiting, addresses of files, paths, worlds (`params`, also had from
here), secrets stack         the embedded services: need, up, status, down; pinned jars (artifacts),
the look at the machine (doctor) source        the source database (postgres), what every loader
needs (loading) connect       connectors: config, validate, apply, status, delete
topic         topics, the schema registry, the wire formats of messages, dead letters and their way
back storefront    three services with a store each, which agree in the end
spark         session: what a world names, and the embedded server
landing       topic → raw files, as a sink connector's JSON says
hudi          tables: ingest, labels and time travel, catalog, compaction
results       query (Athena's SQL), check (claims against the source), show and draw (tables,
charts) trace         one row through everything
run           notebooks headless, in order, to a report; the notebooks' contents and parameters
walkthroughs  what a walkthrough is, and one module for each

A room imports from rooms above it only. `cli` (the command `workbench`) stands above all.
Two sides of one noun are two modules with the same functions: a Kafka Connect and MSK Connect,
Apicurio's registry and Glue's, Spark's SQL and Athena; `spark.session` knows Spark Connect, here or
on EMR Serverless, a session that is there, and one in this process; addresses are file:, s3a: or
s3:.
"""

from .base import logs
from .base import params as params

logs.configure()
