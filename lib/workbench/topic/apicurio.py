"""Apicurio Registry: its own REST API, and the Confluent-compatible one.

Unless stated otherwise, a method raises StackError if the registry does not respond, or rejects the
request.
"""

import json
from dataclasses import dataclass
from typing import Any, Optional, Sequence
from urllib.parse import quote

import pandas
import requests

from ..base import LakeError, StackError, World, did_you_mean, http
from ..base.registries import REGISTRY_V2
from . import avro
from .wire import CCOMPAT, CONTENT_ID, GLOBAL_ID, SchemaId

# The version of the Confluent-compatible API that the published pipeline S5 uses.
CCOMPAT_V6 = "/apis/ccompat/v6"
COMPATIBILITY_RULE = "/rules/COMPATIBILITY"
SCHEMA_PATHS = {
    GLOBAL_ID: REGISTRY_V2 + "/ids/globalIds/{}",
    CONTENT_ID: REGISTRY_V2 + "/ids/contentIds/{}",
    CCOMPAT: CCOMPAT_V6 + "/schemas/ids/{}",
}
LATEST_PATHS = {
    GLOBAL_ID: REGISTRY_V2 + "/groups/default/artifacts/{}",
    CCOMPAT: CCOMPAT_V6 + "/subjects/{}/versions/latest",
}
COMPATIBILITY_PATHS = {
    GLOBAL_ID: LATEST_PATHS[GLOBAL_ID] + "/test",
    CCOMPAT: "/apis/ccompat/v7/compatibility/subjects/{}/versions",
}
PAGE_SIZE = 500  # artifacts or versions in one response
REJECTED_STATUSES = (409, 422)  # a rule rejects the schema; the text is not a schema
MAX_ID = 2**63 - 1  # the registry's ids are Java's longs


