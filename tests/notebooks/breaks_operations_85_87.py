"""Breaks for the checks of notebooks 85 and 87; breaking.py describes breaks."""

from breaking import SHORTER, WHOLE, Break, Run

BACKFILL = [
    Run(
        Break(
            "rows without a position are dead letters",
            'hudi.drop(spark, world, table)\ntable = flow.table(world, ordering="__ts_ns")',
            {
                "rows without a position are dead letters": "no failure",
                "dead letters of the first backfill": "lake 0",
            },
        ),
        Break(
            'compare("ordered by __ts_ns',
            SHORTER,
            {"ordered by __ts_ns, the lake = source": "missing"},
            undo=WHOLE,
        ),
        Break(
            "during_backfill = freshness(mixed)",
            SHORTER,
            {"after the backfill during changes, the lake = source": "missing"},
            undo=WHOLE,
        ),
        Break(
            "operations.joined.compare(spark, world)",
            SHORTER,
            {"refunds = source, row by row": "missing"},
            undo=WHOLE,
        ),
        Break(
            "payments_read_again = topics",
            'signal_by_row("again", snapshot)\nwait_for("again", "COMPLETED")',
            {"payments that are read again": "expected 0"},
        ),
        Break(
            'compare("rebuilt from the backfill',
            SHORTER,
            {"rebuilt from the backfill, the lake = source": "missing"},
            undo=WHOLE,
        ),
        Break(
            'check.equal("dead letters of the first backfill"',
            """
records.loc[records.index[-1], "__lsn"] = 1
mixed.loc[mixed.index[0], "__ts_ns"] = 2**62
states = states.drop("PAUSED")
states["additional_data"] = [{"status": "SQL_EXCEPTION"}] * len(states)""",
            {
                "rows of the backfill with a position": "topic 1",
                "__ts_ns grows with the topic": "changes and rows",
                "states of the second backfill": "PAUSED",
                "status of its scan": "SQL_EXCEPTION",
            },
        ),
        Break(
            'check.equal("changes without a backfill in the lake"',
            """
during_backfill, at_once = during_backfill[1:], at_once[1:]
without_backfill = without_backfill[1:]
backfills["at once"] += 1_000""",
            {
                "changes beside the rows read at once": "topic",
                "with pauses the backfill takes longer": "more than",
                "changes without a backfill in the lake": "topic",
                "changes during the backfill in the lake": "topic",
            },
        ),
        Break(
            'check.equal("rows that only the lake has"',
            'lake.loc[lake["id"] == after.index[0], "amount"] += 1\nrepaired -= 1',
            {
                "amounts that are repaired": "changed in the gap",
                "without ghosts, the repaired rows = source": "amount",
            },
        ),
        parameters={"scale": 0.25},
    ),
    Run(
        # a new table has no gap, and nothing of the payments from before it
        Break(
            "an ingest across the gap is an error",
            "hudi.drop(spark, world, table)",
            {
                "an ingest across the gap is an error": "no failure",
                "rows that only the lake has": "deleted in the gap",
            },
        ),
        parameters={"scale": 0.25},
    ),
]
STORAGE = [
    Run(
        Break(
            "on_disk = readcost.data_files(table)",
            """
_labels = hudi.labels(world, table).set_index("label")
hudi.call_procedure(
    spark, "create_savepoint", table=entry, commit_time=_labels.loc["loaded", "instant"]
)""",
            {"the state of the load was cleaned away": "no failure"},
        ),
        Break(
            "referred = set()",
            "files.remove(orphan_uri)",
            {"files of no commit": "made"},
            undo="files.write_bytes(*files.open_filesystem(orphan_uri), content)",
        ),
        Break(
            "bytes_before = readcost",
            'files.write_bytes(*files.open_filesystem(orphan_uri), content + b"x")',
            {"bytes recovered": "the file's"},
        ),
        Break(
            "lake = hudi.read(spark, table).toPandas()",
            """
from workbench.source import postgres as _postgres

_postgres.execute(
    world,
    "UPDATE payments SET note = 'broken' WHERE id = (SELECT min(id) FROM payments)",
    database="operations",
)""",
            {"after all services, the lake = source": "broken"},
        ),
        Break(
            'freed = stages["clustering"]["mb"]',
            'removed = removed.iloc[1:]\nmeasured["reads_usd"] /= 24 * 30 * factor\nstages["compaction"]["mb"] += 1',
            {
                "bytes cleaned away": "measured",
                "bytes that the commits report": "files on disk",
                "in small files the requests cost more than the bytes": "more than",
            },
        ),
        parameters={"scale": 0.1, "rounds": 2},
    ),
    Run(
        Break(
            'stages["compaction"] = timed(',
            "hudi.compact = lambda spark, table: None",
            {
                "unmerged logs after the compaction": "lake",
                "a compaction writes unchanged rows": "more than",
                "a compaction writes unchanged bytes": "more than",
                "a compaction makes the table larger": "0.00 MB more",
            },
        ),
        Break(
            'stages["clustering"] = timed(cluster)',
            "cluster = lambda: None",
            {"file groups after the clustering": "expected"},
            also_red=("the state of the load was cleaned away",),  # nothing replaced its files
        ),
        parameters={"scale": 0.1, "rounds": 2},
    ),
]
BREAKS = {"85_backfill": BACKFILL, "87_storage": STORAGE}
