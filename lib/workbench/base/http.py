"""Calls of services over HTTP."""

from typing import Any, Callable, Collection, Optional, Sequence

import requests
from requests.auth import HTTPBasicAuth

from . import tls
from .errors import StackError
from .paths import LOOPBACK_ADDRESS
from .wait import wait_until

# 409: Connect's workers are rebalancing; 503: a service is starting.
BUSY_STATUSES = (409, 503)


class Busy(StackError):
    """A service responds with a transient status."""


def session(url: str) -> requests.Session:
    """Return a session for the service at a URL; one on loopback is called without a proxy."""
    session = requests.Session()
    session.trust_env = not LOOPBACK_ADDRESS.fullmatch(url)
    return session


def foreign_reason(hosts: Sequence[str], origins: Sequence[str], port: int) -> str:
    """Return why a request to a server on loopback is that of a foreign web page, "" if it is not.

    The page has another origin, or a rebound host name: in DNS rebinding the host name of a page
    resolves to 127.0.0.1.

    Args:
        hosts: the values of the header Host.
        origins: the values of the header Origin.
        port: port of the server.
    """
    own = [f"127.0.0.1:{port}", f"localhost:{port}"]
    if len(hosts) != 1 or hosts[0] not in own:
        return "the service responds to 127.0.0.1 and localhost only"
    if origins and (len(origins) != 1 or origins[0] not in [f"http://{host}" for host in own]):
        return "the service does not respond to a web page of another origin"
    return ""


def call(
    service: str,
    method: str,
    url: str,
    body: Any = None,
    *,
    retry_statuses: Collection[int] = BUSY_STATUSES,
    require_services: Callable[[], None] = lambda: None,
    headers: Optional[dict[str, str]] = None,
    hint: str = "",
    auth: Optional[tuple[str, bytes]] = None,
    timeout: float = 90,
) -> requests.Response:
    """Send a request, and return the response.

    Args:
        service: name of the service, for the error.
        method: HTTP method.
        url: URL of the request.
        body: sent as JSON.
        retry_statuses: transient statuses, after which the request is retried for up to a minute. With
            any other status the response is returned.
        require_services: called after such a status; it raises an error if a retry is pointless.
        headers: HTTP headers.
        hint: hint of the error; by default the commands that check and start the stack.
        auth: user and password, for HTTP Basic authentication (RFC 7617).
        timeout: seconds to wait for the response.

    Raises:
        StackError: the service does not respond, or is busy for too long.
    """

    def request() -> list[requests.Response]:
        try:
            with session(url) as client:
                response = client.request(
                    method,
                    url,
                    json=body,
                    timeout=(5, timeout),
                    headers=headers,
                    auth=HTTPBasicAuth(*auth) if auth else None,
                    verify=tls.verify(url),
                )
        except requests.RequestException as e:
            raise StackError(
                f"{service} does not answer: {type(e).__name__}",
                location=f"{method} {url}",
                hint=hint or "run `workbench status`, then `workbench up`",
            ) from None
        if response.status_code in retry_statuses:
            require_services()
            raise Busy(
                f"{service} responds with status {response.status_code}: {response.text[:300]}"
            )
        return [response]  # a list, because the response of an error is false

    (response,) = wait_until(
        request,
        f"{service} to accept {method} {url}",
        interval=0.5,
        is_transient=lambda e: isinstance(e, Busy),
        error=StackError,
        hint=hint,
    )
    return response
