"""The storefront on real parts: services that are killed, events that come twice, late or never, two instances of each,
a store that takes nothing for a while. In the end all stores agree, with each other and with a sequential model."""
import contextlib
import json
import os
import random
import signal
import threading
import uuid

import psutil
import pytest
import requests
from lake_help import kill
from workbench import stack
from workbench.base.errors import SourceError, StackError
from workbench.base.wait import wait_until
from workbench.results import check
from workbench.source import postgres
from workbench.source.names import quoted
from workbench.stack import process
from workbench.stack import storefront as rows
from workbench.storefront import contexts, service
from workbench.topic import dlq, groups, topics
from workbench.walkthroughs import storefront, storefront_load

CUSTOMERS = contexts.ACCOUNTS.topic
JOHN = storefront_load.named()["customer"]


@pytest.fixture(scope="module")
def shop(world):
    storefront.begin(world)
    yield world
    stack.need(world, *storefront.flow.services)
    storefront.flow.reset(world)
    left = storefront.flow.left_over(world)
    assert not any(left.values()), left


@pytest.fixture
def outbox(shop):
    """From the first test that asks for it on, connectors send the events."""
    storefront.hand_over(shop)
    storefront.start(shop)
    storefront.settle(shop)
    return shop


def agree(world, asked):
    """Every store agrees with its owner, and the owners with the model."""
    storefront.settle(world, 120)
    storefront.compare(world)
    for collection, rows_ in storefront_load.model(asked).items():
        there = storefront.owned(world, collection)
        check.same_rows(rows_, there[there["id"].isin(rows_["id"])], key="id", what=f"{collection} = model")


def customer(world, **more):
    """A new customer of this key."""
    key = uuid.uuid4().hex
    storefront.ask(world, "accounts", "POST", "customers", {**JOHN, "id": key, **more})
    return key


def copies(world, key):
    found = storefront.documents(world, "orders", "customers").set_index("id")["document"]
    return found.get(key)


def send(world, key, value, topic=CUSTOMERS, **headers):
    own = {"id": str(uuid.uuid4()), "version": "1", **headers}
    topics.send(world, topic, [(key, value, {"headers": [(name, text.encode()) for name, text in own.items()]})])


# --- what a service is -----------------------------------------------------------------------------------------------

def test_a_service_without_its_store_says_so(world):
    storefront.flow.reset(world)
    for context in contexts.ALL.values():
        topics.create(world, context.topic, storefront.PARTITIONS)
    with pytest.raises(StackError, match="(?s)the store of accounts.*workbench storefront up. makes it"):
        storefront.start(world, "accounts")


def test_no_service_enters_anothers_store_and_each_owns_its_own(shop):
    for role in rows.CONTEXTS:
        for store in rows.CONTEXTS:
            if role == store:
                postgres.connect(shop, store, role=role).close()
            else:
                with pytest.raises(SourceError, match="permission denied for database"):
                    postgres.connect(shop, store, role=role)
        with pytest.raises(SourceError, match="permission denied"), postgres.session(shop, "postgres", role) as c:
            c.execute("CREATE DATABASE another")
    with pytest.raises(SourceError, match="there is no role 'marketing'"):
        postgres.connect(shop, "orders", role="marketing")


@pytest.mark.parametrize("method, path, body, how, status, why", [
    ("POST", "customers", b"{", {}, 400, "no JSON object"),
    ("POST", "customers", b"[]", {}, 400, "no JSON object"),
    ("POST", "customers", json.dumps(JOHN).encode(), {"Content-Type": "text/plain"}, 400, "Content-Type"),
    ("POST", "customers", b" " * (service.LARGEST + 1), {}, 400, "more than 1,048,576 bytes"),
    ("POST", "orders", b"{}", {}, 400, "accounts knows no POST /orders"),
    ("DELETE", "customers/1", b"{}", {}, 501, ""),
    ("POST", "customers", b'{"id": 7}', {}, 400, "says its id, a text"),
    ("PATCH", "customers/nobody", b"{}", {}, 409, "no such customer, or not yet"),
    ("POST", "faults", b'{"at": "nowhere"}', {}, 400, "at is one of stored, heard, taken"),
    ("POST", "customers", json.dumps({**JOHN, "id": "\0"}).encode(), {}, 503, ""),
])
def test_a_command_that_makes_no_sense_changes_nothing(shop, method, path, body, how, status, why):
    before = storefront.documents(shop, "accounts", "customers")
    answer = requests.request(method, f"{rows.address(shop, 'accounts', 1)}/{path}", data=body, timeout=10,
                              headers={"Content-Type": "application/json", **how})
    assert answer.status_code == status and why in answer.text
    assert storefront.documents(shop, "accounts", "customers").equals(before)


def test_it_listens_on_loopback_only(shop):
    for name in rows.CONTEXTS:
        ours = psutil.Process(process.own(name).pid).net_connections("tcp")
        assert {c.laddr.ip for c in ours if c.status == psutil.CONN_LISTEN} == {"127.0.0.1"}


