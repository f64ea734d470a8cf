"""What is broken behind the checks of notebooks 21 to 24; how a break is written stands in
breaking.py."""

from breaking import Break, Run

SOURCE = """
from workbench.source import postgres

def source(statement):
    postgres.execute(world, statement, database=query_based.DATABASE)
"""
SOURCE_DATABASE = [
    Run(
        Break(
            "addresses = postgres.query(",
            SOURCE + """source("UPDATE address SET phone = '1' WHERE address_id = 6")""",
            {"as in reference table S3/addresses_before": ("row=1, phone", "'1'")},
        ),
        Break(
            "def update_and_read(statement)",
            'source("ALTER TABLE address DISABLE TRIGGER ALL")',
            {"an update moves last_update": "2001-01-01"},
            undo='source("ALTER TABLE address ENABLE TRIGGER ALL")',
        ),
        Break(
            "without_trigger = update_and_read(",
            'source("ALTER TABLE address ENABLE ALWAYS TRIGGER update_last_update_column_address")',
            {"without triggers an update does not move last_update": "expected before"},
            undo='source("ALTER TABLE address ENABLE TRIGGER ALL")',
        ),
        Break(
            "reading customers is rejected",
            'source("GRANT SELECT ON customer TO PUBLIC")',
            {"reading customers is rejected": "no failure"},
        ),
        Break(
            "counts = {name: query_based.flow.count",
            'source("DELETE FROM address WHERE address_id = 1")',
            {"rows of the three tables": "602"},
        ),
        Break(
            "customers_sql = ",
            """
source("UPDATE customer SET address_id = 104 WHERE customer_id = 7")
source("INSERT INTO country (country) VALUES ('Nowhere')")""",
            {"customers at address 104": "7", "last ids of countries and cities": "110"},
        ),
        Break(
            "times = {str(time)",
            'source("UPDATE address SET phone = phone WHERE address_id = 9")',
            {"last_update of all addresses": "stated"},
        ),
        Break(
            "trigger_rows = postgres.query(",
            'source("DROP TRIGGER update_last_update_column_city ON city")',
            {"tables with the trigger": "'city'"},
        ),
        Break(
            "published = postgres.publications(",
            'source("CREATE PUBLICATION other FOR TABLE city")',
            {"publications": "'other'"},
            undo='source("DROP PUBLICATION other")',
        ),
        Break(
            "slots = postgres.query(",
            """
source("SELECT pg_create_logical_replication_slot('polled', 'pgoutput')")""",
            {"replication slots": "'polled'"},
            undo="""source("SELECT pg_drop_replication_slot('polled')")""",
        ),
        reset_from="21_source_database",
    )
]


def compared(name, variable):
    """A setting more in a configuration, while it is compared with the published one."""
    return {
        "code": f'_{variable}, {variable} = {variable}, {{**{variable}, "tasks.max": "51"}}',
        "red": {f"differences from S3/{name}": "key='tasks.max'"},
        "undo": f"{variable} = _{variable}",
    }


