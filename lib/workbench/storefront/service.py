"""The process of a service, `python -m workbench.storefront.service <world> <name> <address>`: commands over HTTP on
loopback, a listener on topics, health and metrics. Several instances of a service share its store and its topics.

    POST /customers · PATCH /customers/<id> · POST /orders · POST /orders/<guid>/status    commands, see contexts
    GET /customers/<id> · /orders/<guid>    a document and its version      GET /health · /metrics
    POST /faults    {"at": one of FAULTS, "after": 2}: the process kills itself at that point, for the second time it
                    comes there
"""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Optional

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from prometheus_client import CollectorRegistry, Counter, Gauge, Summary, generate_latest

from ..base import LakeError, SourceError, StackError, WorkbenchError, World, first_line, params, wait
from ..topic import dlq, groups, topics
from . import contexts
from .contexts import DEAD_LETTERS, Context, Refused
from .events import Event, parse
from .store import Store, key_of

FAULTS = ("stored", "heard", "taken")  # after a command's commit; before events are stored; before they are committed
BATCH, LARGEST = 500, 1 << 20  # messages at once; bytes of a command


class Service:
    """What a service does; the handler and the listener below call it."""

    def __init__(self, world: World, context: Context):
        self.world, self.context = world, context
        self.store, self._heard = Store(world, context), Store(world, context)
        # as Java's clients choose the partition of a key, and so the connector: one key, one partition, whoever sends
        self.producer = Producer(topics.settings(world, **{
            "enable.idempotence": True, "linger.ms": 2, "partitioner": "murmur2_random"}))
        self.listens = threading.Event()
        self._fault: dict[str, int] = {}
        self.metrics = CollectorRegistry()
        told = {"registry": self.metrics, "namespace": "storefront"}
        self.said = Counter("events_said", "Events in the outbox", ["topic"], **told)
        self.sent = Counter("events_sent", "Events that Kafka has from this process", ["topic"], **told)
        self.heard = Counter("events_heard", "Events, by what became of them", ["topic", "outcome"], **told)
        self.listener = Summary("listener_seconds", "Time that an event took, its share of a batch", ["topic"], **told)
        self.lag = Gauge("lag", "Events of a topic that the service has not taken yet", ["topic"], **told)
        self.unsent = Gauge("unsent", "Events that Kafka is to get from this process yet", **told)
        if not context.hears:
            self.listens.set()

    def command(self, method: str, path: str, key: str, body: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked: change the document; then send the event, where no connector does.

        These are two acts. A process that ends between them has said something that nobody hears.
        """
        edit = self.context.commands[method, path]
        version, event, own = self.store.change(key, lambda before: edit(before, body))
        if event:
            self.point("stored")
            self.said.labels(event.topic).inc()
        if event and own:
            key_, value, more = event.message()
            self.producer.produce(event.topic, value, key_, on_delivery=self._delivered, **more)
        return {"key": key, "version": version, "event": event.id if event else None}

    def _delivered(self, error: Optional[KafkaError], message: Any) -> None:
        if error:
            _log(f"an event is lost: {message.topic()} {message.key()!r}: {error.str()}")
        else:
            self.sent.labels(message.topic()).inc()

    def hear(self, messages: list[Any]) -> None:
        """Take a batch of messages: the store first, then the offsets. What is no event goes to the dead letters.

        Raises: psycopg.Error, WorkbenchError: the store does not take them, or Kafka no dead letter: try again.
        """
        begun, events = time.monotonic(), []
        self.point("heard")
        for message in messages:
            try:
                events.append((message, parse(message)))
            except LakeError as e:
                self._dead(message, first_line(e))
        try:
            outcomes = self._heard.hear([event for _, event in events])
        except psycopg.DataError:  # one of them holds what no store can keep: find it
            outcomes = [self._alone(*each) for each in events]
        for (message, _), outcome in zip(events, outcomes):
            self.heard.labels(message.topic(), outcome).inc()
            self.listener.labels(message.topic()).observe((time.monotonic() - begun) / len(messages))
        self.point("taken")

    def _alone(self, message: Any, event: Event) -> str:
        try:
            return self._heard.hear([event])[0]
        except psycopg.DataError as e:
            self._dead(message, first_line(e))
            return "dead"

    def _dead(self, message: Any, reason: str) -> None:
        topics.send(self.world, DEAD_LETTERS, [dlq.letter(message, self.context.group, __name__, reason)], **dlq.SIZE)

    def listen(self, told: threading.Event) -> None:
        """Hear the topics until told to stop."""
        consumer = Consumer(topics.settings(self.world, **{
            "group.id": self.context.group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
            "allow.auto.create.topics": False, "fetch.wait.max.ms": 50,
            # so long what a killed one had is nobody's, its own successor's neither
            "session.timeout.ms": 2_000, "heartbeat.interval.ms": 500}))
        consumer.subscribe([*self.context.hears], on_assign=lambda *_: self.listens.set())
        while not told.is_set():
            batch = [m for m in consumer.consume(BATCH, 0.05) if not m.error()]
            try:
                if batch:
                    self.hear(batch)
                    consumer.commit(asynchronous=False)
            except (psycopg.Error, WorkbenchError, KafkaException) as e:
                _log(f"tried again: {first_line(e)}")
                _back(consumer, batch)
                told.wait(0.5)
        consumer.close()

    def scrape(self) -> bytes:
        """The metrics, in Prometheus' text format."""
        for topic, behind in groups.lag(self.world, self.context.group, *self.context.hears).items():
            self.lag.labels(topic).set(behind)
        self.unsent.set(len(self.producer))
        return generate_latest(self.metrics)

    def health(self) -> dict[str, Any]:
        """Raises: Refused: it does not listen yet. SourceError: its store does not answer."""
        if not self.listens.is_set():
            raise Refused("it does not listen yet", again=True)
        with self.store.transaction() as c:
            connector = c.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [contexts.PUBLICATION]).fetchone()
        return {"service": self.context.name, "status": "UP",
                "events": "sent by a connector" if connector else "sent here"}

    def point(self, name: str) -> None:
        """A point where the process may be told to kill itself."""
        if name in self._fault:
            self._fault[name] -= 1
            if not self._fault[name]:
                os.kill(os.getpid(), signal.SIGKILL)

    def arm(self, at: str, after: int) -> dict[str, Any]:
        if at not in FAULTS or type(after) is not int or after < 1:
            raise Refused(f"at is one of {', '.join(FAULTS)}, after a whole number from 1")
        self._fault[at] = after
        return {"at": at, "after": after}


