"""The captured tables that this process knows: those of the tracks, and the own flows of a world.

`tracks` declares both. `explore` finds a captured table here by its lake table, because it comes before `tracks`.
"""

from typing import Callable, Mapping

from ..base import World
from .flow import CaptureFlow

Flows = Callable[[World], Mapping[str, CaptureFlow]]
_declared: list[Flows] = []


def declare(flows: Flows) -> None:
    """Add captured tables: a function that returns {name: flow} of a world."""
    _declared.append(flows)


def declared(world: World) -> dict[str, CaptureFlow]:
    """Return {name such as `50_time_travel`: flow} of all captured tables that are declared for a world."""
    return {name: flow for flows in _declared for name, flow in flows(world).items()}
