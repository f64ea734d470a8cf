"""Starts and stops the instances of the services, at most two of each, and sends them requests.

An instance is a service of the embedded stack, a Python process that runs `storefront.server`. The
import of this module registers the instances.
"""

import sys
import threading
from contextlib import contextmanager, suppress
from typing import Iterable, Iterator, Optional

import requests
from workbench import stack
from workbench.base import StackError, World, http, wait
from workbench.stack.process import Service
from workbench.stack.services import register

from .domain import ALL, Document


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
    """Return the instances that `supervised` restarts: a caller may wait for one after a crash."""
    names: set[str] = world.state.get("supervised services", set)
    return names


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
            if dead:
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
        if error and service not in _supervised(world):
            raise error


def call(
    world: World, instance: str, method: str, path: str, body: Optional[Document] = None
) -> Document:
    """Send a request to an instance of a service, and return the JSON object of its response.

    Args:
        world: the world.
        instance: name of the instance: `orders`, or `orders_2`.
        method: the HTTP method.
        path: the path, without a leading slash.
        body: the JSON object to send.

    Raises:
        StackError: the service rejects the request, or does not respond.
    """
    response = request(world, instance, method, path, body)
    if response.status_code != 200:
        raise StackError(
            f"{instance} rejected the request: {response.text}", location=f"{method} /{path}"
        )
    document: Document = response.json()
    return document


def request(
    world: World, instance: str, method: str, path: str, body: Optional[Document] = None
) -> requests.Response:
    """Send a request as `call` does, and return the response, whatever the status.

    Raises:
        StackError: the service does not respond.
    """
    url = stack.get_service(instance).address(world)
    try:
        return http.call(instance, method, f"{url}/{path}", body, retry_statuses=(), timeout=30)
    except StackError as e:
        error = e
    with suppress(StackError):  # a killed process may exist for another moment
        error = wait.wait_until(
            lambda: stack.service_down_error(world, instance), "", timeout=1, error=StackError
        )
    error_class = StackError if instance in _supervised(world) else type(error)
    raise error_class(
        error.message,
        location=f"{method} {url}/{path}",
        hint="`python -m storefront up` starts the stopped services",
    )


def metrics(world: World, instance: str) -> dict[str, float]:
    """Return the metrics of an instance: {name{labels}: value}."""
    lines = request(world, instance, "GET", "metrics").text.splitlines()
    samples = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in samples}
