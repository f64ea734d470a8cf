"""What a query reads: partitions, files and bytes as Spark's own scan counted them, and the time it
takes.
"""

import re
import time
from typing import Any, Iterator

import pandas
from pyspark.sql import SparkSession

from ..base import files
from ..hudi import Table, timeline
from ..spark import is_remote
from . import spark_sql

# a base file is <group>_<write token>_<instant>.parquet, a log
# .<group>_<instant>.log.<number>_<write token>
DATA_FILE_NAME = re.compile(
    r"\.?(?P<group>.+?)_(?:[^_]+_)?(?P<instant>\d+)\.(?:parquet$|log\.(?P<number>\d+)_(?!.*\.crc$))"
)


def measure_scan(spark: SparkSession, text: str, *, runs: int = 3) -> dict[str, Any]:
    """Run a query in Athena's dialect and say what it took.

    Returns: rows, partitions, files, bytes (of base files: Spark's scan does not count the logs,
        see `logs`), seconds (the shortest of `runs`).
    """
    statement, best, counts = spark_sql.translate(text, spark), float("inf"), {}
    for _ in range(runs):
        began = time.perf_counter()
        frame = spark.sql(statement)
        rows = frame.toPandas()
        best = min(best, time.perf_counter() - began)
        if is_remote(spark):
            scans = [
                {m.name: m.value for m in node.metrics}
                for node in rows.attrs["metrics"]
                if node.name.startswith("Scan")
            ]
        else:
            scans = list(_scan_metrics(frame._jdf.queryExecution().executedPlan()))
        counts = {
            "rows": len(rows),
            **{
                name: sum(s.get(metric, 0) for s in scans)
                for name, metric in (
                    ("partitions", "numPartitions"),
                    ("files", "numFiles"),
                    ("bytes", "filesSize"),
                )
            },
        }
    return {**counts, "seconds": round(best, 3)}


def _scan_metrics(plan: Any) -> Iterator[dict[str, int]]:
    """The metrics of the scans in a plan that was executed by a classic session."""
    inside = {
        "AdaptiveSparkPlan": "executedPlan",
        "ShuffleQueryStage": "plan",
        "BroadcastQueryStage": "plan",
    }
    name, children = plan.nodeName(), plan.children()
    if name.startswith("Scan"):
        found = plan.metrics().iterator()
        pairs = (found.next() for _ in range(plan.metrics().size()))
        yield {pair._1(): pair._2().value() for pair in pairs}
    if name in inside:
        yield from _scan_metrics(getattr(plan, inside[name])())
    for n in range(children.size()):
        yield from _scan_metrics(children.apply(n))


def data_files(table: Table) -> pandas.DataFrame:
    """The data files of a table, of all versions: partition, group, instant, number, kind (base or
    log), bytes, file.

    A log bears the instant of the base file that it belongs to (in table version 6), and a number
    from 1 on.
    """
    found = []
    for path, info in files.list_files(table.base).items():
        partition, _, name = path.rpartition("/")
        match = DATA_FILE_NAME.match(name)
        if match and not partition.startswith(".hoodie"):
            number = int(match["number"] or 0)
            kind = "log" if number else "base"
            found.append(
                (partition, match["group"], match["instant"], number, kind, info.size, name)
            )
    columns = ["partition", "group", "instant", "number", "kind", "bytes", "file"]
    return pandas.DataFrame(sorted(found), columns=columns)


def unmerged_logs(table: Table) -> pandas.DataFrame:
    """The log files that a reader of the real-time view has to merge now, as `data_files` gives
    them: of each file group those of its newest base file, and, while a compaction is pending,
        those that wait for the next one.
    """
    found, commits = data_files(table), timeline.completed_actions(table)
    done = [c.instant for c in commits]
    # a base file counts when its commit is done; the commits of old ones may be archived
    counts = (found["kind"] == "base") & (
        found["instant"].isin(done) | (found["instant"] < min(done, default=""))
    )
    groups = [found["partition"], found["group"]]
    newest = found["instant"].where(counts, "").groupby(groups).transform("max")
    clustered = {
        group
        for c in commits
        if c.action == "replacecommit"
        for group in timeline.replaced_file_groups(c.metadata)
    }
    stays = pandas.Series(
        [group not in clustered for group in zip(*groups)], index=found.index, dtype=bool
    )
    return found[stays & (found["kind"] == "log") & (found["instant"] >= newest)].reset_index(
        drop=True
    )
