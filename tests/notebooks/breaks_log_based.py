"""What is broken behind the checks of notebooks 31 to 36; how a break is written stands in
breaking.py."""

from breaking import Break, Run

SOURCE = """
def source(statement):
    postgres.execute(world, statement, database=log_based.DATABASE)
"""
SOURCE_DATABASE = [
    Run(
        Break(
            'last_update = "SELECT last_update',
            SOURCE + 'source("ALTER TABLE language DISABLE TRIGGER ALL")',
            {"an update has set last_update": "later time"},
            undo='source("ALTER TABLE language ENABLE TRIGGER ALL")',
        ),
        Break(
            'films = log_based.flow.rows(world, "film"',
            SOURCE
            + """
source("UPDATE film SET rental_rate = 7.77, special_features = '{Trailers}' WHERE film_id = 1")""",
            {
                "as in reference table S7/film_1": ("row=1, rental_rate", "7.77"),
                "as in reference table S7/films_before": ("row=1, rental_rate", "7.77"),
                "special features of film 1": "source ['Trailers']",
            },
        ),
        Break(
            "a generated column is reported",
            'source("ALTER TABLE film DROP COLUMN revenue_projection")',
            {"a generated column is reported": "no failure"},
        ),
        Break(
            "reading the copies of films is rejected",
            """
user = world.postgres.replication_user
source(f"GRANT SELECT ON inventory TO {user}; GRANT DELETE ON film TO {user}")""",
            {
                "reading the copies of films is rejected": "no failure",
                "writing a film is rejected": "violates foreign key",
            },
        ),
        Break(
            "counts = {name: log_based.flow.count(world, name)",
            'source("DELETE FROM film_actor WHERE film_id = 376")',
            {"rows of the six tables": "film_actor", "actors of films 375 and 376": "375"},
        ),
        Break(
            "trigger_rows = postgres.query(",
            'source("DROP TRIGGER update_last_update_column_language ON language")',
            {"tables with a trigger for last_update": "language"},
        ),
        Break(
            "published = postgres.publications(",
            """
postgres.drop_publication(world, log_based.flow.publication, log_based.DATABASE)
source("CREATE TABLE loans (n int); ALTER TABLE actor REPLICA IDENTITY FULL")
source(f"CREATE PUBLICATION {log_based.flow.publication} FOR ALL TABLES")""",
            {
                "published tables": "kept.public.actor",
                "published FOR ALL TABLES": "database true",
                "replica identities": "full row",
            },
            undo="""
postgres.drop_publication(world, log_based.flow.publication, log_based.DATABASE)
source("DROP TABLE loans")""",
        ),
        reset_from="31_source_database",
    )
]

