"""The AWS Glue Schema Registry as the schema registry.

One registry has the schemas of keys, another one the schemas of values (services.glue_registries), as
in the published walkthrough on schema evolution (S4).

By default AWS's converter gives the schemas of keys and of values the name of the topic (library
aws-glue-schema-registry, `schemaNameGenerationClass`). In a single registry both would be versions
of one schema. Here they are the artifacts `<topic>-key` and `<topic>-value`, as
with Apicurio.
"""

import json
import re
from typing import Any, Optional, Sequence

import pandas

from ..base import LakeError, StackError, World, aws, did_you_mean
from ..stack.services import glue_registries
from . import avro
from .wire import GLOBAL_ID, SchemaId

NOT_FOUND_ERROR = "EntityNotFoundException"
UUID_PATTERN = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def location(world: World) -> str:
    """Return the names and the region of the registries."""
    return f"Glue schema registries {', '.join(glue_registries(world).values())} in {world.region}"


def artifacts(world: World, artifact_names: Optional[Sequence[str]] = None) -> pandas.DataFrame:
    """Return one row per version of each artifact, the oldest first.

    Versions that the compatibility check rejected are skipped.

    Args:
        world: the environment profile.
        artifact_names: the artifacts to return, by default all. A missing artifact has no row.

    Returns:
        Columns group (the registry), artifact, type, version, global_id (the SchemaVersionId),
        content_id. Type and content_id are None, because Glue does not list them.

    Raises:
        StackError: there is no such registry, or AWS denies access.
    """
    columns = ["group", "artifact", "type", "version", "global_id", "content_id"]
    rows = []
    for name in names(world) if artifact_names is None else artifact_names:
        group = _schema_id(world, name)["RegistryName"]
        for version in _available_versions(world, name):
            number, id = str(version["VersionNumber"]), version["SchemaVersionId"]
            rows.append((group, name, None, number, id, None))
    return pandas.DataFrame(rows, columns=columns)


def names(world: World) -> list[str]:
    """Return the names of all artifacts.

    Raises:
        StackError: there is no such registry, or AWS denies access.
    """
    artifacts = []
    for side, registry in glue_registries(world).items():
        registry_id = {"RegistryName": registry}
        try:
            schemas = aws.paginate(
                world.region, "glue", "list_schemas", "Schemas", RegistryId=registry_id
            )
        except StackError as e:
            if aws.error_code(e) != NOT_FOUND_ERROR:
                raise
            raise StackError(
                f"there is no schema registry {registry}",
                location=location(world),
                hint="deploy/2-lake.yaml creates it: `workbench aws up`",
            ) from e
        artifacts += [f"{schema['SchemaName']}-{side}" for schema in schemas]
    return sorted(artifacts)


def find(world: World, id: SchemaId, kind: str = GLOBAL_ID) -> Optional[dict[str, Any]]:
    """Return the schema with this id, None if it does not exist. See registry.schema.

    The schema may belong to another registry of the account, because the request has only the id of
    the schema version. A policy has to allow the request on every resource (Glue Developer Guide, "IAM examples
    for deserializers").
    """
    _require_global_id(world, kind)
    if not re.fullmatch(UUID_PATTERN, str(id)):
        return None
    version = _call_or_none(world, "get_schema_version", SchemaVersionId=id)
    return version and avro.parse_schema(version["SchemaDefinition"], version["SchemaArn"])


def find_latest(world: World, artifact: str, kind: str = GLOBAL_ID) -> Optional[dict[str, Any]]:
    """Return the latest version of an artifact's schema, None if there is no such artifact.

    See registry.latest.
    """
    versions = _available_versions(world, artifact) if artifact in names(world) else []
    return find(world, versions[-1]["SchemaVersionId"], kind) if versions else None


def delete(world: World, *artifacts: str) -> None:
    """Delete artifacts with all their versions and wait until they are gone.

    Missing artifacts are ignored.

    Raises:
        StackError: AWS denies the deletion, or an artifact still exists after a minute.
    """
    existing = names(world) if artifacts else []
    ids = [_schema_id(world, artifact) for artifact in existing if artifact in artifacts]
    for id in ids:
        _call_or_none(world, "delete_schema", SchemaId=id)
    # list_schemas skips schemas that are being deleted. A schema of the same name can be created only
    # after the deletion.
    aws.wait(
        lambda: not any(_call_or_none(world, "get_schema", SchemaId=id) for id in ids),
        f"the schemas of {', '.join(artifacts)} to be gone",
        timeout=60,
        interval=1,
    )


