"""Breaks for the checks of notebooks 81 and 84; breaking.py describes breaks."""

from breaking import Break, Run

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
                    for name in ("no pause", "pause of 2 s", "connector every 2 s")
                },
                **{
                    f"{name}: no change is visible before its message": "-1.000"
                    for name in ("no pause", "pause of 2 s", "connector every 2 s")
                },
                "connector every 2 s: to_topic_s is longer": "0.00 s more",
                "pause of 2 s: apart from each other": "nan s",
            },
        ),
        # the ingest runs, so only the message of `wait_until_captured` is unread, and newer samples move the freshness
        Break(
            "after = watcher.observe()[0]",
            """
_change = operations.change_payments
operations.change_payments = lambda *args: (_change(*args), flow.sync(spark, world))""",
            {"p95 before and after": "after", "messages are unread": "expected at least"},
            undo="operations.change_payments = _change",
        ),
        Break(
            "[found.text for found in watcher.observe()[0].problems",
            'spark.sql("DELETE FROM operations.payments_rt WHERE id = 7")',
            {"payments = source, row by row": "id=7"},
        ),
    ),
    Run(
        # the ingest does not pause
        Break(
            "slow_ingest = run(",
            """
_run = run


def run(name, pause=0.0, **more):
    return _run(name, **more)""",
            {"pause of 2 s: apart from each other": "more than 1.9 s"},
            undo="run = _run",
        ),
    ),
]
KINDS = (
    "connect_down",
    "ingest_interrupted",
    "slot_missing",
    "offsets_lost",
    "topic_truncated",
    "registry_down",
    "disk_full",
    "clock_back",
    "delivered_again",
    "differs",
)
FAULTS = [
    Run(
        # the topic is read with one message for each key, and without one of the keys
        Break(
            "deliveries = in_topic",
            """
_read_all = topics.read_all
topics.read_all = lambda *args: list({m.key(): m for m in _read_all(*args)}.values())[1:]""",
            {"the second snapshot repeats keys": "0", "rows of the repeated keys": "lake"},
            undo="topics.read_all = _read_all",
        ),
        # the topic with Connect's offsets is read without any offset
        Break(
            "stored_after = stored_offset()",
            "_stored, stored_offset, stored_before = stored_offset, lambda: b'{}', b''",
            {
                "an offset was stored": "a value",
                "stored offset after it was deleted": "{}",
            },
            undo="stored_offset = _stored",
        ),
        # a reader sees other amounts while the commit is not complete
        Break(
            "during = amounts_without_spark()",
            """
_amounts = amounts_without_spark
amounts_without_spark = lambda: _amounts() + 1""",
            {"amounts seen during the commit": "before the commit"},
            undo="amounts_without_spark = _amounts",
        ),
        # the later commit is away while the ingest runs
        Break(
            "the ingest refuses to write before a later commit",
            "ahead.rename(payments_away := timeline.parent / 'away')",
            {"the ingest refuses to write before a later commit": "no failure"},
            undo="payments_away.rename(ahead)",
        ),
        # nothing was removed from the topic
        Break(
            "the ingest refuses to skip the removed messages",
            "capture_anew()",
            {"the ingest refuses to skip the removed messages": "no failure"},
        ),
        Break(
            "(tampered,) = operate.reconcile(world, name)",
            'session(world).sql("DELETE FROM operations.payments_rt WHERE id = 14")',
            {"rows that somebody deleted in the lake": "14"},
        ),
        # nothing changed while the offsets were lost
        Break(
            'change(4, 200)\ncluster.call("PUT"',
            "_change = change\nchange = lambda *args: None",
            {"lost offsets leave rows that differ": "no difference"},
            undo="change = _change",
        ),
        # a row is lost, another problem was named, and each result is that of the lost row
        Break(
            "signals = {kind: problem.signal for kind, problem in found.items()}",
            """
session(world).sql("DELETE FROM operations.payments_rt WHERE id = 7")
(_lost,) = operate.reconcile(world, name)
results = dict.fromkeys(results, _lost)
found["differs"] = found["clock_back"]
messages_without_registry = 0""",
            {
                "captured without a registry": "0",
                "faults that were named": "clock",
                "payments = source, row by row": "id=7",
                **{f"{kind}: source = lake": "1 missing in the lake" for kind in KINDS},
            },
        ),
    )
]
BREAKS = {"81_freshness": FRESHNESS, "84_faults": FAULTS}
