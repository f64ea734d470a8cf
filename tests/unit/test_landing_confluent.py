"""Confluent's sink: what it writes of messages, and where: the published sinks, partitioners,
rotation, null values."""

import base64
import datetime as dt
import json
import re
from decimal import Decimal
from types import SimpleNamespace

import avro_bytes
import landing_help
import pyarrow.parquet
import pytest
from confluent_sink import (
    ADDRESS_SCHEMA,
    CONFLUENT,
    FIELD_PARTITIONER,
    FOUR_TRANSFORMS,
    PARQUET,
    SINK,
    address_row,
    json_message,
    struct_schema,
)
from workbench import landing
from workbench.base import params
from workbench.base.errors import ConnectorError, LakeError
from workbench.landing import job
from workbench.topic import connect_schema
from workbench.topic.connect_schema import DATE


@pytest.fixture
def land(tmp_path, monkeypatch):
    """Land messages by a sink; {path: rows} of what is there then."""
    world = params.load("local")

    def land(config, *values, folder="out", schemas=()):
        landing_help.register(monkeypatch, dict(enumerate(schemas)))
        root = tmp_path / folder
        encoder = job.record_encoder(world, landing.parse(config))
        counts, dead = landing_help.write_files(encoder, root, landing_help.messages(*values))
        files = {str(p.relative_to(root)): p for p in sorted(root.rglob("*")) if p.is_file()}
        return SimpleNamespace(
            files=files,
            dead=[letter["reason"] for letter in dead.values()],
            counts=counts,
            rows={
                name: pyarrow.parquet.ParquetFile(p).read().to_pylist()
                if name.endswith("parquet")
                else [json.loads(x) for x in p.read_text().splitlines()]
                for name, p in files.items()
            },
        )

    return land


# --- the published sinks
# ---------------------------------------------------------------------------------------------


def test_json_by_kafka_partition(land):
    done = land(
        {**SINK, "topics.dir": "topics"}, *[json_message(address_row(n)) for n in range(1, 604)]
    )
    assert {name: len(rows) for name, rows in done.rows.items()} == {
        f"t/partition=0/t+0+{first:010d}.json": 100 if first < 600 else 3
        for first in range(0, 601, 100)
    }
    assert done.rows["t/partition=0/t+0+0000000100.json"][0] == address_row(101)


def test_parquet_by_country_with_four_transforms(land):
    done = land(
        {**PARQUET, **FIELD_PARTITIONER, **FOUR_TRANSFORMS, "flush.size": "4"},
        *[json_message(address_row(n)) for n in range(6)],
    )
    assert {name: [r["address_id"] for r in rows] for name, rows in done.rows.items()} == {
        "t/country=Country 0/t+0+0000000000.gz.parquet": [0, 3],
        "t/country=Country 1/t+0+0000000001.gz.parquet": [1],
        "t/country=Country 1/t+0+0000000004.gz.parquet": [4],
        "t/country=Country 2/t+0+0000000002.gz.parquet": [2],
        "t/country=Country 2/t+0+0000000005.gz.parquet": [5],
    }, "four records of all countries end all their objects"
    row = done.rows["t/country=Country 1/t+0+0000000001.gz.parquet"][0]
    assert list(row.items()) == [
        ("address_id", 1),
        ("address", "1 Way"),
        ("state_province", "Tete"),
        ("country", "Country 1"),
        ("last_update", dt.datetime(2017, 2, 15, 9, 45, 30, tzinfo=dt.timezone.utc)),
        ("message_source", "pagila"),
        ("message_source_engine", "postgresql"),
        ("environment", "development"),
    ]
    found = pyarrow.parquet.ParquetFile(next(iter(done.files.values())))
    assert {found.metadata.row_group(0).column(n).compression for n in range(8)} == {"GZIP"}


