"""The schema registry: schemas, schema ids, and the encoding of records as messages.

The registry has two backends, Apicurio Registry and the AWS Glue Schema Registry; the environment
names one. Only this process queries the registry.
"""

import io
from typing import Any, Callable, Collection, NamedTuple, Optional, Sequence, Union
from uuid import UUID, uuid4

import fastavro
import pandas

from ..base import LakeError, World, did_you_mean
from . import avro
from .apicurio import ApicurioRegistry
from .glue_registry import GlueRegistry
from .wire import (
    ID_KIND,
    UUID_BYTES,
    WIRE_FORMATS,
    SchemaId,
    not_avro_reason,
    parse_wire_format,
    prefix_size,
    unknown_schema_reason,
)

# Malformed messages may have any number of ids. After this many only known ids are requested.
MAX_UNKNOWN_SCHEMAS = 100


# The schema registry of a world. An artifact, `<topic>-key` or `<topic>-value`, has the versions of a schema. Both
# classes have the same methods.
SchemaRegistry = Union[ApicurioRegistry, GlueRegistry]


def backend(world: World) -> SchemaRegistry:
    """Return the schema registry of a world."""
    return GlueRegistry(world) if world.registry.kind == "glue" else ApicurioRegistry(world)


def artifacts(world: World, artifact_names: Optional[Sequence[str]] = None) -> pandas.DataFrame:
    """Return one row per version of each artifact.

    Args:
        world: the environment profile.
        artifact_names: the artifacts to return, by default all. A missing artifact has no row.

    Returns:
        Columns group, artifact, type, version, global_id, content_id.
    """
    columns = ["group", "artifact", "type", "version", "global_id", "content_id"]
    return pandas.DataFrame(backend(world).artifacts(artifact_names), columns=columns)


def names(world: World) -> list[str]:
    """Return the names of all artifacts."""
    return backend(world).names()


def find(world: World, id: SchemaId) -> Optional[dict[str, Any]]:
    """Return the schema with this id, None if the id is unknown.

    See `schema` for the arguments and errors.
    """
    return backend(world).find(id)


def delete(world: World, *artifacts: str) -> None:
    """Delete artifacts with all their versions. Missing artifacts are ignored.

    Raises:
        StackError: the registry rejects the deletion.
    """
    backend(world).delete(*artifacts)


def compatibility(world: World, artifact: str) -> str:
    """Return the compatibility mode of an artifact; NONE if there is no artifact."""
    return backend(world).compatibility(artifact)


def schema(world: World, id: SchemaId) -> dict[str, Any]:
    """Return the Avro schema with this id, as a dict (a primitive type as text).

    Args:
        world: the environment profile.
        id: the global id, a number; for Glue the UUID of a schema version.

    Raises:
        LakeError: the registry has no such id, or the schema is not JSON.
        StackError: the registry does not respond.
    """
    avsc = find(world, id)
    if avsc is None:
        raise LakeError(
            unknown_schema_reason(world).format(f"{ID_KIND} {id}"),
            location=backend(world).location,
            hint="registry.artifacts(world) lists the schemas; did the producer use this registry, and "
            "the format in registry.wire?",
        )
    return avsc


def latest(world: World, artifact: str) -> dict[str, Any]:
    """Return the latest version of an artifact's schema, as a dict.

    Raises:
        LakeError: there is no such artifact; the error lists similar names.
        StackError: the registry does not respond.
    """
    return schema(world, latest_id(world, artifact))


# --- versions and compatibility


def versions(world: World, artifact: str) -> list[Any]:
    """Return the schemas of an artifact, the oldest first.

    Raises:
        LakeError: there is no such artifact.
    """
    return [schema(world, id) for id in _ids(world, artifact)]


def _ids(world: World, artifact: str) -> list[SchemaId]:
    ids: list[SchemaId] = artifacts(world, [artifact])["global_id"].tolist()
    if not ids:
        existing = names(world)
        raise LakeError(
            f"the registry has no artifact {artifact!r}",
            location=backend(world).location,
            expected=did_you_mean(artifact, existing) if existing else "the registry is empty",
            hint="the converter registers it with the first message: is the connector RUNNING, and is its "
            "converter that of this registry?",
        )
    return ids


