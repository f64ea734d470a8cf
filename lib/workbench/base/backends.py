"""Interfaces with two backends: modules with the same functions, chosen by the world."""

import functools
from types import ModuleType
from typing import Any, Callable

from .params import World


def dispatch_by(
    kind: Callable[[World], str], /, **backends: ModuleType
) -> Callable[[str], Callable[..., Any]]:
    """Return a factory of dispatchers, one for each function of the interface.

    The factory takes the name of a function. Its dispatcher takes a world as the first argument,
    and calls the function of this name in the module of the world's backend.

    Args:
        kind: returns the name of a world's backend.
        **backends: {name of a backend: module}. A dispatcher has the docstring of the first
            module's function. tests/unit/test_backends.py checks that all modules have the same
            functions.
    """
    documented = next(iter(backends.values()))

    def dispatcher(name: str) -> Callable[..., Any]:
        @functools.wraps(getattr(documented, name))
        def call(world: World, /, *args: Any, **kwargs: Any) -> Any:
            return getattr(backends[kind(world)], name)(world, *args, **kwargs)

        return call

    return dispatcher
