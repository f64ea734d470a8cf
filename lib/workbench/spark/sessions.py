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
from ..base import LakeError, StackError, WorkbenchError, World, host_port, wait_until
from .settings import hudi_needs, of_session

METADATA = (
    256 << 10
)  # bytes of an answer's: Java's stack trace is among it (conf/spark-defaults.conf)
OTHER_PYTHON = re.compile(
    r"\[PYTHON_VERSION_MISMATCH\] Python in worker has different version \((\d+), (\d+)\) "
    r"than that in driver ([\d.]+),"
)
TRACE = "JVM stacktrace:"  # stands above it in the text of an error
ENDING = re.compile(
    "StatusCode.CANCELLED|NullPointerException|RejectedExecutionException"
)  # of a server that ends
_ASKING = threading.Lock()
_asked: WeakKeyDictionary[SparkSession, int] = (
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
                where=f"{world.file}: spark.kind",
                next_step="open the notebook with the cluster's PySpark kernel",
            )
        return _prepared(found, world)
    if world.spark.kind == "classic":
        return _prepared(_classic(world), world)
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = (
        "1"  # what SparkSession.builder.remote(…) does, which takes no options
    )
    from pyspark.sql.connect.client import ChannelBuilder
    from pyspark.sql.connect.session import SparkSession as Remote

    options = [("grpc.max_metadata_size", METADATA)]
    if world.spark.kind == "emr_serverless":
        from . import emr

        channel = emr.channel(world, options)
    else:
        stack.need(world, "spark")
        channel = ChannelBuilder(world.spark.url, channelOptions=options)
    builder = Remote.builder.channelBuilder(channel)
    spark = builder.getOrCreate()
    if spark.client._builder.endpoint == channel.endpoint:  # it gives what session there is
        try:
            return _prepared(spark, world)
        except Exception as e:  # noqa: BLE001 - pyspark and gRPC raise unrelated classes
            # a server that has just been restarted may not know the old session, and answer UNKNOWN
            # with no word more
            if isinstance(e, WorkbenchError) or not (
                unreachable(spark) or is_gone(e) or "StatusCode.UNKNOWN" in str(e)
            ):
                raise
            with contextlib.suppress(Exception):  # it cannot tell a dead server that it goes
                spark.stop()  # or getOrCreate gives it back the next time
    return _prepared(builder.create(), world)


def is_remote(spark: Any) -> bool:
    """Whether a session is one of Spark Connect. (A classic one has `client`, too: asked for, it
    raises.)
    """
    return not isinstance(spark, SparkSession) and hasattr(spark, "client")


def _classic(world: World) -> SparkSession:
    """A session in this process, for the master that the world names; the one that there is
    already, else.
    """
    builder = SparkSession.builder.appName("workbench")
    if (
        world.spark.master
    ):  # else the one that Spark's own configuration names, on EMR, or spark-submit
        builder = builder.master(world.spark.master)
    for key, value in {**hudi_needs(), **of_session()}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _prepared(spark: Any, world: World) -> SparkSession:
    """A session, with what every one of this world is given. Raises: StackError: it is of another
    Spark.
    """
    if is_remote(spark):
        prepare_client(spark.client)
        if (
            not world.stack.embedded
            and spark.version.split(".")[:2] != pyspark.__version__.split(".")[:2]
        ):
            minor = ".".join(spark.version.split(".")[:2])
            raise StackError(
                f"pyspark {pyspark.__version__} cannot speak with Spark {spark.version}",
                where=spark.client._builder.endpoint,
                expected=f"a client of version {minor}",
                next_step=f'pip install "pyspark=={minor}.*", or take a server of this version',
            )
    for key, value in of_session().items():
        spark.conf.set(key, value)
    _worlds[spark] = world
    return spark


def prepare_client(client: Any) -> None:
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


def engine(where: Union[SparkSession, World]) -> str:
    """What answers queries in Athena's dialect there, and keeps the catalog for them: "spark" or
    "athena".
    """
    world = world_of(where)
    return world.query.kind if world else "spark"