VALUE = {
    "type": "record",
    "name": "Value",
    "namespace": "pagila.public.film",
    "fields": [
        {"name": "film_id", "type": "int"},
        {
            "name": "rental_duration",
            "type": {"type": "int", "connect.default": 3, "connect.type": "int16"},
            "default": 3,
        },
        {
            "name": "rental_rate",
            "type": [
                "null",
                {
                    "type": "bytes",
                    "scale": 2,
                    "precision": 4,
                    "connect.version": 1,
                    "logicalType": "decimal",
                    "connect.parameters": {"scale": "2", "connect.decimal.precision": "4"},
                    "connect.name": connect_schema.DECIMAL,
                },
            ],
            "default": None,
        },
        {
            "name": "special_features",
            "type": ["null", {"type": "array", "items": ["null", "string"]}],
            "default": None,
        },
        {
            "name": "seen",
            "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"},
        },
        {
            "name": "day",
            "type": {"type": "int", "connect.name": connect_schema.DATE, "logicalType": "date"},
        },
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "pagila.public.film",
    "fields": [
        {"name": "before", "type": ["null", VALUE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
    ],
}


def film(n):
    return (
        avro_bytes.encode_long(n)
        + avro_bytes.encode_long(6)
        + avro_bytes.encode_long(1)
        + avro_bytes.encode_long(1)
        + b"\x63"
        + avro_bytes.encode_long(1)
        + avro_bytes.encode_long(2)
        + avro_bytes.encode_long(1)
        + avro_bytes.encode_string("Trailers")
        + avro_bytes.encode_long(0)
        + avro_bytes.encode_long(0)
        + avro_bytes.encode_long(1629340334432123)
        + avro_bytes.encode_long(17000)
    )


AVRO = {
    **PARQUET,
    "topics": "t",
    "flush.size": "300",
    "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
    "value.converter.apicurio.registry.url": "http://localhost:8080/apis/registry/v2",
    "value.converter.apicurio.registry.auto-register": "true",
    "value.converter.apicurio.registry.find-latest": "true",
}
del AVRO["partitioner.class"]


def test_parquet_of_debezium_envelopes_in_avro(land):
    values = [
        avro_bytes.wire_message(
            0, b"\0" + avro_bytes.encode_long(1) + film(n) + avro_bytes.encode_string("r")
        )
        for n in range(5)
    ]
    done = land({**AVRO, "flush.size": "3"}, *values, schemas=[ENVELOPE])
    assert {name: [r["after"]["film_id"] for r in rows] for name, rows in done.rows.items()} == {
        "t/partition=0/t+0+0000000000.gz.parquet": [0, 1, 2],
        "t/partition=0/t+0+0000000003.gz.parquet": [3, 4],
    }
    row = done.rows["t/partition=0/t+0+0000000003.gz.parquet"][1]
    assert row == {
        "before": None,
        "op": "r",
        "after": {
            "film_id": 4,
            "rental_duration": 6,
            "rental_rate": Decimal("0.99"),
            "special_features": ["Trailers", None],
            "seen": 1629340334432123,
            "day": dt.date(2016, 7, 18),
        },
    }
    before = {name: p.read_bytes() for name, p in done.files.items()}
    again = land({**AVRO, "flush.size": "3"}, *values, schemas=[ENVELOPE])
    assert {name: p.read_bytes() for name, p in again.files.items()} == before, (
        "done again it is the same, to the byte"
    )


@pytest.mark.parametrize(
    "codec, ending",
    [("none", ""), ("snappy", ".snappy"), ("gzip", ".gz"), ("zstd", ".zstd"), (None, ".snappy")],
)
def test_names_say_the_codec(land, codec, ending):
    config = {k: v for k, v in {**PARQUET, "parquet.codec": codec}.items() if v}
    ((name, path),) = land(config, json_message(address_row(1))).files.items()
    assert name == f"t/partition=0/t+0+0000000000{ending}.parquet"
    found = pyarrow.parquet.ParquetFile(path).metadata.row_group(0).column(0).compression
    assert found == {"none": "UNCOMPRESSED", None: "SNAPPY"}.get(codec, str(codec).upper())


# --- schemas
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config, ending", [(SINK, "json"), (PARQUET, "gz.parquet")])
def test_another_schema_begins_another_object(land, config, ending):
    wider = {
        **ADDRESS_SCHEMA,
        "fields": [
            *ADDRESS_SCHEMA["fields"],
            {"type": "string", "optional": True, "field": "email"},
        ],
    }
    values = [
        json_message(address_row(0)),
        json_message(address_row(1)),
        json_message(address_row(2, email="x"), wider),
        json_message(address_row(3)),
    ]
    done = land(config, *values)
    assert {name: [r["address_id"] for r in rows] for name, rows in done.rows.items()} == {
        f"t/partition=0/t+0+{first:010d}.{ending}": ids
        for first, ids in ((0, [0, 1]), (2, [2]), (3, [3]))
    }
    assert "email" in done.rows[f"t/partition=0/t+0+0000000002.{ending}"][0]


def decimal_of(scale, **more):
    return {
        "type": "bytes",
        "optional": True,
        "name": connect_schema.DECIMAL,
        "version": 1,
        "parameters": {"scale": str(scale), **more},
    }


def number(n):
    return base64.b64encode(n.to_bytes(20, "big", signed=True)).decode()


@pytest.mark.parametrize(
    "kind, value, says",
    [
        ("int32", 2**31, "the record.x is '2147483648', which is not a valid int32"),
        ("int16", -(2**15) - 1, "not a valid int16"),
        ("int32", True, "is 'True', which is not a valid int32"),
        ("int64", 1.5, "not a valid int64"),
        ("string", 1, "not a valid string"),
        ("boolean", 0, "not a valid boolean"),
        ("double", "NaN", "is 'NaN', which is not a valid double"),
        ("bytes", "a", "x is 'a', which is not a valid bytes"),
        ("string", "\ud800", "surrogates not allowed"),
        (decimal_of(2), number(10**38), "x has more than 38 digits"),
        (
            decimal_of(2, **{connect_schema.PRECISION_PARAMETER: "4"}),
            number(10_000),
            "x has more than 4 digits",
        ),
        (decimal_of(39), number(1), "39 digits after the point"),
        ("nonsense", 1, "has type 'nonsense', which the landing cannot write to Parquet"),
        (
            {"type": "struct", "fields": [], "optional": True},
            {},
            "has type 'struct'.*a struct needs a field",
        ),
        (
            {
                "type": "map",
                "keys": {"type": "string"},
                "values": {"type": "int32"},
                "optional": True,
            },
            {},
            "has type 'map', which the landing cannot",
        ),
        ({"type": "int32", "optional": False}, None, "x is 'None', which is not a valid int32"),
        (
            {"type": "array", "items": {"type": "int32", "optional": False}, "optional": True},
            [1, None],
            r"x\[\] is 'None'",
        ),
    ],
)
def test_what_parquet_cannot_hold_is_a_dead_letter(land, kind, value, says):
    schema = struct_schema(x=kind)
    done = land(
        PARQUET,
        json_message(address_row(0)),
        json_message({"x": value}, schema),
        json_message(address_row(2)),
    )
    assert [len(r) for r in done.rows.values()] == [2] and len(done.dead) == 1
    assert re.search(says, done.dead[0]), done.dead


@pytest.mark.parametrize(
    "message",
    [
        {"schema": 5, "payload": {"a": 1}},
        {"schema": [], "payload": {"a": 1}},
        {"schema": {"type": "struct"}, "payload": {}},
        {"schema": struct_schema(x={"type": "array"}), "payload": {"x": []}},
        {"schema": struct_schema(x={"type": []}), "payload": {"x": 1}},
        {"schema": {"type": "struct", "fields": [{"type": "int32"}]}, "payload": {"x": 1}},
        {
            "schema": {"type": "struct", "fields": [{"type": "int32", "field": 5}]},
            "payload": {"x": 1},
        },
        {
            "schema": struct_schema(x={"type": "bytes", "name": connect_schema.DECIMAL}),
            "payload": {"x": "AA=="},
        },
        {"schema": struct_schema(x="double"), "payload": {"x": 10**400}},
        {
            "schema": struct_schema(x={"type": "array", "items": {"type": "string"}}),
            "payload": {"x": ["\ud800"]},
        },
        {"schema": struct_schema(**{"\ud800": "string"}), "payload": {}},
    ],
)
@pytest.mark.parametrize(
    "config", [PARQUET, {**PARQUET, **FOUR_TRANSFORMS, "transforms": "insertStaticField1"}]
)
def test_a_schema_that_no_program_wrote_stops_nothing(land, config, message):
    config = {
        k: v
        for k, v in config.items()
        if not k.startswith("transforms.") or "insertStaticField1" in k
    }
    done = land(
        config,
        json_message(address_row(0)),
        json.dumps(message).encode(),
        json_message(address_row(2)),
    )
    assert [len(r) for r in done.rows.values()] == [2] and len(done.dead) == 1, done.dead


def test_of_two_fields_with_one_name_a_file_has_one(land):
    """A file with both would be unreadable, or end every run of the landing."""
    schema = struct_schema(x="int32")
    schema["fields"] = schema["fields"] * 2
    inner = struct_schema(y={**schema, "optional": True})
    done = land(PARQUET, json_message({"x": 1}, schema), json_message({"y": {"x": 2}}, inner))
    assert list(done.rows.values()) == [[{"x": 1}], [{"y": {"x": 2}}]] and not done.dead


def test_a_name_of_connect_on_another_type_says_nothing(land):
    schema = struct_schema(
        x={"type": "string", "name": connect_schema.TIMESTAMP}, y={"type": "int64", "name": DATE}
    )
    (rows,) = land(PARQUET, json_message({"x": "noon", "y": 2**40}, schema)).rows.values()
    assert rows == [{"x": "noon", "y": 2**40}]


@pytest.mark.parametrize(
    "kind, value, there",
    [
        ("int8", 127, 127),
        ("float", 1, 1.0),
        ("double", 1e300, 1e300),
        ("bytes", "AAE=", b"\0\1"),
        ("int32", None, None),
        ({"type": "int32", "optional": False, "default": 7}, None, 7),
        (decimal_of(2), number(-123), "-1.23"),
        (decimal_of(38), number(10**38 - 1), "0." + "9" * 38),
        (
            {"type": "int32", "optional": True, "name": connect_schema.DATE},
            -1,
            dt.date(1969, 12, 31),
        ),
        (
            {"type": "int32", "optional": True, "name": connect_schema.LOGICAL_PREFIX + "Time"},
            1000,
            1000,
        ),
        (
            {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp"},
            10**15,
            10**15,
        ),
        (
            {"type": "array", "items": struct_schema(y="int32"), "optional": True},
            [{"y": 1}, {}],
            [{"y": 1}, {"y": None}],
        ),
    ],
)
def test_what_parquet_holds(land, kind, value, there):
    (rows,) = land(PARQUET, json_message({"x": value}, struct_schema(x=kind))).rows.values()
    assert (str(rows[0]["x"]) if isinstance(there, str) else rows[0]["x"]) == there


@pytest.mark.parametrize(
    "avsc, says",
    [
        (
            {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["int", "string"]}]},
            "record.x is a union of 2",
        ),
        (
            {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "R"]}]},
            "record.x is of Avro's type R",
        ),
        ("string", "requires a struct"),
    ],
)
def test_an_avro_type_that_connect_or_parquet_has_not_is_a_dead_letter(land, avsc, says):
    done = land(AVRO, avro_bytes.wire_message(0, avro_bytes.encode_string("x")), schemas=[avsc])
    assert not done.files and says in done.dead[0]


