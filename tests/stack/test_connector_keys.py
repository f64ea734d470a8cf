"""The keys that are known of plugins without asking them (params/connectors/keys) are those that
the plugins have."""

import pytest
from workbench import connect
from workbench.connect import CONNECTORS_DIR, rest

UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
CONNECTORS = sorted(file.stem for file in (CONNECTORS_DIR / "keys").glob("*Connector.txt"))


def asked(world, connector):
    config = {
        "name": "x",
        "connector.class": connector,
        "transforms": "t",
        "transforms.t.type": UNWRAP,
    }
    answer = rest.KafkaConnect(world).call(
        "PUT", f"/connector-plugins/{connector}/config/validate", config
    )
    return sorted(c["definition"]["name"] for c in answer["configs"])


def kept(of):
    return (CONNECTORS_DIR / "keys" / f"{of}.txt").read_text().split()


@pytest.mark.parametrize("connector", CONNECTORS)
def test_of_a_connector(world, connector):
    assert kept(connector) == [
        key for key in asked(world, connector) if not key.startswith("transforms.t.")
    ]


def test_of_their_transform(world):
    assert kept(UNWRAP) == [
        key[len("transforms.t.") :]
        for key in asked(world, CONNECTORS[0])
        if key.startswith("transforms.t.")
    ]


def test_of_every_connector_of_debezium(world):
    of_kafka = {
        f"org.apache.kafka.connect.file.FileStream{side}Connector" for side in ("Sink", "Source")
    }
    assert {p["class"] for p in connect.plugins(world)} - of_kafka == set(CONNECTORS)
