"""What is broken behind the checks of notebooks 41 to 45; how a break is written stands in
breaking.py."""

from breaking import Break, Run

GRANTED = """
connector = f"{world.mysql.replication_user}@'%'"
mariadb.execute(world, f"GRANT CREATE ON sampledatabase.* TO {connector}")
mariadb.execute(world, f"GRANT SELECT ON mysql.* TO {connector}")"""
SOURCE_DATABASE = [
    Run(
        Break(
            'names = "log_bin',
            """
days = float(mariadb.query(world, "SELECT @@expire_logs_days").iloc[0, 0])
mariadb.execute(world, "SET GLOBAL binlog_row_image = 'MINIMAL'")
mariadb.execute(world, "SET GLOBAL expire_logs_days = 0")""",
            {"settings of the log": "'MINIMAL'", "retention of the log": "actual 0"},
            undo="""
mariadb.execute(world, "SET GLOBAL binlog_row_image = 'FULL'")
mariadb.execute(world, f"SET GLOBAL expire_logs_days = {days}")""",
        ),
        Break(
            "file, _, offset = position.rpartition",
            """
movies.execute(world, "CREATE TABLE another (n int)")
movies.execute(world, "INSERT INTO scratch VALUES (2, 'Nosferatu')")
movies.execute(world, "UPDATE scratch SET title = 'M' WHERE id = 2")""",
            {
                "CREATE TABLE in the log": "log 2",
                "inserts in the log": "log 2",
                "updates in the log": "log 2",
            },
            undo='movies.execute(world, "DROP TABLE another")',
        ),
        Break(
            "def as_connector(",
            GRANTED,
            {
                "creating a table is rejected": "no failure",
                "reading another database is rejected": "no failure",
            },
        ),
        Break(
            "tables_sql = ",
            "",
            {"tables": "'t'", "databases visible to the connector": "'mysql'"},
            undo="""
movies.execute(world, "DROP TABLE t")
mariadb.execute(world, f"REVOKE CREATE ON sampledatabase.* FROM {connector}")
mariadb.execute(world, f"REVOKE SELECT ON mysql.* FROM {connector}")""",
        ),
        reset_from="41_source_database",
    )
]

# a version more, another artifact whose name begins with the topic's, and a task that the sink has
# no work for
TOO_EARLY = """
registry.register(world, f"{movies.TOPIC}-extra", "string")
connect.apply(world, movies.FILE_SINK, {**sinks[movies.FILE_SINK], "topics": movies.TOPIC, "tasks.max": "2"})"""
# what the connector makes of a row: another name, a key of two columns, a field more
OTHER_SHAPE = """
config = {
    **config, "message.key.columns": "sampledatabase.movies:movie_id,release_year",
    "transforms.unwrap.add.fields": "op,source.ts_ms,source.file", "transforms": "unwrap,named",
    "transforms.named.type": "org.apache.kafka.connect.transforms.SetSchemaMetadata$Value",
    "transforms.named.schema.name": "db1.other.Value"}"""
