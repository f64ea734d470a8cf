"""Spark sessions: `session(world)` returns the same SparkSession API in every world."""

import contextlib
import itertools
import re
import socket
import threading
import warnings
from typing import Any, Iterator, Optional, Union
from weakref import WeakKeyDictionary

import pyspark
from pyspark.sql import SparkSession

from .. import stack
from ..base import (
    LakeError,
    StackError,
    WorkbenchError,
    World,
    params,
    split_host_port,
    wait_until,
)
from ..base.state import State
from .settings import load_conf, session_conf

# Limit of the metadata of a gRPC response, in bytes. It contains Java's stack trace
# (conf/spark-defaults.conf).
CHANNEL_OPTIONS = [
    ("grpc.max_metadata_size", 256 << 10),
    # a restarted server is found at once: by default a channel waits longer after each failure
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]
STACKTRACE_MARKER = "JVM stacktrace:"  # precedes the stack trace in the text of an error
# Errors of a server that is shutting down.
SHUTDOWN_ERRORS = re.compile("StatusCode.CANCELLED|NullPointerException|RejectedExecutionException")
SESSION_LOST_ERRORS = re.compile(
    r"StatusCode\.UNAVAILABLE|failed to connect to all addresses|INVALID_HANDLE\.SESSION_|"
    r"Connection refused|Cannot invoke RPC|NO_ACTIVE_SESSION|SparkEnv|stopped SparkContext|"
    r"SparkContext was shut ?down",
    re.I,
)
_lock = threading.Lock()
_process_state = State()  # of the sessions that `session` did not create
# {session: world}. Functions that get a session have no other way to its world.
_worlds: WeakKeyDictionary[SparkSession, World] = WeakKeyDictionary()


def session(world: World) -> SparkSession:
    """Return the Spark session of a world. An embedded server is started if it is down.

    If Spark was restarted since the last call, the session is a new one, without the cached data and
    temporary views of the old one.

    Raises:
        StackError: the server cannot be started or reached, or has another version.
    """
    if world.spark.kind == "classic":
        return _classic_session(world)
    return _connect_session(world, _open_channel(world))


def _classic_session(world: World) -> SparkSession:
    """Return the session in this process, as in a job on EMR. A missing session is created."""
    builder = SparkSession.builder.appName("workbench")
    # without `master`, Spark uses the master of its configuration (on EMR) or of spark-submit
    if world.spark.master:
        builder = builder.master(world.spark.master)
    builder = builder.config(map={**load_conf("hudi"), **session_conf()})
    return _configure(builder.getOrCreate(), world)


def _open_channel(world: World) -> Any:
    """Return the channel to Spark Connect; the server, or this user's session on EMR, is started."""
    if world.spark.kind == "emr_serverless":
        from . import emr

        return emr.open_channel(world, CHANNEL_OPTIONS)
    from pyspark.sql.connect.client import ChannelBuilder

    stack.ensure_running(world, "spark")
    return ChannelBuilder(world.spark.url, channelOptions=CHANNEL_OPTIONS)


def _connect_session(world: World, channel: Any) -> SparkSession:
    # as SparkSession.builder.remote(…) does, which does not accept channel options
    params.activate(world)  # sets pyspark's mode
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    builder: Any = ConnectSession.builder
    builder = builder.channelBuilder(channel)
    spark = builder.getOrCreate()
    # getOrCreate returns any existing session, also one of another endpoint
    if spark.client._builder.endpoint == channel.endpoint:
        try:
            return _configure(spark, world)
        except WorkbenchError:
            raise
        except Exception as e:  # noqa: BLE001 - pyspark and gRPC raise unrelated classes
            # a restarted server does not have the old session, and may return only UNKNOWN
            is_lost = is_session_lost(e) or "StatusCode.UNKNOWN" in str(e)
            if not is_lost and not unreachable_reason(spark):
                raise
            # Without stop, getOrCreate returns the old session again. stop fails if the server is down.
            with contextlib.suppress(Exception):
                spark.stop()
    return _configure(builder.create(), world)


def is_remote(spark: Any) -> bool:
    """Return whether a session is one of Spark Connect.

    A classic session also has an attribute `client`, which raises an error.
    """
    return not isinstance(spark, SparkSession) and hasattr(spark, "client")


