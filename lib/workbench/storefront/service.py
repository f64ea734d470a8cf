"""The process of a service, `python -m workbench.storefront.service <world> <name> <address>`:
commands over HTTP on loopback, a listener on topics, health and metrics. Several instances of a
service share its store and its topics.

    POST /customers · PATCH /customers/<id> · POST /orders · POST /orders/<guid>/status    commands,
    see contexts GET /health · /metrics
    POST /faults    {"at": one of FAULTS, "after": 2}: the process kills itself at that point, for
    the second time it
                    comes there
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Optional
from urllib.parse import unquote

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from prometheus_client import CollectorRegistry, Counter, Gauge, Summary, generate_latest

from .. import stack
from ..base import LakeError, WorkbenchError, World, first_line, params, split_host_port, wait
from ..topic import dlq, groups, topics
from . import contexts
from .contexts import DLQ_TOPIC, CommandRejected, Context
from .events import MAX_NESTING_LEVELS, Event, is_too_deep, parse_event
from .store import Store, connector_publishes

# Behind a command's commit; of a batch of events: before its transaction, in it, between it and the
# offsets.
FAULT_POINTS = ("stored", "heard", "storing", "taken")
BATCH_SIZE, MAX_BODY_BYTES, MAX_KEY_LENGTH = (
    500,
    1 << 20,
    200,
)  # messages at once; bytes of a command; characters of a key
NON_RETRYABLE_ERRORS = (
    psycopg.DataError,
    psycopg.errors.ProgramLimitExceeded,
)  # what no store can keep: it is never tried again


class Service:
    """What a service does; the handler and the listener below call it."""

    def __init__(self, world: World, context: Context):
        self.world, self.context = world, context
        self.store, self._consumer_store = Store(world, context), Store(world, context)
        # as Java's clients choose the partition of a key, and so the connector: one key, one
        # partition, whoever sends
        self.producer = Producer(
            topics.settings(
                world,
                **{"enable.idempotence": True, "linger.ms": 2, "partitioner": "murmur2_random"},
            )
        )
        self.caught_up, self.command_lock = threading.Event(), threading.Lock()
        self._armed_faults: dict[str, int] = {}
        self.metrics = CollectorRegistry()
        told = {"registry": self.metrics, "namespace": "storefront"}
        self.events_published = Counter("events_said", "Events in the outbox", ["topic"], **told)
        self.events_delivered = Counter(
            "events_sent", "Events that Kafka has from this process", ["topic"], **told
        )
        self.events_consumed = Counter(
            "events_heard", "Events, by what became of them", ["topic", "outcome"], **told
        )
        self.event_seconds = Summary(
            "listener_seconds", "Time that an event took, its share of a batch", ["topic"], **told
        )
        self.lag = Gauge(
            "lag", "Events of a topic that the service has not taken yet", ["topic"], **told
        )
        unsent = Gauge("unsent", "Events that Kafka is to get from this process yet", **told)
        unsent.set_function(lambda: len(self.producer))
        if not context.subscribed_topics:
            self.caught_up.set()

    def command(self, method: str, path: str, key: str, body: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked: change the document; then send the event, where no connector does.

        These are two acts. A process that ends between them has said something that nobody hears.
        """
        edit = self.context.commands[method, path]
        self.require_caught_up()
        with (
            self.command_lock
        ):  # events of one key are sent in the order of their versions, and at the end all of them
            version, event, own = self.store.change(key, lambda before: edit(before, body))
            if event:
                self.fault_point("stored")
                self.events_published.labels(event.topic).inc()
            if event and own:
                self._publish(event)
        return {"key": key, "version": version, "event": event.id if event else None}

    def _publish(self, event: Event) -> None:
        key, value, more = event.to_message()
        try:
            self.producer.produce(event.topic, value, key, on_delivery=self._on_delivery, **more)
        except (KafkaException, BufferError) as e:
            _log(f"an event is lost: {event.topic} {key!r}: {first_line(e)}")

    def _on_delivery(self, error: Optional[KafkaError], message: Any) -> None:
        if error:
            _log(f"an event is lost: {message.topic()} {message.key()!r}: {error.str()}")
        else:
            self.events_delivered.labels(message.topic()).inc()

    def consume_batch(self, messages: list[Any]) -> None:
        """Take a batch of messages: the store first, then the offsets. What is no event goes to the
        dead letters.

        Raises: psycopg.Error, WorkbenchError: the store does not take them, or Kafka no dead
            letter: try again.
        """
        begun, events = time.monotonic(), []
        dead: list[
            tuple[Any, str]
        ] = []  # sent when the store has the others: a batch may be tried again
        self.fault_point("heard")
        for message in messages:
            try:
                events.append((message, parse_event(message)))
            except LakeError as e:
                dead.append((message, first_line(e)))
        try:
            outcomes = self._consumer_store.apply_events(
                [event for _, event in events], lambda: self.fault_point("storing")
            )
        except NON_RETRYABLE_ERRORS:  # one of them: find it
            outcomes = [self._apply_single(*each, dead) for each in events]
        if dead:
            topics.produce(
                self.world,
                DLQ_TOPIC,
                [
                    dlq.to_record(message, self.context.group, __name__, why)
                    for message, why in dead
                ],
                **dlq.PRODUCER_SETTINGS,
            )
        for (message, _), outcome in zip(events, outcomes):
            self.events_consumed.labels(message.topic(), outcome).inc()
            self.event_seconds.labels(message.topic()).observe(
                (time.monotonic() - begun) / len(messages)
            )
        self.fault_point("taken")

    def _apply_single(self, message: Any, event: Event, dead: list[tuple[Any, str]]) -> str:
        try:
            return self._consumer_store.apply_events([event])[0]
        except NON_RETRYABLE_ERRORS as e:
            dead.append((message, first_line(e)))
            return "dead"

    def run_consumer(self, told: threading.Event) -> None:
        """Hear the topics until told to stop."""
        consumer = Consumer(
            topics.settings(
                self.world,
                **{
                    "group.id": self.context.group,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    # else what was handed out counts as heard, also of a batch that failed
                    "enable.auto.offset.store": False,
                    "allow.auto.create.topics": False,
                    "fetch.wait.max.ms": 50,
                    # so long what a killed one had is nobody's, its own successor's neither
                    "session.timeout.ms": 2_000,
                    "heartbeat.interval.ms": 500,
                },
            )
        )
        assigned = threading.Event()
        consumer.subscribe([*self.context.subscribed_topics], on_assign=lambda *_: assigned.set())
        while not told.is_set():
            batch = [
                m
                for m in consumer.consume(BATCH_SIZE, 0.05)
                if not m.error() or _log(f"Kafka: {m.error()}")
            ]
            try:
                if batch:
                    self.consume_batch(batch)
                    last = {(m.topic(), m.partition()): m.offset() + 1 for m in batch}
                    consumer.commit(
                        offsets=[TopicPartition(*at, n) for at, n in last.items()],
                        asynchronous=False,
                    )
                if (
                    assigned.is_set()
                    and not self.caught_up.is_set()
                    and not any(self._lag_by_topic().values())
                ):
                    self.caught_up.set()
            except (psycopg.Error, WorkbenchError, KafkaException) as e:
                _log(f"tried again: {first_line(e)}")
                _seek_to_batch_start(consumer, batch)
                told.wait(0.5)
        consumer.close()

    def export_metrics(self) -> bytes:
        """The metrics, in Prometheus' text format."""
        with contextlib.suppress(WorkbenchError):  # Kafka is away: the last figures
            for topic, behind in (
                self._lag_by_topic().items()
                if not stack.process_down_error(self.world, "kafka")
                else ()
            ):
                self.lag.labels(topic).set(behind)
        return generate_latest(self.metrics)

    def _lag_by_topic(self) -> dict[str, int]:
        return (
            groups.lag(self.world, self.context.group, *self.context.subscribed_topics)
            if self.context.subscribed_topics
            else {}
        )

    def require_caught_up(self) -> None:
        """Raises: Refused: it has not heard all yet that was said before it was started."""
        if not self.caught_up.is_set():
            raise CommandRejected("it has not heard all yet that was said", retryable=True)

    def health(self) -> dict[str, Any]:
        """Raises: Refused: as `ready`. SourceError: its store does not answer."""
        self.require_caught_up()
        with self.store.transaction() as c:
            connector = connector_publishes(c)
        return {
            "service": self.context.name,
            "status": "UP",
            "events": "sent by a connector" if connector else "sent here",
        }

    def fault_point(self, name: str) -> None:
        """A point where the process may be told to kill itself."""
        if name in self._armed_faults:
            self._armed_faults[name] -= 1
            if not self._armed_faults[name]:
                os.kill(os.getpid(), signal.SIGKILL)

    def arm_fault(self, at: str, after: int) -> dict[str, Any]:
        points = FAULT_POINTS if self.context.subscribed_topics else FAULT_POINTS[:1]
        if at not in points or type(after) is not int or after < 1:
            raise CommandRejected(f"at is one of {', '.join(points)}, after a whole number from 1")
        self._armed_faults[at] = after
        return {"at": at, "after": after}


