"""The transforms that a connector's JSON names: refused by name, or as Kafka's own
(tests/stack/test_transforms.py runs those beside them)."""

import pytest
from workbench.base.errors import ConnectorError
from workbench.landing import transforms
from workbench.landing.settings import ConnectorConfig
from workbench.landing.transforms import Record

PACKAGE_PREFIX = "org.apache.kafka.connect.transforms."

ADDRESS = {
    "type": "struct",
    "optional": False,
    "name": "address",
    "fields": [
        {"type": "int32", "optional": False, "field": "address_id"},
        {"type": "string", "optional": True, "field": "district"},
        {
            "type": "int64",
            "optional": False,
            "name": "org.apache.kafka.connect.data.Timestamp",
            "version": 1,
            "field": "last_update",
        },
    ],
}
ROW = {"address_id": 100, "district": None, "last_update": 1487151930000}
PUBLISHED = {
    "transforms": "createKey,extractInt,InsertTopic,InsertSourceDetails",
    "transforms.createKey.type": f"{PACKAGE_PREFIX}ValueToKey",
    "transforms.createKey.fields": "address_id",
    "transforms.extractInt.type": f"{PACKAGE_PREFIX}ExtractField$Key",
    "transforms.extractInt.field": "address_id",
    "transforms.InsertTopic.type": f"{PACKAGE_PREFIX}InsertField$Value",
    "transforms.InsertTopic.topic.field": "message_topic",
    "transforms.InsertSourceDetails.type": f"{PACKAGE_PREFIX}InsertField$Value",
    "transforms.InsertSourceDetails.static.field": "message_source",
    "transforms.InsertSourceDetails.static.value": "pagila",
}


def parse(config):
    return transforms.parse(ConnectorConfig(config, "here"))


def chain(**settings):
    """A chain of one transform named t: its settings, of which `type` without the package."""
    named = {f"transforms.t.{key.replace('_', '.')}": value for key, value in settings.items()}
    named["transforms.t.type"] = PACKAGE_PREFIX + settings["type"]
    return parse({"transforms": "t", **named})


def names(schema):
    return [field["field"] for field in schema["fields"]]


def test_the_published_chain_in_its_order():
    done = transforms.apply(
        parse(PUBLISHED),
        Record("pagila.public.alt.address", None, None, ROW, ADDRESS),
    )
    assert (done.key, done.key_schema) == (100, {"type": "int32", "optional": False})
    assert done.value == {
        **ROW,
        "message_topic": "pagila.public.alt.address",
        "message_source": "pagila",
    }
    text = {"type": "string", "optional": True}
    assert done.value_schema == {
        **ADDRESS,
        "fields": [
            *ADDRESS["fields"],
            {**text, "field": "message_topic"},
            {**text, "field": "message_source"},
        ],
    }
    assert names(ADDRESS) == ["address_id", "district", "last_update"], (
        "the record that came in is left as it was"
    )


def test_the_published_sink_renames_and_inserts():
    done = transforms.apply(
        chain(type="ReplaceField$Value", renames="district:state_province"),
        Record("t", None, None, {**ROW, "district": "California"}, ADDRESS),
    )
    assert done.value == {
        "address_id": 100,
        "state_province": "California",
        "last_update": ROW["last_update"],
    }
    assert names(done.value_schema) == ["address_id", "state_province", "last_update"]


def test_a_tombstone_passes_what_changes_its_value_and_fails_what_needs_it():
    tombstone = Record("t", 1, {"type": "int32", "optional": False}, None, None)
    assert (
        transforms.apply(chain(type="InsertField$Value", topic_field="x"), tombstone) == tombstone
    )
    assert transforms.apply(chain(type="ReplaceField$Value", renames="x:y"), tombstone) == tombstone
    with pytest.raises(
        ValueError, match=r"transform t \(ValueToKey\): the value must be a struct.*, not NoneType"
    ):
        transforms.apply(chain(type="ValueToKey", fields="x"), tombstone)


