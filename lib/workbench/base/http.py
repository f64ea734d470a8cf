"""Calls of services over HTTP."""

from typing import Any, Callable, Collection, Optional

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from . import tls
from .errors import StackError


class Abandoned(Exception):
    """The caller no longer waits for the answer: the request is not sent again."""


class _Again(Retry):
    """At most a second between two tries. Urllib3 1, which boto3 wants on Python 3.9, has no
    setting of it.

    wanted: whether the caller still waits for the answer; called before each retry.
    """

    wanted: Callable[[], bool] = staticmethod(lambda: True)

    def new(self, **changes: Any) -> "_Again":
        other = super().new(**changes)
        other.wanted = self.wanted
        return other

    def get_backoff_time(self) -> float:
        return min(1, super().get_backoff_time())

    def sleep(self, response: Any = None) -> None:
        super().sleep(response)
        if not self.wanted():
            raise Abandoned


# 409: Connect's workers are rebalancing; 503: a service is starting. Asked again about once a
# second, for a minute.
AGAIN = _Again(
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
    again: Collection[int] = AGAIN.status_forcelist,
    headers: Optional[dict[str, str]] = None,
    next_step: str = "",
    auth: Optional[tuple[str, bytes]] = None,
    wanted: Callable[[], bool] = lambda: True,
) -> requests.Response:
    """Return what a service answers, whatever the status; `body` is sent as JSON. Raises
    StackError: no answer.

    Args:
        again: statuses that pass, after which it is asked again.
        auth: user and password, for HTTP's Basic authentication (RFC 7617).
        wanted: whether the caller still waits for the answer. If not, the request is not sent again
            (Abandoned).
    """
    retries = AGAIN.new(status_forcelist=again)
    retries.wanted = wanted
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
            where=f"{method} {url}",
            next_step=next_step or "run `workbench status`, then `workbench up`",
        ) from None
