"""Kafka Connect, over its REST API. Use it via `connect`."""

import contextlib
from dataclasses import dataclass
from typing import Any, ClassVar, Optional
from urllib.parse import quote

import requests

from .. import stack
from ..base import ConnectorError, ParamsError, StackError, World, http, wait_until
from . import validation
from .configs import unknown_keys
from .validation import ConnectorStatus, PartStatus

# Without Kafka, Connect itself responds after 90 s.
RESPONSE_SECONDS = 15
BUSY_STATUSES = (409, 503)  # the workers are rebalancing; Connect is starting


class ConnectApiError(ConnectorError):
    """Kafka Connect responded with an error.

    Args:
        status: HTTP status code.
        message: the message of the exception.
        fields: further fields of ConnectorError.
    """

    def __init__(self, status: int, message: str, **fields: str):  # noqa: D107
        super().__init__(message, **fields)
        self.status = status


@dataclass(frozen=True)
class KafkaConnect:
    """The Kafka Connect of a world; a `ConnectBackend`."""

    world: World
    install_hint: ClassVar[str] = (
        "put the plugin's folder of jars into var/plugins and run `workbench up` "
        "(or into the worker's plugin.path)"
    )

    @property
    def location(self) -> str:
        return self.world.connect.url

    def plugins(self) -> list[dict[str, str]]:
        return list(self.call("GET", "/connector-plugins"))

    def invalid_keys(self, name: str, config: dict[str, str]) -> dict[str, list[str]]:
        """Let the plugin validate a configuration; Debezium also connects to the database.

        In addition, keys without a definition are rejected. Connect and Debezium ignore them
        silently.
        """
        class_name = config["connector.class"]
        path = f"/connector-plugins/{quote(class_name)}/config/validate"
        response = self.call("PUT", path, {"name": name, **config})
        defined_keys = set()
        problems = {}
        for key in response["configs"]:
            if key.get("definition"):
                defined_keys.add(key["definition"]["name"])
            if key["value"].get("errors"):
                problems[key["value"]["name"]] = key["value"]["errors"]
        for unknown, suggestion in unknown_keys(config, defined_keys).items():
            message = validation.unknown_key_message(class_name, suggestion)
            problems.setdefault(unknown, [message])
        return problems

    def deploy(self, name: str, config: dict[str, str]) -> ConnectorStatus:
        """Deploy a connector, or update its configuration.

        A changed or failed connector is stopped first, so that `status` returns no state from before
        the change afterwards.
        """
        path = _connector_path(name)
        current, target = self.deployed(name), {**config, "name": name}
        if current:
            if current == target and validation.states(self.status(name)) == {"RUNNING"}:
                return self.status(name)
            self.stop(name)
        self.call("PUT", f"{path}/config", target)
        if current:
            self.call("PUT", f"{path}/resume")
        return wait_until(
            lambda: self._find_status(name),
            f"connector {name!r} to appear",
            timeout=30,
            error=ConnectorError,
        )

    def names(self) -> list[str]:
        return sorted(self.call("GET", "/connectors"))

    def deployed(self, name: str) -> dict[str, str]:
        return self.call("GET", f"{_connector_path(name)}/config", none_if_missing=True) or {}

    def configs(self) -> dict[str, dict[str, str]]:
        response = self.call("GET", "/connectors?expand=info")
        # a connector that was deleted during the request has no info
        return {name: entry["info"]["config"] for name, entry in response.items() if entry["info"]}

    def status(self, name: str) -> ConnectorStatus:
        """Return the status of a connector; errors are summaries of stack traces."""
        status = self._find_status(name)
        if status is None:
            raise validation.missing_connector_error(name, self.location, self.names())
        return status

    def _find_status(self, name: str) -> Optional[ConnectorStatus]:
        response = self.call("GET", f"{_connector_path(name)}/status", none_if_missing=True)
        # Without Kafka, Connect responds with the last state that it has read: a wait for another
        # state would not end.
        kafka_error = stack.service_down_error(self.world, "kafka")
        if kafka_error:
            raise kafka_error
        if response is None:
            return None

        def part_status(raw: dict[str, Any]) -> PartStatus:
            error = validation.summarize_stacktrace(raw.get("trace", ""))
            return {"state": raw["state"], "worker": raw.get("worker_id", ""), "error": error}

        return {
            "name": name,
            "type": response["type"],
            **part_status(response["connector"]),
            "tasks": [{"id": task["id"], **part_status(task)} for task in response["tasks"]],
        }

    def failure(self, name: str) -> Optional[str]:
        return validation.failure_message(name, self._find_status(name))

    def offset(self, name: str) -> dict[str, Any]:
        offsets = self.call("GET", f"{_connector_path(name)}/offsets")["offsets"]
        return dict(offsets[0]["offset"]) if offsets else {}

    def wait_running(self, name: str, stable_for: float) -> ConnectorStatus:
        return wait_until(
            validation.running_for(lambda: self.status(name), stable_for),
            f"connector {name!r} and its tasks to be RUNNING",
            interval=0.2,
            error=ConnectorError,
            failure_reason=lambda: self.failure(name),
            hint="read Connect's log: `workbench status` shows its path",
        )

    def restart(self, name: str) -> None:
        """Restart a connector and its tasks if they have FAILED (KIP-745)."""
        self.call("POST", f"{_connector_path(name)}/restart?includeTasks=true&onlyFailed=true")
        # Connect responds before the restart. A new failure is reported by the next call.
        with contextlib.suppress(ConnectorError):
            wait_until(
                lambda: "FAILED" not in validation.states(self.status(name)),
                f"connector {name!r} to start again",
                timeout=10,
                interval=0.02,
                error=ConnectorError,
            )

    def delete(self, name: str) -> None:
        """Delete a connector and its offsets (KIP-875), like a deletion in MSK Connect."""
        if not self.deployed(name):
            return
        self.stop(name)
        self._delete_offsets(name)
        self.call("DELETE", _connector_path(name), none_if_missing=True)
        wait_until(
            lambda: self._find_status(name) is None and name not in self.names(),
            f"connector {name!r} to be gone",
            timeout=30,
            error=ConnectorError,
        )

    def _delete_offsets(self, name: str) -> None:
        """Delete the offsets of a stopped connector.

        After a restart of Kafka, Connect rejects the request until a sink's consumer group has no
        member, and responds that the request can be safely retried.
        """
        path = f"{_connector_path(name)}/offsets"
        wait_until(
            lambda: self.call("DELETE", path) or True,
            f"the offsets of connector {name!r} to be deleted",
            timeout=60,
            interval=0.5,
            is_transient=lambda e: (
                not isinstance(e, ConnectorError) or "safely retried" in e.message
            ),
            error=ConnectorError,
        )

    def stop(self, name: str) -> None:
        """Stop a connector (its offsets stay) and wait until its tasks are gone."""
        self.call("PUT", f"{_connector_path(name)}/stop")
        wait_until(
            lambda: validation.states(self.status(name)) == {"STOPPED", "NO TASK"},
            f"connector {name!r} to stop",
            timeout=60,
            error=ConnectorError,
        )

    def call(
        self, method: str, path: str, body: Any = None, *, none_if_missing: bool = False
    ) -> Any:
        """Call Connect's REST API; while Connect is busy, repeat the request for up to a minute.

        Args:
            method: HTTP method.
            path: path below the URL of Kafka Connect.
            body: sent as JSON.
            none_if_missing: return None for status 404, instead of raising an error.

        Returns:
            The decoded response, None if it is empty.

        Raises:
            StackError: Connect does not respond; names Connect or Kafka if one of them is down.
            ConnectorError: Connect rejects the request.
        """
        try:
            # a response with an error counts as false
            (response,) = wait_until(
                lambda: (self._request(method, path, body),),
                "Kafka Connect to accept the request",
                interval=0.5,
                is_transient=lambda e: isinstance(e, ConnectApiError) and e.status in BUSY_STATUSES,
                error=ConnectorError,
            )
        except ConnectApiError as e:
            if e.status == 404 and none_if_missing:
                return None
            raise
        return response.json() if response.content else None

    def _request(self, method: str, path: str, body: Any) -> requests.Response:
        """Send one request; return the response, or raise its error.

        Connect stores its state in Kafka, so the cause of an error may be a Kafka that is down.
        """
        location = f"{method} {path}"
        try:
            response = http.call(
                "Kafka Connect",
                method,
                self.location.rstrip("/") + path,
                body,
                retry_statuses=(),
                auth=self.world.connect.auth,
                timeout=RESPONSE_SECONDS,
            )
        except (StackError, ParamsError) as e:  # a stack that was never started has no password yet
            raise self._service_lost_error() or e from None
        if response.status_code == 401:
            raise ConnectApiError(
                401,
                "Connect rejects the user and password of its REST API",
                location=location,
                expected=f"the values of connect.user and connect.password in {self.world.file}",
                hint="for an embedded Connect run `workbench up`; for another one correct the params "
                "file",
            )
        if response.status_code < 400:
            return response
        may_be_down = response.status_code == 409 or response.status_code >= 500
        lost_error = self._service_lost_error() if may_be_down else None
        if lost_error:
            raise lost_error
        try:
            reason = response.json().get("message", "")
        except ValueError:
            reason = response.text[:300]
        raise ConnectApiError(
            response.status_code,
            f"Connect responds with status {response.status_code}: {reason}",
            location=location,
            hint=validation.likely_causes(reason),
        )

    def _service_lost_error(self) -> Optional[StackError]:
        """Return the error for a Connect or Kafka that is down."""
        return stack.service_down_error(self.world, "connect") or stack.service_down_error(
            self.world, "kafka"
        )


def _connector_path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"
