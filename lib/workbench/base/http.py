"""Calls of services over HTTP."""

from typing import Any, Callable, Collection, Optional

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from . import tls
from .errors import StackError


class RequestAbandoned(Exception):
    """The caller no longer waits for the answer: the request is not sent again."""


class CappedRetry(Retry):
    """At most a second between two tries. Urllib3 1, which boto3 wants on Python 3.9, has no
    setting of it.

    wanted: whether the caller still waits for the answer; called before each retry.
    """

    should_retry: Callable[[], bool] = staticmethod(lambda: True)

    def new(self, **changes: Any) -> "CappedRetry":
        other = super().new(**changes)
        other.should_retry = self.should_retry
        return other

    def get_backoff_time(self) -> float:
        return min(1, super().get_backoff_time())

    def sleep(self, response: Any = None) -> None:
        super().sleep(response)
        if not self.should_retry():
            raise RequestAbandoned


# 409: Connect's workers are rebalancing; 503: a service is starting. Asked again about once a
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
    should_retry: Callable[[], bool] = lambda: True,
) -> requests.Response:
    """Return what a service answers, whatever the status; `body` is sent as JSON. Raises
    StackError: no answer.

    Args:
        again: statuses that pass, after which it is asked again.
        auth: user and password, for HTTP's Basic authentication (RFC 7617).
        wanted: whether the caller still waits for the answer. If not, the request is not sent again
            (Abandoned).
    """
    retries = RETRY_POLICY.new(status_forcelist=retry_statuses)
    retries.should_retry = should_retry
    try:
        with requests.Session() as session:
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(max_retries=retries))
            return session.request(
                method,
                url,
                json=body,
                timeout=(5, 90),
                headers=headers,
                auth=auth,
                verify=tls.verify(url),
            )
    except requests.RequestException as e:
        raise StackError(
            f"{service} does not answer: {type(e).__name__}",
            location=f"{method} {url}",
            hint=hint or "run `workbench status`, then `workbench up`",
        ) from None
