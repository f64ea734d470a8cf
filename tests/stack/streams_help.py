"""Helpers of test_streams.py and test_streams_faults.py."""

import numpy as np
from workbench.checks import check
from workbench.spark import session
from workbench.tracks import sales

SOURCE = sales.SCRATCH_TOPIC


def result(world, name="restarted"):
    return sales.latest(session(world), world, f"{SOURCE}.{name}")


def finished(world, name="restarted", **how):
    """Run the query until it has read all that is there."""
    query = sales.start_query(session(world), world, name=name, trigger_interval="0 seconds", **how)
    query.processAllAvailable()
    query.stop()
    return query


def agree(world, name="restarted"):
    recount = sales.expected_summary(world, SOURCE)
    recount["sales"] = recount["sales"].astype(np.float32)  # as the schema has it
    check.same_rows(recount, result(world, name), key=["region", "window_start"])
    return recount
