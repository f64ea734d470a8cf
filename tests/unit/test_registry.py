"""How a message names its schema, what the registry's answers become, and schemas made exact; no
service is asked."""

import datetime as dt
import io
import json
import sys
import typing
from decimal import Decimal
from functools import partial
from types import SimpleNamespace
from uuid import UUID

import fastavro
import pytest
from pyspark.sql import types as T
from workbench import hudi
from workbench.base import http, models, params
from workbench.base.errors import LakeError, StackError
from workbench.base.registries import REGISTRY_V2
from workbench.hudi import evolution
from workbench.topic import apicurio, avro, registry, wire
from workbench.topic.apicurio import ApicurioRegistry
from worlds import with_settings

WORLD = params.load("local")


def with_registry(**fields):
    return with_settings(WORLD, registry=fields)


@pytest.mark.parametrize(
    ("head", "id"),
    [("00 0000000000000007", 7), ("00 ffffffffffffffff", 2**64 - 1)],
)
def test_each_wire_format(head, id):
    for body in (b"", b"\x00avro"):
        found = wire.parse_wire_format(WORLD, bytes.fromhex(head) + body)
        assert found == wire.WireMessage(id, body) and found.schema == f"globalId {id}"
    assert wire.parse_wire_format(WORLD, bytes.fromhex(head)[:-1]) is None  # shorter than an id
    assert (
        wire.parse_wire_format(WORLD, b"\x01" + bytes.fromhex(head)[1:]) is None
    )  # another magic byte
    assert wire.parse_wire_format(WORLD, b"") is None


def test_every_wire_that_a_world_may_name_is_known():
    named = typing.get_type_hints(models.Registry)["wire"]
    assert set(typing.get_args(named)) == set(wire.WIRE_FORMATS)


def test_what_the_registry_answers(answering):
    starting = [(503, "starting"), (200, "1")]
    answers = {"/a": (200, "{}"), "/b": (404, "no"), "/c": (500, "oops"), "/d": starting}
    served = answering({REGISTRY_V2 + path: answer for path, answer in answers.items()})
    request = ApicurioRegistry(with_registry(url=served.url + "/"))._request
    assert request("/a") == {} and request("/b") is None
    with pytest.raises(
        StackError, match="(?s)the schema registry responds with status 500: oops.*/c"
    ):
        request("/c")
    assert request("/d") == 1 and served.asked[-2:] == [REGISTRY_V2 + "/d"] * 2


@pytest.mark.parametrize(
    "status, text, says",
    [
        (404, "no", "is no list of artifacts.*registry.url"),
        (409, '{"message": "busy"}', "rejects GET: busy"),
        (422, '{"message": "odd"}', "rejects GET: odd"),
        (200, "{}", "the response of the schema registry is no list of artifacts"),
    ],
)
@pytest.mark.parametrize("ask", [registry.artifacts, registry.names])
def test_an_answer_that_is_no_list_of_artifacts_is_not_an_empty_one(
    answering, ask, status, text, says
):
    served = answering(
        {f"/apis/registry/v2/search/artifacts?limit={apicurio.PAGE_SIZE}&offset=0": (status, text)}
    )
    with pytest.raises(StackError, match=f"(?s){says}"):
        ask(with_registry(url=served.url))


def test_a_deletion_that_the_registry_refuses_raises(answering):
    served = answering(
        {"/apis/registry/v2/groups/default/artifacts/t-value": (409, '{"message": "referenced"}')}
    )
    with pytest.raises(StackError, match="rejects DELETE: referenced"):
        registry.delete(with_registry(url=served.url), "t-value")


def test_a_service_that_stays_busy_is_reported_with_its_response(answering, monkeypatch):
    monkeypatch.setattr(http, "wait_until", partial(http.wait_until, timeout=0))
    served = answering({"/a": (503, "the disk is full")})
    with pytest.raises(StackError, match=r"the registry responds with status 503: the disk") as e:
        http.call("the registry", "GET", f"{served.url}/a", hint="free the disk")
    assert f"GET {served.url}/a" in e.value.message and e.value.hint == "free the disk"


def test_a_rejection_without_words_is_one(monkeypatch):
    text = '{"message": ""}'
    silent = SimpleNamespace(status_code=409, json=lambda: json.loads(text), text=text, url="")
    monkeypatch.setattr(http, "call", lambda *_, **__: silent)
    assert ApicurioRegistry(WORLD).add("t-value", {}) == (0, text)
    with pytest.raises(StackError, match="rejects DELETE"):
        registry.delete(WORLD, "t-value")


def test_a_url_that_is_not_quoted_is_retried_like_any_other(answering):
    served = answering({"/a%20b": [(503, "starting"), (200, "1")]})
    assert http.call("the registry", "GET", f"{served.url}/a b").content == b"1"


