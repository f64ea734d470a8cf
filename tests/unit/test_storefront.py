"""The storefront: commands, events, the consumer, the HTTP interface, and the expected state."""

import json
import re
import socket
import threading
import time
import uuid
from types import SimpleNamespace

import pandas
import psycopg
import pytest
import requests
import uvicorn
from storefront import __main__ as command_line
from storefront import audit, client, domain, events, load, server, service, setup
from storefront.domain import CommandRejected, RetryLater
from typer.testing import CliRunner
from workbench.base import params, wait
from workbench.base.errors import LakeError, ServiceLost, StackError
from workbench.topic import topics
from workbench.tracks import for_world
from workbench.tracks import storefront as track

JOHN = load.sample_documents()["customer"]
FIRST, SECOND = load.sample_documents()["orders"]
CUSTOMER_PATH, STATUS_PATH = f"customers/{domain.KEY}", f"orders/{domain.KEY}/status"


def run_command(context, method, path, before, body):
    return domain.ALL[context].commands[method, path].run(before, body)


def created(**fields):
    body = {**FIRST, "customerId": JOHN["id"], "timestamp": 1, **fields}
    return run_command("orders", "POST", "orders", None, body)


def status(context, order, status_type, **fields):
    body = {"orderStatusType": status_type, "timestamp": 2, **fields}
    return run_command(context, "POST", STATUS_PATH, order, body)


def test_an_order_passes_its_statuses_and_each_command_is_idempotent():
    order = created()
    for context, status_type in (
        ("orders", "APPROVED"),
        ("fulfillment", "PROCESSING"),
        ("fulfillment", "COMPLETED"),
    ):
        order = status(context, order, status_type)
        assert status(context, order, status_type, timestamp=99) == order
    assert [each["orderStatusType"] for each in order["orderStatusEvents"]] == list(domain.STATUSES)
    assert (
        run_command("orders", "POST", "orders", order, {**FIRST, "customerId": JOHN["id"]}) == order
    )


@pytest.mark.parametrize(
    "call, reason, retryable",
    [
        (
            lambda: status("orders", created(), "PROCESSING"),
            "orderStatusType: Input should be 'APPROVED'",
            False,
        ),
        (
            lambda: status("fulfillment", created(), "PROCESSING"),
            "after CREATED comes APPROVED",
            True,
        ),
        (
            lambda: status("fulfillment", status("orders", created(), "APPROVED"), "COMPLETED"),
            "comes PROCESSING",
            True,
        ),
        (lambda: status("fulfillment", None, "PROCESSING"), "no such order yet", True),
        (
            lambda: status("orders", created(), "APPROVED", timestamp="now"),
            "timestamp: Input should be a valid integer",
            False,
        ),
        (
            lambda: status("orders", created(), "APPROVED", timestamp=True),
            "timestamp: Input should be a valid integer",
            False,
        ),
        (lambda: created(orderItems=[]), "orderItems: List should have", False),
        (lambda: created(customerId=""), "customerId: String should have", False),
        (
            lambda: run_command(
                "orders",
                "POST",
                "orders",
                created(),
                {**SECOND, "guid": FIRST["guid"], "customerId": "1"},
            ),
            "another document has this key",
            False,
        ),
        (
            lambda: run_command(
                "accounts", "POST", "customers", None, {"id": "1", "name": {"x": "y"}}
            ),
            "contact: Field required; addresses: Field required",
            False,
        ),
        (
            lambda: run_command(
                "accounts", "POST", "customers", JOHN, {**JOHN, "name": {"x": "y"}}
            ),
            "another document has this key",
            False,
        ),
        (
            lambda: run_command("accounts", "PATCH", CUSTOMER_PATH, None, {}),
            "no such customer yet",
            True,
        ),
        (
            lambda: run_command("accounts", "PATCH", CUSTOMER_PATH, JOHN, {"contact": "x"}),
            "contact: Input should be a valid dictionary",
            False,
        ),
        (
            lambda: run_command("accounts", "PATCH", CUSTOMER_PATH, JOHN, {"id": "2"}),
            "id: Extra inputs are not permitted",
            False,
        ),
        (
            lambda: run_command("accounts", "PATCH", CUSTOMER_PATH, JOHN, {"emial": "x"}),
            "emial: Extra inputs are not permitted",
            False,
        ),
    ],
)
def test_an_invalid_command_is_rejected_with_its_reason(call, reason, retryable):
    with pytest.raises(CommandRejected, match=reason) as raised:
        call()
    assert isinstance(raised.value, RetryLater) == retryable, "whether it can be retried"


