"""The schema registry as Apicurio Registry is it: its own API, and the one that speaks Confluent's
language.
"""

import json
from typing import Any, Optional, Sequence, Union
from urllib.parse import quote

import pandas
import requests

from ..base import LakeError, StackError, World, did_you_mean, http
from ..stack.services import REGISTRY_V2
from . import avro
from .wire import CCOMPAT, CONTENT_ID, GLOBAL_ID

API_V2, CCOMPAT_V6 = REGISTRY_V2, "/apis/ccompat/v6"  # v6: what S5 asks
COMPATIBILITY_RULE = "/rules/COMPATIBILITY"
SCHEMA_PATHS = {
    GLOBAL_ID: API_V2 + "/ids/globalIds/{}",
    CONTENT_ID: API_V2 + "/ids/contentIds/{}",
    CCOMPAT: CCOMPAT_V6 + "/schemas/ids/{}",
}
LATEST_PATHS = {
    GLOBAL_ID: API_V2 + "/groups/default/artifacts/{}",
    CCOMPAT: CCOMPAT_V6 + "/subjects/{}/versions/latest",
}
COMPATIBILITY_PATHS = {
    GLOBAL_ID: LATEST_PATHS[GLOBAL_ID] + "/test",
    CCOMPAT: "/apis/ccompat/v7/compatibility/subjects/{}/versions",
}
PAGE_SIZE = 500  # artifacts or versions of one answer
REJECTED_STATUSES = (409, 422)  # by a rule, or because it is no schema


def location(world: World) -> str:
    """Where the registry is, for people."""
    return world.registry.url.rstrip("/")


def artifacts(world: World, artifact_names: Optional[Sequence[str]] = None) -> pandas.DataFrame:
    """Return one row per version of each artifact: group, artifact, type, version, global_id,
    content_id.

    Debezium's converters name an artifact `<topic>-key` or `<topic>-value` (TopicIdStrategy), in
    group `default`.

    Args: of: of these of that group only; one that is not there has no row.
    """
    rows = []
    for found in (
        _list_artifacts(world)
        if artifact_names is None
        else [{"id": name} for name in artifact_names]
    ):
        group = found.get("groupId") or "default"
        path = f"/groups/{quote(group, safe='')}/artifacts/{quote(found['id'], safe='')}/versions"
        for v in _fetch_pages(world, path, "versions") or []:  # an artifact that is gone has none
            rows.append(
                (
                    group,
                    found["id"],
                    v.get("type"),
                    v.get("version"),
                    v.get("globalId"),
                    v.get("contentId"),
                )
            )
    columns = ["group", "artifact", "type", "version", "global_id", "content_id"]
    frame = pandas.DataFrame(rows, columns=columns)
    return frame.sort_values(["group", "artifact", "global_id"], ignore_index=True)


def names(world: World) -> list[str]:
    """Return the names of all artifacts."""
    return [found["id"] for found in _list_artifacts(world)]


def _list_artifacts(world: World) -> list[dict[str, Any]]:
    """Return what the registry lists of all artifacts. Raises: StackError: it has no such list."""
    path = "/search/artifacts"
    found = _fetch_pages(world, path, "artifacts")
    if found is None:
        raise StackError(
            "the schema registry has no list of artifacts: it answers 404",
            location=location(world) + API_V2 + path,
            expected="an Apicurio Registry 2.x",
            hint=f"correct registry.url in {world.file}",
        )
    return found


def find(world: World, id: Union[int, str], kind: str = GLOBAL_ID) -> Optional[dict[str, Any]]:
    """Return the schema with this id, None where the registry answers that there is none. See
    registry.schema.
    """
    path = _path_for_kind(SCHEMA_PATHS, kind).format(id)
    return (
        _fetch_schema(world, path, kind) if 0 <= int(id) < 2**63 else None
    )  # its ids are Java's longs


def find_latest(world: World, artifact: str, kind: str = GLOBAL_ID) -> Optional[dict[str, Any]]:
    """Return the newest version of an artifact's schema, None where there is no such artifact. See
    registry.latest.
    """
    return _fetch_schema(
        world, _path_for_kind(LATEST_PATHS, kind).format(quote(artifact, safe="")), kind
    )


def delete(world: World, *artifacts: str) -> None:
    """Delete artifacts with all their versions; those that do not exist are fine. Raises:
    StackError: it refuses.
    """
    for artifact in artifacts:
        _request(world, LATEST_PATHS[GLOBAL_ID].format(quote(artifact, safe="")), "DELETE")


def add(world: World, artifact: str, schema: Any) -> tuple[Union[int, str], str]:
    """Make a schema the newest version of an artifact, the first one where there is none; one that
    it has stays the version that it is. Return its global id and "", or why the compatibility rule
    refuses it. Raises: StackError.
    """
    answer = _call(
        world,
        f"{API_V2}/groups/default/artifacts?ifExists=RETURN_OR_UPDATE",
        "POST",
        schema,
        {"X-Registry-ArtifactId": artifact, "X-Registry-ArtifactType": "AVRO"},
    )
    return (
        (0, _rejection_reason(answer))
        if answer.status_code in REJECTED_STATUSES
        else (answer.json()["globalId"], "")
    )


