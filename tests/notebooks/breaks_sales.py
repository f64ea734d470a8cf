"""Breaks for the checks of notebooks 61 to 64.

breaking.py documents the format.
"""

from breaking import Break, Run

# Later cells read a changed copy of the folder with the CSV files.
OTHER_FILES = """
import shutil
import tempfile
from pathlib import Path

spare = tempfile.TemporaryDirectory()
original_data, sales.DATA = sales.DATA, Path(shutil.copytree(sales.DATA, f"{spare.name}/sales"))

def spoil(name, **changes):
    path = sales.DATA / name
    text = path.read_text(encoding="utf-8")
    for old, new in changes.values():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
"""
QUOTED = """
original_world, spare_file = world, tempfile.NamedTemporaryFile(suffix=".yaml")
world = world.model_copy(update={"file": Path(spare_file.name)})
text = (ROOT / original_world.file).read_text(encoding="utf-8")
world.file.write_text(text.replace("\\nregistry:", '\\n"registry":'), encoding="utf-8")"""
SCHEMAS = [
    Run(
        Break(
            "registered = sales.register_schemas(world)",
            'lost = sales.SCHEMAS.pop("pagila.sales.summary.avro-key")',
            {"artifacts": "only stated: 'pagila.sales.summary.avro-key'"},
            undo='sales.SCHEMAS["pagila.sales.summary.avro-key"] = lost',
        ),
        Break(
            "registered_again = sales.register_schemas(world)",
            """
file_schema = sales.SCHEMAS["pagila.sales.csv"]
sales.SCHEMAS["pagila.sales.csv"] = {**file_schema, "doc": "another"}
delete, registry.delete = registry.delete, lambda *args: None""",
            {"versions after a second registration": "'2'"},
            undo='registry.delete, sales.SCHEMAS["pagila.sales.csv"] = delete, file_schema',
        ),
        Break(
            'rows = sales.read_csv(spark, world, "pagila.sales.csv")',
            """
fields = [{**field, "type": "string"} if field["name"] == "payment_id" else field
          for field in file_schema["fields"] if field["name"] != "district"]
registry.register(world, "pagila.sales.csv", {**file_schema, "fields": fields})""",
            {
                "columns": ("'payment_id': 'string'", "'district': 'string'"),
                "columns that may be null": "Spark 6",
            },
            undo="sales.register_schemas(world)",
        ),
        Break(
            "first = rows.limit(5)",
            OTHER_FILES
            + """
last = (sales.DATA / "sales_incremental_large.csv").read_text(encoding="utf-8").splitlines()[-1]
spoil("sales_incremental_large.csv", amount=("|3.99|2021-05-10 13:04:06", "|4.99|2021-05-10 13:04:06"),
      row=(f"\\n{last}\\n", "\\n"))
spoil("sales_regions.csv", region=("Aland Islands,Europe", "Aland Islands,Atlantis"))
rows = sales.read_csv(spark, world, "pagila.sales.csv")""",
            {
                "as in reference table S6/first_sales": ("row=1, amount", "4.99"),
                "sales": "Spark 1799",
                "as in reference table S6/first_regions": ("row=2, region", "Atlantis"),
            },
        ),
        Break(
            "text = (ROOT / world.file)",
            QUOTED,
            {"a setting with a misspelled name is rejected": "no failure"},
            undo="world = original_world",
        ),
        reset_from="61_schemas",
    )
]