def test_a_changed_customer_keeps_what_was_not_changed():
    changed = run_command(
        "accounts",
        "PATCH",
        CUSTOMER_PATH,
        JOHN,
        {"contact": {"email": "x@y"}, "addresses": JOHN["addresses"][:1]},
    )
    assert changed == {
        **JOHN,
        "contact": {**JOHN["contact"], "email": "x@y"},
        "addresses": JOHN["addresses"][:1],
    }
    assert JOHN["contact"]["email"] == "john.doe@internet.com", "the document before is not changed"


def test_an_event_has_only_the_published_fields():
    event = events.build_event(
        "accounts.customer.change", JOHN["id"], 1, {**JOHN, "socialSecurityNumber": "1"}
    )
    assert set(event.document) == {"id", "name", "contact", "addresses"}
    assert "4000-0012" not in event.to_message()[1]


class Message:
    def __init__(
        self, key=b"1", value=json.dumps({**JOHN, "id": "1"}).encode(), headers=None, **more
    ):
        own = {"id": str(uuid.uuid4()).encode(), "version": b"1", **more}
        self.of = [key, value, list(own.items()) if headers is None else headers]

    def topic(self):
        return "accounts.customer.change"

    def key(self):
        return self.of[0]

    def value(self):
        return self.of[1]

    def headers(self):
        return self.of[2]


def test_an_event_can_be_parsed_from_its_message():
    event = events.build_event("accounts.customer.change", JOHN["id"], 3, JOHN)
    key, value, more = event.to_message()
    assert events.parse_event(Message(key, value, more["headers"])) == event


@pytest.mark.parametrize(
    "message",
    [
        Message(key=None),
        Message(key=b"2"),
        Message(key=b"\xff"),
        Message(value=None),
        Message(value=b"{"),
        Message(value=b"[]"),
        Message(value=b'"1"'),
        Message(value=b'{"id":' * 20_000),
        Message(headers=[]),
        Message(id=b"7"),
        Message(version=b"x"),
        Message(version=b"0"),
        Message(version=b"-1"),
        Message(id=None),
    ],
)
def test_a_malformed_message_is_rejected_with_its_reason(message):
    with pytest.raises(LakeError, match="not an event"):
        events.parse_event(message)


def test_a_complete_document_is_an_event():
    assert events.parse_event(Message()).document["id"] == "1"


def changed(document, path, value):
    """Return a copy of a document with another value at a path; `...` removes the value."""
    result = json.loads(json.dumps(document))
    *parents, last = path
    inner = result
    for part in parents:
        inner = inner[part]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return result


INVALID = [
    *[
        ("customers", [name], value, name)
        for name in ("name", "contact", "addresses")
        for value in (..., None, "text")
    ],
    ("customers", ["addresses"], {"city": "Sunrise"}, "addresses"),
    ("customers", ["addresses", 1], "Oak Street", "addresses.1"),
    *[
        ("orders", [name], value, name)
        for name in ("customerId", "orderStatusEvents", "orderItems")
        for value in (..., None, "", [])
    ],
    *[
        ("orders", ["orderStatusEvents", 0, "timestamp"], value, "orderStatusEvents.0.timestamp")
        for value in (..., "1", 1.5, True)
    ],
    (
        "orders",
        ["orderStatusEvents", 0, "orderStatusType"],
        ...,
        "orderStatusEvents.0.orderStatusType",
    ),
    ("orders", ["orderStatusEvents", 0, "orderStatusType"], "SHIPPED", "orderStatusEvents"),
    (
        "orders",
        ["orderStatusEvents"],
        2 * [{"timestamp": 1, "orderStatusType": "CREATED"}],
        "orderStatusEvents",
    ),
    ("orders", ["orderItems", 1], "Red Widget", "orderItems.1"),
    *[
        ("orders", ["orderItems", 1, "quantity"], value, "orderItems.1.quantity")
        for value in (..., "2", True, 0)
    ],
    ("orders", ["orderItems", 1, "product"], ..., "orderItems.1.product"),
    ("orders", ["orderItems", 0, "product", "price"], ..., "orderItems.0.product.price"),
    ("orders", ["orderItems", 0, "product", "price"], 11.99, "orderItems.0.product.price"),
    ("orders", ["orderItems", 0, "product", "price"], "free", "orderItems.0.product.price"),
]


