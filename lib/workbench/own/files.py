"""The files of a flow: flow.yaml with its tables, and the JSON of its connector."""

import contextlib
import itertools
import json
import os
import re
import zlib
from pathlib import Path
from types import ModuleType
from typing import Iterator, Literal, cast

import yaml
from pydantic import Field, ValidationError

from ..base import LakeError, paths, wait, yaml_files
from ..base.models import ConfigModel
from ..connect import configs
from ..flow.resources import OWN_PREFIX
from ..source import mariadb, postgres

TEMPLATES = yaml_files.load(Path(__file__).with_name("templates.yaml"))
OVERRIDES = "snapshot.select.statement.overrides"
FLOW_NAME = re.compile(r"[a-z][a-z0-9_]{0,29}")


class Layout(ConfigModel):
    """The fields of a lake table that are chosen when it is captured (see hudi.Table)."""

    type: Literal["cow", "mor"]
    index: str
    buckets: int


class OwnTable(ConfigModel):
    """A captured table.

    Attributes:
        source: `schema.table` (in MariaDB `database.table`).
        name: name of its lake table.
        key: the columns that identify a row.
        declares_key: whether the connector must be told the key.
        partition: partition columns of the lake table.
        type: "cow" or "mor" if one was requested, else "".
        rows: number of rows when it was captured.
        layout: how the lake table is made (see `tables.layout`).
        excluded: columns that are not captured.
        joined: whether the table was added to a running flow.
        oid: PostgreSQL's number of the table, which another table of the same name does not have; 0 if unknown.
        encodes_key: whether the lake table finds a row by the column `__key` (see hudi.Table).
        scales: digits after the decimal point of numeric columns without precision, by default 10.
        leaves: whether `forget` of the table is not complete.
        columns: {column: type in the source}, without the excluded columns, if the table was described
            (see `tables.describe`); not in flow.yaml.
    """

    source: str
    name: str
    key: list[str]
    declares_key: bool
    partition: list[str]
    type: Literal["", "cow", "mor"]
    rows: int
    layout: Layout = Layout(type="cow", index="SIMPLE", buckets=1)
    excluded: list[str]
    joined: bool
    oid: int = 0
    encodes_key: bool = False
    scales: dict[str, int] = Field(default_factory=dict)
    leaves: bool = False
    columns: dict[str, str] = Field(default_factory=dict, exclude=True)


class Declaration(ConfigModel):
    """The content of flow.yaml.

    Attributes:
        world: name of the world.
        source: name of the source.
        engine: its kind.
        database: its database.
        format: format of the messages.
        raw: whether the lake has Debezium's types instead of analyst types (docs/types.md).
        poll: the timestamp column of a polled flow, else "".
        tables: the tables.
        unfinished: "recapture" or "forget" while this command on the flow is not complete.
    """

    world: str
    source: str
    engine: Literal["postgres", "mariadb", "mysql"]
    database: str
    format: Literal["avro", "json"]
    raw: bool
    poll: str
    tables: list[OwnTable]
    unfinished: Literal["", "recapture", "forget"] = ""

    @property
    def db(self) -> ModuleType:
        """The kind of database, a module."""
        return postgres if self.engine == "postgres" else mariadb

    @property
    def has_publication(self) -> bool:
        """Whether the flow reads a log that needs a publication."""
        return self.engine == "postgres" and not self.poll

    @property
    def sources(self) -> list[str]:
        """The names of the tables in the source."""
        return [table.source for table in self.tables]

    @property
    def excluded(self) -> list[str]:
        """The columns that are not captured, with their tables."""
        return [f"{table.source}.{column}" for table in self.tables for column in table.excluded]

    @property
    def services(self) -> tuple[str, ...]:
        """The services that the flow needs."""
        database = "postgres" if self.engine == "postgres" else "mariadb"
        registry = ("apicurio",) if self.format == "avro" else ()
        return (database, "kafka", "connect", "spark", *registry)

    def with_tables(self, tables: list[OwnTable]) -> "Declaration":
        """Return a copy with other tables."""
        return self.model_copy(update={"tables": tables})


