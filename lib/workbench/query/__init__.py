"""Query the lake in Athena's dialect, in every world: by Spark (`spark_sql`) or by Athena (`athena`)."""

from .crawl import create_table_from_files
from .engines import sql
from .readcost import measure_scan