def _seek_to_batch_start(consumer: Consumer, batch: list[Any]) -> None:
    """To the first message of the batch, in each partition: they are heard once more."""
    for message in reversed(batch):
        try:
            consumer.seek(TopicPartition(message.topic(), message.partition(), message.offset()))
        except (
            KafkaException
        ):  # by now the partition is another instance's, which begins at what was committed
            continue


def _log(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} {text}", flush=True)


class ForeignRequest(CommandRejected):
    """A request of a web page from elsewhere: it names another host, or another origin."""


class Handler(BaseHTTPRequestHandler):
    """HTTP, to the methods of a Service."""

    protocol_version = "HTTP/1.1"  # a client keeps its connection
    wbufsize, disable_nagle_algorithm = 1 << 16, True  # an answer is one packet
    service: Service

    def _handle_request(self) -> None:
        try:
            body_sent = self._read_body()
            self._reject_foreign()
            status, body = 200, self._route(body_sent)
        except ForeignRequest as e:
            status, body = 403, {"refused": str(e)}
        except CommandRejected as e:
            status, body = (409 if e.retryable else 400), {"refused": str(e)}
        except (*NON_RETRYABLE_ERRORS, ValueError, RecursionError) as e:
            status, body = 400, {"refused": first_line(e)}
        except (psycopg.Error, WorkbenchError) as e:
            status, body = 503, {"refused": first_line(e)}
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if raw is body else "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST = do_PATCH = _handle_request

    def _reject_foreign(self) -> None:
        """Refuse what a web page sends whose host name resolves to 127.0.0.1 (DNS rebinding), or
        from another origin.

        Raises:
            Foreign: Host or Origin is not this service's.
        """
        port = self.server.server_address[1]
        own = (f"127.0.0.1:{port}", f"localhost:{port}")
        if self.headers.get_all("Host") not in [[host] for host in own]:
            raise ForeignRequest("it answers to 127.0.0.1 and localhost only")
        if self.headers.get_all("Origin", []) not in [[], *([f"http://{host}"] for host in own)]:
            raise ForeignRequest("it answers to no web page of another origin")

    def _route(self, body: dict[str, Any]) -> Any:
        service, (collection, _, rest) = self.service, self.path.strip("/").partition("/")
        key, _, part = rest.partition("/")
        key = unquote(key)
        own = {
            ("GET", "health"): service.health,
            ("GET", "metrics"): service.export_metrics,
            ("POST", "faults"): lambda: service.arm_fault(body.get("at"), body.get("after", 1)),
        }
        if (self.command, collection) in own:
            return own[self.command, collection]()
        asked = (self.command, ("id/" + part).strip("/") if key else "")
        if collection != service.context.owned_collection or asked not in service.context.commands:
            raise CommandRejected(f"{service.context.name} knows no {self.command} {self.path}")
        key = key or body.get(contexts.ID_FIELDS[collection])
        if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_LENGTH:
            raise CommandRejected(
                f"a new one says its {contexts.ID_FIELDS[collection]}, a text of at most {MAX_KEY_LENGTH} characters"
            )
        return service.command(*asked, key, body)

    def _read_body(self) -> dict[str, Any]:
        """What was sent. Where its length is not known, the connection ends: the rest would pass
        for a request.

        Raises:
            Refused: the length is missing or too large, or the body is no JSON object.
        """
        stated = self.headers.get_all("Content-Length", ["0"])
        digits = len(stated) == 1 and stated[0].isascii() and stated[0].isdigit()
        if not digits or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise CommandRejected(
                "Content-Length is not one whole number, or there is a Transfer-Encoding"
            )
        length = int(
            stated[0].lstrip("0")[:20] or 0
        )  # of thousands of digits Python makes no number
        if length > MAX_BODY_BYTES:
            self.close_connection = True
            raise CommandRejected(f"more than {MAX_BODY_BYTES:,} bytes")
        raw = self.rfile.read(length)
        if not raw and self.command == "GET":
            return {}
        body = json.loads(raw)
        if (
            not isinstance(body, dict) or self.headers.get_content_type() != "application/json"
        ):  # as no form of a page
            raise CommandRejected(
                "the body is no JSON object, or its Content-Type does not say application/json"
            )
        if is_too_deep(body):
            raise CommandRejected(f"the body is nested more than {MAX_NESTING_LEVELS} levels deep")
        return body

    def log_message(self, *_: Any) -> None:
        """Nothing: what went wrong is logged where it did."""


def main(name: str, context: str, address: str) -> None:
    """Run a service until TERM: then what was sent is flushed, and the consumer leaves its
    group.
    """
    world = params.load(name)
    service = Service(world, contexts.ALL[context])
    handler = type("Handler", (Handler,), {"service": service})
    with wait.stop_on_signal() as told:
        with service.store.transaction():  # no store, no service: it ends at once
            pass
        server = ThreadingHTTPServer(split_host_port(address), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        listener = threading.Thread(
            target=lambda: (
                service.run_consumer(told) if service.context.subscribed_topics else told.wait()
            )
        )
        listener.start()
        while not told.is_set() and listener.is_alive():
            service.producer.poll(0.2)  # it tells what became of what was sent
        server.shutdown()
        service.command_lock.acquire()  # from now on no command is done
        listener.join()
        service.producer.flush(10)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except WorkbenchError as e:
        sys.exit(f"{e}\n  its store: `workbench storefront up` makes what is missing")
