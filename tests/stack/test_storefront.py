"""The storefront on real parts: services that are killed, events that come twice, late or never,
two instances of each, a store that takes nothing for a while. In the end all stores agree, with
each other and with a sequential model."""

import contextlib
import json
import os
import random
import signal
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import requests
from lake_help import kill_service
from psycopg import sql
from workbench import stack
from workbench.base.errors import ServiceLost, SourceError, StackError
from workbench.base.wait import wait_until
from workbench.results import check
from workbench.source import postgres
from workbench.source.names import format_sql
from workbench.stack import process
from workbench.stack import storefront as rows
from workbench.storefront import contexts, handler, service
from workbench.topic import dlq, groups, topics
from workbench.walkthroughs import storefront, storefront_load

CUSTOMERS = contexts.ACCOUNTS.topic
JOHN = storefront_load.sample_documents()["customer"]
PUBLISHED = {name: JOHN[name] for name in contexts.PUBLISHED_FIELDS["customers"]}


@pytest.fixture(scope="module")
def shop(world):
    storefront.restart_clean(world)
    yield world
    stack.ensure_running(world, *storefront.flow.services)
    storefront.flow.reset(world)
    left = storefront.flow.remaining_resources(world)
    assert not any(left.values()), left


@pytest.fixture
def outbox(shop):
    """From the first test that asks for it on, connectors send the events."""
    storefront.enable_outbox_connectors(shop)
    storefront.start(shop)
    storefront.wait_until_consistent(shop)
    return shop


def agree(world, asked):
    """Every store agrees with its owner, and the owners with the model."""
    storefront.wait_until_consistent(world, 120)
    storefront.compare(world)
    for collection, rows_ in storefront_load.expected_state(asked).items():
        there = storefront.owner_documents(world, collection)
        check.same_rows(
            rows_, there[there["id"].isin(rows_["id"])], key="id", claim=f"{collection} = model"
        )


def customer(world, **more):
    """A new customer of this key."""
    key = uuid.uuid4().hex
    storefront.call(world, "accounts", "POST", "customers", {**JOHN, "id": key, **more})
    return key


def copies(world, key):
    found = storefront.documents(world, "orders", "customers").set_index("id")["document"]
    return found.get(key)


def send(world, key, value, topic=CUSTOMERS, **headers):
    own = {"id": str(uuid.uuid4()), "version": "1", **headers}
    topics.produce(
        world,
        topic,
        [(key, value, {"headers": [(name, text.encode()) for name, text in own.items()]})],
    )


# --- what a service is
# -----------------------------------------------------------------------------------------------


def test_a_service_without_its_store_says_so(world):
    storefront.flow.reset(world)
    for context in contexts.ALL.values():
        topics.create(world, context.topic, storefront.PARTITIONS)
    with pytest.raises(
        StackError, match="(?s)(no role 'accounts'|does not exist).*workbench storefront up. makes"
    ):
        storefront.start(world, "accounts")


def test_no_service_enters_anothers_store_and_each_owns_its_own(shop):
    for role in rows.CONTEXTS:
        for store in rows.CONTEXTS:
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


KAFKA_KILLED = {
    "as it begins": "stop",
    "when the service has stopped": "stop",
    "when the offsets are gone": "delete",
    "when the rows are gone": "execute",
}