def test_no_event_holds_what_is_nobodys_business(shop):
    """Whatever is put into a document of accounting."""
    customer(shop, passport="P-8841-X")
    asked = storefront_load.operations(21, 100)
    storefront_load.load(shop, asked)
    storefront.settle(shop)
    kept = storefront.documents(shop, "accounts", "customers")["document"]
    assert any("passport" in document for document in kept) and all("creditCards" in document for document in kept)
    number = JOHN["creditCards"][0]["number"]
    for topic in contexts.TOPICS:
        for message in topics.whole(shop, topic):
            assert not any(word in message.value().decode() for word in ("P-8841-X", number, "creditCards", "_class"))
    for store in ("orders", "fulfillment"):
        for table in (*contexts.ALL[store].collections, "inbox", "outbox"):
            text = str(postgres.frame(shop, quoted("SELECT * FROM {}", table), database=store).to_dict())
            assert number not in text and "P-8841-X" not in text


# --- events that come as they like -----------------------------------------------------------------------------------

def test_what_is_no_event_goes_to_the_dead_letters_and_the_rest_goes_on(shop):
    key = customer(shop)
    send(shop, key.encode(), b"{")
    send(shop, None, b"{}")
    send(shop, b"elsewhere", json.dumps({"id": key}).encode())
    send(shop, key.encode(), json.dumps({"id": key, "name": "a\0b"}).encode(), version="9")  # JSON, and no jsonb
    later = customer(shop)
    storefront.settle(shop)
    assert copies(shop, later) and copies(shop, key)["name"] == JOHN["name"]
    letters = dlq.letters(shop, contexts.DEAD_LETTERS).tail(4)
    assert set(letters["topic"]) == {CUSTOMERS} and set(letters["connector"]) == {contexts.ORDERS.group}
    assert sum("not an event" in reason for reason in letters["reason"]) == 3
    assert sum("Unicode" in reason for reason in letters["reason"]) == 1, list(letters["reason"])


def test_out_of_order_the_last_version_counts(shop):
    key = uuid.uuid4().hex
    for version in (2, 5, 1, 4, 5, 3):
        send(shop, key.encode(), json.dumps({"id": key, "name": version}).encode(), version=str(version))
    storefront.settle(shop)
    assert copies(shop, key) == {"id": key, "name": 5}
    postgres.execute(shop, "DELETE FROM customers WHERE id = %s", [key], database="orders")  # accounting has no such


