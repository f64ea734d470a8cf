"""The instances of the services as services of the embedded stack, at most two of each service.

Each is a Python process that runs `workbench.storefront`. The import of this module registers them.
"""

import sys

from ..base import World, http
from ..stack.process import Service
from ..stack.services import register
from .domain import ALL


def service_name(context: str, number: int) -> str:
    """Return the name of an instance: `orders`, `orders_2`."""
    return context if number == 1 else f"{context}_{number}"


def address(world: World, context: str, number: int) -> str:
    """Return the URL of an instance."""
    port = world.stack.port_base + 20 + 10 * (number - 1) + [*ALL].index(context)
    return f"http://127.0.0.1:{port}"


class Instance(Service):
    """One instance of a service."""

    depends_on = ("postgres", "kafka")

    def __init__(self, context: str, number: int) -> None:
        """Store the name of the service and the number of the instance, 1 or 2."""
        self.name = service_name(context, number)
        self.context, self.number = context, number

    def address(self, world: World) -> str:
        return address(world, self.context, self.number)

    def settings(self, world: World) -> object:
        return world.kafka.model_dump(), world.postgres.host, world.postgres.port

    def command(self, world: World) -> list[str]:
        url = self.address(world)
        return [sys.executable, "-m", "workbench.storefront", world.name, self.context, url]

    def ready(self, world: World) -> bool:
        url = self.address(world)
        return http.session(url).get(f"{url}/health", timeout=2).ok


SERVICES = tuple(Instance(context, number) for number in (1, 2) for context in ALL)
register(*SERVICES)