WROTE = """
from workbench.topic import registry

def write_message(topic, like, key, value, at=None):
    encode = [registry.encoder(world, registry.latest_id(world, f"{like}-{side}")) for side in ("key", "value")]
    options = {"timestamp": int(at.timestamp() * 1000)} if at else {}
    topics.produce(world, topic, [(encode[0](key), encode[1](value), options)])
"""
# Stop the query after a batch, set the watermark in its checkpoint to midnight, and restart it.
MIDNIGHT = """
import re
from workbench.base import files

sales.produce(world, 0, 1)
query.processAllAvailable()
query.stop()
commits = f"{sales.checkpoint(world)}/commits"
last = max(int(name) for name in files.list_files(commits) if name.isdigit())  # 1, where it had begun before the sale came
text, times = re.subn('"nextBatchWatermarkMs":[0-9]+', '"nextBatchWatermarkMs":1633305600000',
                      files.read_text(f"{commits}/{last}"))
assert times == 1
files.write_text(f"{commits}/{last}", text)
files.remove(f"{commits}/.{last}.crc")
query = sales.start_query(spark, world)
sales.DATA = original_data"""
STREAMING_QUERY = [
    Run(
        Break(
            "query = sales.start_query(spark, world)",
            OTHER_FILES
            + """
spoil("sales_regions.csv", other=("Malaysia,Asia & Pacific", "Malaysia,Sea"), none=("Thailand,Asia & Pacific\\n", ""))
""",
            {"regions": "only query: 'Sea'"},
        ),
        Break(
            "live = None",
            MIDNIGHT
            + WROTE
            + """
unknown_sale = {**sales.read_sales()[0], "payment_id": 1, "payment_date": 1, "country": "Atlantis"}
write_message(sales.SALES_TOPIC, sales.SALES_TOPIC, 1, unknown_sale, sales.event_time(0))
colors["Sea"] = draw.GRAY""",
            {
                "messages": "topic 1802",
                "orders after each part": "450: 904",
                "sum of amounts": "file",
                "every sale as in the file": (
                    "payment_id=16666: 2 rows in topic",
                    "payment_id=1: not in file",
                ),
                "keys are customers": "only keys: position 2: 1",
                "payment_date is the time of production": "only value: position 2: 1",
                "payment_date is as planned": "only seconds off the plan: 1: -",
                "sales without a region, twice": "file",
                "rows of all batches": "metrics 1801",
                "rows of each batch": "offsets",
                "watermarks": "2021-10-04 00:00:00",
            },
        ),
        Break(
            "result = sales.latest(spark, world)",
            """
stray = {"region": "Africa", "sales": 1, "orders": 1, "window_start": 1, "window_end": 2}
write_message(sales.SUMMARY_TOPIC, sales.SUMMARY_TOPIC, 1, stray)""",
            {
                "orders over all windows": "query 3605",
                "length of windows": "{1, 600}",
                "start of windows": "{0, 1}",
                "rows that the last batch wrote": "result topic",
            },
        ),
        Break(
            'distance = int(here["end"])',
            'here["end"] += 1\nhere["watermark"] = here["newest"]',
            {
                "rows of the last batch": "its offsets",
                "the last watermark is ten minutes or more behind": "0 days 00:00:00",
            },
        ),
        reset_from="62_streaming_query",
    )
]

# Delete all messages of the topic but those of the last batch.
LAST_BATCH = """
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

begins = topics.offset_span(world, sales.SUMMARY_TOPIC) - len(sales.latest(spark, world))
kafka = AdminClient(topics.settings(world))
for deleted in kafka.delete_records([TopicPartition(sales.SUMMARY_TOPIC, 0, begins)]).values():
    deleted.result(10)"""
BATCH_READ = [
    Run(
        Break(
            "messages = streams.messages(spark, world, sales.SUMMARY_TOPIC",
            LAST_BATCH,
            {"windows were written more than once": "expected more than"},
        ),
        Break(
            "result = sales.latest(spark, world)\nshow.table",
            WROTE
            + """
later = {"region": "Africa", "sales": 300.59, "orders": 42, "window_start": 1633299600, "window_end": 1633300200}
write_message(sales.SUMMARY_TOPIC, sales.SUMMARY_TOPIC, later["window_start"], later)""",
            {
                "stream = recomputation from the topic": "region='Africa', window_start=1633299600, sales: stream",
                "as in reference table S6/sales_by_region_and_window": (
                    "sales: actual '300.59'",
                    "orders: actual '42'",
                ),
                "result = last message of each window": "region='Africa', window_start=1633299600, sales: batch read",
            },
        ),
        Break(
            'dashboard_sql = """',
            """
spark.sql("UPDATE sales.sales_summary SET orders = orders + 100 WHERE region = 'Europe'")
spark.sql("DELETE FROM sales.sales_summary WHERE region = 'Africa' AND window_start = 1633299600")""",
            {
                "orders": "query 21",
                **{
                    f"the lake, by {reader}": (
                        "region='Africa', window_start=1633299600: missing in lake",
                        "region='Europe'",
                    )
                    for reader in ("Spark", "hudi-rs")
                },
            },
        ),
        Break(
            "order = list(zip(",
            "distinct_result, result = result, pd.concat([result, result.head(1)])",
            {
                "newest window first, then by sales": ": position ",
                "one row for each region and window": "rows",
            },
            undo="result = distinct_result",
        ),
        reset_from="62_streaming_query",
    )
]

