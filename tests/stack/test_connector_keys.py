"""The keys that are known of plugins without asking them (params/connectors/keys) are those that the plugins have."""
import pytest
from workbench.connect import FOLDER, rest

UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
POSTGRES = "io.debezium.connector.postgresql.PostgresConnector"


@pytest.fixture(scope="module")
def asked(world):
    config = {"name": "x", "connector.class": POSTGRES, "transforms": "t", "transforms.t.type": UNWRAP}
    answer = rest._call(world, "PUT", f"/connector-plugins/{POSTGRES}/config/validate", config)
    return sorted(c["definition"]["name"] for c in answer["configs"])


def kept(of):
    return (FOLDER / "keys" / f"{of}.txt").read_text().split()


def test_of_the_connector(asked):
    own = [key for key in asked if not key.startswith("transforms.t.")]
    assert kept(POSTGRES) == own


def test_of_its_transform(asked):
    assert kept(UNWRAP) == [key[len("transforms.t."):] for key in asked if key.startswith("transforms.t.")]