EXTRA_SCHEMA = """
from workbench.base import http

api = f"{world.registry.url}/apis/registry/v2/groups/default/artifacts"
extra = {"X-Registry-ArtifactId": "pagila.public.extra-value", "X-Registry-ArtifactType": "AVRO"}
http.call("the registry", "POST", api, "string", headers=extra).raise_for_status()"""
# the topic forgets its first message of film 1; the next one has the row before, is an update, and
# has another length
LATER_FILM = (
    SOURCE
    + """
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

source("ALTER TABLE film REPLICA IDENTITY FULL")
log_based.flow.execute(world, "film", "UPDATE film SET length = 87 WHERE film_id = 1")
kafka = AdminClient(topics.settings(world))
for done in kafka.delete_records([TopicPartition(log_based.flow.topic(world, "film"), 0, 1)]).values():
    done.result(10)"""
)
# a file of the same actors, too large, of another codec, and under an offset of its own
STRAY_FILE = """
import pathlib
import pyarrow
from pyarrow import parquet
from workbench.base import files as _files

(first_file,) = pathlib.Path(_files.open_filesystem(log_based.flow.landing_folder(world, "actor"))[1]).rglob("*.parquet")
stray = first_file.with_name("pagila.public.actor+0+0000000900.snappy.parquet")
actors = parquet.ParquetFile(first_file).read()
parquet.write_table(pyarrow.concat_tables([actors] * 2).slice(0, 301), stray, compression="snappy")"""
TOUCHED = "\n".join(
    f'source("UPDATE {table} SET last_update = last_update WHERE {key} = 1")'
    for table, key in (
        ("actor", "actor_id"),
        ("film", "film_id"),
        ("film_actor", "film_id"),
        ("category", "category_id"),
        ("film_category", "film_id"),
        ("language", "language_id"),
    )
)
SIX = ("actor", "film", "film_actor", "category", "film_category", "language")
CONNECTORS = [
    Run(
        Break(
            "events = {name: log_based.events(world, name)",
            LATER_FILM,
            {
                "events of the first snapshot": "film",
                "op of film 1": "message 'u'",
                "before of film 1": "ACADEMY DINOSAUR",
                "snapshot marker of film 1": "message 'false'",
                "the other two values of film 1": "last_update",
                "as in reference table S7/film_1": ("row=1, length", "87"),
                "offsets have no gap from 0 to the last row": ("actor", "film"),
            },
        ),
        Break(
            "def artifacts():",
            EXTRA_SCHEMA,
            {"artifacts after the snapshot": "pagila.public.extra-value"},
        ),
        Break(
            'published.compare(world, "S7/sink_connector"',
            '_sink, sink = sink, {**sink, "tasks.max": "51"}',
            {"differences from S7/sink_connector": "key='tasks.max'"},
            undo="sink = _sink",
        ),
        Break(
            "objects = pd.concat(",
            STRAY_FILE,
            {
                "codec of every file": "'SNAPPY'",
                "records in the largest file": "actual 301",
                "names of the files": "0000000900.snappy",
            },
            undo="stray.unlink()",
        ),
        Break(
            "actors.createOrReplaceTempView",
            'actors = actors.where("after.actor_id <> 7")',
            {"latest actors by the raw events = source": "actor_id=7"},
        ),
        Break(
            'published.compare(world, "S7/source_connector"',
            '_config, config = config, {**config, "poll.interval.ms": "51"}',
            {
                "differences from S7/source_connector": "key='poll.interval.ms', here: here '51', table '50'"
            },
            undo="config = _config",
        ),
        Break(
            "connect.apply(world, log_based.CONNECTOR, config)",
            """
config = {**config, "transforms.unwrap.add.fields": "op,db,table,schema,lsn,source.ts_ms,source.txId"}""",
            {
                "fields of the flat message": "'__source_txId'",
                "versions of each schema": "actor-value",
            },
        ),
        Break(
            "two schemas in one folder are detected",
            '_rows, rows = rows, {**rows, "actor": 1}',
            {"two schemas in one folder are detected": "no failure"},
            undo="rows = _rows",
        ),
        Break(
            "names = [name for name in topics.names(world)",
            'topics.delete(world, log_based.flow.topic(world, "language"))',
            {"the six topics": "expected all of"},
        ),
        Break(
            'check.equal("op of film 1"',
            'raw["source"]["table"], raw["after"]["fulltext"] = "films", ""',
            {"origin of film 1": "'films'", "columns of film 1": "'fulltext'"},
        ),
        Break(
            "now = artifacts()",
            """
del raw["after"]
source(f"UPDATE actor SET last_name = 'Somebody' WHERE actor_id = {old['record']['after']['actor_id']}")""",
            {
                "fields of the first version": "first deployment ['before'",
                "actor of the old message": "'Somebody'",
            },
            undo='http.call("the registry", "DELETE", f"{api}/pagila.public.extra-value").raise_for_status()',
        ),
        Break(
            'columns = list(log_based.flow.rows(world, "actor", "false"))',
            'new["record"].update(__op="c", first_name="ROB")',
            {"actor 7, flat": "'c'", "name of actor 7": "'ROB'"},
        ),
        Break(
            "files = spark.read.parquet(log_based.flow.landing_folder(world, name)).toPandas()",
            TOUCHED,
            {f"landed files of {name} = source": "last_update" for name in SIX},
        ),
        Break(
            "status = connect.status(",
            """
from workbench.connect import rest
rest.KafkaConnect(world).call("PUT", f"/connectors/{log_based.CONNECTOR}/pause")
rest.KafkaConnect(world).wait(lambda: rest.validation.states(connect.status(world, log_based.CONNECTOR)) == {"PAUSED"}, "a pause")""",
            {"states of connector and task": "'PAUSED', 'PAUSED'"},
        ),
        reset_from="31_source_database",
    )
]

