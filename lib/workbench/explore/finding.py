"""Find a table of the lake by name, and follow one of its rows."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Callable, Iterable, Iterator, Mapping, Union

from .. import hudi, trace
from ..base import LakeError, World, did_you_mean, files

KEYLESS = ("_hoodie_record_key",)  # the key of a table whose keys Hudi made itself
MAX_FOLDER_DEPTH = 3  # of a table below the lake's tables
Declared = Callable[[World], Mapping[str, Iterable[hudi.Table]]]
Traced = Callable[[World, str], trace.TracedTable]
_registered: list[tuple[Declared, Traced]] = []


def register(declared: Declared, traced: Traced) -> None:
    """Add the captured tables of a later package, such as the walkthroughs.

    Args:
        declared: returns {name such as `50_time_travel/artists`: its lake tables} of a world.
        traced: returns the table of such a name for `trace.row`.
    """
    _registered.append((declared, traced))


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
        declared, name, _ = captured.get(each.base, (each, path, None))
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

    Raises:
        LakeError: as `find` and `trace.row`; or no capture writes the table.
    """
    base = find(world, table).base
    _, name, traced = _captured(world).get(base, (None, "", None))
    if traced:
        return trace.row(world, traced(world, name), key)
    raise LakeError(
        "no captured table is ingested into this one, so its rows have no messages",
        location=base,
        expected="a table of a walkthrough or of a captured flow",
        hint="`from workbench import tracks` declares them; explore.diff compares two instants",
    )


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


def _captured(world: World) -> dict[str, tuple[hudi.Table, str, Traced]]:
    """Return {base: (lake table, name of the captured table, function that returns it)}."""
    return {
        table.base: (table, name, traced)
        for declared, traced in _registered
        for name, tables in declared(world).items()
        for table in tables
    }


def _table_folders(folder: str, depth: int) -> Iterator[str]:
    entries = [info.base_name for info in files.list_dir(folder) if not info.is_file]
    if ".hoodie" in entries:
        yield folder
    elif depth:
        for name in sorted(entries):
            yield from _table_folders(f"{folder}/{name}", depth - 1)