@pytest.mark.parametrize("collection, path, value, field", INVALID)
def test_an_event_with_a_missing_or_invalid_field_is_rejected(collection, path, value, field):
    complete, context = (JOHN, "accounts") if collection == "customers" else (created(), "orders")
    topic, key = domain.ALL[context].topic, complete[domain.ID_FIELDS[collection]]
    message = Message(key.encode(), json.dumps(changed(complete, path, value)).encode())
    message.topic = lambda: topic
    with pytest.raises(LakeError, match=f"^not an event: {field}: "):
        events.parse_event(message)
    message.of[1] = json.dumps(complete).encode()
    assert events.parse_event(message).document == complete


def test_a_service_consumes_what_it_stores_and_can_be_rebuilt():
    for context in domain.ALL.values():
        stored = {domain.TOPICS[topic].owned_collection for topic in context.subscribed_topics}
        assert stored <= set(context.collections)
        assert not context.subscribed_topics or context.topic in context.subscribed_topics
    assert sorted(domain.TOPICS) == [
        "accounts.customer.change",
        "fulfillment.order.change",
        "orders.order.change",
    ]


def total(order):
    """Return the total of its items, exact to the cent."""
    return (
        sum(
            round(100 * float(item["product"]["price"])) * item["quantity"]
            for item in order["orderItems"]
        )
        / 100
    )


def test_the_published_customer_and_the_totals_of_his_orders():
    assert [total(order) for order in (FIRST, SECOND)] == [35.95, 5.99]
    assert re.fullmatch("[0-9a-f]{24}", JOHN["id"])
    assert [address["type"] for address in JOHN["addresses"]] == ["BILLING", "SHIPPING"]
    published = json.loads(
        events.build_event(domain.ACCOUNTS.topic, JOHN["id"], 1, JOHN).to_message()[1]
    )
    assert [address["address2"] for address in published["addresses"]] == [None, None]


def test_a_seed_always_gives_the_same_operations():
    first, repeated, other = (load.random_operations(seed, 300) for seed in (1, 1, 2))
    assert first == repeated and len(first) == 300
    assert not {operation.key for operation in first} & {operation.key for operation in other}
    assert {operation.service for operation in first} == {"accounts", "orders", "fulfillment"}


def test_the_expected_state_has_the_published_fields_of_the_last_version():
    """Of each document: the fields that the last operations set, and one version for each change."""
    operations = load.random_operations(3, 2_000)
    states = load.expected_state(operations)
    for collection, rows in states.items():
        for row in rows.itertuples():
            own = [one for one in operations if one.key == row.id]
            assert tuple(row.document) == domain.PUBLISHED_FIELDS[collection]
            assert row.version == len(own), "each operation changes the document"
            last = own[-1].body
            if collection == "orders":
                assert len(row.document["orderStatusEvents"]) == row.version
                assert row.document["customerId"] == own[0].body["customerId"]
                timestamps = [each["timestamp"] for each in row.document["orderStatusEvents"]]
                assert timestamps == [one.body["timestamp"] for one in own]
            else:
                for field, value in last.items():
                    if field in row.document:
                        stored = row.document[field]
                        merged = {**stored, **value} if isinstance(value, dict) else value
                        assert stored == merged
    assert json.dumps(states["orders"]["document"][0])


@pytest.mark.parametrize("lost, status", [("postgres", 503), ("kafka", 409), ("accounts", 409)])
def test_a_load_names_the_lost_service_and_ends(monkeypatch, lost, status):
    """Operations of `orders` are retried; later operations of the others do not start."""

    def request(world, service, *_, **__):
        return SimpleNamespace(status_code=status if service == "orders" else 200)

    def service_down_error(world, name):
        return ServiceLost(f"the service {name} died") if name == lost else None

    monkeypatch.setattr(load, "request", request)
    monkeypatch.setattr(client.stack, "service_down_error", service_down_error)
    monkeypatch.setattr(wait, "RESTART_GRACE_SECONDS", 0.2)
    operations = sorted(
        load.random_operations(5, 100),
        key=lambda operation: operation.service != "orders",
    )
    started = time.monotonic()
    with pytest.raises(ServiceLost, match=f"the service {lost} died"):
        load.run(params.load("local"), operations, rate=5)
    assert time.monotonic() - started < 10, "less than the twenty seconds of this rate"


