"""What is broken behind the checks of notebooks 21 to 24; how a break is written stands in breaking.py."""
from breaking import Break, Run

SOURCE = """
def source(statement):
    postgres.execute(world, statement, database=query_based.DATABASE)
"""
SOURCE_DATABASE = [Run(
    Break("known = postgres.frame(", SOURCE + """source("UPDATE address SET phone = '1' WHERE address_id = 6")""",
          {"as in reference table S3/addresses_before": ("row=1, phone", "'1'")}),
    Break("def moved(statement)", 'source("ALTER TABLE address DISABLE TRIGGER ALL")',
          {"an update moves last_update": "2001-01-01"}, back='source("ALTER TABLE address ENABLE TRIGGER ALL")'),
    Break("silent = moved(", 'source("ALTER TABLE address ENABLE ALWAYS TRIGGER update_last_update_column_address")',
          {"without triggers it does not": "expected before"},
          back='source("ALTER TABLE address ENABLE TRIGGER ALL")'),
    Break("reading customers is refused", 'source(f"GRANT SELECT ON customer TO {world.postgres.replication_user}")',
          {"reading customers is refused": "no failure"}),
    Break("counts = {name: query_based.flow.count", 'source("DELETE FROM address WHERE address_id = 1")',
          {"rows of the three tables": "602"}),
    Break("homes = postgres.frame(", """
source("UPDATE customer SET address_id = 104 WHERE customer_id = 7")
source("INSERT INTO country (country) VALUES ('Nowhere')")""",
          {"customers at address 104": "7", "last numbers of countries and cities": "110"}),
    Break("times = {str(time)", 'source("UPDATE address SET phone = phone WHERE address_id = 9")',
          {"last_update of all addresses": "stated"}),
    Break("stamped = postgres.frame(", 'source("DROP TRIGGER update_last_update_column_city ON city")',
          {"tables with the trigger": "'city'"}),
    Break("published = postgres.publications(", 'source("CREATE PUBLICATION other FOR TABLE city")',
          {"publications": "'other'"}, back='source("DROP PUBLICATION other")'),
    Break("slots = postgres.frame(", """
source("SELECT pg_create_logical_replication_slot('polled', 'pgoutput')")""",
          {"replication slots": "'polled'"}, back="""source("SELECT pg_drop_replication_slot('polled')")"""),
    harms="21_source_database",
)]


def compared(name, variable):
    """A setting more in a configuration, while it is compared with the published one."""
    return {"code": f'_{variable}, {variable} = {variable}, {{**{variable}, "tasks.max": "51"}}',
            "red": {f"differences from S3/{name}": "key='tasks.max'"}, "back": f"{variable} = _{variable}"}


PAIR_01 = [compared("source_connector_01", "source_01"), compared("sink_connector_01", "sink_01")]
# the topic forgets its first messages
SHORTER = SOURCE + """
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

kafka = AdminClient(topics.settings(world))
for done in kafka.delete_records([TopicPartition("pagila.public.city", 0, 3)]).values():
    done.result(10)"""
# an object more, of other rows, under an offset of its own
STRAY = """
import pathlib
from workbench.base import files as _files

stray = pathlib.Path(_files.open_address(query_based.flow.landing_folder(world, "country"))[1])
stray = stray / "partition=0" / "pagila.public.country+0+0000000900.json"
stray.write_text(json.dumps({"country_id": 900, "country": "Nowhere", "last_update": 0}) + "\\n")"""
# files of a country that is none, of another codec and with other fields
ODD = """
import pyarrow
from pyarrow import parquet
from workbench.base import files as _files

odd = pathlib.Path(_files.open_address(query_based.flow.landing_folder(world, "query"))[1]) / "country=Nowhere"
odd.mkdir()
odd = odd / "pagila.query+0+0000000900.snappy.parquet"
parquet.write_table(pyarrow.table({"n": [1]}), odd, compression="snappy")"""
CONNECTORS = [Run(
    Break('published.compare(world, "S3/source_connector_00"', **compared("source_connector_00", "source_00")),
    Break('published.compare(world, "S3/sink_connector_00"', **compared("sink_connector_00", "sink_00")),
    Break('published.compare(world, "S3/source_connector_01"', "\n".join(one["code"] for one in PAIR_01),
          {what: text for one in PAIR_01 for what, text in one["red"].items()},
          back="\n".join(one["back"] for one in PAIR_01)),
    Break('published.compare(world, "S3/source_connector_02"', **compared("source_connector_02", "source_02")),
    Break('published.compare(world, "S3/sink_connector_02"', **compared("sink_connector_02", "sink_02")),
    Break("a transform with nothing to insert is refused",
          '_apply, landing.apply = landing.apply, lambda world, name, config: _apply(world, name, source_02)',
          {"a transform with nothing to insert is refused": "no failure",
           "the flawed one is not there": "pagila_flawed"},
          back="landing.apply = _apply"),
    Break("wanted_names = [", """
landing.apply(world, query_based.SINKS[0], {**sink_00, "flush.size": "99"})
names_after[0] = names_after[0][:1]
before[1]["pagila.query"] += 1""",
          {"connectors after each pair": "deployed", "states of the six and of their tasks": "'UNASSIGNED'",
           "six connectors deployed again": "state", "messages after deploying again": "pagila.query"}),
    Break('sides = {name in have', "wanted = have",
          {"workers of the six": "no plugin in the Connect false"}),
    Break("sent = {name: topics.count", SHORTER + STRAY,
          {"messages of the first pair": "597", "first offsets of the objects": "900",
           "objects of the first pair": "files 16", "records in each object": "country",
           "landed JSON of country = source": "900"}, back="stray.unlink()"),
    Break("rows, source = spark.read.json(", """
for table in ("address", "city"):
    source(f"UPDATE {table} SET last_update = last_update WHERE {table}_id = 100")""",
          {"landed JSON of address = source": "last_update", "landed JSON of city = source": "last_update",
           "address 100 in JSON": "last_update"}),
    Break('check.equal("its last_update in milliseconds"', 'line["last_update"] //= 1000',
          {"its last_update in milliseconds": "1487151930"}),
    Break('addresses = query_based.flow.rows(world, "address")', """
alt.loc[0, ["key", "message_topic"]] = [7000, "other"]""",
          {"keys of the second topic": "7,000", "keys that are not that of their row": "topic 1",
           "fields that were added": "other"}),
    Break("key = json.loads(topics.read", """
_read, topics.read = topics.read, lambda *given, **more: _read(*given, **more).replace("int32", "int64", regex=True)""",
          {"schema of a key": "int64"}, back="topics.read = _read"),
    Break('base = ["address_id"', """
from pyspark.sql import functions as F

del joined["phone"]
in_file = in_file.drop("phone").withColumn("environment", F.lit("production"))""",
          {"fields in the topic": "topic", "fields in the files": "files", "values of the three": "production"}),
    Break("parts = frames.parquet_files(", ODD,
          {"codec of every file": "'SNAPPY'", "folders": "Nowhere", "records in all of them": "files 604"}),
    harms="22_connectors",
)]

BREAKS = {"21_source_database": SOURCE_DATABASE, "22_connectors": CONNECTORS}