OPEN = """
from workbench.base import files as _files
import pyarrow
from pyarrow import parquet

def opened(found):
    return [Path(_files.open_filesystem(one.folder)[1]) / one.file for one in found.itertuples()]
"""
NARROW_FILES = (
    OPEN
    + """
for path in opened(files):
    parquet.write_table(parquet.ParquetFile(path).read().drop_columns(["__deleted"]), path)"""
)
CONNECTORS = [
    Run(
        Break(
            'published.compare(world, "S4/source_connector"',
            '_config, config = config, {**config, "heartbeat.interval.ms": "10001"}',
            {"differences from S4/source_connector": ("key='heartbeat.interval.ms'", "10001")},
            undo="config = _config",
        ),
        Break(
            'published.compare(world, "S4/sink_connector"',
            """
def other_config(*asked):
    return {**told(*asked), "flush.size": "11"}

told, connect.config = connect.config, other_config""",
            {
                "differences from S4/sink_connector": "key='flush.size'",
                "records in each file": "[11, 2]",
            },
            undo="connect.config = told",
        ),
        Break(
            "connect.apply(world, movies.CONNECTOR, config)\n\n\ndef states",
            OTHER_SHAPE,
            {
                "fields of the first version": "'__source_file'",
                "names of the first version": "db1.other",
                "fields of the key": "'release_year'",
            },
        ),
        Break(
            "states_before = states()",
            TOO_EARLY,
            {
                "states before the table existed": "'RUNNING', 'RUNNING', 'RUNNING'",
                "states after table, messages and schemas": "'RUNNING', 'RUNNING', 'RUNNING'",
                "messages and schemas before the table existed": "db1.sampledatabase.movies-extra",
            },
        ),
        Break(
            'rows = movies.flow.count(world, "movies")',
            """
topics.wait_for_messages(world, movies.TOPIC, 12, connector=movies.CONNECTOR)
movies.flow.change(world, "movies", 101, title="Spoilt")""",
            {
                "operation of each row": "'u'",
                "messages = source, row by row": "movie_id=101: 2 rows in topic",
            },
        ),
        Break(
            "artifacts = registry.artifacts(world)",
            """
registry.register(world, f"{movies.TOPIC}-value", {**value_schema, "doc": "another"})""",
            {
                "versions of both schemas": ("movies-extra", "'1', '2'"),
                "schema ids in the messages": "registry",
            },
            undo='registry.delete(world, f"{movies.TOPIC}-extra")',
        ),
        Break(
            "a connector without its schema history fails",
            """
topics.create(world, "dbhistory.lost")
known = topics.read(world, config["schema.history.internal.kafka.topic"])
topics.produce(world, "dbhistory.lost", [(None, value) for value in known["value"]])""",
            {"a connector without its schema history fails with a reason": "no failure"},
        ),
        Break(
            'source = movies.flow.rows(world, "movies")',
            """
movies.execute(world, "INSERT INTO movies VALUES (999, 'Unsent', 1999)")
records.loc[0, "__source_ts_ms"] = 0""",
            {
                "messages = source, row by row": (
                    "movie_id=101: 2 rows in topic",
                    "movie_id=999: missing in topic",
                ),
                "every message has a time": "actual 0",
            },
        ),
        Break(
            'check.equal("records in each file"',
            NARROW_FILES,
            {
                "columns of the files": "files",
                "files = source, row by row": "movie_id=999: missing in files",
            },
        ),
        Break(
            "if movies.FILE_SINK in waiting:  # the text file has",
            """
patient = check.eventually
check.eventually = lambda what, condition, timeout=5, **more: patient(what, condition, timeout, **more)""",
            {"lines of the sink that waited": "not yet"},
            undo="check.eventually = patient",
        ),
        reset_from="42_connectors",
    )
]

# the first message once more, with another title
ANOTHER_MESSAGE = """
seen = topics.read(world, movies.TOPIC, limit=1).iloc[0]
record = {**registry.inspect_message(world, seen["value"])["record"], "title": "Spoilt"}
spoilt = registry.encoder(world, int(versions().iloc[0]["global_id"]))(record)
topics.produce(world, movies.TOPIC, [(seen["key"], spoilt)])"""
# whoever lands takes a row out of the oldest file, and puts those of the last two into one
OTHER_LANDING = (
    "from pathlib import Path\n"
    + OPEN
    + """
def spoiling(*asked):
    done = landed(*asked)
    paths = opened(frames.parquet_files(folder))
    held = [parquet.ParquetFile(path).read() for path in paths]
    parquet.write_table(held[0].slice(0, 9), paths[0])
    parquet.write_table(pyarrow.concat_tables(held[-2:]), paths[-1])
    paths[-2].unlink()
    return done

landed, landing.run_once = landing.run_once, spoiling"""
)
EVOLVE = [
    Run(
        Break(
            "topics.wait_for_messages(world, history, history_count + 1",
            ANOTHER_MESSAGE,
            {
                "messages and versions after the ALTER": "'messages': 13",
                "columns of old and of new files": "true: ['movie_id, title, release_year, __deleted",
                "files = source": "movie_id=101: 2 rows in files",
                "read as version 1 = source": "movie_id=101: 2 rows in reader",
            },
        ),
        Break(
            'sql_file("movies/insert_data_with_new_column")',
            """
movies.execute(world, "ALTER TABLE movies MODIFY COUNTRY varchar(64) NULL, MODIFY release_year int NOT NULL FIRST")""",
            {
                "fields added by version 2": "'null'",
                "fields of version 2": "registry",
                "all other fields": "only version 2: position 1: 'release_year'",
                "field before COUNTRY": "registry 'title'",
                "a reader of version 2 cannot read version 1": "no failure",
            },
            undo="topics.wait_for_messages(world, movies.TOPIC, rows + 1)",
        ),
        Break(
            "files_before = ",
            OTHER_LANDING,
            {
                "the earlier files are unchanged": ("records: now 9", "bytes: now", "written: now"),
                "no file has more than ten records": "actual 12",
                "files = source": (
                    "movie_id=101: 2 rows in files",
                    "movie_id=110: missing in files",
                ),
            },
            undo="landing.run_once = landed",
        ),
        Break(
            'past = hudi.as_of(spark, world, table, "version_1")',
            'hudi.label(world, table, "version_1")',
            {
                "COUNTRY as of version 1": "COUNTRY",
                "as of version 1 = the old rows": "movie_id=201: not in source",
            },
        ),
        Break(
            'claim = "messages and versions after the ALTER"',
            'registry.register(world, f"{movies.TOPIC}-value", {**version_2, "doc": "another"})',
            {"versions now": "'3'", "schema ids of these messages": "registry"},
        ),
        Break(
            'source = movies.flow.rows(world, "movies")',
            'movies.flow.change(world, "positions", 101, COUNTRY="France")',
            {
                "rows filled by the ALTER": "source 11",
                "Spark = source": "movie_id=101, COUNTRY",
                "hudi-rs = source": "movie_id=101, COUNTRY",
            },
        ),
        Break(
            "unchanged = movies.execute(",
            """
movies.execute(world, '''
    CREATE TRIGGER shout BEFORE UPDATE ON movies FOR EACH ROW SET NEW.title = concat(OLD.title, '!')''')""",
            {"rows changed by an UPDATE to the same value": "MariaDB 24"},
            undo="""
movies.execute(world, "DROP TRIGGER shout")
for name, n in counts.items():
    topics.wait_for_messages(world, movies.flow.topic(world, name), n + unchanged)
counts = {name: n + unchanged for name, n in counts.items()}""",
        ),
        Break(
            "sent = {name: topics.offset_span(",
            ANOTHER_MESSAGE,
            {"messages of the backfill": "'movies': 1"},
        ),
        Break(
            "as_of_version_2 = hudi.as_of(",
            'hudi.label(world, table, "version_2")',
            {"movies without a country": "'version_2': 0"},
        ),
        Break(
            'check.equal("rows changed by an UPDATE',
            'now.loc[now["movie_id"] == 105, "COUNTRY"] = None',
            {"the lake after the backfill = source": "movie_id=105, COUNTRY"},
        ),
        Break(
            "both = [(1, version_1, stated_1)",
            '_version_1, version_1 = version_1, {**version_1, "fields": version_1["fields"][1:]}',
            {"fields of version 1": "registry"},
            undo="version_1 = _version_1",
        ),
        Break(
            "changes = list(hudi.schema_changes(table)",
            """
movies.execute(world, "ALTER TABLE movies ADD COLUMN extra int")
movies.flow.change(world, "positions", 101, title="Spoilt")
movies.flow.ingest(spark, world, table)""",
            {"schema changes in the commits": "'added extra int'"},
        ),
        reset_from="42_connectors",
    )
]

