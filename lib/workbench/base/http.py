"""Calls of services over HTTP."""

from typing import Any, Collection, Optional, Sequence

import requests
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth
from urllib3.util import Retry

from . import tls
from .errors import StackError
from .paths import LOOPBACK_ADDRESS


class CappedRetry(Retry):
    """A retry policy that waits at most one second between two attempts.

    urllib3 1, which boto3 requires on Python 3.9, has no such setting.
    """

    def get_backoff_time(self) -> float:
        """Return the seconds to wait before the next attempt."""
        return min(1, super().get_backoff_time())


# 409: Connect's workers are rebalancing; 503: a service is starting. Both are retried about once a
# second, for a minute.
RETRY_POLICY = CappedRetry(
    60,
    connect=0,
    read=0,
    other=0,
    status_forcelist=(409, 503),
    allowed_methods=None,
    raise_on_status=False,
    backoff_factor=0.3,
)


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
    retry_statuses: Collection[int] = RETRY_POLICY.status_forcelist,
    headers: Optional[dict[str, str]] = None,
    hint: str = "",
    auth: Optional[tuple[str, bytes]] = None,
    timeout: float = 90,
) -> requests.Response:
    """Send a request, and return the response, whatever its status.

    Args:
        service: name of the service, for the error.
        method: HTTP method.
        url: URL of the request.
        body: sent as JSON.
        retry_statuses: transient statuses, after which the request is retried.
        headers: HTTP headers.
        hint: hint of the error; by default the commands that check and start the stack.
        auth: user and password, for HTTP Basic authentication (RFC 7617).
        timeout: seconds to wait for the response.

    Raises:
        StackError: the service does not respond.
    """
    retries = RETRY_POLICY.new(status_forcelist=retry_statuses)
    try:
        with session(url) as client:
            for scheme in ("http://", "https://"):
                client.mount(scheme, HTTPAdapter(max_retries=retries))
            return client.request(
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
