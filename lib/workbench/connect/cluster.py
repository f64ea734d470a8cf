"""The requests of a Connect cluster that the operations of `connect` are made of."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, ClassVar, Optional

from ..base import ConnectorError, World, wait_until
from . import validation
from .validation import ConnectorStatus


@dataclass(frozen=True)
class Connect(ABC):
    """The Connect cluster of a world.

    A method without a docstring is documented by the function of its name in `operations`.

    Attributes:
        world: the world.
        install_hint: hint for a missing plugin that the built-in runner does not replace.
        wait: `wait_until`, with the errors and times of this kind of cluster.
    """

    world: World
    install_hint: ClassVar[str]
    wait: ClassVar[Callable[..., Any]] = staticmethod(partial(wait_until, error=ConnectorError))

    @property
    @abstractmethod
    def location(self) -> str:
        """Name or URL of the cluster, for errors."""

    @property
    @abstractmethod
    def log_hint(self) -> str:
        """Where a person finds the log of a connector, for errors."""

    @abstractmethod
    def plugins(self) -> list[dict[str, str]]: ...

    def invalid_keys(self, name: str, config: dict[str, str]) -> dict[str, list[str]]:
        """Return {key that is not valid: messages}; {} from a cluster without validation.

        The cluster has the plugin of the configuration's class.
        """
        return {}

    @abstractmethod
    def names(self) -> list[str]: ...

    @abstractmethod
    def deployed(self, name: str) -> dict[str, str]: ...

    @abstractmethod
    def find_status(self, name: str) -> Optional[ConnectorStatus]:
        """Return the status of a connector, None if it does not exist."""

    def failure(self, name: str) -> Optional[str]:
        return validation.failure_message(name, self.find_status(name))

    def offset(self, name: str) -> Optional[dict[str, Any]]:
        return None

    @abstractmethod
    def deploy(self, name: str, config: dict[str, str]) -> None:
        """Create a connector with a valid configuration, or update it."""

    @abstractmethod
    def restart(self, name: str) -> None:
        """Restart what is FAILED of a connector that exists."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a connector that exists, and wait until it is gone."""
