"""What is broken behind the checks of notebooks 71 to 74; how a break is written stands in
breaking.py."""

from breaking import Break, Run

# what listens at the address of orders, and is noted as orders, is another fulfillment
OTHER_SERVICE = """
import dataclasses
from workbench.stack import process, services

orders, fulfillment = (services.SERVICES[name] for name in ("orders", "fulfillment"))
other = dataclasses.replace(orders, command=lambda w: [*fulfillment.command(w)[:-1], orders.address(w)])
stack.stop("orders")
process.start(other, world)"""
ONE_MORE_PARTITION = """
from confluent_kafka.admin import AdminClient, NewPartitions

kafka = AdminClient(topics.settings(world))
kafka.create_partitions([NewPartitions("accounts.customer.change", 4)])["accounts.customer.change"].result(10)"""
STORES = [
    Run(
        Break(
            "orders enters the store of accounts",
            'postgres.execute(world, "GRANT CONNECT ON DATABASE accounts TO orders", database="accounts")',
            {"orders enters the store of accounts": "no failure"},
        ),
        Break(
            "found = [(name, len(topics.watermark_offsets(",
            ONE_MORE_PARTITION,
            {"partitions of each": "'accounts.customer.change': 4"},
        ),
        Break(
            "health = [storefront.call(",
            OTHER_SERVICE,
            {
                "services that are well": "['accounts', 'fulfillment', 'fulfillment']",
                "topics whose lag orders tells": "metrics 2",
            },
        ),
        Break(
            "a customer without a name",
            'process.running_process("accounts").kill()',
            {"a customer without a name": "the service accounts died"},
        ),
        Break(
            "def enters(role, database):",
            'postgres.execute(world, "REVOKE CONNECT ON DATABASE fulfillment FROM fulfillment", database="orders")',
            {
                "who enters which store": (
                    "only seen: 'orders → accounts'",
                    "only wanted: 'fulfillment → fulfillment'",
                )
            },
        ),
        Break(
            'names = {"accounts.customer.change"',
            'topics.create(world, "returns.item.change")',
            {"topics": "only Kafka: 'returns.item.change'"},
            undo='topics.delete(world, "returns.item.change")',
        ),
        reset_from="71_stores",
    )
]

# With the publication there, and no connector, what accounts says is sent by nobody. `late` gives
# up soon, and sends it.
UNSENT = """
from workbench.source import postgres

postgres.create_publication(world, contexts.PUBLICATION, ["outbox"], "accounts")"""
LATE = """
from workbench.storefront import events

patient = check.eventually

def unsent():
    rows = postgres.query(world, "SELECT id::text, aggregateid, version, payload FROM outbox ORDER BY version",
                          database="accounts")
    there = storefront.event_ids(world, contexts.ACCOUNTS.topic)
    return [events.Event(row[0], contexts.ACCOUNTS.topic, *row[1:]).to_message()
            for row in rows.itertuples(index=False) if row[0] not in there]

def placed(message, partition):
    key, value, told = message
    return key, value, {**told, "partition": partition}

def late(what, condition):
    patient(what, condition, 2)
    postgres.drop_publication(world, contexts.PUBLICATION, "accounts")
    send_late()

check.eventually = late
"""
# before John's event comes one of somebody who tells all that he knows, and has no address2; John's
# own comes twice
TOLD_TOO_MUCH = (
    LATE
    + """
def send_late():
    key = "5b189af9a8d05613315b0213"
    shorter = [{name: address[name] for name in address if name != "address2"} for address in john["addresses"]]
    more = events.Event("00000000-0000-4000-8000-000000000072", contexts.ACCOUNTS.topic, key, 1,
                        {**john, "id": key, "addresses": shorter})
    sent = [placed(more.to_message(), 0), *2 * unsent()]
    topics.produce(world, contexts.ACCOUNTS.topic, sent, partitioner="murmur2_random")
"""
)
OTHER_COPY = """
storefront.wait_until_consistent(world)
other = {"name": {**john["name"], "lastName": "Roe"}, "contact": {**john["contact"], "email": "jane@example.org"},
         "addresses": [{**john["addresses"][0], "city": "Sunset"}, john["addresses"][1]]}
postgres.execute(world, "UPDATE customers SET document = document || %s::jsonb WHERE id = %s",
                 [json.dumps(other), john["id"]], database="orders")"""
