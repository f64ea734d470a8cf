"""The Glue side of the registry, and its wire format: moto answers where it knows the operation (it
has none of the lists), else botocore's Stubber, which judges requests and answers by the service's
own model."""

import io
import json
from collections import Counter
from uuid import UUID

import fastavro
import landing_help
import on_aws
import pytest
from workbench import landing, tracks
from workbench.base import aws, params
from workbench.base.errors import ConnectorError, LakeError, StackError
from workbench.hudi import decode_avro
from workbench.landing import job
from workbench.run import notebooks
from workbench.topic import registry, wire
from workbench.topic.glue_registry import GlueRegistry

pytestmark = pytest.mark.aws

WORLD = on_aws.world()
ROW = {
    "type": "record",
    "name": "Value",
    "namespace": "m.p.t",
    "fields": [{"name": "id", "type": "int"}],
}
MORE = {
    **ROW,
    "fields": [*ROW["fields"], {"name": "name", "type": ["null", "string"], "default": None}],
}
ID, OTHER = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9", "ffffffff-0000-0000-0000-000000000001"
ARN = f"arn:aws:glue:{on_aws.REGION}:{on_aws.ACCOUNT}:schema/workbench-values/m.p.t"
KEYS, VALUES = "workbench-keys", "workbench-values"


def framed(id, avsc, record, magic=b"\3\0"):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(avsc), record)
    return magic + UUID(id).bytes + out.getvalue()


# --- the wire format
# -------------------------------------------------------------------------------------------------


def test_a_message_is_taken_apart():
    body = b"\x02 and more"
    found = wire.parse_wire_format(WORLD, b"\3\0" + UUID(ID).bytes + body)
    assert found == wire.WireMessage(ID, body) and found.schema == f"globalId {ID}"


def test_what_is_no_message_of_glue():
    head = UUID(ID).bytes
    for bad in (
        b"",
        b"\3",
        b"\3\0" + head[:-1],
        b"\0\0" + head,
        b"\3\1" + head,
        b"\3\5" + head + b"packed",
        b"\0" + bytes(8) + b"x",
    ):
        assert wire.parse_wire_format(WORLD, bad) is None
    assert wire.parse_wire_format(WORLD, b"\3\0" + head).body == b""
    with pytest.raises(
        LakeError,
        match="(?s)not Avro in wire format glue: 03 00, 16 bytes of schema id.*7b 22",
    ):
        registry.inspect_message(WORLD, '{"a": 1}')
    assert wire.not_avro_reason(WORLD).startswith(
        "not Avro in wire format glue: 03 00, 16 bytes of schema id"
    )
    assert "03 05 is compressed" in wire.not_avro_reason(
        WORLD
    ) and "value.converter.compression" in wire.not_avro_reason(WORLD)


# --- what moto knows
# -------------------------------------------------------------------------------------------------


@pytest.fixture
def glue(account):
    """Glue's client, with the deployment's registries."""
    client = aws.client(WORLD.region, "glue")
    for name in (KEYS, VALUES):
        client.create_registry(RegistryName=name)
    return client


def create(glue, name, avsc, registry=VALUES):
    made = glue.create_schema(
        RegistryId={"RegistryName": registry},
        SchemaName=name,
        DataFormat="AVRO",
        Compatibility="NONE",
        SchemaDefinition=json.dumps(avsc),
    )
    return made["SchemaVersionId"]


def test_a_schema_by_its_id(glue):
    id = create(glue, "m.p.t", ROW)
    assert registry.schema(WORLD, id) == registry.find(WORLD, id) == ROW
    assert (
        registry.find(WORLD, OTHER)
        is registry.find(WORLD, "4711")
        is registry.find(WORLD, 4711)
        is None
    )
    with pytest.raises(
        LakeError,
        match=f"(?s)globalId {OTHER} is not in the registry.*{KEYS}, {VALUES} in {WORLD.region}",
    ):
        registry.schema(WORLD, OTHER)


def test_a_message_is_decoded(glue):
    old, new = create(glue, "m.p.t", ROW), create(glue, "m.p.u", MORE)
    decode = registry.Decoder(WORLD)
    assert decode(framed(old, ROW, {"id": 7})).record == {"id": 7}
    seen = registry.inspect_message(WORLD, framed(new, MORE, {"id": 7, "name": "é"}))
    assert (
        seen["wire"],
        seen["schema_id"],
        seen["schema_name"],
        seen["record"],
    ) == ("glue", new, "m.p.t.Value", {"id": 7, "name": "é"})
    with pytest.raises(LakeError, match=f"globalId {OTHER} is not in the registry"):
        decode(framed(OTHER, ROW, {"id": 7}))


