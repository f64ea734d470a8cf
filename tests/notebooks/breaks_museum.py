"""Breaks for the checks of notebooks 51 to 54 (55 to 58: breaks_travel.py).

breaking.py documents the format.
"""

from breaking import Break, Run
from breaks_travel import LAKE, TRAVEL

SOURCE_DATABASE = [
    Run(
        Break(
            "artists = museum.flow.rows(",
            """
def source(statement):
    postgres.execute(world, statement, database=museum.DATABASE)

source("DELETE FROM artists WHERE artist_id = 441")
source("UPDATE artists SET name = 'Somebody' WHERE artist_id = 1")
source("UPDATE artists SET nationality = 'French' WHERE artist_id = 4609")
source("UPDATE artworks SET title = 'Toreador', classification = 'Drawing', artist_id = 1 WHERE artwork_id = 128447")
""",
            {
                "as in reference table S5/artists_named": ("row=1, name", "Somebody"),
                "artists that we will follow": "source [1, 299, 4609]",
                "rows of both tables": "'artists': 149",
                "nationality of artist 4609": "French",
                "title of artwork 128447": "Toreador",
                "classification of artwork 128447": "Drawing",
                "artist of artwork 128447": "source 1 ",
            },
        ),
        Break(
            "a table without a key is not published",
            'source("CREATE TABLE loans (artwork_id int PRIMARY KEY, lent_to text)")',
            {"a table without a key is not published": "no failure"},
            undo='postgres.drop_publication(world, "loans", museum.DATABASE)',
        ),
        Break(
            "publications = postgres.publications(",
            """
source(f"ALTER PUBLICATION {museum.flow.publication} DROP TABLE artworks")
source("ALTER TABLE artists REPLICA IDENTITY FULL")""",
            {
                "published tables": "database ['public.artists'] ",
                "replica identity of both": "full row",
            },
        ),
        Break(
            "the connector's user cannot change rows",
            'source(f"GRANT UPDATE ON artists TO {world.postgres.replication_user}")',
            {"the connector's user cannot change rows": "no failure"},
        ),
        reset_from="51_source_database",
    ),
]

REGISTRY = """
from workbench.base import http

api = f"{world.registry.url}/apis/registry/v2/groups/default/artifacts"
extra = {"X-Registry-ArtifactId": "moma.public.extra-value", "X-Registry-ArtifactType": "AVRO"}
http.call("the registry", "POST", api, "string", headers=extra).raise_for_status()"""
# Delete the first message of artist 1 from the topic. The notebook then reads the next one, an
# update from the log.
LATER_MESSAGE = """
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

first = museum.flow.events(spark, world, "artists").where("artist_id = 1").first()["offset"]
connect.apply(world, museum.CONNECTOR, {
    **config, "transforms.unwrap.add.fields": "op,table,db,schema,lsn,source.ts_ms,source.txId"})
connect.wait_running(world, museum.CONNECTOR)
museum.flow.change(world, "artists", 1, name="Somebody")
kafka = AdminClient(topics.settings(world))
deleted = kafka.delete_records([TopicPartition(museum.flow.topic(world, "artists"), 0, first + 1)])
for future in deleted.values():
    future.result(10)"""
NO_EVENTS = """
from workbench.base.wait import wait_until

def source(statement):
    postgres.execute(world, statement, database=museum.DATABASE)

kafka.create_topics([NewTopic("moma.public.extra", 1, 1)])["moma.public.extra"].result(10)
requests.put(f"{world.connect.url}/connectors/{museum.CONNECTOR}/pause", timeout=30,
             auth=world.connect.auth).raise_for_status()
wait_until(lambda: connect.status(world, museum.CONNECTOR)["state"] == "PAUSED", "the pause")
source("UPDATE artists SET death_year = 1999 WHERE artist_id = 1")
source("UPDATE artworks SET title = 'Unsent' WHERE artwork_id = 1")
source("INSERT INTO artworks (artwork_id, title) VALUES (0, 'Unsent')")"""
SPOILT_FILES = """
from pyspark.sql import functions as F

for name, key, column in (("artists", 2, "gender"), ("artworks", 3, "title")):
    folder = f"{world.lake.landing}/topics/{museum.flow.topic(world, name)}"
    landed = spark.read.format("avro").load(folder)
    kept = spark.createDataFrame(landed.collect(), landed.schema)
    spoilt = F.when(F.col(museum.flow.capture(name).key) == key, "Spoilt").otherwise(F.col(column))
    kept.withColumn(column, spoilt).write.format("avro").mode("overwrite").save(folder)"""