def test_json_without_its_envelope_is_a_dead_letter_and_lines_need_none_where_it_is_switched_off(
    land,
):
    bare = [json.dumps(address_row(n)).encode() for n in range(2)]
    done = land(PARQUET, *bare)
    assert not done.files and done.dead[0].startswith(
        'not {"schema": …, "payload": …}, which value.converter.schemas'
    )
    done = land(PARQUET, json_message(address_row(1), None), folder="none")
    assert not done.files and "requires a struct with a schema" in done.dead[-1]
    off = {**SINK, "value.converter.schemas.enable": "false"}
    assert list(land(off, *bare, folder="off").rows.values()) == [[address_row(0), address_row(1)]]
    odd = [json_message(address_row(1)), b'{"schema": 1, "payload": 2}']
    assert [
        r["payload"]
        for (r,) in [
            land(off, o, folder=str(n)).rows["t/partition=0/t+0+0000000000.json"]
            for n, o in enumerate(odd)
        ]
    ] == [address_row(1), 2]


def test_lines_of_avro(land):
    config = {k: v for k, v in AVRO.items() if k != "parquet.codec"} | {
        "format.class": SINK["format.class"]
    }
    message = avro_bytes.wire_message(0, film(4))
    (rows,) = land(config, message, schemas=[VALUE]).rows.values()
    assert rows == [
        {
            "film_id": 4,
            "rental_duration": 6,
            "rental_rate": "Yw==",
            "special_features": ["Trailers", None],
            "seen": 1629340334432123,
            "day": 17000,
        }
    ], "as JsonConverter: numbers, and bytes as base64"