def test_deleted_schemas_are_waited_for(glue, monkeypatch):
    here = {KEYS: ["t", "u"], VALUES: ["t", "u-key"]}
    for registry_name, topics in here.items():
        for topic in topics:
            create(glue, topic, ROW, registry_name)
    seen, real = [], aws.call

    def call(region, service, operation, **given):  # deleting takes a while there, none in moto
        seen.append(operation)
        if operation == "get_schema" and seen.count(operation) < 3:
            return {"SchemaStatus": "DELETING"}
        return real(region, service, operation, **given)

    monkeypatch.setattr(aws, "call", call)
    monkeypatch.setattr("workbench.base.wait.time.sleep", lambda _: None)
    monkeypatch.setattr(
        aws,
        "paginate",
        lambda *_, RegistryId: [
            {"SchemaName": topic} for topic in here[RegistryId["RegistryName"]]
        ],
    )
    registry.delete(WORLD, "t-key", "t-value", "u-key-value", "not there-value", "neither")
    for name, topic in ((KEYS, "t"), (VALUES, "t"), (VALUES, "u-key")):
        with pytest.raises(glue.exceptions.EntityNotFoundException):
            glue.get_schema(SchemaId={"RegistryName": name, "SchemaName": topic})
    assert glue.get_schema(SchemaId={"RegistryName": KEYS, "SchemaName": "u"})["SchemaName"] == "u"
    assert seen.count("delete_schema") == 3 and seen.count("get_schema") == 2 + 3
    registry.delete(WORLD, "t-key", "t-value")
    assert seen.count("delete_schema") == 3 + 2, "gone meanwhile: fine"
    monkeypatch.setattr(aws, "paginate", None)
    registry.delete(WORLD)  # of a walkthrough that has none, nobody is asked


def test_a_schema_that_does_not_go_is_told(glue, monkeypatch):
    monkeypatch.setattr(GlueRegistry, "names", lambda _: ["t-value"])
    monkeypatch.setattr(aws, "call", lambda *_, **__: {"SchemaStatus": "DELETING"})
    monkeypatch.setattr("workbench.base.wait.time.sleep", lambda _: None)
    clock = iter(range(0, 1000, 20))
    monkeypatch.setattr("workbench.base.wait.time.monotonic", lambda: next(clock))
    with pytest.raises(StackError, match="waited 60 s for the schemas of t-value to be gone"):
        registry.delete(WORLD, "t-value")


def test_a_login_that_expires_while_schemas_go_is_told_at_once(monkeypatch):
    monkeypatch.setattr(GlueRegistry, "names", lambda _: ["t-value"])
    waited, id = [], {"SchemaId": {"RegistryName": VALUES, "SchemaName": "t"}}
    monkeypatch.setattr("workbench.base.wait.time.sleep", on_aws.sleep_once(waited))
    with on_aws.stubbed_client("glue") as stub:
        stub.add_response("delete_schema", {}, id)
        stub.add_client_error("get_schema", "ThrottlingException", "Rate exceeded")
        stub.add_client_error("get_schema", "ExpiredTokenException", "expired")
        with pytest.raises(StackError, match="credentials have expired"):
            registry.delete(WORLD, "t-value")
    assert len(waited) == 1


# --- what it does not
# ------------------------------------------------------------------------------------------------


def version(number, id, status="AVAILABLE"):
    return {"SchemaArn": ARN, "SchemaVersionId": id, "VersionNumber": number, "Status": status}


def listed(stub, registry_name, *topics, more=()):
    """ListSchemas, in two pages where there are `more`."""

    def page(topics, **told):
        return {
            "Schemas": [
                {"RegistryName": registry_name, "SchemaName": t, "SchemaStatus": "AVAILABLE"}
                for t in topics
            ],
            **told,
        }

    asked = {"RegistryId": {"RegistryName": registry_name}}
    stub.add_response("list_schemas", page(topics, **({"NextToken": "2"} if more else {})), asked)
    if more:
        stub.add_response("list_schemas", page(more), {**asked, "NextToken": "2"})


def versions(stub, registry_name, topic, *found):
    stub.add_response(
        "list_schema_versions",
        {"Schemas": list(found)},
        {"SchemaId": {"RegistryName": registry_name, "SchemaName": topic}},
    )


