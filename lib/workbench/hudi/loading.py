"""The first commit of a table: there is nothing to merge with, and so other ways to write it are quicker."""
from __future__ import annotations

import re
from typing import Dict, Optional

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from . import decode
from .tables import Table

# An upsert starts one Spark task for each partition that it writes; a bulk insert a fixed number.
FIRST_LOAD = {
    "hoodie.datasource.write.operation": "bulk_insert",
    "hoodie.bulkinsert.sort.mode": "GLOBAL_SORT",  # one file in a partition
    "hoodie.combine.before.insert": "false",
    "hoodie.datasource.write.row.writer.enable": "true",
}
# Many rows stay with the task that has read them: a file of each task in a partition, and nothing travels between them.
FIRST_LOAD_LARGE = {**FIRST_LOAD, "hoodie.bulkinsert.sort.mode": "PARTITION_SORT"}
LARGE = 50_000


def first_load(rows: int, schema: Optional[T.StructType] = None) -> Dict[str, str]:
    """The Hudi options of the first commit of a table, for about so many rows, of each key one (see newest).

    Where its schema holds a list and a decimal of at most 18 digits, Hudi's writer of records writes it. That of rows
    changes to Spark's old format for the sake of such a decimal, and no merge could read the lists in it (seen with
    1.0.2: "Index -1 out of bounds").
    """
    text = schema.simpleString() if schema else ""
    small = any(int(digits) <= 18 for digits in re.findall(r"decimal\((\d+),", text))
    by_records = {"hoodie.datasource.write.row.writer.enable": "false"} if small and "array<" in text else {}
    return {**(FIRST_LOAD_LARGE if rows >= LARGE else FIRST_LOAD), **by_records}


def newest(rows: DataFrame, table: Table) -> DataFrame:
    """Of each key the row with the greatest ordering value, and none where that is a hard delete.

    As in an upsert, a key that is in two partitions counts as two where the index is not a global one.

    Hudi would do it too (hoodie.combine.before.insert), but then with its writer of records instead of that of rows,
    which takes twice as long.
    """
    fields = table.key if table.index.startswith("GLOBAL_") else dict.fromkeys((*table.key, *table.partition))
    versions = Window.partitionBy(*fields).orderBy(F.col(table.ordering).desc())
    last = rows.withColumn("_version", F.row_number().over(versions)).where("_version = 1").drop("_version")
    return last.where(~F.col(decode.DELETED)) if decode.DELETED in rows.columns else last