def _configure(spark: SparkSession, world: World) -> SparkSession:
    """Apply the settings of every session of a world.

    Raises:
        StackError: the server has another version of Spark.
    """
    if is_remote(spark):
        remote: Any = spark
        configure_client(remote.client)
        if not world.manages("spark"):
            _require_same_version(spark)
        # with one request; `conf.set` sends one for each setting
        from pyspark.sql.connect.proto import ConfigRequest, KeyValue

        pairs = [KeyValue(key=key, value=value) for key, value in session_conf().items()]
        remote.client.config(ConfigRequest.Operation(set=ConfigRequest.Set(pairs=pairs)))
    else:
        for key, value in session_conf().items():
            spark.conf.set(key, value)
    adopt(spark, world)
    return spark


def adopt(spark: Any, world: World) -> None:
    """Make a session one of a world."""
    _worlds[spark] = world


def _require_same_version(spark: Any) -> None:
    minor = ".".join(spark.version.split(".")[:2])
    if minor != ".".join(pyspark.__version__.split(".")[:2]):
        raise StackError(
            f"pyspark {pyspark.__version__} is not compatible with Spark {spark.version}",
            location=spark.client._builder.endpoint,
            expected=f"a client of version {minor}",
            hint=f'pip install "pyspark=={minor}.*", or use a server of this version',
        )