@pytest.mark.parametrize("verb", ["status", "load"])
def test_a_command_names_missing_stores_and_the_command_that_creates_them(
    monkeypatch, capsys, verb
):
    monkeypatch.setattr(command_line.postgres, "databases", lambda world: ["postgres"])
    monkeypatch.setattr("sys.argv", ["storefront", verb])
    with pytest.raises(SystemExit) as exit:
        command_line.main()
    error = capsys.readouterr().err
    assert exit.value.code == 1 and "no stores yet" in error and "python -m storefront up" in error


def test_the_status_has_a_line_for_each_service_also_for_one_that_is_down(monkeypatch):
    def call(world, instance, method, path):
        if instance == "orders":
            raise StackError("the service orders is stopped")
        return {"events": "published by the connector"}

    monkeypatch.setattr(command_line.postgres, "databases", lambda world: [*domain.ALL])
    monkeypatch.setattr(command_line.audit, "lag", lambda world: {"orders": 7, "fulfillment": 0})
    monkeypatch.setattr(command_line.client, "call", call)
    monkeypatch.setattr(command_line.client, "running", lambda: ["accounts", "fulfillment_2"])
    result = CliRunner().invoke(command_line.app, ["status"])
    lines = [line.split("  ")[-1] for line in result.stdout.splitlines()]
    connector = "published by the connector, lag 0"
    assert lines == [connector, "the service orders is stopped, lag 7", connector, connector]


def test_a_load_reports_the_lag_and_the_documents_that_differ(monkeypatch):
    asked = []
    monkeypatch.setattr(command_line.postgres, "databases", lambda world: [*domain.ALL])
    monkeypatch.setattr(command_line, "run", lambda w, ops, rate: asked.extend(ops) or 2.5)
    monkeypatch.setattr(command_line.audit, "wait_until_consistent", lambda world: None)
    monkeypatch.setattr(
        command_line.audit,
        "replication_lag",
        lambda world: pandas.DataFrame({"seconds": [0.04] * 9}),
    )
    monkeypatch.setattr(command_line.audit, "find_divergent", lambda world: [])
    result = CliRunner().invoke(command_line.app, ["load", "--changes", "5", "--rate", "0"])
    assert len(asked) == 5 and "5 changes in 2.5 s" in result.stdout
    assert "half within 40 ms" in result.stdout and "differ now: 0" in result.stdout


def test_it_runs_on_one_machine_only():
    local = params.load("local")
    elsewhere = local.model_copy(
        update={"stack": local.stack.model_copy(update={"embedded": False})}
    )
    assert track.TRACK in for_world(local)
    assert track.TRACK not in for_world(elsewhere)
    with pytest.raises(StackError, match="one machine only"):
        setup.require_embedded(elsewhere)


def test_the_track_names_what_the_services_create():
    """`workbench` does not import the package of the services."""
    owned = track.TRACK.owns
    assert owned.topics == (*domain.TOPICS, domain.DLQ_TOPIC)
    subscribers = [context for context in domain.ALL.values() if context.subscribed_topics]
    assert owned.groups == tuple(context.group for context in subscribers)
    config = {name: track.outbox_config(params.load("local"), name) for name in track.CONNECTORS}
    assert [each["database.dbname"] for each in config.values()] == [*domain.ALL]
    assert {each["publication.name"] for each in config.values()} == {domain.PUBLICATION}


def test_a_consumed_batch_is_one_line_in_the_log(monkeypatch, caplog):
    """The line counts the outcomes and the dead letters, which are published with their reasons."""
    published = []
    monkeypatch.setattr(topics, "create", lambda *_, **__: None)
    monkeypatch.setattr(
        topics, "produce", lambda world, topic, records, **_: published.extend(records)
    )
    orders = service.Service(params.load("local"), domain.ORDERS)
    orders._consumer_store = SimpleNamespace(apply_events=lambda events: ["applied"] * len(events))
    malformed = Message(value=b"{")
    malformed.partition = malformed.offset = lambda: 0
    malformed.timestamp = lambda: (1, 0)
    caplog.set_level("INFO", service.__name__)
    orders.consume_batch([Message(), malformed, Message()])
    (line,) = caplog.messages
    assert line == "consumed {'applied': 2}, dead letters: 1"
    assert len(published) == 1


