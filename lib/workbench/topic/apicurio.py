"""The Apicurio backend of the schema registry: its own REST API, and the Confluent-compatible one.

`topic.registry` documents the functions of both backends. Unless stated otherwise, a function raises
StackError if the registry does not respond, or rejects the request.
"""

import json
from typing import Any, Optional, Sequence
from urllib.parse import quote

import pandas
import requests

from ..base import LakeError, StackError, World, did_you_mean, http
from ..stack.services import REGISTRY_V2
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


def location(world: World) -> str:
    """Return the URL of the registry."""
    return world.registry.url.rstrip("/")


def artifacts(world: World, artifact_names: Optional[Sequence[str]] = None) -> pandas.DataFrame:
    """Return one row per version of each artifact.

    Debezium's converters name an artifact `<topic>-key` or `<topic>-value` (TopicIdStrategy), in
    group `default`.

    Args:
        world: the environment profile.
        artifact_names: the artifacts of group `default` to return, by default all artifacts. A
            missing artifact has no row.

    Returns:
        Columns group, artifact, type, version, global_id, content_id.
    """
    if artifact_names is None:
        registered = _list_artifacts(world)
    else:
        registered = [{"id": name} for name in artifact_names]
    rows = []
    for artifact in registered:
        group, name = artifact.get("groupId") or "default", artifact["id"]
        path = f"/groups/{quote(group, safe='')}/artifacts/{quote(name, safe='')}/versions"
        # the artifact may have been deleted since it was listed
        for version in _fetch_pages(world, path, "versions") or []:
            fields = map(version.get, ("type", "version", "globalId", "contentId"))
            rows.append((group, name, *fields))
    columns = ["group", "artifact", "type", "version", "global_id", "content_id"]
    frame = pandas.DataFrame(rows, columns=columns)
    return frame.sort_values(["group", "artifact", "global_id"], ignore_index=True)


def names(world: World) -> list[str]:
    """Return the names of all artifacts."""
    return [artifact["id"] for artifact in _list_artifacts(world)]


def _list_artifacts(world: World) -> list[dict[str, Any]]:
    """Return the registry's list of all artifacts.

    Raises:
        StackError: the registry has no list of artifacts.
    """
    path = "/search/artifacts"
    registered = _fetch_pages(world, path, "artifacts")
    if registered is None:
        raise StackError(
            "the schema registry has no list of artifacts: it responds with status 404",
            location=location(world) + REGISTRY_V2 + path,
            expected="an Apicurio Registry 2.x",
            hint=f"correct registry.url in {world.file}",
        )
    return registered


def find(world: World, id: SchemaId, kind: str = GLOBAL_ID) -> Optional[dict[str, Any]]:
    """Return the schema with this id as a dict, None if the id is unknown.

    Args:
        world: the environment profile.
        id: id of the schema, a number.
        kind: kind of the id: GLOBAL_ID, CONTENT_ID or CCOMPAT.

    Raises:
        LakeError: the kind of id is unknown, or the schema is not JSON.
    """
    path = _format_path(SCHEMA_PATHS, kind, id)
    return _fetch_schema(world, path, kind) if 0 <= int(id) <= MAX_ID else None


def find_latest(world: World, artifact: str, kind: str = GLOBAL_ID) -> Optional[dict[str, Any]]:
    """Return the latest schema of an artifact as a dict, None if there is no such artifact.

    Args:
        world: the environment profile.
        artifact: name of the artifact.
        kind: GLOBAL_ID for the registry's own API, CCOMPAT for the Confluent-compatible one.

    Raises:
        LakeError: the kind of id is unknown, or the schema is not JSON.
    """
    return _fetch_schema(world, _format_path(LATEST_PATHS, kind, artifact), kind)


def delete(world: World, *artifacts: str) -> None:
    """Delete artifacts with all their versions. Missing artifacts are ignored.

    Raises:
        StackError: the registry rejects the deletion.
    """
    for artifact in artifacts:
        _request(world, _format_path(LATEST_PATHS, GLOBAL_ID, artifact), "DELETE")


def add(world: World, artifact: str, schema: Any) -> tuple[SchemaId, str]:
    """Add a schema as the latest version of an artifact, which is created if it does not exist.

    If a version of the artifact has the same schema, no version is added.

    Args:
        world: the environment profile.
        artifact: name of the artifact.
        schema: the Avro schema, as parsed JSON.

    Returns:
        (global id, ""), or (0, the reason) if the compatibility rule rejects the schema.
    """
    response = _call(
        world,
        f"{REGISTRY_V2}/groups/default/artifacts?ifExists=RETURN_OR_UPDATE",
        "POST",
        schema,
        {"X-Registry-ArtifactId": artifact, "X-Registry-ArtifactType": "AVRO"},
    )
    if response.status_code in REJECTED_STATUSES:
        return 0, _rejection_reason(response)
    return response.json()["globalId"], ""