# both stores have the address already when they are looked into
TOO_LATE_TO_SEE = """
storefront.call(world, "accounts", "PATCH", f"customers/{john['id']}", {"contact": {"email": "john@example.org"}})
wait_until(lambda: storefront.documents(world, "orders", "customers").iloc[0]["version"] == 2, "the second version")
"""
# The time of a commit is that of the transaction that wrote the row last. The listeners have heard
# all of it only now; one event was never heard, and those of one customer were said when they had
# been heard.
OTHER_TIMES = """
one = asked[0].key
postgres.execute(world, "DELETE FROM inbox WHERE key = %s AND version = 2", [one], database="orders")
for name in ("orders", "fulfillment"):
    postgres.execute(world, "UPDATE inbox SET version = version", database=name)
postgres.execute(world, "UPDATE outbox SET version = version WHERE aggregateid = %s", [one], database="accounts")"""
# services that were started anew count from nothing; and no listener can store what comes now
HELD = """
storefront.stop("orders", "fulfillment")
storefront.start(world)
held = [postgres.connect(world, name) for name in ("orders", "fulfillment")]
for connection in held:
    connection.execute("BEGIN")
    connection.execute("LOCK TABLE inbox")
for name in ("orders", "fulfillment"):
    again = topics.read_all(world, contexts.ALL[name].topic)[0]
    topics.produce(world, again.topic(), [(again.key(), again.value(), {"headers": again.headers()})])"""
CHANGES = [
    Run(
        Break("made = storefront.call(", UNSENT, {}),
        Break(
            "the event is in the topic",
            TOLD_TOO_MUCH,
            {
                "the event is in the topic": "not yet",
                "key of the event": "'5b189af9a8d05613315b0213'",
                "fields of the event": "topic {'addresses', 'contact', 'creditCards'",
                "events of this customer": "topic 3",
                "address2 of both addresses": "topic ['missing', 'missing']",
                "events published by the creation": "topics 3",
                "events that hold a card, or a class": "topics 1",
            },
            undo="check.eventually = patient",
        ),
        Break(
            "copy = storefront.documents(",
            OTHER_COPY,
            {
                "name of the first copy": "only orders: ('lastName', 'Roe')",
                "contact of the first copy": "only orders: ('email', 'jane@example.org')",
                "addresses of the first copy": "'city': 'Sunset'",
            },
        ),
        Break(
            "seen = storefront.watch(",
            "from workbench.base import wait_until\n" + TOO_LATE_TO_SEE,
            {"an old copy was seen": "seen 0", "what it said": "copy none"},
        ),
        Break(
            "completed before it is processed",
            """
path = f"orders/{orders[0]['guid']}/status"
storefront.call(world, "fulfillment", "POST", path, {"orderStatusType": "PROCESSING"})""",
            {"completed before it is processed": "no failure"},
        ),
        Break(
            'TOTAL = """',
            """
more = "UPDATE orders SET document = jsonb_set(document, '{orderItems,0,quantity}', '3') WHERE id = %s"
postgres.execute(world, more, [orders[0]["guid"]], database="orders")
postgres.execute(world, "DELETE FROM orders WHERE id = %s", [orders[1]["guid"]], database="fulfillment")""",
            {"totals in orders": "47.94", "totals in fulfillment": "fulfillment 1 entry"},
        ),
        Break(
            "windows = storefront.replication_lag(",
            OTHER_TIMES,
            {
                "changes whose window is known": "windows 499 · model 500",
                "95 % of the windows are short": "expected at most 1,000 ms",
                "no copy changed at once": "seen -",
                "the longest ended, too": "expected at most 5,000 ms",
            },
        ),
        Break(
            "figures = {name: storefront.metrics(",
            HELD,
            {
                "events of accounts: said, sent, heard": (
                    "'said': 222",
                    "'sent': 221",
                    "'heard by orders': 0",
                ),
                **{
                    f"events of {name}: said, sent, heard": "'said': 0"
                    for name in ("orders", "fulfillment")
                },
                **{f"lag of {name}": "metrics 2" for name in ("orders", "fulfillment")},
                **{
                    f"topics of {name} with a listener time": "metrics 0"
                    for name in ("orders", "fulfillment")
                },
            },
            undo="for connection in held:\n    connection.close()",
        ),
        Break(
            "number = john[",
            """
postgres.execute(world, "UPDATE customers SET document = document - 'creditCards' WHERE id = %s", [john["id"]],
                 database="accounts")""",
            {"accounting has the card": "seen no"},
        ),
        Break(
            "way = list(contexts.STATUSES)",
            """
for name in ("orders", "fulfillment"):
    less = "UPDATE orders SET document = document #- '{orderStatusEvents,-1}' WHERE id IN (%s, %s)"
    postgres.execute(world, less, [first, second], database=name)""",
            {
                **{
                    f"statuses of the first order in {name}": f"{name} ['CREATED', 'APPROVED', 'PROCESSING'] ·"
                    for name in ("orders", "fulfillment")
                },
                "statuses of the second order in orders": "orders ['CREATED'] ·",
                "statuses of the second order in fulfillment": "fulfillment None",
            },
        ),
        Break(
            "model = storefront_load.expected_state(",
            """
for collection, owner in (("customers", "accounts"), ("orders", "orders")):
    key = next(one.key for one in asked if one.service == owner)
    postgres.execute(world, f"UPDATE {collection} SET version = version + 100 WHERE id = %s", [key], database=owner)""",
            {
                "customers in orders = in accounts": (
                    "id='5b189af9a8d05613315b0213': not in accounts",
                    "id='000000080000000000000000', version: orders",
                ),
                "approved orders in fulfillment = in orders": (
                    "id='29692d7f-3ca5-4684-b5fd-51dbcf40dc1e': missing in fulfillment"
                ),
                "customers = model": "id='000000080000000000000000', version: stores 1",
                "orders = model": "version: stores 10",
            },
        ),
    )
]

