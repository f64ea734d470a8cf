"""Kafka Connect, over its REST API. Use it via `connect`."""

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, ClassVar, Optional
from urllib.parse import quote

from .. import stack
from ..base import ConnectorError, ParamsError, StackError, World, http, wait_until
from . import validation
from .configs import unknown_keys
from .validation import ConnectorStatus, PartStatus

RESPONSE_SECONDS = 15  # without Kafka, Connect itself responds after 90 s
VALIDATION_SECONDS = (
    90  # the plugin connects to its database, and waits for half a minute by default
)


@dataclass(frozen=True)
class KafkaConnect:
    """The Kafka Connect of a world.

    Attributes:
        world: the world.
        install_hint: hint for a missing plugin that the built-in runner does not replace.
        wait: `wait_until` with the errors of this class.
    """

    world: World
    wait: ClassVar[Callable[..., Any]] = staticmethod(partial(wait_until, error=ConnectorError))
    install_hint: ClassVar[str] = (
        "put the plugin's folder of jars into var/plugins and run `workbench up` "
        "(or into the worker's plugin.path)"
    )

    @property
    def location(self) -> str:
        return self.world.connect.url

    @property
    def log_hint(self) -> str:
        return "read Connect's log: `workbench status` shows its path"

    def plugins(self) -> list[dict[str, str]]:
        return list(self.call("GET", "/connector-plugins"))

    def invalid_keys(self, name: str, config: dict[str, str]) -> dict[str, list[str]]:
        """Let the plugin validate a configuration; Debezium also connects to the database.

        In addition, keys without a definition are rejected. Connect and Debezium ignore them
        silently.
        """
        path = f"/connector-plugins/{quote(config['connector.class'])}/config/validate"
        body = {"name": name, **config}
        keys = self.call("PUT", path, body, timeout=VALIDATION_SECONDS)["configs"]
        defined = {key["definition"]["name"] for key in keys if key["definition"]}
        problems = unknown_keys(config, defined)
        for key in keys:
            if key["value"]["errors"]:
                problems[key["value"]["name"]] = key["value"]["errors"]
        return problems

    def names(self) -> list[str]:
        return sorted(self.call("GET", "/connectors"))

    def deployed(self, name: str) -> dict[str, str]:
        return self.call("GET", f"{_path(name)}/config", none_if_missing=True) or {}

    def find_status(self, name: str) -> Optional[ConnectorStatus]:
        """Return the status of a connector; errors are summaries of stack traces."""
        response = self.call("GET", f"{_path(name)}/status", none_if_missing=True)
        # Without Kafka, Connect responds with the last state that it has read: a wait for another
        # state would not end.
        self._require("kafka")
        if response is None:
            return None
        return {
            "name": name,
            "type": response["type"],
            **_part_status(response["connector"]),
            "tasks": [{"id": task["id"], **_part_status(task)} for task in response["tasks"]],
        }

    def failure(self, name: str) -> Optional[str]:
        return validation.failure_message(name, self.find_status(name))

    def offset(self, name: str) -> dict[str, Any]:
        offsets = self.call("GET", f"{_path(name)}/offsets")["offsets"]
        return dict(offsets[0]["offset"]) if offsets else {}

    def deploy(self, name: str, config: dict[str, str]) -> None:
        """Deploy a connector, or update its configuration.

        A changed or failed connector is stopped first, so that `status` returns no state from before
        the change afterwards.
        """
        current, target = self.deployed(name), {**config, "name": name}
        if current == target and validation.states(self.find_status(name)) == {"RUNNING"}:
            return
        if current:
            self.stop(name)
        self.call("PUT", f"{_path(name)}/config", target)
        if current:
            self.call("PUT", f"{_path(name)}/resume")

    def restart(self, name: str) -> None:
        """Restart a connector and its tasks if they have FAILED (KIP-745)."""
        self.call("POST", f"{_path(name)}/restart?includeTasks=true&onlyFailed=true")
        # Connect responds before the restart. A new failure is reported by the next call.
        with contextlib.suppress(ConnectorError):
            self.wait(
                lambda: "FAILED" not in validation.states(self.find_status(name)),
                f"connector {name!r} to start again",
                timeout=10,
                interval=0.02,
            )

    def delete(self, name: str) -> None:
        """Delete a connector and its offsets (KIP-875), like a deletion in MSK Connect.

        After a restart of Kafka, Connect rejects the deletion of offsets until a sink's consumer group
        has no member, and responds that the request can be safely retried.
        """
        self.stop(name)
        self.wait(
            lambda: self.call("DELETE", f"{_path(name)}/offsets") or True,
            f"the offsets of connector {name!r} to be deleted",
            interval=0.5,
            is_transient=lambda e: (
                not isinstance(e, ConnectorError) or "safely retried" in e.message
            ),
        )
        self.call("DELETE", _path(name), none_if_missing=True)
        self.wait(
            lambda: self.find_status(name) is None and name not in self.names(),
            f"connector {name!r} to be gone",
        )

    def stop(self, name: str) -> None:
        """Stop a connector (its offsets stay) and wait until its tasks are gone."""
        self.call("PUT", f"{_path(name)}/stop")
        self.wait(
            lambda: validation.states(self.find_status(name)) == {"STOPPED", "NO TASK"},
            f"connector {name!r} to stop",
        )

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        none_if_missing: bool = False,
        timeout: float = RESPONSE_SECONDS,
    ) -> Any:
        """Call Connect's REST API; while Connect is busy, repeat the request for up to a minute.

        Args:
            method: HTTP method.
            path: path below the URL of Kafka Connect.
            body: sent as JSON.
            none_if_missing: return None for status 404, instead of raising an error.
            timeout: seconds to wait for the response.

        Returns:
            The decoded response, None if it is empty.

        Raises:
            ConnectorError: the response is an error.
            StackError: Kafka Connect or Kafka is down, does not respond, or is busy for too long.
        """
        # Connect stores its state in Kafka: without Kafka its requests fail
        require_services = partial(self._require, "connect", "kafka")
        try:
            response = http.call(
                "Kafka Connect",
                method,
                self.location.rstrip("/") + path,
                body,
                auth=self.world.connect.auth,
                require_services=require_services,
                timeout=timeout,
            )
        # ParamsError: a stack that was never started has no password yet
        except (StackError, ParamsError):
            require_services()
            raise
        if response.status_code >= 500:
            require_services()
        if response.ok:
            return response.json() if response.content else None
        if response.status_code == 404 and none_if_missing:
            return None
        try:
            reason = response.json()["message"]
        except (ValueError, KeyError):
            reason = response.text[:300]
        raise ConnectorError(
            f"Connect responds with status {response.status_code}: {reason}",
            location=f"{method} {path}",
            hint=validation.likely_causes(reason),
        )

    def _require(self, *names: str) -> None:
        """Raise the error for the first of these services that is down."""
        for name in names:
            error = stack.service_down_error(self.world, name)
            if error:
                raise error


def _path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"


def _part_status(response: dict[str, Any]) -> PartStatus:
    error = validation.summarize_stacktrace(response.get("trace", ""))
    return {"state": response["state"], "worker": response.get("worker_id", ""), "error": error}