# film 1 gets another year, by two changes instead of one, and the log has its row before
SPOILT = (
    SOURCE
    + '''
source("""
    ALTER TABLE film REPLICA IDENTITY FULL; ALTER TABLE film_actor REPLICA IDENTITY FULL;
    CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
        IF TG_WHEN = ''BEFORE'' THEN NEW.release_year = 2022;
        ELSIF pg_trigger_depth() < 2 THEN UPDATE film SET length = length WHERE film_id = 1; END IF; RETURN NEW; END';
    CREATE TRIGGER spoil_row BEFORE UPDATE ON film FOR EACH ROW WHEN (NEW.film_id = 1) EXECUTE FUNCTION spoil();
    CREATE TRIGGER spoil_again AFTER UPDATE ON film FOR EACH ROW WHEN (NEW.film_id = 1) EXECUTE FUNCTION spoil()""")'''
)
AS_IT_WAS = """
source("ALTER TABLE film REPLICA IDENTITY DEFAULT; ALTER TABLE film_actor REPLICA IDENTITY DEFAULT")
source("DROP FUNCTION spoil CASCADE")"""
TWICE = """
import pathlib, shutil
from workbench.base import files as _files

for name in log_based.flow.names:
    folder = pathlib.Path(_files.open_filesystem(log_based.flow.landing_folder(world, name))[1])
    one = sorted(folder.rglob("*.parquet"))[0]
    shutil.copy(one, one.with_name(one.name.replace("0000000", "0000009")))"""
CHANGES = [
    Run(
        Break(
            "techno = change(",
            SPOILT,
            {
                "op and before of film 1's update": "ACADEMY",
                "film 1 after its update": "2022",
                "events of one statement on film 1": "topic 2",
                "last_update of the deleted rows": "before '2017",
                "film 1 in the second snapshot": "2022",
            },
            undo=AS_IT_WAS,
        ),
        Break(
            'set_identity("NOTHING")',
            """
source(f"ALTER PUBLICATION {log_based.flow.publication} DROP TABLE language")""",
            {
                "under NOTHING an UPDATE is rejected": "no failure",
                "under NOTHING a DELETE is rejected": "does not have",
            },
            undo='source(f"ALTER PUBLICATION {log_based.flow.publication} ADD TABLE language")',
        ),
        Break(
            "sources = pd.DataFrame(",
            'change("film", "UPDATE film SET length = length WHERE film_id = 1")',
            {"order of one transaction": "'category', 'film'", "transactions and times": "(2, 2)"},
        ),
        Break(
            "events = log_based.events(",
            'change("actor", touch.format(10))',
            {
                "two overlapping transactions, in the topic and by LSN": "[9, 8, 10]",
                "the smaller LSN has the later commit": "falling times",
            },
        ),
        Break(
            "a row that an open transaction has changed is locked",
            '_touch, touch = touch, touch.replace("= {}", "= -{}")',
            {"a row that an open transaction has changed is locked": "no failure"},
            undo="touch = _touch",
        ),
        Break(
            'change("film_actor", "UPDATE film_actor SET film_id = 100',
            'source("ALTER TABLE film REPLICA IDENTITY FULL")',
            {"film 5's delete": "AFRICAN EGG"},
        ),
        Break(
            "several = change(",
            """
log_based.flow.execute(world, "film_actor", "DELETE FROM film_actor WHERE (actor_id, film_id) = (52, 376)", messages=2)
""",
            {"deleted actors of film 376 named by S7": "topic 60"},
        ),
        Break(
            'check.equal("operations of the deletes"',
            'delete = delete.assign(op="c", after=[{}] * len(delete))',
            {"operations of the deletes": "topic 'c'", "deletes with an after": "stated 0"},
        ),
        Break(
            "befores = pd.DataFrame(",
            "leaving = leaving.iloc[1:]",
            {"keys of the deleted rows = rows before": "not in source", "tombstones": "topic 7"},
        ),
        Break(
            "old_names = {}",
            """
identities["before"] = identities["before"].map(lambda row: row and {**row, "name": "Greek"})""",
            {
                "old names in the events": "Greek",
                "under DEFAULT a delete does not have the old name": "expected not Greek",
            },
        ),
        Break(
            'check.equal("events of an update of a key"',
            "moved = pd.concat([moved, actors_of_375.iloc[:1]])",
            {
                "events of an update of a key": "'c', 'd'",
                "log positions of these events": "topic 2",
            },
        ),
        Break(
            "actors = {52, 60}",
            """
several = several.iloc[::-1].copy()
several.loc[several.index[-1], "__source_ts_ms"] += 1""",
            {
                "times of these deletes": "topic 2",
                "log positions of these deletes increase": "topic",
            },
        ),
        Break(
            'category_sql = "SELECT name FROM category',
            """
source("UPDATE category SET name = 'Punk' WHERE name = 'Steampunk'")
source("INSERT INTO film_actor (actor_id, film_id) VALUES (1, 375)")""",
            {"category of film 3": "'Punk'", "actors of film 375": "source 1"},
        ),
        Break(
            "for name, events in zip(log_based.flow.names, parts)",
            TWICE,
            {f"events of {name} in the files": "2 rows in files" for name in SIX},
        ),
        reset_from="31_source_database",
    )
]