@pytest.mark.drill
@pytest.mark.parametrize("step", KAFKA_KILLED)
def test_a_store_is_emptied_only_when_its_offsets_are_gone(shop, monkeypatch, step):
    """Kafka is killed at each step; in the end the store has every document again."""
    storefront.start(shop)
    customer(shop)
    storefront.wait_until_consistent(shop)
    before = storefront.documents(shop, "orders", "customers")
    place = {"stop": storefront, "delete": groups, "execute": postgres}[KAFKA_KILLED[step]]
    real = getattr(place, KAFKA_KILLED[step])

    def killing(*arguments, **more):
        if step == "as it begins":
            kill_service("kafka")
        real(*arguments, **more)
        if step != "as it begins":
            kill_service("kafka")

    monkeypatch.setattr(place, KAFKA_KILLED[step], killing)
    try:
        if KAFKA_KILLED[step] == "stop":
            with pytest.raises(ServiceLost, match="the service kafka died"):
                storefront.wipe_store(shop, "orders")
            check.same_rows(
                before,
                storefront.documents(shop, "orders", "customers"),
                key="id",
                claim="nothing emptied",
            )
        else:
            storefront.wipe_store(shop, "orders")
            assert storefront.documents(shop, "orders", "customers").empty
    finally:
        monkeypatch.undo()
        stack.ensure_running(shop, "kafka")
    if KAFKA_KILLED[step] == "stop":
        storefront.wipe_store(shop, "orders")
    storefront.start(shop)
    storefront.wait_until_consistent(shop, 120)
    check.same_rows(
        before, storefront.documents(shop, "orders", "customers"), key="id", claim="built anew"
    )
    storefront.compare(shop)


@pytest.mark.parametrize(
    "method, path, body, how, status, why",
    [
        ("POST", "customers", b"{", {}, 400, "Expecting property name"),
        ("POST", "customers", b'{"id":' * 20_000, {}, 400, "recursion"),
        ("POST", "customers", b"{}", {"Host": "shop.example"}, 403, "127.0.0.1 and localhost only"),
        ("PATCH", "customers/a%2Fb", b"{}", {}, 409, "no such customer yet"),
        (
            "POST",
            "customers",
            json.dumps({**JOHN, "id": "x" * 201}).encode(),
            {},
            400,
            "at most 200 characters",
        ),
        (
            "POST",
            "customers",
            json.dumps({**JOHN, "id": "x", "name": {"x": "é" * 160_000}}).encode(),
            {},
            400,
            "too large",
        ),
        (
            "POST",
            "faults",
            b'{"at": "before_batch"}',
            {},
            400,
            "at is one of after_commit, and after",
        ),
        ("POST", "customers", b"[]", {}, 400, "no JSON object"),
        (
            "POST",
            "customers",
            json.dumps(JOHN).encode(),
            {"Content-Type": "text/plain"},
            400,
            "Content-Type",
        ),
        (
            "POST",
            "customers",
            b" " * (handler.MAX_BODY_BYTES + 1),
            {},
            400,
            "more than 1,048,576 bytes",
        ),
        ("POST", "orders", b"{}", {}, 400, "accounts has no command POST /orders"),
        ("DELETE", "customers/1", b"{}", {}, 501, ""),
        ("POST", "customers", b'{"id": 7}', {}, 400, "needs its id, a text"),
        ("PATCH", "customers/nobody", b"{}", {}, 409, "no such customer yet"),
        ("POST", "faults", b'{"at": "nowhere"}', {}, 400, "at is one of after_commit, and after"),
        ("POST", "customers", json.dumps({**JOHN, "id": "\0"}).encode(), {}, 400, ""),
    ],
)
def test_a_command_that_makes_no_sense_changes_nothing(shop, method, path, body, how, status, why):
    before = storefront.documents(shop, "accounts", "customers")
    answer = requests.request(
        method,
        f"{rows.address(shop, 'accounts', 1)}/{path}",
        data=body,
        timeout=10,
        headers={"Content-Type": "application/json", **how},
    )
    assert answer.status_code == status and why in answer.text
    assert storefront.documents(shop, "accounts", "customers").equals(before)


def test_it_listens_on_loopback_only(shop):
    for name in rows.CONTEXTS:
        ours = psutil.Process(process.running_process(name).pid).net_connections("tcp")
        assert {c.laddr.ip for c in ours if c.status == psutil.CONN_LISTEN} == {"127.0.0.1"}


