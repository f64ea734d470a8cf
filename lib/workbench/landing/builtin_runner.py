"""The built-in runner: it runs connectors for which Kafka Connect has no plugin.

Its functions have the same names as those of `connect`. Kafka Connect runs connectors continuously;
this runner runs them when `run_once` is called. The configuration, state and error of each connector are
in one file in the lake's checkpoints folder. If the plugin exists, `apply` deploys the connector in
Kafka Connect and removes it here.
"""

import json
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Union

from .. import connect
from ..base import ConnectorError, World, files
from ..connect.validation import reject_exposed_secrets
from . import job, polling, sinks, sources
from .settings import SUPPORTED

WORKER = "workbench.landing"  # `worker` in a status, in place of the address of a Connect worker
Config = dict[str, str]
States = dict[str, dict[str, Any]]  # {connector: its config, state and error}


# {kind: the function that parses the JSON of its connectors}
PARSERS: dict[str, Callable[[Config, World], Any]] = {
    "source": sources.parse,
    "sink": sinks.parse,
}
# {kind: the function that runs a connector once}, in the order of `run_once`
RUNNERS: dict[str, Callable[[World, Config], Any]] = {"source": polling.poll, "sink": job.run}


def apply(world: World, name: str, config: Config) -> dict[str, Any]:
    """Deploy a connector with this configuration; an unchanged configuration changes nothing.

    Args:
        world: the environment profile.
        name: name of the connector.
        config: its configuration, without placeholders.

    Returns:
        The connector's `status`.

    Raises:
        ConnectorError: the configuration is not supported; or neither Kafka Connect nor this runner
            can run it; or Kafka Connect runs another connector of this name. In each case nothing
            is deployed.
    """
    kind = _kind(config)
    plugins = [plugin["class"] for plugin in connect.plugins(world)] if kind else []
    if not kind or config["connector.class"] in plugins:
        applied = connect.apply(world, name, config)
        _remove(world, name)
        return dict(applied)
    reject_exposed_secrets(world, name, config)  # the configuration is stored in a file
    PARSERS[kind]({"name": name, **config}, world)
    if name in connect.names(world):
        raise ConnectorError(
            f"connector {name!r} runs in Kafka Connect",
            location=world.connect.url,
            expected="another name",
            hint=f"connect.delete(world, {name!r}) removes the connector there",
        )
    with _changed_states(world) as connectors:
        if name not in connectors or connectors[name]["config"] != config:
            connectors[name] = {"config": config, "state": "UNASSIGNED", "error": ""}
    return status(world, name)


def names(world: World) -> list[str]:
    """Return the names of the deployed connectors, in Kafka Connect and here."""
    return sorted({*connect.names(world), *_load_state(world)})


def status(world: World, name: str) -> dict[str, Any]:
    """Return the status of a connector, with the keys of `connect.status`.

    For a connector of this runner `worker` is WORKER, and `tasks` has one task. The state is
    UNASSIGNED before the first run, RUNNING after a successful run and FAILED after a failed run.

    Raises:
        ConnectorError: there is no such connector.
    """
    connector = _load_state(world).get(name)
    if connector is None:
        return dict(connect.status(world, name))
    state = {"state": connector["state"], "worker": WORKER, "error": connector["error"]}
    kind = _kind(connector["config"])
    return {"name": name, "type": kind, **state, "tasks": [{"id": 0, **state}]}


def run_once(
    world: World, *connector_names: str
) -> dict[str, Union[polling.Polled, job.LandingCounts]]:
    """Poll once for each source of this runner, then land once for each sink.

    Connectors in Kafka Connect are not run here. If a connector fails, the others still run, and the
    next call runs it again.

    Args:
        world: the environment profile.
        *connector_names: the connectors to run; by default all.

    Returns:
        {connector: counts of its polled rows or landed records}.

    Raises:
        ConnectorError: there is no such connector.
        Exception: the error of the first connector that failed.
    """
    for name in connector_names:
        status(world, name)  # raises ConnectorError if the connector does not exist
    connectors = _load_state(world)
    counts = {}
    errors: list[Exception] = []
    for kind, run in RUNNERS.items():
        for name, connector in connectors.items():
            config = connector["config"]
            if _kind(config) != kind or (connector_names and name not in connector_names):
                continue
            try:
                counts[name] = run(world, {"name": name, **config})
                _save_state(world, name, config, "RUNNING")
            except Exception as e:  # noqa: BLE001 - raised when the others have run
                _save_state(world, name, config, "FAILED", getattr(e, "message", repr(e)))
                errors.append(e)
    if errors:
        raise errors[0]
    return counts


def delete(world: World, name: str) -> None:
    """Delete a connector. A missing connector is ignored.

    A source loses its offsets, as in Kafka Connect. What a sink has landed stays, also its progress
    (`landing.drop` removes both).

    Raises:
        LakeError: the source is running in another process.
    """
    connector = _load_state(world).get(name)
    if connector is None:
        connect.delete(world, name)
        return
    if _kind(connector["config"]) == "source":
        polling.reset_offsets(world, {"name": name, **connector["config"]})
    _remove(world, name)


def _kind(config: Config) -> str:
    """Return the kind of a connector, "" if this runner cannot run it."""
    connector_class = config.get("connector.class")
    kinds = (kind for kind in RUNNERS if connector_class in SUPPORTED[f"{kind}s"])
    return next(kinds, "")


def _state_path(world: World) -> str:
    return f"{world.lake.checkpoints}/connectors.json"


def _load_state(world: World) -> States:
    return dict(json.loads(files.read_text(_state_path(world)) or "{}"))


@contextmanager
def _changed_states(world: World) -> Iterator[States]:
    """Yield the stored states, and store the changes that are made to it."""
    path = _state_path(world)
    with files.exclusive_lock(path):  # another notebook may change the file at the same time
        connectors = _load_state(world)
        yield connectors
        files.write_text(path, json.dumps(connectors, indent=1))


def _save_state(world: World, name: str, config: Config, state: str, error: str = "") -> None:
    """Store the state after a run, unless the connector was changed or deleted during the run."""
    with _changed_states(world) as connectors:
        if name in connectors and connectors[name]["config"] == config:
            connectors[name] = {"config": config, "state": state, "error": error}


def _remove(world: World, name: str) -> None:
    with _changed_states(world) as connectors:
        connectors.pop(name, None)
