"""Follow: the changes of captured tables, and what no change tells of."""

import time
from typing import Callable

from ... import hudi
from ...base import LakeError, World
from ...base.errors import CheckFailed
from ...base.wait import stop_on_signal
from ...spark import session
from ...topic import topics
from . import adding, comparing, files, tables
from .flow import OwnFlow, open_flow

POLL_INTERVAL = 1  # seconds
STORAGE_INTERVAL = 60  # seconds between two looks at the storage of the source tables


def follow(
    world: World,
    flow: str,
    continuous: bool = False,
    progress: Callable[[str], None] = print,
) -> dict[str, hudi.Ingested]:
    """Bring the changes that the source has committed so far into the lake.

    Args:
        world: the world.
        flow: name of the flow.
        continuous: continue with later changes until SIGTERM or Ctrl-C.
        progress: called with one line per table that has changes.

    Returns:
        {lake table: counts} of the last round.

    Raises:
        LakeError: a message cannot be ingested; rows lack the value of an added column, or were removed or
            added without a change (TRUNCATE, a dropped partition); the replication slot is gone; or a command on the
            flow was interrupted.
        SourceError: a table was dropped and created anew.
        ConnectorError: the connector has failed.
    """
    at, captured = open_flow(world, flow)
    captured.require_same_tables(at)
    captured.require_slot(at)
    followed = _followed_tables(at, captured, progress)
    captured.restart_failed(at)
    if not continuous:
        captured.wait_until_captured(at)
    known = {table.name: adding.added_columns(table) for table in followed}
    looked_at = time.monotonic()
    with stop_on_signal() as stop:
        while True:
            counts = captured.ingest(session(at), at, *followed, stop=stop.is_set)
            _require_filled(world, captured, known, counts)
            for table, ingested in counts.items():
                if ingested.messages or not continuous:
                    progress(f"{table}: {ingested!r}")
            if not continuous or time.monotonic() - looked_at > STORAGE_INTERVAL:
                _require_same_storage(at, captured, progress)
                looked_at = time.monotonic()
            if not continuous or stop.wait(POLL_INTERVAL):
                return counts


def _followed_tables(
    at: World, captured: OwnFlow, progress: Callable[[str], None]
) -> list[hudi.Table]:
    """Return the lake tables whose capture is complete enough to be followed."""
    existing, uncompared = {*topics.names(at)}, captured.uncompared(at)
    compared = files.storage(
        captured.name
    )  # also of an empty table, which the lake does not have yet
    followed = []
    for own in captured.declared.tables:
        # without a signal, the connector takes no snapshot of a table that joins
        is_incomplete = own.joined and own in uncompared and own.source not in compared
        if captured.topic(at, own.name) in existing and not is_incomplete:
            followed.append(captured.table(at, own.name))
        else:
            progress(
                f"{own.source} is left out, because its capture was interrupted or failed: repeat "
                f"`{captured.capture_command(own.source)}`, or "
                f"`workbench forget {captured.name} {own.source} --world {at.name}`"
            )
    return followed


def _require_same_storage(at: World, captured: OwnFlow, progress: Callable[[str], None]) -> None:
    """Compare the tables whose storage was replaced since their last comparison.

    Debezium has no change for a TRUNCATE, and for a partition that is dropped, detached or attached. Each replaces the
    storage; so do VACUUM FULL, some ALTER TABLE and a new partition, after which the rows are equal.

    Raises:
        LakeError: rows were removed or added.
    """
    compared = files.storage(captured.name)
    for own in captured.declared.tables:
        storage = tables.storage(at, captured.declared, own.source)
        if not storage:
            command = f"workbench forget {captured.name} {own.source} --world {at.name}"
            progress(f"{own.source} was dropped or renamed in the source: `{command}`")
            continue
        if compared.get(own.source, storage) == storage:
            continue
        progress(f"{own.source}: its storage in the source is another one, so it is compared")
        try:
            comparing.compare_table(at, captured, own, is_first=False)
        except CheckFailed as e:
            raise LakeError(
                f"rows of {own.source} were removed or added without a change: by TRUNCATE, or with a partition",
                location=f"flow {captured.name!r}: {e.message}",
                expected="statements on rows, which are in the log",
                hint=f"`workbench recapture {captured.name} --world {at.name}` takes a new snapshot",
            ) from None


def _require_filled(
    world: World, captured: OwnFlow, known: dict[str, list[str]], counts: dict[str, hudi.Ingested]
) -> None:
    """Raise LakeError if an ingest has added a column whose value older rows lack.

    Args:
        world: the world of the flow.
        captured: the flow.
        known: {lake table: the added columns before the ingest}.
        counts: {lake table: counts of the ingest}.
    """
    at = world.source(captured.declared.source)
    for own in captured.declared.tables:
        if own.name not in counts or not counts[own.name].messages:
            continue
        columns = adding.added_columns(captured.table(at, own.name))
        new = [column for column in columns if column not in known[own.name]]
        known[own.name] = columns
        if new:
            remedy = (
                f"`workbench recapture {captured.name} --world {world.name}` takes a new snapshot"
            )
            adding.require_filled(at, captured, own, new, remedy)
