"""The operations of the Connect cluster of a world."""

import math
import time
from typing import Any, Optional, Union

from ..base import ConnectorError, World, did_you_mean
from . import validation
from .msk import MskConnect
from .rest import KafkaConnect
from .validation import ConnectorStatus

# The requests of a Connect cluster that the operations are made of. mypy checks that both classes
# have them; a method without a docstring is documented by the function of its name.
Connect = Union[KafkaConnect, MskConnect]


def backend(world: World) -> Connect:
    """Return the Connect cluster of a world."""
    return MskConnect(world) if world.connect.kind == "msk" else KafkaConnect(world)


def plugins(world: World) -> list[dict[str, str]]:
    """Return the connector plugins.

    Returns:
        Dicts with class, type ("source" or "sink") and version.
    """
    return backend(world).plugins()


def validate(world: World, config: dict[str, str], name: str = "") -> None:
    """Validate a configuration, without deploying it.

    These are rejected: a class without a plugin, a secret in plain text or in a wrong place, a source connector that
    tolerates errors, unknown keys, and values that the plugin rejects (on MSK Connect only a running
    connector reports values, and none unknown keys).

    Args:
        world: the world of the Connect cluster.
        config: the configuration.
        name: name of the connector, for the error.

    Raises:
        ConnectorError: the configuration is rejected; the error lists each rejected key with its
            messages.
    """
    cluster, name = backend(world), name or config.get("name", "to-be-validated")
    validation.require_plugin(
        config.get("connector.class", ""),
        [plugin["class"] for plugin in cluster.plugins()],
        f"connector {name!r} at {cluster.location}",
        cluster.install_hint,
    )
    validation.reject_exposed_secrets(world, name, config)
    validation.reject_error_tolerance(name, config)
    validation.reject_invalid_keys(name, config, cluster.invalid_keys(name, config))


def apply(world: World, name: str, config: dict[str, str]) -> ConnectorStatus:
    """Deploy a connector, or update its configuration; an unchanged one changes nothing.

    An updated connector continues from its offsets. A failed connector is started again.

    Args:
        world: the world of the Connect cluster.
        name: name of the connector.
        config: its configuration.

    Returns:
        The connector's `status`.

    Raises:
        ConnectorError: the configuration is not valid, or there is no plugin for it. Nothing is
            deployed then. On MSK Connect also: there is no role for the connector, it belongs to
            another deployment, or AWS rolled an update back.
    """
    validate(world, config, name)
    cluster = backend(world)
    if "slot.name" in config:
        others = {other: cluster.deployed(other) for other in cluster.names() if other != name}
        validation.require_free_slot(name, config, others)
    validation.require_root_publication(world, name, config)
    cluster.deploy(name, config)
    found: ConnectorStatus = cluster.wait(
        lambda: cluster.find_status(name), f"connector {name!r} to appear"
    )
    return found


def names(world: World) -> list[str]:
    """Return the names of the deployed connectors."""
    return backend(world).names()


def deployed(world: World, name: str) -> dict[str, str]:
    """Return the configuration of a deployed connector; empty if it does not exist."""
    return backend(world).deployed(name)


def status(world: World, name: str) -> ConnectorStatus:
    """Return the status of a connector.

    Returns:
        {name, type, state, worker, error, tasks: [{id, state, worker, error}]}; `error` is a
        summary of the reason of a failure.

    Raises:
        ConnectorError: the connector does not exist.
    """
    cluster = backend(world)
    found = cluster.find_status(name)
    if found is None:
        raise ConnectorError(
            f"there is no connector {name!r}",
            location=cluster.location,
            expected=did_you_mean(name, cluster.names()),
            hint="deploy it with connect.apply",
        )
    return found


def failure(world: World, name: str) -> Optional[str]:
    """Return why a connector or a task is FAILED, None if neither is.

    Returns:
        A sentence with the first line and the cause of the stack trace, and likely causes; on MSK Connect
        with AWS's description, which refers to the connector's log.
    """
    return backend(world).failure(name)


def offset(world: World, name: str) -> Optional[dict[str, Any]]:
    """Return the offset that a source connector has committed; empty before the first.

    Returns:
        The connector's position in its source, such as {"file": "mariadb-bin.000003", "pos": 1234};
        None for MSK Connect, which does not show it.
    """
    return backend(world).offset(name)


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
        ConnectorError: at once when the connector or a task is FAILED, with the reason and likely
            causes.
    """
    cluster, running_since = backend(world), math.inf

    def stable_status() -> Optional[ConnectorStatus]:
        nonlocal running_since
        since, running_since = running_since, math.inf  # so it stays after a call that fails
        found = cluster.find_status(name)
        if validation.states(found) != {"RUNNING"}:
            return None
        running_since = min(since, time.monotonic())
        return found if time.monotonic() - running_since >= stable_for else None

    running: ConnectorStatus = cluster.wait(
        stable_status,
        f"connector {name!r} and its tasks to be RUNNING",
        failure_reason=lambda: cluster.failure(name),
        hint=cluster.log_hint,
    )
    return running


def restart(world: World, name: str) -> None:
    """Restart the FAILED tasks of a connector, and itself if it is FAILED (not on MSK Connect).

    They resume at their committed offsets. A running connector or task is not restarted. After this
    call, `status` returns no state from before the restart. See `wait_running`.

    Raises:
        ConnectorError: the connector does not exist, or cannot be restarted.
    """
    status(world, name)
    backend(world).restart(name)


def delete(world: World, name: str) -> None:
    """Delete a connector, which need not exist, and wait until it is gone.

    The offsets of a source connector are deleted, too, so that the next `apply` takes a new snapshot.
    The replication slot stays: see postgres.drop_slot.
    """
    cluster = backend(world)
    if cluster.deployed(name):
        cluster.delete(name)
