"""The operations of a Connect cluster: the functions of `connect`, and the interface of its backends."""

from typing import Any, ClassVar, Optional, Protocol

from ..base import World
from . import validation
from .msk import MskConnect
from .rest import KafkaConnect
from .validation import ConnectorStatus


class ConnectBackend(Protocol):
    """The Connect cluster of a world.

    A method without a docstring is documented by the function of its name in this module.

    Attributes:
        install_hint: hint for a missing plugin that the built-in runner does not replace.
    """

    install_hint: ClassVar[str]

    @property
    def location(self) -> str:
        """Name or URL of the cluster, for errors."""

    def plugins(self) -> list[dict[str, str]]: ...

    def invalid_keys(self, name: str, config: dict[str, str]) -> dict[str, list[str]]:
        """Return {key that is not valid: messages}; the cluster has the plugin of the class."""

    def deploy(self, name: str, config: dict[str, str]) -> ConnectorStatus:
        """Deploy a valid configuration. See `apply`."""

    def names(self) -> list[str]: ...

    def deployed(self, name: str) -> dict[str, str]: ...

    def configs(self) -> dict[str, dict[str, str]]:
        """Return {connector: configuration} of all connectors."""

    def status(self, name: str) -> ConnectorStatus: ...

    def failure(self, name: str) -> Optional[str]: ...

    def offset(self, name: str) -> Optional[dict[str, Any]]: ...

    def wait_running(self, name: str, stable_for: float) -> ConnectorStatus: ...

    def restart(self, name: str) -> None: ...

    def delete(self, name: str) -> None: ...


def backend(world: World) -> ConnectBackend:
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
    connector reports those).

    Args:
        world: the world of the Connect cluster.
        config: the configuration.
        name: name of the connector, for the error.

    Raises:
        ConnectorError: the configuration is rejected; the error lists each rejected key with its
            messages.
    """
    cluster, name = backend(world), name or config.get("name") or "to-be-validated"
    class_name = validation.require_plugin(
        config, name, cluster.plugins(), cluster.location, cluster.install_hint
    )
    validation.reject_exposed_secrets(world, name, config)
    validation.reject_error_tolerance(name, config)
    validation.raise_for_problems(name, class_name, cluster.invalid_keys(name, config))


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
        validation.require_free_slot(name, config, cluster.configs())
    validation.require_root_publication(world, name, config)
    return cluster.deploy(name, config)


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
    return backend(world).status(name)


def failure(world: World, name: str) -> Optional[str]:
    """Return why a connector or a task is FAILED, None if neither is.

    Returns:
        A sentence with a summary of the stack trace or the last error in the connector's log, and
        likely causes.
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
    return backend(world).wait_running(name, stable_for)


def restart(world: World, name: str) -> None:
    """Restart the FAILED tasks of a connector, and itself if it is FAILED (not on MSK Connect).

    They resume at their committed offsets. A running connector or task is not restarted. After this
    call, `status` returns no state from before the restart. See `wait_running`.

    Raises:
        ConnectorError: the connector does not exist, or cannot be restarted.
    """
    backend(world).restart(name)


def delete(world: World, name: str) -> None:
    """Delete a connector, which need not exist, and wait until it is gone.

    The offsets of a source connector are deleted, too, so that the next `apply` takes a new snapshot.
    The replication slot stays: see postgres.drop_slot.
    """
    backend(world).delete(name)