def test_a_proxy_never_leads_to_loopback(answering, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    url = answering({"/a": (200, "1")}).url + "/a"
    assert http.call("the registry", "GET", url).content == b"1"
    for outside in (
        "http://registry.invalid/a",
        "registry:80/a",
    ):  # by way of the proxy, where nobody listens; no URL
        with pytest.raises(StackError, match=f"the registry does not answer(?s:.)*GET {outside}"):
            http.call("the registry", "GET", outside)


@pytest.mark.parametrize(
    "ask",
    [
        registry.artifacts,
        lambda w: registry.schema(w, 1),
        lambda w: registry.latest(w, "t-value"),
        lambda w: registry.find(w, 1),
        lambda w: registry.inspect_message(w, bytes(8) + b"\x01"),
    ],
)
def test_a_registry_that_is_stopped_is_named(ask):
    with pytest.raises(
        StackError,
        match="(?s)schema registry does not answer.*127.0.0.1:1/.*hint:.*nothing is lost",
    ):
        ask(with_registry(url="http://127.0.0.1:1"))


class Answers:
    """Stands for the registry: {path: text}, everything else is a 404; notes what was asked."""

    def __init__(self, monkeypatch, **texts):
        self.texts, self.asked = texts, []
        monkeypatch.setattr(ApicurioRegistry, "_call", self)

    def __call__(self, path, method, body):
        self.asked.append(path)
        text = self.texts.get(path)
        return SimpleNamespace(status_code=200 if text else 404, content=text), ""


def test_an_id_that_does_not_exist_is_named_with_what_to_do(monkeypatch):
    answers = Answers(monkeypatch)
    with pytest.raises(
        LakeError,
        match="(?s)globalId 4711 is not in the registry.*registry.artifacts.*registry.wire",
    ):
        registry.schema(WORLD, 4711)
    assert answers.asked == ["/ids/globalIds/4711"]
    assert (
        registry.find(WORLD, 2**63) is None and len(answers.asked) == 1
    )  # no long: it would be a bad request


def test_a_schema_by_its_id(monkeypatch):
    text = json.dumps({"type": "string"})
    Answers(monkeypatch, **{"/ids/globalIds/1": text, "/ids/globalIds/3": "syntax = proto3"})
    assert registry.schema(WORLD, 1) == {"type": "string"}
    with pytest.raises(LakeError, match="(?s)not an Avro schema.*globalIds/3"):
        registry.schema(WORLD, 3)


def test_an_artifact_that_is_not_there_names_the_nearest(monkeypatch):
    search = f"/search/artifacts?limit={apicurio.PAGE_SIZE}&offset=0"
    page = {"count": 1, "artifacts": [{"id": "moma.public.artists-value"}]}
    Answers(monkeypatch, **{search: json.dumps(page)})
    with pytest.raises(LakeError, match="did you mean 'moma.public.artists-value'"):
        registry.latest(WORLD, "moma.public.artist-value")
    Answers(monkeypatch, **{search: json.dumps({"count": 0, "artifacts": []})})
    with pytest.raises(LakeError, match="the registry is empty"):
        registry.latest(WORLD, "moma.public.artists-value")


def test_artifacts_come_page_by_page(monkeypatch):
    monkeypatch.setattr(apicurio, "PAGE_SIZE", 1)
    at = "?limit=1&offset="
    version = {
        "count": 1,
        "versions": [{"version": "1", "type": "AVRO", "globalId": 5, "contentId": 4}],
    }
    answers = Answers(
        monkeypatch,
        **{
            f"/search/artifacts{at}0": json.dumps({"count": 2, "artifacts": [{"id": "b c"}]}),
            f"/search/artifacts{at}1": json.dumps(
                {"count": 2, "artifacts": [{"id": "a", "groupId": "g"}]}
            ),
            f"/groups/default/artifacts/b%20c/versions{at}0": json.dumps(version),
            f"/groups/g/artifacts/a/versions{at}0": json.dumps(version),
        },
    )
    frame = registry.artifacts(WORLD)
    assert frame.values.tolist() == [
        ["default", "b c", "AVRO", "1", 5, 4],
        ["g", "a", "AVRO", "1", 5, 4],
    ]
    assert len(answers.asked) == 4
    assert list(frame.columns) == [
        "group",
        "artifact",
        "type",
        "version",
        "global_id",
        "content_id",
    ]


def test_only_the_artifacts_that_are_meant_are_asked_for(monkeypatch):
    path = f"/groups/default/artifacts/{{}}/versions?limit={apicurio.PAGE_SIZE}&offset=0"
    found = {
        "count": 1,
        "versions": [{"version": "1", "type": "AVRO", "globalId": 5, "contentId": 4}],
    }
    answers = Answers(monkeypatch, **{path.format("b%20c"): json.dumps(found)})
    assert registry.versions_by_schema_id(WORLD, ["b c", "gone"]) == {"globalId 5": "1"}
    assert answers.asked == [path.format("b%20c"), path.format("gone")]


def test_bytes_that_are_no_message_are_shown():
    with pytest.raises(
        LakeError, match="(?s)wire format apicurio_legacy8: 00, 8 bytes of schema id.*7b 22 61 22"
    ):
        registry.inspect_message(WORLD, '{"a"')


SEEN = {
    "type": "record",
    "name": "Value",
    "namespace": "m.p.t",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "day", "type": {"type": "int", "connect.name": "io.debezium.time.Date"}},
        {
            "name": "times",
            "type": {
                "type": "array",
                "items": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"},
            },
        },
        {"name": "opens", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTime"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2},
        },
        {"name": "who", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "inner",
            "type": [
                "null",
                {"type": "record", "name": "Inner", "fields": [{"name": "a", "type": "string"}]},
            ],
        },
    ],
}
WHO = "12345678-1234-1234-1234-123456789012"


