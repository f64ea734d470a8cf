"""Breaks for the checks of notebooks 55 to 58.

breaking.py documents the format.
"""

from breaking import STORED_OUTPUT, Break, Run

# Write rows into a table of the lake that the source never had.
LAKE = """
from pyspark.sql import functions as F

def spoil(table, where, operation="upsert", **values):
    rows = hudi.read(spark, table).where(where)
    rows = spark.createDataFrame(rows.collect(), rows.schema)
    rows = rows.drop(*[c for c in rows.columns if c.startswith("_hoodie_")])
    for name, value in values.items():
        rows = rows.withColumn(name, F.lit(value).cast(rows.schema[name].dataType))
    options = {**table.options(), "hoodie.datasource.write.operation": operation}
    rows.write.format("hudi").options(**options).mode("append").save(table.base)
"""

DELETES = [
    Run(
        Break(
            'before = museum.flow.rows(world, "artists", "artist_id = 441")',
            'museum.flow.change(world, "artists", 441, name="Somebody Else")',
            {
                "name in the old row of _ro": "Somebody Else",
                **{
                    f"artist 441 in {kind} as of `loaded` = source before": (
                        "artist_id=441, name",
                        "Somebody Else",
                    )
                    for kind in ("cow", "mor")
                },
            },
        ),
        Break(
            "deleted = museum.record(",
            """
museum.flow.execute(world, "artists", "INSERT INTO artists VALUES (441, 'Somebody', 'Swiss', 'Male', 1921, 1999)")""",
            {
                "artist 441 before the compaction": "'c'",
                "artist 441 after the compaction": "'c'",
                "attributes of artist 441 that are null": "only all of them: position",
                "rows of 441 in the scratch tables": ("'cow': 1", "'rt': 1"),
                "rows of 441 in them, compacted": ("'cow': 1", "'rt': 1"),
                "as in reference table S5/artist_441": ("row=1, name", "Somebody"),
                "partition of artist 441, deleted": "nationality=Swiss",
                "artist 441 is among the deleted": "actual [0]",
                "a count that includes deleted rows is detected": "no failure",
            },
        ),
        Break(
            "source_count = museum.flow.count(",
            LAKE
            + """
for table in (cow, mor):
    spoil(table, "artist_id = 2", __deleted="true")""",
            {
                "artists, without deleted rows": "lake 149",
                "moma_artists_cow, without deleted rows = source": "artist_id=2: missing",
                "moma_artists_mor, without deleted rows = source": "artist_id=2: missing",
                "deleted in moma_artists_cow": "{0, 2}",
                "deleted in moma_artists_mor": "{0, 2}",
            },
        ),
        Break(
            'artist = int(museum.flow.rows(world, "artists"',
            """
museum.flow.execute(world, "artists", "INSERT INTO artists VALUES (0, 'Somebody', 'Polish', 'Male', 1921, 1999)")
museum.flow.sync(spark, world, cow, mor)""",
            {"the moved artist before the compaction": "'c'"},
        ),
        Break(
            "after = {key: museum.record(",
            """
museum.flow.delete(world, "artists", artist)
museum.flow.sync(spark, world, cow, mor)""",
            {"the moved artist after the compaction": "'d'"},
        ),
        reset_from="53_hudi_ingest",
    ),
]

# The label t3 was set too late: it has the instant of t5.
SLIPPED = """
for table in (cow, mor):
    position = hudi.labels(world, table).set_index("label").loc["t3", "position"]
    hudi.label(world, table, "t3", position)"""
# Hide the files of the first commit, so that the second one looks like the first.
HIDDEN = """
import pathlib
from workbench.base import files

folder = pathlib.Path(files.open_filesystem(mor.base)[1]) / ".hoodie"
first = hudi.commits(mor)["instant"].iloc[0]
hidden = {path: path.with_name("hidden." + path.name) for path in folder.glob(f"{first}*")}
for path, elsewhere in hidden.items():
    path.rename(elsewhere)"""
