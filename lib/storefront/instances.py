"""The instances of the services as services of the embedded stack, at most two of each service.

Each is a Python process that runs `storefront.server`. The import of this module registers them.
"""

import sys
import threading
from contextlib import contextmanager, suppress
from typing import Iterable, Iterator

from workbench import stack
from workbench.base import StackError, World, http, wait
from workbench.stack.process import Service
from workbench.stack.services import register

from .domain import ALL


class Instance(Service):
    """One instance of a service."""

    depends_on = ("postgres", "kafka")

    def __init__(self, name: str, port_offset: int) -> None:
        """Store the name of the instance, `orders` or `orders_2`, and its port's distance to the first."""
        self.name, self.port_offset = name, port_offset

    def address(self, world: World) -> str:
        return f"http://127.0.0.1:{world.stack.port_base + self.port_offset}"

    def settings(self, world: World) -> object:
        return world.kafka.model_dump(), world.postgres.host, world.postgres.port

    def command(self, world: World) -> list[str]:
        context, url = self.name.partition("_")[0], self.address(world)
        return [sys.executable, "-m", "storefront.server", world.name, context, url]

    def ready(self, world: World) -> bool:
        url = self.address(world)
        return http.session(url).get(f"{url}/health", timeout=2).ok


SUFFIXES = ("", "_2")  # of the first and of the second instance of a service
INSTANCES = [
    Instance(f"{name}{suffix}", offset + number)
    for suffix, offset in zip(SUFFIXES, (20, 30))
    for number, name in enumerate(ALL)
]
register(*INSTANCES)


def instance_names(names: Iterable[str] = ALL, count: int = 2) -> list[str]:
    """Return the names of the first instances of services, by default of all."""
    return [f"{name}{suffix}" for suffix in SUFFIXES[:count] for name in names]


def running() -> list[str]:
    """Return the names of the running instances."""
    return sorted({*instance_names()} & {*stack.running()})


def start(world: World, *names: str, count: int = 1) -> None:
    """Start services, by default all, and wait until they have caught up."""
    stack.ensure_running(world, *instance_names(names or ALL, count))


def stop(*names: str) -> None:
    """Stop all instances of services, by default of all services."""
    stack.stop(*instance_names(names or ALL))


def _supervised(world: World) -> set[str]:
    names: set[str] = world.state.get("supervised services", set)
    return names


def is_supervised(world: World, name: str) -> bool:
    """Return whether `supervised` restarts an instance: a caller may wait for it after a crash."""
    return name in _supervised(world)


@contextmanager
def supervised(world: World, count: int = 1) -> Iterator[list[str]]:
    """Restart services that die within the block.

    Yields:
        The names of the restarted services, in order, one for each death.
    """
    names, restarted = {*instance_names(count=count)}, list[str]()

    def supervise(stop_event: threading.Event) -> None:
        while not stop_event.wait(0.1):
            dead = sorted(names - {*stack.running()})
            restarted.extend(dead)
            with suppress(StackError):  # a service died again during the start
                stack.ensure_running(world, *dead)

    with wait.background(supervise):
        _supervised(world).update(names)
        try:
            yield restarted
        finally:
            _supervised(world).difference_update(names)


def raise_if_lost(world: World, *services: str) -> None:
    """Raise ServiceLost if one of these services is lost, and not supervised."""
    for service in services:
        error = stack.service_down_error(world, service)
        if error and not is_supervised(world, service):
            raise error
