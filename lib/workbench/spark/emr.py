"""Spark Connect on EMR Serverless, from emr-7.13.0.

Source: EMR Serverless guide, "Run interactive sessions … through Spark Connect".

A session is a Spark driver with executors. It starts within two minutes, and costs money while it
exists. All processes of a user share one session, which they find by its name. The session ends at the
end of a headless run, after IDLE_TIMEOUT_MINUTES without a request, or with `deploy/down.sh`.
"""

import contextlib
import datetime as dt
import getpass
import threading
from typing import Any, Callable, Iterable
from urllib.parse import urlsplit

from pyspark.sql.connect.client import ChannelBuilder

from ..base import StackError, World, aws, paths
from .settings import load_conf

# Below the lake's root: the library with its packages (see run.publish).
ENVIRONMENT_ARCHIVE = "workbench/environment.tar.gz"
AUTH_HEADER = "x-aws-proxy-auth"  # contains the session's token
# A token expires after an hour. A new one is requested this long before.
TOKEN_REFRESH_MARGIN = dt.timedelta(minutes=5)
IDLE_TIMEOUT_MINUTES = 15
READY_STATES = ("STARTED", "IDLE", "BUSY")
ALIVE_STATES = ("SUBMITTED", "STARTING", *READY_STATES)


def _call(world: World, operation: str, **params: Any) -> dict[str, Any]:
    return aws.call(
        world.region, "emr-serverless", operation, applicationId=world.spark.url, **params
    )


def serverless_conf(world: World) -> dict[str, str]:
    """Return the settings of a job or a session on EMR Serverless.

    They name EMR's Hudi, the jars of `deploy/publish.sh`, Glue as the catalog, and the archive of the
    library with its packages.
    """
    root = world.lake.root
    archive = load_conf("emr-serverless", root=root, archive=ENVIRONMENT_ARCHIVE)
    return load_conf("emr", root=root, **world.spark.model_dump()) | load_conf("hudi") | archive


def session_name(world: World) -> str:
    """Return the name of the session of this user and this instance."""
    return f"{world.stack.deployment}-{getpass.getuser()}-{paths.instance_name()}"


def open_channel(
    world: World, options: list[tuple[str, Any]], progress: Callable[[str], None] = print
) -> "Channel":
    """Return the channel to this user's session. A missing session is started, and ended if that fails.

    Args:
        world: the world of the application.
        options: options of the gRPC channel.
        progress: receives a message when a session is started.

    Raises:
        StackError: the session does not start (with EMR's reason), or AWS rejects a request.
    """
    sessions = live_sessions(world)
    if sessions:
        return Channel(world, sessions[0]["sessionId"], options)
    session_id = _start_session(world, progress)
    try:
        return Channel(world, session_id, options)
    except BaseException:  # also Ctrl-C; else it would cost money until its idle timeout
        with contextlib.suppress(StackError):
            _call(world, "terminate_session", sessionId=session_id)
        raise


def live_sessions(world: World) -> list[dict[str, Any]]:
    """Return this user's sessions that have not ended, ready sessions first."""
    listed = aws.paginate(
        world.region,
        "emr-serverless",
        "list_sessions",
        "sessions",
        applicationId=world.spark.url,
        states=list(ALIVE_STATES),
    )
    sessions = [session for session in listed if session.get("name") == session_name(world)]
    return sorted(sessions, key=lambda session: session["state"] not in READY_STATES)


def _start_session(world: World, progress: Callable[[str], None]) -> str:
    progress("starting a Spark session on EMR Serverless: a minute or two …")
    conf = {"classification": "spark-defaults", "properties": serverless_conf(world)}
    response = _call(
        world,
        "start_session",
        executionRoleArn=aws.parameter(world.region, world.stack.deployment, "spark/role"),
        name=session_name(world),
        idleTimeoutMinutes=IDLE_TIMEOUT_MINUTES,
        tags={aws.DEPLOYMENT_TAG: world.stack.deployment},
        configurationOverrides={"runtimeConfiguration": [conf]},
    )
    return str(response["sessionId"])


def _describe_state(session: dict[str, Any]) -> str:
    return f"state {session['state']}: {session.get('stateDetails') or 'EMR reports no reason'}"


def _get_session(world: World, session_id: str) -> dict[str, Any]:
    return dict(_call(world, "get_session", sessionId=session_id)["session"])


def _wait_until_ready(world: World, session_id: str) -> None:
    hint = "read its log in EMR Studio, or in the application's log location"

    def is_ready() -> bool:
        session = _get_session(world, session_id)
        if session["state"] not in ALIVE_STATES:
            raise StackError(
                f"session {session_id} on EMR Serverless does not start: {_describe_state(session)}",
                hint=hint,
            )
        return session["state"] in READY_STATES

    description = f"session {session_id} on EMR Serverless to start"
    aws.wait(is_ready, description, timeout=600, interval=2, hint=hint)


def terminate_sessions(world: World) -> int:
    """End all sessions of this user, and return their number."""
    sessions = live_sessions(world)
    for session in sessions:
        # it may have ended meanwhile
        with aws.ignore_error_codes("ResourceNotFound|^ValidationException$"):
            _call(world, "terminate_session", sessionId=session["sessionId"])
    return len(sessions)


class Channel(ChannelBuilder):
    """The channel to a session. Each call has a valid token in its metadata, not in the URL."""

    def __init__(self, world: World, session_id: str, options: list[tuple[str, Any]]):
        """Wait until the session is ready, and request its endpoint.

        Args:
            world: the world of the application.
            session_id: id of the session.
            options: options of the gRPC channel.
        """
        self.world, self.session, self._lock = world, session_id, threading.Lock()
        _wait_until_ready(world, session_id)
        endpoint = self._renew_token()
        url = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        super().__init__(f"sc://{url.hostname}:{url.port or 443}/;use_ssl=true", options)

    def _renew_token(self) -> str:
        """Request a token, and return the session's endpoint."""
        response = _call(self.world, "get_session_endpoint", sessionId=self.session)
        self._auth_token = response["authToken"]
        self._token_expires_at = response["authTokenExpiresAt"]
        return str(response["endpoint"])

    def end_reason(self) -> str:
        """Return why the session has ended; empty if it has not."""
        session = _get_session(self.world, self.session)
        return "" if session["state"] in ALIVE_STATES else _describe_state(session)

    def metadata(self) -> Iterable[tuple[str, str]]:
        """Return the metadata of a call. pyspark calls this method before each call."""
        with self._lock:
            if dt.datetime.now(dt.timezone.utc) > self._token_expires_at - TOKEN_REFRESH_MARGIN:
                self._renew_token()
        return [*super().metadata(), (AUTH_HEADER, self._auth_token)]
