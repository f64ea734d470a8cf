"""Labels, and what of the past can still be read: on timelines made by hand."""

import datetime as dt
import json
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from workbench import hudi
from workbench.base.errors import LakeError
from workbench.hudi import labeling, timeline

ARCHIVED = "20250601000000000"
T1, T2, T3, LATER = (
    "20260101120000001",
    "20260101120000002",
    "20260101120000003",
    "20270101120000000",
)


@pytest.fixture
def world(tmp_path):
    return SimpleNamespace(
        lake=SimpleNamespace(checkpoints=f"file:{tmp_path}/checkpoints", tables=f"file:{tmp_path}")
    )


@pytest.fixture
def table(tmp_path):
    """Three commits of one file group: a base file, its log, and a new base file."""
    made = hudi.Table(name="t", base=f"file:{tmp_path}/t", key=("id",), ordering="v", type="mor")
    write(made, T1, "deltacommit", base(T1))
    write(made, T2, "deltacommit", "p=a/.f_1.log.1_0-1-1")
    write(made, T3, "commit", base(T3))
    return made


def base(instant):
    return f"p=a/f_0-1-1_{instant}.parquet"


def folder(table):
    from pathlib import Path

    return Path(table.base[len("file:") :])


def write(table, instant, action, path, group="f", previous=None, partition="p=a", **more):
    """A commit that wrote one file of a file group; `previous` is the instant of its base file."""
    stat = {"fileId": group, "path": path, "numInserts": 2, "totalWriteBytes": 10}
    stats = {"partitionToWriteStats": {partition: [{**stat, "prevCommit": previous}]}}
    for name, text in (
        (f".hoodie/{instant}.{action}.requested", ""),
        (path, "x"),
        (f".hoodie/{instant}.{action}", json.dumps({**stats, **more})),
    ):
        file = folder(table) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def replace_groups(table, instant, *groups):
    """A clustering."""
    replaced = {"partitionToReplaceFileIds": {"p=a": groups}}
    write(table, instant, "replacecommit", "p=a/new_0.parquet", "new", **replaced)


def test_a_label_keeps_its_instant_while_the_table_goes_on(world, table):
    first = hudi.label(world, table, "first", "0/16B3748")
    write(table, LATER, "deltacommit", base(LATER))
    hudi.label(world, table, "second")
    assert (first.instant, first.position) == (T3, "0/16B3748")
    assert list(hudi.labels(world, table)["instant"]) == [T3, LATER]
    hudi.label(world, table, "first")  # moved
    assert dict(hudi.labels(world, table)[["label", "instant"]].values) == {
        "first": LATER,
        "second": LATER,
    }


def test_labels_that_are_given_at_once_are_all_kept(world, table):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: hudi.label(world, table, f"n{n}"), range(24)))
    assert set(hudi.labels(world, table)["label"]) == {f"n{n}" for n in range(24)}


@pytest.mark.parametrize("label", ["", "1st", "after update", "a;b"])
def test_a_label_is_a_name(world, table, label):
    with pytest.raises(LakeError, match="is not a label"):
        hudi.label(world, table, label)


def test_a_table_without_a_commit_has_nothing_to_label(world, table):
    empty = hudi.Table(name="e", base=table.base + "_empty", key=("id",), ordering="v")
    with pytest.raises(LakeError, match="no completed commit"):
        hudi.label(world, empty, "first")


def test_an_unknown_label_names_the_nearest(world, table):
    hudi.label(world, table, "after_update_1")
    with pytest.raises(LakeError, match="(?s)no instant labeled 'after_update_2'.*after_update_1"):
        labeling.resolve_instant(world, table, "after_update_2")
    assert (
        labeling.resolve_instant(world, table, "after_update_1")
        == labeling.resolve_instant(world, table, T3)
        == T3
    )