def said_nowhere(world):
    for topic in contexts.TOPICS:
        for message in topics.read_all(world, topic):
            text = (message.value() or b"").decode(errors="replace") + str(message.headers())
            assert not any(
                word in text
                for word in ("P-8841-X", JOHN["creditCards"][0]["number"], "creditCards", "_class")
            )


def test_no_event_holds_what_is_nobodys_business(shop):
    """Whatever is put into a document of accounting."""
    customer(shop, passport="P-8841-X")
    asked = storefront_load.random_operations(21, 100)
    storefront_load.load(shop, asked)
    storefront.wait_until_consistent(shop)
    kept = storefront.documents(shop, "accounts", "customers")["document"]
    assert any("passport" in document for document in kept) and all(
        "creditCards" in document for document in kept
    )
    number = JOHN["creditCards"][0]["number"]
    said_nowhere(shop)
    for store in ("orders", "fulfillment"):
        for table in (*contexts.ALL[store].collections, "inbox", "outbox"):
            text = str(
                postgres.query(
                    shop, format_sql("SELECT * FROM {}", table), database=store
                ).to_dict()
            )
            assert number not in text and "P-8841-X" not in text


# --- events that come as they like
# -----------------------------------------------------------------------------------


def test_what_is_no_event_goes_to_the_dead_letters_and_the_rest_goes_on(shop):
    key = customer(shop)
    send(shop, key.encode(), b"{")
    send(shop, None, b"{}")
    send(shop, b"elsewhere", json.dumps({"id": key}).encode())
    odd = {**PUBLISHED, "id": key, "name": {"firstName": "a\0b"}}
    send(shop, key.encode(), json.dumps(odd).encode(), version="9")  # JSON, and no jsonb
    later = customer(shop)
    storefront.wait_until_consistent(shop)
    assert copies(shop, later) and copies(shop, key)["name"] == JOHN["name"]
    letters = dlq.read(shop, contexts.DLQ_TOPIC).tail(4)
    assert set(letters["topic"]) == {CUSTOMERS} and set(letters["connector"]) == {
        contexts.ORDERS.group
    }
    assert sum("not an event" in reason for reason in letters["reason"]) == 3
    assert sum("Unicode" in reason for reason in letters["reason"]) == 1, list(letters["reason"])


def test_an_order_event_with_missing_fields_is_a_dead_letter_and_breaks_nothing(shop):
    whole = {**storefront_load.sample_documents()["orders"][0], "customerId": customer(shop)}
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
            topic=contexts.ORDERS.topic,
            version=version,
        )
        storefront.wait_until_consistent(shop)
        assert storefront.find_divergent(shop).empty
        letters = dlq.read(shop, contexts.DLQ_TOPIC).query("key == @key.encode()")
        assert set(letters["connector"]) == {contexts.ORDERS.group, contexts.FULFILLMENT.group}
        assert all(
            f"not an event: {field}: Field required" in reason for reason in letters["reason"]
        )
        for name in ("orders", "fulfillment"):
            status = {"orderStatusType": "APPROVED" if name == "orders" else "PROCESSING"}
            with pytest.raises(StackError, match="no such order yet"):
                storefront.call(shop, name, "POST", f"orders/{key}/status", status)
    storefront_load.load(shop, storefront_load.random_operations(23, 50))


def test_out_of_order_the_last_version_counts(shop):
    key = customer(shop)
    for n in range(2, 6):
        storefront.call(
            shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": f"{n}@x"}}
        )
    storefront.wait_until_consistent(shop)
    said = {
        int(dict(m.headers())["version"]): m.value()
        for m in topics.read_all(shop, CUSTOMERS)
        if m.key() == key.encode()
    }
    postgres.execute(shop, "DELETE FROM customers WHERE id = %s", [key], database="orders")
    for version in (2, 5, 1, 4, 5, 3):
        send(shop, key.encode(), said[version], version=str(version))
    storefront.wait_until_consistent(shop)
    assert copies(shop, key)["contact"]["email"] == "5@x"