def add(world: World, artifact: str, schema: Any) -> tuple[SchemaId, str]:
    """Add a schema as the latest or first version of an artifact.

    If a version of the artifact has the same schema, no version is added. Glue gives no reason for a
    rejection, and keeps the rejected version with the status FAILURE. Such a version is ignored.

    Returns:
        (SchemaVersionId, ""), or (SchemaVersionId, the reason) if the compatibility check rejects
        the schema.

    Raises:
        StackError: AWS does not accept the request.
    """
    definition, id = json.dumps(schema), _schema_id(world, artifact)
    if _call_or_none(world, "get_schema", SchemaId=id):
        version = _call(world, "register_schema_version", SchemaId=id, SchemaDefinition=definition)
        status = version["Status"]
    else:
        version = _call(
            world,
            "create_schema",
            RegistryId={"RegistryName": id["RegistryName"]},
            SchemaName=id["SchemaName"],
            DataFormat="AVRO",
            Compatibility="NONE",
            SchemaDefinition=definition,
        )
        status = version["SchemaVersionStatus"]
    version_id = version["SchemaVersionId"]
    if status == "PENDING":
        status = aws.wait(
            lambda: _evaluated_status(world, version_id),
            "Glue to check a schema version",
            timeout=60,
            interval=1,
        )
    return version_id, "" if status == "AVAILABLE" else f"Glue reports the version as {status}"


def incompatibility_reason(world: World, artifact: str, schema: Any, kind: str = GLOBAL_ID) -> str:
    """Return why the registry rejects a schema as the next version, "" if it accepts it.

    Glue cannot test a schema, so this function adds the schema. registry.check_compatibility calls it
    for a copy of the artifact. Glue has only one kind of id.
    """
    _require_global_id(world, kind)
    return add(world, artifact, schema)[1]


def compatibility(world: World, artifact: str) -> str:
    """Return the mode of an artifact; DISABLED allows no new version; NONE if there is no artifact."""
    schema = _call_or_none(world, "get_schema", SchemaId=_schema_id(world, artifact))
    return schema["Compatibility"].replace("_ALL", "_TRANSITIVE") if schema else "NONE"


def set_compatibility(world: World, artifact: str, mode: str) -> None:
    """Set the mode of an existing artifact, one of avro.COMPATIBILITY_MODES."""
    # Glue compares the versions from a checkpoint on. The request names it: the first or last version.
    first = {"VersionNumber": 1} if mode.endswith("_TRANSITIVE") else {"LatestVersion": True}
    _call(
        world,
        "update_schema",
        SchemaId=_schema_id(world, artifact),
        SchemaVersionNumber=first,
        Compatibility=mode.replace("_TRANSITIVE", "_ALL"),
    )


def _evaluated_status(world: World, id: str) -> str:
    """Return the status of a version, "" while Glue compares it with the others."""
    status = _call(world, "get_schema_version", SchemaVersionId=id)["Status"]
    return "" if status == "PENDING" else status


def _require_global_id(world: World, kind: str) -> None:
    if kind != GLOBAL_ID:
        raise LakeError(
            f"the registry has no kind of id {kind!r}",
            location=location(world),
            expected=did_you_mean(kind, [GLOBAL_ID]),
        )


def _available_versions(world: World, artifact: str) -> list[dict[str, Any]]:
    """Return the usable versions of an artifact, the oldest first; empty if it does not exist."""
    id, versions = _schema_id(world, artifact), []
    with aws.ignore_error_codes(NOT_FOUND_ERROR):
        versions = aws.paginate(
            world.region, "glue", "list_schema_versions", "Schemas", SchemaId=id
        )
    available = [version for version in versions if version["Status"] == "AVAILABLE"]
    return sorted(available, key=lambda version: version["VersionNumber"])


def _schema_id(world: World, artifact: str) -> dict[str, str]:
    topic, _, side = artifact.rpartition("-")
    registries = glue_registries(world)
    if side not in registries:
        raise LakeError(
            f"{artifact!r} is not the name of an artifact",
            location=location(world),
            expected="<topic>-key or <topic>-value: keys and values have separate registries",
        )
    return {"RegistryName": registries[side], "SchemaName": topic}


def _call(world: World, operation: str, **params: Any) -> dict[str, Any]:
    return aws.call(world.region, "glue", operation, **params)


def _call_or_none(world: World, operation: str, **params: Any) -> Optional[dict[str, Any]]:
    """Return Glue's response, None if there is no such schema or version."""
    with aws.ignore_error_codes(NOT_FOUND_ERROR):
        return _call(world, operation, **params)
    return None
