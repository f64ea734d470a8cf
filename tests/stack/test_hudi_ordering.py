"""Ordering: the newest change of a row wins, whatever the order of arrival, the index and the size of a load."""

import contextlib
import dataclasses
import json

import pytest
from lake_help import (
    INLINE_COMPACTION,
    SCHEMA,
    change_record,
    new_table,
    produce,
)
from pyspark.errors import AnalysisException
from pyspark.sql import types as T
from workbench import hudi
from workbench.base import files
from workbench.base.errors import LakeError
from workbench.hudi import ddl, timeline


@pytest.mark.parametrize(
    "kind, index", [("cow", "SIMPLE"), ("mor", "SIMPLE"), ("cow", "BUCKET"), ("mor", "BUCKET")]
)
def test_the_greater_ordering_value_wins_whenever_it_comes(lake, world, spark, kind, index):
    it = lake(type=kind, index=index, partition=())
    first = it.go(
        change_record(1, 10),
        change_record(2, 10),
        change_record(3, 10),
        change_record(1, 12, "late in the same batch"),
        change_record(1, 11),
    )
    assert (first.messages, first.upserts, first.deletes) == (5, 5, 0)
    assert it.rows() == [
        (1, "p", "late in the same batch", 12),
        (2, "p", "x", 10),
        (3, "p", "x", 10),
    ]
    it.go(change_record(1, 5, "older"), change_record(2, 9, op="d"), change_record(3, 20, op="d"))
    assert it.rows() == [
        (1, "p", "late in the same batch", 12),
        (2, "p", "x", 10),
    ]  # late delete lost, real one won
    it.go(change_record(3, 30, "again"))
    assert it.rows()[-1] == (3, "p", "again", 30)
    assert hudi.properties(it.table)["hoodie.table.version"] == "6"
    if index == "BUCKET":
        more = dataclasses.replace(it.table, buckets=5)
        with pytest.raises(LakeError, match="was written with 2 buckets, not 5"):
            hudi.ingest(spark, world, hudi.Topic(it.topic), more, schema=SCHEMA)


ORDERS = [  # of a type, an earlier and a later value in JSON
    (T.LongType(), 9, 10),
    (T.IntegerType(), 9, 10),
    (T.DoubleType(), 1.5, 2.5),
    (T.FloatType(), 1.5, 2.5),
    (T.StringType(), "a", "b"),
    (T.BooleanType(), False, True),
    (T.DateType(), "2024-01-01", "2024-01-02"),
    (T.TimestampType(), "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"),
    (T.DecimalType(10, 2), 1.1, 1.25),
    (T.DecimalType(30, 0), 9, 10),
]


@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.drill)])
def test_a_delete_that_comes_late_loses_whatever_the_ordering_field_is(lake, world, spark, kind):
    """Also in a compaction. A Merge-on-Read table refuses the types that Hudi cannot order deletes
    by."""
    for ordering, early, late in ORDERS:
        it = lake(type=kind, partition=(), ordering="o")
        schema = T.StructType(
            [
                T.StructField("id", T.IntegerType()),
                T.StructField("o", ordering),
                T.StructField("__op", T.StringType()),
            ]
        )

        def go(*changes, it=it, schema=schema):
            produce(world, it.topic, *({"id": key, "o": o, "__op": op} for key, o, op in changes))
            hudi.ingest(spark, world, hudi.Topic(it.topic), it.table, schema=schema)
            return sorted(row.id for row in hudi.read(spark, it.table).collect())

        if kind == "mor" and isinstance(ordering, (T.DateType, T.DecimalType)):
            with pytest.raises(
                LakeError, match='(?s)ordering field o of .* Merge-on-Read.*type="cow"'
            ):
                go((1, early, "c"))
            continue
        assert go((1, late, "c"), (2, late, "c"), (3, early, "c")) == [1, 2, 3]
        assert go((1, early, "d"), (2, late, "d"), (3, late, "u")) == [1, 3], ordering
        if kind == "mor":
            hudi.compact(spark, it.table)
            assert [row.id for row in hudi.read(spark, it.table).orderBy("id").collect()] == [
                1,
                3,
            ], ordering