def test_a_store_that_takes_nothing_for_a_while(shop):
    """As one that is full, it refuses every write; what is heard meanwhile is heard again."""
    key = customer(shop)
    storefront.settle(shop)
    change = "ALTER ROLE {} SET default_transaction_read_only = {}"
    gone = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'orders'"
    order = {**storefront_load.named()["orders"][0], "guid": uuid.uuid4().hex, "customerId": key}
    postgres.execute(shop, change.format("orders", "on"), database="postgres")
    try:
        postgres.execute(shop, gone, database="postgres")
        storefront.ask(shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": "full@x"}})
        wait_until(lambda: "read-only" in storefront.request(shop, "orders", "POST", "orders", order).text,
                   "the service to say why", timeout=20)
        assert storefront.request(shop, "orders", "POST", "orders", order).status_code == 503
        wait_until(lambda: "read-only transaction" in process.tail("orders"), "the log to say why", timeout=20)
        assert storefront.lag(shop)["orders"] == 1
    finally:
        postgres.execute(shop, change.format("orders", "off"), database="postgres")
        postgres.execute(shop, gone, database="postgres")
    storefront.settle(shop)
    assert copies(shop, key)["contact"]["email"] == "full@x"


def test_a_database_that_is_killed(shop):
    key = customer(shop)
    kill("postgres")
    with pytest.raises(StackError, match="accounts refuses"):
        storefront.ask(shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": "killed@x"}})
    stack.need(shop, "postgres")
    storefront.ask(shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": "back@x"}})
    storefront.settle(shop)
    assert copies(shop, key)["contact"]["email"] == "back@x"


def test_a_broker_that_is_killed_gets_what_it_missed(shop):
    key = customer(shop)
    kill("kafka")
    storefront.ask(shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": "broker@x"}})
    stack.need(shop, "kafka")
    wait_until(lambda: copies(shop, key)["contact"]["email"] == "broker@x", "the copy", timeout=60)
    storefront.settle(shop)


# --- who sends -------------------------------------------------------------------------------------------------------

def test_a_death_between_store_and_topic_loses_the_event_until_a_connector_reads_the_outbox(shop):
    key = customer(shop)
    storefront.settle(shop)
    storefront.ask(shop, "accounts", "POST", "faults", {"at": "stored"})
    with pytest.raises(StackError, match="accounts died"):
        storefront.ask(shop, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": "lost@x"}})
    storefront.start(shop)
    storefront.settle(shop)
    assert list(storefront.differ(shop)["id"]) == [key]
    storefront.hand_over(shop)
    storefront.settle(shop)
    assert len(storefront.differ(shop)) == 0 and copies(shop, key)["contact"]["email"] == "lost@x"


def test_killed_at_ten_points_of_handling(outbox):
    chance, asked = random.Random(10), storefront_load.operations(10, 600)
    part = len(asked) // 10
    with storefront.kept_running(outbox) as restarted:
        for n in range(10):
            name = chance.choice(rows.CONTEXTS)
            at = "stored" if name == "accounts" else chance.choice(service.FAULTS)
            with contextlib.suppress(StackError):  # dead from the last one
                storefront.ask(outbox, name, "POST", "faults", {"at": at, "after": chance.randint(1, 3)})
            storefront_load.load(outbox, asked[n * part:(n + 1) * part])
        agree(outbox, asked)
    assert len(restarted) >= 5, restarted
    storefront.stop(*rows.CONTEXTS)  # who was told to die, and has not yet
    storefront.start(outbox)


def test_two_instances_share_the_work_and_one_takes_over_the_others(outbox):
    storefront.up(outbox, instances=2)
    asked = storefront_load.operations(11, 400)
    storefront_load.load(outbox, asked[:200], instances=2)
    storefront.settle(outbox)
    for name in ("orders", "fulfillment"):
        shares = [sum(figure for of, figure in storefront.metrics(outbox, name, n).items()
                      if "events_heard_total" in of) for n in (1, 2)]
        assert min(shares) > 0, shares
    kill("orders")
    kill("fulfillment_2")
    storefront_load.load(outbox, [one for one in asked[200:] if one.service == "accounts"])
    storefront.settle(outbox)
    storefront.compare(outbox)
    said = [("accounts", CUSTOMERS, "orders"), ("orders", contexts.ORDERS.topic, "fulfillment")]
    for _, topic, listener in said:  # of each key in the order of its versions
        heard = postgres.frame(outbox, "SELECT key, version FROM inbox WHERE topic = %s ORDER BY place", [topic],
                               database=listener)
        ours = heard[heard["key"].isin({one.key for one in asked})]
        assert ours.groupby("key")["version"].apply(lambda versions: versions.is_monotonic_increasing).all()
    storefront.stop(*rows.CONTEXTS)
    storefront.start(outbox)


# --- everything at once ----------------------------------------------------------------------------------------------

def say_again(world, chance):
    """Some events of a topic once more, in any order."""
    topic = chance.choice(list(contexts.TOPICS))
    partition, (begin, end) = chance.choice(list(topics.bounds(world, topic).items()))
    first = chance.randint(begin, end)
    there = [*topics.messages(world, topic, {partition: first}, {partition: min(end, first + 40)})]
    chance.shuffle(there)
    topics.send(world, topic, [(m.key(), m.value(), {"headers": m.headers(), "partition": partition}) for m in there])
    return len(there)


def disturb(world, chance, told, done):
    """Until told to stop: kill a service, let one stand still, say something again."""
    while not told.wait(chance.uniform(0.3, 1.5)):
        running = [name for name in storefront.flow.processes if process.own(name)] or ["orders"]
        name, what = chance.choice(running), chance.choice(("kill", "stand", "double"))
        with contextlib.suppress(psutil.Error, ProcessLookupError, AttributeError):
            if what == "kill":
                os.killpg(process.own(name).pid, signal.SIGKILL)
            elif what == "stand":  # up to longer than its session
                one = process.own(name)
                one.suspend()
                told.wait(chance.uniform(0.2, 3))
                one.resume()
            done[what] += 1
        if what == "double":
            say_again(world, chance)


@pytest.mark.parametrize("count, instances", [
    (1_000, 1), pytest.param(10_000, 1, marks=pytest.mark.drill), pytest.param(10_000, 2, marks=pytest.mark.drill)])
def test_whatever_happens_the_stores_agree_in_the_end(outbox, count, instances):
    chance, asked = random.Random(count + instances), storefront_load.operations(count + instances, count)
    storefront.up(outbox, instances)
    told, done = threading.Event(), {"kill": 0, "stand": 0, "double": 0}
    trouble = threading.Thread(target=disturb, args=[outbox, chance, told, done])
    trouble.start()
    try:
        with storefront.kept_running(outbox, instances) as restarted:
            storefront_load.load(outbox, asked, instances=instances, patience=120, rate=0 if count > 1_000 else 100)
            told.set()
            trouble.join()
            agree(outbox, asked)
    finally:
        told.set()
        trouble.join()
    assert min(done.values()) > 0 and len(restarted) > 0, (done, restarted)
    print(f"{count:,} operations, {instances} of each: {done}, restarted {len(restarted)}")
    again = groups.lag(outbox, contexts.ORDERS.group, *contexts.ORDERS.hears)
    assert not any(again.values())
    for name in ("orders", "fulfillment"):
        before = storefront.documents(outbox, name, "orders")
        storefront.empty(outbox, name)
        assert not len(storefront.documents(outbox, name, "orders"))
        storefront.start(outbox, name, instances=instances)
        storefront.settle(outbox, 120)
        check.same_rows(before, storefront.documents(outbox, name, "orders"), key="id", what=f"{name} rebuilt")
