"""What a Table refuses, the options it becomes, and that what is kept of it is of no other
table."""

import contextlib
import dataclasses
import json
import re
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import types as T
from workbench import hudi
from workbench.base import files
from workbench.base.added_columns import is_data
from workbench.base.errors import LakeError
from workbench.hudi import changes, ddl, decode, evolution, ingesting, timeline
from workbench.hudi.tables import dead_letters_path, table_lock, table_state_dir
from workbench.spark import settings
from workbench.topic import dlq


def table(**fields):
    return hudi.Table(
        **{"name": "t", "base": "file:/nowhere/t", "key": ("id",), "ordering": "__lsn", **fields}
    )


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"key": "id"}, "key of table t is 'id'"),
        ({"key": ()}, r"key of table t is \(\)"),
        ({"ordering": ""}, "ordering of table t is ''"),
        ({"ordering": "a,,b"}, "ordering of table t is 'a,,b'"),
        ({"type": "mro"}, "did you mean 'mor'"),
        ({"index": "SIMPEL"}, "did you mean 'SIMPLE'"),
    ],
)
def test_a_table_that_cannot_be(fields, says):
    with pytest.raises(LakeError, match=says):
        table(**fields)


@pytest.mark.parametrize(
    "fields, generator",
    [
        ({}, "NonpartitionedKeyGenerator"),
        ({"partition": ("a",)}, "SimpleKeyGenerator"),
        ({"partition": ("a", "b")}, "ComplexKeyGenerator"),
        ({"partition": ("a",), "key": ("x", "y")}, "ComplexKeyGenerator"),
    ],
)
def test_key_generators(fields, generator):
    assert (
        table(index="GLOBAL_SIMPLE", **fields)
        .options()["hoodie.datasource.write.keygenerator.class"]
        .endswith("." + generator)
    )


def test_options_can_be_overridden_and_say_what_matters():
    options = table(extra={"hoodie.metadata.enable": "true"}).options()
    assert options["hoodie.metadata.enable"] == "true"
    assert (
        options["hoodie.write.table.version"] == "6"
        and options["hoodie.table.timeline.timezone"] == "UTC"
    )
    assert options["hoodie.datasource.write.streaming.ignore.failed.batch"] == "false"
    assert all(isinstance(v, str) for v in options.values())
    assert table(index="BUCKET", buckets=5).options()["hoodie.bucket.index.num.buckets"] == "5"
    assert "hoodie.bucket.index.num.buckets" not in table().options()
    assert (
        "hoodie.cleaner.parallelism" not in options
        and options["hoodie.global.index.reconcile.parallelism"] == "2"
    )


@pytest.mark.parametrize("index", ["SIMPLE", "BUCKET"])
@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_a_table_whose_rows_may_move_needs_a_global_index(index, deletes):
    refused = (
        f"(?s)table t has the index {index}, and its partition field a is no key field.*in both partitions.*"
        'without partitions.*index="BUCKET".*index="GLOBAL_SIMPLE"'
    )
    with pytest.raises(LakeError, match=refused):
        table(index=index, partition=("id", "a"), deletes=deletes)
    table(index=index, partition=("id",), deletes=deletes)
    table(index=index, deletes=deletes)
    table(index="GLOBAL_SIMPLE", partition=("id", "a"), deletes=deletes)


BINLOG = "__source_file, __source_pos,__source_row"


def test_a_table_may_be_ordered_by_several_fields():
    """As one column, whose texts are in the order of the log: first its files, then the numbers in
    them."""
    it = table(ordering=BINLOG)
    assert it.ordering_fields == ["__source_file", "__source_pos", "__source_row"]
    options = it.options()
    assert {
        options[f"hoodie.{name}"]
        for name in (
            "datasource.write.precombine.field",
            "payload.ordering.field",
            "payload.event.time.field",
        )
    } == {"__position"}
    assert (
        table().options()["hoodie.payload.ordering.field"] == "__lsn"
        and table().ordering_value({"__lsn": 7}) == 7
    )
    log = [
        ("bin.000001", 5, 0),
        ("bin.000001", 40, 0),
        ("bin.000001", 40, 3),
        ("bin.000001", 2**63 - 1, 12),
        ("bin.000002", 4, 0),
        ("bin.000010", 0, 0),
        ("bin.0000100", 0, 0),
    ]
    versions = [it.ordering_value(dict(zip(it.ordering_fields, place))) for place in log]
    assert versions == sorted(versions) and len(set(versions)) == len(log)
    assert versions[2] == "bin.000001/00000000000000000040/00000000000000000003/1"
    with_floats = {
        "__source_file": "f",
        "__source_pos": 40.0,
        "__source_row": 3.0,
    }  # as pandas has them beside nulls
    assert it.ordering_value(with_floats) == it.ordering_value(
        {**with_floats, "__source_pos": 40, "__source_row": 3}
    )


