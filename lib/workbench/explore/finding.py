"""Find a table of the lake by name, and follow one of its rows."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Iterator, Union

from .. import flow, hudi, trace
from ..base import LakeError, World, did_you_mean, files

KEYLESS = ("_hoodie_record_key",)  # the key of a table whose keys Hudi made itself
MAX_FOLDER_DEPTH = 3  # of a table below the lake's tables


def find(world: World, table: Union[hudi.Table, str]) -> hudi.Table:
    """Return a table of the lake.

    Args:
        world: the world.
        table: the table itself, or a name: its folder (`artists_mor`, `moma/artists_mor`), its name in
            Hudi or in the catalog (`moma_mor.artists_rt`), or the name of a captured table (`artists`,
            `50_time_travel/artists`).

    Raises:
        LakeError: no table of the lake has this name, or several have it.
    """
    if isinstance(table, hudi.Table):
        return table
    captured = _captured(world)
    by_name: dict[str, dict[str, hudi.Table]] = {}
    for each in lake_tables(world):
        path = relative_path(world, each)
        declared, name = each, path
        if each.base in captured:
            track, capture, declared = captured[each.base]
            name = f"{track}/{capture}"
        names = {each.name, *hudi.catalog_names(declared)}
        for alias in names.union(*[(full, full.rpartition("/")[2]) for full in (path, name)]):
            by_name.setdefault(alias, {})[path] = declared
    matches = by_name.get(table, {})
    if len(matches) > 1 and table not in matches:  # a path names one table
        raise LakeError(
            f"{len(matches)} tables have the name {table!r}",
            expected=f"one of {', '.join(sorted(matches))}",
        )
    if not matches:
        raise LakeError(
            f"the lake has no table {table!r}",
            location=world.lake.tables,
            expected=did_you_mean(table, by_name),
            hint="explore.tables(world) lists the tables; a notebook on ingestion creates them",
        )
    return matches.get(table) or matches.popitem()[1]


def row(world: World, table: Union[hudi.Table, str], key: Any) -> trace.RowHistory:
    """Follow one row of a captured table from its source to the lake (see `trace.row`).

    Args:
        world: the world.
        table: the captured table or one of its lake tables, or its name (see `find`).
        key: record key of the row.

    Raises:
        LakeError: as `find` and `trace.row`; or no capture writes the table.
    """
    captured = _captured(world)
    named = {
        (track, name) for track, name, _ in captured.values() if table in (name, f"{track}/{name}")
    }
    if len(named) != 1:
        base = find(world, table).base
        if base not in captured:
            raise LakeError(
                "no captured table is ingested into this one, so its rows have no messages",
                location=base,
                expected="a table of a walkthrough or of a captured flow",
                hint="`from workbench import tracks` declares them; explore.diff compares two instants",
            )
        named = {captured[base][:2]}
    ((track, name),) = named
    return trace.row(world, flow.declared(world)[track], name, key)


def lake_tables(world: World) -> Iterator[hudi.Table]:
    """Yield all tables of the lake, as their `hoodie.properties` describe them."""
    for base in _table_folders(world.lake.tables, MAX_FOLDER_DEPTH):
        *_, database, name = base.split("/")
        # which index it has is not known, and only a writer needs it
        table = hudi.Table(name, base, KEYLESS, "_hoodie_commit_time", index="GLOBAL_SIMPLE")
        if hudi.exists(table):  # otherwise another process is creating it
            stored = hudi.properties(table)
            key, partition = (  # of a field with a type, such as `day:TIMESTAMP`, the name
                tuple(re.findall(r"([^:,]+)[^,]*", stored.get(f"hoodie.table.{kind}.fields", "")))
                for kind in ("recordkey", "partition")
            )
            yield replace(
                table,
                name=stored.get("hoodie.table.name", name),
                key=key or KEYLESS,
                partition=partition,
                database=stored.get("hoodie.database.name") or database,
                type="mor" if stored["hoodie.table.type"] == "MERGE_ON_READ" else "cow",
            )


def relative_path(world: World, table: hudi.Table) -> str:
    """Return the path of a table below the lake's tables."""
    return table.base.removeprefix(world.lake.tables).strip("/")


def _captured(world: World) -> dict[str, tuple[str, str, hudi.Table]]:
    """Return {base of a lake table: (name of the flow, name of the captured table, lake table)}."""
    return {
        table.base: (track, name, table)
        for track, captures in flow.declared(world).items()
        for name in captures.names
        for table in captures.tables(world, name)
    }


def _table_folders(folder: str, depth: int) -> Iterator[str]:
    entries = [info.base_name for info in files.list_dir(folder) if not info.is_file]
    if ".hoodie" in entries:
        yield folder
    elif depth:
        for name in sorted(entries):
            yield from _table_folders(f"{folder}/{name}", depth - 1)