LATEST = [
    Run(
        Break(
            "history = query.sql(",
            SOURCE
            + """
from workbench.source import postgres

for statement in ("UPDATE film SET rental_rate = 7.77 WHERE film_id = 1",
                  "UPDATE film SET rental_duration = 8 WHERE film_id = 2",
                  "INSERT INTO film (film_id, title, language_id) VALUES (5, 'AFRICAN EGG', 1)",
                  "UPDATE film SET description = 'short' WHERE film_id = 6"):
    log_based.flow.execute(world, "film", statement)
log_based.flow.land(spark, world)""",
            {
                "as in reference table S7/films_all_changes": "row=11: not in reference",
                "as in reference table S7/films_latest": "7.77",
                "a tie is detected": "no failure",
                "versions of film 2 with the same time": "raw files 8",
                "rental_duration of film 2": "raw files 8",
                "film 5 in the latest state": "raw files 1",
                "valid_to of film 5": "nan]",
                "last description of film 6 in the files": "short",
            },
        ),
        # the picture is of three versions of film 2
        Break(
            "film_2 = history[",
            """_history, history = history, history[history["rental_duration"] != 8]""",
            {},
            undo="history = _history",
        ),
        Break(
            "joined = {name",
            'positions["after the snapshot"] = positions["film 3 has moved"]',
            {
                "category of film 3 at three positions": "'Steampunk'",
                "category of film 3 where the positions differ": "Steampunk",
            },
        ),
        Break(
            "last = max(int(history",
            'source("INSERT INTO film_category (film_id, category_id) VALUES (3, 1)")',
            {"film_category at the last position = source": "film_id=3"},
            undo='source("DELETE FROM film_category WHERE film_id = 3 AND category_id = 1")',
        ),
        Break(
            'placeholder = "__debezium',
            'films.loc[films.index[0], "description"] = "__debezium_unavailable_value"',
            {"latest descriptions equal to the placeholder": "raw files 1"},
        ),
        Break(
            "check.same_rows(log_based.flow.rows(world, name), log_based.latest(",
            TOUCHED,
            {f"latest state of {name} = source": "last_update" for name in SIX},
        ),
        Break(
            "catalog = sorted(",
            'spark.sql("CREATE TABLE pagila_kafka_connect.extra (n int) USING parquet")',
            {"tables in the catalog": "extra"},
            undo='spark.sql("DROP TABLE pagila_kafka_connect.extra")',
        ),
        Break(
            "steampunk = in_category[",
            """
in_category = in_category[in_category["film_id"] != 3]
log_based.flow.execute(world, "film_actor", "INSERT INTO film_actor (actor_id, film_id) VALUES (1, 375)")
log_based.flow.land(spark, world)""",
            {
                "category of film 3 in the lake": "raw files none",
                "actors of film 375 in the lake": "raw files 1",
            },
        ),
        reset_from="31_source_database",
    )
]

