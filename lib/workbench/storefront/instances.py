"""The instances of the services as services of the embedded stack, at most two of each service.

Each is a Python process that runs `workbench.storefront`. The import of this module registers them.
"""

import sys
from functools import partial

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


def _service(context: str, number: int) -> Service:
    url = partial(address, context=context, number=number)

    def command(world: World) -> list[str]:
        return [sys.executable, "-m", "workbench.storefront", world.name, context, url(world)]

    return Service(
        service_name(context, number),
        url,
        command,
        ready=lambda w: http.session(url(w)).get(url(w) + "/health", timeout=2).ok,
        depends_on=("postgres", "kafka"),
        config_fingerprint=lambda w: (w.kafka.model_dump(), w.postgres.host, w.postgres.port),
    )


SERVICES = tuple(_service(context, number) for number in (1, 2) for context in ALL)
register(*SERVICES)
