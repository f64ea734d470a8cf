"""Follow: the changes of captured tables, and what no change tells of."""

import time
from typing import Callable

from .. import hudi
from ..base import LakeError, World
from ..base.wait import stop_on_signal
from ..spark import session
from . import checking, comparing, files, tables
from .files import OwnTable
from .flow import OwnFlow, open_flow

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
        LakeError: a message cannot be ingested; rows were removed, added or altered without a message (TRUNCATE, a
            dropped partition, an added column with a default); the replication slot is gone; or a command on the flow
            is not complete.
        SourceError: a table was dropped and created anew, or could not be captured as it is now.
        ConnectorError: the connector has failed.
    """
    at, captured = open_flow(world, flow)
    captured.require_same_tables(at)
    captured.require_slot(at)
    _require_capturable(world, captured)
    followed = _followed_tables(at, captured, progress)
    lake = [captured.table(at, own.name) for own in followed]
    captured.restart_failed(at)
    if not continuous:
        captured.wait_until_captured(at)
    looked_at = time.monotonic()
    with stop_on_signal() as stop:
        for counts in captured.follow(session(at), at, *lake, stop=stop):
            for table, ingested in counts.items():
                if ingested.messages or not continuous:
                    progress(f"{table}: {ingested!r}")
            is_due = time.monotonic() - looked_at > STORAGE_INTERVAL
            if is_due:
                _require_capturable(world, captured)
            if is_due or not continuous:
                _require_same_storage(at, captured, followed, progress)
                looked_at = time.monotonic()
            if not continuous:
                break
    return counts


def _followed_tables(
    at: World, captured: OwnFlow, progress: Callable[[str], None]
) -> list[OwnTable]:
    """Return the tables whose capture is complete."""
    incomplete = captured.incomplete(at)
    for own in incomplete:
        progress(
            f"{own.source} is left out, because its capture was interrupted or failed: "
            f"{captured.capture_remedy(own)}"
        )
    return [own for own in captured.declared.tables if own not in incomplete]


def _require_same_storage(
    at: World, captured: OwnFlow, followed: list[OwnTable], progress: Callable[[str], None]
) -> None:
    """Compare the rows of tables whose columns or storage are other ones than at their last comparison.

    Debezium has no change for a TRUNCATE, for a partition that is dropped, detached or attached, for an ALTER TABLE
    that writes other values, and for a column that gets a default with its values, or another name. Each is noticed; so
    are VACUUM FULL and a new partition, after which the rows are the same.

    Raises:
        LakeError: rows were removed, added or changed.
    """
    compared, dropped = files.storage(captured.name), list[str]()
    for own in captured.declared.tables:
        storage = tables.storage(at, captured.declared, own.source)
        if not storage:
            dropped.append(own.source)
        elif own in followed and compared.get(own.source) != storage:
            progress(
                f"{own.source}: the source has stored it anew or altered it, so its rows are compared"
            )
            _require_same_rows(at, captured, own)
            compared[own.source] = storage
            files.write_storage(captured.name, compared)
    if dropped:
        command = captured.forget_command(*dropped)
        progress(f"{', '.join(dropped)}: dropped or renamed in the source; `{command}`")


def _require_same_rows(at: World, captured: OwnFlow, own: OwnTable) -> None:
    described = tables.describe(at, captured.declared, own)
    result = comparing.reconcile(at, captured, described)
    kinds = [
        kind
        for kind in result.counts
        # polling sees no deletes in any case
        if not (captured.polled and kind.endswith("extra in the lake"))
    ]
    if kinds or result.undecided:
        raise LakeError(
            f"rows of {own.source} were removed, added or altered without a message: by TRUNCATE, by ALTER "
            "TABLE, or with a partition",
            location=f"flow {captured.name!r}: {result!r}",
            expected="statements on rows, which are in the log",
            hint=f"`{captured.recapture_command}` takes a new snapshot",
        )


def _require_capturable(world: World, captured: OwnFlow) -> None:
    """Raise SourceError if changes of a table do not arrive any more, such as without its replica identity."""
    existing = checking.existing_tables(world, captured.declared)
    remedy = f"`{captured.recapture_command}`: changes until then are lost"
    checking.require_capturable(world, captured.declared, existing, remedy)