SOON = """
patient = check.eventually
check.eventually = lambda what, condition, timeout=10, **more: patient(what, condition, timeout, **more)"""
# the registry has another second version: of its new column that may be null
GENTLE = """
first_two = registry.versions(world, artifact)
for field in first_two[1]["fields"]:
    if field["name"] == "COUNTRY":
        field.update(type=["null", "string"], default=None)
registry.delete(world, artifact)
for each in first_two:
    registry.register(world, artifact, each)"""
# names of columns in capitals, of a text, and of a number that becomes a text (a schema with both
# names would be a dead letter only); a number that becomes a double; and always the same key
OTHER_CHANGES = """
changes["add nullable"]["fields"][1]["name"] = "TITLE"
changes["widen int to long"]["fields"][2]["type"] = "double"
changes["change int to string"]["fields"][2]["name"] = "YEAR"
NEW.update(id=1, TITLE="Solaris", YEAR="1972")"""
PAUSED = """
from workbench.base import wait_until
from workbench.connect import rest

rest.KafkaConnect(world).call("PUT", f"/connectors/{movies.CONNECTOR}/pause")
wait_until(lambda: rest.validation.states(connect.status(world, movies.CONNECTOR)) == {"PAUSED"}, "a pause")"""
# while it is paused the rule goes, so that nothing stops it
NOT_STOPPED = (
    SOON
    + """
registry.set_compatibility(world, artifact, "NONE")
rest.KafkaConnect(world).call("PUT", f"/connectors/{movies.CONNECTOR}/resume")"""
)
LATER_MOVIE = """
movies.execute(world, insert, [302, "Solaris", 1972, "USSR"])
wait_until(lambda: registry.inspect_message(world, topics.read(world, movies.TOPIC)["value"].dropna().iloc[-1])["record"][
    "movie_id"] == 302, "a later movie")"""