def _back(consumer: Consumer, batch: list[Any]) -> None:
    """To the first message of the batch, in each partition: they are heard once more."""
    for message in reversed(batch):
        try:
            consumer.seek(TopicPartition(message.topic(), message.partition(), message.offset()))
        except KafkaException:  # by now the partition is another instance's, which begins at what was committed
            continue


def _log(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} {text}", flush=True)


class Handler(BaseHTTPRequestHandler):
    """HTTP, to the methods of a Service."""

    protocol_version = "HTTP/1.1"  # a client keeps its connection
    wbufsize, disable_nagle_algorithm = 1 << 16, True  # an answer is one packet
    service: Service

    def _answer(self) -> None:
        try:
            status, body = 200, self._asked()
        except Refused as e:
            status, body = (409 if e.again else 400), {"refused": str(e)}
        except psycopg.errors.UniqueViolation:
            status, body = 409, {"refused": "another instance makes it just now"}
        except (psycopg.Error, WorkbenchError) as e:
            status, body = 503, {"refused": first_line(e)}
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if raw is body else "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST = do_PATCH = _answer

    def _asked(self) -> Any:
        service, (collection, _, rest) = self.service, self.path.strip("/").partition("/")
        key, _, part = rest.partition("/")
        body = self._body()
        plain = {("GET", "health"): service.health, ("GET", "metrics"): service.scrape}
        if (self.command, self.path.strip("/")) in plain:
            return plain[self.command, self.path.strip("/")]()
        if (self.command, collection) == ("POST", "faults"):
            return service.arm(body.get("at"), body.get("after", 1))
        if self.command == "GET" and collection in service.context.collections and key:
            version, document = service.store.document(collection, key) or (0, None)
            return {"version": version, "document": document}
        asked = (self.command, ("id/" + part).strip("/") if key else "")
        if collection != service.context.owns or asked not in service.context.commands:
            raise Refused(f"{service.context.name} knows no {self.command} {self.path}")
        key = key or key_of(service.context, body)
        if not isinstance(key, str) or not key:
            raise Refused(f"a new one says its {contexts.KEYS[collection]}, a text")
        return service.command(*asked, key, body)

    def _body(self) -> dict[str, Any]:
        """What was sent. Only what says that it is JSON: no page in a browser can send that to another address."""
        length = int(self.headers.get("Content-Length") or 0)
        if length > LARGEST:
            self.close_connection = True
            raise Refused(f"more than {LARGEST:,} bytes")
        raw = self.rfile.read(length)
        if not raw and self.command == "GET":
            return {}
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if not isinstance(body, dict) or self.headers.get_content_type() != "application/json":
            raise Refused("the body is no JSON object, or its Content-Type does not say application/json")
        return body

    def log_message(self, *_: Any) -> None:
        """Nothing: what went wrong is logged where it did."""


def main(name: str, context: str, address: str) -> None:
    """Run a service until TERM: then what was sent is flushed, and the consumer leaves its group."""
    world = params.load(name)
    service = Service(world, contexts.ALL[context])
    handler = type("Handler", (Handler,), {"service": service})
    with wait.told_to_stop() as told:
        try:
            with service.store.transaction():
                pass
        except SourceError as e:
            raise StackError(f"the store of {context} does not answer: {e.what}", where=e.where,
                             next_step="`workbench storefront up` makes it") from e
        server = ThreadingHTTPServer(params.host_port(address), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        listener = threading.Thread(target=service.listen, args=[told])
        if service.context.hears:
            listener.start()
        while not told.is_set():
            service.producer.poll(0.2)  # it tells what became of what was sent
        server.shutdown()
        if service.context.hears:
            listener.join()
        service.producer.flush(10)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except WorkbenchError as e:
        sys.exit(str(e))
