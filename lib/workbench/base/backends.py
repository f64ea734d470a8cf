"""Nouns with two sides: the same functions in two modules, and the world says which of them is
meant.
"""

import functools
from types import ModuleType
from typing import Any, Callable

from .params import World


def dispatch_by(kind: Callable[[World], str], /, **sides: ModuleType) -> Callable[[str], Callable]:
    """Return what makes a function of its name: it takes a world first, and calls that of the
    world's side.

    Args:
        kind: what of a world names the side.
        sides: {kind: module}. The first one's functions lend their documentation;
            tests/unit/test_sides.py sees to it that all have the same.
    """

    def choose(name: str) -> Callable:
        @functools.wraps(getattr(next(iter(sides.values())), name))
        def chosen(world: World, /, *given: Any, **named: Any) -> Any:
            return getattr(sides[kind(world)], name)(world, *given, **named)

        return chosen

    return choose