def folder(flow: str = "") -> Path:
    """Return the folder of a flow, or the folder of all flows."""
    return paths.flows_dir() / flow


def exists(flow: str) -> bool:
    """Return whether there is a flow of this name."""
    return (folder(flow) / "flow.yaml").exists()


def declaration(flow: str) -> Declaration:
    """Return the content of a flow's flow.yaml.

    Raises:
        LakeError: there is no such flow, or the file is not valid.
    """
    require_name(flow)
    path = folder(flow) / "flow.yaml"
    try:
        return Declaration.model_validate(yaml_files.load(path))
    except FileNotFoundError:
        raise LakeError(
            f"there is no flow {flow!r}",
            location=str(path),
            expected="a flow that `workbench capture` made",
        ) from None
    except (OSError, yaml.YAMLError, ValidationError) as e:  # OSError: a folder, or not readable
        raise LakeError(f"not a valid flow: {e}", location=paths.display_path(path)) from None


@contextlib.contextmanager
def exclusive(flow: str) -> Iterator[None]:
    """Let one process at a time create or remove parts of a flow; raise LakeError if another one does."""

    def on_locked(pid: str) -> LakeError:
        return LakeError(
            f"flow {flow!r} is being captured or removed by another process",
            location=f"process {pid}",
            hint="wait until it has ended, and repeat the command",
        )

    with wait.file_lock(_lock_path(flow), on_locked):
        yield


def _lock_path(flow: str) -> Path:
    return paths.state_dir() / "locks" / f"{re.sub(r'[^a-z0-9]', '_', flow)[:99]}.lock"


def is_being_changed(flow: str) -> bool:
    """Return whether a command of another process creates or removes parts of a flow now."""
    return wait.lock_owner_pid(_lock_path(flow)) not in ("", str(os.getpid()))


def unfinished_command(flow: str, declared: Declaration) -> str:
    """Return the command on a flow that is not complete, such as `recapture bikes`; "" without one."""
    leaving = [table.source for table in declared.tables if table.leaves]
    if declared.unfinished != "forget" and leaving:
        return f"forget {flow} {' '.join(leaving)}"
    return f"{declared.unfinished} {flow}" if declared.unfinished else ""


def require_finished(flow: str, declared: Declaration, continued: str = "") -> None:
    """Raise LakeError if a command that removes parts of a flow is not complete.

    Args:
        flow: name of the flow.
        declared: its declaration.
        continued: the command that is continued now.
    """
    command = unfinished_command(flow, declared)
    if command in ("", continued):
        return
    repeat = f"repeat `workbench {command} --world {declared.world}`, which continues"
    raise LakeError(
        f"`workbench {command}` is not complete: parts of flow {flow!r} may be removed",
        location=paths.display_path(folder(flow)),
        expected="a flow with all its parts",
        hint="wait until it has ended" if is_being_changed(flow) else repeat,
    )


def require_name(flow: str, hint: str = "") -> None:
    """Raise LakeError if a flow cannot have this name, which becomes a folder, a topic and a slot."""
    if not FLOW_NAME.fullmatch(flow):
        raise LakeError(
            f"{flow!r} is not the name of a flow",
            expected="a small letter, then small letters, digits and _; 30 at most",
            hint=hint,
        )


def free_name(name: str) -> str:
    """Return a similar name that a new flow can have."""
    similar = re.sub(r"[^a-z0-9_]", "_", name.lower()).lstrip("0123456789_") or "flow"
    candidates = (f"{similar[:25]}_{number}" for number in itertools.count(2))
    return next(each for each in candidates if not folder(each).exists())


def write(flow: str, declared: Declaration) -> None:
    """Write flow.yaml, then the connector's JSON: `load` creates a missing one."""
    write_declaration(flow, declared)
    write_connector(flow, declared)