# --- folders, rotation, null values
# ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "country, folder", [("a/b", "country=a%2Fb"), (None, "country=__HIVE_DEFAULT_PARTITION__")]
)
def test_a_value_of_the_partition_field(land, country, folder):
    assert list(
        land({**SINK, **FIELD_PARTITIONER}, json_message(address_row(0, country=country))).files
    ) == [f"t/{folder}/t+0+0000000000.json"]


def test_several_fields_and_one_that_is_not_there(land):
    config = {
        **SINK,
        **FIELD_PARTITIONER,
        "partition.field.name": "op, country",
        "value.converter.schemas.enable": "false",
    }
    done = land(config, b'{"op": "u", "country": "CH"}', b'{"op": "d"}')
    assert list(done.files) == ["t/op=u/country=CH/t+0+0000000000.json"]
    assert done.dead == ["there is no field country"]


def test_a_message_without_a_value(land):
    nothing = b'{"schema":null,"payload":null}'
    done = land(SINK, json_message(address_row(0)), None, nothing, json_message(address_row(3)))
    assert done.counts["tombstones"] == 2 and done.counts["records"] == 2
    fail = {k: v for k, v in SINK.items() if k != "behavior.on.null.values"}
    for bad in (None, nothing):
        with pytest.raises(
            LakeError, match="offset 1 of t, partition 0, has no value.*null.values is fail"
        ):
            land(fail, json_message(address_row(0)), bad, folder="fail")