def test_artifacts_are_called_as_with_apicurio():
    """A schema is called as its topic, of the keys in one registry, of the values in the other."""
    third = "00000000-0000-0000-0000-000000000003"
    with on_aws.stubbed_client("glue") as stub:
        listed(stub, KEYS, "m", "n")
        listed(stub, VALUES, "o", more=["m"])
        versions(stub, KEYS, "m", version(1, third))
        versions(stub, VALUES, "m", version(3, OTHER, "FAILURE"), version(2, ID), version(1, OTHER))
        versions(stub, KEYS, "n")
        versions(stub, VALUES, "o", version(1, third))
        frame = registry.artifacts(WORLD)
    assert list(frame.columns) == [
        "group",
        "artifact",
        "type",
        "version",
        "global_id",
        "content_id",
    ]
    assert frame[["group", "artifact", "version", "global_id"]].values.tolist() == [
        [KEYS, "m-key", "1", third],
        [VALUES, "m-value", "1", OTHER],
        [VALUES, "m-value", "2", ID],
        [VALUES, "o-value", "1", third],
    ]


def test_what_a_walkthrough_looks_for_is_what_there_is(monkeypatch):
    """Notebooks 32 and 52 demand a schema of keys and one of values of each topic; a teardown
    removes them."""
    for each in (each for each in tracks.ALL if "apicurio" in each.services):
        flow, schemas = each.flow, each.resources.connector_schemas(WORLD)
        if not flow.captures:
            continue
        wanted = {
            f"{flow.topic(WORLD, name)}-{side}" for name in flow.names for side in ("key", "value")
        }
        assert wanted and wanted <= schemas
        topics = sorted({artifact.rpartition("-")[0] for artifact in schemas})
        with on_aws.stubbed_client("glue") as stub:
            listed(stub, KEYS, *topics)
            listed(stub, VALUES, *topics)
            assert set(registry.names(WORLD)) == schemas


def test_a_notebook_asks_for_what_glue_has_not_only_where_there_is_more():
    for path in notebooks.find():
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            text = "".join(cell["source"])
            if cell["cell_type"] == "code" and "ccompat" in text:
                assert 'world.registry.kind == "apicurio"' in text, f"{path.name}: {text}"


def test_the_newest_version_is_the_last_one_that_may_be_used():
    asked = {"SchemaVersionId": ID}
    with on_aws.stubbed_client("glue") as stub:
        versions(
            stub, VALUES, "m.p.t", version(3, OTHER, "FAILURE"), version(2, ID), version(1, OTHER)
        )
        stub.add_response(
            "get_schema_version", {"SchemaDefinition": json.dumps(MORE), "SchemaArn": ARN}, asked
        )
        assert registry.latest(WORLD, "m.p.t-value") == MORE


def test_an_artifact_that_is_not_there_names_the_nearest():
    with on_aws.stubbed_client("glue") as stub:
        versions(stub, VALUES, "moma.public.artist")
        listed(stub, KEYS)
        listed(stub, VALUES, "moma.public.artists")
        with pytest.raises(
            LakeError, match="(?s)no artifact .*Glue schema .*moma.public.artists-value"
        ):
            registry.latest(WORLD, "moma.public.artist-value")


@pytest.mark.parametrize(
    "code, message, told",
    [
        (
            "EntityNotFoundException",
            "Registry is not found.",
            "there is no schema registry workbench-keys(?s:.)*ap-southeast-2(?s:.)*2-lake.yaml(?s:.)*deploy/up.sh",
        ),
        (
            "AccessDeniedException",
            "User: arn:aws:iam::1:user/x is not authorized to perform: glue:ListSchemas on resource: "
            "arn:aws:glue:r:1:registry/w-keys",
            "glue:ListSchemas is not allowed on arn:aws:glue:r:1:registry/w-keys",
        ),
        ("ThrottlingException", "Rate exceeded", "throttled"),
    ],
)
def test_what_glue_refuses_is_told(code, message, told):
    for ask in (
        registry.artifacts,
        registry.names,
        lambda w: registry.delete(w, "t-value"),
    ):
        with on_aws.stubbed_client("glue") as stub:
            stub.add_client_error("list_schemas", code, message)
            with pytest.raises(StackError, match=told):
                ask(WORLD)


def test_a_right_that_is_missing_is_no_unknown_schema():
    for ask in (
        lambda: registry.find(WORLD, ID),
        lambda: registry.inspect_message(WORLD, framed(ID, ROW, {"id": 1})),
    ):
        with on_aws.stubbed_client("glue") as stub:
            stub.add_client_error(
                "get_schema_version",
                "AccessDeniedException",
                "User: u is not authorized to perform: glue:GetSchemaVersion on resource: *",
            )
            with pytest.raises(StackError, match="glue:GetSchemaVersion is not allowed"):
                ask()


def test_a_schema_that_is_no_avro():
    with on_aws.stubbed_client("glue") as stub:
        stub.add_response(
            "get_schema_version",
            {"SchemaDefinition": "syntax = proto3", "SchemaArn": ARN},
            {"SchemaVersionId": ID},
        )
        with pytest.raises(LakeError, match="(?s)not an Avro schema.*workbench-values/m.p.t"):
            registry.find(WORLD, ID)


