"""What the workbench asks of Spark: of every session, and of the server that the embedded stack runs."""
from __future__ import annotations

from pathlib import Path
from typing import Dict

from ..base.params import Spark
from ..base.paths import local_path, plain, state_dir
from ..stack import artifacts, java

DEFAULTS = plain(Path(__file__).parent / "conf")  # what is the same in every world; Spark reads it by itself
# The settings of HDFS, MapReduce and YARN, some 2,000, that nothing on one machine asks for: Hudi sends all of Hadoop's
# settings along with every task, and reads those files anew for every Parquet file that it looks up keys in. Without
# them an upsert into 30 partitions takes a quarter less time. These empty files stand before Hadoop's.
NO_CLUSTER_SETTINGS = plain(Path(__file__).parent / "hadoop")
# The same of Hadoop's core: 413 of its 417 settings, of object stores and of Kerberos most of them, are what Hadoop's
# code takes anyway or what a lake in a folder does not ask for. With them a commit into a small table takes a fifth of
# the processor time more: each of its tasks unpacks all settings, one by one.
NO_STORE_SETTINGS = NO_CLUSTER_SETTINGS / "files"


def of_session() -> Dict[str, str]:
    """Return what every session is given, of whatever server it is."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "hoodie.write.table.version": str(artifacts.versions()["hudi_table_version"]),
        "hoodie.write.auto.upgrade": "false",
        "hoodie.enable.data.skipping": "false",
        "hoodie.metadata.enable": "false",
        # One calendar for all time. Spark's default refuses days before 1582 (and times before 1900), and Hudi's writer
        # of rows takes the refusal of a row for a row less: seen with 1.0.2, the commit says totalWriteErrors 1 and is
        # done.
        **{f"spark.sql.{kind}RebaseModeIn{way}": "CORRECTED" for way in ("Read", "Write")
           for kind in ("parquet.datetime", "parquet.int96", "avro.datetime")},
    }


def of_server(spark: Spark, tables: str, java_compiler: str) -> Dict[str, str]:
    """Return what the embedded Spark Connect server is given beside its defaults, sized for a laptop.

    Args:
        spark: that part of the world.
        tables: the address below which its tables lie.
        java_compiler: how Java compiles (see java.tuned).
    """
    jars = [str(jar) for jar in artifacts.jars("spark")]
    local, own_workers = spark.master.startswith("local"), spark.workers > 0
    blank = [NO_STORE_SETTINGS, NO_CLUSTER_SETTINGS] if local_path(tables) else [NO_CLUSTER_SETTINGS]
    class_path = ":".join([*map(str, blank), *jars] if local or own_workers else jars)
    options = java.tuned(java_compiler)  # UTC: Hudi takes its instants from the clock of this Java, and orders by them
    driver = [*options, f"-Dderby.system.home={state_dir() / 'data'}", *java.logging("spark", "warn")]
    conf = {
        "spark.master": spark.master,
        "spark.driver.memory": spark.driver_memory,
        "spark.driver.extraClassPath": class_path,
        "spark.driver.extraJavaOptions": " ".join(driver),
        "spark.sql.shuffle.partitions": str(spark.parallelism),
        "spark.default.parallelism": str(spark.parallelism),
        "spark.sql.warehouse.dir": str(local_path(tables) or tables),
        "spark.hadoop.javax.jdo.option.ConnectionURL":
            f"jdbc:derby:;databaseName={state_dir() / 'data' / 'metastore'};create=true",
        **of_session(),
    }
    if not local:
        # where the workers are ours, executors get Hudi on their class path: through spark.jars another class loader
        # than Avro's loads it, and Avro makes no Hudi records of a log block ("GenericData$Record cannot be cast to …")
        conf |= {"spark.executor.extraClassPath": class_path} if own_workers else {"spark.jars": ",".join(jars)}
        conf |= {"spark.executor.memory": spark.executor_memory,
                 "spark.executor.extraJavaOptions": " ".join(options)}
    return conf
