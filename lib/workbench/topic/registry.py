"""The schema registry: which schemas there are, a schema by its id, and the record in a message.

Of its two sides, Apicurio Registry and the AWS Glue Schema Registry, the world names one. It is
asked by this process only, never by a task of Spark.
"""

import io
from typing import Any, Callable, NamedTuple, Sequence, Union
from uuid import UUID, uuid4

import fastavro

from ..base import LakeError, World, did_you_mean
from ..base.backends import dispatch_by
from . import apicurio, avro, glue_registry
from .wire import CCOMPAT, CONTENT_ID, GLOBAL_ID, WIRE_FORMATS, WireMessage, parse_wire_format

ID_COLUMNS = {
    GLOBAL_ID: "global_id",
    CONTENT_ID: "content_id",
    CCOMPAT: "content_id",
}  # columns of `artifacts`, by kind of id
_dispatch = dispatch_by(lambda world: world.registry.kind, apicurio=apicurio, glue=glue_registry)
location, artifacts, names, find, find_latest, delete, compatibility = map(
    _dispatch, ("location", "artifacts", "names", "find", "find_latest", "delete", "compatibility")
)
_add, _incompatibility_reason, _set_compatibility = map(
    _dispatch, ("add", "incompatibility_reason", "set_compatibility")
)


def schema(world: World, id: Union[int, str], kind: str = GLOBAL_ID) -> dict[str, Any]:
    """Return the Avro schema with this id, as a dict (a text where it is no more than a type's
    name).

    Args:
        id: a number; of Glue the UUID of a schema version.
        kind: "globalId" (a version of an artifact), and of Apicurio "contentId" (a text, whoever
            uses it) or "ccompat" (the number that Confluent's API gives out).

    Raises:
        LakeError: the registry has no such id, or what it has is not JSON. StackError: it does not
            answer.
    """
    found = find(world, id, kind)
    if found is None:
        raise _unknown_schema_error(world, f"{kind} {id}")
    return found


def _unknown_schema_error(world: World, schema: str) -> LakeError:
    return LakeError(
        f"the registry has no schema with {schema}",
        location=location(world),
        hint="registry.artifacts(world) lists what it has; is it the registry that the writer used, "
        "and registry.wire the format it writes?",
    )


def latest(world: World, artifact: str, kind: str = GLOBAL_ID) -> dict[str, Any]:
    """Return the newest version of an artifact's schema, as a dict.

    Args:
        kind: "ccompat" asks the API that speaks Confluent's language, as others than Apicurio's own
            clients do, DeltaStreamer among them (S5). Glue has none.

    Raises:
        LakeError: there is no such artifact; the nearest names are listed. StackError: the registry
            does not answer.
    """
    found = find_latest(world, artifact, kind)
    if found is None:
        raise _missing_artifact_error(world, artifact)
    return found


def _missing_artifact_error(world: World, artifact: str) -> LakeError:
    have = names(world)
    return LakeError(
        f"the registry has no artifact {artifact!r}",
        location=location(world),
        expected=did_you_mean(artifact, have) if have else "the registry is empty",
        hint="the first message registers it: is the connector RUNNING, its converter this one's?",
    )


# --- versions, and which of them the registry takes
# ------------------------------------------------------------------


def versions(world: World, artifact: str) -> list[Any]:
    """Return the schemas of an artifact, the oldest first. Raises: LakeError: there is no such
    artifact.
    """
    ids = artifacts(world, [artifact])["global_id"].tolist()
    if not ids:
        raise _missing_artifact_error(world, artifact)
    return [schema(world, id) for id in ids]


def versions_by_schema_id(world: World, of: Sequence[str]) -> dict[str, str]:
    """Return {the id by which messages name a schema, `globalId 7`: its version} of all versions of
    some artifacts.
    """
    found, kind = artifacts(world, of), WIRE_FORMATS[world.registry.wire].id_kind
    return {
        f"{kind} {id}": version for id, version in zip(found[ID_COLUMNS[kind]], found["version"])
    }


def register(world: World, artifact: str, schema: Any) -> Union[int, str]:
    """Make a schema the newest version of an artifact, the first one where there is none; return
    its id (globalId). One that the artifact has stays the version that it is.

    Raises: LakeError: the registry refuses it by the artifact's compatibility mode; no version is
        added.
    """
    id, reason = _add(world, artifact, schema)
    if reason:
        raise LakeError(
            f"the registry refuses the schema as next version of {artifact!r}: {reason}",
            location=location(world),
            expected=f"one that {compatibility(world, artifact)} compatibility takes",
            hint="make the change in another way, such as with a default for a field that comes or "
            "goes; or give the artifact another mode (registry.set_compatibility)",
        )
    return id


def set_compatibility(world: World, artifact: str, mode: str) -> None:
    """Say which changes an artifact may see from now on; the versions that it has are not judged.

    Args:
        mode: one of avro.COMPATIBILITY_MODES (of Glue, `_TRANSITIVE` is what it calls `_ALL`).

    Raises: LakeError: another mode, or there is no such artifact.
    """
    latest(world, artifact)
    _set_compatibility(world, artifact, avro.validate_mode(mode))


