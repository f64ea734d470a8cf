"""The verbs of a Kafka Connect, over its REST API: plugins, validate, apply, names, status,
failure, wait_running, restart, delete. Use them through `connect`.
"""

import contextlib
from typing import Any, Optional, Union
from urllib.parse import quote

from .. import stack
from ..base import ConnectorError, ParamsError, StackError, World, did_you_mean, wait_until
from ..stack import connect_api
from . import validation
from .configs import unknown_keys
from .validation import (
    likely_causes,
    raise_for_problems,
    reject_plaintext_secrets,
    require_free_slot,
    require_plugin,
    states,
    summarize_stacktrace,
    unknown_key_message,
)

INSTALL_HINT = "put the plugin's folder of jars into var/plugins and run `workbench up` (or into the worker's plugin.path)"


def plugins(world: World) -> list[dict[str, str]]:
    """Return the connector plugins there are, as dicts with class, type ("source" or "sink") and
    version.
    """
    return _call(world, "GET", "/connector-plugins")


def validate(world: World, config: dict[str, str], name: str = "") -> None:
    """Let the plugin itself judge a configuration, without deploying it.

    Asks `PUT /connector-plugins/<class>/config/validate`, which for Debezium also tries the
    database. Beyond that, keys no definition knows are refused (Connect and Debezium ignore them
    silently), and so is a secret written out.

    Raises:
        ConnectorError: one, that lists every refused key with its message.
    """
    name = name or config.get("name") or "to-be-validated"
    wanted = require_plugin(config, name, plugins(world), world.connect.url, INSTALL_HINT)
    reject_plaintext_secrets(world, name, config)
    validation.reject_error_tolerance(name, config)
    answer = _call(
        world,
        "PUT",
        f"/connector-plugins/{quote(wanted)}/config/validate",
        {"name": name, **config},
    )
    known = {c["definition"]["name"] for c in answer["configs"] if c.get("definition")}
    problems = {
        c["value"]["name"]: c["value"]["errors"]
        for c in answer["configs"]
        if c["value"].get("errors")
    }
    for key, guess in unknown_keys(config, known).items():
        problems.setdefault(key, [unknown_key_message(wanted, guess)])
    raise_for_problems(name, wanted, problems)


def apply(world: World, name: str, config: dict[str, str]) -> dict[str, Any]:
    """Deploy a connector, or bring it to this configuration; the same again changes nothing.
    Returns its `status`.

    A changed or failed connector is stopped first, so that no state seen afterwards is of its
    former self.

    Raises:
        ConnectorError: the configuration is not valid (nothing is deployed then), or no plugin for
            it.
    """
    validate(world, config, name)
    require_free_slot(
        name, config, connect_api.configurations(_call(world, "GET", connect_api.CONNECTORS_PATH))
    )
    validation.require_root_publication(world, name, config)
    url = _connector_path(name)
    before = _call(world, "GET", f"{url}/config", none_if_missing=True)
    wanted = {**config, "name": name}
    if before is not None:
        if before == wanted and states(status(world, name)) == {"RUNNING"}:
            return status(world, name)
        _stop(world, name)
    _call(world, "PUT", f"{url}/config", wanted)
    if before is not None:
        _call(world, "PUT", f"{url}/resume")
    return wait_until(
        lambda: _status(world, name),
        f"connector {name!r} to appear",
        timeout=30,
        error=ConnectorError,
    )


def _connector_path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"


def names(world: World) -> list[str]:
    """Return the names of the connectors deployed now."""
    return sorted(_call(world, "GET", "/connectors"))


def deployed(world: World, name: str) -> dict[str, str]:
    """Return the configuration with which a connector is deployed; empty where there is no such
    connector.
    """
    return _call(world, "GET", f"{_connector_path(name)}/config", none_if_missing=True) or {}


def status(world: World, name: str) -> dict[str, Any]:
    """Return {name, type, state, worker, error, tasks: [{id, state, worker, error}]}; `error`
    begins the trace.

    Raises:
        ConnectorError: there is no such connector.
    """
    found = _status(world, name)
    if found is None:
        raise ConnectorError(
            f"there is no connector {name!r}",
            location=world.connect.url,
            expected=did_you_mean(name, names(world)),
            hint="deploy it with connect.apply",
        )
    return found


def _status(world: World, name: str) -> Optional[dict[str, Any]]:
    answer = _call(world, "GET", f"{_connector_path(name)}/status", none_if_missing=True)
    without_kafka = stack.process_down_error(world, "kafka")
    if (
        without_kafka
    ):  # Connect goes on answering what it last read there: a wait for another state would not end
        raise without_kafka
    if answer is None:
        return None

    def part(raw: dict[str, Any]) -> dict[str, Any]:
        return {
            "state": raw["state"],
            "worker": raw.get("worker_id", ""),
            "error": summarize_stacktrace(raw.get("trace", "")),
        }

    return {
        "name": name,
        "type": answer["type"],
        **part(answer["connector"]),
        "tasks": [{"id": t["id"], **part(t)} for t in answer["tasks"]],
    }