PAIR_01 = [compared("source_connector_01", "source_01"), compared("sink_connector_01", "sink_01")]
# the topic forgets its first messages
SHORTER = (
    SOURCE
    + """
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

kafka = AdminClient(topics.settings(world))
for done in kafka.delete_records([TopicPartition("pagila.public.city", 0, 3)]).values():
    done.result(10)"""
)
# an object more, of other rows, under an offset of its own
STRAY = """
import pathlib
from workbench.base import files as _files

stray = pathlib.Path(_files.open_filesystem(query_based.flow.landing_folder(world, "country"))[1])
stray = stray / "partition=0" / "pagila.public.country+0+0000000900.json"
stray.write_text(json.dumps({"country_id": 900, "country": "Nowhere", "last_update": 0}) + "\\n")"""
# files of a country that is none, of another codec and with other fields
ODD = """
import pyarrow
from pyarrow import parquet
from workbench.base import files as _files

odd = pathlib.Path(_files.open_filesystem(query_based.flow.landing_folder(world, "query"))[1]) / "country=Nowhere"
odd.mkdir()
odd = odd / "pagila.query+0+0000000900.snappy.parquet"
parquet.write_table(pyarrow.table({"n": [1]}), odd, compression="snappy")"""
CONNECTORS = [
    Run(
        Break(
            'published.compare(world, "S3/source_connector_00"',
            **compared("source_connector_00", "source_00"),
        ),
        Break(
            'published.compare(world, "S3/sink_connector_00"',
            **compared("sink_connector_00", "sink_00"),
        ),
        Break(
            'published.compare(world, "S3/source_connector_01"',
            "\n".join(one["code"] for one in PAIR_01),
            {what: text for one in PAIR_01 for what, text in one["red"].items()},
            undo="\n".join(one["undo"] for one in PAIR_01),
        ),
        Break(
            'published.compare(world, "S3/source_connector_02"',
            **compared("source_connector_02", "source_02"),
        ),
        Break(
            'published.compare(world, "S3/sink_connector_02"',
            **compared("sink_connector_02", "sink_02"),
        ),
        Break(
            "a transform with nothing to insert is rejected",
            "_apply, landing.apply = landing.apply, lambda world, name, config: _apply(world, name, source_02)",
            {
                "a transform with nothing to insert is rejected": "no failure",
                "the invalid connector is not deployed": "pagila_flawed",
            },
            undo="landing.apply = _apply",
        ),
        Break(
            "pairs_so_far = [",
            """
landing.apply(world, query_based.SINKS[0], {**sink_00, "flush.size": "99"})
names_after[0] = names_after[0][:1]
counts_before["pagila.query"] += 1""",
            {
                "connectors after each pair": "deployed",
                "states of the six connectors and their tasks": "'UNASSIGNED'",
                "six connectors, deployed again, are unchanged": "state",
                "messages after deploying again": "pagila.query",
            },
        ),
        # the second sink was given another configuration, and has landed nothing by it
        Break(
            "states_01 = states(names_after[1])",
            'landing.apply(world, query_based.SINKS[1], {**sink_01, "flush.size": "99"})',
            {"states after each pair": "UNASSIGNED"},
            undo="""
landing.apply(world, query_based.SINKS[1], sink_01)
landing.run_once(world, query_based.SINKS[1])""",
        ),
        Break(
            "has_plugin = {name in installed",
            "connector_classes = installed",
            {"the built-in runner replaces missing plugins": "installed plugins false"},
            undo='landing.delete(world, "pagila_flawed")',
        ),
        Break(
            "published_counts = {name: topics.offset_span",
            SHORTER + STRAY,
            {
                "messages of the first pair": "597",
                "first offsets of the objects": "900",
                "objects of the first pair": "files 16",
                "records in each object": "[100, 9, 1]",
            },
        ),
        Break(
            "spark.read.json(",
            """
for table in ("address", "city"):
    source(f"UPDATE {table} SET last_update = last_update WHERE {table}_id = 100")""",
            {
                "landed JSON of address = source": "last_update",
                "landed JSON of city = source": "last_update",
                "landed JSON of country = source": "country_id=900",
            },
            undo="stray.unlink()",
        ),
        Break(
            "texts = objects.query(",
            """
objects["text"] = objects["text"].str.replace("1487151930000", "1487151930")""",
            {
                "address 100 in JSON": "1970",
                "last_update of address 100 in milliseconds": "file 1487151930 ",
            },
        ),
        Break(
            'addresses = query_based.flow.rows(world, "address")',
            """
alt.loc[0, ["key", "message_topic"]] = [7000, "other"]""",
            {
                "keys of the second topic": "only topic: position 1: 2",
                "keys that differ from their row": "topic 1",
                "fields added by the transforms": "other",
            },
        ),
        Break(
            "key = json.loads(topics.read",
            """
_read, topics.read = topics.read, lambda *given, **more: _read(*given, **more).replace("int32", "int64", regex=True)""",
            {"schema of a key": "int64"},
            undo="topics.read = _read",
        ),
        Break(
            'names = "address_id address address2',
            """
from pyspark.sql import functions as F

del joined["phone"]
in_file = in_file.drop("phone").withColumn("environment", F.lit("production"))""",
            {
                "fields in the topic": "'phone'",
                "fields in the files": "'phone'",
                "values of the three added fields": "production",
            },
        ),
        Break(
            "parts = frames.parquet_files(",
            ODD,
            {
                "codec of every file": "'SNAPPY'",
                "folders": "Nowhere",
                "records in all files": "files 604",
            },
        ),
        reset_from="22_connectors",
    )
]

