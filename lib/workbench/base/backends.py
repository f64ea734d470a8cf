"""Interfaces with two backends: modules with the same functions, chosen by the world."""

import functools
from types import ModuleType
from typing import Any, Callable

from .params import World


def dispatch_by(
    kind: Callable[[World], str], /, **backends: ModuleType
) -> Callable[[str], Callable[..., Any]]:
    """Return a function that makes the dispatcher of an interface function from its name.

    The dispatcher takes a world first, and calls the function of that name of the world's backend.

    Args:
        kind: returns the name of a world's backend.
        **backends: the modules by name. The functions of the first one lend their documentation;
            tests/unit/test_backends.py checks that all have the same functions.
    """
    documented = next(iter(backends.values()))

    def dispatcher(name: str) -> Callable[..., Any]:
        @functools.wraps(getattr(documented, name))
        def call(world: World, /, *args: Any, **kwargs: Any) -> Any:
            return getattr(backends[kind(world)], name)(world, *args, **kwargs)

        return call

    return dispatcher