class FakeService:
    """A service, to test the HTTP interface only."""

    context = domain.ACCOUNTS

    errors = {
        "invalid": psycopg.DataError("no jsonb\nCONTEXT: a document"),
        "later": RetryLater("still catching up"),
        "down": psycopg.OperationalError("the server closed the connection"),
        "lost": StackError("the service kafka died"),
    }

    def __init__(self):
        self.done = []

    def health(self):
        return {"status": "UP"}

    def export_metrics(self):
        return b"storefront_lag 0.0"

    def command(self, command, key, body):
        if key in self.errors:
            raise self.errors[key]
        self.done.append(key)
        return {"key": key}


@pytest.fixture(scope="module")
def serving():
    """Yield the port of a running server, and its service."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    fake_service = FakeService()
    config = uvicorn.Config(server.create_app(fake_service, port), port=port, log_config=None)
    web = uvicorn.Server(config)
    thread = threading.Thread(target=web.run, daemon=True)
    thread.start()
    wait.wait_until(lambda: web.started, "the server to listen", timeout=10, interval=0.02)
    yield port, fake_service
    web.should_exit = True
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def shop(serving):
    serving[1].done.clear()
    return serving


def raw(port, text):
    """Send a text on one connection, and return everything until the server closes it."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
        s.sendall(text.encode().replace(b"\n", b"\r\n"))
        return b"".join(iter(lambda: s.recv(65536), b"")).decode()


def test_the_metrics_are_in_the_text_format_of_prometheus(shop):
    answer = requests.get(f"http://127.0.0.1:{shop[0]}/metrics", timeout=10)
    assert answer.text == "storefront_lag 0.0"
    assert answer.headers["Content-Type"].startswith("text/plain; version=")


@pytest.mark.parametrize(
    "text, metrics",
    [
        ("# TYPE queue gauge\nqueue 2.0\n", {"queue": 2}),
        (
            '# TYPE seen_total counter\nseen_total{outcome="stale",topic="a.b"} 3.0\n'
            '# TYPE seen_created gauge\nseen_created{outcome="stale",topic="a.b"} 1.7e+09\n',
            {
                'seen_total{outcome="stale",topic="a.b"}': 3,
                'seen_created{outcome="stale",topic="a.b"}': 1.7e9,
            },
        ),
        (
            '# TYPE t summary\nt_count{topic="a"} 2.0\nt_sum{topic="a"} 0.5\n',
            {'t_count{topic="a"}': 2, 't_sum{topic="a"}': 0.5},
        ),
    ],
)
def test_a_metric_has_the_name_and_the_labels_of_its_line(monkeypatch, text, metrics):
    monkeypatch.setattr(client, "request", lambda *_, **__: SimpleNamespace(text=text))
    assert client.metrics(params.load("local"), "orders") == metrics


@pytest.mark.parametrize(
    "key, status, reason",
    [
        ("invalid", 400, "no jsonb"),
        ("later", 409, "still catching up"),
        ("down", 503, "the server closed the connection"),
        ("lost", 503, "the service kafka died"),
    ],
)
def test_an_error_of_a_command_is_json_with_its_status(shop, key, status, reason):
    url = f"http://127.0.0.1:{shop[0]}/customers"
    answer = requests.post(url, json={"id": key}, timeout=10)
    assert (answer.status_code, answer.json()) == (status, {"detail": reason})


@pytest.mark.parametrize(
    "method, path, status",
    [("POST", "orders", 404), ("GET", "docs", 404), ("DELETE", "customers/1", 405)],
)
def test_an_unknown_command_is_rejected(shop, method, path, status):
    port, fake_service = shop
    answer = requests.request(method, f"http://127.0.0.1:{port}/{path}", json={}, timeout=10)
    assert answer.status_code == status and not fake_service.done


@pytest.mark.parametrize(
    "content_type, body, status",
    [
        ("application/json", '{"id": "john"}', 200),
        ("text/plain", '{"id": "john"}', 422),  # what an HTML form can send
        ("", '{"id": "john"}', 422),
        ("application/json", "[]", 422),
        ("application/json", "{", 422),
    ],
)
def test_a_body_that_is_no_json_object_is_rejected(shop, content_type, body, status):
    port, fake_service = shop
    headers = {"Content-Type": content_type} if content_type else {}
    url = f"http://127.0.0.1:{port}/customers"
    assert requests.post(url, data=body, headers=headers, timeout=10).status_code == status
    assert fake_service.done == (["john"] if status == 200 else [])


