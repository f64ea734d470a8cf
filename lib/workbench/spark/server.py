"""The embedded Spark Connect server, on loopback only.

Spark 3.5's own launcher listens on every interface and has no password (`spark.connect.grpc.binding.address` came with
4.0). So this process holds a classic session and starts the same gRPC service itself, at an address it chooses.
"""
from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, Dict

from ..base.params import Spark, host_port
from . import conf as confs


def main(told: Dict[str, Any]) -> None:
    """Serve until TERM. Takes what the stack's row of this service tells it of its world."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    asked = Spark(**told["spark"])
    port = host_port(asked.url)[1]
    os.environ["SPARK_CONF_DIR"] = str(confs.DEFAULTS)
    conf = SparkConf().setAll(confs.of_server(asked, told["tables"], told["java_compiler"]).items())
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    jvm = session._jvm
    netty = jvm.org.sparkproject.connect.grpc.netty.NettyServerBuilder
    address = jvm.java.net.InetSocketAddress("127.0.0.1", port)
    limit = 128 * 1024 * 1024  # bytes in one message, as the stock server allows
    server = (
        netty.forAddress(address).maxInboundMessageSize(limit)
        .addService(jvm.org.apache.spark.sql.connect.service.SparkConnectService(False)).build().start()
    )
    print(f"Spark Connect on 127.0.0.1:{port}", flush=True)

    def stop(*_: object) -> None:
        server.shutdownNow()
        session.stop()
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    session.sql("SHOW DATABASES").collect()  # opens the Hive catalog now rather than in somebody's first query
    gateway = session.sparkContext._gateway.proc
    gateway.wait()  # without its Java this process is of no use: the stack sees it end, and starts both again
    sys.exit(1)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
