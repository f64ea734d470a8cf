"""One request to Kafka Connect's REST API. `connect.rest` and `addresses` use it."""

from typing import Any, Callable

from ..base import ConnectorError, World, http

CONNECTORS_PATH = "/connectors?expand=info"


class ConnectApiError(ConnectorError):
    """Kafka Connect answers with an error.

    Args:
        status: HTTP status. reason: the message of Connect's answer.
    """

    def __init__(self, message: str, status: int, reason: str, **fields: str):
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
    """Call the API and return the decoded answer, None where it is empty.

    Args:
        body: sent as JSON.
        wanted: whether the caller still waits for the answer (see `http.call`).

    Raises:
        StackError: no answer.
        Refusal: an answer with an error.
    """
    answer = http.call(
        "Kafka Connect",
        method,
        world.connect.url.rstrip("/") + path,
        body,
        auth=world.connect.auth,
        should_retry=should_retry,
    )
    where = f"{method} {path}"
    if answer.status_code == 401:
        raise ConnectApiError(
            "Connect refuses user and password of its REST API",
            401,
            "",
            location=where,
            expected=f"what connect.user and connect.password of {world.file} name",
            hint="an embedded Connect: `workbench up`; another one: correct the params file",
        )
    if answer.status_code >= 400:
        try:
            message = answer.json().get("message", "")
        except ValueError:
            message = answer.text[:300]
        raise ConnectApiError(
            f"Connect answers {answer.status_code}: {message}",
            answer.status_code,
            message,
            location=where,
        )
    return answer.json() if answer.content else None


def configurations(listed: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return {connector: configuration} of an answer to CONNECTORS. It has no `info` of a connector
    that was deleted while Connect answered.
    """
    return {name: known["info"]["config"] for name, known in listed.items() if known["info"]}
