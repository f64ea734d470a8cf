"""The operations of Kafka Connect, over its REST API. Use them via `connect`."""

import contextlib
from typing import Any, Optional
from urllib.parse import quote

from .. import stack
from ..base import ConnectorError, ParamsError, StackError, World, wait_until
from ..stack import connect_api
from . import validation
from .configs import unknown_keys
from .validation import ConnectorStatus, PartStatus

INSTALL_HINT = (
    "put the plugin's folder of jars into var/plugins and run `workbench up` "
    "(or into the worker's plugin.path)"
)


def plugins(world: World) -> list[dict[str, str]]:
    """Return the connector plugins.

    Returns:
        Dicts with class, type ("source" or "sink") and version.
    """
    response: list[dict[str, str]] = _call(world, "GET", "/connector-plugins")
    return response


def validate(world: World, config: dict[str, str], name: str = "") -> None:
    """Let the plugin validate a configuration, without deploying it.

    The request is `PUT /connector-plugins/<class>/config/validate`, which for Debezium also
    connects to the database. In addition, keys without a definition are rejected (Connect and
    Debezium ignore them silently), and so are secrets in plain text.

    Args:
        world: the world of the Connect cluster.
        config: the configuration.
        name: name of the connector, for the error.

    Raises:
        ConnectorError: the configuration is rejected; the error lists each rejected key with its
            messages.
    """
    name = name or config.get("name") or "to-be-validated"
    class_name = validation.require_plugin(
        config, name, plugins(world), world.connect.url, INSTALL_HINT
    )
    validation.reject_plaintext_secrets(world, name, config)
    validation.reject_error_tolerance(name, config)
    path = f"/connector-plugins/{quote(class_name)}/config/validate"
    response = _call(world, "PUT", path, {"name": name, **config})
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
    validation.raise_for_problems(name, class_name, problems)


def apply(world: World, name: str, config: dict[str, str]) -> ConnectorStatus:
    """Deploy a connector, or update its configuration; an unchanged one changes nothing.

    A changed or failed connector is stopped first, so that `status` returns no state from before the
    change afterwards.

    Args:
        world: the world of the Connect cluster.
        name: name of the connector.
        config: its configuration.

    Returns:
        The connector's `status`.

    Raises:
        ConnectorError: the configuration is not valid (nothing is deployed then), or there is no
            plugin for it.
    """
    validate(world, config, name)
    listed = _call(world, "GET", connect_api.CONNECTORS_PATH)
    validation.require_free_slot(name, config, connect_api.configurations(listed))
    validation.require_root_publication(world, name, config)
    path = _connector_path(name)
    current, target = deployed(world, name), {**config, "name": name}
    if current:
        if current == target and validation.states(status(world, name)) == {"RUNNING"}:
            return status(world, name)
        _stop(world, name)
    _call(world, "PUT", f"{path}/config", target)
    if current:
        _call(world, "PUT", f"{path}/resume")
    return wait_until(
        lambda: _get_status(world, name),
        f"connector {name!r} to appear",
        timeout=30,
        error=ConnectorError,
    )


def _connector_path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"


def names(world: World) -> list[str]:
    """Return the names of the deployed connectors."""
    return sorted(_call(world, "GET", "/connectors"))


def deployed(world: World, name: str) -> dict[str, str]:
    """Return the configuration of a deployed connector; empty if it does not exist."""
    return _call(world, "GET", f"{_connector_path(name)}/config", none_if_missing=True) or {}


def status(world: World, name: str) -> ConnectorStatus:
    """Return the status of a connector.

    Returns:
        {name, type, state, worker, error, tasks: [{id, state, worker, error}]}; `error` is a
        summary of the stack trace.

    Raises:
        ConnectorError: the connector does not exist.
    """
    connector_status = _get_status(world, name)
    if connector_status is None:
        raise validation.missing_connector_error(name, world.connect.url, names(world))
    return connector_status


def _get_status(world: World, name: str) -> Optional[ConnectorStatus]:
    response = _call(world, "GET", f"{_connector_path(name)}/status", none_if_missing=True)
    # Without Kafka, Connect responds with the last state that it has read: a wait for another state
    # would not end.
    kafka_error = stack.process_down_error(world, "kafka")
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


def failure(world: World, name: str) -> Optional[str]:
    """Return why a connector or a task is FAILED, None if neither is.

    Returns:
        A sentence with a summary of the stack trace, and likely causes.
    """
    return validation.failure_message(name, _get_status(world, name))


