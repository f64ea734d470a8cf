"""A walkthrough as steps: each notebook makes something, and one that needs it makes it where it is missing."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict

from ..base.errors import WorkbenchError, nearest
from ..base.params import World


@dataclass(frozen=True)
class Steps:
    """The notebooks of a folder that others need, in order, each with the question whether its product is there."""

    folder: Path
    products: Dict[str, Callable[[World], object]]

    def need(self, world: World, *steps: str) -> None:
        """Make sure that what these notebooks make is there, running those whose product is missing, in order.

        Raises:
            WorkbenchError: a notebook failed; the error names its cell's message.
        """
        for step in self.products:
            if step in steps and not self.made(world, step):
                self._run(world, step)

    def made(self, world: World, step: str) -> bool:
        """True when the product of a notebook is there. Raises where that cannot be told: a service that does not
        answer, or a connector that failed, is no reason to make everything anew."""
        if step not in self.products:
            raise WorkbenchError(f"there is no step '{step}'", expected=nearest(step, self.products))
        return bool(self.products[step](world))

    def later(self, step: str) -> list:
        """The step and those after it."""
        names = list(self.products)
        return names[names.index(step):]

    def _run(self, world: World, step: str) -> None:
        from . import execute

        print(f"{step} has not been run yet: running it first …")
        done = execute.notebook(self.folder / f"{step}.ipynb", {"world": world.name})
        errors = [o for c in done.book.cells if c.cell_type == "code" for o in c.outputs if o.output_type == "error"]
        if done.why or errors:
            raise WorkbenchError(f"{step} failed when it was run as a first step", where=done.why or errors[0].evalue,
                                 next_step=f"open {self.folder.name}/{step}.ipynb and run it")