CONNECTORS = [
    Run(
        Break(
            "the keys of Debezium 1.7 are rejected",
            """
import requests

def apply_unchecked(world, name, config):
    body = {"name": name, "config": config, "initial_state": "STOPPED"}
    requests.post(f"{world.connect.url}/connectors", json=body, timeout=30, auth=world.connect.auth).raise_for_status()

apply, connect.apply = connect.apply, apply_unchecked""",
            {
                "the keys of Debezium 1.7 are rejected": "no failure",
                "nothing was deployed": "moma_source",
            },
            undo="connect.apply = apply\nconnect.delete(world, museum.CONNECTOR)",
        ),
        Break(
            'published.compare(world, "S5/source_connector"',
            'config["poll.interval.ms"] = "49"',
            {"differences from S5/source_connector": ("key='poll.interval.ms', here", "49")},
            undo='config["poll.interval.ms"] = "50"',
        ),
        Break(
            'published.compare(world, "S5/sink_connector"',
            'sink["flush.size"] = "9999"',
            {"differences from S5/sink_connector": "key='flush.size': not in table"},
            undo='sink["flush.size"] = "10000"',
        ),
        Break(
            "artifacts = registry.artifacts(world)",
            REGISTRY,
            {"artifacts of both topics": "moma.public.extra-value"},
            undo='http.call("the registry", "DELETE", f"{api}/moma.public.extra-value").raise_for_status()',
        ),
        Break(
            'first_event = museum.flow.events(spark, world, "artists")',
            LATER_MESSAGE,
            {
                "fields of the message, in this order": ("position 9", "__table", "__db"),
                "metadata in the message of artist 1": "'u'",
                "name in the envelope and in the flat message": "Somebody",
                "the message names the latest version of its schema": "registry ",
            },
        ),
        Break(
            "a message with an unknown schema id is rejected",
            "find, registry.find = registry.find, lambda *_: value_schema",
            {"a message with an unknown schema id is rejected": "no failure"},
            undo="registry.find = find",
        ),
        Break(
            'check.equal("topics"',
            NO_EVENTS,
            {
                "topics": "moma.public.extra",
                "events of artists": "149 r, 1 u",
                "events of artworks": "1381 r",
                "every value of artists": ("artist_id=1, death_year", "1999"),
                "every value of artworks": ("artwork_id=0: missing", "artwork_id=1, title"),
                "row in the message of artist 1": "1999",
                "states of the connector and its task": "PAUSED",
            },
            undo='topics.delete(world, "moma.public.extra")',
        ),
        Break(
            'landed = spark.read.format("avro")',
            SPOILT_FILES,
            {
                "landed files of artists": ("artist_id=2, gender", "Spoilt"),
                "landed files of artworks": ("artwork_id=3, title", "Spoilt"),
            },
        ),
        Break(
            "the compatible API gives the same schema",
            """
from types import SimpleNamespace

send, without_fields = base.http.call, SimpleNamespace(json=lambda: {"schema": '{"fields": []}'})

def send_or_forge(name, *args, **more):
    return without_fields if name == "the registry" else send(name, *args, **more)

base.http.call = send_or_forge""",
            {
                "the compatible API gives the same schema of artists": "0 fields",
                "the compatible API gives the same schema of artworks": "0 fields",
            },
            undo="""
base.http.call = send
registry.delete(world, f"{museum.flow.topic(world, 'artists')}-value")  # with its second version""",
        ),
        reset_from="51_source_database",
    ),
]