REFINED = [
    Run(
        Break(
            "an outdated refined table is detected",
            '''
from workbench.source import postgres

postgres.execute(world, """
    CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN NEW.rental_rate = OLD.rental_rate; RETURN NEW; END';
    CREATE TRIGGER hold BEFORE UPDATE ON film FOR EACH ROW EXECUTE FUNCTION hold()""", database=log_based.DATABASE)''',
            {"an outdated refined table is detected": "no failure"},
            undo='postgres.execute(world, "DROP FUNCTION hold CASCADE", database=log_based.DATABASE)',
        ),
        Break(
            'partitions = spark.sql(f"SHOW PARTITIONS',
            """
name = "pagila_kafka_connect.pagila_public_film_refined"
spark.sql(f"INSERT INTO {name} VALUES (2000, NULL, 2000, 99, 1, 't', 'XX')")""",
            {
                "partitions in the catalog": "rating=XX",
                "rows by the statistics": "source 999",
                "range of film_id by the statistics": "2000",
                "range of rental_rate by the statistics": "99",
                "films without a title": "catalog 1",
            },
        ),
        Break(
            "rows = query.sql(spark, everything)",
            """
import pathlib
import pyarrow

name = "pagila_kafka_connect.pagila_public_film_refined"
spark.sql(f"ALTER TABLE {name} ADD COLUMNS (extra string)")
spark.sql(f"INSERT INTO {name} VALUES (5, 'X', 2000, 1, 1, 't', 'e', 'PG'), (1002, 'Y', 2000, 1, 1, 't', 'e', 'NR')")
unknown = pathlib.Path(files.open_filesystem(table_folder)[1]) / "rating=X" / "unknown.parquet"
unknown.parent.mkdir()
parquet.write_table(pyarrow.table({"film_id": [1]}), unknown, compression="gzip")""",
            {
                "rows of the refined table": "source 999",
                "refined films = source": "film_id=1002: not in source",
                "film 5 in the refined table": "lake 1",
                "columns, the partition last": "extra",
                "folders": "rating=NR",
                "compression of its files": "'GZIP'",
                "films with rating PG": "lake",
            },
        ),
        Break(
            "scanned = readcost.measure_scan(",
            """count_sql = count_sql.replace(" WHERE rating = 'PG'", "")""",
            {
                "folders that a query for one rating reads": "scan 7",
                "bytes that it reads": "scan",
            },
        ),
        reset_from="31_source_database",
    )
]

COMPARE = [
    Run(
        Break(
            "the poller's state of the actors differs from the source",
            """
_rows = log_based.flow.rows(world, "actor").drop(columns="last_update")
_newest, newest_polled = newest_polled, lambda name: _rows.copy()""",
            {"the poller's state of the actors differs from the source": "no failure"},
            undo="newest_polled = _newest",
        ),
        Break(
            'check.eventually("an event for each change of a row"',
            """
postgres.query(world, "SELECT * FROM actor", database=log_based.DATABASE)
changed_rows["actor"] += 1
log_based.flow.execute(world, "actor", "INSERT INTO actor (first_name, last_name) VALUES ('NEW', 'ACTOR')")
changed_rows["language"] += 1
check_eventually, check.eventually = check.eventually, lambda what, call: check_eventually(what, call, timeout=5)""",
            {
                "an event for each change of a row": "not yet",
                "events of each table": "language",
                "rows of the source that the poller does not have": "actor",
                "rows read from the tables by the log consumer": "expected 0",
            },
            undo="check.eventually = check_eventually",
        ),
        Break(
            "log_based.flow.land(spark, world)",
            """
for name in TABLES:
    postgres.execute(world, f'''
        ALTER PUBLICATION {log_based.flow.publication} DROP TABLE {name};
        UPDATE {name} SET last_update = last_update WHERE {name}_id = 1''', database=log_based.DATABASE)""",
            {
                f"latest state of {name} by the log = source": "last_update"
                for name in ("actor", "category", "language")
            },
            undo="""
for name in TABLES:
    publish = f"ALTER PUBLICATION {log_based.flow.publication} ADD TABLE {name}"
    postgres.execute(world, publish, database=log_based.DATABASE)""",
        ),
        Break(
            "missed = sorted(",
            """
versions.loc[versions.index, "seen by"] = "both"
both_sides = both_sides.drop(index="__lsn").assign(**{"from the poller": "lost"})""",
            {
                "versions that the poller missed": "poller",
                "the poller missed some versions": "0 of",
                "fields from the poller": "__op",
                "more fields from the log": "__lsn",
                "values of the version in both": "lost",
            },
        ),
        Break(
            "_, by_time = seen_at(",
            """
intervals["versions missed"] = 7
history[0]["at"] -= pd.Timedelta(60, "s")""",
            {
                "versions missed, computed by the times of the polls": "log",
                "a longer interval misses more": "7 at 5 s",
            },
        ),
        Break(
            'claim = "deleted rows that the poller still has"',
            """
still_there |= {('actor', 10**6)}
polled_once -= deleted""",
            {
                "deleted rows that the poller still has": "1000000",
                "deleted rows that the poller never saw": "poller",
            },
        ),
        Break(
            'check.true("the poller reads the tables"',
            'poll_history["rows read"] = 0\nby_log = by_log + 1000',
            {"the poller reads the tables": "actual 0", "the log is faster": "less than"},
        ),
        reset_from="31_source_database",
    )
]

BREAKS = {
    "31_source_database": SOURCE_DATABASE,
    "32_connectors": CONNECTORS,
    "33_changes": CHANGES,
    "34_latest": LATEST,
    "35_refined": REFINED,
    "36_compare": COMPARE,
}
