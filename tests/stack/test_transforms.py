"""The transforms beside Kafka's own, from the jar that the embedded Connect runs: the same
messages, to the byte."""

import json

import kafka_connect_java
import pytest
from py4j.protocol import Py4JJavaError
from workbench.base.errors import ConnectorError
from workbench.landing import transforms
from workbench.landing.settings import ConnectorConfig
from workbench.landing.transforms import Record

PACKAGE_PREFIX = "org.apache.kafka.connect.transforms."

INT, TEXT = {"type": "int32", "optional": False}, {"type": "string", "optional": True}
VALUE = {
    "type": "struct",
    "fields": [
        {**INT, "field": "id"},
        {**TEXT, "field": "text"},
        {**TEXT, "default": "d", "field": "preset"},
        {
            "type": "int64",
            "optional": True,
            "name": "org.apache.kafka.connect.data.Timestamp",
            "version": 1,
            "field": "at",
        },
        {
            "type": "bytes",
            "optional": True,
            "name": "org.apache.kafka.connect.data.Decimal",
            "version": 1,
            "parameters": {"scale": "2"},
            "field": "price",
        },
    ],
    "optional": True,
    "name": "rows",
    "version": 3,
    "doc": "of it",
}
KEY = {"type": "struct", "fields": [{**INT, "field": "id"}], "optional": False}
ROW = {"id": 5, "text": "é", "preset": None, "at": 1487151930123, "price": "AfM="}
RECORDS = {
    "rows": (None, (VALUE, ROW)),
    "keyed": ((KEY, {"id": 5}), (VALUE, {**ROW, "text": None})),
    "plain key": ((INT, 5), (VALUE, ROW)),
    "tombstone": ((KEY, {"id": 5}), None),
    "a number": (None, (INT, 7)),
}
CHAINS = {
    "ValueToKey": [
        {"fields": "id"},
        {"fields": "at,preset"},
        {"fields": "nope"},
        {"fields": "id,id"},
    ],
    "ExtractField$Key": [{"field": "id"}, {"field": "nope"}],
    "InsertField$Value": [
        {"topic.field": "topic"},
        {"topic.field": "topic", "static.field": "s", "static.value": ""},
        {"static.field": "text", "static.value": "x"},
        {},
        {"static.field": "x"},
    ],
    "ReplaceField$Value": [
        {"renames": "text:id2,id:text"},
        {"renames": "id:text"},
        {"renames": "id"},
    ],
}


@pytest.fixture(scope="module")
def jvm():
    with kafka_connect_java.kafka_connect_jvm() as found:
        yield found


def of_kafka(jvm, type_, settings, key, value):
    """What Kafka's own makes of a record, as its JsonConverter writes it; "failed" where it
    raises."""
    converters, parts = (
        [kafka_connect_java.json_converter(jvm, is_key) for is_key in (True, False)],
        [],
    )
    for converter, part in zip(converters, (key, value)):
        read = converter.toConnectData(
            "topic.x", part and json.dumps({"schema": part[0], "payload": part[1]}).encode()
        )
        parts += [read.schema(), read.value()] if part else [None, None]
    record = jvm.org.apache.kafka.connect.sink.SinkRecord("topic.x", 0, *parts, 0)
    config = jvm.java.util.HashMap()
    for name, text in settings.items():
        config[name] = text
    outer, _, inner = type_.partition("$")
    kind = getattr(jvm.org.apache.kafka.connect.transforms, outer)
    transform = (getattr(kind, inner) if inner else kind)()
    try:
        transform.configure(config)
        done = transform.apply(record)
        texts = [
            converters[0].fromConnectData("topic.x", done.keySchema(), done.key()),
            converters[1].fromConnectData("topic.x", done.valueSchema(), done.value()),
        ]
    except Py4JJavaError as e:
        assert "ClassCast" not in str(e), e
        return "failed"
    return [text and json.loads(bytes(text)) for text in texts]


def of_ours(type_, settings, key, value):
    named = {f"transforms.t.{name}": text for name, text in settings.items()}
    (key_schema, key), (value_schema, value) = key or (None, None), value or (None, None)
    try:
        config = {"transforms": "t", "transforms.t.type": PACKAGE_PREFIX + type_, **named}
        chain = transforms.parse(ConnectorConfig(config, "here"))
        done = transforms.apply(chain, Record("topic.x", key, key_schema, value, value_schema))
    except (ConnectorError, ValueError):
        return "failed"
    return [
        {"schema": schema, "payload": part} if schema is not None or part is not None else None
        for schema, part in ((done.key_schema, done.key), (done.value_schema, done.value))
    ]


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize(
    "type_, settings", [(t, s) for t, all_ in CHAINS.items() for s in all_], ids=str
)
def test_as_kafkas_own(jvm, type_, settings, record):
    ours, theirs = (
        of_ours(type_, settings, *RECORDS[record]),
        of_kafka(jvm, type_, settings, *RECORDS[record]),
    )
    if (
        ours != "failed"
        and type_.endswith("Key")
        and isinstance((ours[1] or {}).get("payload"), dict)
    ):
        ours[1]["payload"] = {
            **ours[1]["payload"],
            "preset": "d",
        }  # the converter's doing where no transform was
    assert ours == theirs