def check_compatibility(
    world: World, artifact: str, schema: Any, mode: str = "", kind: str = GLOBAL_ID
) -> str:
    """Ask the registry whether it would take a schema as an artifact's next version, and change
    nothing.

    It is asked of a copy: an artifact of another name is given the versions of this one (those that
    are equal count as one) and the mode, and is deleted afterwards. So it can be asked what another
    mode than the artifact's own would let through while a connector registers its schemas; and of
    Glue, which has no test, at all: there the copy is given the schema, and Glue says whether the
    version is available or a failure, not why.

    Args:
        mode: by default the artifact's own.
        kind: of Apicurio "ccompat" asks the API that speaks Confluent's language, see `latest`.

    Returns: "" where it would take it, else why not, in the registry's words.
    Raises: LakeError: another mode, no such artifact or kind.
    """
    wanted = avro.validate_mode(mode or compatibility(world, artifact))
    copy, have = f"check-{uuid4().hex[:8]}-{artifact}", versions(world, artifact)
    try:
        for each in have:
            register(world, copy, each)
            _set_compatibility(
                world, copy, "NONE"
            )  # a rule for all artifacts could refuse the next
        _set_compatibility(world, copy, wanted)
        return _incompatibility_reason(world, copy, schema, kind)
    finally:
        delete(world, copy)


def wire_prefix(world: World, id: Union[int, str]) -> bytes:
    """What a serializer puts before the Avro of a message: the world's wire format, and the
    schema's id.
    """
    wire = WIRE_FORMATS[world.registry.wire]
    return wire.magic + (
        UUID(str(id)).bytes if wire.id_size == 16 else int(id).to_bytes(wire.id_size, "big")
    )


def latest_id(world: World, artifact: str) -> Union[int, str]:
    """The id by which messages name the newest version of an artifact. Raises: LakeError: there is
    none.
    """
    *_, last = ["", *versions_by_schema_id(world, [artifact])]
    if not last:
        raise _missing_artifact_error(world, artifact)
    return last.partition(" ")[2]


def encoder(world: World, id: Union[int, str]) -> Callable[[Any], bytes]:
    """What makes a record the message that a serializer makes of it, by the schema with this id, of
    the kind that the world's wire format names: what `peek` takes apart. It raises LakeError where
    a record is none of the schema.

    Raises: LakeError: there is no such schema.
    """
    avsc = schema(world, id, WIRE_FORMATS[world.registry.wire].id_kind)
    parsed, before = fastavro.parse_schema(avsc), wire_prefix(world, id)

    def encode(record: Any) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, parsed, record)
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            raise LakeError(
                f"the record is none of schema {id}: {e}", expected=avro.full_name(avsc)
            ) from e
        return before + out.getvalue()

    return encode


def encode(world: World, id: Union[int, str], record: Any) -> bytes:
    """One record as such a message. Raises as `encoder`, and what it makes."""
    return encoder(world, id)(record)


class Decoded(NamedTuple):
    """A message's record, and how it was framed. schema_name: full name of its schema."""

    record: Any
    wire_message: WireMessage
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
            LakeError: not in the wire format, an unknown id, or bytes that are not Avro of that
                schema.
        """
        found = parse_wire_format(self.world, value)
        if found is None:
            wire = self.world.registry.wire
            raise LakeError(
                "the message does not begin as Avro with a schema id does",
                location=value[:20].hex(" "),
                expected=f"{WIRE_FORMATS[wire]} ({self.world.file}: registry.wire is {wire})",
            )
        id = found.schema
        if id not in self._schemas:
            self._schemas[id] = find(self.world, found.schema_id, found.id_kind)
        avsc = self._schemas[id]
        if avsc is None:
            raise _unknown_schema_error(self.world, id)
        name = avro.full_name(avsc)
        try:
            if id not in self._readers:
                self._readers[id] = avro.create_reader(avro.for_spark(avsc))
            return Decoded(self._readers[id](found.body), found, name)
        except ValueError as e:
            raise LakeError(
                f"the bytes are not Avro of schema {id}: {e}",
                location=found.body[:40].hex(" "),
                expected=name,
            ) from e


def inspect_message(world: World, value: Union[bytes, str]) -> dict[str, Any]:
    """Take one message apart, for people to look at.

    Args:
        value: the message as topics.read returns it. That is text where the bytes happen to be
            UTF-8.

    Returns:
        wire, id_kind, schema_id, schema_name, hex (all bytes, two digits each), record (a dict;
        dates, times and decimals are Python's).

    Raises:
        LakeError: not in the wire format, an unknown id, or bytes that are not Avro of that schema.
    """
    raw = value.encode("utf-8") if isinstance(value, str) else bytes(value)
    record, found, name = Decoder(world)(raw)
    return {
        "wire": found.wire,
        "id_kind": found.id_kind,
        "schema_id": found.schema_id,
        "schema_name": name,
        "hex": raw.hex(" "),
        "record": record,
    }
