"""Spark Connect on EMR Serverless (its guide, "Run interactive sessions … through Spark Connect";
from emr-7.13.0).

A session there is a Spark driver with executors: it starts in a minute or two and costs as long as
it lives. All processes of a person share one, found by its name, as notebooks share the embedded
Spark. It ends when the process that started it does, when a headless run is over, after IDLE
minutes without a question, or with `workbench aws down`.
"""

import atexit
import contextlib
import datetime as dt
import getpass
import threading
from typing import Any, Callable, Iterable, Iterator
from urllib.parse import urlsplit

from pyspark.sql.connect.client import ChannelBuilder

from ..base import StackError, World, aws, paths
from .settings import hudi_needs, of

# below the lake's root: the library with its packages (see run.publish)
ARCHIVE = "workbench/environment.tar.gz"
HEADER = "x-aws-proxy-auth"  # in which each call bears the session's token
EARLY = dt.timedelta(minutes=5)  # before it expires, after an hour, another token is asked for
IDLE = 15  # minutes
ALIVE = ("SUBMITTED", "STARTING", "STARTED", "IDLE", "BUSY")
READY = ("STARTED", "IDLE", "BUSY")
_started: dict[str, World] = {}  # sessions that this process has started and has to end


def _call(world: World, operation: str, **given: Any) -> dict[str, Any]:
    return aws.call(
        world.region, "emr-serverless", operation, applicationId=world.spark.url, **given
    )


def settings(world: World) -> dict[str, str]:
    """What Spark on EMR is started with: EMR's Hudi, the jars that `workbench aws publish` has put
    there, and Glue as catalog.
    """
    return {**of("emr", root=world.lake.root, **world.spark.model_dump()), **hudi_needs()}


def serverless_settings(world: World) -> dict[str, str]:
    """Return the settings of a job or a session on EMR Serverless: `settings`, and the library with
    its packages.
    """
    return {**settings(world), **of("emr-serverless", root=world.lake.root, archive=ARCHIVE)}


@contextlib.contextmanager
def taken(cluster: str, what: str) -> Iterator[None]:
    """A step or a notebook that is started on the cluster in this block. Raises: StackError: the
    cluster has ended.
    """
    try:
        yield
    except StackError as e:
        if aws.code(e) not in ("ValidationException", "InvalidRequestException"):
            raise
        raise StackError(
            f"the cluster takes no {what}: {e.what}",
            where=cluster,
            next_step="it ends itself when idle: "
            "`workbench aws up emr schedule -p Generation=<one more than last time>` makes another",
        ) from e


def name(world: World) -> str:
    """What this person's session of this instance is called."""
    return f"{world.stack.deployment}-{getpass.getuser()}-{paths.instance()}"


def channel(
    world: World, options: list[tuple[str, Any]], say: Callable[[str], None] = print
) -> "Channel":
    """Where the session of this person listens; it is started where there is none.

    Raises: StackError: it does not come up, with EMR's reason; AWS refuses something.
    """
    there = alive(world)
    session = there[0]["sessionId"] if there else _start(world, say)
    return Channel(world, session, options)


def alive(world: World) -> list[dict[str, Any]]:
    """This person's sessions that are there, those that are ready first."""
    found = aws.pages(
        world.region,
        "emr-serverless",
        "list_sessions",
        "sessions",
        applicationId=world.spark.url,
        states=list(ALIVE),
    )
    return sorted(
        (one for one in found if one.get("name") == name(world)),
        key=lambda one: one["state"] not in READY,
    )


def _start(world: World, say: Callable[[str], None]) -> str:
    say("starting a Spark session on EMR Serverless: a minute or two …")
    role = aws.parameter(world.region, world.stack.deployment, "spark/role")
    session = _call(
        world,
        "start_session",
        executionRoleArn=role,
        name=name(world),
        idleTimeoutMinutes=IDLE,
        tags={aws.TAG: world.stack.deployment},
        configurationOverrides={
            "runtimeConfiguration": [
                {"classification": "spark-defaults", "properties": serverless_settings(world)}
            ]
        },
    )["sessionId"]
    if not _started:
        atexit.register(lambda: [terminate(of, one) for one, of in list(_started.items())])
    _started[session] = world
    return session


def _state(session: dict[str, Any]) -> str:
    return f"it is {session['state']}: {session.get('stateDetails') or 'no reason told'}"


def _ready(world: World, session: str) -> None:
    """Wait until a session can be asked."""
    log = "its log: EMR Studio, or the application's log location"

    def ready() -> bool:
        now = _call(world, "get_session", sessionId=session)["session"]
        if now["state"] not in ALIVE:
            raise StackError(
                f"session {session} on EMR Serverless does not start: {_state(now)}", next_step=log
            )
        return now["state"] in READY

    aws.wait(
        ready, f"session {session} on EMR Serverless to start", timeout=600, every=2, next_step=log
    )


def terminate(world: World, session: str) -> None:
    """End a session; one that is gone is fine."""
    _started.pop(session, None)
    with aws.suppress("ResourceNotFound|^ValidationException$"):
        _call(world, "terminate_session", sessionId=session)


def stop(world: World) -> int:
    """End all of this person's sessions, and return how many there were."""
    there = alive(world)
    for one in there:
        terminate(world, one["sessionId"])
    return len(there)


class Channel(ChannelBuilder):
    """The address of a session, and what each call to it bears: a token that is still good. It is
    in no URL, and is not shown.
    """

    def __init__(self, world: World, session: str, options: list[tuple[str, Any]]):
        self.world, self.session, self._lock = world, session, threading.Lock()
        try:
            _ready(world, session)
            told = self._renew()
        except BaseException:  # Ctrl-C while it starts, too
            if session in _started:
                terminate(world, session)
            raise
        place = urlsplit(told if "://" in told else f"https://{told}")
        super().__init__(f"sc://{place.hostname}:{place.port or 443}/;use_ssl=true", options)

    def _renew(self) -> str:
        """Ask for a token, and return the session's endpoint."""
        told = _call(self.world, "get_session_endpoint", sessionId=self.session)
        self._token_now, self._until = told["authToken"], told["authTokenExpiresAt"]
        return told["endpoint"]

    def ended(self) -> str:
        """Why the session is over; "" while it is not."""
        now = _call(self.world, "get_session", sessionId=self.session)["session"]
        return "" if now["state"] in ALIVE else _state(now)

    def metadata(self) -> Iterable[tuple[str, str]]:
        """What goes along with a call; pyspark asks before each."""
        with self._lock:
            if dt.datetime.now(dt.timezone.utc) > self._until - EARLY:
                self._renew()
        return [*super().metadata(), (HEADER, self._token_now)]
