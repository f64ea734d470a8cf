"""The configuration of a connector that captures tables anew, and which are its own."""
import pytest
from workbench import recapture
from workbench.base import ConnectorError

POSTGRES = {"name": "shop", "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "topic.prefix": "shop", "slot.name": "local_shop", "publication.name": "shop",
            "table.include.list": "public.a,public.b", "snapshot.mode": "no_data"}
MARIADB = {"topic.prefix": "db1", "database.server.id": "42", "table.include.list": r"shop\..*",
           "schema.history.internal.kafka.topic": "dbhistory.demo1"}


def test_a_new_connector_of_postgresql():
    new = recapture.renamed(POSTGRES, "_r2", ["public.b"])
    assert {key: value for key, value in new.items() if POSTGRES.get(key) != value} == {
        "topic.prefix": "shop_r2", "slot.name": "local_shop_r2", "table.include.list": "public.b",
        "snapshot.mode": "initial"}
    assert POSTGRES.keys() - new.keys() == {"name"}
    again = recapture.renamed(new, "_r3", ["public.b"])
    assert (again["topic.prefix"], again["slot.name"]) == ("shop_r3", "local_shop_r3")


def test_a_new_connector_of_mariadb():
    new = recapture.renamed(MARIADB, "_r2", ["shop.a"])
    assert (new["topic.prefix"], new["schema.history.internal.kafka.topic"], new["table.include.list"]) == (
        "db1_r2", "dbhistory.demo1_r2", "shop.a")
    ids = {new["database.server.id"], recapture.renamed(MARIADB, "_r3", ["shop.a"])["database.server.id"], "42"}
    assert len(ids) == 3 and all(0 < int(n) < 2**31 for n in ids)
    assert "slot.name" not in new


@pytest.mark.parametrize("kind", ["io.confluent.connect.jdbc.JdbcSourceConnector", ""])
def test_a_connector_that_reads_no_log_is_refused(kind):
    with pytest.raises(ConnectorError, match="(?s)cannot be recaptured.*expected.*PostgresConnector, MariaDbConnector"):
        recapture.run(None, None, "shop", {**POSTGRES, "connector.class": kind})
