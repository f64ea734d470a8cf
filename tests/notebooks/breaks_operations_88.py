"""Breaks for the checks of notebook 88; breaking.py describes breaks."""

from breaking import Break, Run


def _lost(*changes: str) -> str:
    """Return code that changes rows of the lake only: assignments with their condition."""
    return "\n".join(f'spark.sql(f"UPDATE {{entry}} SET {change}")' for change in changes)


RESTORE = [
    Run(
        Break(
            "xmin = ",
            """
postgres.execute(world, "UPDATE payments SET note = 'x' WHERE id = 42", database=operations.DATABASE)""",
            {"number of the bad transaction": "topic"},
        ),
        Break(
            "profile = explore.profile(",
            _lost("note = 'x'", "amount = amount + 1 WHERE id > 19990")
            + '\nhudi.label(world, table, "morning")',
            {
                "columns with a drift of 0.1 or more": "note",
                "changed amounts since the evening": "difference",
            },
        ),
        Break(
            "messages = topics.consume(world, topic",
            """
_end = topics.end_offsets(world, topic)[0] - 5000
_message = next(topics.consume(world, topic, {0: _end}, {0: _end + 1}))
topics.produce(world, topic, [(_message.key(), _message.value())])
postgres.execute(world, "UPDATE payments SET note = 'y' WHERE id = 41", database=operations.DATABASE)
flow.wait_until_captured(world)""",
            {
                "rows of the largest transaction": "topic",
                "payments that a filter leaves wrong": "topic",
            },
        ),
        Break(
            '"the instant of the bad batch is not readable"',
            'hudi.label(world, table, "morning")',
            {"the instant of the bad batch is not readable": "no failure"},
        ),
        Break(
            'hudi.label(world, table, "before_batch")',
            _lost("note = 'z' WHERE id = 43"),
            {"replayed lake = source before the batch": "id=43"},
        ),
        Break(
            "undo = ",
            """
postgres.execute(world, "DELETE FROM payments WHERE id = 44", database=operations.DATABASE)""",
            {"corrected rows": "source"},
        ),
        Break(
            "largest = flow.rows(world)",
            _lost("amount = 999999 WHERE id = 19998"),
            {
                "commits since the restore": "timeline",
                "amounts that are too large": "1",
            },
        ),
        Break(
            "engines = hudi.read_with_all_engines(",
            _lost("amount = amount + 1 WHERE id = 45"),
            {
                "repaired lake = source, read by Spark": "id=45",
                "repaired lake = source, read by hudi-rs": "id=45",
                "totals in Athena's dialect = source": "total",
            },
        ),
        Break(
            "expired = TopicPartition(",
            "first_bad = evening_offset - 1",
            {"a replay of expired messages is refused": "no failure"},
        ),
        Break(
            "After the new snapshot the lake equals the source again:",
            _lost("note = 'w' WHERE id = 46"),
            {"payments = source, row by row": "id=46"},
        ),
    ),
    Run(
        Break(
            "steps, evening_rows = ",
            """
operations.change_payments(world, 50, seed=9)
flow.sync(spark, world)""",
            {
                "next offset after the restore": "evening",
                "restored lake = source in the evening": "differences",
            },
            also_red=("changed amounts since the evening",),
        ),
    ),
]
BREAKS = {"88_restore": RESTORE}
