"""The embedded Spark Connect server, on loopback only.

Spark 3.5's own launcher listens on every interface and has no password (Spark 4.0 added
`spark.connect.grpc.binding.address`). So this process creates a classic session and starts the same
gRPC service on loopback.
"""

import json
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from ..base import local_path, split_host_port, state_dir
from ..base.models import Spark
from ..base.paths import service_path
from ..stack import artifacts, cds, services
from ..stack.process import temp_dir
from . import settings

# Empty default files of HDFS, MapReduce and YARN. They precede Hadoop's own files on the class path
# (as jars: a CDS archive accepts no folders), and replace about 2,000 settings that one machine does
# not use. Hudi sends all Hadoop settings with every task, and reads the default files again for every
# Parquet file in which it looks up keys. Without the settings an upsert into 30 partitions takes a
# quarter less time.
EMPTY_CLUSTER_CONF = service_path(Path(__file__).parent / "hadoop")
# The same for Hadoop's core. For a lake in a folder, 413 of its 417 settings are unused or equal to
# the defaults in Hadoop's code; most of them are for object stores and Kerberos. With the settings a
# commit to a small table takes a fifth more CPU time, because each task deserializes all of them.
EMPTY_CORE_CONF = EMPTY_CLUSTER_CONF / "files"
MAX_MESSAGE_BYTES = 128 * 1024 * 1024  # as in Spark's own server


def server_conf(spark: Spark, tables: str, endpoint: str = "", region: str = "") -> dict[str, str]:
    """Return the settings of the embedded server beside its defaults, sized for a laptop.

    Args:
        spark: the section of the world.
        tables: URI of the folder of the lake's tables.
        endpoint: URL of an S3 service other than AWS that has the lake; "" for none.
        region: region of that service.
    """
    jars = artifacts.jars("spark")
    if endpoint:
        jars += artifacts.jars("s3")
    is_local = spark.master.startswith("local")  # local-cluster, too
    class_path = list(jars)
    if is_local:
        class_path.insert(0, cds.jar_of(EMPTY_CLUSTER_CONF))
        if local_path(tables):
            class_path.insert(0, cds.jar_of(EMPTY_CORE_CONF))
    class_path_text = ":".join(map(str, class_path))
    # in UTC: Hudi takes instants from this Java's clock and orders by them
    java_options = services.JAVA_OPTIONS
    spark_jars = sorted((artifacts.package_dir("pyspark") / "jars").glob("*.jar"))
    driver_options = [
        *java_options,
        *cds.options(temp_dir("spark"), java_options, [*class_path, *spark_jars]),
        f"-Dderby.system.home={state_dir() / 'data'}",
        *services.java_logging_options("spark", "warn"),
    ]
    conf = settings.load_conf("hudi") | settings.load_conf("spark-defaults")
    conf |= settings.load_conf(
        "server",
        class_path=class_path_text,
        driver_options=" ".join(driver_options),
        options=" ".join(java_options),
        warehouse=local_path(tables) or tables,
        **spark.model_dump(),
    )
    if is_local:
        # Executors on this machine load Hudi from their class path. With spark.jars, another class
        # loader than Avro's would load Hudi, and Avro could not create Hudi records from a log block
        # ("GenericData$Record cannot be cast to …").
        conf["spark.executor.extraClassPath"] = class_path_text
    else:
        conf["spark.jars"] = ",".join(map(str, jars))
    if endpoint:
        ssl = str(endpoint.startswith("https:")).lower()
        conf |= settings.load_conf("s3a", endpoint=endpoint, region=region or "us-east-1", ssl=ssl)
    return {**conf, **settings.session_conf()}


def remove_incomplete_metastore(metastore: Path) -> None:
    """Remove a Derby catalog whose creation was killed; nothing is registered in it yet.

    Derby writes the file service.properties last. Without it every later start would fail.
    """
    if not (metastore / "service.properties").exists():
        shutil.rmtree(metastore, ignore_errors=True)


def main(arguments: dict[str, Any]) -> None:
    """Serve until SIGTERM.

    Args:
        arguments: the settings of the world that the stack passes on (see `services`).
    """
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    spark = Spark(**arguments["spark"])
    port = split_host_port(spark.url)[1]
    remove_incomplete_metastore(state_dir() / "data" / "metastore")
    values = server_conf(spark, arguments["tables"], arguments["endpoint"], arguments["region"])
    conf = SparkConf().setAll(list(values.items()))
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    jvm: Any = session._jvm
    address = jvm.java.net.InetSocketAddress("127.0.0.1", port)
    builder = jvm.org.sparkproject.connect.grpc.netty.NettyServerBuilder.forAddress(address)
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService(False)
    server = builder.maxInboundMessageSize(MAX_MESSAGE_BYTES).addService(service).build().start()
    print(f"Spark Connect on 127.0.0.1:{port}", flush=True)

    def stop(*_: object) -> None:
        server.shutdownNow()
        session.stop()
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    # opens the Hive catalog now, not in the first query of a user
    session.sql("SHOW DATABASES").collect()
    # When the JVM ends, this process ends as well, so that the stack restarts both.
    gateway: Any = session.sparkContext._gateway
    gateway.proc.wait()
    sys.exit(1)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
