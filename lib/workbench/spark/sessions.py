"""Spark sessions: `session(world)` gives the same SparkSession API in every world."""

import contextlib
import itertools
import os
import re
import socket
import threading
from typing import Any, Iterator, Optional, Union
from weakref import WeakKeyDictionary

import pyspark
from pyspark.sql import SparkSession

from .. import stack
from ..base import LakeError, StackError, WorkbenchError, World, split_host_port, wait_until
from .settings import hudi_conf, session_conf

MAX_METADATA_BYTES = (
    256 << 10
)  # bytes of an answer's: Java's stack trace is among it (conf/spark-defaults.conf)
PYTHON_MISMATCH = re.compile(
    r"\[PYTHON_VERSION_MISMATCH\] Python in worker has different version \((\d+), (\d+)\) "
    r"than that in driver ([\d.]+),"
)
STACKTRACE_MARKER = "JVM stacktrace:"  # stands above it in the text of an error
SHUTDOWN_ERRORS = re.compile(
    "StatusCode.CANCELLED|NullPointerException|RejectedExecutionException"
)  # of a server that ends
_lock = threading.Lock()
_holders: WeakKeyDictionary[SparkSession, int] = (
    WeakKeyDictionary()
)  # how many hold `causes` of a session
_worlds: WeakKeyDictionary[SparkSession, World] = (
    WeakKeyDictionary()
)  # the world that a session was made for


def session(world: World) -> SparkSession:
    """Return a session; in the embedded world the Spark Connect server is started if it is not up.

    Where Spark was restarted since the last call it is a new session: what was cached or registered
    in the old is gone.

    Raises:
        StackError: the server cannot be started or reached, or this kind of world is not there yet.
    """
    if world.spark.kind == "existing":
        found = SparkSession.getActiveSession()
        if found is None:
            raise StackError(
                "there is no Spark session in this kernel",
                location=f"{world.file}: spark.kind",
                hint="open the notebook with the cluster's PySpark kernel",
            )
        return _configure(found, world)
    if world.spark.kind == "classic":
        return _configure(_classic_session(world), world)
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = (
        "1"  # what SparkSession.builder.remote(…) does, which takes no options
    )
    from pyspark.sql.connect.client import ChannelBuilder
    from pyspark.sql.connect.session import SparkSession as Remote

    options = [("grpc.max_metadata_size", MAX_METADATA_BYTES)]
    if world.spark.kind == "emr_serverless":
        from . import emr

        channel = emr.open_channel(world, options)
    else:
        stack.ensure_running(world, "spark")
        channel = ChannelBuilder(world.spark.url, channelOptions=options)
    builder = Remote.builder.channelBuilder(channel)
    spark = builder.getOrCreate()
    if spark.client._builder.endpoint == channel.endpoint:  # it gives what session there is
        try:
            return _configure(spark, world)
        except Exception as e:  # noqa: BLE001 - pyspark and gRPC raise unrelated classes
            # a server that has just been restarted may not know the old session, and answer UNKNOWN
            # with no word more
            if isinstance(e, WorkbenchError) or not (
                unreachable_reason(spark) or is_session_lost(e) or "StatusCode.UNKNOWN" in str(e)
            ):
                raise
            with contextlib.suppress(Exception):  # it cannot tell a dead server that it goes
                spark.stop()  # or getOrCreate gives it back the next time
    return _configure(builder.create(), world)


def is_remote(spark: Any) -> bool:
    """Whether a session is one of Spark Connect. (A classic one has `client`, too: asked for, it
    raises.)
    """
    return not isinstance(spark, SparkSession) and hasattr(spark, "client")


def _classic_session(world: World) -> SparkSession:
    """A session in this process, for the master that the world names; the one that there is
    already, else.
    """
    builder = SparkSession.builder.appName("workbench")
    if (
        world.spark.master
    ):  # else the one that Spark's own configuration names, on EMR, or spark-submit
        builder = builder.master(world.spark.master)
    for key, value in {**hudi_conf(), **session_conf()}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _configure(spark: Any, world: World) -> SparkSession:
    """A session, with what every one of this world is given. Raises: StackError: it is of another
    Spark.
    """
    if is_remote(spark):
        configure_client(spark.client)
        if (
            not world.stack.embedded
            and spark.version.split(".")[:2] != pyspark.__version__.split(".")[:2]
        ):
            minor = ".".join(spark.version.split(".")[:2])
            raise StackError(
                f"pyspark {pyspark.__version__} cannot speak with Spark {spark.version}",
                location=spark.client._builder.endpoint,
                expected=f"a client of version {minor}",
                hint=f'pip install "pyspark=={minor}.*", or take a server of this version',
            )
    for key, value in session_conf().items():
        spark.conf.set(key, value)
    _worlds[spark] = world
    return spark


