"""The instances of the services as services of the embedded stack, at most two of each service.

Each is a Python process that runs `storefront.server`. The import of this module registers them.
"""

import sys
import threading
from contextlib import contextmanager, suppress
from typing import Iterator, Sequence

from workbench import stack
from workbench.base import StackError, World, http, wait
from workbench.stack.process import Service
from workbench.stack.services import register

from .domain import ALL


def service_name(context: str, number: int) -> str:
    """Return the name of an instance: `orders`, `orders_2`."""
    return context if number == 1 else f"{context}_{number}"


class Instance(Service):
    """One instance of a service."""

    depends_on = ("postgres", "kafka")

    def __init__(self, context: str, number: int) -> None:
        """Store the name of the service and the number of the instance, 1 or 2."""
        self.name = service_name(context, number)
        self.context, self.number = context, number

    def address(self, world: World) -> str:
        offset = 10 * (self.number + 1) + [*ALL].index(self.context)
        return f"http://127.0.0.1:{world.stack.port_base + offset}"

    def settings(self, world: World) -> object:
        return world.kafka.model_dump(), world.postgres.host, world.postgres.port

    def command(self, world: World) -> list[str]:
        url = self.address(world)
        return [sys.executable, "-m", "storefront.server", world.name, self.context, url]

    def ready(self, world: World) -> bool:
        url = self.address(world)
        return http.session(url).get(f"{url}/health", timeout=2).ok


INSTANCES = tuple(Instance(context, number) for number in (1, 2) for context in ALL)
register(*INSTANCES)


def instance_names(names: Sequence[str] = (), count: int = 2) -> list[str]:
    """Return the names of the instances of services, by default of all."""
    return [service_name(n, i + 1) for i in range(count) for n in names or ALL]


def running() -> list[str]:
    """Return the names of the running instances."""
    return sorted({*instance_names()} & {*stack.running()})


def start(world: World, *names: str, count: int = 1) -> None:
    """Start services, by default all, and wait until they have caught up."""
    stack.ensure_running(world, *instance_names(names, count))


def stop(*names: str) -> None:
    """Stop all instances of services, by default of all services."""
    stack.stop(*instance_names(names))


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