def test_a_snapshot_row_is_older_than_any_change():
    """Also than a change whose transaction was open during the snapshot, and has an earlier position."""
    it = table(ordering="__op,__lsn")
    log = [("r", 7), ("r", 90), ("u", 40), ("d", 50), ("c", 2**63 - 1)]
    versions = [it.ordering_value(dict(zip(it.ordering_fields, place))) for place in log]
    assert versions == sorted(versions) and len({*versions}) == len(log)
    assert versions[1:3] == ["0/00000000000000000090/1", "1/00000000000000000040/1"]


def test_the_position_is_a_column_from_the_beginning_and_no_change_of_the_source():
    it = table(ordering=BINLOG)
    source = T.StructType(
        [T.StructField(name, T.StringType()) for name in ("id", *it.ordering_fields)]
    )
    assert decode.classified_schema(source, table()) == source
    whole = decode.classified_schema(source, it)
    assert whole.fieldNames() == ["id", *it.ordering_fields, "__position"]
    assert evolution.merge_schemas("t", whole, whole) == whole
    assert (
        evolution.describe_change(
            evolution.field_types(whole), evolution.field_types(whole), evolution.field_types(whole)
        )
        == ""
    )


def test_of_a_delete_and_a_create_at_one_position_the_create_is_newer():
    """A change of a key's text, such as 1.0 to 1.00, sends both."""
    it = table(ordering="__op,__lsn")
    delete, create = ({"__op": op, "__lsn": 5} for op in "dc")
    assert (
        it.ordering_value(delete)
        < it.ordering_value(create)
        < it.ordering_value(delete | {"__lsn": 6})
    )


def test_an_encoded_key_is_one_column_for_hudi_and_no_column_of_the_source():
    it = table(key=("id", "a"), encodes_key=True)
    options = it.options()
    assert options["hoodie.datasource.write.recordkey.field"] == "__key"
    assert "Nonpartitioned" in options["hoodie.datasource.write.keygenerator.class"]
    source = T.StructType([T.StructField(name, T.StringType()) for name in ("id", "a", "__note")])
    assert decode.classified_schema(source, it).fieldNames() == ["id", "a", "__note", "__key"]
    assert it.key == ("id", "a") and table().record_key == ("id",)
    hidden = {"__key", "__op", "__source_ts_ms", "_hoodie_commit_time"}
    columns = {"id", "__note", "__Key", "_note", *hidden}
    assert columns - {*filter(is_data, columns)} == hidden


@pytest.mark.parametrize("count", [0, "2", True])
def test_buckets_are_a_number(count):
    with pytest.raises(LakeError, match=f"buckets of table t is {count!r}"):
        table(buckets=count)


@pytest.mark.parametrize(
    "written, same, other",
    [
        ("3", {"index": "BUCKET", "buckets": 3}, {"index": "BUCKET"}),
        ("3", {"index": "BUCKET", "buckets": 3}, {"index": "SIMPLE"}),
        ("no", {"index": "GLOBAL_SIMPLE"}, {"index": "BUCKET"}),
    ],
)
def test_a_table_has_buckets_or_not(written, same, other):
    metadata = {} if written == "no" else {"_workbench_buckets": written}
    commit = {"extraMetadata": metadata}
    ingesting.check_buckets(table(**other), {}, "here")
    ingesting.check_buckets(table(**same), commit, "here")
    own = table(**other).options().get("_workbench_buckets", "no")
    with pytest.raises(LakeError, match=f"was written with {written} buckets, not {own}"):
        ingesting.check_buckets(table(**other), commit, "here")


def test_the_partitions_of_all_new_commits_are_registered(tmp_path, monkeypatch):
    """Also those of a commit that a compaction of other partitions follows."""
    base, registered = f"file:{tmp_path}/tables/t", []
    monkeypatch.setattr(ddl, "query_engine", lambda spark: "athena")
    monkeypatch.setattr(ddl, "is_registered", lambda spark, table: True)
    monkeypatch.setattr(ddl, "register", lambda spark, table: registered.append(table.name))

    def commit(number, partition):
        text = json.dumps({"partitionToWriteStats": {partition: [{"fileId": "f"}]}})
        files.write_text(f"{base}/.hoodie/2026010112000000{number}.commit", text)

    for number, partition, calls in [(1, "p=old", 1), (2, "p=old", 1)]:
        commit(number, partition)
        ddl.sync_catalog(None, table(base=base))
        assert len(registered) == calls
    commit(3, "p=new")
    commit(4, "p=old")
    ddl.sync_catalog(None, table(base=base))
    assert len(registered) == 2