@dataclass(frozen=True)
class ApicurioRegistry:
    """The Apicurio Registry of a world; a `SchemaRegistry`."""

    world: World

    @property
    def location(self) -> str:
        return self.world.registry.url.rstrip("/")

    def artifacts(self, artifact_names: Optional[Sequence[str]]) -> pandas.DataFrame:
        """Return the versions of artifacts: of those in group `default`, or of all artifacts.

        Debezium's converters name an artifact `<topic>-key` or `<topic>-value` (TopicIdStrategy), in
        group `default`.
        """
        if artifact_names is None:
            registered = self._list_artifacts()
        else:
            registered = [{"id": name} for name in artifact_names]
        rows = []
        for artifact in registered:
            group, name = artifact.get("groupId") or "default", artifact["id"]
            path = f"/groups/{quote(group, safe='')}/artifacts/{quote(name, safe='')}/versions"
            # the artifact may have been deleted since it was listed
            for version in self._fetch_pages(path, "versions") or []:
                fields = map(version.get, ("type", "version", "globalId", "contentId"))
                rows.append((group, name, *fields))
        columns = ["group", "artifact", "type", "version", "global_id", "content_id"]
        frame = pandas.DataFrame(rows, columns=columns)
        return frame.sort_values(["group", "artifact", "global_id"], ignore_index=True)

    def names(self) -> list[str]:
        return [artifact["id"] for artifact in self._list_artifacts()]

    def _list_artifacts(self) -> list[dict[str, Any]]:
        """Return the registry's list of all artifacts.

        Raises:
            StackError: the registry has no list of artifacts.
        """
        path = "/search/artifacts"
        registered = self._fetch_pages(path, "artifacts")
        if registered is None:
            raise StackError(
                "the schema registry has no list of artifacts: it responds with status 404",
                location=self.location + REGISTRY_V2 + path,
                expected="an Apicurio Registry 2.x",
                hint=f"correct registry.url in {self.world.file}",
            )
        return registered

    def find(self, id: SchemaId, kind: str) -> Optional[dict[str, Any]]:
        """Return a schema by its id, a number of kind GLOBAL_ID, CONTENT_ID or CCOMPAT."""
        path = _format_path(SCHEMA_PATHS, kind, id)
        return self._fetch_schema(path, kind) if 0 <= int(id) <= MAX_ID else None

    def find_latest(self, artifact: str, kind: str) -> Optional[dict[str, Any]]:
        """Return the latest schema of an artifact by its GLOBAL_ID or CCOMPAT."""
        return self._fetch_schema(_format_path(LATEST_PATHS, kind, artifact), kind)

    def delete(self, *artifacts: str) -> None:
        for artifact in artifacts:
            self._request(_format_path(LATEST_PATHS, GLOBAL_ID, artifact), "DELETE")

    def add(self, artifact: str, schema: Any) -> tuple[SchemaId, str]:
        response = self._call(
            f"{REGISTRY_V2}/groups/default/artifacts?ifExists=RETURN_OR_UPDATE",
            "POST",
            schema,
            {"X-Registry-ArtifactId": artifact, "X-Registry-ArtifactType": "AVRO"},
        )
        if response.status_code in REJECTED_STATUSES:
            return 0, _rejection_reason(response)
        return response.json()["globalId"], ""

    def incompatibility_reason(self, artifact: str, schema: Any, kind: str) -> str:
        """Return why the registry would reject a schema as the next version.

        A request to the Confluent-compatible API names the versions to compare: all, or the latest.
        This method derives them from the artifact's compatibility mode. (Version 6 of that API in
        Apicurio 2.6.13 compares all versions in every mode.)
        """
        path = _format_path(COMPATIBILITY_PATHS, kind, artifact)
        if kind == GLOBAL_ID:
            return _rejection_reason(self._call(path, "PUT", schema))
        if not self.compatibility(artifact).endswith("_TRANSITIVE"):
            path += "/latest"
        body = {"schema": json.dumps(schema), "schemaType": "AVRO"}
        result = self._call(path + "?verbose=true", "POST", body).json()
        if result.get("is_compatible"):
            return ""
        return result.get("reason") or result.get("message") or "not compatible"

    def compatibility(self, artifact: str) -> str:
        """Return the mode of an artifact: its own, else the global mode, else NONE."""
        for base in (_format_path(LATEST_PATHS, GLOBAL_ID, artifact), REGISTRY_V2 + "/admin"):
            rule = self._fetch_json(base + COMPATIBILITY_RULE)
            if rule:
                return str(rule["config"])
        return "NONE"

    def set_compatibility(self, artifact: str, mode: str) -> None:
        path = _format_path(LATEST_PATHS, GLOBAL_ID, artifact)
        rule = {"type": "COMPATIBILITY", "config": mode}
        if self._request(path + COMPATIBILITY_RULE, "PUT", rule) is None:
            self._request(path + "/rules", "POST", rule)

    def _fetch_schema(self, path: str, kind: str) -> Optional[dict[str, Any]]:
        avsc: Optional[dict[str, Any]] = self._fetch_json(path)
        if avsc and kind == CCOMPAT:
            avsc = avro.parse_schema(avsc["schema"], path)
        return avsc

    def _fetch_pages(self, path: str, key: str) -> Optional[list[dict[str, Any]]]:
        """Return all items of a paginated list, None for 404.

        Args:
            path: path of the list in the registry's own API.
            key: key of the list in a response.

        Raises:
            StackError: a response does not have the key.
        """
        items: list[dict[str, Any]] = []
        while True:
            page = self._fetch_json(f"{REGISTRY_V2}{path}?limit={PAGE_SIZE}&offset={len(items)}")
            if page is None:
                return None
            if key not in page:
                raise StackError(
                    f"the response of the schema registry has no list of {key}: {str(page)[:300]}",
                    location=self.location + path,
                )
            items += page[key]
            if not page[key] or len(items) >= page.get("count", 0):
                return items

    def _fetch_json(self, path: str) -> Any:
        """Return the JSON at a path, None for 404."""
        content = self._request(path)
        return None if content is None else avro.parse_schema(content, path)

    def _request(self, path: str, method: str = "GET", body: Any = None) -> Optional[bytes]:
        """Return the content of a response, None for 404.

        Raises:
            StackError: the registry rejects the request.
        """
        response = self._call(path, method, body)
        if response.status_code in REJECTED_STATUSES:
            raise StackError(
                f"the schema registry rejects {method}: {_rejection_reason(response)}",
                location=self.location + path,
            )
        return None if response.status_code == 404 else response.content

    def _call(
        self, path: str, method: str, body: Any = None, headers: Optional[dict[str, str]] = None
    ) -> requests.Response:
        """Return the registry's response, including a 404 and those of REJECTED_STATUSES.

        Raises:
            StackError: any other status from 400 on, or no response.
        """
        url = self.location + path
        response = http.call(
            "the schema registry",
            method,
            url,
            body,
            retry_statuses=[503],
            headers=headers,
            hint='start it with stack.ensure_running(world, "apicurio"), then repeat: nothing is lost',
        )
        if response.status_code >= 400 and response.status_code not in (404, *REJECTED_STATUSES):
            raise StackError(
                f"the schema registry responds with status {response.status_code}: {response.text[:300]}",
                location=url,
            )
        return response


def _rejection_reason(response: requests.Response) -> str:
    """Return why the registry rejected a schema, "" if it accepted the schema."""
    if response.status_code not in REJECTED_STATUSES:
        return ""
    error = response.json()
    causes = [
        f"{cause['description']} at {cause['context']}" for cause in error.get("causes") or ()
    ]
    return "; ".join(causes) or error["message"]


def _format_path(paths: dict[str, str], kind: str, id: SchemaId) -> str:
    if kind not in paths:
        raise LakeError(
            f"the registry has no kind of id {kind!r}", expected=did_you_mean(str(kind), paths)
        )
    return paths[kind].format(quote(str(id), safe=""))