def configure_client(client: Any) -> None:
    """Limit the retries of a Spark Connect client, and make its close and its results safe.

    pyarrow crashes the process (SIGSEGV) when it converts nested lists without any element, because
    Spark 3.5 sends them without the offsets that the Arrow format requires (SPARK-51112, SPARK-55056;
    fixed in arrow-java 19.0.0). A copy of the result has the offsets.
    """
    # by default a dead server is retried for ten minutes; here for 2.5 seconds, one far away for 7
    is_near = client._builder.endpoint.startswith("127.")
    client._retry_policy.update(max_retries=6, max_backoff=500 if is_near else 2000)
    if "_execute_and_fetch" in vars(client):  # this client was configured before
        return
    import pyarrow  # not required by a classic session

    _keep_release_threads()
    fetch = client._execute_and_fetch

    def fetch_copied(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        table, *metadata = fetch(*args, **kwargs)
        if table is not None and any(map(pyarrow.types.is_nested, table.schema.types)):
            table = pyarrow.concat_tables([table.schema.empty_table(), table]).combine_chunks()
        return table, *metadata

    client._execute_and_fetch = fetch_copied


def _keep_release_threads() -> None:
    """Keep the threads that release results on the server when a client is closed.

    All clients of the process share these threads. When a client is closed, pyspark 3.5 ends the threads
    and waits for them. The garbage collector may close the client of an unused session in one of these
    threads. That thread would wait for itself, and block every later query of the process. The threads
    are daemons, so they need no end.
    """
    from pyspark.sql.connect.client import reattach

    responses: Any = reattach.ExecutePlanResponseReattachableIterator
    responses.shutdown = lambda: None
    # A closed client may not release its last result. The server drops the result minutes later.
    warnings.filterwarnings("ignore", "ReleaseExecute failed with exception", UserWarning)


def world_of(session_or_world: Union[SparkSession, World]) -> Optional[World]:
    """Return the world of a session, None if `session` did not create it. A world is returned as is."""
    if isinstance(session_or_world, World):
        return session_or_world
    with contextlib.suppress(TypeError):  # an object without weak references is not a session
        return _worlds.get(session_or_world)
    return None


def state_of(session: SparkSession) -> State:
    """Return the state of a session's world; that of this process if `session` did not create it."""
    world = world_of(session)
    return world.state if world else _process_state


def query_engine(session_or_world: Union[SparkSession, World]) -> str:
    """Return the engine for queries in Athena's dialect, which has the catalog: "spark" or "athena"."""
    world = world_of(session_or_world)
    return world.query.kind if world else "spark"


@contextlib.contextmanager
def translate_errors(
    spark: SparkSession,
    message: str,
    location: str,
    hint: str,
    kafka_world: Optional[World] = None,
) -> Iterator[None]:
    """Translate the errors of Spark in this block to errors for people.

    Args:
        spark: the session.
        message: message of a LakeError; the cause is appended.
        location: location of the errors.
        hint: hint of a LakeError.
        kafka_world: the world whose Kafka the block uses, if any.

    Raises:
        StackError: Spark or Kafka is down.
        LakeError: any other error, with its innermost cause. A WorkbenchError is not translated.
    """
    # checked first, because the client itself retries a dead server for ten minutes
    reason = unreachable_reason(spark)
    if reason:
        raise session_lost_error(spark, reason)
    try:
        yield
    except WorkbenchError:
        raise
    except Exception as e:  # noqa: BLE001 - classic and Connect raise unrelated classes
        cause = innermost_cause(f"{type(e).__name__}: {e}")
        if kafka_world and (kafka_error := stack.service_down_error(kafka_world, "kafka")):
            raise kafka_error from e
        if is_session_lost(e) or unreachable_reason(spark) or _end_reason(spark):
            raise session_lost_error(spark, f"{location}: {cause}") from e
        error = LakeError(f"{message}: {cause}", location=location, hint=hint)
        raise _server_lost_error(spark, str(e)) or error from e


def innermost_cause(text: str) -> str:
    """Return the innermost cause in the text of a Spark exception, as one line."""
    # join a message that begins with an empty line with its exception
    text = re.sub(r"(?m)^((?:Caused by: )?[\w.$]+:)\s*\n\s*", r"\1 ", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["unknown"]
    causes = [line for line in lines if line.startswith("Caused by:")]
    last = lines.index(causes[-1]) if causes else 0
    cause = lines[last].replace("Caused by: ", "") if causes else lines[0]
    if "PythonException" in cause:
        # a Python traceback follows; its last line is the error
        traceback = itertools.takewhile(lambda line: not line.startswith("at "), lines[last + 1 :])
        for line in traceback:
            if re.match(r"[\w.]+(Error|Exception|Interrupt)\b", line):
                cause = line
    return cause[:400]


def is_session_lost(error: BaseException) -> bool:
    """Return whether an error of Spark Connect means that the server or the session is lost."""
    # a running server reports this error, for example about the registry
    if type(error).__name__ == "StreamingQueryException":
        return False
    # the stack trace may contain errors of other services, such as Kafka
    text = f"{type(error).__name__}: {error}".partition(STACKTRACE_MARKER)[0]
    return SESSION_LOST_ERRORS.search(text) is not None


@contextlib.contextmanager
def java_stacktraces(spark: SparkSession) -> Iterator[None]:
    """Add Java's stack trace to the errors of a session in this block. Other errors have one line."""
    _set_stacktraces(spark, 1)
    try:
        yield
    finally:
        _set_stacktraces(spark, -1)


def _set_stacktraces(spark: SparkSession, change: int) -> None:
    # {session: number of active `java_stacktraces` blocks}
    holders = state_of(spark).get("stack traces", WeakKeyDictionary)
    with _lock:  # the last of several concurrent jobs disables the stack traces
        holders[spark] = holders.get(spark, 0) + change
        # if the session has ended meanwhile, the block itself raises an error
        with contextlib.suppress(Exception):
            if not unreachable_reason(spark):
                enabled = str(holders[spark] > 0).lower()
                spark.conf.set("spark.sql.pyspark.jvmStacktrace.enabled", enabled)


def session_lost_error(spark: Any, reason: str) -> StackError:
    """Return the error for a session whose server is lost, with the state of an embedded server."""
    return _server_lost_error(spark) or StackError(
        "Spark was restarted or is gone",
        location=reason,
        hint="run the notebook's set-up cell, then this one again; nothing is lost",
    )


def _server_lost_error(spark: Any, error_text: str = "") -> Optional[StackError]:
    """Return the error for a session whose server is a service of this instance and has ended.

    Args:
        spark: the session.
        error_text: text of an error of the session. A server that is shutting down still responds,
            with various errors. After one of SHUTDOWN_ERRORS the function waits up to two seconds
            for the end of the server.

    Returns:
        None if the server runs, or is not a service of this instance.
    """
    world = world_of(spark)
    if not world or not is_remote(spark):
        return None

    def down_error() -> Optional[StackError]:
        return stack.service_down_error(world, "spark", spark.client._builder.endpoint)

    if not SHUTDOWN_ERRORS.search(error_text):
        return down_error()
    with contextlib.suppress(WorkbenchError):  # the server still runs: the error has another cause
        return wait_until(down_error, "Spark to end", timeout=2)
    return None


def _end_reason(spark: Any) -> str:
    """Return why an EMR Serverless session has ended; empty if it runs, and for other sessions."""
    end_reason = getattr(spark.client._builder, "end_reason", None) if is_remote(spark) else None
    return end_reason() if end_reason else ""


def unreachable_reason(spark: Any) -> str:
    """Return why the server of a Spark Connect session cannot be reached.

    Returns:
        Empty if it can be reached, or the session is a classic one.
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