@pytest.mark.parametrize(
    "config, change, says",
    [
        (
            PARQUET,
            {"value.converter.schemas.enable": "false"},
            "ParquetFormat'.*JsonFormat.*schemas.enable=true",
        ),
        (
            SINK,
            {"format.class": f"{CONFLUENT}.s3.format.avro.AvroFormat"},
            "AvroFormat'.*JsonFormat.*apicurio",
        ),
        (
            {**SINK, **FIELD_PARTITIONER},
            {"partition.field.name": " ,"},
            "partition.field.name is ' ,'.*names of fields",
        ),
        (
            SINK,
            {"value.converter.schemas.enable": True},
            "schemas.enable is True.*valid: false, true",
        ),
        (SINK, {"partition.field.name": "x"}, "partition.field.name is 'x'.*FieldPartitioner"),
        (
            SINK,
            {**FOUR_TRANSFORMS, "value.converter.schemas.enable": "false"},
            "transforms is .*without schemas",
        ),
        (SINK, FOUR_TRANSFORMS | {"transforms.RenameField.type": "x"}, "RenameField.type is 'x'"),
    ],
)
def test_what_does_not_go_together_is_refused(config, change, says):
    with pytest.raises(ConnectorError, match="(?s)" + says):
        landing.parse({**config, **change})