def test_a_label_whose_commit_was_rolled_back_is_refused(world, table):
    """The last commit of all, and one that others followed; an instant between two commits may be
    anything."""
    hudi.label(world, table, "wrong")
    done = folder(table) / f".hoodie/{T3}.commit"
    kept = done.read_text()
    done.unlink()
    for _ in range(2):
        with pytest.raises(
            LakeError, match=f"(?s){T3} that 'wrong' names is not on the timeline.*rolled back"
        ):
            labeling.resolve_instant(world, table, "wrong")
        write(table, LATER, "commit", "p=a/f_0-3-3_x.parquet")
    assert labeling.resolve_instant(world, table, T3) == T3
    archive = folder(table) / ".hoodie/archived/x"
    archive.parent.mkdir()
    archive.write_text("")
    with pytest.raises(LakeError, match="not on the timeline"):  # younger than what was archived
        labeling.resolve_instant(world, table, "wrong")
    for name in (T1, T2):
        (folder(table) / f".hoodie/{name}.deltacommit").unlink()
    assert labeling.resolve_instant(world, table, "wrong") == T3, "archived: check_readable says so"
    done.write_text(kept)
    assert labeling.resolve_instant(world, table, "wrong") == T3


def test_the_independent_reader_keeps_to_the_same_rules(world, table):
    hudi.label(world, table, "last")
    with pytest.raises(LakeError, match=f"written last at {T3}, {LATER} is later"):
        hudi.read_arrow(table, as_of=(world, LATER))
    with pytest.raises(LakeError, match="no instant labeled 'lost'"):
        hudi.read_arrow(table, as_of=(world, "lost"))
    assert not hudi.read_arrow(table, as_of=(world, "20250101000000000")).num_rows
    (folder(table) / base(T1)).unlink()
    with pytest.raises(LakeError, match="cleaned away"):
        hudi.read_arrow(table, as_of=(world, T1))


def test_before_the_first_commit_there_is_nothing(table):
    assert not timeline.check_readable(table, "20250101000000000")
    assert timeline.check_readable(table, T1) and timeline.check_readable(table, T3)


def test_what_was_cleaned_is_an_error_and_names_the_first_instant_that_is_whole(table):
    (folder(table) / base(T1)).unlink()
    for instant in (T1, T2):  # the log of T2 is of no use without its base file
        with pytest.raises(
            LakeError, match=f"(?s)1 of the files that {instant} needs were cleaned.*from {T3} on"
        ):
            timeline.check_readable(table, instant)
    assert timeline.check_readable(table, T3)


def test_replaced_files_are_not_needed_any_more(table):
    replace_groups(table, LATER, "f")
    (folder(table) / base(T3)).unlink()
    assert timeline.check_readable(table, LATER)


def test_what_an_archived_commit_wrote_and_was_cleaned_since_is_missed(table):
    """Group g was written by a commit that is in no timeline any more, and after T2 again: T2 needs
    that file."""
    write(table, LATER, "commit", "p=a/g_0-2-2_x.parquet", "g", ARCHIVED)
    with pytest.raises(
        LakeError, match="(?s)cleaned away.*p=a/g_\\*20250601000000000.parquet.*from " + LATER
    ):
        timeline.check_readable(table, T2)
    (folder(table) / "p=a/g_0-1-1_20250601000000000.parquet").write_text("x")
    assert timeline.check_readable(table, T2)


def test_of_a_group_that_a_clustering_replaced_and_an_archived_commit_wrote_the_file_is_missed(
    table,
):
    replace_groups(table, LATER, "f", "g-0")
    with pytest.raises(LakeError, match="(?s)cleaned away.*p=a/g-0_\\*.parquet.*from " + LATER):
        timeline.check_readable(table, T3)
    assert timeline.check_readable(table, LATER)
    (folder(table) / "p=a/g-0_0-1-1_20250601000000000.parquet").write_text("x")
    assert timeline.check_readable(table, T3)