SHOWN = """
for path, elsewhere in hidden.items():
    elsewhere.rename(path)"""
# Set a label t6, and add a commit with an instant of the day after tomorrow.
EARLY = """
hudi.label(world, mor, "t6")
last = hudi.commits(mor)["instant"].iloc[-1]
early = []
for path in list(folder.glob(f"{last}*")):
    early.append(path.with_name(path.name.replace(last, str(int(last) + 2_000_000_000))))
    early[-1].write_bytes(path.read_bytes())"""
AGAIN = """
museum.flow.execute(world, "artists", "INSERT INTO artists VALUES (299, 'Somebody', 'Swiss', 'Male', 1906, 1988)")
museum.flow.sync(spark, world, cow, mor)"""
FORGOTTEN = """
from workbench.base import http

api = f"{world.registry.url}/apis/registry/v2/groups/default/artifacts"
http.call("the registry", "DELETE", f"{api}/{history.topic}-value").raise_for_status()"""
SPOILT_PAST = {
    **{f"all artists at t{n} = source": ("artist_id=1, name", "Spoilt") for n in range(6)},
    **{f"all artists at t{n} = last events": ("artist_id=1, name", "Spoilt") for n in range(6)},
    "artist 299 in the CoW table": ("t0", "Spoilt"),
}
TIME_TRAVEL = [
    Run(
        Break(
            'museum.flow.sync(spark, world, cow, mor, label="t0")',
            LAKE
            + """
spoil(mor, "artist_id = 1", name="Spoilt")
spoil(cow, "artist_id = 299", name="Spoilt")""",
            SPOILT_PAST,
        ),
        Break(
            'labels = ["t0", *museum.RECORD_HISTORY]',
            SLIPPED,
            {
                "as in reference table S5/artist_299_instants": "row=4, __op",
                STORED_OUTPUT: "t3    d ",
                "file groups of the changes of artist 299": ": position 4: ",
                "commits of the changes in moma_artists_mor": ": position 4: ",
                "commits of the changes in moma_artists_cow": ": position 4: ",
                "LSNs that _rt shows or has shown": "as of the labels",
                "each commit time is later than the one before": "5 of 6, not t4",
                "each commit time is after the instant before": "5 of 6, not t4",
                "the time halfway is between two commits": "actual 2",
                "commit of the result halfway": "label t3",
                "artist 299 halfway = at t3": "artist_id=299, __op",
                "instants of artist 299 in each partition": "'default': 2",
            },
        ),
        Break(
            'first = hudi.commits(mor)["instant"].iloc[0]',
            HIDDEN,
            {"rows before the first commit": "hudi.as_of 0 · Hudi 150"},
            undo=SHOWN,
        ),
        Break(
            '"a label that was never set is rejected"',
            EARLY,
            {
                "a label that was never set is rejected": "no failure",
                "an instant in the future is rejected": "no failure",
            },
            undo="for path in early:\n    path.unlink()",
        ),
        Break(
            'log = museum.flow.events(spark, world, "artists")',
            AGAIN,
            {
                "LSNs of the changes of artist 299": "change log",
                "partitions of the changes": "0, 0, 0, 0, 0, 0, 0, 0]",
                "transactions of the changes": "change log",
                "offsets of the changes": "change log",
                "LSNs shown now in moma_cow.artists": "lake",
                "LSNs shown now in moma_mor.artists_ro": "lake",
                "LSNs shown now in moma_mor.artists_rt": "lake",
                "rows of artist 299 in the source now": "source 1",
            },
        ),
        Break(
            "artifacts = registry.artifacts(world)",
            FORGOTTEN,
            {"schema versions of the changes": "registry ['none'"},
        ),
        Break(
            'rows = list(past["t"].value_counts()',
            """
spoil(mor, "artist_id = 299", operation="bulk_insert")
hudi.label(world, mor, "t5")
asked_again = hudi.as_of(spark, world, mor, "t5").where("artist_id = 299").select(columns).toPandas()
past = pd.concat([past[past["t"] != "t5"], asked_again.assign(t="t5")])""",
            {"rows of artist 299 at each instant": "[1, 1, 1, 1, 1, 2]"},
        ),
        reset_from="51_source_database",
    ),  # without the schema nothing tells what to set back
]

