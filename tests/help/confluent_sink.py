"""Configurations of Confluent's S3 sink as published, and messages of an address table."""

import json

from workbench.topic import connect_schema

CONFLUENT = "io.confluent.connect"
SINK = {
    "connector.class": f"{CONFLUENT}.s3.S3SinkConnector",
    "tasks.max": "1",
    "s3.region": "us-east-1",
    "s3.bucket.name": "b",
    "s3.part.size": "5242880",
    "flush.size": "100",
    "rotate.schedule.interval.ms": "60000",
    "timezone": "UTC",
    "storage.class": f"{CONFLUENT}.s3.storage.S3Storage",
    "schema.compatibility": "NONE",
    "format.class": f"{CONFLUENT}.s3.format.json.JsonFormat",
    "topics": "t",
    "behavior.on.null.values": "ignore",
    "partitioner.class": f"{CONFLUENT}.storage.partitioner.DefaultPartitioner",
}
PARQUET = {
    **SINK,
    "format.class": f"{CONFLUENT}.s3.format.parquet.ParquetFormat",
    "parquet.codec": "gzip",
}
FIELD_PARTITIONER = {
    "partitioner.class": f"{CONFLUENT}.storage.partitioner.FieldPartitioner",
    "partition.field.name": "country",
}
INSERT = "org.apache.kafka.connect.transforms.InsertField$Value"
FOUR_TRANSFORMS = {
    "transforms": "RenameField, insertStaticField1,insertStaticField2,insertStaticField3",
    "transforms.RenameField.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "transforms.RenameField.renames": "district:state_province",
    **{
        f"transforms.insertStaticField{n}.{key}": value
        for n, field, text in (
            (1, "message_source", "pagila"),
            (2, "message_source_engine", "postgresql"),
            (3, "environment", "development"),
        )
        for key, value in (("type", INSERT), ("static.field", field), ("static.value", text))
    },
}
TIMESTAMP = {"type": "int64", "optional": False, "name": connect_schema.TIMESTAMP, "version": 1}


def struct_schema(**fields):
    return {
        "type": "struct",
        "optional": False,
        "name": "t",
        "fields": [
            {
                **(kind if isinstance(kind, dict) else {"type": kind, "optional": True}),
                "field": name,
            }
            for name, kind in fields.items()
        ],
    }


ADDRESS_SCHEMA = struct_schema(
    address_id={"type": "int32", "optional": False},
    address="string",
    district="string",
    country="string",
    last_update=TIMESTAMP,
)


def address_row(n, **more):
    return {
        "address_id": n,
        "address": f"{n} Way",
        "district": "Tete",
        "country": f"Country {n % 3}",
        "last_update": 1487151930000,
        **more,
    }


def json_message(value, schema=ADDRESS_SCHEMA):
    return json.dumps({"schema": schema, "payload": value}, separators=(",", ":")).encode()