def test_a_store_that_takes_nothing_for_a_while(shop):
    """As one that is full, it refuses every write; what is heard meanwhile is heard again."""
    key = customer(shop)
    storefront.wait_until_consistent(shop)
    order = {
        **storefront_load.sample_documents()["orders"][0],
        "guid": uuid.uuid4().hex,
        "customerId": key,
    }
    read_only(shop, "orders", True)
    try:
        storefront.call(
            shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": "full@x"}}
        )
        wait_until(
            lambda: "read-only" in storefront.request(shop, "orders", "POST", "orders", order).text,
            "the service to say why",
            timeout=20,
        )
        assert storefront.request(shop, "orders", "POST", "orders", order).status_code == 503
        wait_until(
            lambda: "read-only transaction" in process.log_tail("orders"),
            "the log to say why",
            timeout=20,
        )
        assert storefront.lag(shop)["orders"] == 1
    finally:
        read_only(shop, "orders", False)
    storefront.wait_until_consistent(shop)
    assert copies(shop, key)["contact"]["email"] == "full@x"


def read_only(world, role, on):
    postgres.execute(
        world,
        format_sql("ALTER ROLE {} SET default_transaction_read_only = ", role)
        + sql.SQL("on" if on else "off"),
        database="postgres",
    )
    postgres.execute(
        world,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s",
        [role],
        database="postgres",
    )


def test_what_a_store_refused_is_heard_again_also_after_a_death(shop):
    """Many events in all partitions: the offsets of those that were handed out and not stored are
    not committed."""
    storefront.wait_until_consistent(shop)
    before = set(storefront.event_ids(shop, CUSTOMERS))
    read_only(shop, "orders", True)
    try:
        asked = [
            one for one in storefront_load.random_operations(31, 4_500) if one.service == "accounts"
        ]
        assert len(asked) > 3 * service.BATCH_SIZE, "of three partitions, some batches each"
        storefront_load.load(shop, asked)
        wait_until(
            lambda: process.log_tail("orders").count("will be retried") >= 8,
            "batches to be refused",
            timeout=30,
        )
        storefront.call(
            shop, "orders", "POST", "faults", {"at": "before_offset_commit", "after": 2}
        )
    finally:
        read_only(shop, "orders", False)
    wait_until(
        lambda: process.running_process("orders") is None,
        "its death behind the second batch",
        timeout=30,
    )
    storefront.start(shop)
    storefront.wait_until_consistent(shop)
    heard = set(postgres.query(shop, "SELECT id::text FROM inbox", database="orders")["id"])
    assert not set(storefront.event_ids(shop, CUSTOMERS)) - before - heard
    storefront.compare(shop)


def test_poison_is_put_aside_once_however_often_its_batch_is_tried(shop):
    storefront.wait_until_consistent(shop)
    before = len(dlq.read(shop, contexts.DLQ_TOPIC))
    read_only(shop, "orders", True)
    try:
        good = customer(shop)
        for value in (b"{", b'{"id":' * 20_000):
            send(shop, good.encode(), value)
        send(shop, random.Random(1).randbytes(3_000).hex().encode(), b"{}")
        long = "".join(random.Random(2).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=6_000))
        send(shop, long.encode(), json.dumps({**PUBLISHED, "id": long}).encode())
        wait_until(
            lambda: process.log_tail("orders").count("will be retried") >= 3,
            "some tries",
            timeout=30,
        )
    finally:
        read_only(shop, "orders", False)
    storefront.wait_until_consistent(shop)
    assert len(dlq.read(shop, contexts.DLQ_TOPIC)) == before + 4
    assert copies(shop, good)