# Artist 3 is the only Albanian: the folder has one file with one row.
DOUBLED_FILE = """
import pathlib

(path,) = pathlib.Path(files.open_filesystem(artists_cow.base)[1]).glob("nationality=Albanian/*.parquet")
other = path.name.replace(path.name.split("_")[0], "00000000-0000-0000-0000-000000000000-0")
path.with_name(other).write_bytes(path.read_bytes())"""
EMPTY_FIELD = """
import pyarrow.parquet

rows_of_file = pyarrow.parquet.read_table(path, partitioning=None)
position = rows_of_file.column_names.index("_hoodie_file_name")
empty = rows_of_file.schema.field(position), pyarrow.array([""] * rows_of_file.num_rows)
path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
pyarrow.parquet.write_table(rows_of_file.set_column(position, *empty), path)
lake[artists_cow.name] = hudi.read(spark, artists_cow).toPandas()"""
OTHER_TABLE = """
from functools import partial

vars(museum.flow)["table"] = partial(museum.flow.table, ordering="__source_ts_ms", extra={})"""
HUDI_INGEST = [
    Run(
        Break(
            "for name, operation in operations.items()",
            OTHER_TABLE,
            {
                **{
                    f"differences from S5/submit_{name}": "key='--source-ordering-field': missing in here"
                    for name in ("artists", "artworks")
                },
                **{
                    f"differences from S5/properties_{name}": "key='hoodie.compact.inline': missing in here"
                    for name in ("artists", "artworks")
                },
            },
            undo='del vars(museum.flow)["table"]',
        ),
        Break(
            'databases = ("moma_cow", "moma_mor")',
            'spark.sql("CREATE TABLE moma_cow.extra (n int) USING parquet")',
            {"tables in the catalog": "extra"},
            undo='spark.sql("DROP TABLE moma_cow.extra")',
        ),
        Break(
            "first = query.sql(",
            LAKE
            + """
museum.flow.change(world, "artists", 1, nationality="French")
museum.flow.sync(spark, world)
fewer = ", ".join(f"`{c}`" for c in spark.table("moma_mor.artists_ro").columns if c != "_hoodie_commit_seqno")
spark.sql("DROP TABLE moma_mor.artists_rt")
spark.sql(f"CREATE VIEW moma_mor.artists_rt AS SELECT {fewer} FROM moma_cow.artists")""",
            {
                "row of artist 1": ("nationality=French", "'u'"),
                "Hudi's own fields": "_hoodie_record_key",
            },
            undo="""
spark.sql("DROP VIEW moma_mor.artists_rt")
hudi.register(spark, museum.flow.table(world, "artists", "mor"))""",
        ),
        Break(
            "second = museum.flow.sync(",
            'museum.flow.change(world, "artists", 2, name="Somebody")',
            {
                "messages of a second run": "ingest 2",
                "commits of each table": "'moma_artists_cow': 3",
            },
        ),
        Break(
            "artist_ids = hudi.read(",
            'rows.write.format("hudi").options(**scratch.options()).mode("overwrite").save(scratch.base)',
            {"a repeated bulk insert is detected": "no failure"},
        ),
        Break(
            "lake = {t.name: hudi.read(spark, t).toPandas()",
            """
artists_cow, artists_mor, artworks_cow, artworks_mor = tables
spoil(artists_cow, "artist_id = 7", nationality="Atlantean")
spoil(artists_mor, "artist_id = 8", operation="delete")
spoil(artists_mor, "artist_id = 9", name="Spoilt")
spoil(artworks_cow, "artwork_id = 1", title="Spoilt")
spoil(artworks_mor, "artwork_id = 1", title="Spoilt")"""
            + DOUBLED_FILE,
            {
                "rows of each table": "'moma_artists_mor': 149",
                "different keys of each table": "'moma_artists_cow': 151",
                "moma_artists_cow by Spark = source": (
                    "artist_id=3: 2 rows",
                    "artist_id=7, nationality",
                ),
                "moma_artists_cow by hudi-rs = source": (
                    "artist_id=3: 2 rows",
                    "artist_id=7, nationality",
                ),
                "moma_artists_mor by Spark = source": ("artist_id=8: missing", "artist_id=9, name"),
                "moma_artists_mor by hudi-rs = source": (
                    "artist_id=8: missing",
                    "artist_id=9, name",
                ),
                "moma_artworks_cow by Spark = source": ("artwork_id=1, title", "Spoilt"),
                "moma_artworks_cow by hudi-rs = source": ("artwork_id=1, title", "Spoilt"),
                "moma_artworks_mor by Spark = source": ("artwork_id=1, title", "Spoilt"),
                "moma_artworks_mor by hudi-rs = source": ("artwork_id=1, title", "Spoilt"),
                "partitions of all tables": "moma_artists_cow/nationality=Atlantean",
                "base files, as published": "[2, 2, 1]",
            },
        ),
        Break(
            "partition, stated = {}, {}",
            """
spark.sql("DROP TABLE moma_mor.artworks_ro")
spark.sql("CREATE TABLE moma_mor.artworks_ro (artwork_id int) USING parquet")
spark.sql("DROP TABLE moma_mor.artists_ro")
spark.sql(f"CREATE TABLE moma_mor.artists_ro USING hudi OPTIONS ('hoodie.query.as.ro.table' = 'false') "
          f"LOCATION '{tables[1].base}'")""",
            {
                "partition columns of each": "'moma_mor.artworks_ro': none",
                "which view reads base files only": "'_ro': 'false'",
                "rows in each view": ("'artists_rt': 149", "'artworks_ro': 0"),
            },
        ),
        Break(
            'fields = ["name", "dataType", "isPartition"]',
            """
spark.sql("DROP TABLE moma_mor.artists_rt")
other = ", ".join(f"`{c}`" for c in spark.table("moma_cow.artists").columns if c != "birth_year")
spark.sql(f"CREATE VIEW moma_mor.artists_rt AS SELECT {other}, 'none' AS birth_year FROM moma_cow.artists")""",
            {"as in reference table S5/artists_rt_columns": "row="},
            undo="""
spark.sql("DROP VIEW moma_mor.artists_rt")
hudi.register(spark, tables[1])""",
        ),
        Break(
            "hudi_fields = [column for column in first.columns",
            EMPTY_FIELD,
            {"rows without one of Hudi's fields": "'moma_artists_cow': 1"},
        ),
        reset_from="53_hudi_ingest",
    ),
]

