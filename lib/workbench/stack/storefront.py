"""The storefront's services as rows of the stack: processes of ours
(`workbench.storefront`), at most two instances of each.
"""

import sys

import requests

from ..base import World
from .process import Service

CONTEXTS = ("accounts", "orders", "fulfillment")


def service_name(context: str, number: int) -> str:
    """Of an instance: `orders`, `orders_2`."""
    return context if number == 1 else f"{context}_{number}"


def address(world: World, context: str, number: int) -> str:
    return f"http://127.0.0.1:{world.stack.port_base + 20 + 10 * (number - 1) + CONTEXTS.index(context)}"


def _service(context: str, number: int) -> Service:
    def at(world: World) -> str:
        return address(world, context, number)

    return Service(
        service_name(context, number),
        at,
        depends_on=("postgres", "kafka"),
        command=lambda w: [
            sys.executable,
            "-m",
            "workbench.storefront",
            w.name,
            context,
            at(w),
        ],
        ready=lambda w: requests.get(at(w) + "/health", timeout=2).ok,
        config_fingerprint=lambda w: (w.kafka.model_dump(), w.postgres.host, w.postgres.port),
    )


SERVICES = tuple(_service(context, number) for number in (1, 2) for context in CONTEXTS)
