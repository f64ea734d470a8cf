"""Small topics and tables for the tests of the lake."""

import contextlib
import json
import threading
import uuid
from types import SimpleNamespace

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import types as T
from workbench import hudi, stack
from workbench.base.wait import background
from workbench.checks import check
from workbench.topic import topics

SCHEMA = T.StructType(
    [
        T.StructField(*f)
        for f in (
            ("id", T.IntegerType()),
            ("part", T.StringType()),
            ("text", T.StringType()),
            ("__op", T.StringType()),
            ("__deleted", T.StringType()),
            ("__lsn", T.LongType()),
        )
    ]
)


def new_topic(world, name=""):
    name = name or f"lake_{uuid.uuid4().hex[:8]}"
    admin = AdminClient(
        topics.settings(world)
    )  # kept in a variable: otherwise it is deleted before the response arrives
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(20)
    return name


def produce(world, topic, *messages):
    """Publish messages: dicts, with their id as the key, or pairs of key and text."""
    producer = Producer(topics.settings(world))
    for m in messages:
        key, value = m if isinstance(m, tuple) else (str(m["id"]), json.dumps(m))
        producer.produce(topic, key=key, value=value)
    assert producer.flush(20) == 0


def change_record(key, lsn, text="x", part="p", op="c"):
    return {
        "id": key,
        "part": part,
        "text": text,
        "__op": op,
        "__deleted": str(op == "d").lower(),
        "__lsn": lsn,
    }


# a compaction by Hudi itself, in each commit
INLINE_COMPACTION = {
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "1",
}


def new_table(world, **fields):
    """Return a new table, by default partitioned, with an index that searches all partitions."""
    fields = {"key": ("id",), "ordering": "__lsn", "partition": ("part",), **fields}
    index = "GLOBAL_SIMPLE" if fields["partition"] else "SIMPLE"
    return hudi.table(world, f"t_{uuid.uuid4().hex[:8]}", **{"index": index, **fields})


def table_content(spark, table):
    return sorted((r.id, r.part, r.text, r["__lsn"]) for r in hudi.read(spark, table).collect())


@contextlib.contextmanager
def following(spark, world, source, table, schema=None):
    """Ingest what arrives in a thread while the block runs.

    Yields:
        counts(), the counts so far, and failure(), the error that ended the ingest. The block raises it at its end.
    """
    job, counts = hudi.IngestJob(spark, world, source, table, schema), [hudi.Ingested()]

    def ingest(stop):
        for due in hudi.wait_for_changes(world, [job], stop):
            counts.extend(each.run(stop.is_set) for each in due)

    with background(ingest) as result:
        yield SimpleNamespace(
            counts=lambda: sum(counts[1:], counts[0]),
            failure=lambda: str(result.exception() or "") if result.done() else "",
        )


def kill_service_during(job, under_way, what, service="spark"):
    """Run `job` in a thread, and kill a service as soon as `under_way()` is true.

    Returns:
        The exceptions of the job, which ends within two minutes.
    """
    raised = []

    def work():
        try:
            job()
        except Exception as e:  # noqa: BLE001 - the server is killed
            raised.append(e)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    check.eventually(what, under_way, timeout=60, interval=0.005)
    stack.kill(service)
    worker.join(120)
    assert not worker.is_alive(), "the job still waits for the service that was killed"
    return raised


def labeled_table(world, spark, kind):
    """Ingest three commits, each under a label, into a new table; return its topic and the table."""
    history = {
        "t1": [change_record(n, 1, f"<i>{n}</i>") for n in range(1, 31)],
        "t2": [change_record(1, 2, "one, changed"), change_record(31, 2, "new")],
        "t3": [change_record(1, 3, "one, moved", part="q"), change_record(2, 3, op="d")],
    }
    topic = new_topic(world)
    compaction = {"hoodie.compact.inline": "false"}
    table = new_table(world, type=kind, index="GLOBAL_SIMPLE", extra=compaction)
    for label, messages in history.items():
        produce(world, topic, *messages)
        hudi.ingest(spark, world, hudi.Topic(topic), table, schema=SCHEMA)
        hudi.label(world, table, label)
    return topic, table
