"""The storefront with real services.

Services are killed; events are duplicate, out of order or lost; services have two instances; a store
rejects writes for a while. In the end all stores agree with each other and with the expected state.
"""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import requests
from storefront import audit, client, domain, load, setup
from storefront_help import (
    CUSTOMERS,
    JOHN,
    PUBLISHED,
    check_no_event_is_confidential,
    copies,
    customer,
    send,
)
from workbench import stack
from workbench.base.errors import SourceError, StackError
from workbench.source import postgres
from workbench.source.names import format_sql
from workbench.stack import process
from workbench.topic import dlq, topics


def test_a_service_without_its_store_ends_with_an_error(world):
    setup.reset(world)
    for context in domain.ALL.values():
        topics.create(world, context.topic, setup.PARTITIONS)
    with pytest.raises(
        StackError,
        match="(?s)(no role 'accounts'|does not exist).*python -m storefront up",
    ):
        client.start(world, "accounts")


def test_a_service_can_enter_only_its_own_store(shop):
    for role in domain.ALL:
        for store in domain.ALL:
            if role == store:
                postgres.connect(shop, store, role=role).close()
            else:
                with pytest.raises(SourceError, match="permission denied for database"):
                    postgres.connect(shop, store, role=role)
        with (
            pytest.raises(SourceError, match="permission denied"),
            postgres.session(shop, "postgres", role) as c,
        ):
            c.execute("CREATE DATABASE another")
    with pytest.raises(SourceError, match="there is no role 'marketing'"):
        postgres.connect(shop, "orders", role="marketing")


@pytest.mark.parametrize(
    "method, path, body, status, why",
    [
        ("PATCH", "customers/a%2Fb", b"{}", 409, "no such customer yet"),
        (
            "POST",
            "customers",
            json.dumps({**JOHN, "id": "x", "name": {"x": "é" * 160_000}}).encode(),
            400,
            "more than 900,000 bytes",
        ),
        ("POST", "customers", b'{"id": 7}', 400, "id: Input should be a valid string"),
        ("POST", "customers", json.dumps({**JOHN, "id": "\0"}).encode(), 400, ""),
    ],
)
def test_an_invalid_command_changes_nothing(shop, method, path, body, status, why):
    before = audit.documents(shop, "accounts", "customers")
    answer = requests.request(
        method,
        f"{stack.get_service('accounts').address(shop)}/{path}",
        data=body,
        timeout=10,
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == status and why in answer.text
    assert audit.documents(shop, "accounts", "customers").equals(before)


def test_services_listen_on_loopback_only(shop):
    for name in domain.ALL:
        ours = psutil.Process(process.running_process(name).pid).net_connections("tcp")
        assert {c.laddr.ip for c in ours if c.status == psutil.CONN_LISTEN} == {"127.0.0.1"}


def test_no_event_has_a_field_that_is_not_published(shop):
    """Whatever fields a document of accounts has."""
    customer(shop, passport="P-8841-X")
    asked = load.random_operations(21, 100)
    load.run(shop, asked)
    audit.wait_until_consistent(shop)
    kept = audit.documents(shop, "accounts", "customers")["document"]
    assert any("passport" in document for document in kept) and all(
        "creditCards" in document for document in kept
    )
    number = JOHN["creditCards"][0]["number"]
    check_no_event_is_confidential(shop)
    for store in ("orders", "fulfillment"):
        for table in (*domain.ALL[store].collections, "inbox", "outbox"):
            text = str(
                postgres.query(
                    shop, format_sql("SELECT * FROM {}", table), database=store
                ).to_dict()
            )
            assert number not in text and "P-8841-X" not in text


def test_malformed_messages_become_dead_letters_and_the_others_are_applied(shop):
    key = customer(shop)
    send(shop, key.encode(), b"{")
    send(shop, None, b"{}")
    send(shop, b"elsewhere", json.dumps({"id": key}).encode())
    odd = {**PUBLISHED, "id": key, "name": {"firstName": "a\0b"}}
    send(shop, key.encode(), json.dumps(odd).encode(), version="9")  # JSON, and no jsonb
    later = customer(shop)
    audit.wait_until_consistent(shop)
    assert copies(shop, later) and copies(shop, key)["name"] == JOHN["name"]
    letters = dlq.read(shop, domain.DLQ_TOPIC).tail(4)
    assert set(letters["topic"]) == {CUSTOMERS} and set(letters["connector"]) == {
        domain.ORDERS.group
    }
    assert sum("not an event" in reason for reason in letters["reason"]) == 3
    assert sum("Unicode" in reason for reason in letters["reason"]) == 1, list(letters["reason"])


def test_an_order_event_with_missing_fields_becomes_a_dead_letter(shop):
    whole = {**load.sample_documents()["orders"][0], "customerId": customer(shop)}
    whole["orderStatusEvents"] = [
        {"timestamp": 1, "orderStatusType": status} for status in ("CREATED", "APPROVED")
    ]
    for version, field in (("1", "orderStatusEvents"), ("2", "orderItems")):
        key = uuid.uuid4().hex
        partial = {name: value for name, value in {**whole, "guid": key}.items() if name != field}
        send(
            shop,
            key.encode(),
            json.dumps(partial).encode(),
            topic=domain.ORDERS.topic,
            version=version,
        )
        audit.wait_until_consistent(shop)
        assert audit.find_divergent(shop).empty
        letters = dlq.read(shop, domain.DLQ_TOPIC).query("key == @key.encode()")
        assert set(letters["connector"]) == {domain.ORDERS.group, domain.FULFILLMENT.group}
        assert all(
            f"not an event: {field}: Field required" in reason for reason in letters["reason"]
        )
        for name in ("orders", "fulfillment"):
            status = {"orderStatusType": "APPROVED" if name == "orders" else "PROCESSING"}
            with pytest.raises(StackError, match="no such order yet"):
                client.call(shop, name, "POST", f"orders/{key}/status", status)
    load.run(shop, load.random_operations(23, 50))


def test_the_last_version_counts_whatever_the_order(shop):
    key = customer(shop)
    for n in range(2, 6):
        client.call(shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": f"{n}@x"}})
    audit.wait_until_consistent(shop)
    said = {
        int(dict(m.headers())["version"]): m.value()
        for m in topics.read_all(shop, CUSTOMERS)
        if m.key() == key.encode()
    }
    postgres.execute(shop, "DELETE FROM customers WHERE id = %s", [key], database="orders")
    for version in (2, 5, 1, 4, 5, 3):
        send(shop, key.encode(), said[version], version=str(version))
    audit.wait_until_consistent(shop)
    assert copies(shop, key)["contact"]["email"] == "5@x"


def test_two_instances_create_a_document_once(shop):
    """They get commands for the same new key at the same moment; one of them creates it."""
    setup.up(shop, count=2)
    keys = [uuid.uuid4().hex for _ in range(60)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda n: (
                    client.request(
                        shop,
                        ("accounts", "accounts_2")[n % 2],
                        "POST",
                        "customers",
                        {**JOHN, "id": keys[n // 2], "name": {"n": n % 2}},
                    ).status_code
                ),
                range(120),
            )
        )
    assert answers.count(200) == 60 and set(answers) <= {200, 400, 409}
    audit.wait_until_consistent(shop)
    audit.compare(shop)
    for name in domain.ALL:
        stack.stop(f"{name}_2")
