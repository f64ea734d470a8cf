"""Apicurio Registry: which schemas there are, a schema by its id, and the record in a message."""
from __future__ import annotations

import datetime as dt
import json
from typing import Any, NamedTuple, Optional
from urllib.parse import quote
from uuid import UUID

import pandas

from ..base import LakeError, StackError, World, http, nearest
from ..stack.services import REGISTRY_V2
from . import avro
from .wire import CCOMPAT, CONTENT, GLOBAL, WIRES, Framed, framed

V2, V6 = REGISTRY_V2, "/apis/ccompat/v6"  # v6: what S5 asks
BY_ID = {GLOBAL: V2 + "/ids/globalIds/{}", CONTENT: V2 + "/ids/contentIds/{}", CCOMPAT: V6 + "/schemas/ids/{}"}
NEWEST = {GLOBAL: V2 + "/groups/default/artifacts/{}", CCOMPAT: V6 + "/subjects/{}/versions/latest"}
PAGE = 500  # artifacts or versions of one answer
LARGEST = 2**63 - 1  # the registry's ids are Java's longs


def artifacts(world: World) -> pandas.DataFrame:
    """Return one row per version of each artifact: group, artifact, type, version, global_id, content_id.

    Debezium's converters name an artifact `<topic>-key` or `<topic>-value` (TopicIdStrategy), in group `default`.
    """
    rows = []
    for found in _pages(world, "/search/artifacts", "artifacts"):
        group = found.get("groupId") or "default"
        path = f"/groups/{quote(group, safe='')}/artifacts/{quote(found['id'], safe='')}/versions"
        for v in _pages(world, path, "versions"):
            rows.append((group, found["id"], v.get("type"), v.get("version"), v.get("globalId"), v.get("contentId")))
    columns = ["group", "artifact", "type", "version", "global_id", "content_id"]
    frame = pandas.DataFrame(rows, columns=columns)
    return frame.sort_values(["group", "artifact", "global_id"], ignore_index=True)


def schema(world: World, id: int, kind: str = GLOBAL) -> dict[str, Any]:
    """Return the Avro schema with this id, as a dict (a text where it is no more than a type's name).

    Args:
        kind: "globalId" (a version of an artifact), "contentId" (a text, whoever uses it) or "ccompat" (the number
            that Confluent's API gives out).

    Raises:
        LakeError: the registry has no such id, or what it has is not JSON. StackError: it does not answer.
    """
    found = find(world, id, kind)
    if found is None:
        raise _unknown(world, f"{kind} {id}")
    return found


def _unknown(world: World, schema: str) -> LakeError:
    return LakeError(f"the registry has no schema with {schema}", where=_base(world),
                     next_step="registry.artifacts(world) lists what it has; is it the registry that the writer used, "
                               "and registry.wire the format it writes?")


def find(world: World, id: int, kind: str = GLOBAL) -> Optional[dict[str, Any]]:
    """Return `schema`, or None where the registry answers that there is none with this id."""
    return _schema(world, _path(BY_ID, kind).format(id), kind) if 0 <= id <= LARGEST else None


def _path(paths: dict[str, str], kind: str) -> str:
    if kind not in paths:
        raise LakeError(f"there is no kind of id {kind!r} here", expected=nearest(str(kind), paths))
    return paths[kind]


def _schema(world: World, path: str, kind: str) -> Optional[dict[str, Any]]:
    text = _ask(world, path)
    if text is None:
        return None
    return _json(_json(text, path)["schema"] if kind == CCOMPAT else text, path)


def latest(world: World, artifact: str, kind: str = GLOBAL) -> dict[str, Any]:
    """Return the newest version of an artifact's schema, as a dict.

    Args:
        kind: "ccompat" asks the API that speaks Confluent's language, as others than Apicurio's own clients do,
            DeltaStreamer among them (S5).

    Raises:
        LakeError: there is no such artifact; the nearest names are listed. StackError: the registry does not answer.
    """
    newest = _schema(world, _path(NEWEST, kind).format(quote(artifact, safe="")), kind)
    if newest is None:
        have = [found["id"] for found in _pages(world, "/search/artifacts", "artifacts")]
        raise LakeError(f"the registry has no artifact {artifact!r}", where=_base(world),
                        expected=nearest(artifact, have) if have else "the registry is empty",
                        next_step="the first message registers it: is the connector RUNNING, its converter Apicurio's?")
    return newest


