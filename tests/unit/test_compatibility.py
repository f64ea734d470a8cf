"""Schemas registered and judged by a registry: what is asked of Glue (botocore's Stubber, by the
service's own model, with the statuses that its API names) and what people are told. Apicurio itself
is asked in tests/stack."""

import json
from uuid import UUID

import on_aws
import pytest
from workbench.base.errors import LakeError
from workbench.topic import registry

WORLD = on_aws.world()
ROW = {
    "type": "record",
    "name": "Value",
    "namespace": "m.p.t",
    "fields": [{"name": "id", "type": "int"}],
}
MORE = {**ROW, "fields": [*ROW["fields"], {"name": "name", "type": "string"}]}
ID, OTHER = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", "ffffffff-0000-0000-0000-000000000001"
KEYS, VALUES = "workbench-keys", "workbench-values"
ARN = f"arn:aws:glue:{on_aws.REGION}:{on_aws.ACCOUNT}:schema/"


@pytest.fixture
def glue(monkeypatch):
    monkeypatch.setattr("workbench.base.wait.time.sleep", lambda _: None)
    with on_aws.stubbed_client("glue") as stub:
        yield stub


def of(topic, registry=VALUES):
    return {"SchemaId": {"RegistryName": registry, "SchemaName": topic}}


def lists(stub, *topics):
    """The names of all schemas are asked for: of keys there are none, of values these."""
    for side, names in ((KEYS, ()), (VALUES, topics)):
        stub.add_response(
            "list_schemas",
            {"Schemas": [{"SchemaName": name} for name in names]},
            {"RegistryId": {"RegistryName": side}},
        )


def versions(stub, topic, *ids):
    """The versions of a schema are asked for: these ids."""
    stub.add_response(
        "list_schema_versions",
        {
            "Schemas": [
                {
                    "SchemaArn": f"{ARN}{VALUES}/{topic}",
                    "SchemaVersionId": id,
                    "VersionNumber": n,
                    "Status": "AVAILABLE",
                    "CreatedTime": f"2026-01-0{n}",
                }
                for n, id in enumerate(ids, 1)
            ]
        },
        of(topic),
    )


def known(stub, id, avsc):
    stub.add_response(
        "get_schema_version",
        {"SchemaDefinition": json.dumps(avsc), "SchemaArn": ARN + "x"},
        {"SchemaVersionId": id},
    )


def there(stub, topic, mode="NONE", registry=VALUES):
    """It is asked for a schema: it is there, in this mode."""
    stub.add_response("get_schema", {"Compatibility": mode}, of(topic, registry))


def missing(stub, topic, registry=VALUES):
    """It is asked for a schema: there is none."""
    stub.add_client_error(
        "get_schema", "EntityNotFoundException", "none", expected_params=of(topic, registry)
    )


def takes(stub, avsc, status, topic="t"):
    stub.add_response(
        "register_schema_version",
        {"SchemaVersionId": OTHER, "VersionNumber": 2, "Status": status},
        {**of(topic), "SchemaDefinition": json.dumps(avsc)},
    )


def judged(stub, *statuses):
    for status in statuses:
        asked = {"SchemaVersionId": OTHER}
        stub.add_response("get_schema_version", {**asked, "Status": status}, asked)


def makes(stub, avsc, topic, registry=VALUES):
    stub.add_response(
        "create_schema",
        {"SchemaVersionId": ID, "SchemaVersionStatus": "AVAILABLE"},
        {
            "RegistryId": {"RegistryName": registry},
            "SchemaName": topic,
            "DataFormat": "AVRO",
            "Compatibility": "NONE",
            "SchemaDefinition": json.dumps(avsc),
        },
    )


@pytest.mark.parametrize(
    "artifact, topic, of_side",
    [("t-value", "t", VALUES), ("t-key", "t", KEYS), ("u-key-value", "u-key", VALUES)],
)
def test_the_first_version_makes_the_schema_by_the_name_that_the_converter_gives(
    glue, artifact, topic, of_side
):
    """The topic's, in the registry of its side: the converter's own default."""
    missing(glue, topic, of_side)
    makes(glue, ROW, topic, of_side)
    assert registry.register(WORLD, artifact, ROW) == ID


