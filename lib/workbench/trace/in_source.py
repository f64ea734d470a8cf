"""Which transaction wrote the last change of a row: the row in the source says it, where it still is as the change
left it."""
from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from ..base.errors import SourceError
from ..source import postgres

if TYPE_CHECKING:
    from ..base.params import World

EPOCH = dt.datetime(1970, 1, 1)
SO = "so no transaction is known"


def complete(world: World, table: Any, key: int, events: List[Dict[str, Any]], records: List[Dict[str, Any]]
             ) -> List[str]:
    """Put the transaction of the last change where its event does not say it, and return why others have none."""
    notes = []
    if events[-1]["transaction"] is None and records[-1].get("__op") == "d":
        notes.append(f"a deleted row is not there to be asked, {SO} of its deletion")
    elif events[-1]["transaction"] is None:
        events[-1]["transaction"], note = transaction(world, table, key, records[-1])
        notes += [note] if note else []
    if any(e["transaction"] is None for e in events[:-1]):
        notes.append("the events carry no transaction, and PostgreSQL keeps that of a row's last change only "
                     "(its hidden column xmin)")
    return notes


def transaction(world: World, table: Any, key: int, record: Dict[str, Any]) -> Tuple[Optional[int], str]:
    """Return (transaction, note): the row's xmin where its columns are those of the record, else None and why.

    The topic may be behind the source, or the source rebuilt: xmin is of the row as it is now, and only a row that
    equals the record may speak for it. (One that was changed back, or written again as it was, cannot be told apart.)

    Args:
        table: a trace.Traced. record: the last change's; fields that begin with __, and those that the source lacks,
            are not compared.
    """
    from psycopg import sql

    query = sql.SQL("SELECT xmin::text::bigint AS xmin, * FROM {} WHERE {} = %s").format(
        postgres.identifier(table.source), sql.Identifier(table.key))
    try:
        with postgres.session(world, table.database) as c:
            cursor = c.execute(query, [key])
            columns, found = [column.name for column in cursor.description], cursor.fetchone()
    except SourceError as e:  # the source may be gone, the lake remembers all the same
        return None, f"the source was not reached: {e.what}{f' ({e.where})' if e.where else ''}, {SO}"
    if found is None:
        return None, f"the source has no such row any more, {SO}"
    row = dict(zip(columns, found))
    other = [n for n in record if not n.startswith("__") and n in row and not same(record[n], row[n])]
    if other:
        return None, f"the row in the source is not as the last change says ({', '.join(other)}), {SO}"
    return int(row["xmin"]), ""


def same(said: Any, has: Any) -> bool:
    """Whether a change says the value that the source has.

    Args:
        said: of a change, decoded from Avro, or as JSON has it: there Debezium's dates and times are numbers (days;
            milliseconds or microseconds), its times with a zone and its jsonb texts.
        has: as PostgreSQL's driver gives it.
    """
    if said is None or has is None:
        return said is has
    number = isinstance(said, int) and not isinstance(said, bool)
    try:
        if isinstance(has, dt.datetime):
            if number:
                return _counts(_utc(has) - EPOCH, said)
            return _utc(_moment(said)) == _utc(has)
        if isinstance(has, dt.date) and number:
            return EPOCH.date() + dt.timedelta(days=said) == has
        if isinstance(has, dt.time) and number:
            return _counts(dt.datetime.combine(EPOCH, has.replace(tzinfo=None)) - EPOCH, said)
        if isinstance(has, (dict, list)) and isinstance(said, str):
            return bool(json.loads(said) == has)
    except (ValueError, OverflowError, TypeError):  # no such day, no time at all, no JSON
        return False
    return bool(said == has) or str(said) == str(has)


def _counts(since: dt.timedelta, said: int) -> bool:
    return since // dt.timedelta(microseconds=1) in (said, said * 1000)


def _moment(said: Any) -> Any:
    import pandas

    return pandas.Timestamp(said).to_pydatetime() if isinstance(said, str) else said


def _utc(moment: Any) -> dt.datetime:
    if not isinstance(moment, dt.datetime):
        raise TypeError("not a time")
    return moment if moment.tzinfo is None else moment.astimezone(dt.timezone.utc).replace(tzinfo=None)
