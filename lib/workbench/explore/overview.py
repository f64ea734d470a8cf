"""All tables, and the history of one: from timelines and the databases' own statistics, without a scan."""

from __future__ import annotations

import contextlib
import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence, Union

import pandas as pd

from .. import hudi
from ..base import WorkbenchError, World, files
from ..display import draw
from ..display.result import Result
from ..hudi.changes import SourceProgress
from ..hudi.ingesting import last_ingest_action, read_progress
from ..hudi.timeline import completed_actions, missing_files, parse_instant
from ..source import mariadb, postgres
from ..topic import topics
from .finding import find, lake_tables, relative_path
from .views import stored_rows

MAX_DRAWN = 24  # commits in the strip: the last ones
THREADS = 8  # requests to S3 and to databases wait, and do not compute
POSTGRES_TABLES = """
    SELECT concat_ws('.', current_database(), nspname, c.relname) AS name, sum(n_live_tup)::bigint AS n,
           sum(pg_total_relation_size(relid))::bigint AS bytes
    FROM pg_stat_user_tables JOIN pg_class AS c ON c.oid = coalesce(pg_partition_root(relid), relid)
    JOIN pg_namespace AS s ON s.oid = c.relnamespace GROUP BY 1 ORDER BY 1"""
MARIADB_TABLES = (
    "SELECT concat(table_schema, '.', table_name) AS name, table_rows AS n, "
    "data_length + index_length AS bytes FROM information_schema.tables WHERE table_type = 'BASE TABLE' "
    "AND table_schema NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema') ORDER BY 1"
)


@dataclass(frozen=True, eq=False, repr=False)
class History(Result):
    """The history of a table.

    Attributes:
        title: name of the table.
        frame: a row for each commit (see `history`).
        picture: the last commits as a strip.
    """

    title: str
    frame: pd.DataFrame
    picture: draw.Picture
    limit = 1000

    def parts(self) -> Mapping[str, pd.DataFrame]:
        """Return the rows of the commits."""
        return {"": self.frame}


def tables(world: World) -> pd.DataFrame:
    """List the tables of the lake, and those of the source databases that can be reached.

    Returns:
        table (its path in the lake, or source: database and name), kind, rows (by the statistics of the
        active commits or of the database), files and bytes (with the earlier versions), last_commit
        (UTC), lag_s (seconds since then), unread (messages of its topic that it has not ingested;
        missing if it is ingested from landed files, or if Kafka does not respond), labels.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        sources = pool.map(lambda name: _source_rows(world, name), world.source_names)
        lake = [*pool.map(lambda table: _lake_row(world, table), lake_tables(world))]
        for row, unread in zip(lake, _unread(world, [row["progress"] for row in lake])):
            row["unread"] = unread
        rows = [*lake, *(row for each in sources for row in each)]
    columns = "table kind rows files bytes last_commit lag_s unread labels".split()
    return pd.DataFrame(rows, columns=columns).astype({"files": "Int64", "unread": "Int64"})


def _unread(world: World, tables: Sequence[Mapping[str, SourceProgress]]) -> list[Optional[int]]:
    """Return the number of unread messages of each table; None if it is unknown.

    Args:
        world: the world.
        tables: {source id: position} for each table.
    """
    ids = {source for progress in tables for source in progress if "offsets" in progress[source]}
    ends: dict[str, tuple[str, dict[int, int]]] = {}
    with contextlib.suppress(WorkbenchError):  # Kafka does not respond
        if ids:
            end_offsets = topics.all_end_offsets(world, lambda name: hudi.Topic(name).id in ids)
            ends = {hudi.Topic(name).id: end for name, end in end_offsets.items()}

    def count(progress: Mapping[str, SourceProgress]) -> Optional[int]:
        counts = [
            end - position["offsets"].get(str(partition), 0)
            for source, position in progress.items()
            # the offsets of a topic that was deleted and recreated have no meaning in the new one
            if source in ends and position.get("topic_id") == ends[source][0]
            for partition, end in ends[source][1].items()
        ]
        return sum(counts) if counts else None

    return [count(progress) for progress in tables]


def _lake_row(world: World, table: hudi.Table) -> dict[str, Any]:
    actions = completed_actions(table)
    stored = [
        info
        for path, info in files.list_files(table.base).items()
        if ".hoodie" not in path and not path.endswith(".crc")
    ]
    last = parse_instant(actions[-1].instant) if actions else None
    ingested = last_ingest_action(actions)
    return {
        "table": relative_path(world, table),
        "kind": {"cow": "Hudi, Copy-on-Write", "mor": "Hudi, Merge-on-Read"}[table.type],
        "rows": stored_rows(table),
        "files": len(stored),
        "bytes": sum(info.size for info in stored),
        "last_commit": last,
        "lag_s": round((dt.datetime.now(dt.timezone.utc) - last).total_seconds()) if last else None,
        "progress": read_progress(ingested.metadata) if ingested else {},
        "labels": ", ".join(hudi.labels(world, table)["label"]),
    }


def _source_rows(world: World, source: str) -> list[dict[str, Any]]:
    """Return the tables of a source; none of a database that cannot be reached."""
    server, declared = world.source(source), world.sources.get(source)
    engine = world.source_engine(source)
    frames = []
    # the databases of managed sources are on the server of the world
    listed = {each.database for each in world.sources.values() if each.managed}
    with contextlib.suppress(WorkbenchError):
        if engine != "postgres":
            frames.append(mariadb.query(server, MARIADB_TABLES))
        else:
            names = [declared.database] if declared else [*{*postgres.databases(server)} - listed]
            for name in sorted(names):
                with contextlib.suppress(WorkbenchError):  # template0 accepts no connection
                    frames.append(postgres.query(server, POSTGRES_TABLES, database=name))
    return [
        {"table": f"{source}: {row.name}", "kind": engine, "rows": row.n, "bytes": row.bytes}
        for frame in frames
        for row in frame.itertuples()
    ]


def history(world: World, table: Union[hudi.Table, str]) -> History:
    """List the commits of a table, the oldest first, and draw them.

    Args:
        world: the world.
        table: the table, or its name (see `find`).

    Returns:
        frame: label, instant, operation, inserted, updated, deleted (rows), files and bytes written;
        readable is False if the cleaner removed files of this instant.

    Raises:
        LakeError: as `find`; or the table has no commits.
    """
    table = find(world, table)
    actions, existing = completed_actions(table), set(files.list_files(table.base))
    frame = hudi.commits(table)
    names = hudi.labels(world, table).groupby("instant")["label"].agg(", ".join)
    title = f"history of {table.name}"
    strip = {table.name: frame.tail(MAX_DRAWN)}
    picture = draw.commits(strip, {table.name: names.to_dict()}, title)
    frame = frame.assign(
        label=frame["instant"].map(names).fillna(""),
        readable=[not missing_files(actions, action.instant, existing) for action in actions],
    )
    columns = ["label", *frame.columns.drop(["label", "action", "written", "seconds"])]
    return History(title, frame[columns], picture)
