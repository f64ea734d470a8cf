"""The schema registry as the AWS Glue Schema Registry is it: one registry for the schemas of keys,
one for those of values (services.glue_registries), as the published walkthrough on schema evolution
has it (S4).

AWS's converter calls a schema as the topic is called, of keys and of values alike, unless its
setting `schemaNameGenerationClass` names another way (library aws-glue-schema-registry): in one
registry both would be versions of one schema. Here they are the artifacts `<topic>-key` and
`<topic>-value`, as with Apicurio.
"""

import json
import re
from typing import Any, Optional, Sequence, Union

import pandas

from ..base import LakeError, StackError, World, aws, did_you_mean
from ..stack.services import glue_registries
from . import avro
from .wire import GLOBAL_ID

NOT_FOUND_ERROR = "EntityNotFoundException"


def location(world: World) -> str:
    """Where the registry is, for people."""
    return f"Glue schema registries {', '.join(glue_registries(world).values())} in {world.region}"


def artifacts(world: World, artifact_names: Optional[Sequence[str]] = None) -> pandas.DataFrame:
    """Return one row per version of each artifact, the oldest first: group (the registry),
    artifact, type, version, global_id (the SchemaVersionId), content_id. Neither type nor
    content_id is told by Glue's lists. A version that the compatibility check refused is none.

    Args: of: of these only; one that is not there has no row.
    Raises: StackError: there is no such registry, or AWS refuses to tell.
    """
    rows = [
        (
            _schema_id(world, artifact)["RegistryName"],
            artifact,
            None,
            str(v["VersionNumber"]),
            v["SchemaVersionId"],
            None,
        )
        for artifact in (names(world) if artifact_names is None else artifact_names)
        for v in _available_versions(world, artifact)
    ]
    return pandas.DataFrame(
        rows, columns=["group", "artifact", "type", "version", "global_id", "content_id"]
    )


def names(world: World) -> list[str]:
    """Return the names of all artifacts. Raises: as `artifacts`."""
    found = []
    for side, registry in glue_registries(world).items():
        try:
            schemas = aws.paginate(
                world.region,
                "glue",
                "list_schemas",
                "Schemas",
                RegistryId={"RegistryName": registry},
            )
        except StackError as e:
            if aws.error_code(e) != NOT_FOUND_ERROR:
                raise
            raise StackError(
                f"there is no schema registry {registry}",
                location=location(world),
                hint="deploy/2-lake.yaml makes it: `workbench aws up`",
            ) from e
        found += [f"{one['SchemaName']}-{side}" for one in schemas]
    return sorted(found)


def find(world: World, id: Union[int, str], kind: str = GLOBAL_ID) -> Optional[dict[str, Any]]:
    """Return the schema with this id, None where there is none. See registry.schema.

    It may be of another registry of the account: a schema version is asked for by its id alone,
    which a policy has to allow on every resource (Glue Developer Guide, "IAM examples for
    deserializers").
    """
    _require_global_id(world, kind)
    if not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", str(id)):
        return None
    found = _call(world, "get_schema_version", SchemaVersionId=id)
    return (
        None if found is None else avro.parse_schema(found["SchemaDefinition"], found["SchemaArn"])
    )


def find_latest(world: World, artifact: str, kind: str = GLOBAL_ID) -> Optional[dict[str, Any]]:
    """Return the newest version of an artifact's schema, None where there is no such artifact. See
    registry.latest.
    """
    versions = _available_versions(world, artifact) if artifact in names(world) else []
    return find(world, versions[-1]["SchemaVersionId"], kind) if versions else None


def delete(world: World, *artifacts: str) -> None:
    """Delete artifacts with all their versions and wait until they are gone; those that do not
    exist are fine.

    Raises: StackError: AWS refuses it, or one is still there after a minute.
    """
    ids = [
        _schema_id(world, artifact)
        for artifact in (names(world) if artifacts else ())
        if artifact in artifacts
    ]
    for id in ids:
        _call(world, "delete_schema", SchemaId=id)
    # the list leaves out what is being deleted, and a schema of the same name cannot be made before
    # that is done
    aws.wait(
        lambda: not any(_call(world, "get_schema", SchemaId=id) for id in ids),
        f"the schemas of {', '.join(artifacts)} to be gone",
        timeout=60,
        interval=1,
    )