@pytest.mark.parametrize(
    "fault, status",
    [
        ({"at": "after_commit", "after": 2}, 200),
        ({"at": "nowhere"}, 422),
        ({"at": "after_commit", "after": 0}, 422),
        ({"at": "after_commit", "afer": 2}, 422),
    ],
)
def test_an_invalid_fault_is_rejected(shop, fault, status):
    answer = requests.post(f"http://127.0.0.1:{shop[0]}/faults", json=fault, timeout=10)
    assert answer.status_code == status
    assert status == 422 or answer.json() == fault


@pytest.mark.parametrize(
    "length",
    [
        "Content-Length: x",
        "Content-Length: -5",
        "Content-Length: 0\nContent-Length: 200",
        "Transfer-Encoding: chunked",
    ],
)
def test_a_body_of_unknown_length_is_not_read_as_the_next_request(shop, length):
    port, fake_service = shop
    hidden = f"POST /customers HTTP/1.1\nHost: 127.0.0.1:{port}\nContent-Type: application/json\nContent-Length: 13\n\n"
    responses = raw(
        port,
        f'POST /customers HTTP/1.1\nHost: 127.0.0.1:{port}\n{length}\n\n{hidden}{{"id": "evil"}}',
    )
    assert responses.count("HTTP/1.1 ") == 1 and responses.startswith("HTTP/1.1 400 ")
    assert fake_service.done == []


@pytest.mark.parametrize(
    "host, origin, status",
    [
        ("127.0.0.1:{port}", None, 200),
        ("localhost:{port}", None, 200),
        ("localhost:{port}", "http://localhost:{port}", 200),
        ("evil.example:{port}", None, 403),
        ("127.0.0.1:1", None, 403),
        ("127.0.0.1", None, 403),
        ("evil.example:{port}", "http://evil.example:{port}", 403),
        ("127.0.0.1:{port}", "http://evil.example", 403),
        ("127.0.0.1:{port}", "null", 403),
        ("127.0.0.1:{port}@evil.example", None, 403),
        ("127.0.0.1:{port}\nHost: evil.example", None, 400),  # invalid HTTP
    ],
)
@pytest.mark.parametrize("request_line", ["GET /health", "POST /customers"])
def test_a_request_of_a_foreign_page_is_rejected(shop, host, origin, status, request_line):
    port, fake_service = shop
    lines = [
        f"{request_line} HTTP/1.1",
        f"Host: {host.format(port=port)}",
        "Content-Type: application/json",
        "Connection: close",
    ]
    lines += [f"Origin: {origin.format(port=port)}"] if origin else []
    body = '{"id": "john"}'
    responses = raw(port, "\n".join([*lines, f"Content-Length: {len(body)}", "", body]))
    assert responses.startswith(f"HTTP/1.1 {status} ")
    assert fake_service.done == (
        ["john"] if status == 200 and request_line.startswith("POST") else []
    )


@pytest.mark.parametrize("path", ["nothing", "customers"])  # no path, and no command of this path
def test_a_foreign_page_does_not_learn_which_commands_exist(shop, path):
    response = requests.get(
        f"http://127.0.0.1:{shop[0]}/{path}", headers={"Host": "evil.example"}, timeout=10
    )
    assert (response.status_code, "Found" in response.text) == (403, False)


def test_a_store_is_wiped_only_after_its_offsets_are_deleted(monkeypatch):
    """With its offsets, a wiped store would stay empty: nothing would be consumed again."""
    world, calls = params.load("local"), []
    monkeypatch.setattr(setup.client, "stop", lambda *names: calls.append("stop"))
    monkeypatch.setattr(setup.groups, "delete", lambda *args: calls.append("forget"))
    monkeypatch.setattr(
        setup.postgres, "execute", lambda *args, **options: calls.append("truncate")
    )
    setup.wipe_store(world, "orders")
    assert calls == ["stop", "forget", "truncate"]

    def unconfirmed(*args):
        raise StackError("the service kafka died")

    calls.clear()
    monkeypatch.setattr(setup.groups, "delete", unconfirmed)
    with pytest.raises(StackError, match="kafka died"):
        setup.wipe_store(world, "orders")
    assert calls == ["stop"]


def test_waiting_names_a_lost_kafka_before_it_queries_a_service(monkeypatch):
    """A service asked for its metrics looks for Kafka for seconds, two of them in turn: the whole
    took 12 s."""
    monkeypatch.setattr(wait, "RESTART_GRACE_SECONDS", 0.1)
    monkeypatch.setattr(audit, "metrics", lambda *_: pytest.fail("a service is asked"))
    with pytest.raises(ServiceLost, match="the service kafka is stopped"):
        audit.wait_until_consistent(params.load("local"))
