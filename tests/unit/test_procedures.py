"""Hudi's procedures: what is called, with which options, and values that stay values. A fake
session notes the SQL."""

import threading
from types import SimpleNamespace

import pandas as pd
import pytest
import sqlglot
from workbench import hudi
from workbench.base import wait
from workbench.base.errors import LakeError
from workbench.hudi import ddl, tables


class Spark:
    """Stands for a session whose catalog is empty."""

    def __init__(self):
        self.asked = []
        self.catalog = SimpleNamespace(tableExists=lambda name: False)
        self.conf = SimpleNamespace(set=lambda name, value: None)

    def sql(self, text):
        self.asked.append(text)
        return SimpleNamespace(collect=list, toPandas=pd.DataFrame)


def table(tmp_path, **fields):
    return hudi.Table(
        **{
            "name": "t",
            "base": f"file:{tmp_path}",
            "key": ("id",),
            "ordering": "__lsn",
            "type": "mor",
            **fields,
        }
    )


@pytest.fixture
def written(tmp_path):
    (tmp_path / ".hoodie").mkdir()
    (tmp_path / ".hoodie" / "20260101120000001.deltacommit").write_text("{}")
    (tmp_path / ".hoodie" / "hoodie.properties").write_text("hoodie.table.version=6")
    return tmp_path


def calls(spark):
    """[(op, table, {option: value})] of the compactions that were called."""
    found = []
    for text in (t for t in spark.asked if t.startswith("CALL ")):
        given = dict(
            part.split(" => ") for part in text[len("CALL run_compaction(") : -1].split(", ")
        )
        options = dict(option.split("=") for option in given["options"].strip("'").split(","))
        found.append((given["op"].strip("'"), given["table"].strip("'"), options))
    return found


def test_a_compaction_is_planned_and_run_and_its_files_are_seen(written):
    for asked, operations in (
        ([], ["schedule", "run"]),
        (["schedule"], ["schedule"]),
        (["run"], ["run"]),
    ):
        spark = Spark()
        hudi.compact(spark, table(written, catalog="people"), *asked)
        assert [(op, entry) for op, entry, _ in calls(spark)] == [
            (op, "datalake.people_rt") for op in operations
        ]
        assert spark.asked[-2:] == [
            "REFRESH TABLE `datalake`.`people_ro`",
            "REFRESH TABLE `datalake`.`people_rt`",
        ]


def test_a_compaction_writes_base_files_as_the_table_does(written):
    def options(**fields):
        spark = Spark()
        hudi.compact(spark, table(written, **fields))
        return calls(spark)[-1][2]

    assert (
        options().items()
        >= {
            **tables.OPTION_GROUPS["base files"],
            "hoodie.compact.inline.max.delta.commits": "1",
        }.items()
    )
    assert (
        options(extra={"hoodie.parquet.compression.codec": "zstd"})[
            "hoodie.parquet.compression.codec"
        ]
        == "zstd"
    )


BY_RECORDS = "hoodie.file.group.reader.enabled"


@pytest.mark.parametrize(
    ("columns", "by_records"),
    [
        ("struct<l:array<int>,d:decimal(18,2)>", True),
        ("struct<m:map<string,decimal(10,2)>>", True),
        ("struct<s:struct<l:array<int>>,d:decimal(5,2)>", True),
        ("struct<l:array<int>,d:decimal(19,2)>", False),
        ("struct<d:decimal(10,2),n:int>", False),
        ("struct<l:array<int>,n:int>", False),
    ],
)
def test_only_a_list_or_a_map_beside_a_small_decimal_is_compacted_by_records(
    written, monkeypatch, columns, by_records
):
    """By records a delete that comes late removes the row; by rows the next merge would read lists
    as null."""
    schema = SimpleNamespace(simpleString=lambda: columns)
    assert tables.needs_record_writer(schema) == by_records
    monkeypatch.setattr(ddl.evolution, "table_columns", lambda done: schema)

    def options(**fields):
        spark = Spark()
        hudi.compact(spark, table(written, **fields))
        return calls(spark)[-1][2]

    assert options().get(BY_RECORDS) == ("false" if by_records else None)
    assert options(extra={BY_RECORDS: "true"})[BY_RECORDS] == "true"


@pytest.mark.parametrize("extra", [{"hoodie.compact.inline": "false"}, {}])
def test_a_plan_waits_for_the_commit_under_way_and_what_is_planned_does_not(written, extra):
    """Unless commits compact, too: they would roll back the plan and execute it again."""
    held, spark = [], Spark()
    by_hand = bool(extra)
    answer, lock = spark.sql, written / ".hoodie" / ".writing.lock"

    def sql(text):
        if text.startswith("CALL "):
            held.append(("'schedule'" in text, bool(wait.lock_owner_pid(lock))))
        if "'schedule'" in text:
            (written / ".hoodie" / "20260101120000002.compaction.requested").touch()
        return answer(text)

    spark.sql = sql
    hudi.compact(spark, table(written, extra=extra))
    assert held == [(True, True), (False, not by_hand)]
    (written / ".hoodie" / "20260101120000002.compaction.requested").unlink()
    hudi.compact(spark, table(written, extra=extra), "run")
    assert held[2:] == [(False, True)], "Hudi plans where nothing is planned"
    with tables.commit_lock(table(written)):
        waiting = threading.Thread(target=hudi.compact, args=(spark, table(written), "schedule"))
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive() and len(held) == 3
    waiting.join(10)
    assert held[3:] == [(True, True)]


def test_a_compaction_that_hudi_refuses(written):
    spark = Spark()
    answer = spark.sql

    def sql(text):
        if "'run'" in text:
            raise RuntimeError("stack\nCaused by: HoodieException: earlier than the compaction")
        return answer(text)

    spark.sql = sql
    with pytest.raises(LakeError, match="(?s)t failed: HoodieException: earlier.*again"):
        hudi.compact(spark, table(written))


def test_what_cannot_be_compacted(tmp_path):
    with pytest.raises(LakeError, match='(?s)table t is Copy-on-Write, it has no logs.*type "mor"'):
        hudi.compact(Spark(), table(tmp_path, type="cow"))
    with pytest.raises(LakeError, match="(?s)no completed commit to compact.*ingest something"):
        hudi.compact(Spark(), table(tmp_path))


@pytest.mark.parametrize(
    "value", ["plain", "it's", "''", "\\", "\\' OR 1 => 1, x => '", "a\nb", "100%_", '"`é', ""]
)
def test_a_hostile_text_stays_one_text(value):
    read = sqlglot.parse_one(ddl.literal(value), read="spark")
    assert isinstance(read, sqlglot.exp.Literal) and read.is_string and read.this == value


def test_values_of_a_call():
    spark = Spark()
    hudi.call_procedure(spark, "run_clean", table="d.t_rt", retained=1, dry=True)
    assert spark.asked == ["CALL run_clean(table => 'd.t_rt', retained => 1, dry => true)"]
    for value in (None, 1.5, ["x"]):
        with pytest.raises(LakeError, match="(?s)is of type.*expected"):
            hudi.call_procedure(spark, "show_commits", limit=value)