COMPATIBILITY = [
    Run(
        Break(
            "version_1, version_2 = registry.versions(world, artifact)",
            GENTLE,
            {"version 2 may follow": "'BACKWARD': true"},
        ),
        Break(
            "nullable = {",
            """
fields = [{**f, "type": "int"} if f["name"] == "COUNTRY" else f for f in version_2["fields"]]
another = {**version_2, "fields": fields}
registry.register(world, scratch, another)""",
            {"modes that reject the nullable variant": "'BACKWARD'"},
        ),
        Break(
            "reasons_of_registry = pd.DataFrame(",
            """
def without_key(world, artifact, schema):
    return registered(world, artifact, {**schema, "fields": schema["fields"][1:]})

registered, registry.register = registry.register, without_key
del changes["narrow long to int"]""",
            {
                "registry = Avro's rules": ("change='drop', BACKWARD", "registry false"),
                "questions to the registry": "registry 56",
            },
            undo="registry.register = registered",
        ),
        Break(
            'registry.register(world, scratch, changes["drop"])',
            "registry.delete(world, scratch)",
            {"a transitive mode compares with all versions": "'BACKWARD_TRANSITIVE': true"},
        ),
        Break(
            "outcomes = pool.map(",
            OTHER_CHANGES,
            {
                "changes that stop the table": "'add nullable'",
                "rows after each change": "'add required': 1",
                "the error names the field and both types": "YEAR",
                "type of a widened number": "widened year int to double",
            },
        ),
        Break('registry.set_compatibility(world, artifact, "FORWARD")', PAUSED, {}),
        Break(
            "the connector is stopped by the registry",
            NOT_STOPPED,
            {
                "the connector is stopped by the registry": "not yet",
                "versions after the rejection": "registry 3",
            },
        ),
        Break(
            "def newest():",
            LATER_MOVIE,
            {
                "the pending change arrives": "not yet",
                "the change after the restart": "(302, 'Solaris')",
            },
            undo="check.eventually = patient",
        ),
        Break(
            """RENAME COLUMN "name" TO title""",
            "registry.register(world, artifact, first)",
            {"versions after the mode was relaxed": "one more 3"},
        ),
        Break(
            "check.true(\"the connector's state",
            """
failure = "connector 'movies_source' is FAILED: the registry refuses a schema: year at /fields/2"
version_3["fields"] = version_3["fields"][1:]
movies.execute(world, "ALTER TABLE movies ADD COLUMN extra int")""",
            {
                "the connector's state shows the reason": "year at",
                "required fields missing in the rejected schema": "movie_id",
                "columns of the table at the end": "'extra'",
            },
        ),
        reset_from="42_connectors",
    )
]

# a letter that came from nowhere, and has no reason
STRAY_LETTERS = """
for topic in movies.DLQ_TOPICS.values():
    topics.produce(world, topic, [("409", b"stray")])"""
WHO = ("connect", "landing", "lake")
DEAD_LETTERS = [
    Run(
        Break(
            "a message that is too large is rejected",
            "sent, topics.produce = topics.produce, lambda *asked: None",
            {"a message that is too large is rejected": "no failure"},
            undo="topics.produce = sent",
        ),
        Break(
            "def line_count():",
            SOON
            + """
from workbench.base import wait_until

wait_until(lambda: len(text_file.read_text().splitlines()) == rows + 1, "all lines")
with text_file.open("a") as file:
    file.write("another line of The Sacrifice\\n")""",
            {
                "the sink in Connect has written": "not yet",
                "read + dead letters = sent": "'connect': 30",
                "the message after the poison messages": "'connect': 2",
                "lines in the file": "not yet",
            },
        ),
        Break(
            "def repaired(dead_letter):",
            'dlq.replay(world, dlq_topics["lake"], transform=lambda letter: encoded[letter.key.decode()])',
            {"dead letters replayed, and the second time": "(0, 0)"},
        ),
        Break(
            "landed_again = landing.run(",
            """
more = registry.encoder(world, id)(movie(407, "Andrei Rublev", 1966))
topics.produce(world, movies.POISONED_TOPIC, [("407", more)])""",
            {
                "records in files": "landing 30",
                "lake = messages sent, row by row": "movie_id=407: not in source",
            },
        ),
        Break(
            "totals = {",
            STRAY_LETTERS,
            {
                **{f"dead letters of {who}": "409" for who in WHO},
                **{f"origins in {who}": "-1" for who in WHO},
                **{f"reasons in {who}": "actual ''" for who in WHO},
                "dead letters at the end": "'connect': 5",
            },
        ),
        Break(
            'again = {"landing"',
            "landed_again = landed",
            {"dead letters of the second run": "'landing': 4"},
        ),
        Break(
            "task = connect.status(",
            """
from workbench.connect import rest

rest.KafkaConnect(world).call("PUT", f"/connectors/{movies.FILE_SINK}/pause")
wait_until(lambda: rest.validation.states(connect.status(world, movies.FILE_SINK)) == {"PAUSED"}, "a pause")""",
            {"state of the sink": "'PAUSED'"},
        ),
    )
]

BREAKS = {
    "41_source_database": SOURCE_DATABASE,
    "42_connectors": CONNECTORS,
    "43_evolve": EVOLVE,
    "44_compatibility": COMPATIBILITY,
    "45_dead_letters": DEAD_LETTERS,
}
