"""The schema registry as the AWS Glue Schema Registry is it, in a registry that has the deployment's name.

AWS's converter registers a topic's schemas under the name that its setting `schemaNameGenerationClass` makes (library
aws-glue-schema-registry): by default the topic's, for keys and for values alike, which then need a registry each; with
AWSSchemaNamingStrategyConnectNameImpl the record's full name, of Debezium `<topic>.Key` and `<topic>.Value` (of its
envelope `<topic>.Envelope`), and one registry is enough. Whichever it is, here they are the artifacts `<topic>-key` and
`<topic>-value`, as with Apicurio; the versions of an artifact may so be those of two schemas.
"""
import json
import re
from typing import Any, Optional, Union

import pandas

from ..base import LakeError, StackError, World, aws, nearest, wait_until
from . import avro
from .wire import GLOBAL

ENDINGS = {"-key": "-key", ".Key": "-key", "-value": "-value", ".Value": "-value", ".Envelope": "-value", "": "-value"}
MISSING = "EntityNotFoundException"


def address(world: World) -> str:
    """Where the registry is, for people."""
    return f"Glue schema registry {world.stack.deployment!r} in {world.region}"


def artifacts(world: World) -> pandas.DataFrame:
    """Return one row per version of each artifact, the oldest first: group (the registry), artifact, type, version,
    global_id (the SchemaVersionId), content_id. Neither type nor content_id is told by Glue's lists. A version that the
    compatibility check refused is none.

    Raises: StackError: there is no such registry, or AWS refuses to tell.
    """
    rows = [(world.stack.deployment, artifact, None, str(v["VersionNumber"]), v["SchemaVersionId"], None)
            for artifact, schemas in sorted(_schemas(world).items()) for v in _versions(world, schemas)]
    return pandas.DataFrame(rows, columns=["group", "artifact", "type", "version", "global_id", "content_id"])


def names(world: World) -> list[str]:
    """Return the names of all artifacts. Raises: as `artifacts`."""
    return sorted(_schemas(world))


def find(world: World, id: Union[int, str], kind: str = GLOBAL) -> Optional[dict[str, Any]]:
    """Return the schema with this id, None where there is none. See registry.schema.

    It may be of another registry of the account: a schema version is asked for by its id alone, which a policy has to
    allow on every resource (Glue Developer Guide, "IAM examples for deserializers").
    """
    _one_kind(world, kind)
    if not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", str(id)):
        return None
    found = _asked(world, "get_schema_version", SchemaVersionId=id)
    return None if found is None else avro.parsed(found["SchemaDefinition"], found["SchemaArn"])


def newest(world: World, artifact: str, kind: str = GLOBAL) -> Optional[dict[str, Any]]:
    """Return the newest version of an artifact's schema, None where there is no such artifact. See registry.latest."""
    versions = _versions(world, _schemas(world).get(artifact, []))
    return find(world, versions[-1]["SchemaVersionId"], kind) if versions else None


def delete(world: World, *artifacts: str) -> None:
    """Delete artifacts with all their versions and wait until they are gone; those that do not exist are fine.

    Raises: StackError: AWS refuses it, or one is still there after a minute.
    """
    there = _schemas(world)
    ids = [_id(world, schema) for artifact in artifacts for schema in there.get(artifact, [])]
    for id in ids:
        _asked(world, "delete_schema", SchemaId=id)
    # the list leaves out what is being deleted, and a schema of the same name cannot be made before that is done
    wait_until(lambda: not any(_asked(world, "get_schema", SchemaId=id) for id in ids),
               f"the schemas of {', '.join(artifacts)} to be gone", every=1, error=StackError)


def add(world: World, artifact: str, schema: Any) -> tuple[Union[int, str], str]:
    """Make a schema the newest version of an artifact, the first one where there is none; one that it has stays the
    version that it is. Return its SchemaVersionId and "", or why the compatibility check refuses it: Glue gives no
    reasons, and keeps the version as a failure, which is none. Raises: StackError: AWS refuses to take it at all."""
    given, name = {"SchemaDefinition": json.dumps(schema)}, _written(world, artifact)
    if name:
        made = aws.call(world.region, "glue", "register_schema_version", SchemaId=_id(world, name), **given)
    else:
        made = aws.call(world.region, "glue", "create_schema", RegistryId={"RegistryName": world.stack.deployment},
                        SchemaName=re.sub("-(key|value)$", lambda found: f".{found[1].title()}", artifact),
                        DataFormat="AVRO", Compatibility="NONE", **given)
    status = made.get("Status") or made["SchemaVersionStatus"]
    if status == "PENDING":
        status = aws.wait(lambda: _judged(world, made["SchemaVersionId"]), "Glue to judge a schema version",
                          timeout=60, every=1)
    return made["SchemaVersionId"], "" if status == "AVAILABLE" else f"the version is {status}, says Glue"


