"""Breaks for the checks of notebooks 71 to 74.

breaking.py documents the format.
"""

from breaking import Break, Run

# The process at the address of orders, with the pid file of orders, is a second fulfillment.
OTHER_SERVICE = """
import copy
from workbench.stack import process, services

orders, fulfillment = (services.SERVICES[name] for name in ("orders", "fulfillment"))
other = copy.copy(orders)
other.command = lambda w: [*fulfillment.command(w)[:-1], orders.address(w)]
stack.stop("orders")
process.start(other, world)"""
ONE_MORE_PARTITION = """
from confluent_kafka.admin import AdminClient, NewPartitions

kafka = AdminClient(topics.settings(world))
kafka.create_partitions([NewPartitions("accounts.customer.change", 4)])["accounts.customer.change"].result(10)"""
STORES = [
    Run(
        Break(
            "the store of accounts rejects orders",
            'postgres.execute(world, "GRANT CONNECT ON DATABASE accounts TO orders", database="accounts")',
            {"the store of accounts rejects orders": "no failure"},
        ),
        Break(
            "partitions = {name: len(topics.watermark_offsets(",
            ONE_MORE_PARTITION,
            {"partitions of each": "'accounts.customer.change': 4"},
        ),
        Break(
            "health = [client.call(",
            OTHER_SERVICE,
            {
                "healthy services": "['accounts', 'fulfillment', 'fulfillment']",
                "topics whose lag orders reports": "metrics 2",
                "endpoints": "orders POST orders",
            },
        ),
        Break(
            "a customer without a name is rejected",
            'process.running_process("accounts").kill()',
            {"a customer without a name is rejected": "the service accounts died"},
            undo='stack.ensure_running(world, "accounts")',
        ),
        Break(
            "def can_connect(role, database):",
            'postgres.execute(world, "REVOKE CONNECT ON DATABASE fulfillment FROM fulfillment", database="orders")',
            {
                "which service can connect to which store": (
                    "only actual: 'orders → accounts'",
                    "only expected: 'fulfillment → fulfillment'",
                )
            },
        ),
        Break(
            'stated = {"accounts.customer.change"',
            'topics.create(world, "returns.item.change")',
            {"topics": "only Kafka: 'returns.item.change'"},
            undo='topics.delete(world, "returns.item.change")',
        ),
    )
]

# With the publication and without a connector, no process publishes the events of accounts. `late`
# stops waiting early and publishes them.
UNSENT = """
from workbench.source import postgres

postgres.create_publication(world, domain.PUBLICATION, ["outbox"], "accounts")"""
LATE = """
from storefront import events

patient = check.eventually

def unsent():
    rows = postgres.query(world, "SELECT id::text, aggregateid, version, payload FROM outbox ORDER BY version",
                          database="accounts")
    published = audit.event_ids(world, domain.ACCOUNTS.topic)
    return [as_message(domain.ACCOUNTS.topic, *row) for row in rows.itertuples(index=False) if row[0] not in published]

def as_message(topic, *values):
    fields = dict(zip(("id", "key", "version", "document"), values))
    return events.Event(topic=topic, **fields).to_message()

def placed(message, partition):
    key, value, options = message
    return key, value, {**options, "partition": partition}

def late(what, condition, **options):
    patient(what, condition, 2, **options)
    postgres.drop_publication(world, domain.PUBLICATION, "accounts")
    send_late()

check.eventually = late
"""
# An event with all fields of a customer and without address2 comes before John's event, and John's
# event comes twice.
TOLD_TOO_MUCH = (
    LATE
    + """
def send_late():
    key = "5b189af9a8d05613315b0213"
    shorter = [{name: address[name] for name in address if name != "address2"} for address in john["addresses"]]
    more = as_message(domain.ACCOUNTS.topic, "00000000-0000-4000-8000-000000000072", key, 1,
                      {**john, "id": key, "addresses": shorter})
    sent = [placed(more, 0), *2 * unsent()]
    topics.produce(world, domain.ACCOUNTS.topic, sent, partitioner="murmur2_random")
"""
)
OTHER_COPY = """
audit.wait_until_consistent(world)
other = {"name": {**john["name"], "lastName": "Roe"}, "contact": {**john["contact"], "email": "jane@example.org"},
         "addresses": [{**john["addresses"][0], "city": "Sunset"}, john["addresses"][1]]}
postgres.execute(world, "UPDATE customers SET document = document || %s::jsonb WHERE id = %s",
                 [json.dumps(other), john["id"]], database="orders")"""
