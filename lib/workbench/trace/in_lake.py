"""Where one record lies in a Hudi table, and since when: from its timeline and its files, without Spark.

A commit of the ingest says how far the source was read, so the commit of a message is the first one that had read it.
Which file it went to is asked of the files: a base file is opened and looked into; a log file belongs to a base file,
and a record stays in its file group until it changes partition (the index sees to that).
"""
from __future__ import annotations

from typing import Any, Collection, Dict, List, Optional

from ..base import files
from ..base.params import World
from ..hudi.catalog import entries
from ..hudi.changes import Topic, landed_list
from ..hudi.ingesting import progress_in
from ..hudi.tables import Table
from ..hudi.timeline import Done, completed, write_stats
from ..landing.formats import folder_of


def names(lake: Table) -> Dict[str, str]:
    """{short name: view}: `cow`, or `mor_ro` and `mor_rt`, and the catalog's names of them."""
    return {lake.type + entry[-3:] if lake.type == "mor" else lake.type: entry for entry in entries(lake)}


class History:
    """One record in one table."""

    def __init__(self, world: World, table: Table, key: Any):
        self.world, self.table = world, table
        self._held: Dict[str, Any] = {}
        self.done = completed(self.table)
        one = len(table.key) == 1 and len(table.partition) <= 1
        self.record_key = str(key) if one else f"{table.key[0]}:{key}"  # Hudi's two key generators

    def commit(self, topic: str, partition: int, offset: int, landed: str = "") -> Optional[Done]:
        """The commit that brought a message in, from the topic or from the file it was landed in; None where there is
        none yet, or where it was archived."""
        by_topic, before = Topic(topic).id, 0
        for number, done in enumerate(self.done):
            for source, progress in progress_in(done.body).items():
                if source == by_topic:
                    upto = progress.get("offsets", {}).get(str(partition), 0)
                    if before <= offset < upto:
                        # earlier ones were archived: which of them it was cannot be told
                        return None if number == 0 and progress["batch"] > 0 else done
                    before = max(before, upto)
                elif landed and landed in self._list(source, progress["batch"]):
                    return done
        return None

    def _list(self, source: str, batch: int) -> List[str]:
        """The landed files that a batch has read (see changes), as their paths below the landing."""
        root = files.open_address(self.world.lake.landing)[1].rstrip("/") + "/"
        return [p[len(root):] for p in landed_list(self.world, self.table, source, batch) or []]

    def place(self, commit: Done, record: Dict[str, Any], before: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
        """What a commit says (see write_stats) of the file that this version of the record went into; None where that
        cannot be told any more (files were cleaned).

        Args:
            before: the same of the version before it. A hard delete goes there, too.
        """
        stats = [stat for _, stat in write_stats(commit.body)]
        if record.get("__deleted") == "true" and self.table.deletes == "hard":
            return next((s for s in stats if before and s["fileId"] == before["fileId"]), None)
        own = [s for s in stats if _folder(s) == folder_of(record, self.table.partition)]
        return next((s for s in own or stats if self._holds(s, record[self.table.ordering], before)), None)

    def _holds(self, stat: Dict[str, Any], version: Any, before: Optional[Dict[str, Any]]) -> bool:
        if _is_base(stat):
            return self.version(stat["path"]) == version
        if stat.get("baseFile"):
            return self.version("/".join(p for p in (_folder(stat), stat["baseFile"]) if p)) is not None
        return before is not None and before["fileId"] == stat["fileId"]

    def version(self, path: str) -> Optional[Any]:
        """The ordering value of the record in a base file; None where it is not in there, or the file is gone."""
        if path not in self._held:
            import pyarrow.parquet

            system, root = files.open_address(self.table.base)
            try:
                found = pyarrow.parquet.read_table(
                    f"{root}/{path}", filesystem=system, columns=[self.table.ordering], partitioning=None,
                    filters=[("_hoodie_record_key", "==", self.record_key)])
                self._held[path] = found[0][0].as_py() if found.num_rows else None
            except FileNotFoundError:
                self._held[path] = None
        return self._held[path]

    def in_base_files(self, groups: Collection[str]) -> List[Any]:
        """The versions of the record that the base files of these file groups have held, oldest first."""
        stats = (stat for done in self.done for _, stat in write_stats(done.body))
        paths = [s["path"] for s in stats if s["fileId"] in groups and _is_base(s)]
        return [v for v in map(self.version, paths) if v is not None]


def _folder(stat: Dict[str, Any]) -> str:
    return (stat["path"] or "").rpartition("/")[0]


def _is_base(stat: Dict[str, Any]) -> bool:
    return (stat["path"] or "").endswith(".parquet")
