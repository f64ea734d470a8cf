"""What consumer groups do without a broker: an error is raised, and is never an empty list."""

import contextlib
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from workbench.base import params
from workbench.base.errors import StackError
from workbench.topic import groups, topics
from worlds import with_settings

NOWHERE = with_settings(params.load("local"), kafka={"bootstrap": "127.0.0.1:1"})


@pytest.fixture
def asked_once(monkeypatch):
    monkeypatch.setattr(topics, "TIMEOUT_SECONDS", 1)
    monkeypatch.setattr(groups, "wait_until", lambda condition, *_, **__: condition())


@pytest.mark.parametrize(
    "ask", [groups.names, lambda world: groups.delete(world, "storefront.orders")]
)
def test_without_kafka_no_list_is_empty_and_nothing_is_deleted(asked_once, ask):
    with pytest.raises(StackError, match="(?s)the service kafka is stopped.*workbench up"):
        ask(NOWHERE)


def answering(code):
    def result(timeout):
        if code:
            raise KafkaException(KafkaError(code))

    return lambda settings: contextlib.nullcontext(
        SimpleNamespace(
            delete_consumer_groups=lambda names, request_timeout: {
                names[0]: SimpleNamespace(result=result)
            }
        )
    )


@pytest.mark.parametrize("code", [None, KafkaError.GROUP_ID_NOT_FOUND])
def test_a_group_that_is_deleted_or_absent_is_forgotten(asked_once, monkeypatch, code):
    monkeypatch.setattr(groups, "AdminClient", answering(code))
    groups.delete(NOWHERE, "storefront.orders")


def test_a_group_with_members_is_not_forgotten(asked_once, monkeypatch):
    monkeypatch.setattr(groups, "AdminClient", answering(KafkaError.NON_EMPTY_GROUP))
    with pytest.raises(StackError):
        groups.delete(NOWHERE, "storefront.orders")


# A broker (librdkafka's mock) behind an address where nothing listens at first. The errors keep
# their tracebacks, and these whatever client the functions have left open.
COMES_BACK = """
import socket, sys, threading
from confluent_kafka import Consumer, Producer, TopicPartition
from workbench.base import params
from workbench.topic import groups, topics
from worlds import with_settings

def forward(source, target):
    while data := source.recv(65536):
        target.sendall(data)

def serve(port, broker):
    with socket.create_server(("127.0.0.1", port)) as listening:
        while True:
            client, server = listening.accept()[0], socket.create_connection((broker.host, broker.port))
            for pair in ((client, server), (server, client)):
                threading.Thread(target=forward, args=pair, daemon=True).start()

mock = Producer({"test.mock.num.brokers": 1, "log_level": 0})
(broker,) = mock.list_topics(timeout=10).brokers.values()
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
world = with_settings(params.load("local"), kafka={"bootstrap": f"127.0.0.1:{port}"})
topics.TIMEOUT_SECONDS, topics.watermark_offsets, errors = 1, lambda world, topic: {0: (0, 1)}, []
for ask in (lambda: groups.lag(world, "a", "t"), lambda: groups.delete(world, "a"),
            lambda: topics.produce(world, "t", [("key", "value")], **{"reconnect.backoff.max.ms": 100})):
    try:
        ask()
    except Exception as e:
        errors.append(e)
threading.Thread(target=serve, args=(port, broker), daemon=True).start()
threading.Event().wait(4)
reader = Consumer({"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "a"})
held = [reader.get_watermark_offsets(TopicPartition("t", p), timeout=10)[1] for p in range(4)]
print(*(type(e).__name__ for e in errors), "messages:", sum(held))
"""


def test_a_broker_that_comes_back_after_a_time_out_ends_no_process_and_gets_nothing_late():
    """librdkafka: `rd_kafka_enq_once_del_source_return: Assertion eonce->refcnt > 0 failed`,
    SIGABRT. And a message that `send` could not send is not there a moment later."""
    done = subprocess.run(
        [sys.executable, "-c", COMES_BACK],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout) == (
        0,
        "ServiceLost ServiceLost ServiceLost messages: 0\n",
    ), done.stderr
