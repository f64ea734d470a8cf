"""SQL in Athena's dialect, run by the query engine of the session's world."""

from ..base.backends import dispatch_by
from ..spark import query_engine
from . import athena, spark_sql

sql = dispatch_by(query_engine, spark=spark_sql, athena=athena)("sql")