# Two artists change after the last label. The label t3 gets the instant of t4, and t4 and t5 get
# those of the two changes.
LATE_LABELS = """
from workbench.base import files
from workbench.hudi.tables import table_state_dir

instants = dict(hudi.labels(world, mor)[["label", "instant"]].values)
for key in (2, 3):
    museum.flow.change(world, "artists", key, name="Somebody")
    museum.flow.sync(spark, world, mor)
late = dict(zip(("t3", "t4", "t5"), (instants["t4"], *hudi.commits(mor)["instant"].iloc[-2:])))
place = f"{table_state_dir(world, mor)}/labels.json"
labels = [{**each, "instant": late.get(each["label"], each["instant"])} for each in json.loads(files.read_text(place))]
files.write_text(place, json.dumps(labels))"""
# An incremental query with an inclusive beginning.
INCLUSIVE = """
between = hudi.between

def inclusive(spark, world, table, begin, end):
    if begin == end:
        begin = str(int(hudi.labels(world, table).set_index("label").loc[begin, "instant"]) - 1)
    return between(spark, world, table, begin, end)

hudi.between = inclusive"""
# Hudi's change query omits the first updated row. Here there is one more updated row before it.
ONE_MORE = """
hudi.drop(spark, world, table)
write(table, spark.range(0, 6), "'old'", 0)
write(table, spark.range(0, 4), "'new'", 1)"""
# If the file of the first rows has the bare text m, its rows are found. A row in another file is
# still lost.
FOUND = """
write(table, spark.range(1), "'m'", 2)
bulk = {**table.options(), "hoodie.datasource.write.operation": "bulk_insert"}
single_row = spark.range(1000, 1001).selectExpr("cast(id AS int) id", "'m1000' AS text", "2L AS `__lsn`")
single_row.write.format("hudi").options(**bulk).mode("append").save(table.base)"""
# The read-optimized entry refers to a copy of the table in which one folder is empty.
COSTS = (
    LAKE
    + """
import pathlib
import shutil

artworks = museum.flow.table(world, "artworks", "mor")
spoil(artworks, "artwork_id = 128447", operation="bulk_insert", classification="Drawing")
copied = pathlib.Path(files.open_filesystem(artworks.base)[1] + "_copied")
shutil.copytree(files.open_filesystem(artworks.base)[1], copied)
for path in (copied / "classification=Design").glob("*.parquet"):
    path.unlink()
spark.sql("DROP TABLE moma_mor.artworks_ro")
spark.sql(f"CREATE TABLE moma_mor.artworks_ro USING hudi OPTIONS ('hoodie.query.as.ro.table' = 'true') "
          f"LOCATION 'file:{copied}'")
with_partition = QUERIES["a key and its partition (Q7)"]
QUERIES["a key and its partition (Q7)"] = QUERIES["a key (Q6)"]"""
)
COSTS_BACK = """
hudi.register(spark, artworks)
shutil.rmtree(copied)"""
INCREMENTAL = [
    Run(
        Break(
            "changed = hudi.between(",
            LATE_LABELS,
            {
                "what changed from t1 to t4": ("artist_id=2: not in", "artist_id=299, __op"),
                "commits in the increment t1 to t4": "lake {",
                "t2 to t3": "artist_id=299, birth_year",
                "t3 to t4": "artist_id=2: not in",
                "artist 299 up to t3": "artist_id=299, birth_year",
                "t4 to t5, the deletion": "artist_id=299: missing",
                "columns of artist 299 with their new values": "None",
                "the old values of these columns": "gender",
            },
        ),
        Break(
            'spans = [("t3", "t3")',
            INCLUSIVE,
            {"rows from t3 to t3": "lake 1"},
            undo="hudi.between = between",
        ),
        Break(
            '"hoodie.datasource.query.incremental.format": "cdc"',
            ONE_MORE,
            {"Hudi's change query lacks a row": "no failure"},
        ),
        Break(
            "measured = {}",
            COSTS,
            {
                "partitions read by Q7": "scan 26",
                "base files of each query": "_ro",
                "the plan filters partitions": "PartitionFilters: []",
                "rows of each query": "a key (Q6), _rt: 2, not 1",
                "moma_artworks_mor = source, row by row": "artwork_id=128447: 2 rows",
            },
            undo=COSTS_BACK,
        ),
        Break(
            "prints = query.sql(spark, Q9)",
            """
artworks = museum.flow.table(world, "artworks", "cow")
dated = "artist_id = 4609 AND classification = 'Print' AND date IS NOT NULL"
known = museum.flow.rows(world, "artworks", dated)["artwork_id"]
spoil(artworks, f"artwork_id = {known.iloc[0]}", operation="delete")
spoil(artworks, f"artwork_id = {known.iloc[1]}", title="Spoilt")""",
            {
                "Q9, in order": "row_number=82: missing",
                "rows of Q9 = dated prints of the artist": "lake 82 ",
                "rows of Q9 and the Picador while it is undated": "lake 83",
                "moma_artworks_cow = source, row by row": (": missing", "Spoilt"),
            },
        ),
        Break(
            "def count_rows(skipping",
            FOUND,
            {
                "rows that begin with m, without data skipping": "lake 1001",
                "with data skipping, rows are lost": "no failure",
            },
        ),
        Break(
            "as_of_t3 = hudi.as_of(",
            HIDDEN,
            {"all artists up to t3 = as of t3": "artist_id=1: missing"},
            undo=SHOWN,
        ),
        Break(
            "by_key = query.sql(",
            'QUERIES["a key and its partition (Q7)"] = with_partition',
            {"Q7 = Q6": "artwork_id=128447: 2 rows in Q6"},
        ),
        Break(
            'classifications = museum.flow.rows(world, "artworks")',
            """
museum.flow.execute(world, "artworks", "INSERT INTO artworks (artwork_id, classification) VALUES (0, 'Hologram')")""",
            {"partitions read by Q6": "source 27"},
        ),
        Break(
            "partitions = readcost.measure_scan(spark, Q9, runs=1)",
            """
Q9 = Q9.replace("w.classification = 'Print' AND ", "")""",
            {"partitions read by Q9": "scan 27"},
        ),
        reset_from="53_hudi_ingest",
    ),
]