# The second of three changes is sent last, and to another partition; the copy of another customer
# is lost meanwhile, and there is an event that no store can keep: a text of PostgreSQL's has no
# zero byte.
OUT_OF_ORDER = (
    LATE
    + """
def send_late():
    first, second, third = unsent()
    place = next(m.partition() for m in topics.read_all(world, contexts.ACCOUNTS.topic) if m.key() == one.encode())
    topics.produce(world, contexts.ACCOUNTS.topic, [
        placed(third, place), placed(first, place), placed(second, (place + 1) % storefront.PARTITIONS)])
    odd = {**storefront.owner_documents(world, "orders")["document"][0], "guid": "odd", "customerId": chr(0)}
    odd = events.Event("00000000-0000-4000-8000-000000000000", contexts.ORDERS.topic, "odd", 2, odd)
    topics.produce(world, contexts.ORDERS.topic, [odd.to_message()])
    postgres.execute(world, "DELETE FROM customers WHERE id = %s", [customers.iloc[1]["id"]], database="orders")
"""
)
DISTURBANCES = [
    Run(
        Break('storefront.stop("orders")', UNSENT, {}),
        Break(
            "the changes are in the topic",
            OUT_OF_ORDER,
            {
                "the changes are in the topic": "not yet",
                "events that waited": "lag 4",
                "the copy that was behind": "'000000490000000000000001'",
                "by so many versions": "stores 11",
                "partitions of one customer's events": "topic 2",
                "versions of his events, by offset": "13, 16, 14]",
                "the last three": "topic [13, 16, 14]",
                "events known by their ids": "metrics 325 · said 327",
                "versions as they were heard": "14, 15, 16]",
                "documents apart after that": "'000000490000000000000001'",
                "dead letters": "topic 8",
                "each has a reason": "seen no",
                "where they were": "'orders.order.change'",
            },
            undo="check.eventually = patient",
        ),
        Break(
            "a question to a service that is stopped",
            'storefront.start(world, "orders")',
            {"a question to a service that is stopped": "no failure"},
        ),
        Break(
            "old = next(m for m in",
            """
postgres.execute(world, "UPDATE customers SET version = 0 WHERE id = %s", [one], database="orders")""",
            {
                "events known by their version": "metrics 0",
                "stores after doubled, late and garbled events": "collection='customers', id='000000490000000000000000', version: after 15, before 16",
                "stores rebuilt = stores lost": (
                    "store='orders', collection='customers', id='000000490000000000000001': not in before",
                    "id='000000490000000000000000', version: rebuilt 16, before 15",
                ),
            },
        ),
        Break(
            "emptied = state()",
            """
postgres.execute(world, "INSERT INTO customers VALUES ('left', 1, '{}')", database="orders")""",
            {"documents in the emptied stores": "stores 1"},
        ),
        Break(
            'what="stores rebuilt = stores lost"',
            """
postgres.execute(world, "DELETE FROM customers WHERE id = %s", [one], database="orders")
postgres.execute(world, "DELETE FROM orders WHERE id = (SELECT min(id) FROM orders)", database="fulfillment")""",
            {
                "customers in orders = in accounts": "id='000000490000000000000000': missing in orders",
                "approved orders in fulfillment = in orders": "missing in fulfillment",
            },
        ),
    )
]