# After each ingest, write a row into the Copy-on-Write table that the source never had.
SPOILS = (
    LAKE
    + """
ingest = museum.flow.sync

def sync_and_spoil(*args, **kwargs):
    result = ingest(*args, **kwargs)
    spoil(cow, "artwork_id = 128447", date="spoilt")
    return result

vars(museum.flow)["sync"] = sync_and_spoil"""
)
TRIGGERS = """
from workbench.source import postgres

postgres.execute(world, '''
    CREATE FUNCTION other_date() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.date = '1961'; RETURN NEW; END $$;
    CREATE FUNCTION another() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        UPDATE artworks SET title = 'Another' WHERE artwork_id = 1; RETURN NULL; END $$;
    CREATE TRIGGER other_date BEFORE UPDATE ON artworks FOR EACH ROW WHEN (NEW.artwork_id = 128447)
        EXECUTE FUNCTION other_date();
    CREATE TRIGGER another AFTER UPDATE ON artworks FOR EACH ROW WHEN (NEW.artwork_id = 128447)
        EXECUTE FUNCTION another()''', database=museum.DATABASE)
patient = check.eventually
check.eventually = lambda what, condition, timeout, **more: patient(what, condition, 10, **more)"""
UPDATES = [
    Run(
        Break(
            'history = [update("u1")]',
            SPOILS,
            {
                **{
                    f"after {label}, _rt and CoW = source": (
                        "seen_in='moma_cow.artworks', date",
                        "spoilt",
                    )
                    for label in ("u1", "u2", "u3", "u4", "u5")
                },
                "different rows in the three views, compacted": "lake 2",
                "date in all views, compacted again": "spoilt",
                "as in reference table S5/artwork_128447_u5": ("row=1, date", "spoilt"),
                "moma_artworks_cow = source, row by row": ("artwork_id=128447, date", "spoilt"),
                "MoR saves nothing when compacted after every update": "times as much",
            },
        ),
        Break(
            'history += [update("u2")',
            "hudi.compact(spark, mor)",
            {
                "files of _ro after u1 to u4": "2 values",
                "operation of the row in _ro": "'u'",
                "files on disk after u3": "['base', 'log', 'base', 'log', 'log']",
            },
        ),
        Break(
            "compacted = museum.record(",
            """
museum.flow.change(world, "artworks", museum.PICADOR, title="Toreador")
museum.flow.sync(spark, world, cow, mor)""",
            {
                "as in reference table S5/artwork_128447_rt": "row=4, file",
                "file of _ro and of _rt, compacted": ".parquet",
            },
        ),
        Break(
            "with museum.flow.following(",
            TRIGGERS,
            {
                "u5 is in the real-time view without a call of the ingest": "not yet",
                "messages of the continuous ingest": "ingest 2",
            },
            undo="""
check.eventually = patient
postgres.execute(world, "DROP FUNCTION other_date, another CASCADE", database=museum.DATABASE)""",
        ),
        Break(
            "remaining = museum.flow.sync(",
            'museum.flow.change(world, "artworks", museum.PICADOR, title="Matador")',
            {"messages left for a later ingest": "ingest 1"},
        ),
        Break(
            'source_row = museum.flow.rows(world, "artworks", "artwork_id = 128447")',
            """
hudi.compact(spark, mor)
fifth = museum.record(spark, (cow, mor), museum.PICADOR, *columns)""",
            {"the read-optimized view is not current": "no failure"},
        ),
        Break(
            "last = museum.record(",
            """
museum.flow.change(world, "artworks", museum.PICADOR, title="Picador")
museum.flow.sync(spark, world, cow, mor)
compact, hudi.compact = hudi.compact, lambda spark, table: compact(spark, table, "schedule")""",
            {"kinds of file, compacted again": "'log'"},
            undo="hudi.compact = compact",
        ),
        Break(
            "museum.flow.compare(",
            'spoil(mor, "artwork_id = 2", title="Spoilt")',
            {"moma_artworks_mor = source, row by row": ("artwork_id=2, title", "Spoilt")},
        ),
        # Compute the ratio again with the logs of a whole table. One run cannot have logs that are
        # larger than the writes of CoW alone and smaller than them with the compactions.
        Break(
            'compactions = timelines["Merge-on-Read"]',
            """
museum.flow.execute(world, "artworks", "UPDATE artworks SET cataloged_at = '2021-12-31 12:00'")
ingest(spark, world, mor)
ratio = written["Copy-on-Write"] / hudi.commits(mor).query("operation == 'UPSERT'")["bytes"].sum()""",
            {"CoW wrote more bytes than MoR's logs": "expected more than once"},
        ),
        reset_from="53_hudi_ingest",
    ),
]

BREAKS = {
    "51_source_database": SOURCE_DATABASE,
    "52_connectors": CONNECTORS,
    "53_hudi_ingest": HUDI_INGEST,
    "54_updates_and_compaction": UPDATES,
    **TRAVEL,
}
