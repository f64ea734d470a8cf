"""Find a table of the lake by name, and list all of them."""

from __future__ import annotations

import dataclasses
from typing import Callable, Iterator, Union

from .. import hudi
from ..base import LakeError, World, did_you_mean, files

KEYLESS = ("_hoodie_record_key",)  # the key of a table whose keys Hudi made itself
MAX_FOLDER_DEPTH = 3  # of a table below the lake's tables
# Each returns the declared tables of a world by name, such as `50_time_travel/artists`.
_declarations: list[Callable[[World], dict[str, list[hudi.Table]]]] = []


def register(declaration: Callable[[World], dict[str, list[hudi.Table]]]) -> None:
    """Add names of tables: a function from a world to {name: tables}."""
    _declarations.append(declaration)


def find(world: World, table: Union[hudi.Table, str]) -> hudi.Table:
    """Return a table of the lake.

    Args:
        world: the world.
        table: the table itself, or a name: its folder (`artists_mor`, `moma/artists_mor`), its name in
            the catalog (`moma_mor.artists_rt`) or in Hudi, or the name of a captured table
            (`artists`, `50_time_travel/artists`).

    Raises:
        LakeError: no table of the lake has this name, or several have it.
    """
    if isinstance(table, hudi.Table):
        return table
    tables = {each.base: each for each in lake_tables(world)}
    by_name: dict[str, set[str]] = {}
    for base in tables:
        for name in names(world, tables[base]):
            by_name.setdefault(name, set()).add(base)
    matches = sorted(by_name.get(table, ()))
    if len(matches) == 1:
        return tables[matches[0]]
    if matches:
        paths = ", ".join(relative_path(world, base) for base in matches)
        raise LakeError(
            f"{len(matches)} tables have the name {table!r}", expected=f"one of {paths}"
        )
    raise LakeError(
        f"the lake has no table {table!r}",
        location=world.lake.tables,
        expected=did_you_mean(table, by_name),
        hint="explore.tables(world) lists the tables; a notebook on ingestion makes them",
    )


def lake_tables(world: World) -> list[hudi.Table]:
    """Return all tables of the lake: as they are declared, or else from their properties."""
    declared = {table.base: table for _, table in _declared(world)}
    return [
        declared.get(base) or _from_properties(base)
        for base in _table_folders(world.lake.tables, MAX_FOLDER_DEPTH)
    ]


def names(world: World, table: hudi.Table) -> set[str]:
    """Return the names by which `find` knows a table."""
    path = relative_path(world, table.base)
    declared = {
        alias
        for name, each in _declared(world)
        if each.base == table.base
        for alias in (name, name.rpartition("/")[2])
    }
    return {path, path.rpartition("/")[2], table.name, *hudi.catalog_names(table), *declared}


def relative_path(world: World, base: str) -> str:
    """Return the path of a table below the lake's tables."""
    return base[len(world.lake.tables) :].strip("/")


def _declared(world: World) -> Iterator[tuple[str, hudi.Table]]:
    for declaration in _declarations:
        for name, tables in declaration(world).items():
            for table in tables:
                yield name, table


def _table_folders(folder: str, depth: int) -> Iterator[str]:
    entries = [info.base_name for info in files.list_dir(folder) if not info.is_file]
    if ".hoodie" in entries:
        yield folder
    elif depth:
        for name in sorted(entries):
            yield from _table_folders(f"{folder}/{name}", depth - 1)


def _from_properties(base: str) -> hudi.Table:
    """Return a table as its `hoodie.properties` describe it."""
    database, _, name = base.rpartition("/")
    table = hudi.Table(name, base, KEYLESS, "_hoodie_commit_time", database=database)
    stored = hudi.properties(table)

    def fields(key: str) -> tuple[str, ...]:
        parts = stored.get(f"hoodie.table.{key}.fields", "").split(",")
        return tuple(part.partition(":")[0] for part in parts if part)  # without a generator's type

    return dataclasses.replace(
        table,
        name=stored.get("hoodie.table.name", name),
        key=fields("recordkey") or KEYLESS,
        ordering=stored.get("hoodie.table.precombine.field") or table.ordering,
        partition=fields("partition"),
        database=stored.get("hoodie.database.name") or database.rpartition("/")[2],
        type="mor" if stored.get("hoodie.table.type") == "MERGE_ON_READ" else "cow",
    )
