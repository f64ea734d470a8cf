"""The storefront while services, databases and brokers are killed: in the end all stores agree."""

import contextlib
import json
import random
import threading
import time
import uuid

import psutil
import pytest
from psycopg import sql
from storefront_help import (
    CUSTOMERS,
    PUBLISHED,
    check_no_event_is_confidential,
    copies,
    customer,
    send,
)
from workbench import stack
from workbench.base.errors import ServiceLost, SourceError, StackError
from workbench.base.wait import wait_until
from workbench.checks import check
from workbench.source import postgres
from workbench.source.names import format_sql
from workbench.stack import process
from workbench.storefront import client, consumer, databases, domain, faults, load
from workbench.topic import dlq, groups, topics
from workbench.tracks import storefront


def agree(world, operations):
    """Check that all copies agree with their owners, and the owners with the expected state."""
    storefront.wait_until_consistent(world, 120)
    storefront.compare(world)
    for collection, expected in load.expected_state(operations).items():
        owned = storefront.owner_documents(world, collection)
        check.same_rows(
            expected,
            owned[owned["id"].isin(expected["id"])],
            key="id",
            claim=f"{collection} = model",
        )


def count_dead_letters(world):
    """Return the dead letters of the storefront; the first one creates their topic."""
    if domain.DLQ_TOPIC not in topics.names(world):
        return 0
    return len(dlq.read(world, domain.DLQ_TOPIC))


KAFKA_KILLED = {
    "as it begins": "stop",
    "when the service has stopped": "stop",
    "when the offsets are gone": "delete",
    "when the rows are gone": "execute",
}


@pytest.mark.drill
@pytest.mark.parametrize("step", KAFKA_KILLED)
def test_a_store_is_wiped_only_after_its_offsets_are_deleted(shop, monkeypatch, step):
    """Kafka is killed at each step; in the end the store has all documents again."""
    storefront.start(shop)
    customer(shop)
    storefront.wait_until_consistent(shop)
    before = storefront.documents(shop, "orders", "customers")
    place = {"stop": client, "delete": groups, "execute": postgres}[KAFKA_KILLED[step]]
    real = getattr(place, KAFKA_KILLED[step])

    def killing(*arguments, **more):
        if step == "as it begins":
            stack.kill("kafka")
        real(*arguments, **more)
        if step != "as it begins":
            stack.kill("kafka")

    monkeypatch.setattr(place, KAFKA_KILLED[step], killing)
    try:
        if KAFKA_KILLED[step] == "stop":
            with pytest.raises(ServiceLost, match="the service kafka died"):
                storefront.wipe_store(shop, "orders")
            check.same_rows(
                before,
                storefront.documents(shop, "orders", "customers"),
                key="id",
                claim="nothing deleted",
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
        before, storefront.documents(shop, "orders", "customers"), key="id", claim="rebuilt"
    )
    storefront.compare(shop)