def incompatibility_reason(world: World, artifact: str, schema: Any, kind: str = GLOBAL_ID) -> str:
    """Why the registry's own test would refuse a schema as the next version, "" where it would take
    it.

    In Confluent's language it is for who asks to say whether all versions are meant, or the latest.
    (What Apicurio 2.6.13 answers at its v6 always counts all, also where its own rule does not.)
    """
    path = _path_for_kind(COMPATIBILITY_PATHS, kind).format(quote(artifact, safe=""))
    if kind == GLOBAL_ID:
        return _rejection_reason(_call(world, path, "PUT", schema))
    path += (
        "?verbose=true"
        if compatibility(world, artifact).endswith("_TRANSITIVE")
        else "/latest?verbose=true"
    )
    answer = _call(world, path, "POST", {"schema": json.dumps(schema), "schemaType": "AVRO"}).json()
    return (
        ""
        if answer.get("is_compatible")
        else answer.get("reason") or answer.get("message") or "not compatible"
    )


def compatibility(world: World, artifact: str) -> str:
    """Return the mode of an artifact: by its own rule, else by the rule for all, else NONE."""
    own, of_all = (
        LATEST_PATHS[GLOBAL_ID].format(quote(artifact, safe="")) + COMPATIBILITY_RULE,
        f"{API_V2}/admin{COMPATIBILITY_RULE}",
    )
    texts = ((_request(world, path), path) for path in (own, of_all))
    return next(
        (avro.parse_schema(text, path)["config"] for text, path in texts if text is not None),
        "NONE",
    )


def set_compatibility(world: World, artifact: str, mode: str) -> None:
    """Give an artifact that is there a rule of its own. mode: one of avro.COMPATIBILITY_MODES."""
    path, rule = (
        LATEST_PATHS[GLOBAL_ID].format(quote(artifact, safe="")),
        {"type": "COMPATIBILITY", "config": mode},
    )
    if _request(world, path + COMPATIBILITY_RULE, "PUT", rule) is None:
        _request(world, path + "/rules", "POST", rule)


def _rejection_reason(answer: requests.Response) -> str:
    """What the registry says against a schema, "" where it took it."""
    if answer.status_code not in REJECTED_STATUSES:
        return ""
    causes = [
        f"{each['description']} at {each['context']}" for each in answer.json().get("causes") or ()
    ]
    return "; ".join(causes) or answer.json()["message"]


def _path_for_kind(paths: dict[str, str], kind: str) -> str:
    if kind not in paths:
        raise LakeError(
            f"there is no kind of id {kind!r} here", expected=did_you_mean(str(kind), paths)
        )
    return paths[kind]


def _fetch_schema(world: World, path: str, kind: str) -> Optional[dict[str, Any]]:
    text = _request(world, path)
    if text is None:
        return None
    return avro.parse_schema(
        avro.parse_schema(text, path)["schema"] if kind == CCOMPAT else text, path
    )


def _fetch_pages(world: World, path: str, what: str) -> Optional[list]:
    """Return all of a list that the registry gives out in pages, None for 404. Raises: StackError:
    it answers none.
    """
    rows: list = []
    while True:
        text = _request(world, f"{API_V2}{path}?limit={PAGE_SIZE}&offset={len(rows)}")
        if text is None:
            return None
        page = avro.parse_schema(text, path)
        if what not in page:
            raise StackError(
                f"the schema registry answers no list of {what}: {text[:300]!r}",
                location=location(world) + path,
            )
        rows += page[what]
        if not page[what] or len(rows) >= page.get("count", 0):
            return rows


def _request(world: World, path: str, method: str = "GET", body: Any = None) -> Optional[bytes]:
    """The text of an answer, None for 404. Raises: StackError: the registry refuses the request."""
    answer = _call(world, path, method, body)
    if answer.status_code in REJECTED_STATUSES:
        raise StackError(
            f"the schema registry refuses {method}: {_rejection_reason(answer)}",
            location=location(world) + path,
        )
    return None if answer.status_code == 404 else answer.content


def _call(
    world: World, path: str, method: str, body: Any = None, headers: Optional[dict[str, str]] = None
) -> requests.Response:
    """What the registry answers, be it that there is no such thing (404) or that it refuses what is
    sent.
    """
    url = location(world) + path
    answer = http.call(
        "the schema registry",
        method,
        url,
        body,
        retry_statuses=[503],
        headers=headers,
        hint='start it with stack.ensure_running(world, "apicurio"), then do it again: nothing is lost',
    )
    if answer.status_code >= 400 and answer.status_code not in (404, *REJECTED_STATUSES):
        raise StackError(
            f"the schema registry answers {answer.status_code}: {answer.text[:300]}", location=url
        )
    return answer