def versions_by_schema_id(world: World, artifact_names: Sequence[str]) -> dict[str, str]:
    """Return {schema id in messages, such as `globalId 7`: version} for all versions of artifacts."""
    rows = artifacts(world, artifact_names)
    return {f"{ID_KIND} {id}": version for id, version in zip(rows["global_id"], rows["version"])}


def register(world: World, artifact: str, schema: Any) -> SchemaId:
    """Register a schema as the next version of an artifact; return its global id.

    If a version of the artifact has the same schema, no version is added.

    Raises:
        LakeError: the registry rejects the schema, because of the artifact's compatibility mode.
    """
    id, reason = backend(world).add(artifact, schema)
    if reason:
        raise LakeError(
            f"the registry rejects the schema as next version of {artifact!r}: {reason}",
            location=backend(world).location,
            expected=f"a schema with {compatibility(world, artifact)} compatibility",
            hint="change the schema in a compatible way, for example with a default for an added or "
            "removed field; or change the artifact's mode (registry.set_compatibility)",
        )
    return id


def set_compatibility(world: World, artifact: str, mode: str) -> None:
    """Set the compatibility mode for the next versions of an artifact.

    The existing versions are not checked.

    Args:
        world: the environment profile.
        artifact: name of the artifact.
        mode: one of avro.COMPATIBILITY_MODES. (Glue calls `_TRANSITIVE` `_ALL`.)

    Raises:
        LakeError: there is no such mode or artifact.
    """
    latest_id(world, artifact)
    backend(world).set_compatibility(artifact, avro.validate_mode(mode))


def check_compatibility(world: World, artifact: str, schema: Any, mode: str = "") -> str:
    """Check whether the registry would accept a schema as an artifact's next version.

    The artifact does not change. The schema is registered for a copy: a temporary artifact with the
    mode and the distinct versions of this one. It is deleted afterwards. So the check works for any mode,
    and while a connector registers schemas. Glue gives no reason for a rejection.

    Args:
        world: the environment profile.
        artifact: name of the artifact.
        schema: the next version.
        mode: compatibility mode, by default the artifact's.

    Returns:
        "" if the registry would accept the schema, else the reason of the rejection.

    Raises:
        LakeError: there is no such mode or artifact.
    """
    required_mode = avro.validate_mode(mode or compatibility(world, artifact))
    copy, existing = f"check-{uuid4().hex[:8]}-{artifact}", versions(world, artifact)
    service = backend(world)
    try:
        for version in existing:
            register(world, copy, version)
            # otherwise the global rule could reject the next version of the copy
            service.set_compatibility(copy, "NONE")
        service.set_compatibility(copy, required_mode)
        return service.add(copy, schema)[1]
    finally:
        service.delete(copy)


def wire_prefix(world: World, id: SchemaId) -> bytes:
    """Return the first bytes of a message, before the Avro data: magic bytes and schema id."""
    magic, size = WIRE_FORMATS[world.registry.wire]
    return magic + (UUID(str(id)).bytes if size == UUID_BYTES else int(id).to_bytes(size, "big"))


def latest_id(world: World, artifact: str) -> SchemaId:
    """Return the global id of an artifact's latest schema.

    Raises:
        LakeError: there is no such artifact.
    """
    return _ids(world, artifact)[-1]


def encoder(world: World, id: SchemaId) -> Callable[[Any], bytes]:
    """Return a function that encodes a record as a message, as a serializer does.

    `inspect_message` decodes the messages. The function raises LakeError if a record does not match
    the schema.

    Args:
        world: the environment profile.
        id: global id of the schema.

    Raises:
        LakeError: the registry has no schema with this id.
    """
    avsc = schema(world, id)
    parsed, prefix = fastavro.parse_schema(avsc), wire_prefix(world, id)

    def encode(record: Any) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, parsed, record)
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            raise LakeError(
                f"the record does not match schema {id}: {e}", expected=avro.full_name(avsc)
            ) from e
        return prefix + out.getvalue()

    return encode


