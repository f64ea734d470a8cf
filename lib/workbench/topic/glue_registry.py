"""The AWS Glue Schema Registry as the schema registry.

One registry has the schemas of keys, another one the schemas of values (base.registries.glue_registries), as
in the published walkthrough on schema evolution (S4).

By default AWS's converter gives the schemas of keys and of values the name of the topic (library
aws-glue-schema-registry, `schemaNameGenerationClass`). In a single registry both would be versions
of one schema. Here they are the artifacts `<topic>-key` and `<topic>-value`, as
with Apicurio.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Optional, Sequence

from ..base import LakeError, StackError, World, aws
from ..base.registries import glue_registries
from . import avro
from .wire import SchemaId

NOT_FOUND_ERROR = "EntityNotFoundException"
UUID_PATTERN = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@dataclass(frozen=True)
class GlueRegistry:
    """The registries of a deployment in the Glue Schema Registry, with the methods of ApicurioRegistry."""

    world: World

    @property
    def location(self) -> str:
        names = ", ".join(glue_registries(self.world).values())
        return f"Glue schema registries {names} in {self.world.region}"

    def artifacts(self, artifact_names: Optional[Sequence[str]]) -> list[tuple[Any, ...]]:
        """Return the versions of artifacts, the oldest first.

        Versions that the compatibility check rejected are skipped. The group is the registry, and the
        global id the SchemaVersionId. Type and content_id are None, because Glue does not list them.
        """
        rows = []
        for name in self.names() if artifact_names is None else artifact_names:
            group = self._schema_id(name)["RegistryName"]
            for version in self._available_versions(name):
                number, id = str(version["VersionNumber"]), version["SchemaVersionId"]
                rows.append((group, name, None, number, id, None))
        return rows

    def names(self) -> list[str]:
        artifacts = []
        for side, registry in glue_registries(self.world).items():
            registry_id = {"RegistryName": registry}
            try:
                schemas = aws.paginate(
                    self.world.region, "glue", "list_schemas", "Schemas", RegistryId=registry_id
                )
            except StackError as e:
                if aws.error_code(e) != NOT_FOUND_ERROR:
                    raise
                raise StackError(
                    f"there is no schema registry {registry}",
                    location=self.location,
                    hint="deploy/2-lake.yaml creates it: `deploy/up.sh`",
                ) from e
            artifacts += [f"{schema['SchemaName']}-{side}" for schema in schemas]
        return sorted(artifacts)

    def find(self, id: SchemaId) -> Optional[dict[str, Any]]:
        """Return a schema by its SchemaVersionId.

        The schema may belong to another registry of the account, because the request has only the id of
        the schema version. A policy has to allow the request on every resource (Glue Developer Guide,
        "IAM examples for deserializers").
        """
        if not re.fullmatch(UUID_PATTERN, str(id)):
            return None
        version = self._call_or_none("get_schema_version", SchemaVersionId=id)
        return version and avro.parse_schema(version["SchemaDefinition"], version["SchemaArn"])

    def delete(self, *artifacts: str) -> None:
        """Delete artifacts with all their versions and wait until they are gone.

        Raises:
            StackError: AWS denies the deletion, or an artifact still exists after a minute.
        """
        existing = self.names() if artifacts else []
        ids = [self._schema_id(artifact) for artifact in existing if artifact in artifacts]
        for id in ids:
            self._call_or_none("delete_schema", SchemaId=id)
        # list_schemas skips schemas that are being deleted. A schema of the same name can be created
        # only after the deletion.
        aws.wait(
            lambda: not any(self._call_or_none("get_schema", SchemaId=id) for id in ids),
            f"the schemas of {', '.join(artifacts)} to be gone",
            timeout=60,
            interval=1,
        )

    def add(self, artifact: str, schema: Any) -> tuple[SchemaId, str]:
        """Add a schema as the latest or first version of an artifact.

        Glue gives no reason for a rejection, and keeps the rejected version with the status FAILURE.
        Such a version is ignored.
        """
        definition, id = json.dumps(schema), self._schema_id(artifact)
        if self._call_or_none("get_schema", SchemaId=id):
            version = self._call(
                "register_schema_version", SchemaId=id, SchemaDefinition=definition
            )
            status = version["Status"]
        else:
            version = self._call(
                "create_schema",
                RegistryId={"RegistryName": id["RegistryName"]},
                SchemaName=id["SchemaName"],
                DataFormat="AVRO",
                Compatibility="NONE",
                SchemaDefinition=definition,
            )
            status = version["SchemaVersionStatus"]
        version_id = version["SchemaVersionId"]

        def evaluated_status() -> str:
            """Return the status, "" while Glue compares the version with the others."""
            found = self._call("get_schema_version", SchemaVersionId=version_id)["Status"]
            return "" if found == "PENDING" else str(found)

        if status == "PENDING":
            status = aws.wait(
                evaluated_status, "Glue to check a schema version", timeout=60, interval=1
            )
        return version_id, "" if status == "AVAILABLE" else f"Glue reports the version as {status}"

    def compatibility(self, artifact: str) -> str:
        """Return the mode of an artifact; DISABLED allows no new version."""
        schema = self._call_or_none("get_schema", SchemaId=self._schema_id(artifact))
        return schema["Compatibility"].replace("_ALL", "_TRANSITIVE") if schema else "NONE"

    def set_compatibility(self, artifact: str, mode: str) -> None:
        # Glue compares the versions from a checkpoint on. The request names it: the first or last
        # version.
        first = {"VersionNumber": 1} if mode.endswith("_TRANSITIVE") else {"LatestVersion": True}
        self._call(
            "update_schema",
            SchemaId=self._schema_id(artifact),
            SchemaVersionNumber=first,
            Compatibility=mode.replace("_TRANSITIVE", "_ALL"),
        )

    def _available_versions(self, artifact: str) -> list[dict[str, Any]]:
        """Return the usable versions of an artifact, the oldest first; empty if it does not exist."""
        id, versions = self._schema_id(artifact), []
        with aws.ignore_error_codes(NOT_FOUND_ERROR):
            versions = aws.paginate(
                self.world.region, "glue", "list_schema_versions", "Schemas", SchemaId=id
            )
        available = [version for version in versions if version["Status"] == "AVAILABLE"]
        return sorted(available, key=lambda version: version["VersionNumber"])

    def _schema_id(self, artifact: str) -> dict[str, str]:
        topic, _, side = artifact.rpartition("-")
        registries = glue_registries(self.world)
        if side not in registries:
            raise LakeError(
                f"{artifact!r} is not the name of an artifact",
                location=self.location,
                expected="<topic>-key or <topic>-value: keys and values have separate registries",
            )
        return {"RegistryName": registries[side], "SchemaName": topic}

    def _call(self, operation: str, **params: Any) -> dict[str, Any]:
        return aws.call(self.world.region, "glue", operation, **params)

    def _call_or_none(self, operation: str, **params: Any) -> Optional[dict[str, Any]]:
        """Return Glue's response, None if there is no such schema or version."""
        with aws.ignore_error_codes(NOT_FOUND_ERROR):
            return self._call(operation, **params)
        return None
