"""How long the storefront's stores are apart while a hundred changes come each second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench_line import Line
from workbench import tracks
from workbench.storefront import load
from workbench.tracks import storefront

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from workbench.base.params import World

RATE, COUNT, WARM = 100, 3_000, 300


def converged(world: World, _: SparkSession) -> list[Line]:
    """From the commit of a change to that of its last copy, events sent by the services, and by
    connectors."""
    storefront.restart_clean(world)
    direct = _apart(world, seed=1)
    storefront.enable_outbox_connectors(world)
    outbox = _apart(world, seed=2)
    tracks.reset(world, storefront.TRACK)
    what = f"a change → in all stores, at {RATE} changes/s, p95 of {COUNT:,}"
    return [
        Line(
            what,
            f"p50 {direct[0]:.3f} s, at most {direct[2]:.3f} s",
            "sent by the services",
            direct[1],
            "s",
            1,
        ),
        Line(
            what,
            f"p50 {outbox[0]:.3f} s, at most {outbox[2]:.3f} s",
            "sent by Debezium from outboxes",
            outbox[1],
            "s",
            1,
        ),
    ]


def _apart(world: World, seed: int) -> tuple[float, ...]:
    load.load(world, load.random_operations(100 + seed, WARM), rate=RATE)
    asked = load.random_operations(seed, COUNT)
    took = load.load(world, asked, rate=RATE)
    storefront.wait_until_consistent(world)
    assert took < 1.05 * COUNT / RATE, f"the services did not keep up: {took:.1f} s"
    assert not len(storefront.find_divergent(world)), "a copy differs"
    seconds = storefront.replication_lag(world)["seconds"].tail(COUNT)
    assert seconds.notna().all(), "every change has arrived"
    return tuple(float(seconds.quantile(share)) for share in (0.5, 0.95, 1))
