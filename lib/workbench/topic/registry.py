"""The schema registry: which schemas there are, a schema by its id, and the record in a message.

Of its two sides, Apicurio Registry and the AWS Glue Schema Registry, the world names one. It is asked by this process
only; but for the landing, whose tasks ask Apicurio by themselves (landing/messages.py).
"""
from typing import Any, NamedTuple, Union

from ..base import LakeError, World, nearest
from ..base.sides import chooser
from . import apicurio, avro, glue_registry
from .wire import GLOBAL, WIRES, Framed, framed

_of = chooser(lambda world: world.registry.kind, apicurio=apicurio, glue=glue_registry)
address, artifacts, names, find, newest, delete = map(
    _of, ("address", "artifacts", "names", "find", "newest", "delete"))


def schema(world: World, id: Union[int, str], kind: str = GLOBAL) -> dict[str, Any]:
    """Return the Avro schema with this id, as a dict (a text where it is no more than a type's name).

    Args:
        id: a number; of Glue the UUID of a schema version.
        kind: "globalId" (a version of an artifact), and of Apicurio "contentId" (a text, whoever uses it) or "ccompat"
            (the number that Confluent's API gives out).

    Raises:
        LakeError: the registry has no such id, or what it has is not JSON. StackError: it does not answer.
    """
    found = find(world, id, kind)
    if found is None:
        raise _unknown(world, f"{kind} {id}")
    return found


def _unknown(world: World, schema: str) -> LakeError:
    return LakeError(f"the registry has no schema with {schema}", where=address(world),
                     next_step="registry.artifacts(world) lists what it has; is it the registry that the writer used, "
                               "and registry.wire the format it writes?")


def latest(world: World, artifact: str, kind: str = GLOBAL) -> dict[str, Any]:
    """Return the newest version of an artifact's schema, as a dict.

    Args:
        kind: "ccompat" asks the API that speaks Confluent's language, as others than Apicurio's own clients do,
            DeltaStreamer among them (S5). Glue has none.

    Raises:
        LakeError: there is no such artifact; the nearest names are listed. StackError: the registry does not answer.
    """
    found = newest(world, artifact, kind)
    if found is None:
        have = names(world)
        raise LakeError(f"the registry has no artifact {artifact!r}", where=address(world),
                        expected=nearest(artifact, have) if have else "the registry is empty",
                        next_step="the first message registers it: is the connector RUNNING, its converter this "
                                  "registry's?")
    return found


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
            raise LakeError("the message does not begin as Avro with a schema id does", where=value[:20].hex(" "),
                            expected=f"{WIRES[wire]} ({self.world.file}: registry.wire is {wire})")
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


def peek(world: World, value: Union[bytes, str]) -> dict[str, Any]:
    """Take one message apart, for people to look at.

    Args:
        value: the message as topics.read returns it. That is text where the bytes happen to be UTF-8.

    Returns:
        wire, id_kind, schema_id, schema_name, hex (all bytes, two digits each), record (a dict; dates, times and
        decimals are Python's).

    Raises:
        LakeError: not in the wire format, an unknown id, or bytes that are not Avro of that schema.
    """
    raw = value.encode("utf-8") if isinstance(value, str) else bytes(value)
    record, found, name = Decoder(world)(raw)
    return {"wire": found.wire, "id_kind": found.kind, "schema_id": found.id, "schema_name": name, "hex": raw.hex(" "),
            "record": record}