# The broker replaces the timestamp of each message with the current time.
STAMPED = """
topics.delete(world, sales.SCRATCH_TOPIC)
topics.create(world, sales.SCRATCH_TOPIC, **{"message.timestamp.type": "LogAppendTime"})
sales.produce(world, topic=sales.SCRATCH_TOPIC)"""
# The query has read all messages before, so that one batch remains for it.
ONE_BATCH = (
    WROTE
    + """
patient = check.eventually
check.eventually = lambda what, condition, timeout, **more: patient(what, condition, 10, **more)
first_query = sales.start_query(spark, world, name="restarted", trigger_interval="0 seconds")
first_query.processAllAvailable()
first_query.stop()
sales.produce(world, 0, 100, topic=sales.SCRATCH_TOPIC)
write_message(sales.SCRATCH_TOPIC, sales.SALES_TOPIC, 1, {**sales.read_sales()[0], "country": "Atlantis"}, sales.event_time(0) - dt.timedelta(days=1))
"""
)
SET_BACK = """
from workbench.base import files

offsets, last = f"{sales.checkpoint(world, 'restarted')}/offsets", before["batch"].iloc[-1]
text = files.read_text(f"{offsets}/{last}")
assert text.count('"0":1901') == 1, text
files.write_text(f"{offsets}/{last}", text.replace('"0":1901', '"0":1800'))
files.remove(f"{offsets}/.{last}.crc")"""
MODES = ("complete", "update", "append")
RESTART = [
    Run(
        Break(
            "## 1. Three output modes",
            STAMPED,
            {
                "update drops state": "expected below",
                "late events, in two windows each": "dropped 0",
                "late events are in no window": "sales: query",
                "a sale dated tomorrow is rejected": "no failure",
                "reasons of the dead letters": "only reasons: position 1: 'not Avro",
                "mode append = recomputation": "both sides are empty",
            },
            also_red=("the watermark does not move",),
        )
    ),
    Run(
        Break(
            "modes = pd.DataFrame(index=",
            """
one = topics.read(world, f"{sales.SCRATCH_TOPIC}.update").iloc[-1]
topics.produce(world, f"{sales.SCRATCH_TOPIC}.update", [(one["key"], one["value"])] * 1_000)
one = topics.read(world, f"{sales.SCRATCH_TOPIC}.append").iloc[-1]
topics.produce(world, f"{sales.SCRATCH_TOPIC}.append", [(one["key"], one["value"])])""",
            {
                "complete writes the most rows": "actual update",
                "states repeated by update and by append": "topics [1000, 1]",
            },
        ),
        Break(
            'check.eventually("two batches are done"',
            ONE_BATCH,
            {
                "two batches are done": "not yet",
                "complete drops no state": "windows",
                "the restarted query reads all messages": "offset 1901",
                "late events, in mode complete": "added 208",
                **{
                    f"mode {mode} = recomputation": "region='Unassigned', window_start=1633212300: missing in query"
                    for mode in MODES
                },
            },
            undo="check.eventually = patient",
        ),
        Break(
            "The query has stopped, but its progress",
            SET_BACK,
            {
                "the query continues at its offset": "actual 1800",
                "each sale counts once": "sales: restarted",
            },
        ),
        Break(
            "publish(dt.timedelta(minutes=30))",
            "publish(dt.timedelta())",
            {
                "the watermark does not move": "before 2021-10-03 22:38",
                "late events are in no window": "not in recomputation without them",
            },
        ),
    ),
]

BREAKS = {
    "61_schemas": SCHEMAS,
    "62_streaming_query": STREAMING_QUERY,
    "63_batch_read": BATCH_READ,
    "64_restart_and_late_data": RESTART,
}
