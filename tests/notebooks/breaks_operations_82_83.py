"""Breaks for the checks of notebooks 82 and 83; breaking.py describes breaks."""

from breaking import Break, Run

RECONCILE = [
    Run(
        # two more cells differ, one of them in the row that is checked, and watch has a problem
        Break(
            'check.equal("one key differs"',
            """
from dataclasses import replace

one_cell = replace(one_cell, counts={"different": 2}, differences=pd.DataFrame(
    [{"key": "1", "kind": "different", "column": "note", "source": "2.00", "lake": "1.00"}]))
watched = replace(watched, problems=("stale",))""",
            {
                "one key differs": "different: 2",
                "key and column": "('1', 'note')",
                "difference of the values, in cents": "100",
                "problems that watch reported": "1 value",
            },
        ),
        # a kind is not found, and a change under way is named
        Break(
            "kinds = {",
            """
four_kinds = replace(four_kinds, counts={"different": 53})
during = replace(during, undecided=1, differences=pd.DataFrame({"key": ["-1"]}))""",
            {
                "kinds of differences": "different: 53",
                "keys that differ only during changes": "-1",
                "keys still changing": "1",
            },
        ),
        # the repair left a row
        Break(
            'check.equal("differences after the repair"',
            """
repaired = replace(repaired, counts={"extra in the lake": 1}, rows=(2, 3))
spark.sql("DELETE FROM operations.payments_rt WHERE id = 7")""",
            {
                "differences after the repair": "extra in the lake: 1",
                "rows of source and lake": "3",
                "payments = source, row by row": "id=7",
            },
        ),
    ),
    Run(
        # everything is published, so nothing differs
        Break(
            'publish(ALL - {"update"})\nin_source("UPDATE payments SET amount',
            "_publish = publish\npublish = lambda operations: None",
            {"the comparison of all rows finds it, too": "no failure"},
            undo="publish = _publish",
            also_red=("one key differs", "key and column", "difference of the values, in cents"),
        ),
        reset_from="## Check",
    ),
]
LAG = [
    Run(
        # nothing is written, and the connector is not stopped
        Break(
            "groups = positions.groupby",
            """
positions["lag"] = range(len(positions))
positions["retained KiB"] = 1.0
phases.loc["end", ["published", "lag"]] = 0, 3""",
            {
                "without the ingest the lag grows": "messages",
                "without the connector it does not": "7",
                "without the connector the retained log grows": "0 KiB",
                "afterwards the changes arrive": "messages",
                "lag at the end": "3",
            },
        ),
        Break(
            'for remedy, count in (("no heartbeat", 1)',
            """
for _each in results.values():
    _each["retained"] = 0.0 if _each["retained"] > 1 else 48.0
state = "FAILED"
spark.sql("DELETE FROM operations.payments_rt WHERE id = 7")
(result,) = operate.reconcile(world, name)""",
            {
                **{
                    f"{remedy}: the log is retained": "0 MiB"
                    for remedy in ("no heartbeat", "heartbeat in Kafka")
                },
                **{
                    f"{remedy}: the log is released": "48.0 MiB"
                    for remedy in ("heartbeat table", "message in the log")
                },
                "state of the connector without a slot": "FAILED",
                "differences after the new snapshot": "missing in the lake: 1",
                "payments = source, row by row": "id=7",
            },
        ),
    ),
    Run(
        # the limit is not exceeded, so the slot keeps its log
        Break(
            "check.expect_failure(",
            "on_server(*unlimited)\ncapture = operations.walkthrough.recapture(world)",
            {"nobody can read on from this slot": "no failure"},
        ),
    ),
]
BREAKS = {"82_reconcile": RECONCILE, "83_lag_and_slots": LAG}