class Decoded(NamedTuple):
    """A decoded message: its record, its schema id (such as `globalId 7`) and its Avro schema."""

    record: Any
    schema_id: str
    schema: Any


class Decoder:
    """Decodes the values (or keys) of Avro messages one by one; each schema is requested once."""

    def __init__(
        self,
        world: World,
        *,
        raw_values: bool = False,
        known: Collection[str] = (),
        convert_schema: Optional[Callable[[Any], Any]] = None,
    ):
        """Create a decoder for the environment's registry.

        Args:
            world: the environment profile.
            raw_values: see avro.create_reader; by default dates, times and decimals become Python
                objects.
            known: ids that the registry has, such as `globalId 7`. They are requested also after
                MAX_UNKNOWN_SCHEMAS unknown ids.
            convert_schema: takes an Avro schema, and returns the schema of decoded messages; by default
                the same. It may raise LakeError or ValueError.
        """
        self.world, self.raw_values, self.known = world, raw_values, known
        self._convert_schema = convert_schema
        self._prefix_size = prefix_size(world)
        # by the first bytes of a message: its schema id, its schema and a reader; or the reason why
        # such messages cannot be read
        self._resolved: dict[bytes, Union[str, tuple[str, Any, avro.Reader]]] = {}
        self._unknown: set[str] = set()

    def __call__(self, value: bytes) -> Decoded:
        """Decode one message.

        Raises:
            LakeError: the message is not in the wire format, its schema id is unknown, its schema is
                not Avro, or its bytes are not Avro of that schema. The error's message is the reason of a
                dead letter.
            StackError: the registry does not respond.
        """
        prefix = value[: self._prefix_size]
        if prefix not in self._resolved:
            self._resolved[prefix] = self._resolve(value)
        resolved = self._resolved[prefix]
        if isinstance(resolved, str):
            raise LakeError(resolved, location=value[:40].hex(" "))
        id, schema, read = resolved
        try:
            return Decoded(read(value[self._prefix_size :]), id, schema)
        except ValueError as e:
            raise LakeError(
                f"the bytes are not Avro of schema {id}: {e}",
                location=value[:40].hex(" "),
                expected=avro.full_name(schema),
            ) from e

    def _resolve(self, value: bytes) -> Union[str, tuple[str, Any, avro.Reader]]:
        """Return the schema id, the schema and a reader, or the reason why there is none."""
        message = parse_wire_format(self.world, value)
        if message is None:
            return not_avro_reason(self.world)
        id = message.schema
        if id not in self.known and len(self._unknown) >= MAX_UNKNOWN_SCHEMAS:
            return f"schema {id} was not requested: the registry has none of {MAX_UNKNOWN_SCHEMAS} others"
        try:
            avsc = find(self.world, message.schema_id)
            if avsc is None:
                self._unknown.add(id)
                return unknown_schema_reason(self.world).format(id)
            read = avro.create_reader(avro.for_spark(avsc), raw_values=self.raw_values)
            schema = self._convert_schema(avsc) if self._convert_schema else avsc
            return id, schema, read
        except LakeError as e:
            return f"schema {id} cannot be read: {e.message}"
        except (ValueError, KeyError, TypeError) as e:
            return f"schema {id} cannot be read: {e}"


def inspect_message(world: World, value: Union[bytes, str]) -> dict[str, Any]:
    """Decode one message for display.

    Args:
        world: the environment profile.
        value: the message as topics.read returns it: bytes, or text if the bytes are valid UTF-8.

    Returns:
        A dict with wire, schema_id, schema_name, hex (all bytes, two digits each), record
        (a dict; dates, times and decimals are Python objects).

    Raises:
        LakeError: the message is not in the wire format, its schema id is unknown, or its bytes are
            not Avro of that schema.
    """
    raw = value.encode() if isinstance(value, str) else bytes(value)
    record, _, avsc = Decoder(world)(raw)
    message = parse_wire_format(world, raw)
    assert message, "it is decoded"
    return {
        "wire": world.registry.wire,
        "schema_id": message.schema_id,
        "schema_name": avro.full_name(avsc),
        "hex": raw.hex(" "),
        "record": record,
    }