def test_a_null_with_a_default():
    schema = {
        "type": "struct",
        "optional": True,
        "fields": [{"type": "int32", "optional": True, "default": 7, "field": "n"}],
    }
    done = transforms.apply(
        chain(type="InsertField$Value", topic_field="topic"), Record("t", None, None, {}, schema)
    )
    assert done.value == {"n": 7, "topic": "t"} and done.value_schema["optional"] is False
    assert done.value_schema["fields"][1] == {"type": "string", "optional": True, "field": "topic"}
    done = transforms.apply(
        chain(type="ExtractField$Key", field="n"), Record("t", {"n": None}, schema, None, None)
    )
    assert (done.key, done.key_schema) == (7, {"type": "int32", "optional": True, "default": 7})


@pytest.mark.parametrize(
    "settings, says",
    [
        ({"type": "ValueToKey", "fields": "nope"}, "no field 'nope'.*address_id"),
        (
            {"type": "InsertField$Value", "topic_field": "district"},
            "would occur twice: .*'district'",
        ),
        (
            {"type": "ReplaceField$Value", "renames": "district:address_id"},
            "would occur twice: .*'address_id'",
        ),
        ({"type": "ExtractField$Key", "field": "x"}, "key must be a struct.*, not int"),
    ],
)
def test_a_record_that_kafka_connect_would_fail_on(settings, says):
    with pytest.raises(ValueError, match=r"transform t \(.*" + says):
        transforms.apply(
            chain(**settings), Record("t", 5, {"type": "int32", "optional": False}, ROW, ADDRESS)
        )


def test_a_record_that_lacks_the_field_of_its_key():
    record = Record("t", ROW, ADDRESS, None, None)
    with pytest.raises(ValueError, match=r"transform t \(ExtractField\): .*no field 'nope'"):
        transforms.apply(chain(type="ExtractField$Key", field="nope"), record)


def test_a_record_without_schema_is_named():
    with pytest.raises(ValueError, match="the value must be a struct with a schema, not dict"):
        transforms.apply(parse(PUBLISHED), Record("t", None, None, ROW, None))


@pytest.mark.parametrize(
    "change, says",
    [
        (
            {"transforms.createKey.type": "org.apache.kafka.connect.transforms.HoistField$Key"},
            "HoistField.*did you mean",
        ),
        ({"transforms.createKey.type": None}, "transforms.createKey.type is missing"),
        (
            {"transforms.createKey.type": f"{PACKAGE_PREFIX}InsertField"},
            "type is '.*InsertField'.*InsertField.Value",
        ),
        ({"transforms.createKey.fields": " , "}, "transforms.createKey.fields is ' , '"),
        ({"transforms.extractInt.filed": "x"}, "extractInt.filed is not supported.*field"),
        (
            {"transforms.other.type": "x"},
            "transforms.other.type belongs to no transform.*createKey, extractInt",
        ),
        (
            {"transforms.InsertSourceDetails.static.value": None},
            "InsertSourceDetails.static.value is missing",
        ),
        (
            {
                "transforms.InsertSourceDetails.static.field": None,
                "transforms.InsertSourceDetails.static.value": None,
            },
            "InsertSourceDetails.*something to insert.*this mistake.*remove the transform",
        ),
        (
            {"transforms.InsertTopic.topic.field": "topic!"},
            "InsertTopic.topic.field is 'topic!'.*no !",
        ),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(change, says):
    config = {key: value for key, value in {**PUBLISHED, **change}.items() if value is not None}
    with pytest.raises(ConnectorError, match="(?s)" + says):
        parse(config)


@pytest.mark.parametrize("renames", ["a", "a:b:c", "a:", ":b"])
def test_renames_that_are_no_pairs(renames):
    with pytest.raises(ConnectorError, match="renames is"):
        chain(type="ReplaceField$Value", renames=renames)


def test_a_connector_without_transforms():
    assert parse({"topics": "x"}) == {}
    assert transforms.apply({}, Record("t", 1, None, 2, None)) == Record("t", 1, None, 2, None)