def test_a_table_keeps_its_type(tmp_path):
    base = f"file:{tmp_path}"
    timeline.check_type(table(base=base, type="mor"))
    files.write_text(f"{base}/.hoodie/hoodie.properties", "hoodie.table.type=COPY_ON_WRITE\n")
    timeline.check_type(table(base=base))
    expected = '(?s)table t is COPY_ON_WRITE, not MERGE_ON_READ.*type="cow"'
    with pytest.raises(LakeError, match=expected):
        timeline.check_type(table(base=base, type="mor"))


def test_no_table_is_said_so(tmp_path):
    with pytest.raises(LakeError, match="there is no Hudi table t"):
        hudi.properties(table(base=f"file:{tmp_path}"))


def test_another_table_version_is_an_error(tmp_path):
    (tmp_path / ".hoodie").mkdir()
    (tmp_path / ".hoodie" / "hoodie.properties").write_text("#x\nhoodie.table.version=8\n")
    with pytest.raises(LakeError, match="table version 8"):
        timeline.check_version(table(base=f"file:{tmp_path}"))
    (tmp_path / ".hoodie" / "hoodie.properties").write_text("hoodie.table.name=t\n")
    with pytest.raises(LakeError, match="table version None"):
        timeline.check_version(table(base=f"file:{tmp_path}"))


# --- what is kept of a table
# -----------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path):
    lake = {
        name: f"file:{tmp_path}/{name}"
        for name in ("tables", "checkpoints", "dead_letters", "landing")
    }
    return SimpleNamespace(lake=SimpleNamespace(**lake), spark=SimpleNamespace(parallelism=2))


def kept(world, it):
    """What is kept of a table: labels, dead letters, files of its own."""
    return (
        list(hudi.labels(world, it)["label"]),
        bool(files.list_files(dead_letters_path(world, it))),
        hudi.exists(it),
    )


@pytest.mark.parametrize(
    "bases", [("", ""), ("file:/elsewhere/a/b", "file:/elsewhere/a_b"), ("", "file:/elsewhere")]
)
def test_two_tables_of_one_name_in_two_databases_share_nothing(world, tmp_path, bases):
    """Labels, dead letters and the lock are of a table's address."""
    made = []
    for database, base in zip(("one", "other"), bases):
        more = {"base": base.replace("/elsewhere", f"{tmp_path}/elsewhere")} if base else {}
        it = hudi.table(world, "same", database=database, key=("id",), ordering="v", **more)
        files.write_text(f"{it.base}/.hoodie/20260101120000001.commit", "{}")
        files.write_text(f"{it.base}/.hoodie/hoodie.properties", "hoodie.table.version=6")
        made.append(it)
    one, other = made
    hudi.label(world, one, "mine")
    files.write_text(f"{dead_letters_path(world, one)}/topic-x/00000000/part-0.json", "{}")
    assert kept(world, one) == (["mine"], True, True)
    assert kept(world, other) == ([], False, True)
    with pytest.raises(LakeError, match="(?s)no instant labeled 'mine'.*hudi.label"):
        hudi.as_of(None, world, other, "mine")
    hudi.label(world, other, "its")
    with table_lock(world, one):
        hudi.drop(None, world, other)
        with pytest.raises(LakeError, match="another ingest into one.same is running"):
            hudi.drop(None, world, one)
    assert kept(world, one) == (["mine"], True, True)
    assert kept(world, other) == ([], False, False)


def test_the_state_of_a_table_lies_below_a_name_that_a_person_can_read(world, tmp_path):
    it = hudi.table(world, "orders", database="shop", key=("id",), ordering="v")
    assert it.base == f"file:{tmp_path}/tables/shop/orders"
    assert (
        hudi.table(world, "t", key=("a",), ordering="b").base
        == f"file:{tmp_path}/tables/datalake/t"
    )
    assert table_state_dir(world, it) == f"file:{tmp_path}/checkpoints/shop/orders"
    far = dataclasses.replace(it, base="s3a://lake/raw/orders")
    assert table_state_dir(world, far).startswith(
        f"file:{tmp_path}/checkpoints/elsewhere/s3a___lake_raw_orders-"
    )