def test_a_further_version_goes_to_the_schema_that_is_there(glue):
    there(glue, "t")
    takes(glue, MORE, "PENDING")
    judged(glue, "PENDING", "PENDING", "AVAILABLE")
    assert registry.register(WORLD, "t-value", MORE) == OTHER


def test_a_version_that_glue_refuses_is_told(glue):
    there(glue, "t", "BACKWARD_ALL")
    takes(glue, MORE, "PENDING")
    judged(glue, "FAILURE")
    there(glue, "t", "BACKWARD_ALL")
    with pytest.raises(
        LakeError,
        match="(?s)rejects the schema as next version of 't-value': Glue reports the version as FAILURE.*"
        f"Glue schema registries {KEYS}, {VALUES}.*BACKWARD_TRANSITIVE compatib.*"
        "set_compat",
    ):
        registry.register(WORLD, "t-value", MORE)


@pytest.mark.parametrize(
    "mode, glues, since",
    [
        ("NONE", "NONE", {"LatestVersion": True}),
        ("FULL", "FULL", {"LatestVersion": True}),
        ("FORWARD_TRANSITIVE", "FORWARD_ALL", {"VersionNumber": 1}),
    ],
)
def test_the_modes_of_glue(glue, mode, glues, since):
    versions(glue, "t", ID)
    glue.add_response(
        "update_schema", {}, {**of("t"), "SchemaVersionNumber": since, "Compatibility": glues}
    )
    registry.set_compatibility(WORLD, "t-value", mode)
    there(glue, "t", glues)
    assert registry.compatibility(WORLD, "t-value") == mode
    missing(glue, "t")
    assert registry.compatibility(WORLD, "t-value") == "NONE"


@pytest.mark.parametrize(
    "status, why", [("AVAILABLE", ""), ("FAILURE", "Glue reports the version as FAILURE")]
)
def test_a_copy_is_asked_and_goes(glue, monkeypatch, status, why):
    monkeypatch.setattr(registry, "uuid4", lambda: UUID("1" * 32))
    copy = "check-11111111-t"
    there(glue, "t", "FORWARD_ALL")
    versions(glue, "t", ID)
    known(glue, ID, ROW)
    missing(glue, copy)
    makes(glue, ROW, copy)
    glue.add_response(
        "update_schema",
        {},
        {**of(copy), "SchemaVersionNumber": {"LatestVersion": True}, "Compatibility": "NONE"},
    )
    glue.add_response(
        "update_schema",
        {},
        {**of(copy), "SchemaVersionNumber": {"VersionNumber": 1}, "Compatibility": "FORWARD_ALL"},
    )
    there(glue, copy, "FORWARD_ALL")
    takes(glue, MORE, status, copy)
    lists(glue, copy, "t")
    glue.add_response("delete_schema", {}, of(copy))
    missing(glue, copy)
    assert registry.check_compatibility(WORLD, "t-value", MORE) == why


def test_what_is_misspelt_is_told(glue):
    with pytest.raises(
        LakeError, match="(?s)no compatibility mode 'BACKWARD_ALL'.*did you mean 'BACKWARD"
    ):
        registry.check_compatibility(WORLD, "t-value", ROW, "BACKWARD_ALL")
    for ask in (
        lambda: registry.check_compatibility(WORLD, "u-value", ROW, "FULL"),
        lambda: registry.set_compatibility(WORLD, "u-value", "FULL"),
    ):
        glue.add_client_error(
            "list_schema_versions", "EntityNotFoundException", "none", expected_params=of("u")
        )
        lists(glue, "t")
        with pytest.raises(LakeError, match="no artifact 'u-value'(?s:.)*did you mean 't-value'"):
            ask()


def test_an_artifact_is_of_a_topics_keys_or_of_its_values():
    said = f"(?s)is not the name of an artifact.*{KEYS}, {VALUES}.*<topic>-key or <topic>-value"
    for ask in (
        lambda: registry.register(WORLD, "other", ROW),
        lambda: registry.compatibility(WORLD, "t.Value"),
    ):
        with pytest.raises(LakeError, match=said):
            ask()