# Both stores already have the new address when they are polled.
TOO_LATE_TO_SEE = """
client.call(world, "accounts", "PATCH", f"customers/{john['id']}", {"contact": {"email": "john@example.org"}})
wait_until(lambda: audit.documents(world, "orders", "customers").iloc[0]["version"] == 2, "the second version")
"""
# The commit time of a row is that of the last transaction that wrote it. So all events are consumed
# only now. One event was never consumed, and those of one customer were published after they had
# been consumed.
OTHER_TIMES = """
one = operations[0].key
postgres.execute(world, "DELETE FROM inbox WHERE key = %s AND version = 2", [one], database="orders")
for name in ("orders", "fulfillment"):
    postgres.execute(world, "UPDATE inbox SET version = version", database=name)
postgres.execute(world, "UPDATE outbox SET version = version WHERE aggregateid = %s", [one], database="accounts")"""
# Restarted services count from zero, and no consumer can store the next events.
HELD = """
from storefront import client

client.stop("orders", "fulfillment")
client.start(world)
connections = [postgres.connect(world, name) for name in ("orders", "fulfillment")]
for connection in connections:
    connection.execute("BEGIN")
    connection.execute("LOCK TABLE inbox")
for name in ("orders", "fulfillment"):
    first_event = topics.read_all(world, domain.ALL[name].topic)[0]
    duplicate = (first_event.key(), first_event.value(), {"headers": first_event.headers()})
    topics.produce(world, first_event.topic(), [duplicate])"""
