"""Breaks for the checks of notebook 81; breaking.py describes breaks."""

from breaking import Break, Run

LONGER = [
    f"{name}: {part} is longer"
    for name, part in (
        ("ingest every 4 s", "to_lake_s"),
        ("connector every 2 s", "to_topic_s"),
    )
]
FRESHNESS = [
    Run(
        # the samples of one run are lost, and one has a message before its commit
        Break(
            "runs = pd.concat([changes, slow_ingest, slow_connector])",
            """
changes = changes.head(1).assign(to_topic_s=-1.0, to_lake_s=99.0)
slow_ingest, slow_connector = (part.head(1).assign(to_topic_s=-1.0, to_lake_s=-1.0) for part in (slow_ingest, slow_connector))""",
            {
                **{
                    f"{name}: changes were sampled": "1 changes"
                    for name in ("every 0.2 s", "ingest every 4 s", "connector every 2 s")
                },
                **{
                    f"{name}: no change is visible before its message": "-1.000"
                    for name in ("every 0.2 s", "ingest every 4 s", "connector every 2 s")
                },
                LONGER[0]: "-",
                LONGER[1]: "0.00 s more",
                "share of late changes": "objective",
            },
        ),
        # the ingest runs, so nothing is unread, and newer samples move the freshness
        Break(
            "after = watcher.observe()[0]",
            "flow.sync(spark, world)",
            {"p95 before and after": "after", "messages are unread": "0 messages"},
        ),
        Break(
            "[found.text for found in watcher.observe()[0].problems",
            'spark.sql("DELETE FROM operations.payments_rt WHERE id = 7")',
            {"payments = source, row by row": "id=7"},
        ),
    )
]
BREAKS = {"81_freshness": FRESHNESS}