def test_a_store_that_rejects_writes_for_a_while(shop):
    """It rejects all writes, like a full disk; the events are consumed again."""
    key = customer(shop)
    storefront.wait_until_consistent(shop)
    order = {
        **load.sample_documents()["orders"][0],
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


def test_rejected_events_are_consumed_again_even_after_a_crash(shop):
    """With many events in all partitions: offsets of events that were not stored are not committed."""
    storefront.wait_until_consistent(shop)
    before = set(storefront.event_ids(shop, CUSTOMERS))
    read_only(shop, "orders", True)
    try:
        asked = [one for one in load.random_operations(31, 4_500) if one.service == "accounts"]
        assert len(asked) > 3 * consumer.BATCH_SIZE, "of three partitions, some batches each"
        load.load(shop, asked)
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


def test_a_poison_message_becomes_one_dead_letter_however_often_its_batch_is_retried(shop):
    storefront.wait_until_consistent(shop)
    before = count_dead_letters(shop)
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
    assert count_dead_letters(shop) == before + 4
    assert copies(shop, good)


def test_databases_of_others_and_irreplaceable_stores_stay(shop):
    """Neither a database of this name, nor a store that no topic can rebuild."""
    with pytest.raises(StackError, match="accounts cannot be rebuilt"):
        storefront.wipe_store(shop, "accounts")
    postgres.execute(shop, "CREATE DATABASE somebodys", database="postgres")
    try:
        with pytest.raises(
            SourceError, match="there is a database 'somebodys', owned by 'workbench'"
        ):
            databases.create(shop, "somebodys")
        databases.drop(shop, "somebodys")
        assert "somebodys" in postgres.databases(shop)
    finally:
        postgres.execute(shop, "DROP DATABASE somebodys", database="postgres")


def test_a_store_can_be_wiped_right_after_its_service_was_killed(shop):
    asked = load.random_operations(32, 100)
    load.load(shop, asked)
    storefront.wait_until_consistent(shop)
    before = storefront.documents(shop, "orders", "customers")
    stack.kill("orders")
    storefront.wipe_store(shop, "orders")
    storefront.start(shop)
    storefront.wait_until_consistent(shop)
    check.same_rows(before, storefront.documents(shop, "orders", "customers"), key="id")


def test_a_killed_database(shop):
    key = customer(shop)
    stack.kill("postgres")
    with pytest.raises(StackError, match="accounts rejected"):
        storefront.call(
            shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": "killed@x"}}
        )
    stack.ensure_running(shop, "postgres")
    storefront.call(shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": "back@x"}})
    storefront.wait_until_consistent(shop)
    assert copies(shop, key)["contact"]["email"] == "back@x"


def test_a_killed_broker_gets_the_missed_events(shop):
    key = customer(shop)
    stack.kill("kafka")
    storefront.call(
        shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": "broker@x"}}
    )
    stack.ensure_running(shop, "kafka")
    wait_until(lambda: copies(shop, key)["contact"]["email"] == "broker@x", "the copy", timeout=60)
    storefront.wait_until_consistent(shop)


def named_in_time(service, call):
    """Check that a call names a lost service within ten seconds."""
    begun = time.monotonic()
    with pytest.raises(ServiceLost, match=f"the service {service} (died|is stopped)"):
        call()
    assert time.monotonic() - begun < 10, f"{time.monotonic() - begun:.1f} s"


@pytest.mark.drill
def test_a_killed_broker_is_named_in_time(shop):
    stack.kill("kafka")
    topic = domain.ACCOUNTS.topic
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
    stack.kill(service)
    try:
        if service == "orders":
            storefront.call(
                shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": "x@y"}}
            )
            named_in_time(
                service,
                lambda: load.load(shop, load.random_operations(36, 50)),
            )
        named_in_time(service, lambda: storefront.wait_until_consistent(shop))
    finally:
        stack.ensure_running(shop, "postgres")
        storefront.start(shop)
        storefront.wait_until_consistent(shop)


def test_connect_is_not_needed_if_the_services_publish(shop):
    stack.stop("connect")
    storefront.up(shop)
    load.load(shop, load.random_operations(33, 50))
    storefront.wait_until_consistent(shop)
    assert "connect" not in stack.running()
    stack.ensure_running(shop, "connect")


def test_a_crash_between_commit_and_send_loses_the_event_until_a_connector_reads_the_outbox(shop):
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
    check_no_event_is_confidential(shop)  # also in the events of connectors
    assert (
        len(storefront.find_divergent(shop)) == 0
        and copies(shop, key)["contact"]["email"] == "lost@x"
    )


def test_connect_starts_with_the_services_if_connectors_publish(outbox):
    storefront.stop(*domain.ALL)
    stack.stop("connect")
    storefront.up(outbox)
    key = customer(outbox)
    storefront.wait_until_consistent(outbox)
    assert copies(outbox, key)


@pytest.mark.drill
def test_a_killed_connect_is_named_in_time(outbox):
    stack.kill("connect")
    key = customer(outbox)
    try:
        named_in_time("connect", lambda: storefront.wait_until_consistent(outbox))
    finally:
        stack.ensure_running(outbox, "connect")
    storefront.wait_until_consistent(outbox)
    assert copies(outbox, key)


def test_services_killed_at_ten_fault_points(outbox):
    chance, asked = random.Random(10), load.random_operations(10, 600)
    part = len(asked) // 10
    with storefront.supervised(outbox) as restarted:
        for n in range(10):
            name = chance.choice([*domain.ALL])
            at = "after_commit" if name == "accounts" else chance.choice(faults.FAULT_POINTS)
            fault = {"at": at, "after": chance.randint(1, 3)}
            with contextlib.suppress(StackError):  # it may die before it has responded
                storefront.call(outbox, name, "POST", "faults", fault)
            load.load(outbox, asked[n * part : (n + 1) * part])
            wait_until(lambda n=n: len(restarted) == n + 1, f"{name} to die at {at!r}", timeout=30)
            storefront.start(outbox)
        agree(outbox, asked)


@pytest.mark.drill  # test_storefront has two instances, the next tests have one that dies
def test_two_instances_share_the_work_and_one_takes_over_for_the_other(outbox):
    storefront.up(outbox, instances=2)
    asked = load.random_operations(11, 400)
    load.load(outbox, asked[:200], instances=2)
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
    stack.kill("orders_2")
    stack.kill("fulfillment_2")
    left = [one for one in asked[200:] if one.service == "accounts"]
    new = [
        one for one in load.random_operations(12, 200) if one.service == "orders"
    ]  # fulfillment hears of them
    load.load(outbox, [*left, *new], instances=1)
    storefront.wait_until_consistent(outbox)
    storefront.compare(outbox)
    said = [("accounts", CUSTOMERS, "orders"), ("orders", domain.ORDERS.topic, "fulfillment")]
    for _, topic, listener in said:  # the events of each key are in the order of their versions
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
    storefront.stop(*domain.ALL)
    storefront.start(outbox)


def publish_again(world, chance):
    """Publish some events of a topic again, in any order."""
    topic = chance.choice(list(domain.TOPICS))
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


def disturb(world, chance, stop, counts):
    """Until `stop` is set: kill a service, suspend one, or publish events again."""
    while not stop.wait(chance.uniform(0.3, 1.5)):
        running = [
            name for name in storefront.TRACK.owns.services if process.running_process(name)
        ] or ["orders"]
        name, action = chance.choice(running), chance.choice(("kill", "stand", "double"))
        with contextlib.suppress(psutil.Error, ProcessLookupError, AttributeError):
            if action == "kill":
                stack.kill(name)
            elif action == "stand":  # possibly longer than its session timeout
                one = process.running_process(name)
                one.suspend()
                stop.wait(chance.uniform(0.2, 3))
                one.resume()
            counts[action] += 1
        if action == "double":
            publish_again(world, chance)


@pytest.mark.parametrize(
    "count, instances",
    [
        (1_000, 1),
        (10_000, 1),
        (10_000, 2),
    ],
)
@pytest.mark.drill
def test_the_stores_agree_in_the_end_whatever_happens(outbox, count, instances):
    chance, operations = (
        random.Random(count + instances),
        load.random_operations(count + instances, count),
    )
    storefront.up(outbox, instances)
    stop, counts = threading.Event(), {"kill": 0, "stand": 0, "double": 0}
    trouble = threading.Thread(target=disturb, args=[outbox, chance, stop, counts])
    trouble.start()
    try:
        with storefront.supervised(outbox, instances) as restarted:
            load.load(
                outbox,
                operations,
                instances=instances,
                timeout=120,
                rate=0 if count > 1_000 else 100,
            )
            stop.set()
            trouble.join()
            agree(outbox, operations)
    finally:
        stop.set()
        trouble.join()
    assert min(counts.values()) > 0 and len(restarted) > 0, (counts, restarted)
    print(f"{count:,} operations, {instances} of each: {counts}, restarted {len(restarted)}")
    lag = groups.lag(outbox, domain.ORDERS.group, *domain.ORDERS.subscribed_topics)
    assert not any(lag.values())
    for name in ("orders", "fulfillment"):
        collections = domain.ALL[name].collections
        before = {
            collection: storefront.documents(outbox, name, collection) for collection in collections
        }
        storefront.wipe_store(outbox, name)
        assert not sum(
            len(storefront.documents(outbox, name, collection)) for collection in collections
        )
        storefront.start(outbox, name, instances=instances)
        storefront.wait_until_consistent(outbox, 120)
        for collection, documents in before.items():
            check.same_rows(
                documents,
                storefront.documents(outbox, name, collection),
                key="id",
                claim=f"{collection} of {name}, rebuilt",
            )