CHANGES = [
    Run(
        Break("response = client.call(", UNSENT, {}),
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
                "events with a card, or a class": "topics 1",
            },
            undo="check.eventually = patient",
        ),
        Break(
            "copy = audit.documents(",
            OTHER_COPY,
            {
                "name of the first copy": "only orders: 'lastName': 'Roe'",
                "contact of the first copy": "only orders: 'email': 'jane@example.org'",
                "addresses of the first copy": "'city': 'Sunset'",
            },
        ),
        Break(
            "observed = audit.watch(",
            "from workbench.base import wait_until\n" + TOO_LATE_TO_SEE,
            {"an outdated copy was seen": "actual 0", "e-mail of the outdated copy": "copy none"},
        ),
        Break(
            "completing an unprocessed order is rejected",
            """
path = f"orders/{orders[0]['guid']}/status"
client.call(world, "fulfillment", "POST", path, {"orderStatusType": "PROCESSING"})""",
            {"completing an unprocessed order is rejected": "no failure"},
        ),
        Break(
            'TOTAL_SQL = """',
            """
more = "UPDATE orders SET document = jsonb_set(document, '{orderItems,0,quantity}', '3') WHERE id = %s"
postgres.execute(world, more, [orders[0]["guid"]], database="orders")
postgres.execute(world, "DELETE FROM orders WHERE id = %s", [orders[1]["guid"]], database="fulfillment")""",
            {"totals in orders": "47.94", "totals in fulfillment": "fulfillment 1 item"},
        ),
        Break(
            "windows = audit.replication_lag(",
            OTHER_TIMES,
            {
                "changes with a measured window": "windows 499 · model 500",
                "95 % of the windows end within a second": "expected at most 1,000 ms",
                "no window has length zero": "actual -",
                "the longest window ends within five seconds": "expected at most 5,000 ms",
            },
        ),
        Break(
            "counted = over_time.iloc[-1]",
            'over_time.loc[len(samples) - 1, ["published", "consumed", "lag"]] += 1',
            {
                "events in the picture": ("metrics 501", "model 500"),
                "consumed events in the picture": "model × consumers",
                "lag at the end of the picture": "metrics 1",
            },
        ),
        Break(
            "metrics = {name: client.metrics(",
            HELD,
            {
                "events of accounts: published, delivered, consumed": (
                    "'published': 222",
                    "'delivered': 221",
                    "'consumed by orders': 0",
                ),
                **{
                    f"events of {name}: published, delivered, consumed": "'published': 0"
                    for name in ("orders", "fulfillment")
                },
                **{f"lag of {name}": "metrics 2" for name in ("orders", "fulfillment")},
                **{
                    f"topics of {name} with a consumer time": "metrics 0"
                    for name in ("orders", "fulfillment")
                },
            },
            undo="for connection in connections:\n    connection.close()",
        ),
        Break(
            "card = john[",
            """
postgres.execute(world, "UPDATE customers SET document = document - 'creditCards' WHERE id = %s", [john["id"]],
                 database="accounts")""",
            {"accounting has the card": "actual no"},
        ),
        Break(
            "expected = list(domain.STATUSES)",
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
            "model = load.expected_state(",
            """
for collection, owner in (("customers", "accounts"), ("orders", "orders")):
    key = next(one.key for one in operations if one.service == owner)
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

# The second of three changes is published last, and to another partition. Meanwhile the copy of
# another customer is deleted. One more event cannot be stored: a text in PostgreSQL must not contain
# a zero byte.
OUT_OF_ORDER = (
    LATE
    + """
def send_late():
    first, second, third = unsent()
    place = next(m.partition() for m in topics.read_all(world, domain.ACCOUNTS.topic) if m.key() == customer_id.encode())
    topics.produce(world, domain.ACCOUNTS.topic, [
        placed(third, place), placed(first, place), placed(second, (place + 1) % 3)])
    first_order = audit.owner_documents(world, "orders")["document"][0]
    order = {**first_order, "guid": "odd", "customerId": chr(0)}
    odd = as_message(domain.ORDERS.topic, "00000000-0000-4000-8000-000000000000", "odd", 2, order)
    topics.produce(world, domain.ORDERS.topic, [odd])
    postgres.execute(world, "DELETE FROM customers WHERE id = %s", [customers.iloc[1]["id"]], database="orders")
"""
)
DISTURBANCES = [
    Run(
        Break('client.stop("orders")', UNSENT, {}),
        Break(
            "the changes are in the topic",
            OUT_OF_ORDER,
            {
                "the changes are in the topic": "not yet",
                "events that waited": "lag 4",
                "the outdated copy": "'000000490000000000000001'",
                "versions behind": "stores 11",
                "partitions of one customer's events": "topic 2",
                "versions of the customer's events, by offset": "only topic: position 1: 15",
                "the last three versions": "topic [13, 16, 14]",
                "events recognized by their ids": "metrics 325 · published 327",
                "versions as they were consumed": "only orders: position 14: 15",
                "divergent documents after the restart": "'000000490000000000000001'",
                "dead letters": "topic 8",
                "each dead letter has a reason": "actual no",
                "topics of the dead letters": "'orders.order.change'",
            },
            undo="check.eventually = patient",
        ),
        Break(
            "a request to a stopped service fails",
            'client.start(world, "orders")',
            {"a request to a stopped service fails": "no failure"},
        ),
        Break(
            "original = next(m for m in",
            """
postgres.execute(world, "UPDATE customers SET version = 0 WHERE id = %s", [customer_id], database="orders")""",
            {
                "events recognized by their version": "metrics 0",
                "stores after duplicate, out-of-order and malformed events": "collection='customers', id='000000490000000000000000', version: after 15, before 16",
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
            'claim="stores rebuilt = stores lost"',
            """
postgres.execute(world, "DELETE FROM customers WHERE id = %s", [customer_id], database="orders")
postgres.execute(world, "DELETE FROM orders WHERE id = (SELECT min(id) FROM orders)", database="fulfillment")""",
            {
                "customers in orders = in accounts": "id='000000490000000000000000': missing in orders",
                "approved orders in fulfillment = in orders": "missing in fulfillment",
            },
        ),
    )
]

# The process with the armed fault was replaced. The store of accounts has another address, so that
# the repeated command publishes an event.
ANOTHER_ADDRESS = """
client.stop("accounts")
client.start(world, "accounts")
other = "UPDATE customers SET document = jsonb_set(document, '{contact,email}', '\\"jane@lost.example\\"')"
postgres.execute(world, other, database="accounts")"""
OUTBOX = [
    Run(
        Break(
            '"a change, and a crash before the send"',
            """
contact = {"contact": {"email": "john@lost.example"}}
client.call(world, "accounts", "PATCH", f"customers/{john['id']}", contact)
topics.wait_for_messages(world, domain.ACCOUNTS.topic, 2)""",
            {
                "a change, and a crash before the send": "no failure",
                "documents that stayed different": "stores none",
            },
        ),
        Break(
            "repeated = change_email(",
            ANOTHER_ADDRESS,
            {
                "event of the repeated command": "nothing is published None",
                "committed and not published": "outbox none",
            },
            undo="topics.wait_for_messages(world, domain.ACCOUNTS.topic, 3)",
        ),
        Break(
            "a second change, and a crash before the send",
            'change_email("john@kept.example")',
            {"a second change, and a crash before the send": "no failure"},
            undo='client.stop("accounts")',
        ),  # its fault is armed
        Break(
            'email = email_in("orders")',
            """
audit.wait_until_consistent(world)
set_to = "version = 99, document = jsonb_set(document, '{contact,email}', '\\"jane@kept.example\\"')"
postgres.execute(world, f"UPDATE customers SET {set_to}", database="orders")""",
            {
                "the change before the second crash": "'jane@kept.example'",
                "divergent documents at the end": "'version_copy': 99",
            },
        ),
        Break(
            "with client.supervised(",
            """
client.stop("fulfillment")
client.start(world, "fulfillment")""",
            {"services that crashed on the bad day": "restarted ['accounts', 'orders'] ·"},
        ),
        Break(
            "states = {name: connect.status(",
            """
from workbench.connect import rest

for name in track.CONNECTORS:
    rest.KafkaConnect(world).stop(name)""",
            {"connectors": "'storefront_accounts': 'STOPPED'"},
        ),
        Break(
            "for context in domain.ALL.values():",
            """
said_last = "INSERT INTO outbox VALUES ('00000000-0000-4000-8000-000000000074', 'customer', 'nobody', 1, '{}')"
for name in domain.ALL:
    postgres.execute(world, said_last, database=name)""",
            {f"events of {name}": ", 1] ·" for name in ("accounts", "orders", "fulfillment")},
        ),
        Break(
            "services that crashed on the bad day",
            """
postgres.execute(world, "DELETE FROM orders WHERE id = (SELECT min(id) FROM orders)", database="fulfillment")
for collection, owner in (("customers", "accounts"), ("orders", "orders")):
    key = next(one.key for one in operations if one.service == owner)
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