def test_a_missing_file_is_named_once_by_its_name(table):
    """Group g was written by an archived commit, again after T2, and replaced by a clustering after
    that."""
    write(table, LATER, "deltacommit", "p=a/.g_x.log.1_0-1-1", "g", ARCHIVED)
    replace_groups(table, LATER[:-1] + "9", "g")
    with pytest.raises(LakeError, match="(?s)1 of the files.*p=a/g_\\*20250601000000000.parquet"):
        timeline.check_readable(table, T3)


def test_of_a_table_without_partitions_the_same_files_are_found(table):
    write(table, LATER, "commit", "h_0-2-2_x.parquet", "h", ARCHIVED, partition="")
    (folder(table) / "h_0-1-1_20250601000000000.parquet").write_text("x")
    assert timeline.check_readable(table, T3)


@pytest.mark.parametrize(
    "name, told", [("archived", ""), ("history", "hoodie.archivelog.folder=history\n")]
)
def test_archived_commits_are_an_error(world, table, name, told):
    (folder(table) / ".hoodie/hoodie.properties").write_text(
        f"#made by\n{told}hoodie.table.name=t\n"
    )
    archive = folder(table) / ".hoodie" / name / "x"
    archive.parent.mkdir()
    archive.write_text("")
    with pytest.raises(LakeError, match=f"(?s)were archived.*/{name}.*from {T1} on"):
        timeline.check_readable(table, "20250101000000000")
    with pytest.raises(LakeError, match="were archived"):
        hudi.between(None, world, table, "20250101000000000", T3)


def test_an_increment_that_ends_before_it_begins_is_refused(world, table):
    hudi.label(world, table, "late")
    with pytest.raises(
        LakeError, match=f"(?s)from late to {T1} ends before it begins.*begin {T3}, end {T1}"
    ):
        hudi.between(None, world, table, "late", T1)


def test_commits_tell_rows_bytes_and_order(table):
    shown = hudi.commits(table)
    assert list(shown["instant"]) == [T1, T2, T3] and list(shown["action"]) == [
        "deltacommit",
        "deltacommit",
        "commit",
    ]
    assert (
        list(shown["inserted"]) == [2] * 3
        and list(shown["bytes"]) == [10] * 3
        and list(shown["files"]) == [1] * 3
    )


def test_a_pending_compaction_hides_what_came_after_it_from_the_independent_reader(table):
    assert timeline.pending_compactions(table) == []
    asked = folder(table) / ".hoodie" / f"{T3[:-1]}4.compaction.requested"
    asked.write_text("")
    write(table, LATER, "deltacommit", "p=a/.f_4.log.1_0-1-1")
    with pytest.raises(
        LakeError, match=f"(?s)the compaction {T3[:-1]}4 of t is pending.*hudi.compact"
    ):
        hudi.read_arrow(table)
    (folder(table) / ".hoodie" / f"{T3[:-1]}4.commit").write_text("{}")
    assert timeline.pending_compactions(table) == []


@pytest.mark.parametrize(
    "ahead, says",
    [(dt.timedelta(hours=5, minutes=45), "5:4[45]:"), (dt.timedelta(seconds=30), "0:00:")],
)
def test_a_clock_that_was_set_back_is_named(table, ahead, says):
    timeline.check_clock(
        hudi.Table(name="e", base=table.base + "_empty", key=("id",), ordering="v")
    )
    timeline.check_clock(table)
    write(
        table,
        f"{dt.datetime.now(dt.timezone.utc) + ahead:%Y%m%d%H%M%S%f}"[:17],
        "deltacommit",
        "p=a/.f_2.log",
    )
    with pytest.raises(
        LakeError, match=f"(?s)newest commit of t lies {says}.* ahead of this machine.*set back"
    ):
        timeline.check_clock(table)


def test_clocks_of_two_machines_may_differ_a_little(table):
    ahead = dt.datetime.now(dt.timezone.utc) + dt.timedelta(milliseconds=600)
    write(table, f"{ahead:%Y%m%d%H%M%S%f}"[:17], "deltacommit", "p=a/.f_2.log")
    timeline.check_clock(table)
    assert dt.datetime.now(dt.timezone.utc) >= ahead - dt.timedelta(milliseconds=1)
