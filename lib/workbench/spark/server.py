"""The embedded Spark Connect server, on loopback only.

Spark 3.5's own launcher listens on every interface and has no password
(`spark.connect.grpc.binding.address` came with 4.0). So this process holds a classic session and
starts the same gRPC service itself, at an address it chooses.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from ..base import local_path, split_host_port, state_dir
from ..base.params import Spark
from ..base.paths import service_path
from ..stack import artifacts, services
from . import settings

CONF_DIR = service_path(
    Path(__file__).parent / "conf"
)  # what is the same in every world; Spark reads it by itself
# The settings of HDFS, MapReduce and YARN, some 2,000, that nothing on one machine asks for: Hudi
# sends all of Hadoop's settings along with every task, and reads those files anew for every Parquet
# file that it looks up keys in. Without them an upsert into 30 partitions takes a quarter less
# time. These empty files stand before Hadoop's.
EMPTY_CLUSTER_CONF = service_path(Path(__file__).parent / "hadoop")
# The same of Hadoop's core: 413 of its 417 settings, of object stores and of Kerberos most of them,
# are what Hadoop's code takes anyway or what a lake in a folder does not ask for. With them a
# commit into a small table takes a fifth of the processor time more: each of its tasks unpacks all
# settings, one by one.
EMPTY_CORE_CONF = EMPTY_CLUSTER_CONF / "files"


def server_conf(
    spark: Spark, tables: str, java_compiler: str, endpoint: str = "", region: str = ""
) -> dict[str, str]:
    """Return what the embedded Spark Connect server is given beside its defaults, sized for a
    laptop.

    Args:
        spark: that part of the world.
        tables: the address below which its tables lie.
        java_compiler: how Java compiles (see services.java_options).
        endpoint, region: of an S3 that is not AWS's own, where the lake lies in one.
    """
    jars = [
        str(jar) for kind in ("spark", *["s3"] * bool(endpoint)) for jar in artifacts.jars(kind)
    ]
    local, own_workers = spark.master.startswith("local"), spark.workers > 0
    blank = [EMPTY_CORE_CONF, EMPTY_CLUSTER_CONF] if local_path(tables) else [EMPTY_CLUSTER_CONF]
    class_path = ":".join([*map(str, blank), *jars] if local or own_workers else jars)
    # UTC: Hudi takes instants from this Java's clock and orders by them
    options = services.java_options(java_compiler)
    driver = [
        *options,
        f"-Dderby.system.home={state_dir() / 'data'}",
        *services.java_logging_options("spark", "warn"),
    ]
    # Where the workers are ours, executors get Hudi on their class path: through spark.jars another
    # class loader than Avro's loads it, and Avro makes no Hudi records of a log block
    # ("GenericData$Record cannot be cast to …").
    of_executors = (
        {"spark.executor.extraClassPath": class_path}
        if own_workers
        else {"spark.jars": ",".join(jars)}
    )
    return {
        **settings.load_conf(
            "server",
            class_path=class_path,
            driver_options=" ".join(driver),
            options=" ".join(options),
            warehouse=local_path(tables) or tables,
            **spark.model_dump(),
        ),
        **({} if local else of_executors),
        **(
            settings.load_conf(
                "s3a",
                endpoint=endpoint,
                region=region or "us-east-1",
                ssl=str(endpoint.startswith("https:")).lower(),
            )
            if endpoint
            else {}
        ),
        **settings.session_conf(),
    }


def remove_incomplete_metastore(metastore: Path) -> None:
    """Remove a catalog of Derby's whose making was killed: it has no service.properties, which are
    written last, and every later start would fail on it. Nothing is registered in it yet.
    """
    if not (metastore / "service.properties").exists():
        shutil.rmtree(metastore, ignore_errors=True)


def main(told: dict[str, Any]) -> None:
    """Serve until TERM. Takes what the stack's row of this service tells it of its world."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    asked = Spark(**told["spark"])
    port = split_host_port(asked.url)[1]
    os.environ["SPARK_CONF_DIR"] = str(CONF_DIR)
    remove_incomplete_metastore(state_dir() / "data" / "metastore")
    given = (told[name] for name in ("tables", "java_compiler", "endpoint", "region"))
    conf = SparkConf().setAll(server_conf(asked, *given).items())
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    jvm = session._jvm
    netty = jvm.org.sparkproject.connect.grpc.netty.NettyServerBuilder
    address = jvm.java.net.InetSocketAddress("127.0.0.1", port)
    limit = 128 * 1024 * 1024  # bytes in one message, as the stock server allows
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService(False)
    server = (
        netty.forAddress(address).maxInboundMessageSize(limit).addService(service).build().start()
    )
    print(f"Spark Connect on 127.0.0.1:{port}", flush=True)

    def stop(*_: object) -> None:
        server.shutdownNow()
        session.stop()
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    session.sql(
        "SHOW DATABASES"
    ).collect()  # opens the Hive catalog now rather than in somebody's first query
    # without its Java this process is of no use: the stack sees it end, and starts both again
    session.sparkContext._gateway.proc.wait()
    sys.exit(1)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
