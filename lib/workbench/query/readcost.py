"""Measure the partitions, files and bytes that a query reads (Spark's scan metrics), and its time."""

import re
import time
from typing import Any, Iterator, Optional

import pandas
from pyspark.sql import SparkSession

from ..base import files
from ..hudi import timeline
from ..hudi.tables import Table
from ..spark import is_remote
from . import spark_sql

# A base file is <group>_<write token>_<instant>.parquet, a log is
# .<group>_<instant>.log.<number>_<write token>
DATA_FILE_NAME = re.compile(
    r"\.?(?P<group>.+?)_(?:[^_]+_)?(?P<instant>\d+)\.(?:parquet$|log\.(?P<number>\d+)_(?!.*\.crc$))"
)
METRICS = {"partitions": "numPartitions", "files": "numFiles", "bytes": "filesSize"}


def measure_scan(spark: SparkSession, text: str, *, runs: int = 3) -> dict[str, Any]:
    """Run a query in Athena's dialect, and measure its scans.

    Args:
        spark: the session.
        text: the query.
        runs: number of runs.

    Returns:
        A dict with rows, partitions, files, bytes (of base files; Spark's scan does not count log
        files, see `unmerged_logs`), seconds (of the fastest run).
    """
    statement, seconds = spark_sql.translate(text, spark), []
    for _ in range(runs):
        start = time.perf_counter()
        frame = spark.sql(statement)
        rows: Any = frame.toPandas()
        seconds.append(time.perf_counter() - start)
        if is_remote(spark):
            scans = _remote_scans(rows)
        else:
            scans = list(_scan_metrics(frame._jdf.queryExecution().executedPlan()))
    counts = {name: sum(scan.get(metric, 0) for scan in scans) for name, metric in METRICS.items()}
    return {"rows": len(rows), **counts, "seconds": round(min(seconds), 3)}


def bytes_read(frame: pandas.DataFrame) -> Optional[int]:
    """Return the bytes that the query of a frame read, as its engine counted them.

    Args:
        frame: a result of `query.sql`.

    Returns:
        Athena: the scanned bytes. Spark Connect: the bytes of the base files, without log files. None
        if the engine does not count them.
    """
    if "metrics" in frame.attrs:
        return sum(scan.get(METRICS["bytes"], 0) for scan in _remote_scans(frame))
    scanned: Optional[int] = frame.attrs.get("bytes_scanned")
    return scanned


def _remote_scans(rows: pandas.DataFrame) -> list[dict[str, int]]:
    """Return the metrics of the scans of a frame from Spark Connect."""
    return [
        {metric.name: metric.value for metric in node.metrics}
        for node in rows.attrs["metrics"]
        if node.name.startswith("Scan")
    ]


def _scan_metrics(plan: Any) -> Iterator[dict[str, int]]:
    """Yield the metrics of the scans in a plan that a classic session executed."""
    inner_plans = {
        "AdaptiveSparkPlan": "executedPlan",
        "ShuffleQueryStage": "plan",
        "BroadcastQueryStage": "plan",
    }
    name, children = plan.nodeName(), plan.children()
    if name.startswith("Scan"):
        iterator = plan.metrics().iterator()
        pairs = [iterator.next() for _ in range(plan.metrics().size())]
        yield {pair._1(): pair._2().value() for pair in pairs}
    if name in inner_plans:
        yield from _scan_metrics(getattr(plan, inner_plans[name])())
    for n in range(children.size()):
        yield from _scan_metrics(children.apply(n))


def data_files(table: Table) -> pandas.DataFrame:
    """List the data files of a table, of all versions.

    Returns:
        Columns partition, group, instant, number, kind (base or log), bytes, file. In table
        version 6 the instant of a log is that of its base file. The numbers of logs start at 1.
    """
    rows = []
    for path, info in files.list_files(table.base).items():
        partition, _, name = path.rpartition("/")
        match = DATA_FILE_NAME.match(name)
        if match and not partition.startswith(".hoodie"):
            number = int(match["number"] or 0)
            kind = "log" if number else "base"
            rows.append(
                (partition, match["group"], match["instant"], number, kind, info.size, name)
            )
    columns = ["partition", "group", "instant", "number", "kind", "bytes", "file"]
    return pandas.DataFrame(sorted(rows), columns=columns)


def unmerged_logs(table: Table) -> pandas.DataFrame:
    """List the log files that a reader of the real-time view has to merge now.

    Returns:
        The columns of `data_files`. For each file group: the logs of the newest base file, and during
        a pending compaction also the logs for the next one.
    """
    rows, actions = data_files(table), timeline.completed_actions(table)
    instants = [action.instant for action in actions]
    # A base file counts when its commit is completed; commits before the oldest one are archived
    is_completed = rows["instant"].isin(instants) | (rows["instant"] < min(instants, default=""))
    is_base, groups = rows["kind"] == "base", [rows["partition"], rows["group"]]
    newest_base = rows["instant"].where(is_base & is_completed, "").groupby(groups).transform("max")
    clustered = {
        group
        for action in actions
        if action.action == "replacecommit"
        for group in timeline.replaced_file_groups(action.metadata)
    }
    is_current = [group not in clustered for group in zip(*groups)]
    is_unmerged = ~is_base & (rows["instant"] >= newest_base)
    return rows[is_unmerged & pandas.Series(is_current, rows.index, dtype=bool)].reset_index(
        drop=True
    )