PLACES = """
import pathlib
from workbench.base import files

folder = pathlib.Path(files.open_filesystem(scratch.base)[1])
properties_file = folder / ".hoodie" / "hoodie.properties"
properties_text = properties_file.read_text()
properties_file.with_name(f".{properties_file.name}.crc").unlink(missing_ok=True)
properties_file.write_text(properties_text.replace("hoodie.table.version=6", "hoodie.table.version=8"))"""
# Hide the commits of the compactions.
NO_COMPACTION = """
hidden = {path: path.with_name("hidden." + path.name) for path in (folder / ".hoodie").glob("*.commit")}
for path, elsewhere in hidden.items():
    path.rename(elsewhere)"""
# After the savepoint, add a row without a year of birth, and one that the faulty job does not write.
AFTER_SAVEPOINT = """
one = sample.where("artist_id = 1").withColumn("birth_year", F.lit(None).cast("int"))
one = one.unionByName(one.withColumn("artist_id", F.lit(0)))
write(one.withColumn("__lsn", F.col("__lsn") + 8), "after_savepoint")"""
NO_LOGS = """
for partition, name in readcost.unmerged_logs(scratch)[["partition", "file"]].values:
    (folder / partition / name).unlink()
    (folder / partition / f".{name}.crc").unlink(missing_ok=True)"""