def test_a_message_is_taken_apart_without_spark(monkeypatch):
    for name in ("workbench.spark", "workbench.hudi.decode_avro"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it is an error
    monkeypatch.setattr(registry, "find", lambda world, id: SEEN)
    now = dt.datetime(2001, 2, 3, 4, 5, 6, 789012)
    out = io.BytesIO()
    fastavro.schemaless_writer(
        out,
        fastavro.parse_schema(avro.for_spark(SEEN)),
        {
            "id": 1,
            "day": dt.date(1959, 4, 15),
            "times": [now.replace(tzinfo=dt.timezone.utc)],
            "opens": 36_000_000_000,
            "price": Decimal("-0.01"),
            "who": WHO,
            "inner": {"a": "b"},
        },
    )
    value = bytes(8) + b"\x07" + out.getvalue()
    seen = registry.inspect_message(WORLD, value)
    assert seen == {
        "wire": "apicurio_legacy8",
        "schema_id": 7,
        "schema_name": "m.p.t.Value",
        "hex": value.hex(" "),
        "record": {
            "id": 1,
            "day": dt.date(1959, 4, 15),
            "times": [now.replace(tzinfo=dt.timezone.utc)],
            "opens": 36_000_000_000,
            "price": Decimal("-0.01"),
            "who": UUID(WHO),
            "inner": {"a": "b"},
        },
    }
    assert "2001-02-03 04:05:06.789012" in json.dumps(seen["record"], default=str)
    for bad in (value[:-1], value + b"\0"):
        with pytest.raises(
            LakeError, match="(?s)not Avro of schema globalId 7: .*02 93 3d .*m.p.t.Value"
        ):
            registry.inspect_message(WORLD, bad)


# --- exact schemas
# ---------------------------------------------------------------------------------------------------


def named(kind, name, **more):
    return {"type": kind, "connect.name": name, "connect.version": 1, **more}


def value(*fields):
    return {
        "type": "record",
        "name": "Value",
        "namespace": "m.p.t",
        "fields": [{"name": f"f{n}", "type": kind} for n, kind in enumerate(fields)],
    }


def spark_types(*fields):
    return [f.dataType.simpleString() for f in avro.to_spark(avro.for_spark(value(*fields)))]


def test_a_name_is_annotated_only_where_the_type_is_the_one_it_says():
    assert spark_types(named("string", "io.debezium.time.Date")) == ["string"]
    assert avro.for_spark(None) is None and avro.for_spark("int") == "int"


@pytest.mark.parametrize(
    ("have", "want", "fits"),
    [
        ((10, 2), (12, 2), True),
        ((10, 2), (12, 4), True),
        ((10, 2), (11, 4), False),
        ((10, 2), (38, 1), False),
    ],
)
def test_a_decimal_with_more_digits_holds_it(have, want, fits):
    old, new = (T.StructType([T.StructField("a", T.DecimalType(*kind))]) for kind in (have, want))
    if fits:
        assert evolution.merge_schemas("t", old, new) == new
    else:
        with pytest.raises(LakeError, match="its column cannot follow"):
            evolution.merge_schemas("t", old, new)


def test_the_format_of_a_topic_and_the_deletes_of_a_table():
    assert (
        hudi.Topic("t").format == "json" and hudi.Topic("t", format="avro").id == hudi.Topic("t").id
    )
    with pytest.raises(LakeError, match="did you mean 'avro'"):
        hudi.Topic("t", format="arvo")
    with pytest.raises(LakeError, match="(?s)deletes of table t is 'sotf'.*did you mean 'soft'"):
        hudi.Table("t", "file:/t", ("id",), "__lsn", deletes="sotf")