# --- the log of an ingest
# ---------------------------------------------------------------------------------------------


@pytest.fixture
def job(world, tmp_path, monkeypatch):
    """An ingest of two batches without Spark: what is written is a commit with its progress."""
    rows = T.StructType([T.StructField(n, T.LongType()) for n in ("id", "__lsn")])

    def read(progress):
        end = {0: 3, 3: 5}.get(changes.position(progress))
        return end and changes.Batch(None, {"topic_id": "x", "offsets": {"0": end}}, in_memory=True)

    reader = SimpleNamespace(next=read, schemas=(rows, rows))

    def write_batch(spark, rows, table, dead_letters, *, options, **_):
        with pytest.raises(LakeError, match="another ingest into"), table_lock(world, table):
            pass  # the ingest holds it
        end = json.loads(options[timeline.PROGRESS_KEY])["topic-t"]["offsets"]["0"]
        files.write_text(f"{dead_letters}/part-{end}.json", str(end))
        done = timeline.completed_actions(table)
        if killed_before_commit:
            killed_before_commit.clear()
            raise KeyboardInterrupt
        name = f"{table.base}/.hoodie/2026010112000000{len(done)}.commit"
        files.write_text(name, json.dumps({"extraMetadata": options}))
        return {"upserts": 1, "dead_letters": 1}

    for name in ("translate_errors", "java_stacktraces"):
        monkeypatch.setattr(ingesting, name, lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(ingesting, "write_batch", write_batch)
    monkeypatch.setattr(changes, "create_reader", lambda *_: reader)
    it = table(base=f"file:{tmp_path}/tables/t", database="lake")
    source = changes.Topic("t")
    killed_before_commit = []

    def create(killed=False, replay=False):
        killed_before_commit.extend([killed] * killed)
        return ingesting.IngestJob(None, world, source, it, replay=replay)

    return create


def test_an_ingest_logs_one_line_for_each_batch(job, caplog, capsys):
    with caplog.at_level("INFO", logger="workbench.hudi"):
        done = job().run()
    assert (done.messages, done.batches) == (4, 2)
    lines = [record.getMessage().rpartition(",")[0] for record in caplog.records]
    assert lines == [
        "lake.t: 2 records, instant 20260101120000000",
        "lake.t: 2 records, instant 20260101120000001",
    ]
    assert capsys.readouterr() == ("", ""), "silent by default"


def test_the_next_ingest_continues_after_the_last_batch(job):
    it = job()
    assert ingesting.next_offsets(it.table, "t") == {}
    assert it.run(lambda: True).batches == it.run().batches == 1
    assert ingesting.next_offsets(it.table, "t") == {0: 5}
    assert ingesting.next_offsets(it.table, "other") == {}
    progress = ingesting.read_progress(ingesting.last_ingest_commit(it.table))
    assert re.fullmatch("3_[0-9a-f]{32}", progress["topic-t"].pop("dead_letters"))
    assert progress == {
        "topic-t": {
            "topic_id": "x",
            "offsets": {"0": 5},
            "start": 3,
            "replay": "",
            "fields": {"id": "bigint", "__lsn": "bigint"},
        }
    }


def shown_dead_letters(world, it):
    """The texts of the dead letters that Spark and `dlq` see."""
    uri = dead_letters_path(world, it.table)
    return sorted(map(str, dlq.read_files(uri)))


def test_dead_letters_are_shown_with_their_commit_only(world, job):
    with pytest.raises(KeyboardInterrupt):
        job(killed=True).run()
    it = job()
    assert len(files.list_files(dead_letters_path(world, it.table))) == 1
    assert shown_dead_letters(world, it) == []
    it.run(lambda: True)
    assert shown_dead_letters(world, it) == ["3"]
    with pytest.raises(KeyboardInterrupt):
        job(killed=True).run()
    assert shown_dead_letters(world, it) == ["3"]
    job().run()
    assert shown_dead_letters(world, it) == ["3", "5"]


def test_dead_letters_of_a_commit_after_which_the_process_was_killed_are_not_lost(
    world, job, monkeypatch
):
    def kill(progress):
        raise KeyboardInterrupt

    it = job()
    monkeypatch.setattr(it, "_finish", kill)
    with pytest.raises(KeyboardInterrupt):
        it.run()
    assert ingesting.next_offsets(it.table, "t") == {0: 3} and shown_dead_letters(world, it) == []
    assert job().run().batches == 1
    assert shown_dead_letters(world, it) == ["3", "5"]


def test_dead_letters_of_a_commit_that_was_restored_go(world, job, tmp_path):
    it = job()
    it.run()
    (tmp_path / "tables" / "t" / ".hoodie" / "20260101120000001.commit").unlink()
    job(killed=True)
    with pytest.raises(KeyboardInterrupt):
        it.run()
    assert shown_dead_letters(world, it) == ["3"]


def test_a_replay_keeps_all_dead_letters_until_it_is_complete(world, job, monkeypatch):
    """Also those of another partition, whose messages it has not read when its position is beyond theirs."""
    it = job()
    it.run()
    text = f"{dead_letters_path(world, it.table)}/topic-t/00000012/part-2.json"
    files.write_text(text, "2")  # of an earlier version
    first = changes.Batch(None, {"topic_id": "x", "offsets": {"0": 9, "1": 0}}, in_memory=True)
    again = job(replay=True)
    with monkeypatch.context() as patch:
        patch.setattr(again.reader, "next", lambda progress: first)
        assert again.run(lambda: True).batches == 1
    assert shown_dead_letters(world, it) == ["2", "3", "5", "9"]
    with pytest.raises(KeyboardInterrupt):
        job(killed=True, replay=True).run()
    assert shown_dead_letters(world, it) == ["2", "3", "5", "9"]
    job().run()
    assert shown_dead_letters(world, it) == ["9"]
    job(replay=True).run()
    assert shown_dead_letters(world, it) == ["3", "5"]


def test_an_empty_hidden_folder_removes_no_dead_letter(world, job):
    """S3 may keep the name of a folder whose files were moved."""
    it = job()
    it.run()
    folder = Path(dead_letters_path(world, it.table).removeprefix("file:"), it.source.id)
    for shown in [*folder.iterdir()]:
        shown.with_name(f".{shown.name}").mkdir()
    it.run()
    assert shown_dead_letters(world, it) == ["3", "5"]


def test_a_job_whose_table_another_one_wrote_reads_the_source_anew(job, monkeypatch):
    readers, create_reader = [], changes.create_reader

    def create(*args):
        readers.append(create_reader(*args))
        return readers[-1]

    monkeypatch.setattr(changes, "create_reader", create)
    it = job()
    it.run(lambda: True)
    it.run(lambda: True)
    assert len(readers) == 1
    last = f"{it.table.base}/.hoodie/20260101120000001.commit"
    metadata = files.read_text(last)
    files.remove(last)
    it.run(lambda: True)
    assert len(readers) == 2 and files.read_text(last) != metadata, "another folder of dead letters"


def test_an_ingest_goes_on_when_its_topic_has_a_message(world, monkeypatch):
    """Two tables of one topic wait for the one that has read less; landed files for the next check."""
    waits, stop, now = [], threading.Event(), [0.0]
    jobs = [
        SimpleNamespace(source=source, reader=SimpleNamespace(end_offsets=ends))
        for source, ends in (
            (changes.Topic("a"), {0: 5, 1: 7}),
            (changes.Topic("a"), {0: 6, 1: 2}),
            (changes.Topic("b"), {0: 1}),
            (changes.Landed("c"), {}),
        )
    ]
    results = [{"a"}, set(), {"b"}, set()]

    def wait_for_message(world, start, event, timeout):
        waits.append(start)
        now[0] += 4
        return results.pop(0)

    monkeypatch.setattr(ingesting.topics, "wait_for_message", wait_for_message)
    monkeypatch.setattr(ingesting.time, "monotonic", lambda: now[0])
    rounds = ingesting.wait_for_changes(world, jobs, stop)
    assert [next(rounds) for _ in range(5)] == [jobs, jobs[:2], [], jobs, []]
    assert waits == [{("a", 0): 5, ("a", 1): 2, ("b", 0): 1}] * 4
    stop.set()
    assert next(rounds, None) is None


def test_reads_and_writes_have_the_same_buffer():
    name = "hoodie.memory.dfs.buffer.max.size"
    assert settings.session_conf()[name] == table().options()[name]


def test_a_timestamp_is_no_key_but_orders():
    columns = T.StructType(
        [T.StructField("id", T.IntegerType()), T.StructField("at", T.TimestampType())]
    )
    ingesting.check_ordering(table(type="mor", ordering="at"), columns)
    by_time = {"key": ("id", "at"), "ordering": "id"}
    with pytest.raises(LakeError, match="(?s)the key field at is a timestamp.*encodes_key=True"):
        decode.check_columns(columns, table(**by_time))
    decode.check_columns(columns, table(**by_time, encodes_key=True))