# The French and the American artists get logs, a compaction and one more row.
MORE_LOGS = """
more = aged(6).where("nationality <> 'German'")
write(more.unionByName(sample.where("artist_id = 1").withColumn("artist_id", F.lit(0))), "more")
hudi.compact(spark, scratch)"""
PENDING = """
write(aged(7).where("nationality = 'German'"), "pending")
hudi.compact(spark, scratch, "schedule")"""
# The cleaning removes one more file than it reports.
GONE_BESIDES = """
for label in ("loaded", "faulty"):
    hudi.label(world, scratch, label)
stray = folder / "nationality=German" / "stray-0_0-0-0_20990101000000000.parquet"
stray.write_bytes(next((folder / "nationality=German").glob("*.parquet")).read_bytes())
honest = call

def call(procedure, **arguments):
    result = honest(procedure, **arguments)
    stray.unlink()
    return result"""
SERVICES = [
    Run(
        Break(
            "entry = hudi.register(spark, scratch)",
            'museum.flow.change(world, "artists", 1, name="Somebody")',
            {"table = source with three updates": ("artist_id=1, name", "Somebody")},
        ),
        Break(
            'properties = call("show_table_properties"',
            PLACES,
            {"table version": "8"},
            undo="properties_file.write_text(properties_text)",
        ),
        Break(
            'blocks = call("show_logfile_metadata"',
            'write(aged(4), "fourth")',
            {
                "rows in each log block": "blocks [4, 4, 4, 4]",
                "instants of the commits": "show_commits 4 values",
                "rows written by each": "timeline [86, ",
            },
        ),
        Break(
            'amplification_by_hudi = call("stats_wa")',
            'write(aged(5), "fifth")\nhudi.compact(spark, scratch)',
            {
                "instants of the log blocks": "blocks 4 values",
                "states of the compaction": "['COMPLETED'",
                "rows that stats_wa counts": "stats_wa ",
                "removed logs of the updates": "on disk 15",
                "before = after the rollback": ("birth_year: after 1905", "before 1903"),
            },
        ),
        Break(
            "timeline = hudi.commits(scratch)",
            NO_COMPACTION,
            {
                "a compaction writes unchanged rows, too": "timeline 0",
                "bytes that the commits report": "files on disk",
                "a compaction writes unchanged bytes, too": "1.00",
            },
            undo="""
for path, elsewhere in hidden.items():
    elsewhere.rename(path)""",
        ),
        Break(
            "def rows_without_year():",
            AFTER_SAVEPOINT,
            {
                "rows that the faulty job changed": "lake 87",
                "rows without a year of birth after the rollback": "before 11",
            },
        ),
        Break(
            "remaining_logs = readcost.unmerged_logs(scratch)",
            NO_LOGS,
            {"the rollback left logs behind": "0 logs"},
        ),
        Break(
            "def layout(rows):",
            MORE_LOGS,
            {
                "removed logs of the faulty job and its rollback": "after the rollback 0",
                "before = after the clustering": ("artist_id=0", "birth_year"),
            },
        ),
        Break(
            'call("run_clustering"',
            PENDING,
            {
                "file groups that remained": "-0",
                "the German artists are in the order of their names": "actual",
            },
        ),
        Break(
            'cleaned = call("run_clean"',
            GONE_BESIDES,
            {
                "rows as of the load, before cleaning": "lake 87",
                "Hudi itself returns fewer rows afterwards": "actual 87 rows",
                "an instant whose files were cleaned is an error, not a wrong answer": "no failure",
                "a label whose commit was rolled back is an error, too": "no failure",
                "files cleaned away": "run_clean",
                "before = after the cleaning": ("artist_id=0", "birth_year"),
            },
        ),
        reset_from="53_hudi_ingest",
    ),
]

TRAVEL = {
    "55_deletes_and_moves": DELETES,
    "56_time_travel": TIME_TRAVEL,
    "57_incremental": INCREMENTAL,
    "58_table_services": SERVICES,
}
