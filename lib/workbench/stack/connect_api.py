"""One request to the REST API of Kafka Connect. `connect.rest` and `addresses` use it."""

from typing import Any, Callable

from ..base import ConnectorError, World, http

CONNECTORS_PATH = "/connectors?expand=info"


class ConnectApiError(ConnectorError):
    """Kafka Connect responded with an error.

    Args:
        message: the message of the exception.
        status: HTTP status code.
        reason: Connect's own error text.
        fields: further fields of ConnectorError.
    """

    def __init__(self, message: str, status: int, reason: str, **fields: str):  # noqa: D107
        super().__init__(message, **fields)
        self.status, self.reason = status, reason


def call(
    world: World,
    method: str,
    path: str,
    body: Any = None,
    *,
    should_retry: Callable[[], bool] = lambda: True,
) -> Any:
    """Send a request to Kafka Connect.

    Args:
        world: the world of the Connect cluster.
        method: HTTP method.
        path: path below the URL of Connect.
        body: sent as JSON.
        should_retry: whether the caller still waits for the response (see `http.call`).

    Returns:
        The decoded JSON response, None if the response is empty.

    Raises:
        StackError: Kafka Connect does not respond.
        ConnectApiError: the response is an error.
    """
    response = http.call(
        "Kafka Connect",
        method,
        world.connect.url.rstrip("/") + path,
        body,
        auth=world.connect.auth,
        should_retry=should_retry,
    )
    location = f"{method} {path}"
    if response.status_code == 401:
        raise ConnectApiError(
            "Connect rejects the user and password of its REST API",
            401,
            "",
            location=location,
            expected=f"the values of connect.user and connect.password in {world.file}",
            hint="for an embedded Connect run `workbench up`; for another one correct the params file",
        )
    if response.status_code >= 400:
        try:
            reason = response.json().get("message", "")
        except ValueError:
            reason = response.text[:300]
        raise ConnectApiError(
            f"Connect responds with status {response.status_code}: {reason}",
            response.status_code,
            reason,
            location=location,
        )
    return response.json() if response.content else None


def configurations(response: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return {connector: configuration} of a response to CONNECTORS_PATH.

    A connector that was deleted during the request has no `info` and is left out.
    """
    return {name: entry["info"]["config"] for name, entry in response.items() if entry["info"]}