# Who was told to die is another process by now; and accounts has something to say, for its store
# has another address.
ANOTHER_ADDRESS = """
storefront.stop("accounts")
storefront.start(world, "accounts")
other = "UPDATE customers SET document = jsonb_set(document, '{contact,email}', '\\"jane@lost.example\\"')"
postgres.execute(world, other, database="accounts")"""
OUTBOX = [
    Run(
        Break(
            '"a change, and sudden death", lambda',
            """
contact = {"contact": {"email": "john@lost.example"}}
storefront.call(world, "accounts", "PATCH", f"customers/{john['id']}", contact)
topics.wait_for_messages(world, contexts.ACCOUNTS.topic, 2)""",
            {
                "a change, and sudden death": "no failure",
                "documents that stayed apart": "stores none",
            },
        ),
        Break(
            "again = moves(",
            ANOTHER_ADDRESS,
            {
                "event of the change that was asked for again": "nothing is said None",
                "said and not sent": "outbox none",
            },
            undo="topics.wait_for_messages(world, contexts.ACCOUNTS.topic, 3)",
        ),
        Break(
            "a change, and sudden death again",
            'moves("john@kept.example")',
            {"a change, and sudden death again": "no failure"},
            undo='storefront.stop("accounts")',
        ),  # its fault is armed
        Break(
            "kept = storefront.documents(",
            """
storefront.wait_until_consistent(world)
set_to = "version = 99, document = jsonb_set(document, '{contact,email}', '\\"jane@kept.example\\"')"
postgres.execute(world, f"UPDATE customers SET {set_to}", database="orders")""",
            {
                "the change before the second death": "'jane@kept.example'",
                "documents apart at the end": "'version_copy': 99",
            },
        ),
        Break(
            "with storefront.supervised(",
            """
storefront.stop("fulfillment")
storefront.start(world, "fulfillment")""",
            {"who died on the bad day": "restarted ['accounts', 'orders'] ·"},
        ),
        Break(
            "states = {name: connect.status(",
            """
from workbench.connect import rest

for name in storefront.CONNECTORS:
    rest._stop(world, name)""",
            {"connectors": "('storefront_accounts', 'STOPPED')"},
        ),
        Break(
            "for each in contexts.ALL.values():",
            """
said_last = "INSERT INTO outbox VALUES ('00000000-0000-4000-8000-000000000074', 'customer', 'nobody', 1, '{}')"
for name in contexts.ALL:
    postgres.execute(world, said_last, database=name)""",
            {f"events of {name}": ", 1] ·" for name in ("accounts", "orders", "fulfillment")},
        ),
        Break(
            "who died on the bad day",
            """
postgres.execute(world, "DELETE FROM orders WHERE id = (SELECT min(id) FROM orders)", database="fulfillment")
for collection, owner in (("customers", "accounts"), ("orders", "orders")):
    key = next(one.key for one in asked if one.service == owner)
    postgres.execute(world, f"UPDATE {collection} SET version = version + 100 WHERE id = %s", [key], database=owner)""",
            {
                "customers in orders = in accounts": (
                    "id='5b189af9a8d05613315b0212', version: orders 99",
                    "id='0000004a0000000000000000', version: orders",
                ),
                "approved orders in fulfillment = in orders": "missing in fulfillment",
                "customers = model": "id='0000004a0000000000000000', version: stores 1",
                "orders = model": "version: stores 10",
            },
        ),
    )
]

BREAKS = {
    "71_stores": STORES,
    "72_changes": CHANGES,
    "73_disturbances": DISTURBANCES,
    "74_outbox": OUTBOX,
}
