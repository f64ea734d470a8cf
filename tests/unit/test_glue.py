"""A Hudi table's entries in the Glue catalog, as Hudi's own sync makes them; moto answers for Glue. The commits are of
the form of real ones, without what nobody here reads."""
import json
from types import SimpleNamespace
from unittest import mock

import moto
import on_aws
import pytest
from workbench import hudi
from workbench.base import aws
from workbench.base.errors import LakeError, StackError
from workbench.hudi import catalog, glue
from workbench.spark import sessions

FIELDS = [
    ("artwork_id", "int"), ("classification", "string"), ("acquisition_date", {"type": "int", "logicalType": "date"}),
    ("height_cm", {"type": "fixed", "name": "fixed", "namespace": "hoodie.t.t_record.height_cm", "size": 5,
                   "logicalType": "decimal", "precision": 10, "scale": 4}),
    ("cataloged_at", {"type": "long", "logicalType": "timestamp-micros"}),
    ("tags", {"type": "array", "items": ["null", "string"]}),
    ("maker", {"type": "record", "name": "maker", "namespace": "hoodie.t.t_record", "fields": [
        {"name": "firstName", "type": ["null", "string"], "default": None},
        {"name": "born", "type": ["null", "long"], "default": None}]}),
    ("__source_txId", "long"), ("__deleted", "boolean")]
COLUMNS = [
    ("_hoodie_commit_time", "string"), ("_hoodie_commit_seqno", "string"), ("_hoodie_record_key", "string"),
    ("_hoodie_partition_path", "string"), ("_hoodie_file_name", "string"), ("artwork_id", "int"),
    ("acquisition_date", "date"), ("height_cm", "decimal(10,4)"), ("cataloged_at", "timestamp"),
    ("tags", "array<string>"), ("maker", "struct<firstname:string,born:bigint>"), ("__source_txid", "bigint"),
    ("__deleted", "boolean")]
AT = ("classification=Design", "classification=Frank Lloyd Wright Archive", "classification=a%2Fb")


class Spark:
    """A session of world aws; it notes what it is asked."""

    def __init__(self):
        self.asked = []

    def sql(self, text):
        self.asked.append(text)


class Lake:
    """A table in a folder, written as Hudi leaves it: a commit a call."""

    def __init__(self, folder, **fields):
        self.folder, self.number = folder, 0
        (folder / ".hoodie").mkdir(parents=True)
        self.version("6")
        self.table = hudi.Table(**{"name": "t", "base": f"file:{folder}", "key": ("artwork_id",), "ordering": "__lsn",
                                   "partition": ("classification",), "database": "moma_mor", "type": "mor", **fields})

    def version(self, number):
        (self.folder / ".hoodie" / "hoodie.properties").write_text(f"hoodie.table.version={number}\n")

    def commit(self, *partitions, fields=FIELDS, action="deltacommit"):
        self.number += 1
        schema = {"type": "record", "name": "t_record", "namespace": "hoodie.t", "fields": [
            {"name": name, "type": ["null", kind], "default": None} for name, kind in fields or ()]}
        for partition in partitions:
            place = self.folder / partition
            place.mkdir(exist_ok=True)
            (place / ".hoodie_partition_metadata").touch()
            (place / f"f1-0_0-1-2_{self.instant}.parquet").touch()
        body = {"partitionToWriteStats": {p: [{"fileId": "f1-0"}] for p in partitions}, "operationType": "UPSERT",
                "extraMetadata": {"schema": json.dumps(schema) if fields else ""}}
        (self.folder / ".hoodie" / f"{self.instant}.{action}").write_text(json.dumps(body))
        return self.instant

    @property
    def instant(self):
        return f"20261122191700{self.number:03}"


@pytest.fixture
def spark():
    found = Spark()
    sessions._worlds[found] = on_aws.world()
    with moto.mock_aws():
        yield found


@pytest.fixture
def asked(monkeypatch):
    """The operations that Glue is asked for, with how many partitions each."""
    found, call = [], aws.call

    def noted(region, service, operation, /, **given):
        found.append((operation, *(len(v) for k, v in given.items() if isinstance(v, list))))
        return call(region, service, operation, **given)

    monkeypatch.setattr(aws, "call", noted)
    return found


def entry(name):
    return aws.call(on_aws.REGION, "glue", "get_table", DatabaseName="moma_mor", Name=name)["Table"]


def partitions(name):
    found = aws.pages(on_aws.REGION, "glue", "get_partitions", "Partitions", DatabaseName="moma_mor", TableName=name)
    return {one["Values"][0]: one["StorageDescriptor"] for one in found}