def wait_running(world: World, name: str, *, stable_for: float = 1.0) -> ConnectorStatus:
    """Wait until a connector and all its tasks are RUNNING and stay RUNNING.

    Args:
        world: the world of the Connect cluster.
        name: name of the connector.
        stable_for: seconds for which they must be RUNNING. A Debezium task is RUNNING before it
            opens the replication stream. So a missing publication, for example, fails the task half
            a second later. If the slot is in use or the database is down, the task retries without
            end (errors.max.retries) and stays RUNNING. Only messages prove that a connector works
            (topics.wait_for_messages).

    Returns:
        The connector's `status`.

    Raises:
        ConnectorError: at once when the connector or a task is FAILED, with the first line of the
            stack trace and likely causes.
    """
    return wait_until(
        validation.running_for(lambda: status(world, name), stable_for),
        f"connector {name!r} and its tasks to be RUNNING",
        interval=0.2,
        error=ConnectorError,
        failure_reason=lambda: failure(world, name),
        hint="read Connect's log: `workbench status` shows its path",
    )


def restart(world: World, name: str) -> None:
    """Restart a connector and its tasks if they have FAILED (KIP-745).

    They resume at their committed offsets. A running connector or task is not restarted. After this call,
    `status` returns no state from before the restart. See `wait_running`.
    """
    _call(world, "POST", f"{_connector_path(name)}/restart?includeTasks=true&onlyFailed=true")
    # Connect responds before the restart. A new failure is reported by the next call.
    with contextlib.suppress(ConnectorError):
        wait_until(
            lambda: "FAILED" not in validation.states(status(world, name)),
            f"connector {name!r} to start again",
            timeout=10,
            interval=0.02,
            error=ConnectorError,
        )


def delete(world: World, name: str) -> None:
    """Delete a connector, which need not exist, and wait until it is gone.

    Its offsets are deleted, too (KIP-875), so that the next `apply` takes a new snapshot, like a
    new connector of MSK Connect. The replication slot stays: see postgres.drop_slot.
    """
    if not deployed(world, name):
        return
    _stop(world, name)
    _delete_offsets(world, _connector_path(name))
    _call(world, "DELETE", _connector_path(name), none_if_missing=True)
    wait_until(
        lambda: _get_status(world, name) is None and name not in names(world),
        f"connector {name!r} to be gone",
        timeout=30,
        error=ConnectorError,
    )


def _delete_offsets(world: World, path: str) -> None:
    """Delete the offsets of a stopped connector.

    After a restart of Kafka, Connect rejects the request until a sink's consumer group has no
    member, and responds that the request can be safely retried.
    """

    def delete_offsets() -> bool:
        _call(world, "DELETE", f"{path}/offsets")
        return True

    wait_until(
        delete_offsets,
        f"the offsets of {path} to be deleted",
        timeout=60,
        interval=0.5,
        is_transient=lambda e: not isinstance(e, ConnectorError) or "safely retried" in e.message,
        error=ConnectorError,
    )


def _stop(world: World, name: str) -> None:
    """Stop a connector (its offsets stay) and wait until its tasks are gone."""
    _call(world, "PUT", f"{_connector_path(name)}/stop")
    wait_until(
        lambda: validation.states(status(world, name)) == {"STOPPED", "NO TASK"},
        f"connector {name!r} to stop",
        timeout=60,
        error=ConnectorError,
    )


def _service_lost_error(world: World) -> Optional[StackError]:
    """Return the error for a Connect or Kafka that is down.

    Connect stores its state in Kafka, so without Kafka its requests time out.
    """
    return stack.service_down_error(
        world, "connect", world.connect.url
    ) or stack.service_down_error(world, "kafka", world.kafka.bootstrap)


def _call(
    world: World, method: str, path: str, body: Any = None, *, none_if_missing: bool = False
) -> Any:
    """Call Connect's REST API.

    Args:
        world: the world of the Connect cluster.
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
            world,
            lambda should_retry: connect_api.call(
                world, method, path, body, should_retry=should_retry
            ),
            "connect",
            "kafka",
        )
    except (StackError, ParamsError) as e:  # a stack that was never started has no password yet
        raise _service_lost_error(world) or e from None
    except connect_api.ConnectApiError as e:
        if e.status == 404 and none_if_missing:
            return None
        lost_error = _service_lost_error(world) if e.status >= 500 else None
        raise lost_error or ConnectorError(
            e.message,
            location=e.location,
            expected=e.expected,
            hint=e.hint or validation.likely_causes(e.reason),
        ) from None