# one more file with a version of an address, with other values in some columns
VERSION = """
import datetime
import pathlib
import pyarrow
from pyarrow import compute, parquet
from workbench.base import files as _files

root = pathlib.Path(_files.open_filesystem(query_based.flow.landing_folder(world, "query"))[1])

def version(number, **said):
    table = pyarrow.concat_tables([parquet.ParquetFile(path).read() for path in root.rglob("*.parquet")],
                                  promote_options="default")  # one country's may be without a column
    table = table.filter(compute.equal(table["address_id"], number)).slice(0, 1)
    for name, value in said.items():
        field = table.schema.field(name)
        table = table.set_column(table.schema.names.index(name), field, pyarrow.array([value], field.type))
    folder = root / f"country={table['country'][0]}"
    folder.mkdir(exist_ok=True)
    parquet.write_table(table, folder / "pagila.query+0+0000000900.gz.parquet", compression="gzip")
"""
# as 104 goes, 105 is changed; and 104 has been changed before, of which the log has the row before
TRAMPLED = """
source("ALTER TABLE address REPLICA IDENTITY FULL; UPDATE address SET phone = '1' WHERE address_id = 104")
source('''
    CREATE FUNCTION trample() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN UPDATE address SET phone = phone WHERE address_id = 105; RETURN OLD; END';
    CREATE TRIGGER trample AFTER DELETE ON address FOR EACH ROW EXECUTE FUNCTION trample()''')"""
# what is written to 200 becomes something else, and another address has changed by then
THIRD = """
source("UPDATE address SET phone = phone WHERE address_id = 250")
source('''
    CREATE FUNCTION third() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.address2 = ''third''; RETURN NEW; END';
    CREATE TRIGGER third BEFORE UPDATE ON address FOR EACH ROW WHEN (NEW.address_id = 200) EXECUTE FUNCTION third()
''')"""
# a row and a time change in the source, and no trigger moves last_update
SILENT = """
source('''
    ALTER TABLE address DISABLE TRIGGER ALL;
    UPDATE address SET postal_code = '?' WHERE address_id = 400;
    UPDATE address SET last_update = '2100-01-01' WHERE address_id = 401;
    ALTER TABLE address ENABLE TRIGGER ALL''')"""
# the long transaction gives its row the time of its commit; and another address has changed by then
AT_COMMIT = """
source("UPDATE address SET phone = phone WHERE address_id = 251")
source('''
    CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
        SET LOCAL session_replication_role = replica;
        UPDATE address SET last_update = clock_timestamp() WHERE address_id = 300; RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER at_commit AFTER UPDATE ON address DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.address_id = 300) EXECUTE FUNCTION at_commit()''')"""
CHANGES = [
    Run(
        Break(
            "change(100, ",
            SOURCE
            + """
source("INSERT INTO country (country) VALUES ('Nowhere')")
source("UPDATE address SET district = 'Nowhere' WHERE address_id = 103")""",
            {
                "new ids": "'Wakanda': 111",
                "messages of the nine changes": "pagila.public.country",
                "as in reference table S3/address_latest": ("row=4, state_province", "'Nowhere'"),
                "versions in the topic": "topic",
            },
        ),
        Break(
            "deleted = poll()",
            TRAMPLED,
            {
                "messages after the delete": "poll 3",
                "as in reference table S3/address_versions": "row=12",
                "log events of the same delete": "'u', 'd'",
                "before of the delete in the log": "Kamakura",
            },
            undo='source("ALTER TABLE address REPLICA IDENTITY DEFAULT; DROP FUNCTION trample CASCADE")',
        ),
        Break(
            "message_counts = {topic",
            VERSION
            + """
version(102, country="Nowhere", last_update=datetime.datetime(2016, 1, 1))""",
            {
                "earliest last_update of the six addresses": "2016-01-01",
                "countries of address 102": "'Nowhere'",
                "folders of address 102": "files 3",
            },
        ),
        Break(
            "change(200, ",
            THIRD,
            {
                "messages for two updates between two polls": "poll 2",
                "address2 of 200 in the topic": "'third'",
            },
            undo='source("DROP FUNCTION third CASCADE")',
        ),
        Break(
            "as late, late.transaction()",
            AT_COMMIT,
            {
                "messages while the transaction was open": "poll 2",
                "messages after its commit": "poll 1",
                "changes that no poll has seen": "topic against source [104, 200]",
            },
            undo='source("DROP FUNCTION at_commit CASCADE")',
        ),
        Break(
            "source_rows = postgres.query(",
            SILENT,
            {
                "addresses with wrong values in the lake": "{104, 400, 401}",
                "newest last_update": "2100",
                "countries whose sums differ": "lake against source",
                "changes counted by PostgreSQL": "PostgreSQL",
            },
        ),
        Break(
            "in_source = len(query_based.flow.rows",
            """
source("INSERT INTO address (address_id, address, district, city_id, phone) VALUES (104, '', '', 1, '')")""",
            {"address 104 in the source and in the lake": "(1, 1)"},
        ),
        reset_from="23_changes",
    )
]

