"""Schemas registered and judged by a registry: what is asked of Glue (botocore's Stubber, by the service's own model,
with the statuses that its API names) and what people are told. Apicurio itself is asked in tests/stack."""
import json
from uuid import UUID

import on_aws
import pytest
from workbench.base.errors import LakeError
from workbench.topic import registry

WORLD = on_aws.world()
ROW = {"type": "record", "name": "Value", "namespace": "m.p.t", "fields": [{"name": "id", "type": "int"}]}
MORE = {**ROW, "fields": [*ROW["fields"], {"name": "name", "type": "string"}]}
ID, OTHER = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", "ffffffff-0000-0000-0000-000000000001"
ARN = f"arn:aws:glue:{on_aws.REGION}:{on_aws.ACCOUNT}:schema/workbench/"
REGISTRY = {"RegistryName": "workbench"}


@pytest.fixture
def glue(monkeypatch):
    monkeypatch.setattr("workbench.base.wait.time.sleep", lambda _: None)
    with on_aws.stubbed("glue") as stub:
        yield stub


def there(stub, *versions, name="t.Value"):
    """The registry has a schema of this name, with these ids as versions; none without any."""
    names = [name] if versions else []
    stub.add_response("list_schemas", {"Schemas": [{"SchemaName": n} for n in names]}, {"RegistryId": REGISTRY})
    if versions:
        stub.add_response("list_schema_versions", {"Schemas": [
            {"SchemaArn": ARN + name, "SchemaVersionId": id, "VersionNumber": n, "Status": "AVAILABLE",
             "CreatedTime": f"2026-01-0{n}"} for n, id in enumerate(versions, 1)]},
            {"SchemaId": {**REGISTRY, "SchemaName": name}})


def known(stub, id, avsc):
    stub.add_response("get_schema_version", {"SchemaDefinition": json.dumps(avsc), "SchemaArn": ARN + "x"},
                      {"SchemaVersionId": id})


def takes(stub, avsc, status, name="t.Value", id=OTHER):
    stub.add_response("register_schema_version", {"SchemaVersionId": id, "VersionNumber": 2, "Status": status},
                      {"SchemaId": {**REGISTRY, "SchemaName": name}, "SchemaDefinition": json.dumps(avsc)})


def judged(stub, *statuses, id=OTHER):
    for status in statuses:
        stub.add_response("get_schema_version", {"SchemaVersionId": id, "Status": status}, {"SchemaVersionId": id})


def makes(stub, avsc, name):
    stub.add_response("create_schema", {"SchemaVersionId": ID, "SchemaVersionStatus": "AVAILABLE"}, {
        "RegistryId": REGISTRY, "SchemaName": name, "DataFormat": "AVRO", "Compatibility": "NONE",
        "SchemaDefinition": json.dumps(avsc)})


def mode_of(stub, mode, name="t.Value"):
    stub.add_response("get_schema", {"Compatibility": mode}, {"SchemaId": {**REGISTRY, "SchemaName": name}})


@pytest.mark.parametrize("artifact, name", [("t-value", "t.Value"), ("t-key", "t.Key"), ("other", "other")])
def test_the_first_version_makes_the_schema_by_the_name_that_the_converter_gives(glue, artifact, name):
    there(glue)
    makes(glue, ROW, name)
    assert registry.register(WORLD, artifact, ROW) == ID


def test_a_further_version_goes_to_the_schema_that_is_there(glue):
    there(glue, ID, name="t")  # the converter's own default: the topic's name
    takes(glue, MORE, "PENDING", "t")
    judged(glue, "PENDING", "PENDING", "AVAILABLE")
    assert registry.register(WORLD, "t-value", MORE) == OTHER


def test_a_version_that_glue_refuses_is_told(glue):
    there(glue, ID)
    takes(glue, MORE, "PENDING")
    judged(glue, "FAILURE")
    there(glue, ID)
    mode_of(glue, "BACKWARD_ALL")
    with pytest.raises(LakeError, match="(?s)refuses the schema as next version of 't-value': the version is FAILURE.*"
                                        "Glue schema registry .workbench.*BACKWARD_TRANSITIVE compatib.*set_compat"):
        registry.register(WORLD, "t-value", MORE)


@pytest.mark.parametrize("mode, glues, since", [
    ("NONE", "NONE", {"LatestVersion": True}), ("FULL", "FULL", {"LatestVersion": True}),
    ("FORWARD_TRANSITIVE", "FORWARD_ALL", {"VersionNumber": 1})])
def test_the_modes_of_glue(glue, mode, glues, since):
    there(glue, ID)
    known(glue, ID, ROW)
    there(glue, ID)
    glue.add_response("update_schema", {}, {"SchemaId": {**REGISTRY, "SchemaName": "t.Value"},
                                            "SchemaVersionNumber": since, "Compatibility": glues})
    registry.set_compatibility(WORLD, "t-value", mode)
    there(glue, ID)
    mode_of(glue, glues)
    assert registry.compatibility(WORLD, "t-value") == mode
    there(glue)
    assert registry.compatibility(WORLD, "t-value") == "NONE"


@pytest.mark.parametrize("status, why", [("AVAILABLE", ""), ("FAILURE", "the version is FAILURE, says Glue")])
def test_a_copy_is_asked_and_goes(glue, monkeypatch, status, why):
    monkeypatch.setattr(registry, "uuid4", lambda: UUID("1" * 32))
    copy = "check-11111111-t.Value"
    there(glue, ID)
    mode_of(glue, "FORWARD_ALL")
    there(glue, ID)
    known(glue, ID, ROW)
    there(glue)
    makes(glue, ROW, copy)
    there(glue, ID, name=copy)
    glue.add_response("update_schema", {}, {
        "SchemaId": {**REGISTRY, "SchemaName": copy}, "SchemaVersionNumber": {"VersionNumber": 1},
        "Compatibility": "FORWARD_ALL"})
    there(glue, ID, name=copy)
    takes(glue, MORE, status, copy)
    glue.add_response("list_schemas", {"Schemas": [{"SchemaName": copy}]}, {"RegistryId": REGISTRY})
    glue.add_response("delete_schema", {}, {"SchemaId": {**REGISTRY, "SchemaName": copy}})
    glue.add_client_error("get_schema", "EntityNotFoundException", "gone")
    assert registry.check(WORLD, "t-value", MORE) == why


def test_what_is_misspelt_is_told(glue):
    with pytest.raises(LakeError, match="(?s)no compatibility mode 'BACKWARD_ALL'.*did you mean 'BACKWARD"):
        registry.check(WORLD, "t-value", ROW, "BACKWARD_ALL")
    lists = {"RegistryId": REGISTRY}
    there(glue, ID)
    glue.add_response("list_schemas", {"Schemas": [{"SchemaName": "t.Value"}]}, lists)
    with pytest.raises(LakeError, match="no artifact 'u-value'(?s:.)*did you mean 't-value'"):
        registry.check(WORLD, "u-value", ROW, "FULL")
    for _ in "ab":
        glue.add_response("list_schemas", {"Schemas": [{"SchemaName": "t.Value"}]}, lists)
    with pytest.raises(LakeError, match="no artifact 'u-value'(?s:.)*did you mean 't-value'"):
        registry.set_compatibility(WORLD, "u-value", "FULL")