def add(world: World, artifact: str, schema: Any) -> tuple[Union[int, str], str]:
    """Make a schema the newest version of an artifact, the first one where there is none; one that
    it has stays the version that it is. Return its SchemaVersionId and "", or why the compatibility
    check refuses it: Glue gives no reasons, and keeps the version as a failure, which is none.
    Raises: StackError: AWS refuses to take it at all.
    """
    given, id = {"SchemaDefinition": json.dumps(schema)}, _schema_id(world, artifact)
    if _call(world, "get_schema", SchemaId=id):
        made = aws.call(world.region, "glue", "register_schema_version", SchemaId=id, **given)
    else:
        made = aws.call(
            world.region,
            "glue",
            "create_schema",
            RegistryId={"RegistryName": id["RegistryName"]},
            SchemaName=id["SchemaName"],
            DataFormat="AVRO",
            Compatibility="NONE",
            **given,
        )
    status = made.get("Status") or made["SchemaVersionStatus"]
    if status == "PENDING":
        status = aws.wait(
            lambda: _evaluated_status(world, made["SchemaVersionId"]),
            "Glue to judge a schema version",
            timeout=60,
            interval=1,
        )
    return made[
        "SchemaVersionId"
    ], "" if status == "AVAILABLE" else f"the version is {status}, says Glue"


def incompatibility_reason(world: World, artifact: str, schema: Any, kind: str = GLOBAL_ID) -> str:
    """Why the registry refuses a schema as the next version, "" where it takes it: Glue has no
    test, so it is given the schema. For a copy that registry.check_compatibility makes. kind: as of
    registry.check_compatibility; Glue has one only.
    """
    _require_global_id(world, kind)
    return add(world, artifact, schema)[1]


def compatibility(world: World, artifact: str) -> str:
    """Return the mode of an artifact, or DISABLED (no versions at all); NONE where there is no such
    artifact.
    """
    found = _call(world, "get_schema", SchemaId=_schema_id(world, artifact))
    return found["Compatibility"].replace("_ALL", "_TRANSITIVE") if found else "NONE"


def set_compatibility(world: World, artifact: str, mode: str) -> None:
    """Give an artifact that is there a mode. mode: one of avro.COMPATIBILITY_MODES."""
    # Glue compares from a checkpoint on, which has to be said with the mode: the first version, or
    # the last
    since = {"VersionNumber": 1} if mode.endswith("_TRANSITIVE") else {"LatestVersion": True}
    aws.call(
        world.region,
        "glue",
        "update_schema",
        SchemaId=_schema_id(world, artifact),
        SchemaVersionNumber=since,
        Compatibility=mode.replace("_TRANSITIVE", "_ALL"),
    )


def _evaluated_status(world: World, id: str) -> str:
    """What became of a version, "" while Glue compares it with the others."""
    status = aws.call(world.region, "glue", "get_schema_version", SchemaVersionId=id)["Status"]
    return "" if status == "PENDING" else status


def _require_global_id(world: World, kind: str) -> None:
    if kind != GLOBAL_ID:
        raise LakeError(
            f"there is no kind of id {kind!r} here",
            location=location(world),
            expected=did_you_mean(kind, [GLOBAL_ID]),
        )


def _available_versions(world: World, artifact: str) -> list[dict[str, Any]]:
    """The versions of an artifact that can be used, the oldest first; none of one that is gone."""
    with aws.ignore_error_codes(NOT_FOUND_ERROR):
        found = aws.paginate(
            world.region,
            "glue",
            "list_schema_versions",
            "Schemas",
            SchemaId=_schema_id(world, artifact),
        )
        return sorted(
            (v for v in found if v["Status"] == "AVAILABLE"), key=lambda v: v["VersionNumber"]
        )
    return []


def _schema_id(world: World, artifact: str) -> dict[str, str]:
    topic, _, side = artifact.rpartition("-")
    if side not in glue_registries(world):
        raise LakeError(
            f"no artifact is called {artifact!r} here",
            location=location(world),
            expected="<topic>-key or <topic>-value: each has a registry of its own",
        )
    return {"RegistryName": glue_registries(world)[side], "SchemaName": topic}


def _call(world: World, operation: str, **given: Any) -> Optional[dict[str, Any]]:
    """What Glue answers, None where it has no such thing."""
    with aws.ignore_error_codes(NOT_FOUND_ERROR):
        return aws.call(world.region, "glue", operation, **given)
    return None
