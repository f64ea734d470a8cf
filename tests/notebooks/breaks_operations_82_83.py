"""Breaks for the checks of notebooks 82 and 83; breaking.py describes breaks."""

from breaking import Break, Run

RECONCILE = [
    Run(
        # another cell was found, and watch has a problem
        Break(
            'check.equal("one key differs"',
            """
from dataclasses import replace
from workbench.operate.problems import problem

_cell = {"key": "1", "column": "note", "source": "2.00", "lake": "1.00"}
one_cell = replace(one_cell, counts={"different": 2}, differences=pd.DataFrame([_cell]))
watched = replace(watched, problems=(problem("slot_inactive", slot="s"),))""",
            {
                "one key differs": "'different': 2",
                "key, column, and cents of the difference": "('1', 'note', 100)",
                "problems that watch reported": "'slot_inactive'",
            },
        ),
        # one kind was found only, and a change under way was named
        Break(
            "kinds = {",
            """
three_kinds = replace(three_kinds, counts={"different": 52})
during = replace(during, undecided=1, differences=pd.DataFrame({"key": ["-1"]}))""",
            {
                "kinds of differences": "'different': 52",
                "keys that differ only during changes": "'-1'",
                "keys still changing": "reconcile 1",
            },
        ),
        # the repair left a row
        Break(
            'check.equal("differences after the repair"',
            """
repaired = replace(repaired, counts={"extra in the lake": 1}, rows=(2, 3))
spark.sql("DELETE FROM operations.payments_rt WHERE id = 7")""",
            {
                "differences after the repair": "'extra in the lake': 1",
                "rows of source and lake": "lake 3",
                "payments = source, row by row": "id=7",
            },
        ),
    ),
    Run(
        # the update is published, so nothing differs
        Break(
            'publish(ALL - {"update"})\nin_source("UPDATE payments SET amount',
            "_publish = publish\npublish = lambda actions: None",
            {"the comparison of all rows finds it, too": "no failure"},
            undo="publish = _publish",
            also_red=(
                "one key differs",
                "key, column, and cents of the difference",
                "kinds of differences",
            ),
        ),
    ),
]
LAG = [
    Run(
        # the positions are those of a pipeline in which only the lag grows, slowly, up to the end
        Break(
            "groups = positions.groupby",
            """
positions["lag"] = range(len(positions))
positions["retained KiB"] = 1.0
phases.loc["end", ["published", "lag"]] = 0, 3""",
            {
                "without the ingest the lag grows": "5 messages",
                "without the connector it does not": "messages 5",
                "without the connector the retained log grows": "0 KiB",
                "afterwards the changes arrive": "-",
                "lag at the end": "messages 3",
            },
        ),
        # the remedies have changed places, and a row is lost
        Break(
            'for remedy, count in (("no heartbeat", 1)',
            """
for _each in results.values():
    _each["retained"] = 0.0 if _each["retained"] > 1 else 48.0
states, arrived = ["FAILED", "RUNNING"], 40
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
                "states without a slot": "FAILED",
                "messages without a slot": "topic 40",
                "differences after the new snapshot": "'missing in the lake': 1",
                "payments = source, row by row": "id=7",
            },
        ),
    ),
    Run(
        # a new slot has the name of the lost one
        Break(
            "check.expect_failure(",
            """
cluster.stop(connector)
flow.db.drop_slot(world, slot, database)
_create = f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"
postgres.execute(world, _create, database=database)""",
            {"nobody can read on from this slot": "no failure"},
            also_red=("states without a slot",),
        ),
    ),
]
BREAKS = {"82_reconcile": RECONCILE, "83_lag_and_slots": LAG}