def test_the_two_views_of_a_merge_on_read_table(tmp_path, spark):
    lake = Lake(tmp_path / "t")
    instant = lake.commit(*AT)
    assert not hudi.registered(spark, lake.table)
    assert hudi.register(spark, lake.table) == "moma_mor.t_rt" and hudi.registered(spark, lake.table)
    assert spark.asked == ["REFRESH TABLE `moma_mor`.`t_ro`", "REFRESH TABLE `moma_mor`.`t_rt`"]
    for name, reader, optimised in (("t_ro", "HoodieParquetInputFormat", "true"),
                                    ("t_rt", "realtime.HoodieParquetRealtimeInputFormat", "false")):
        found = entry(name)
        storage, told = found["StorageDescriptor"], found["Parameters"]
        assert found["TableType"] == "EXTERNAL_TABLE"
        assert [(c["Name"], c["Type"]) for c in storage["Columns"]] == COLUMNS
        assert found["PartitionKeys"] == [{"Name": "classification", "Type": "string"}], "not among the columns"
        assert storage["Location"] == lake.table.base
        assert storage["InputFormat"] == f"org.apache.hudi.hadoop.{reader}"
        assert storage["OutputFormat"] == "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
        assert storage["SerdeInfo"] == {
            "SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
            "Parameters": {"serialization.format": "1", "path": lake.table.base, "hoodie.query.as.ro.table": optimised}}
        parts = [told.pop(f"spark.sql.sources.schema.part.{n}") for n in range(int(
            told.pop("spark.sql.sources.schema.numParts")))]
        assert told == {"EXTERNAL": "TRUE", "hudi.metadata-listing-enabled": "FALSE", "last_commit_time_sync": instant,
                        "spark.sql.sources.provider": "hudi", "spark.sql.sources.schema.numPartCols": "1",
                        "spark.sql.sources.schema.partCol.0": "classification"}
        assert [f["name"] for f in json.loads("".join(parts))["fields"]] == [
            *glue.META, *(name for name, _ in FIELDS if name != "classification"), "classification"]
        there = partitions(name)
        assert {value: one["Location"] for value, one in there.items()} == {
            value: f"{lake.table.base}/{folder}"
            for value, folder in zip(("Design", "Frank Lloyd Wright Archive", "a/b"), AT)}
        assert all(one["InputFormat"] == storage["InputFormat"] and len(one["Columns"]) == len(COLUMNS)
                   for one in there.values())


def test_a_copy_on_write_table_that_has_no_partitions_and_a_long_schema(tmp_path, spark):
    lake = Lake(tmp_path / "t", type="cow", partition=(), catalog="people")
    lake.commit("", fields=[*FIELDS, *((f"a_column_with_a_long_name_{n}", "string") for n in range(99))],
                action="commit")
    assert hudi.register(spark, lake.table) == "moma_mor.people"
    found = entry("people")
    told = found["Parameters"]
    assert found["StorageDescriptor"]["InputFormat"] == glue.INPUT and not found["PartitionKeys"]
    assert found["StorageDescriptor"]["SerdeInfo"]["Parameters"]["hoodie.query.as.ro.table"] == "false"
    number = int(told["spark.sql.sources.schema.numParts"])
    parts = [told[f"spark.sql.sources.schema.part.{n}"] for n in range(number)]
    assert number > 2 and max(map(len, parts)) == 4000
    assert len(json.loads("".join(parts))["fields"]) == 5 + len(FIELDS) + 99
    assert "spark.sql.sources.schema.numPartCols" not in told
    hudi.register(spark, lake.table)


def test_several_partition_columns_and_more_partitions_than_one_request_takes(tmp_path, spark, asked):
    lake = Lake(tmp_path / "t", type="cow", partition=("classification", "artwork_id"))
    lake.commit(action="commit")
    for n in range(230):
        folder = tmp_path / "t" / f"classification=c{n}" / f"artwork_id={n}"
        folder.mkdir(parents=True)
        (folder / "f_0_1.parquet").touch()
    hudi.register(spark, lake.table)
    assert [one for one in asked if "partition" in one[0]] == [("batch_create_partition", n) for n in (100, 100, 30)]
    found = aws.pages(on_aws.REGION, "glue", "get_partitions", "Partitions", DatabaseName="moma_mor", TableName="t")
    assert {tuple(one["Values"]) for one in found} == {(f"c{n}", str(n)) for n in range(230)}
    assert [c["Type"] for c in entry("t")["PartitionKeys"]] == ["string", "int"]


def test_each_commit_is_told_and_what_is_told_is_not_told_again(tmp_path, spark, asked, monkeypatch):
    lake = Lake(tmp_path / "t", catalog="u", type="cow")
    lake.commit(AT[0])
    catalog.committed(spark, lake.table)
    assert asked == [("get_table",)], "what is not in the catalog is not put there"
    hudi.register(spark, lake.table)
    asked.clear()
    catalog.committed(spark, lake.table)
    assert asked == [("get_table",)], "nothing was committed since"
    asked.clear()
    lake.commit(AT[0])
    with monkeypatch.context() as m:
        m.setattr(glue.files, "below", lambda address: pytest.fail("no need to look at the files"))
        catalog.committed(spark, lake.table)
    assert {operation for operation, *_ in asked} == {"get_table", "update_table"}
    lake.commit(AT[1])
    catalog.committed(spark, lake.table)
    assert set(partitions("u")) == {"Design", "Frank Lloyd Wright Archive"}
    assert entry("u")["Parameters"]["last_commit_time_sync"] == lake.instant
    for file in (tmp_path / "t" / AT[0]).glob("*.parquet"):
        file.unlink()
    lake.commit(AT[1], action="replacecommit", fields=None)
    catalog.committed(spark, lake.table)
    assert set(partitions("u")) == {"Frank Lloyd Wright Archive"}, "the cleaned one is gone"