def incompatibility_reason(world: World, artifact: str, schema: Any, kind: str = GLOBAL_ID) -> str:
    """Return why the registry would reject a schema as the next version, "" if it would accept it.

    A request to the Confluent-compatible API names the versions to compare: all, or the latest. This
    function derives them from the artifact's compatibility mode. (Version 6 of that API in Apicurio
    2.6.13 compares all versions in every mode.)

    Args:
        world: the environment profile.
        artifact: name of the artifact.
        schema: the Avro schema, as parsed JSON.
        kind: GLOBAL_ID for the registry's own API, CCOMPAT for the Confluent-compatible one.
    """
    path = _format_path(COMPATIBILITY_PATHS, kind, artifact)
    if kind == GLOBAL_ID:
        return _rejection_reason(_call(world, path, "PUT", schema))
    if not compatibility(world, artifact).endswith("_TRANSITIVE"):
        path += "/latest"
    body = {"schema": json.dumps(schema), "schemaType": "AVRO"}
    result = _call(world, path + "?verbose=true", "POST", body).json()
    if result.get("is_compatible"):
        return ""
    return result.get("reason") or result.get("message") or "not compatible"


def compatibility(world: World, artifact: str) -> str:
    """Return the compatibility mode of an artifact: its own, else the global mode, else NONE."""
    for base in (_format_path(LATEST_PATHS, GLOBAL_ID, artifact), REGISTRY_V2 + "/admin"):
        rule = _fetch_json(world, base + COMPATIBILITY_RULE)
        if rule:
            return str(rule["config"])
    return "NONE"


def set_compatibility(world: World, artifact: str, mode: str) -> None:
    """Set the compatibility mode of an existing artifact.

    Args:
        world: the environment profile.
        artifact: name of the artifact.
        mode: one of avro.COMPATIBILITY_MODES.
    """
    path = _format_path(LATEST_PATHS, GLOBAL_ID, artifact)
    rule = {"type": "COMPATIBILITY", "config": mode}
    if _request(world, path + COMPATIBILITY_RULE, "PUT", rule) is None:
        _request(world, path + "/rules", "POST", rule)


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


def _fetch_schema(world: World, path: str, kind: str) -> Optional[dict[str, Any]]:
    avsc: Optional[dict[str, Any]] = _fetch_json(world, path)
    if avsc and kind == CCOMPAT:
        avsc = avro.parse_schema(avsc["schema"], path)
    return avsc


def _fetch_pages(world: World, path: str, key: str) -> Optional[list[dict[str, Any]]]:
    """Return all items of a paginated list, None for 404.

    Args:
        world: the environment profile.
        path: path of the list in the registry's own API.
        key: key of the list in a response.

    Raises:
        StackError: a response does not have the key.
    """
    items: list[dict[str, Any]] = []
    while True:
        page = _fetch_json(world, f"{REGISTRY_V2}{path}?limit={PAGE_SIZE}&offset={len(items)}")
        if page is None:
            return None
        if key not in page:
            raise StackError(
                f"the response of the schema registry has no list of {key}: {str(page)[:300]}",
                location=location(world) + path,
            )
        items += page[key]
        if not page[key] or len(items) >= page.get("count", 0):
            return items


def _fetch_json(world: World, path: str) -> Any:
    """Return the JSON at a path, None for 404."""
    content = _request(world, path)
    return None if content is None else avro.parse_schema(content, path)


def _request(world: World, path: str, method: str = "GET", body: Any = None) -> Optional[bytes]:
    """Return the content of a response, None for 404.

    Raises:
        StackError: the registry rejects the request.
    """
    response = _call(world, path, method, body)
    if response.status_code in REJECTED_STATUSES:
        raise StackError(
            f"the schema registry rejects {method}: {_rejection_reason(response)}",
            location=location(world) + path,
        )
    return None if response.status_code == 404 else response.content


def _call(
    world: World, path: str, method: str, body: Any = None, headers: Optional[dict[str, str]] = None
) -> requests.Response:
    """Return the registry's response, including a 404 and those of REJECTED_STATUSES.

    Raises:
        StackError: any other status from 400 on, or no response.
    """
    url = location(world) + path
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
