"""Checkpoints of streaming queries."""

from pyspark.sql import SparkSession

from ..base import files


def delete_checkpoint(spark: SparkSession, checkpoint: str) -> None:
    """Delete the checkpoint of a query; no-op if it does not exist.

    An active run of the query is stopped first, also one of a kernel that has ended: Spark stops a run
    when another run starts with the same query id, which is in the checkpoint
    (spark.sql.streaming.stopActiveRunOnRestart).

    Args:
        spark: the session.
        checkpoint: URI of the checkpoint's folder.
    """
    if files.read_text(f"{checkpoint}/metadata"):
        empty = spark.readStream.format("rate").load().writeStream.format("noop")
        empty.option("checkpointLocation", checkpoint).start().stop()
    files.remove(checkpoint)