def test_a_new_column_is_told_to_the_table_and_to_each_partition(tmp_path, spark):
    lake = Lake(tmp_path / "t", catalog="u", type="cow")
    lake.commit(AT[0])
    hudi.register(spark, lake.table)
    lake.commit(AT[0], fields=[*FIELDS, ("later", "double")])
    catalog.committed(spark, lake.table)
    for storage in (entry("u")["StorageDescriptor"], *partitions("u").values()):
        assert [(c["Name"], c["Type"]) for c in storage["Columns"]] == [*COLUMNS, ("later", "double")]


def test_a_table_of_another_place_is_replaced_and_one_that_is_dropped_is_gone(tmp_path, spark):
    for place in ("one", "two"):
        lake = Lake(tmp_path / place, catalog="u", type="cow")
        lake.commit(f"classification={place}")
        hudi.register(spark, lake.table)
        assert entry("u")["StorageDescriptor"]["Location"] == lake.table.base and set(partitions("u")) == {place}
    world = on_aws.world().model_copy(update={"lake": SimpleNamespace(
        tables=f"file:{tmp_path}", checkpoints=f"file:{tmp_path}/c", dead_letters=f"file:{tmp_path}/d")})
    hudi.drop(spark, world, lake.table)
    assert not hudi.registered(spark, lake.table) and not (tmp_path / "two").exists()
    hudi.drop(spark, world, lake.table)


def test_a_sync_that_broke_off_is_done_again(tmp_path, spark, monkeypatch):
    lake = Lake(tmp_path / "t", catalog="u", type="cow")
    lake.commit(*AT)
    answer = {"Errors": [{"PartitionValues": ["Design"], "ErrorDetail": {
        "ErrorCode": "InternalServiceException", "ErrorMessage": "try later"}}]}
    call = aws.call
    with monkeypatch.context() as m:
        m.setattr(aws, "call", lambda region, service, operation, **given: (
            answer if operation == "batch_create_partition" else call(region, service, operation, **given)))
        with pytest.raises(StackError, match="(?s)Glue refuses 1 partitions of moma_mor.u: try later.*Internal"):
            hudi.register(spark, lake.table)
    assert "last_commit_time_sync" not in entry("u")["Parameters"]
    catalog.committed(spark, lake.table)
    assert len(partitions("u")) == 3


def test_what_somebody_else_has_just_made_is_as_it_should_be(tmp_path, spark, monkeypatch):
    lake = Lake(tmp_path / "t", catalog="u", type="cow")
    lake.commit(*AT)
    hudi.register(spark, lake.table)
    monkeypatch.setattr(aws, "pages", lambda *given, **more: [])  # the other one was quicker
    lake.commit(*AT)
    catalog.committed(spark, lake.table)
    monkeypatch.setattr(glue, "_entry", lambda world, name: None)
    hudi.register(spark, lake.table)
    monkeypatch.undo()
    assert len(partitions("u")) == 3


def test_a_table_that_athena_could_not_read(tmp_path, spark):
    lake = Lake(tmp_path / "t")
    with pytest.raises(LakeError, match="no commit that says its columns"):
        hudi.register(spark, lake.table)
    lake.commit(*AT)
    lake.version("8")
    with pytest.raises(LakeError, match="(?s)has Hudi table version 8.*version 6, which Athena reads"):
        hudi.register(spark, lake.table)
    with pytest.raises(LakeError, match="there is no Hudi table"):
        hudi.register(spark, hudi.Table("no", f"file:{tmp_path}/no", ("a",), "b"))


def test_a_database_is_made_with_its_tag_and_asks_for_rights_that_are_missing(spark):
    with mock.patch.object(aws, "call", wraps=aws.call) as call:
        catalog.make_database(spark, "one")
        catalog.make_database(spark, "one")
    made = [c.kwargs for c in call.call_args_list if c.args[2] == "create_database"]
    assert made == [{"DatabaseInput": {"Name": "one"}, "Tags": {"workbench:deployment": "workbench"}}]
    with on_aws.stubbed("glue") as stub:
        stub.add_client_error("get_database", "AccessDeniedException",
                              "User: arn:a is not authorized to perform: glue:GetDatabase on resource: arn:b")
        with pytest.raises(StackError, match="glue:GetDatabase is not allowed on arn:b"):
            catalog.make_database(spark, "one")