def test_the_ingest_meets_schemas_of_glue(monkeypatch):
    asked = []
    monkeypatch.setattr(
        GlueRegistry, "find", lambda _, id: asked.append(id) or {ID: ROW, OTHER: MORE}[id]
    )
    artifacts = [(VALUES, "m.p.t-value", None, "1", OTHER, None)]
    monkeypatch.setattr(GlueRegistry, "artifacts", lambda *_: artifacts)
    known = decode_avro.AvroSchemas(WORLD, "m.p.t")
    assert known.resolve(Counter([f"globalId {ID}"])) == [f"globalId {ID}"]
    assert asked == [ID, OTHER] and known.row_schema.fieldNames() == ["id", "name"]


# --- the landing, whose tasks cannot ask
# ------------------------------------------------------------------------------

CONVERTER = {
    "value.converter": "com.amazonaws.services.schemaregistry.kafkaconnect.AWSKafkaAvroConverter",
    "value.converter.region": WORLD.region,
    "value.converter.registry.name": VALUES,
    "value.converter.avroRecordType": "GENERIC_RECORD",
}
SINK = {
    "name": "s",
    "connector.class": "io.confluent.connect.s3.S3SinkConnector",
    "topics": "t",
    "flush.size": "10",
    "storage.class": "io.confluent.connect.s3.storage.S3Storage",
    "format.class": "io.confluent.connect.s3.format.avro.AvroFormat",
    "behavior.on.null.values": "ignore",
    **CONVERTER,
    **{k.replace("value", "key"): v for k, v in CONVERTER.items()},
}


def test_the_landing_honours_the_converter_of_the_worlds_registry():
    assert landing.parse(SINK, WORLD).message_format == "avro"
    with pytest.raises(
        ConnectorError, match="(?s)registry.name is 'other'.*params/aws.yaml: workbench-values"
    ):
        landing.parse({**SINK, "value.converter.registry.name": "other"}, WORLD)
    with pytest.raises(ConnectorError, match="value.converter.registry.name is"):
        landing.parse({**SINK, "value.converter.registry.name": VALUES + "/"}, WORLD)
    with pytest.raises(
        ConnectorError, match="(?s)registry.name is missing.*params/aws.yaml: workbench-values"
    ):
        landing.parse(
            {k: v for k, v in SINK.items() if k != "value.converter.registry.name"}, WORLD
        )
    with pytest.raises(
        ConnectorError,
        match="(?s)value.converter is .*apicurio, the converter for .*params/local.yaml",
    ):
        landing.parse(SINK, params.load("local"))
    apicurio = {k: v for k, v in SINK.items() if not k.startswith("value.")}
    with pytest.raises(
        ConnectorError, match="(?s)value.converter is .*glue, the converter for .*params/aws.yaml"
    ):
        landing.parse(
            {**apicurio, "value.converter": "io.apicurio.registry.utils.converter.AvroConverter"},
            WORLD,
        )
    with pytest.raises(ConnectorError, match="(?s)value.converter.compression is not supported"):
        landing.parse({**SINK, "value.converter.compression": "ZLIB"}, WORLD)


def test_the_landing_reads_by_the_schemas_of_the_registry(monkeypatch):
    value = framed(ID, ROW, {"id": 7})
    requested = landing_help.register(monkeypatch, {ID: ROW})
    read = job.record_encoder(WORLD, landing.parse(SINK, WORLD)).read
    assert read(value)[1] == {"id": 7} == read(value)[1]
    assert requested == [ID]
    with pytest.raises(
        ValueError, match=f"schema globalId {OTHER} is not in the registry .registry.wire is glue"
    ):
        read(framed(OTHER, ROW, {"id": 7}))
    with pytest.raises(ValueError, match="not Avro in wire format glue"):
        read(b"{}")


def test_only_the_artifacts_that_are_meant_are_asked_for():
    with on_aws.stubbed_client("glue") as stub:
        versions(stub, VALUES, "t", version(1, ID))
        stub.add_client_error(
            "list_schema_versions", "EntityNotFoundException", "none"
        )  # it went meanwhile
        assert registry.versions_by_schema_id(WORLD, ["t-value", "gone-value"]) == {
            f"globalId {ID}": "1"
        }
    with on_aws.stubbed_client("glue") as stub:
        listed(stub, KEYS)
        listed(stub, VALUES, "check-1", "t")
        stub.add_client_error("list_schema_versions", "EntityNotFoundException", "none")
        versions(stub, VALUES, "t", version(1, ID))
        assert registry.artifacts(WORLD)["artifact"].tolist() == ["t-value"]
