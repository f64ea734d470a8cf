"""Which files a reader has to merge, on folders made by hand."""

import pytest
from workbench import hudi
from workbench.query import readcost

# the first group was compacted at …03, and got a log since; the second has only its base file
FILES = {
    "p=a/f-0_0-1-1_20260101120000001.parquet": 100,
    "p=a/.f-0_20260101120000001.log.1_0-1-1": 10,
    "p=a/.f-0_20260101120000001.log.2_0-1-1": 11,
    "p=a/f-0_0-9-9_20260101120000003.parquet": 120,
    "p=a/.f-0_20260101120000003.log.1_0-1-1": 12,
    "p=b/g-1_0-1-1_20260101120000001.parquet": 50,
    "p=a/.hoodie_partition_metadata": 5,
    "p=a/..f-0_20260101120000001.log.1_0-1-1.crc": 5,
    ".hoodie/20260101120000001.deltacommit": 5,
    ".hoodie/20260101120000003.commit": 5,
    ".hoodie/metadata/files/x-0_0-1-1_20260101120000001.parquet": 5,
}


@pytest.fixture
def table(tmp_path):
    for name, size in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    return hudi.Table(name="t", base=f"file:{tmp_path}", key=("id",), ordering="v", type="mor")


def test_data_files_are_told_apart(table):
    found = readcost.data_files(table)
    assert list(found["kind"]) == ["base", "log", "log", "base", "log", "base"]
    assert list(found["bytes"]) == [100, 10, 11, 120, 12, 50] and list(found["number"]) == [
        0,
        1,
        2,
        0,
        1,
        0,
    ]
    assert set(found["group"]) == {"f-0", "g-1"} and set(found["partition"]) == {"p=a", "p=b"}


def test_only_logs_since_the_last_compaction_are_merged(table):
    assert list(readcost.unmerged_logs(table)["bytes"]) == [12]


def test_while_a_compaction_is_pending_the_logs_on_both_sides_of_it_are_merged(table, tmp_path):
    """Also when it was killed after it had written its base file: that one does not count without
    the commit."""
    for name in (
        "p=a/f-0_0-12-12_20260101120000005.parquet",
        "p=a/.f-0_20260101120000005.log.1_0-1-1",
    ):
        (tmp_path / name).write_bytes(b"x" * 13)
    (tmp_path / ".hoodie/20260101120000005.compaction.requested").touch()
    assert list(readcost.unmerged_logs(table)["bytes"]) == [12, 13]
    (tmp_path / ".hoodie/20260101120000005.commit").touch()
    assert list(readcost.unmerged_logs(table)["bytes"]) == [13]


def test_the_logs_of_a_file_group_that_was_clustered_are_merged_no_more(table, tmp_path):
    done = tmp_path / ".hoodie/20260101120000006.replacecommit"
    done.write_text('{"partitionToReplaceFileIds": {"p=b": ["g-1"]}}')
    assert list(readcost.unmerged_logs(table)["bytes"]) == [12]
    done.write_text('{"partitionToReplaceFileIds": {"p=a": ["f-0"]}}')
    assert readcost.unmerged_logs(table).empty


def test_a_base_file_whose_commit_was_archived_counts(table, tmp_path):
    (tmp_path / ".hoodie/20260101120000003.commit").rename(
        tmp_path / ".hoodie/20260101120000009.commit"
    )
    (tmp_path / ".hoodie/20260101120000001.deltacommit").unlink()
    assert list(readcost.unmerged_logs(table)["bytes"]) == [12]


def test_a_table_without_files(tmp_path):
    empty = hudi.Table(name="t", base=f"file:{tmp_path}/none", key=("id",), ordering="v")
    assert readcost.data_files(empty).empty and readcost.unmerged_logs(empty).empty