def write_declaration(flow: str, declared: Declaration) -> None:
    """Write flow.yaml."""
    text = yaml.safe_dump(declared.model_dump(), sort_keys=False, allow_unicode=True)
    paths.write_private_file(folder(flow) / "flow.yaml", text.encode())


def storage(flow: str) -> dict[str, list[str]]:
    """Return {source table: its storage (see `tables.storage`) at the last comparison}."""
    path = folder(flow) / "storage.json"
    return cast("dict[str, list[str]]", json.loads(path.read_bytes())) if path.exists() else {}


def write_storage(flow: str, ids: dict[str, list[str]]) -> None:
    """Store what `storage` returns, for a flow that still exists."""
    if exists(flow):
        path = folder(flow) / "storage.json"
        paths.write_private_file(path, json.dumps(ids, indent=2).encode())


def connector_path(flow: str) -> Path:
    """Return the path of the connector's JSON."""
    return folder(flow) / f"{OWN_PREFIX}{flow}.json"


def write_connector(flow: str, declared: Declaration) -> None:
    """Write the tables of a flow into the connector's JSON.

    The user's other changes of it stay.
    """
    path = connector_path(flow)
    existing = configs.read(path) if path.exists() else {}
    config = connector_config(flow, declared, existing)
    if existing != config:
        paths.write_private_file(path, json.dumps(config, indent=2).encode())


def connector_config(flow: str, declared: Declaration, existing: dict[str, str]) -> dict[str, str]:
    """Return the connector's JSON: the existing one, or else the template, with the tables of a flow."""
    sources = ",".join(declared.sources)
    lists = {"table.whitelist": sources}
    if not declared.poll:
        keys = (f"{t.source}:{','.join(t.key)}" for t in declared.tables if t.declares_key)
        lists = {
            "table.include.list": sources,
            "message.key.columns": ";".join(keys),
            "column.exclude.list": ",".join(declared.excluded),
        }
        if declared.db is mariadb:
            lists |= _mariadb_lists(declared.tables, existing)
    config = {**(existing or _template(OWN_PREFIX + flow, declared)), **lists}
    return {key: value for key, value in config.items() if value}


def _mariadb_lists(tables: list[OwnTable], existing: dict[str, str]) -> dict[str, str]:
    """Return the settings of a connector for MariaDB or MySQL that name its tables.

    Those of a table that is not described stay as they are.
    """
    selects = {
        table.source: _snapshot_select(table)
        if table.columns
        else existing.get(f"{OVERRIDES}.{table.source}", "")
        for table in tables
    }
    return {
        **{f"{OVERRIDES}.{name}": select for name, select in selects.items()},
        OVERRIDES: ",".join(name for name, select in selects.items() if select),
    }


def _snapshot_select(table: OwnTable) -> str:
    """Return the query of a described table's snapshot, "" for the connector's own.

    MariaDB and MySQL send a float with six digits only, and all digits of a double.
    """
    if not any(kind.startswith("float") for kind in table.columns.values()):
        return ""
    columns = (
        f"CAST(`{name}` AS double) AS `{name}`" if kind.startswith("float") else f"`{name}`"
        for name, kind in table.columns.items()
    )
    schema, _, name = table.source.partition(".")
    # tables.describe has accepted the names: letters, digits and _ only
    return f"SELECT {', '.join(columns)} FROM `{schema}`.`{name}`"  # noqa: S608


def _template(connector: str, declared: Declaration) -> dict[str, str]:
    """Return the JSON of a new connector."""
    kind = "poll" if declared.poll else ""
    template = {
        **TEMPLATES["connectors"][kind or declared.engine],
        **TEMPLATES["converters"][kind or declared.format],
    }
    values = {
        "id": connector,
        "database": declared.database,
        "poll": declared.poll,
        "server_id": str(10_000 + zlib.crc32(connector.encode()) % 10**6),
    }
    return {
        key: re.sub(r"<(\w+)>", lambda match: values.get(match[1], ""), text)
        for key, text in template.items()
    }
