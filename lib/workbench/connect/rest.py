"""Kafka Connect, over its REST API. Use it via `connect`."""

import contextlib
from dataclasses import dataclass
from typing import Any, ClassVar, Optional
from urllib.parse import quote

from .. import stack
from ..base import ConnectorError, ParamsError, StackError, World, wait_until
from ..stack import connect_api
from . import validation
from .configs import unknown_keys
from .validation import ConnectorStatus, PartStatus


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
        return connect_api.configurations(self.call("GET", connect_api.CONNECTORS_PATH))

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
        kafka_error = stack.process_down_error(self.world, "kafka")
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
        """Call Connect's REST API.

        Args:
            method: HTTP method.
            path: path below the URL of Kafka Connect.
            body: sent as JSON.
            none_if_missing: return None for status 404, instead of raising an error.

        Returns:
            The decoded response.
        """
        try:
            # without Kafka, Connect responds only after 90 s
            return stack.run_watched(
                self.world,
                lambda should_retry: connect_api.call(
                    self.world, method, path, body, should_retry=should_retry
                ),
                "connect",
                "kafka",
            )
        except (StackError, ParamsError) as e:  # a stack that was never started has no password yet
            raise self._service_lost_error() or e from None
        except connect_api.ConnectApiError as e:
            if e.status == 404 and none_if_missing:
                return None
            lost_error = self._service_lost_error() if e.status >= 500 else None
            raise lost_error or ConnectorError(
                e.message,
                location=e.location,
                expected=e.expected,
                hint=e.hint or validation.likely_causes(e.reason),
            ) from None

    def _service_lost_error(self) -> Optional[StackError]:
        """Return the error for a Connect or Kafka that is down.

        Connect stores its state in Kafka, so without Kafka its requests time out.
        """
        return stack.service_down_error(
            self.world, "connect", self.location
        ) or stack.service_down_error(self.world, "kafka", self.world.kafka.bootstrap)


def _connector_path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"