# the files of one country, without the column
WITHOUT = (
    VERSION
    + """
for path in (root / "country=Wakanda").glob("*.parquet"):
    parquet.write_table(parquet.ParquetFile(path).read().drop_columns(["country"]), path, compression="gzip")"""
)
# the crawler is sent to a folder of such files only
CLEAN = """
_landed, landed = landed, f"{world.lake.landing}/clean"
clean = pathlib.Path(_files.open_filesystem(landed)[1]) / "country=Wakanda"
clean.mkdir(parents=True)
for path in (root / "country=Wakanda").glob("*.parquet"):
    (clean / path.name).write_bytes(path.read_bytes())"""
CRAWLED = """
query.sql(spark, "DROP TABLE pagila_polled.pagila_query")
files.remove(landed)
landed = _landed
try:
    query.create_table_from_files(spark, landed, "pagila_polled.pagila_query")
except Exception as caught:
    error = caught"""
# a file that the catalog does not know, in a folder of no country, of another codec, with a column
# too many
UNKNOWN = """
unknown = pathlib.Path(_files.open_filesystem(table_folder)[1]) / "country=Nobody" / "unknown.parquet"
unknown.parent.mkdir()
parquet.write_table(pyarrow.table({"country": ["Nobody"]}), unknown, compression="gzip")"""
SILVER = [
    Run(
        Break(
            "objects = frames.parquet_files(",
            WITHOUT,
            {"country is in the files and in the folders": "address_id"},
        ),
        Break(
            "pyarrow rejects the folder",
            '_landed, landed = landed, f"{landed}/country=Wakanda"',
            {"pyarrow rejects the folder": "no failure"},
            undo="landed = _landed",
        ),
        # by the first break, the file that gives the columns has no country
        Break(
            "Spark rejects the crawled table",
            "pass",
            {"Spark rejects the crawled table": "no failure"},
            undo='spark.sql("DROP TABLE pagila_polled.crawled")',
        ),
        Break(
            "a column in files and folders is detected",
            CLEAN,
            {"a column in files and folders is detected": "no failure"},
            undo=CRAWLED,
        ),
        Break(
            "query.sql(spark, create_table)",
            """
version(100, address="Elsewhere", last_update=datetime.datetime(2100, 1, 1))""",
            {
                "versions in the declared table": "SQL 611",
                "silver table = source": ("address_id=100", "Elsewhere"),
                "address 100": "'Elsewhere'",
            },
        ),
        Break(
            'records = int(objects["records"].sum())',
            'silent.loc[0, "count"] += 1',
            {"rows that Spark reads by path, without an error": "files"},
        ),
        Break(
            "silver = query.sql(",
            """
name, columns = "pagila_polled.pagila_query_processed", "address_id, last_update, country"
spark.sql(f"INSERT INTO {name} ({columns}) VALUES (101, TIMESTAMP '2000-01-01', 'Nowhere')")""",
            {"address_id of the silver table": "101"},
        ),
        Break(
            "columns = list(query.sql(",
            """
query.sql(spark, "DROP TABLE pagila_polled.pagila_query")
spark.sql("CREATE TABLE pagila_polled.pagila_query (address_id int) USING parquet")""",
            {"country in the declared table": "columns 0"},
        ),
        Break(
            "rows = []",
            UNKNOWN,
            {
                "codec of the silver files": "'GZIP'",
                "folders of the silver table": "country=Nobody",
                "country in the silver files": "files {false, true}",
            },
        ),
        reset_from="23_changes",
    )
]

BREAKS = {
    "21_source_database": SOURCE_DATABASE,
    "22_connectors": CONNECTORS,
    "23_changes": CHANGES,
    "24_silver": SILVER,
}
