"""Spark sessions: `session(world)` gives the same SparkSession API in every world."""
from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, Union
from weakref import WeakKeyDictionary

from ..base.errors import StackError
from ..base.params import COMPILERS, World, host_port
from ..base.paths import local_path, plain, state_dir
from ..stack import artifacts, process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What every session must carry for Hudi (its Spark guide), and what keeps answers right on 1.0 (params/versions.yaml):
# the table version stays what Athena reads, no write upgrades it, and reads do not skip files by column statistics.
HUDI = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.hadoop.hoodie.enable.data.skipping": "false",
    # Lists of three levels. Avro's writer of Parquet, through which every merge and compaction goes, makes lists of two
    # by default: they have no room for a null, and what Hudi's writer of rows has put there cannot be written again.
    "spark.hadoop.parquet.avro.write-old-list-structure": "false",
}
SESSION = {
    "spark.sql.session.timeZone": "UTC",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.enable.data.skipping": "false",
    "hoodie.metadata.enable": "false",
    # One calendar for all time. Spark's default refuses days before 1582 (and times before 1900), and Hudi's writer of
    # rows takes the refusal of a row for a row less: seen with 1.0.2, the commit says totalWriteErrors 1 and is done.
    **{f"spark.sql.{kind}RebaseModeIn{way}": "CORRECTED" for way in ("Read", "Write")
       for kind in ("parquet.datetime", "parquet.int96", "avro.datetime")},
}
# Java's stack trace, whose last `Caused by` says why something failed, comes as metadata of the answer: the server cuts
# it off at this many characters, and a client that is not told to take so much loses the whole answer.
STACK_TRACE, METADATA = 64 << 10, 256 << 10
TRACE = "JVM stacktrace:"  # stands above it in the text of an error
_ASKING = threading.Lock()
_asked: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()  # how many hold `causes` of a session
_worlds: WeakKeyDictionary[SparkSession, World] = WeakKeyDictionary()  # the world that a session was made for
# The settings of HDFS, MapReduce and YARN, some 2,000, that nothing on one machine asks for: Hudi sends all of Hadoop's
# settings along with every task, and reads those files anew for every Parquet file that it looks up keys in. Without
# them an upsert into 30 partitions takes a quarter less time. These empty files stand before Hadoop's.
NO_CLUSTER_SETTINGS = plain(Path(__file__).parent / "hadoop")
# The same of Hadoop's core: 413 of its 417 settings, of object stores and of Kerberos most of them, are what Hadoop's
# code takes anyway or what a lake in a folder does not ask for. With them a commit into a small table takes a fifth of
# the processor time more: each of its tasks unpacks all settings, one by one.
NO_STORE_SETTINGS = NO_CLUSTER_SETTINGS / "files"


def server_conf(world: World) -> Dict[str, str]:
    """Return the configuration of the embedded Spark Connect server: everything on loopback, sized for a laptop."""
    jars = [str(jar) for jar in artifacts.jars("spark")]
    local, own_workers = world.spark.master.startswith("local"), world.spark.workers > 0
    blank = [NO_STORE_SETTINGS, NO_CLUSTER_SETTINGS] if local_path(world.lake.tables) else [NO_CLUSTER_SETTINGS]
    class_path = ":".join([*map(str, blank), *jars] if local or own_workers else jars)
    table_version = str(artifacts.versions()["hudi_table_version"])
    # Hudi takes its instants from the clock of this Java, and orders commits by them
    java = " ".join(["-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true", "-Duser.timezone=UTC",
                     *COMPILERS[world.stack.java_compiler]])
    conf = {
        "spark.master": world.spark.master,
        "spark.app.name": "workbench",
        "spark.driver.memory": world.spark.driver_memory,
        "spark.driver.extraClassPath": class_path,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": " ".join(
            [java, f"-Dderby.system.home={state_dir() / 'data'}", *process.logging("spark", "warn")]),
        # what an ingest caches is parsed once, read twice and dropped: to compress its columns costs more than it saves
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        "spark.sql.shuffle.partitions": str(world.spark.parallelism),
        "spark.default.parallelism": str(world.spark.parallelism),
        # code that falls out of this cache is generated, and compiled by Java, anew for the next batch
        "spark.sql.codegen.cache.maxEntries": "2000",
        "spark.sql.warehouse.dir": str(local_path(world.lake.tables) or world.lake.tables),
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL":
            f"jdbc:derby:;databaseName={state_dir() / 'data' / 'metastore'};create=true",
        "spark.sql.streaming.metricsEnabled": "false",
        # many folders are listed by the driver: a Spark task for each of them costs more than it saves on one machine
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        "spark.sql.streaming.stopTimeout": "60s",
        # Hadoop's own local file system starts a process for each file it makes, to set its mode: that takes half of
        # the time of a write of many small files. The other one calls Java instead. Checkpoints go the same way.
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        "spark.sql.streaming.checkpointFileManagerClass":
            "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.connect.jvmStacktrace.maxSize": str(STACK_TRACE),
        **HUDI, **SESSION, "hoodie.write.table.version": table_version,
    }
    if not local:
        # where the workers are ours, executors get Hudi on their class path: through spark.jars another class loader
        # than Avro's loads it, and Avro makes no Hudi records of a log block ("GenericData$Record cannot be cast to …")
        conf |= {"spark.executor.extraClassPath": class_path} if own_workers else {"spark.jars": ",".join(jars)}
        conf |= {
            "spark.executor.memory": world.spark.executor_memory, "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": java,
        }
    return conf