def test_two_instances_make_a_document_once(shop):
    """Asked for the same new key at the same moment, with other contents: one of them makes it."""
    storefront.up(shop, instances=2)
    keys = [uuid.uuid4().hex for _ in range(60)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda n: (
                    storefront.request(
                        shop,
                        "accounts",
                        "POST",
                        "customers",
                        {**JOHN, "id": keys[n // 2], "name": {"n": n % 2}},
                        instance=n % 2 + 1,
                    ).status_code
                ),
                range(120),
            )
        )
    assert answers.count(200) == 60 and set(answers) <= {200, 400, 409}
    storefront.wait_until_consistent(shop)
    storefront.compare(shop)
    for name in rows.CONTEXTS:
        stack.stop(rows.service_name(name, 2))


def test_nothing_is_taken_from_somebody_else(shop):
    """Neither a database of this name, nor a store that no topic can fill again."""
    with pytest.raises(StackError, match="accounts cannot be rebuilt"):
        storefront.wipe_store(shop, "accounts")
    postgres.execute(shop, "CREATE DATABASE somebodys", database="postgres")
    try:
        with pytest.raises(
            SourceError, match="there is a database 'somebodys', owned by 'workbench'"
        ):
            postgres.create_service_database(shop, "somebodys")
        postgres.drop_service_databases(shop, "somebodys")
        assert "somebodys" in postgres.databases(shop)
    finally:
        postgres.execute(shop, "DROP DATABASE somebodys", database="postgres")


def test_a_store_is_emptied_right_after_its_service_was_killed(shop):
    asked = storefront_load.random_operations(32, 100)
    storefront_load.load(shop, asked)
    storefront.wait_until_consistent(shop)
    before = storefront.documents(shop, "orders", "customers")
    kill_service("orders")
    storefront.wipe_store(shop, "orders")
    storefront.start(shop)
    storefront.wait_until_consistent(shop)
    check.same_rows(before, storefront.documents(shop, "orders", "customers"), key="id")


def test_a_database_that_is_killed(shop):
    key = customer(shop)
    kill_service("postgres")
    with pytest.raises(StackError, match="accounts rejected"):
        storefront.call(
            shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": "killed@x"}}
        )
    stack.ensure_running(shop, "postgres")
    storefront.call(shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": "back@x"}})
    storefront.wait_until_consistent(shop)
    assert copies(shop, key)["contact"]["email"] == "back@x"


def test_a_broker_that_is_killed_gets_what_it_missed(shop):
    key = customer(shop)
    kill_service("kafka")
    storefront.call(
        shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": "broker@x"}}
    )
    stack.ensure_running(shop, "kafka")
    wait_until(lambda: copies(shop, key)["contact"]["email"] == "broker@x", "the copy", timeout=60)
    storefront.wait_until_consistent(shop)


def named_in_time(service, call):
    """Whether a call names a service that is gone within ten seconds."""
    begun = time.monotonic()
    with pytest.raises(ServiceLost, match=f"the service {service} (died|is stopped)"):
        call()
    assert time.monotonic() - begun < 10, f"{time.monotonic() - begun:.1f} s"


@pytest.mark.drill
def test_a_killed_broker_is_named_in_time(shop):
    kill_service("kafka")
    topic = contexts.ACCOUNTS.topic
    try:
        for call in (
            lambda: topics.names(shop),
            lambda: topics.wait_for_messages(shop, topic, 10**6),
            lambda: topics.produce(shop, topic, [("a", "b")]),
            lambda: topics.delete(shop, "x"),
            lambda: groups.names(shop),
            lambda: storefront.wait_until_consistent(shop),
            lambda: dlq.summary(shop),
        ):
            named_in_time("kafka", call)
    finally:
        stack.ensure_running(shop, "kafka")


@pytest.mark.drill
@pytest.mark.parametrize("service", ["orders", "postgres"])
def test_a_killed_service_is_named_in_time(shop, service):
    key = customer(shop)
    storefront.wait_until_consistent(shop)
    kill_service(service)
    try:
        if service == "orders":
            storefront.call(
                shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": "x@y"}}
            )
            named_in_time(
                service,
                lambda: storefront_load.load(shop, storefront_load.random_operations(36, 50)),
            )
        named_in_time(service, lambda: storefront.wait_until_consistent(shop))
    finally:
        stack.ensure_running(shop, "postgres")
        storefront.start(shop)
        storefront.wait_until_consistent(shop)


# --- who sends
# -------------------------------------------------------------------------------------------------------


def test_where_the_services_send_nobody_needs_connect(shop):
    stack.stop("connect")
    storefront.up(shop)
    storefront_load.load(shop, storefront_load.random_operations(33, 50))
    storefront.wait_until_consistent(shop)
    assert "connect" not in stack.running()
    stack.ensure_running(shop, "connect")


def test_a_death_between_store_and_topic_loses_the_event_until_a_connector_reads_the_outbox(shop):
    key = customer(shop)
    storefront.wait_until_consistent(shop)
    storefront.call(shop, "accounts", "POST", "faults", {"at": "after_commit"})
    with pytest.raises(StackError, match="accounts died"):
        storefront.call(
            shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": "lost@x"}}
        )
    storefront.start(shop)
    storefront.wait_until_consistent(shop)
    assert list(storefront.find_divergent(shop)["id"]) == [key]
    storefront.enable_outbox_connectors(shop)
    storefront.wait_until_consistent(shop)
    said_nowhere(shop)  # as the connectors say it, too
    assert (
        len(storefront.find_divergent(shop)) == 0
        and copies(shop, key)["contact"]["email"] == "lost@x"
    )


def test_where_connectors_send_connect_is_started_with_the_services(outbox):
    storefront.stop(*rows.CONTEXTS)
    stack.stop("connect")
    storefront.up(outbox)
    key = customer(outbox)
    storefront.wait_until_consistent(outbox)
    assert copies(outbox, key)


@pytest.mark.drill
def test_a_killed_connect_is_named_in_time(outbox):
    kill_service("connect")
    key = customer(outbox)
    try:
        named_in_time("connect", lambda: storefront.wait_until_consistent(outbox))
    finally:
        stack.ensure_running(outbox, "connect")
    storefront.wait_until_consistent(outbox)
    assert copies(outbox, key)


def test_killed_at_ten_points_of_handling(outbox):
    chance, asked = random.Random(10), storefront_load.random_operations(10, 600)
    part = len(asked) // 10
    with storefront.supervised(outbox) as restarted:
        for n in range(10):
            name = chance.choice(rows.CONTEXTS)
            at = "after_commit" if name == "accounts" else chance.choice(service.FAULT_POINTS)
            storefront.call(
                outbox, name, "POST", "faults", {"at": at, "after": chance.randint(1, 3)}
            )
            storefront_load.load(outbox, asked[n * part : (n + 1) * part])
            wait_until(lambda n=n: len(restarted) == n + 1, f"{name} to die at {at!r}", timeout=30)
            storefront.start(outbox)
        agree(outbox, asked)


def test_two_instances_share_the_work_and_one_takes_over_the_others(outbox):
    storefront.up(outbox, instances=2)
    asked = storefront_load.random_operations(11, 400)
    storefront_load.load(outbox, asked[:200], instances=2)
    storefront.wait_until_consistent(outbox)
    for name in ("orders", "fulfillment"):
        shares = [
            sum(
                figure
                for of, figure in storefront.metrics(outbox, name, n).items()
                if "events_consumed_total" in of
            )
            for n in (1, 2)
        ]
        assert min(shares) > 0, shares
    kill_service("orders_2")
    kill_service("fulfillment_2")
    left = [one for one in asked[200:] if one.service == "accounts"]
    new = [
        one for one in storefront_load.random_operations(12, 200) if one.service == "orders"
    ]  # fulfillment hears of them
    storefront_load.load(outbox, [*left, *new], instances=1)
    storefront.wait_until_consistent(outbox)
    storefront.compare(outbox)
    said = [("accounts", CUSTOMERS, "orders"), ("orders", contexts.ORDERS.topic, "fulfillment")]
    for _, topic, listener in said:  # of each key in the order of its versions
        heard = postgres.query(
            outbox,
            "SELECT key, version FROM inbox WHERE topic = %s ORDER BY seq",
            [topic],
            database=listener,
        )
        ours = heard[heard["key"].isin({one.key for one in asked})]
        assert (
            ours.groupby("key")["version"]
            .apply(lambda versions: versions.is_monotonic_increasing)
            .all()
        )
    storefront.stop(*rows.CONTEXTS)
    storefront.start(outbox)


# --- everything at once
# ----------------------------------------------------------------------------------------------


def say_again(world, chance):
    """Some events of a topic once more, in any order."""
    topic = chance.choice(list(contexts.TOPICS))
    partition, (begin, end) = chance.choice(list(topics.watermark_offsets(world, topic).items()))
    first = chance.randint(begin, end)
    there = [*topics.consume(world, topic, {partition: first}, {partition: min(end, first + 40)})]
    chance.shuffle(there)
    topics.produce(
        world,
        topic,
        [(m.key(), m.value(), {"headers": m.headers(), "partition": partition}) for m in there],
    )
    return len(there)


def disturb(world, chance, told, done):
    """Until told to stop: kill a service, let one stand still, say something again."""
    while not told.wait(chance.uniform(0.3, 1.5)):
        running = [
            name for name in storefront.flow.owned_services if process.running_process(name)
        ] or ["orders"]
        name, what = chance.choice(running), chance.choice(("kill", "stand", "double"))
        with contextlib.suppress(psutil.Error, ProcessLookupError, AttributeError):
            if what == "kill":
                os.killpg(process.running_process(name).pid, signal.SIGKILL)
            elif what == "stand":  # up to longer than its session
                one = process.running_process(name)
                one.suspend()
                told.wait(chance.uniform(0.2, 3))
                one.resume()
            done[what] += 1
        if what == "double":
            say_again(world, chance)


@pytest.mark.parametrize(
    "count, instances",
    [
        (1_000, 1),
        pytest.param(10_000, 1, marks=pytest.mark.drill),
        pytest.param(10_000, 2, marks=pytest.mark.drill),
    ],
)
def test_whatever_happens_the_stores_agree_in_the_end(outbox, count, instances):
    chance, asked = (
        random.Random(count + instances),
        storefront_load.random_operations(count + instances, count),
    )
    storefront.up(outbox, instances)
    told, done = threading.Event(), {"kill": 0, "stand": 0, "double": 0}
    trouble = threading.Thread(target=disturb, args=[outbox, chance, told, done])
    trouble.start()
    try:
        with storefront.supervised(outbox, instances) as restarted:
            storefront_load.load(
                outbox, asked, instances=instances, timeout=120, rate=0 if count > 1_000 else 100
            )
            told.set()
            trouble.join()
            agree(outbox, asked)
    finally:
        told.set()
        trouble.join()
    assert min(done.values()) > 0 and len(restarted) > 0, (done, restarted)
    print(f"{count:,} operations, {instances} of each: {done}, restarted {len(restarted)}")
    again = groups.lag(outbox, contexts.ORDERS.group, *contexts.ORDERS.subscribed_topics)
    assert not any(again.values())
    for name in ("orders", "fulfillment"):
        held = contexts.ALL[name].collections
        before = {collection: storefront.documents(outbox, name, collection) for collection in held}
        storefront.wipe_store(outbox, name)
        assert not sum(len(storefront.documents(outbox, name, collection)) for collection in held)
        storefront.start(outbox, name, instances=instances)
        storefront.wait_until_consistent(outbox, 120)
        for collection, documents in before.items():
            check.same_rows(
                documents,
                storefront.documents(outbox, name, collection),
                key="id",
                claim=f"{collection} of {name}, rebuilt",
            )
