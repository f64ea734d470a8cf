"""What consumer groups do without a broker: an error is raised, and is never an empty list."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from workbench.base import params
from workbench.base.errors import StackError
from workbench.topic import groups, topics
from worlds import varied

NOWHERE = varied(params.load("local"), kafka={"bootstrap": "127.0.0.1:1"})


@pytest.fixture
def asked_once(monkeypatch):
    monkeypatch.setattr(topics, "TIMEOUT", 1)
    monkeypatch.setattr(groups, "wait_until", lambda condition, *_, **__: condition())


@pytest.mark.parametrize("ask", [groups.names, lambda world: groups.forget(world, "storefront.orders")])
def test_without_kafka_no_list_is_empty_and_nothing_is_deleted(asked_once, ask):
    with pytest.raises(StackError, match="(?s)the service kafka is stopped.*workbench up"):
        ask(NOWHERE)


def answering(code):
    def result(timeout):
        if code:
            raise KafkaException(KafkaError(code))

    return lambda settings: SimpleNamespace(
        delete_consumer_groups=lambda names, request_timeout: {names[0]: SimpleNamespace(result=result)})


@pytest.mark.parametrize("code", [None, KafkaError.GROUP_ID_NOT_FOUND])
def test_a_group_that_is_deleted_or_absent_is_forgotten(asked_once, monkeypatch, code):
    monkeypatch.setattr(groups, "AdminClient", answering(code))
    groups.forget(NOWHERE, "storefront.orders")


def test_a_group_with_members_is_not_forgotten(asked_once, monkeypatch):
    monkeypatch.setattr(groups, "AdminClient", answering(KafkaError.NON_EMPTY_GROUP))
    with pytest.raises(StackError):
        groups.forget(NOWHERE, "storefront.orders")