def configure_client(client: Any) -> None:
    """Prepare the client of a Spark Connect session: limit its retries, and make its results safe
    to convert.

    pyarrow ends the process (SIGSEGV) when it converts lists within lists of which there is no
    element. Spark 3.5 sends them without their offsets, which the Arrow format requires
    (SPARK-51112, SPARK-55056; arrow-java writes them from 19.0.0 on). A copy of the result has
    them.
    """
    client._retry_policy.update(
        max_retries=6, max_backoff=2000
    )  # by default a dead server is tried for ten minutes
    if "_execute_and_fetch" in vars(client):  # this client was prepared before
        return
    import pyarrow  # a classic session needs none

    fetch = client._execute_and_fetch

    def fetch_copied(*args: Any, **options: Any) -> tuple:
        table, *rest = fetch(*args, **options)
        if table is not None and any(map(pyarrow.types.is_nested, table.schema.types)):
            table = pyarrow.concat_tables([table.schema.empty_table(), table]).combine_chunks()
        return table, *rest

    client._execute_and_fetch = fetch_copied


def world_of(where: Union[SparkSession, World]) -> Optional[World]:
    """The world that `session` made a session for, None of a session of your own; of a world this
    one.
    """
    with contextlib.suppress(TypeError):  # what no weak reference is made to is no session
        return where if isinstance(where, World) else _worlds.get(where)
    return None


def query_engine(where: Union[SparkSession, World]) -> str:
    """What answers queries in Athena's dialect there, and keeps the catalog for them: "spark" or
    "athena".
    """
    world = world_of(where)
    return world.query.kind if world else "spark"


@contextlib.contextmanager
def translate_errors(
    spark: SparkSession, what: str, where: str, next_step: str, kafka_world: Optional[World] = None
) -> Iterator[None]:
    """What Spark is asked for in this block fails with an error for people, or not at all.

    Args:
        what: what failed then, in a few words; where, next_step: as of every error.
        kafka: the world whose Kafka is needed for it, too.

    Raises:
        StackError: Spark is gone, or Kafka; or Spark's workers run another Python. LakeError: all
            else, with the innermost cause. The workbench's own errors stay what they are.
    """
    why = unreachable_reason(
        spark
    )  # asked first: the client itself tries a dead server again for ten minutes
    if why:
        raise session_lost_error(spark, why)
    try:
        with _interrupt_when_kafka_lost(kafka_world, spark):
            yield
    except WorkbenchError:
        raise
    except Exception as e:  # noqa: BLE001 - classic and Connect raise unrelated classes; the message is what tells
        why = innermost_cause(f"{type(e).__name__}: {e}")
        lost = kafka_world and stack.service_down_error(
            kafka_world, "kafka", kafka_world.kafka.bootstrap
        )
        if not lost and (is_session_lost(e) or unreachable_reason(spark) or _end_reason(spark)):
            lost = session_lost_error(spark, f"{where}: {why}")
        lost = lost or _python_mismatch_error(str(e), where) or _server_lost_error(spark, str(e))
        raise lost or LakeError(f"{what}: {why}", location=where, hint=next_step) from e


@contextlib.contextmanager
def _interrupt_when_kafka_lost(kafka: Optional[World], spark: SparkSession) -> Iterator[None]:
    """Interrupt what Spark does in this block once Kafka's service is gone: its own clients try for
    minutes.
    """
    if kafka is None or not kafka.stack.embedded or not is_remote(spark):
        yield
        return
    look, done = stack.watch(kafka, "kafka"), threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            try:
                look()
            except StackError:
                with contextlib.suppress(
                    Exception
                ):  # Spark may be gone, too: the block's own error tells
                    spark.interruptAll()
                return

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()


def _python_mismatch_error(text: str, where: str) -> Optional[StackError]:
    """The error for a function in Python that Spark's workers refused because of their version,
    None for any other.
    """
    found = PYTHON_MISMATCH.search(text)
    if not found:
        return None
    theirs, ours = f"{found[1]}.{found[2]}", found[3]
    return StackError(
        f"Spark's workers run Python {theirs}, and this process {ours}: they take no function of it",
        location=where,
        expected=f"Python {theirs} on both sides",
        hint=f"run it with Python {theirs}; what has no function in "
        'Python (queries, an ingest) runs from here, too (deploy/README.md, "Inside the network")',
    )


