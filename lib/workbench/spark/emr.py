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
from .settings import hudi_conf, load_conf

# below the lake's root: the library with its packages (see run.publish)
ENVIRONMENT_ARCHIVE = "workbench/environment.tar.gz"
AUTH_HEADER = "x-aws-proxy-auth"  # in which each call bears the session's token
TOKEN_REFRESH_MARGIN = dt.timedelta(
    minutes=5
)  # before it expires, after an hour, another token is asked for
IDLE_TIMEOUT_MINUTES = 15  # minutes
ALIVE_STATES = ("SUBMITTED", "STARTING", "STARTED", "IDLE", "BUSY")
READY_STATES = ("STARTED", "IDLE", "BUSY")
_started_sessions: dict[str, World] = {}  # sessions that this process has started and has to end


def _call(world: World, operation: str, **given: Any) -> dict[str, Any]:
    return aws.call(
        world.region, "emr-serverless", operation, applicationId=world.spark.url, **given
    )


def spark_conf(world: World) -> dict[str, str]:
    """What Spark on EMR is started with: EMR's Hudi, the jars that `workbench aws publish` has put
    there, and Glue as catalog.
    """
    return {**load_conf("emr", root=world.lake.root, **world.spark.model_dump()), **hudi_conf()}


def serverless_conf(world: World) -> dict[str, str]:
    """Return the settings of a job or a session on EMR Serverless: `settings`, and the library with
    its packages.
    """
    return {
        **spark_conf(world),
        **load_conf("emr-serverless", root=world.lake.root, archive=ENVIRONMENT_ARCHIVE),
    }


@contextlib.contextmanager
def submitting_to(cluster: str, what: str) -> Iterator[None]:
    """A step or a notebook that is started on the cluster in this block. Raises: StackError: the
    cluster has ended.
    """
    try:
        yield
    except StackError as e:
        if aws.error_code(e) not in ("ValidationException", "InvalidRequestException"):
            raise
        raise StackError(
            f"the cluster takes no {what}: {e.message}",
            location=cluster,
            hint="it ends itself when idle: "
            "`workbench aws up emr schedule -p Generation=<one more than last time>` makes another",
        ) from e


def session_name(world: World) -> str:
    """What this person's session of this instance is called."""
    return f"{world.stack.deployment}-{getpass.getuser()}-{paths.instance_name()}"


def open_channel(
    world: World, options: list[tuple[str, Any]], say: Callable[[str], None] = print
) -> "Channel":
    """Where the session of this person listens; it is started where there is none.

    Raises: StackError: it does not come up, with EMR's reason; AWS refuses something.
    """
    there = live_sessions(world)
    session = there[0]["sessionId"] if there else _start_session(world, say)
    return Channel(world, session, options)


def live_sessions(world: World) -> list[dict[str, Any]]:
    """This person's sessions that are there, those that are ready first."""
    found = aws.paginate(
        world.region,
        "emr-serverless",
        "list_sessions",
        "sessions",
        applicationId=world.spark.url,
        states=list(ALIVE_STATES),
    )
    return sorted(
        (one for one in found if one.get("name") == session_name(world)),
        key=lambda one: one["state"] not in READY_STATES,
    )


def _start_session(world: World, say: Callable[[str], None]) -> str:
    say("starting a Spark session on EMR Serverless: a minute or two …")
    role = aws.parameter(world.region, world.stack.deployment, "spark/role")
    session = _call(
        world,
        "start_session",
        executionRoleArn=role,
        name=session_name(world),
        idleTimeoutMinutes=IDLE_TIMEOUT_MINUTES,
        tags={aws.DEPLOYMENT_TAG: world.stack.deployment},
        configurationOverrides={
            "runtimeConfiguration": [
                {"classification": "spark-defaults", "properties": serverless_conf(world)}
            ]
        },
    )["sessionId"]
    if not _started_sessions:
        atexit.register(
            lambda: [terminate_session(of, one) for one, of in list(_started_sessions.items())]
        )
    _started_sessions[session] = world
    return session


def _describe_state(session: dict[str, Any]) -> str:
    return f"it is {session['state']}: {session.get('stateDetails') or 'no reason told'}"


def _wait_until_ready(world: World, session: str) -> None:
    """Wait until a session can be asked."""
    log = "its log: EMR Studio, or the application's log location"

    def ready() -> bool:
        now = _call(world, "get_session", sessionId=session)["session"]
        if now["state"] not in ALIVE_STATES:
            raise StackError(
                f"session {session} on EMR Serverless does not start: {_describe_state(now)}",
                hint=log,
            )
        return now["state"] in READY_STATES

    aws.wait(
        ready, f"session {session} on EMR Serverless to start", timeout=600, interval=2, hint=log
    )


def terminate_session(world: World, session: str) -> None:
    """End a session; one that is gone is fine."""
    _started_sessions.pop(session, None)
    with aws.ignore_error_codes("ResourceNotFound|^ValidationException$"):
        _call(world, "terminate_session", sessionId=session)


def terminate_sessions(world: World) -> int:
    """End all of this person's sessions, and return how many there were."""
    there = live_sessions(world)
    for one in there:
        terminate_session(world, one["sessionId"])
    return len(there)


class Channel(ChannelBuilder):
    """The address of a session, and what each call to it bears: a token that is still good. It is
    in no URL, and is not shown.
    """

    def __init__(self, world: World, session: str, options: list[tuple[str, Any]]):
        self.world, self.session, self._lock = world, session, threading.Lock()
        try:
            _wait_until_ready(world, session)
            told = self._renew_token()
        except BaseException:  # Ctrl-C while it starts, too
            if session in _started_sessions:
                terminate_session(world, session)
            raise
        place = urlsplit(told if "://" in told else f"https://{told}")
        super().__init__(f"sc://{place.hostname}:{place.port or 443}/;use_ssl=true", options)

    def _renew_token(self) -> str:
        """Ask for a token, and return the session's endpoint."""
        told = _call(self.world, "get_session_endpoint", sessionId=self.session)
        self._bearer_token, self._token_expires_at = told["authToken"], told["authTokenExpiresAt"]
        return told["endpoint"]

    def ended(self) -> str:
        """Why the session is over; "" while it is not."""
        now = _call(self.world, "get_session", sessionId=self.session)["session"]
        return "" if now["state"] in ALIVE_STATES else _describe_state(now)

    def metadata(self) -> Iterable[tuple[str, str]]:
        """What goes along with a call; pyspark asks before each."""
        with self._lock:
            if dt.datetime.now(dt.timezone.utc) > self._token_expires_at - TOKEN_REFRESH_MARGIN:
                self._renew_token()
        return [*super().metadata(), (AUTH_HEADER, self._bearer_token)]