@pytest.mark.parametrize(
    "index, partition", [("SIMPLE", ()), ("GLOBAL_SIMPLE", ("part",)), ("BUCKET", ())]
)
def test_a_delete_that_comes_late_loses_in_a_compaction_by_a_commit(lake, index, partition):
    it = lake(type="mor", index=index, partition=partition, extra=INLINE_COMPACTION)
    it.go(change_record(1, 20), change_record(2, 20))
    it.go(change_record(1, 15, op="d"), change_record(2, 25, op="d"))
    it.go(change_record(3, 30))
    assert it.rows() == [(1, "p", "x", 20), (3, "p", "x", 30)]
    assert timeline.completed_actions(it.table, "commit")  # of a compaction


def test_a_large_table_of_a_flow(lake, spark):
    it = lake(type="mor", index="BUCKET", partition=())
    it.go(change_record(1, 20), change_record(2, 20))
    it.go(change_record(1, 15, op="d"), change_record(2, 25, op="d"))
    for n in range(3, 8):
        it.go(change_record(n, 30))
    assert timeline.completed_actions(it.table, "commit"), "no compaction after five commits"
    rows = [(1, "p", "x", 20), *((n, "p", "x", 30) for n in range(3, 8))]
    assert it.rows() == rows
    entry = hudi.register(spark, it.table)
    assert entry.endswith("_rt") and spark.table(entry).count() == len(rows)


def test_the_catalog_finds_it_and_start_clean_removes_it(lake, world, spark):
    it = lake()
    it.go(change_record(1, 1), ("x", "{broken"))
    name = hudi.register(spark, it.table)
    assert hudi.register(spark, it.table) == name and spark.table(name).count() == 1
    for again in (True, False):  # a view that somebody has put there instead
        spark.sql(f"DROP TABLE {name}")
        spark.sql(f"CREATE VIEW {name} AS SELECT 1 AS id UNION ALL SELECT 2")
        if again:
            assert hudi.register(spark, it.table) == name and spark.table(name).count() == 1
    hudi.drop(spark, world, it.table)
    assert not spark.catalog.tableExists(name) and not files.list_dir(it.table.base)
    assert len(it.dead()) == 0
    assert it.go().upserts == 1  # from the beginning again


def test_where_athena_asks_the_catalog_has_new_partitions_and_columns(
    lake, world, spark, monkeypatch
):
    """Spark finds them in the table; Athena knows those of the catalog only. Here that is Hive's,
    on EMR it is Glue."""

    def known(name):
        rows = spark.sql(f"DESCRIBE {name}").collect()
        there = []
        for part in "pqr":
            with contextlib.suppress(
                AnalysisException
            ):  # Hudi's SHOW PARTITIONS looks into the table
                spark.sql(f"DESCRIBE TABLE EXTENDED {name} PARTITION (part = '{part}')").collect()
                there.append(part)
        return there, "more" in {row["col_name"] for row in rows}

    it = lake(type="mor")
    it.go(change_record(1, 1))
    hudi.register(spark, it.table)
    names = hudi.catalog_names(it.table)
    it.go(change_record(2, 2, part="q"))
    assert [known(name)[0] for name in names] == [[]] * len(names), "told to nobody who asks Spark"
    monkeypatch.setattr(ddl, "query_engine", lambda spark: "athena")
    it.go(change_record(3, 3, part="r"))
    assert [known(name) for name in names] == [(["p", "q", "r"], False)] * len(names)
    asked = []
    monkeypatch.setattr(ddl, "register", lambda *given: asked.append(given))
    it.go(change_record(4, 4, part="r"))
    assert not asked, "nothing is new to the catalog"
    monkeypatch.undo()
    monkeypatch.setattr(ddl, "query_engine", lambda spark: "athena")
    wider = T.StructType([*SCHEMA.fields, T.StructField("more", T.StringType())])
    it.go(
        {**change_record(5, 5, part="r"), "more": "x"},
        run=lambda *given, schema: hudi.ingest(*given, schema=wider),
    )
    assert [known(name) for name in names] == [(["p", "q", "r"], True)] * len(names)