class Decoded(NamedTuple):
    """A message's record, and how it was framed. schema_name: full name of its schema."""

    record: Any
    framed: Framed
    schema_name: str


class Decoder:
    """Decodes the values (or keys) of Avro messages one by one; each schema is asked for once."""

    def __init__(self, world: World):
        self.world = world
        self._schemas: dict[str, Any] = {}
        self._readers: dict[str, avro.Reader] = {}

    def __call__(self, value: bytes) -> Decoded:
        """Decode one message: dates, times and decimals are Python's.

        Raises:
            LakeError: not in the wire format, an unknown id, or bytes that are not Avro of that schema.
        """
        found = framed(self.world, value)
        if found is None:
            wire = self.world.registry.wire
            raise LakeError("the message does not begin as Avro with a schema id does", where=value[:12].hex(" "),
                            expected=f"00 and {WIRES[wire][0]} bytes of id ({self.world.file}: registry.wire is "
                                     f"{wire})")
        id = found.schema
        if id not in self._schemas:
            self._schemas[id] = find(self.world, found.id, found.kind)
        avsc = self._schemas[id]
        if avsc is None:
            raise _unknown(self.world, id)
        name = avro.full_name(avsc)
        try:
            if id not in self._readers:
                self._readers[id] = avro.reader(avro.exact(avsc))
            return Decoded(self._readers[id](found.body), found, name)
        except ValueError as e:
            raise LakeError(f"the bytes are not Avro of schema {id}: {e}", where=found.body[:40].hex(" "),
                            expected=name) from e


def peek(world: World, value: bytes | str) -> dict[str, Any]:
    """Take one message apart, for people to look at.

    Args:
        value: the message as topics.read returns it. That is text where the bytes happen to be UTF-8.

    Returns:
        wire, id_kind, schema_id, schema_name, hex (all bytes, two digits each), record (a dict; dates, times and
        decimals are Python's, times without a zone, in UTC, as Spark gives them).

    Raises:
        LakeError: not in the wire format, an unknown id, or bytes that are not Avro of that schema.
    """
    raw = value.encode("utf-8") if isinstance(value, str) else bytes(value)
    record, found, name = Decoder(world)(raw)
    return {"wire": found.wire, "id_kind": found.kind, "schema_id": found.id, "schema_name": name, "hex": raw.hex(" "),
            "record": _as_spark_gives(record)}


def _as_spark_gives(value: Any) -> Any:
    """A decoded value with the kinds that a row of Spark has: times without a zone (in UTC), a uuid as text."""
    if isinstance(value, dict):
        return {k: _as_spark_gives(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_as_spark_gives(v) for v in value]
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.timezone.utc).replace(tzinfo=None)
    return str(value) if isinstance(value, UUID) else value


def _pages(world: World, path: str, what: str) -> list:
    """All of a list that the registry gives out in pages."""
    rows: list = []
    while True:
        text = _ask(world, f"{V2}{path}?limit={PAGE}&offset={len(rows)}")
        page = _json(text, path) if text is not None else {}
        rows += page.get(what, [])
        if not page.get(what) or len(rows) >= page.get("count", 0):
            return rows


def _base(world: World) -> str:
    return world.registry.url.rstrip("/")


def _ask(world: World, path: str, method: str = "GET") -> Optional[bytes]:
    """The text of an answer, None for 404."""
    url = _base(world) + path
    answer = http.call("the schema registry", method, url,
                       next_step='start it with stack.need(world, "apicurio"), then do it again: nothing is lost')
    if answer.status_code == 404:
        return None
    if answer.status_code >= 400:
        raise StackError(f"the schema registry answers {answer.status_code}: {answer.text[:300]}", where=url)
    return answer.content


def _json(text: str | bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise LakeError("the registry holds something that is not an Avro schema", where=where,
                        expected="JSON") from None


def delete(world: World, *artifacts: str) -> None:
    """Delete artifacts with all their versions; those that do not exist are fine. Raises: StackError: it refuses."""
    for artifact in artifacts:
        _ask(world, NEWEST[GLOBAL].format(quote(artifact, safe="")), "DELETE")