def failure(world: World, name: str) -> Optional[str]:
    """Return a sentence (first line of the trace, likely causes) when a connector or task is
    FAILED, else None.
    """
    return validation.failure_message(name, _status(world, name))


def wait_running(world: World, name: str, *, stable_for: float = 1.0) -> dict[str, Any]:
    """Wait until a connector and all its tasks are RUNNING, and stay so for `steady` seconds;
    return its `status`.

    Args:
        steady: Debezium opens the replication stream after its task is RUNNING, so a missing
            publication, say, fails it half a second later. A slot in use, or a database that went
            away, it retries for ever (errors.max.retries) and stays RUNNING: only messages prove
            that it works (topics.wait_for_messages).

    Raises:
        ConnectorError: at once when one of them is FAILED, with the first line of the trace and
            likely causes.
    """
    return wait_until(
        validation.running_for(lambda: status(world, name), stable_for),
        f"connector {name!r} and its tasks to be RUNNING",
        interval=0.2,
        error=ConnectorError,
        failure_reason=lambda: failure(world, name),
        hint="read Connect's log: `workbench status` names it",
    )


def restart(world: World, name: str) -> None:
    """Start again what has FAILED of a connector, itself and its tasks (KIP-745); what runs is left
    alone. It goes on where it was. See `wait_running`: no state that is seen after this is of
    before.
    """
    _call(world, "POST", f"{_connector_path(name)}/restart?includeTasks=true&onlyFailed=true")
    with contextlib.suppress(
        ConnectorError
    ):  # Connect answers first; what fails again is told by who asks next
        wait_until(
            lambda: "FAILED" not in states(status(world, name)),
            f"connector {name!r} to start again",
            timeout=10,
            interval=0.02,
            error=ConnectorError,
        )


def delete(world: World, name: str) -> None:
    """Delete a connector and wait until it is gone; one that is not there is fine.

    How far it had read is forgotten, too (KIP-875), so that the next `apply` takes a new snapshot
    (a new connector of MSK Connect always does). The replication slot stays: see
    postgres.drop_slot.
    """
    url = _connector_path(name)
    if _call(world, "GET", f"{url}/config", none_if_missing=True) is None:
        return
    _stop(world, name)
    _delete_offsets(world, url)
    _call(world, "DELETE", url, none_if_missing=True)
    wait_until(
        lambda: _status(world, name) is None and name not in names(world),
        f"connector {name!r} to be gone",
        timeout=30,
        error=ConnectorError,
    )


def _delete_offsets(world: World, url: str) -> None:
    """Delete the offsets of a stopped connector. After a restart of Kafka, Connect refuses it until
    a sink's consumer group has no member, and says that the request can be safely retried.
    """

    def forgotten() -> Union[bool, ConnectorError]:
        try:
            _call(world, "DELETE", f"{url}/offsets")
            return True
        except ConnectorError as e:
            if "safely retried" in e.message:
                raise
            return e

    done = wait_until(
        forgotten,
        f"the offsets of {url} to be deleted",
        timeout=60,
        interval=0.5,
        error=ConnectorError,
    )
    if isinstance(done, ConnectorError):
        raise done


def _stop(world: World, name: str) -> None:
    """Stop a connector (its offsets stay) and wait until its tasks are gone."""
    _call(world, "PUT", f"{_connector_path(name)}/stop")
    wait_until(
        lambda: states(status(world, name)) == {"STOPPED", "NO TASK"},
        f"connector {name!r} to stop",
        timeout=60,
        error=ConnectorError,
    )


def _service_lost_error(world: World) -> Optional[StackError]:
    """Connect keeps all that it knows in Kafka: without it, it answers with time-outs."""
    return stack.service_down_error(
        world, "connect", world.connect.url
    ) or stack.service_down_error(world, "kafka", world.kafka.bootstrap)


def _call(
    world: World, method: str, path: str, body: Any = None, *, none_if_missing: bool = False
) -> Any:
    """Call Connect's REST API and return the decoded answer; with `or_none` 404 is None, and no
    error.
    """
    try:
        # it waits 90 s for a Kafka that is gone
        return stack.run_watched(
            world,
            lambda wanted: connect_api.call(world, method, path, body, should_retry=wanted),
            "connect",
            "kafka",
        )
    except (StackError, ParamsError) as e:  # a stack that was never started has no password yet
        raise _service_lost_error(world) or e from None
    except connect_api.ConnectApiError as e:
        if e.status == 404 and none_if_missing:
            return None
        lost = _service_lost_error(world) if e.status >= 500 else None
        next_step = e.hint or likely_causes(e.reason)
        raise lost or ConnectorError(
            e.message, location=e.location, expected=e.expected, hint=next_step
        ) from None