@pytest.mark.parametrize("kind, entry", [("cow", "things"), ("mor", "things_rt")])
def test_what_sql_put_into_the_catalog_goes_with_the_table(lake, world, spark, kind, entry):
    it = lake(type=kind, database="sql_left", catalog="things")
    it.go(change_record(1, 1))
    hudi.register(spark, it.table)
    try:
        spark.sql(f"UPDATE sql_left.{entry} SET text = 'by hand'")
        names = {row["tableName"] for row in spark.sql("SHOW TABLES IN sql_left").collect()}
        assert it.table.name in names, (
            "Hudi's SQL leaves the catalog alone now: all_entries is not needed any more"
        )
        hudi.drop(spark, world, it.table)
        assert spark.sql("SHOW TABLES IN sql_left").collect() == []
    finally:
        spark.sql("DROP DATABASE IF EXISTS sql_left CASCADE")


@pytest.mark.parametrize("few", [2_000, 0])
def test_few_messages_and_many_are_read_alike(lake, world, spark, monkeypatch, few):
    """Few are fetched by this process, many by Spark: not UTF-8, tombstones, envelopes, no key at
    all."""
    from workbench.hudi import changes

    monkeypatch.setattr(changes, "SMALL_BATCH_MESSAGES", few)
    it = lake()
    schema = {"type": "struct", "name": "with é in it"}
    row = change_record(4, 1, 'Genève},"payload":')
    wrapped = json.dumps(
        {"schema": schema, "payload": row}, ensure_ascii=False, separators=(",", ":")
    )  # as Connect
    other = json.dumps({"schema": {}, "payload": change_record(5, 1, "another schema")})
    cut_short = wrapped[:-2]
    done = it.go(
        change_record(1, 1),
        ("w", wrapped),
        ("o", other),
        ("t", None),
        ("c", cut_short),
        ("b", b'{"id": 6, "text": "\xff\xfe"}'),
        (None, None),
        ("w", wrapped.replace("4", "7")),
    )
    assert (done.messages, done.upserts, done.tombstones, done.dead_letters) == (8, 4, 1, 3)
    assert it.rows() == [
        (1, "p", "x", 1),
        (4, "p", row["text"], 1),
        (5, "p", "another schema", 1),
        (7, "p", row["text"], 1),
    ]
    letters = {r.offset: (r.reason, r.text) for r in it.dead()}
    assert letters == {
        4: ("malformed JSON", cut_short),
        6: ("no value and no key", None),
        5: ("not UTF-8, the text is its base64", "eyJpZCI6IDYsICJ0ZXh0IjogIv/+In0="),
    }


@pytest.mark.parametrize(
    "kind, index, large, files_of_a_partition",
    [
        ("cow", "SIMPLE", 1, 2),
        pytest.param("cow", "SIMPLE", 101, 1, marks=pytest.mark.drill),
        pytest.param("mor", "GLOBAL_SIMPLE", 1, 2, marks=pytest.mark.drill),
        pytest.param("cow", "BUCKET", 1, 2, marks=pytest.mark.drill),
    ],
)
def test_a_large_first_load_and_a_small_one_hold_the_same(
    lake, monkeypatch, kind, index, large, files_of_a_partition
):
    """A large one is written by the tasks that have read it, a file each in a partition; a bucket
    has its own file."""
    from workbench.hudi import changes, loading

    monkeypatch.setattr(loading, "LARGE_LOAD_ROWS", large)
    monkeypatch.setattr(changes, "SMALL_BATCH_MESSAGES", 0)  # read by Spark, in two tasks
    key = ("id",) if index.startswith("GLOBAL_") else ("id", "part")
    it = lake(type=kind, index=index, key=key)
    done = it.go(*[change_record(n, 1, part="pq"[n % 2]) for n in range(100)])
    assert done.upserts == 100 and it.rows() == [(n, "pq"[n % 2], "x", 1) for n in range(100)]
    base = [f for f in files.list_dir(it.table.base, recursive=True) if f.path.endswith(".parquet")]
    assert len(base) == 2 * files_of_a_partition
    it.go(
        change_record(1, 2, "new", part="q"), change_record(2, 3, op="d", part="p")
    )  # found where the load has put them
    assert (
        it.rows()[:3] == [(0, "p", "x", 1), (1, "q", "new", 2), (3, "q", "x", 1)]
        and len(it.rows()) == 99
    )