@contextlib.contextmanager
def answered(
    spark: SparkSession, what: str, where: str, next_step: str, kafka: Optional[World] = None
) -> Iterator[None]:
    """What Spark is asked for in this block fails with an error for people, or not at all.

    Args:
        what: what failed then, in a few words; where, next_step: as of every error.
        kafka: the world whose Kafka is needed for it, too.

    Raises:
        StackError: Spark is gone, or Kafka; or Spark's workers run another Python. LakeError: all
            else, with the innermost cause. The workbench's own errors stay what they are.
    """
    why = unreachable(
        spark
    )  # asked first: the client itself tries a dead server again for ten minutes
    if why:
        raise gone(spark, why)
    try:
        with _interrupted_without(kafka, spark):
            yield
    except WorkbenchError:
        raise
    except Exception as e:  # noqa: BLE001 - classic and Connect raise unrelated classes; the message is what tells
        why = cause(f"{type(e).__name__}: {e}")
        lost = kafka and stack.lost(kafka, "kafka", kafka.kafka.bootstrap)
        if not lost and (is_gone(e) or unreachable(spark) or _ended(spark)):
            lost = gone(spark, f"{where}: {why}")
        lost = lost or _other_python(str(e), where) or _died(spark, str(e))
        raise lost or LakeError(f"{what}: {why}", where=where, next_step=next_step) from e


@contextlib.contextmanager
def _interrupted_without(kafka: Optional[World], spark: SparkSession) -> Iterator[None]:
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


def _other_python(text: str, where: str) -> Optional[StackError]:
    """The error for a function in Python that Spark's workers refused because of their version,
    None for any other.
    """
    found = OTHER_PYTHON.search(text)
    if not found:
        return None
    theirs, ours = f"{found[1]}.{found[2]}", found[3]
    return StackError(
        f"Spark's workers run Python {theirs}, and this process {ours}: they take no function of it",
        where=where,
        expected=f"Python {theirs} on both sides",
        next_step=f"run it with Python {theirs}; what has no function in "
        'Python (queries, an ingest) runs from here, too (deploy/README.md, "Inside the network")',
    )


def cause(text: str) -> str:
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


def is_gone(error: BaseException) -> bool:
    """Whether an error of Spark Connect says that the server, or this session on it, is no more."""
    if (
        type(error).__name__ == "StreamingQueryException"
    ):  # told by a server that is there, of others, the registry say
        return False
    said = f"{type(error).__name__}: {error}".partition(TRACE)[
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
def causes(spark: SparkSession) -> Iterator[None]:
    """Let errors of this session tell Java's stack trace while it is held; a person who types gets
    one line.
    """
    _tell(spark, 1)
    try:
        yield
    finally:
        _tell(spark, -1)


def _tell(spark: SparkSession, more: int) -> None:
    with _ASKING:  # two jobs side by side: the last that ends switches it off
        _asked[spark] = _asked.get(spark, 0) + more
        # where it cannot be asked, also of a session that ended meanwhile, the question or its
        # error says more
        with contextlib.suppress(Exception):
            if not unreachable(spark):
                spark.conf.set(
                    "spark.sql.pyspark.jvmStacktrace.enabled", str(_asked[spark] > 0).lower()
                )


def gone(spark: Any, why: str) -> StackError:
    """The error for a session whose server is gone, by its state where it is one of ours (see
    `session`).
    """
    return _died(spark) or StackError(
        "Spark was restarted or is gone",
        where=why,
        next_step="run the notebook's set-up cell, then this one again; nothing is lost",
    )


def _died(spark: Any, error: str = "") -> Optional[StackError]:
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
        return stack.lost(world, "spark", spark.client._builder.endpoint)

    if not ENDING.search(error):
        return lost()
    with contextlib.suppress(WorkbenchError):  # it goes on: the error is of something else
        return wait_until(lost, "Spark to end", timeout=2)
    return None


def _ended(spark: Any) -> str:
    """Why a session of EMR Serverless is over; "" of one that is not, and of any other."""
    ended = getattr(spark.client._builder, "ended", None) if is_remote(spark) else None
    return ended() if ended else ""


def unreachable(spark: Any) -> str:
    """Why the server of a Spark Connect session cannot be reached; "" where it can, or the session
    is a classic one.
    """
    if not is_remote(spark):
        return ""
    if spark.client.is_closed:
        return "the session was closed"
    endpoint = spark.client._builder.endpoint
    try:
        socket.create_connection(host_port(endpoint), timeout=10).close()
    except OSError as e:
        return f"{endpoint}: {e}"
    return ""
