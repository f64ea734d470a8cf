"""Loading Northwind with its outbox: generated rows, or the public dump."""
from __future__ import annotations

from typing import Callable, Dict, Optional, Sequence

from ..base.params import World
from ..base.paths import ROOT
from ..source import loading
from ..source.loading import Script
from . import generate

DATA = ROOT / "data" / "northwind"
SCHEMA = "datalake"  # S1
PLACE = loading.Place(SCHEMA, ("orders", "order_details", "cdc_events"), "load.reset_northwind(world)", own=True)


def load_northwind(world: World, *, scale: int = 1, from_dir: Optional[str] = None, confirm: Callable[[str], bool],
                   say: Callable[[str], None] = print) -> Dict[str, int]:
    """Load Northwind and its outbox into schema `datalake`, in one transaction.

    Args:
        scale: how many times 829 orders are generated.
        from_dir: load `northwind.sql`, the public dump, from this folder instead.
        confirm: asked before anything is done; false leaves everything as it is.
        say: takes the two progress messages.
    Returns: `{table: rows}` of orders, order_details and cdc_events; empty when not confirmed.
    Raises:
        SourceError: the schema exists, a file is missing or broken (with its line). Nothing is changed then.
    """
    what = f"the dump in {from_dir}" if from_dir else f"generated data, scale {scale}"
    return loading.load(world, PLACE, _steps(scale, from_dir), f"schema {SCHEMA} with Northwind ({what})",
                        from_dir=from_dir, confirm=confirm, say=say, done="scripts executed")


def _steps(scale: int, from_dir: Optional[str]) -> loading.Steps:
    if from_dir:
        dump = loading.find(from_dir, "northwind.sql", "the public dump, northwind.sql")
        rows = [Script(dump, allowed=loading.DUMP), Script(DATA / "02_public_dump.sql")]
    else:
        keys = Script(DATA / "02_northwind_keys.sql")
        rows = [Script(DATA / "01_northwind_ddl.sql"), *generate.northwind(scale), keys]
    return [*rows, Script(DATA / "03_cdc_events.sql")]


def look(world: World, *, scale: int = 1, from_dir: Optional[str] = None) -> None:
    """Judge whole what load_northwind would load, before anything is removed for it. A dump is run in a schema of its
    own, and rolled back. Raises SourceError as load_northwind does."""
    steps = _steps(scale, from_dir)
    if from_dir:
        loading.try_out(world, PLACE, steps)


def reset_northwind(world: World, *, slots: Sequence[str] = (), publications: Sequence[str] = ("cdc_publication",)
                    ) -> None:
    """Remove schema `datalake`, and these slots and publications of the database: S1's by default. Other walkthroughs
    may have theirs there. Nothing is there: nothing happens."""
    loading.unload(world, PLACE, slots, publications)


def loaded_from(world: World) -> str:
    """Return the folder whose dump Northwind was loaded from; the empty text where its rows are generated."""
    return loading.loaded_from(world, PLACE)