def test_a_first_load_of_several_versions_writes_the_newest(lake):
    """Once for each key, also if it was in two partitions."""
    it = lake()
    done = it.go(
        change_record(1, 1),
        change_record(1, 2, part="q"),
        change_record(2, 1),
        change_record(2, 2, op="d"),
        change_record(3, 3, "new"),
        change_record(3, 2, "older"),
        change_record(4, 2, op="d"),
        change_record(4, 3, "again"),
    )
    assert (done.upserts, done.deletes) == (6, 2)
    assert it.rows() == [(1, "q", "x", 2), (3, "p", "new", 3), (4, "p", "again", 3)]
    assert list(hudi.commits(it.table)["operation"]) == ["BULK_INSERT"]


def test_why_data_skipping_stays_off(world, spark):
    """Hudi 1.0 with column statistics answers wrong after an upsert: `like 'm%'` finds 0 rows of
    many."""
    table = new_table(world, partition=())
    options = {
        **table.options(),
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.index.column.stats.enable": "true",
    }
    for prefix in ("a", "m"):
        frame = spark.range(1000).selectExpr(
            "cast(id as int) id",
            f"concat('{prefix}', id) text",
            f"{int(prefix == 'm')}L as __lsn",
            "'p' part",
        )
        frame.write.format("hudi").options(**options).mode("append").save(table.base)
    try:

        def like(skipping):
            rows = (
                spark.read.format("hudi")
                .option("hoodie.metadata.enable", "true")
                .option("hoodie.enable.data.skipping", skipping)
                .load(table.base)
            )
            return rows.where("text like 'm%'").count()

        assert like("false") == 1000
        assert hudi.read(spark, table).where("text like 'm%'").count() == 1000
        assert like("true") < 1000, (
            "this Hudi answers right with data skipping: it may be switched on again"
        )
    finally:
        hudi.drop(spark, world, table)


def test_a_table_that_was_written_otherwise_takes_changes_in(lake, spark):
    it = lake()
    rows = spark.createDataFrame(
        [(1, "p", "x", "c", "false", 1), (2, "p", "x", "c", "false", 1)], SCHEMA
    )
    rows.write.format("hudi").options(**it.table.options()).mode("append").save(it.table.base)
    with pytest.raises(
        LakeError, match="(?s)none of its commits says how far .* was read.*replay=True"
    ):
        it.go(change_record(1, 2, "new"), change_record(2, 2, op="d"))
    assert it.go(replay=True).messages == 2 and it.go() == hudi.Ingested()
    assert it.rows() == [(1, "p", "new", 2)]


def test_progress_that_others_have_archived_is_not_started_over_in_silence(lake, world, spark):
    it = lake(
        extra={
            "hoodie.keep.min.commits": "2",
            "hoodie.keep.max.commits": "3",
            "hoodie.cleaner.commits.retained": "1",
        }
    )
    it.go(change_record(1, 5), ("k", "{broken"))
    other = spark.createDataFrame(
        [(9, "p", "by another", "c", "false", 1, False)],
        f"{SCHEMA.simpleString()[7:-1]}, _hoodie_is_deleted: boolean",
    )
    for _ in range(5):
        other.write.format("hudi").options(**it.table.options()).mode("append").save(it.table.base)
    done = list(hudi.commits(it.table)["instant"])

    with pytest.raises(
        LakeError, match="(?s)none of its commits says how far .* was read.*replay=True.*hudi.drop"
    ):
        it.go(change_record(1, 6, "new"))
    assert list(hudi.commits(it.table)["instant"]) == done and len(it.dead()) == 1
    bad = dataclasses.replace(
        it.table, extra={"hoodie.datasource.write.keygenerator.class": "no.such.Class"}
    )
    with pytest.raises(LakeError, match="a batch was not written"):
        hudi.ingest(spark, world, hudi.Topic(it.topic), bad, schema=SCHEMA, replay=True)
    assert len(it.dead()) >= 1
    assert it.go(replay=True).messages == 3 and len(it.dead()) == 1
    assert it.rows() == [(1, "p", "new", 6), (9, "p", "by another", 1)]
    assert it.go(change_record(2, 1)).messages == 1 and len(it.dead()) == 1
    with pytest.raises(
        LakeError, match="none of its commits says how far .* was read"
    ):  # of another source neither
        hudi.ingest(spark, world, hudi.Landed("elsewhere"), it.table, schema=SCHEMA)