def innermost_cause(text: str) -> str:
    """The innermost cause named in a Spark exception, as one line."""
    text = re.sub(
        r"(?m)^((?:Caused by: )?[\w.$]+:)\s*\n\s*", r"\1 ", text
    )  # a message that begins with an empty line
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    last = lines.index(causes[-1]) if causes else 0
    if "PythonException" in "".join(
        lines[last : last + 1]
    ):  # its traceback follows, and its last line says what it was
        below = itertools.takewhile(lambda line: not line.startswith("at "), lines[last + 1 :])
        causes = [
            line for line in below if re.match(r"[\w.]+(Error|Exception|Interrupt)\b", line)
        ] or causes
    return (causes[-1].replace("Caused by: ", "") if causes else (lines or ["unknown"])[0])[:400]


def is_session_lost(error: BaseException) -> bool:
    """Whether an error of Spark Connect says that the server, or this session on it, is no more."""
    if (
        type(error).__name__ == "StreamingQueryException"
    ):  # told by a server that is there, of others, the registry say
        return False
    said = f"{type(error).__name__}: {error}".partition(STACKTRACE_MARKER)[
        0
    ]  # below that others are told of, Kafka say
    return (
        re.search(
            r"StatusCode\.UNAVAILABLE|failed to connect to all addresses|INVALID_HANDLE\.SESSION_|"
            r"Connection refused|Cannot invoke RPC|NO_ACTIVE_SESSION|SparkEnv|stopped SparkContext|"
            r"SparkContext was shut ?down",
            said,
            re.I,
        )
        is not None
    )


@contextlib.contextmanager
def java_stacktraces(spark: SparkSession) -> Iterator[None]:
    """Let errors of this session tell Java's stack trace while it is held; a person who types gets
    one line.
    """
    _set_stacktraces(spark, 1)
    try:
        yield
    finally:
        _set_stacktraces(spark, -1)


def _set_stacktraces(spark: SparkSession, more: int) -> None:
    with _lock:  # two jobs side by side: the last that ends switches it off
        _holders[spark] = _holders.get(spark, 0) + more
        # where it cannot be asked, also of a session that ended meanwhile, the question or its
        # error says more
        with contextlib.suppress(Exception):
            if not unreachable_reason(spark):
                spark.conf.set(
                    "spark.sql.pyspark.jvmStacktrace.enabled", str(_holders[spark] > 0).lower()
                )


def session_lost_error(spark: Any, why: str) -> StackError:
    """The error for a session whose server is gone, by its state where it is one of ours (see
    `session`).
    """
    return _server_lost_error(spark) or StackError(
        "Spark was restarted or is gone",
        location=why,
        hint="run the notebook's set-up cell, then this one again; nothing is lost",
    )


def _server_lost_error(spark: Any, error: str = "") -> Optional[StackError]:
    """Return the error for a session whose server is a service of this instance and has ended; None
    for any other.

    Args:
        error: text of an error of the session. A server that ends still answers for a moment, with
            errors of any kind: after one of these (ENDING) its end is waited for, two seconds at
            most.
    """
    world = world_of(spark)
    if not world or not is_remote(spark):
        return None

    def lost() -> Optional[StackError]:
        return stack.service_down_error(world, "spark", spark.client._builder.endpoint)

    if not SHUTDOWN_ERRORS.search(error):
        return lost()
    with contextlib.suppress(WorkbenchError):  # it goes on: the error is of something else
        return wait_until(lost, "Spark to end", timeout=2)
    return None


def _end_reason(spark: Any) -> str:
    """Why a session of EMR Serverless is over; "" of one that is not, and of any other."""
    ended = getattr(spark.client._builder, "ended", None) if is_remote(spark) else None
    return ended() if ended else ""


def unreachable_reason(spark: Any) -> str:
    """Why the server of a Spark Connect session cannot be reached; "" where it can, or the session
    is a classic one.
    """
    if not is_remote(spark):
        return ""
    if spark.client.is_closed:
        return "the session was closed"
    endpoint = spark.client._builder.endpoint
    try:
        socket.create_connection(split_host_port(endpoint), timeout=10).close()
    except OSError as e:
        return f"{endpoint}: {e}"
    return ""