def session(world: World) -> SparkSession:
    """Return a session; in the embedded world the Spark Connect server is started if it is not up.

    Where Spark was restarted since the last call it is a new session: what was cached or registered in the old is gone.

    Raises:
        StackError: the server cannot be started or reached, or this kind of world is not there yet.
    """
    from .. import stack

    if world.spark.kind == "existing":
        from pyspark.sql import SparkSession

        found = SparkSession.getActiveSession()
        if found is None:
            raise StackError("there is no Spark session in this kernel", where=f"{world.file}: spark.kind",
                             next_step="open the notebook with the cluster's PySpark kernel")
        return found
    if world.spark.kind != "connect":
        raise StackError(f"Spark of kind {world.spark.kind!r} is not there yet", where=f"{world.file}: spark.kind",
                         expected="connect or existing")
    stack.need(world, "spark")
    from pyspark.sql.connect.client import ChannelBuilder
    from pyspark.sql.connect.session import SparkSession

    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # what SparkSession.builder.remote(…) does, which takes no options
    channel = ChannelBuilder(world.spark.url, channelOptions=[("grpc.max_metadata_size", METADATA)])
    settings = {**SESSION, "hoodie.write.table.version": str(artifacts.versions()["hudi_table_version"])}
    for last_try in (False, True):
        builder = SparkSession.builder.channelBuilder(channel)
        spark = builder.getOrCreate()
        if not _is_at(spark, world.spark.url):  # it gives what session there is, of whatever server
            spark = builder.create()
        try:
            if unreachable(spark):
                raise ConnectionError("Connection refused")
            _be_impatient(spark)
            for key, value in settings.items():
                spark.conf.set(key, value)
            _worlds[spark] = world
            return spark
        except Exception as e:  # noqa: BLE001 - pyspark and gRPC raise unrelated classes
            # a server that has just been restarted may not know the old session, and answer UNKNOWN with no word more
            if last_try or not (is_gone(e) or "StatusCode.UNKNOWN" in str(e)):
                raise
            forget(spark)  # getOrCreate gives back the session of a server that is no more
    raise AssertionError("not reached")


def _is_at(spark: SparkSession, url: str) -> bool:
    """Whether a Spark Connect session is one of the server at `url` (sc://host:port)."""
    return host_port(spark.client._builder.endpoint) == host_port(url)


def _be_impatient(spark: SparkSession) -> None:
    """Let the client try a server that does not answer again for some seconds; by itself it does so for ten minutes."""
    policy = getattr(spark.client, "_retry_policy", None)  # a dict until Spark 4
    if isinstance(policy, dict):
        policy.update(max_retries=6, max_backoff=2000)


def is_gone(error: Union[BaseException, str]) -> bool:
    """Whether an error of Spark Connect, or its text, says that the server, or this session on it, is no more."""
    said = f"{type(error).__name__}: {error}".partition(TRACE)[0]  # below that others are told of, Kafka say
    return re.search(r"StatusCode\.UNAVAILABLE|failed to connect to all addresses|INVALID_HANDLE\.SESSION_|"
                     r"Connection refused|Cannot invoke RPC|NO_ACTIVE_SESSION|SparkEnv|stopped SparkContext|"
                     r"SparkContext was shut ?down", said, re.I) is not None


@contextlib.contextmanager
def causes(spark: SparkSession) -> Iterator[None]:
    """Let errors of this session tell Java's stack trace while it is held; a person who types gets one line."""
    try:
        _tell(spark, 1)
        yield
    finally:
        with contextlib.suppress(Exception):  # of a session that ended meanwhile: the error on its way says more
            _tell(spark, -1)


def _tell(spark: SparkSession, more: int) -> None:
    with _ASKING:  # two jobs side by side: the last that ends switches it off
        _asked[spark] = _asked.get(spark, 0) + more
        if not unreachable(spark):
            spark.conf.set("spark.sql.pyspark.jvmStacktrace.enabled", str(_asked[spark] > 0).lower())


def gone(spark: Any, why: str) -> StackError:
    """The error for a session whose server is gone, by its state where it is one of ours (see `session`)."""
    from .. import stack

    client = getattr(spark, "client", None)
    world = _worlds.get(spark) if client is not None else None
    lost = stack.lost(world, "spark", client._builder.endpoint) if world else None
    return lost or StackError("Spark was restarted or is gone", where=why,
                              next_step="run the notebook's set-up cell, then this one again; nothing is lost")


def unreachable(spark: Any) -> str:
    """Why the server of a Spark Connect session cannot be reached; "" where it can, or the session is a classic one."""
    client = getattr(spark, "client", None)
    if client is None:
        return ""
    if getattr(client, "is_closed", False):
        return "the session was closed"
    endpoint = client._builder.endpoint
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as e:
        return f"{endpoint}: {e}"
    return ""


def forget(spark: SparkSession) -> None:
    """Stop a session whose server may be gone, so that the next one is new."""
    try:
        spark.stop()
    except Exception:  # noqa: BLE001 - it cannot tell a dead server that it goes
        pass


def answers(url: str) -> bool:
    """True when a Spark Connect server at `url` tells its version."""
    import grpc
    from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

    host, port = host_port(url)
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        request = base_pb2.AnalyzePlanRequest(
            session_id="00112233-4455-6677-8899-aabbccddeeff", spark_version=base_pb2.AnalyzePlanRequest.SparkVersion())
        reply = base_pb2_grpc.SparkConnectServiceStub(channel).AnalyzePlan(request, timeout=10)
    return bool(reply.spark_version.version)