def refusal(world: World, artifact: str, schema: Any, kind: str = GLOBAL) -> str:
    """Why the registry refuses a schema as the next version, "" where it takes it: Glue has no test, so it is given the
    schema. For a copy that registry.check makes. kind: as of registry.check; Glue has one only."""
    _one_kind(world, kind)
    return add(world, artifact, schema)[1]


def compatibility(world: World, artifact: str) -> str:
    """Return the mode of an artifact, or DISABLED (no versions at all); NONE where there is no such artifact."""
    name = _written(world, artifact)
    found = _asked(world, "get_schema", SchemaId=_id(world, name)) if name else None
    return found["Compatibility"].replace("_ALL", "_TRANSITIVE") if found else "NONE"


def set_compatibility(world: World, artifact: str, mode: str) -> None:
    """Give an artifact that is there a mode. mode: one of avro.MODES."""
    # Glue compares from a checkpoint on, which has to be said with the mode: the first version, or the last
    since = {"VersionNumber": 1} if mode.endswith("_TRANSITIVE") else {"LatestVersion": True}
    aws.call(world.region, "glue", "update_schema", SchemaId=_id(world, _written(world, artifact)),
             SchemaVersionNumber=since, Compatibility=mode.replace("_TRANSITIVE", "_ALL"))


def _judged(world: World, id: str) -> str:
    """What became of a version, "" while Glue compares it with the others."""
    status = aws.call(world.region, "glue", "get_schema_version", SchemaVersionId=id)["Status"]
    return "" if status == "PENDING" else status


def _one_kind(world: World, kind: str) -> None:
    if kind != GLOBAL:
        raise LakeError(f"there is no kind of id {kind!r} here", where=address(world), expected=nearest(kind, [GLOBAL]))


def _written(world: World, artifact: str) -> str:
    """The schema of an artifact that was given a version last, "" where it has none."""
    versions = _versions(world, _schemas(world).get(artifact, []))
    return versions[-1]["SchemaArn"].rpartition("/")[2] if versions else ""


def _schemas(world: World) -> dict[str, list[str]]:
    """{artifact: names of its schemas}."""
    try:
        found = aws.pages(world.region, "glue", "list_schemas", "Schemas",
                          RegistryId={"RegistryName": world.stack.deployment})
    except StackError as e:
        if aws.code(e) != MISSING:
            raise
        raise StackError("there is no such schema registry", where=address(world), expected="one with the name of the "
                         "deployment", next_step="deploy/2-lake.yaml makes it: `workbench aws up`") from e
    named: dict[str, list[str]] = {}
    for schema in (one["SchemaName"] for one in found):
        ending = next(ending for ending in ENDINGS if schema.endswith(ending))
        named.setdefault(schema[:len(schema) - len(ending)] + ENDINGS[ending], []).append(schema)
    return named


def _versions(world: World, schemas: list[str]) -> list[dict[str, Any]]:
    """The versions of schemas that can be used, the oldest first."""
    found = [v for schema in schemas for v in aws.pages(
        world.region, "glue", "list_schema_versions", "Schemas", SchemaId=_id(world, schema))]
    usable = (v for v in found if v["Status"] == "AVAILABLE")
    return sorted(usable, key=lambda v: (v["CreatedTime"], v["VersionNumber"]))


def _id(world: World, schema: str) -> dict[str, str]:
    return {"RegistryName": world.stack.deployment, "SchemaName": schema}


def _asked(world: World, operation: str, **given: Any) -> Optional[dict[str, Any]]:
    """What Glue answers, None where it has no such thing."""
    with aws.suppress(MISSING):
        return aws.call(world.region, "glue", operation, **given)
    return None
