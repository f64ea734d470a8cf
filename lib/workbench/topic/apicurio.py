"""Apicurio Registry, by its own REST API.

Unless stated otherwise, a method raises StackError if the registry does not respond, or rejects the
request.
"""

from dataclasses import dataclass
from typing import Any, Optional, Sequence
from urllib.parse import quote

import requests

from ..base import StackError, World, http
from ..base.registries import REGISTRY_V2
from . import avro
from .wire import SchemaId

COMPATIBILITY_RULE = "/rules/COMPATIBILITY"
PAGE_SIZE = 500  # artifacts or versions in one response
REJECTED_STATUSES = (409, 422)  # a rule rejects the schema; the text is not a schema
MAX_ID = 2**63 - 1  # the registry's ids are Java's longs


@dataclass(frozen=True)
class ApicurioRegistry:
    """The Apicurio Registry of a world.

    The functions of the same names in `registry` describe the methods without a docstring.
    """

    world: World

    @property
    def location(self) -> str:
        return self.world.registry.url.rstrip("/")

    def artifacts(self, artifact_names: Optional[Sequence[str]]) -> list[tuple[Any, ...]]:
        """Return the versions of artifacts: of those in group `default`, or of all artifacts.

        Debezium's converters name an artifact `<topic>-key` or `<topic>-value` (TopicIdStrategy), in
        group `default`.
        """
        if artifact_names is None:
            registered = self._fetch_list("/search/artifacts", "artifacts")
        else:
            registered = [{"id": name} for name in artifact_names]
        rows = []
        for artifact in registered:
            group, name = artifact.get("groupId") or "default", artifact["id"]
            for version in self._fetch_list(f"{_path(name, group)}/versions", "versions"):
                fields = map(version.get, ("type", "version", "globalId", "contentId"))
                rows.append((group, name, *fields))
        return sorted(rows, key=lambda row: (row[0], row[1], row[4]))

    def names(self) -> list[str]:
        return [artifact["id"] for artifact in self._fetch_list("/search/artifacts", "artifacts")]

    def find(self, id: SchemaId) -> Optional[dict[str, Any]]:
        """Return a schema by its global id."""
        if not 0 <= int(id) <= MAX_ID:
            return None
        avsc: Optional[dict[str, Any]] = self._request(f"/ids/globalIds/{id}")
        return avsc

    def delete(self, *artifacts: str) -> None:
        for artifact in artifacts:
            self._request(_path(artifact), "DELETE")

    def add(self, artifact: str, schema: Any) -> tuple[SchemaId, str]:
        """Add a schema as the latest version of an artifact, which is created if it does not exist.

        If a version of the artifact has the same schema, no version is added.

        Returns:
            (global id, ""), or (any id, the reason) if the artifact's mode rejects the schema.
        """
        headers = {"X-Registry-ArtifactId": artifact, "X-Registry-ArtifactType": "AVRO"}
        response, reason = self._call(
            "/groups/default/artifacts?ifExists=RETURN_OR_UPDATE", "POST", schema, headers
        )
        return 0 if reason else response.json()["globalId"], reason

    def compatibility(self, artifact: str) -> str:
        """Return the mode of an artifact: its own, else the global mode, else NONE."""
        for base in (_path(artifact), "/admin"):
            rule = self._request(base + COMPATIBILITY_RULE)
            if rule:
                return str(rule["config"])
        return "NONE"

    def set_compatibility(self, artifact: str, mode: str) -> None:
        rule = {"type": "COMPATIBILITY", "config": mode}
        if self._request(_path(artifact) + COMPATIBILITY_RULE, "PUT", rule) is None:
            self._request(_path(artifact) + "/rules", "POST", rule)

    def _fetch_list(self, path: str, key: str) -> list[dict[str, Any]]:
        """Return all items of a paginated list; none of versions if the artifact does not exist, as after its deletion.

        Args:
            path: path of the list.
            key: key of the list in a response.

        Raises:
            StackError: the response is no such list.
        """
        items: list[dict[str, Any]] = []
        while True:
            page = self._request(f"{path}?limit={PAGE_SIZE}&offset={len(items)}")
            if page is None and key == "versions":
                return items
            if key not in (page or {}):
                raise StackError(
                    f"the response of the schema registry is no list of {key}",
                    location=self.location + REGISTRY_V2 + path,
                    expected="an Apicurio Registry 2.x",
                    hint=f"correct registry.url in {self.world.file}",
                )
            items += page[key]
            if not page[key] or len(items) >= page["count"]:
                return items

    def _request(self, path: str, method: str = "GET", body: Any = None) -> Any:
        """Return the JSON of a response, None for 404.

        Raises:
            LakeError: the response is not JSON, such as a schema of another kind.
            StackError: the registry rejects the request.
        """
        response, reason = self._call(path, method, body)
        if reason:
            raise StackError(
                f"the schema registry rejects {method}: {reason}", location=response.url
            )
        # that of a deletion is empty
        found = None if response.status_code == 404 else response.content or b"{}"
        return found and avro.parse_schema(found, path)

    def _call(
        self, path: str, method: str, body: Any = None, headers: Optional[dict[str, str]] = None
    ) -> tuple[requests.Response, str]:
        """Return the registry's response, also a 404, and why the registry rejects the request, "" if it does not.

        Raises:
            StackError: any other status from 400 on, or no response.
        """
        url = self.location + REGISTRY_V2 + path
        response = http.call(
            "the schema registry",
            method,
            url,
            body,
            retry_statuses=[503],
            headers=headers,
            hint='start it with stack.ensure_running(world, "apicurio"), then repeat: nothing is lost',
        )
        if response.status_code in REJECTED_STATUSES:
            error = response.json()
            causes = [
                f"{each['description']} at {each['context']}" for each in error.get("causes") or ()
            ]
            return response, "; ".join(causes) or error["message"] or response.text
        if response.status_code >= 400 and response.status_code != 404:
            raise StackError(
                f"the schema registry responds with status {response.status_code}: {response.text[:300]}",
                location=url,
            )
        return response, ""


def _path(artifact: str, group: str = "default") -> str:
    return f"/groups/{quote(group, safe='')}/artifacts/{quote(artifact, safe='')}"
