"""How long the storefront's stores are apart while a hundred changes come each second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench_line import Line
from storefront import audit, load, setup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from workbench.base.params import World

RATE, COUNT, WARM = 100, 3_000, 300


def converged(world: World, _: SparkSession) -> list[Line]:
    """From the commit of a change to that of its last copy, events sent by the services, and by
    connectors."""
    setup.restart_clean(world)
    direct = _apart(world, seed=1)
    setup.enable_outbox_connectors(world)
    outbox = _apart(world, seed=2)
    setup.reset(world)
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
    load.run(world, load.random_operations(100 + seed, WARM), rate=RATE)
    asked = load.random_operations(seed, COUNT)
    took = load.run(world, asked, rate=RATE)
    audit.wait_until_consistent(world)
    assert took < 1.05 * COUNT / RATE, f"the services did not keep up: {took:.1f} s"
    assert not len(audit.find_divergent(world)), "a copy differs"
    seconds = audit.replication_lag(world)["seconds"].tail(COUNT)
    assert seconds.notna().all(), "every change has arrived"
    return tuple(float(seconds.quantile(share)) for share in (0.5, 0.95, 1))
