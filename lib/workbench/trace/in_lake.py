"""Where one record lies in a Hudi table, and since when: from its timeline, and read as of its
commits by hudi-rs.

A commit of the ingest says how far the source was read, so the commit of a message is the first one
that had read it. Which file it went to is asked of the table as of that commit: each row says its
file, one in a log its file group.
"""

from typing import Any, Mapping, Optional

from .. import hudi
from ..base import LakeError, World, files
from ..hudi.changes import Topic, landed_list
from ..hudi.ddl import identifier, literal
from ..hudi.ingesting import read_progress
from ..hudi.timeline import CompletedAction, HistoryRemoved, check_readable, write_stats
from ..spark import session


def view_names(lake: hudi.Table) -> dict[str, str]:
    """{short name: view}: `cow`, or `mor_ro` and `mor_rt`, and the catalog's names of them."""
    return {
        lake.type + entry[-3:] if lake.type == "mor" else lake.type: entry
        for entry in hudi.catalog_names(lake)
    }


def rows_of_key(
    world: World,
    lake: hudi.Table,
    key: Mapping[str, Any],
    kind: str = "snapshot",
    instant: str = "",
) -> list[dict[str, Any]]:
    """The rows of a key ({field: value}) as a kind of view shows them, now or as of an instant.

    Raises: LakeError: files that the instant needs were cleaned away.
    """
    try:
        return hudi.read_independent(
            lake,
            as_of=(world, instant) if instant else None,
            optimized=kind == "read_optimized",
            where=key,
        ).to_dict("records")
    except (
        LakeError
    ):  # a pending compaction hides from hudi-rs what came after it; Spark takes longer
        if instant:
            check_readable(lake, instant)
        then = {"as.of.instant": instant} if instant else {}
        read = hudi.spark_reader(session(world)).options(
            **{"hoodie.datasource.query.type": kind}, **then
        )
        ((field, value),) = key.items()
        return (
            read.load(lake.base)
            .where(f"{identifier(field)} = {literal(value)}")
            .toPandas()
            .to_dict("records")
        )


def find_commit(
    world: World,
    lake: hudi.Table,
    done: list[CompletedAction],
    topic: str,
    event: Mapping[str, Any],
) -> Optional[CompletedAction]:
    """The one of these commits that brought a message in, from the topic or from the file it was
    landed in; None where there is none yet, or where it was archived.
    """
    by_topic, before = Topic(topic).id, 0
    landed = files.open_filesystem(f"{world.lake.landing}/{event['landed']}")[1]
    for number, commit in enumerate(done):
        for source, progress in read_progress(commit.metadata).items():
            if source == by_topic:
                upto = progress.get("offsets", {}).get(str(event["partition"]), 0)
                if before <= event["offset"] < upto:
                    # earlier ones were archived: which of them it was cannot be told
                    return None if number == 0 and progress["batch"] > 0 else commit
                before = max(before, upto)
            elif event["landed"] and landed in (
                landed_list(world, lake, source, progress["batch"]) or ()
            ):
                return commit
    return None


def written_file(
    world: World,
    lake: hudi.Table,
    commit: CompletedAction,
    key: Mapping[str, Any],
    record: Mapping[str, Any],
    group: str,
) -> dict[str, Any]:
    """What a commit says (see write_stats) of the file that this version of the record went into;
    nothing where that cannot be told any more (files were cleaned).

    Args:
        group: the file group of the version before it. A hard delete goes there, too.
    """
    if record.get("__deleted") != "true" or lake.deletes == "soft":
        group = (
            versions_at(world, lake, key, commit)
            .get(lake.ordering_value(record), "")
            .partition("_")[0]
        )
    return next((stat for _, stat in write_stats(commit.metadata) if stat["fileId"] == group), {})


def versions_at(
    world: World,
    lake: hudi.Table,
    key: Mapping[str, Any],
    commit: CompletedAction,
    kind: str = "snapshot",
) -> dict[Any, str]:
    """{version of a record: its file, or file group} in a kind of view as of a commit; nothing
    where files of then were cleaned away. A version is told by its ordering value. Raises:
    LakeError: the table cannot be read.
    """
    try:
        return {
            lake.ordering_value(r): r["_hoodie_file_name"]
            for r in rows_of_key(world, lake, key, kind, commit.instant)
        }
    except HistoryRemoved:
        return {}
