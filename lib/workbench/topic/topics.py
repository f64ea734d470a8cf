"""Read, write, create and delete the topics of a Kafka cluster.

Consumers assign partitions and commit no offsets, so they do not affect consumer groups. Only
`create` creates a topic: the consumers disable auto-creation, and admin clients request the list of
all topics instead of a single topic.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Optional,
    Sequence,
    TypeVar,
    Union,
)

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from .. import connect, stack
from ..base import LakeError, StackError, WorkbenchError, World, did_you_mean, wait_until
from . import kafka_iam

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
Message = Any  # confluent_kafka.Message; its type stubs declare every field optional
COLUMNS = ["topic", "partition", "offset", "timestamp", "key", "value"]
# Options of Spark with which an embedded Kafka that is down is reported within 15 s, by default after minutes.
# Elsewhere the defaults outlast a broker's restart and the election of a leader.
EMBEDDED_LIMITS = {
    "kafka.request.timeout.ms": "7000",
    "kafka.default.api.timeout.ms": "7000",
    "fetchOffset.numRetries": "2",
    "kafkaConsumer.pollTimeoutMs": "15000",
    "kafka.max.block.ms": "15000",
    "kafka.delivery.timeout.ms": "15000",
}
TIMEOUT_SECONDS = 10
RENEW_SECONDS = 2  # without a message, until a new consumer replaces one that has been used
ATTEMPT_SECONDS = 1.0  # length of one attempt
RETRY_SECONDS = 0.05  # between two attempts
STOP_CHECK_SECONDS = 0.1  # interval at which a waiting consumer checks for a stop
MESSAGES_PER_S = 500  # the slowest capture that is waited for
MAX_IN_FLIGHT = 10_000  # unacknowledged messages of a producer
TRANSIENT_ERRORS = (
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    # a new topic has no leader for a moment
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)
# {error with which the broker or the client rejects a message: hint}
PRODUCE_ERROR_HINTS = {
    KafkaError.MSG_SIZE_TOO_LARGE: "the limits are message.max.bytes of the producer and max.message.bytes of the "
    "topic",
    KafkaError.INVALID_TIMESTAMP: "a timestamp is at most message.timestamp.after.max.ms (an hour) ahead of the broker",
}


def settings(world: World, **overrides: Any) -> dict[str, Any]:
    """Return the settings of a confluent_kafka client for the environment's Kafka.

    The client does not log to stderr, because StackError reports an unavailable broker.

    Args:
        world: the environment profile.
        overrides: settings to add or to replace.

    Raises:
        StackError: there are no credentials for MSK.
    """
    auth_settings = kafka_iam.settings(world) if uses_iam(world) else {}
    return {
        "bootstrap.servers": world.kafka.bootstrap,
        "security.protocol": world.kafka.security_protocol,
        "log_level": 0,
        **auth_settings,
        **overrides,
    }


def uses_iam(world: World) -> bool:
    """Return whether the environment's Kafka is MSK, with access control by IAM."""
    return world.kafka.security_protocol == "SASL_SSL"


def spark_options(world: World) -> dict[str, str]:
    """Return the connection options of Spark's Kafka source for the environment's Kafka.

    With MSK, Spark authenticates with its own role, which requires Amazon's jar aws-msk-iam-auth.
    """
    auth_settings = kafka_iam.JAVA_CLIENT_PROPERTIES if uses_iam(world) else {}
    return {
        "kafka.bootstrap.servers": world.kafka.bootstrap,
        "kafka.security.protocol": world.kafka.security_protocol,
        # The default, read_uncommitted, also returns messages of aborted transactions, which must not
        # reach the lake.
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
        **(EMBEDDED_LIMITS if world.manages("kafka") else {}),
        **{f"kafka.{key}": value for key, value in auth_settings.items()},
    }


def error_code(error: KafkaException) -> int:
    """Return Kafka's code of an error, such as KafkaError._TIMED_OUT."""
    return int(error.args[0].code())


@contextlib.contextmanager
def translate_errors(world: World, location: str = "") -> Iterator[None]:
    """Translate the errors of a Kafka client to errors of the workbench.

    Args:
        world: the environment profile.
        location: location of the error, such as the topic; by default the bootstrap servers.

    Raises:
        StackError: Kafka does not respond. If Kafka is a service of this instance, the error reports
            its state.
        LakeError: Kafka rejects a message that is too large or has a timestamp too far in the
            future.
    """
    try:
        yield
    except KafkaException as e:
        reason = e.args[0].str()
        hint = PRODUCE_ERROR_HINTS.get(error_code(e))
        if hint:
            raise LakeError(
                f"Kafka rejects a message: {reason}", location=location, hint=hint
            ) from e
        raise _unavailable_error(
            world,
            f"Kafka does not answer: {reason}",
            location or world.kafka.bootstrap,
            "run `workbench status`, then `workbench up`",
        ) from e


def _unavailable_error(world: World, message: str, location: str, hint: str) -> StackError:
    """Return the error for a Kafka cluster that does not respond.

    If the cause is known (the service is down, or the credentials have expired), the error reports
    the cause.
    """
    if uses_iam(world):
        kafka_iam.token(world)  # raises an error if there are no valid credentials
        hint = kafka_iam.ACCESS_HINT
    return stack.service_down_error(world, "kafka") or StackError(
        message, location=location, hint=hint
    )


def call_with_deadline(call: Callable[[float], T]) -> T:
    """Return the result of a blocking client call, which is repeated for up to TIMEOUT_SECONDS.

    Args:
        call: the client call; its argument is the time limit of one attempt in seconds.

    Raises:
        KafkaException: the error of the last attempt.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return call(ATTEMPT_SECONDS)
        except KafkaException as e:
            if error_code(e) not in TRANSIENT_ERRORS or time.monotonic() >= deadline:
                raise
        threading.Event().wait(RETRY_SECONDS)


def await_result(future: Future[T]) -> T:
    """Return the result of an admin client's request.

    Raises:
        KafkaException: the request failed.
    """
    try:
        return future.result(TIMEOUT_SECONDS)
    except FutureTimeout:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None


def names(world: World) -> list[str]:
    """Return the names of all topics, without the internal topics of Kafka, MSK and MSK Connect."""
    with borrow_consumer(world) as consumer, translate_errors(world):
        metadata = call_with_deadline(lambda seconds: consumer.list_topics(timeout=seconds))
    internal = ("__consumer", "__amazon_msk")
    return sorted(topic for topic in metadata.topics if not topic.startswith(internal))


def watermark_offsets(world: World, topic: str) -> dict[int, tuple[int, int]]:
    """Return {partition: (offset of the first available message, end offset)} of a topic.

    Every step of an ingest calls this function; it takes a millisecond. An admin client's list of
    offsets fails for a topic that was just created.

    Raises:
        LakeError: there is no such topic.
    """

    def fetch(seconds: float) -> dict[int, tuple[int, int]]:
        metadata = consumer.list_topics(topic, timeout=seconds).topics[topic]
        if metadata.error:
            raise KafkaException(metadata.error)
        return {
            partition: consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=seconds
            )
            for partition in metadata.partitions
        }

    with borrow_consumer(world) as consumer, translate_errors(world):
        try:
            return call_with_deadline(fetch)
        except KafkaException as e:
            if error_code(e) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    raise LakeError(
        f"there is no topic {topic!r}",
        location=world.kafka.bootstrap,
        expected=did_you_mean(topic, names(world)),
        hint="the first message creates the topic: is the connector RUNNING? (connect.status)",
    )


def end_offsets(world: World, topic: str) -> dict[int, int]:
    """Return {partition: end offset} of a topic.

    `read(start_offsets=…)` reads later messages from these offsets. Raises as `watermark_offsets`.
    """
    return {partition: end for partition, (_, end) in watermark_offsets(world, topic).items()}


def offset_span(world: World, topic: str) -> int:
    """Return the number of offsets in a topic: end minus beginning, summed over its partitions.

    The result is the number of messages, unless the topic is compacted or has transactions. Raises
    as `watermark_offsets`.
    """
    return sum(high - low for low, high in watermark_offsets(world, topic).values())


def all_end_offsets(
    world: World, is_chosen: Callable[[str], bool]
) -> dict[str, tuple[str, dict[int, int]]]:
    """Return {topic: (Kafka's id, {partition: end offset})} of many topics.

    The first request is not repeated, and ends after ATTEMPT_SECONDS: a list of tables does not wait for a
    Kafka that is down.

    Args:
        world: the environment profile.
        is_chosen: returns whether the topic with this name is in the result.

    Raises:
        StackError: Kafka does not respond.
    """
    with borrow_consumer(world) as consumer, translate_errors(world):
        chosen = [*filter(is_chosen, consumer.list_topics(timeout=ATTEMPT_SECONDS).topics)]
    return {name: (topic_id(world, name), end_offsets(world, name)) for name in chosen}


def topic_id(world: World, name: str) -> str:
    """Return Kafka's id of an existing topic. A topic that is deleted and recreated has a new id."""
    admin: AdminClient = world.state.get(
        "admin client of topic ids", lambda: AdminClient(settings(world))
    )
    with translate_errors(world, f"topic {name!r} at {world.kafka.bootstrap}"):
        futures = admin.describe_topics(TopicCollection([name]), request_timeout=TIMEOUT_SECONDS)
        return str(await_result(futures[name]).topic_id)


def wait_for_messages(
    world: World, topic: str, n: int, *, timeout: Optional[float] = None, connector: str = ""
) -> int:
    """Wait until the topic exists and its offset span is at least `n`; return the offset span.

    Args:
        world: the environment profile.
        topic: name of the topic.
        n: number of messages to wait for.
        timeout: seconds; by default 60, and one for each MESSAGES_PER_S messages.
        connector: name of the connector that produces the messages. The wait ends at once when the
            connector is FAILED.

    Raises:
        WorkbenchError: `timeout` is over, or the connector failed.
    """

    def has_arrived() -> bool:
        span = offset_span(world, topic)
        if span < n:
            raise WorkbenchError(f"the topic has {span}")
        return True

    wait_until(
        has_arrived,
        f"{n} messages in topic {topic!r}",
        timeout=60 + n / MESSAGES_PER_S if timeout is None else timeout,
        failure_reason=lambda: connect.failure(world, connector) if connector else None,
        hint="look at connect.status and the worker's log",
    )
    return offset_span(world, topic)


def open_consumer(world: World) -> Consumer:
    """Return a consumer that joins no group, commits no offset and creates no topic."""
    return Consumer(
        settings(
            world,
            **{
                "group.id": "workbench",
                "enable.auto.commit": False,
                "allow.auto.create.topics": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 500,  # default 10 s, the whole time of a request here
                "fetch.wait.max.ms": 20,  # default 500, for which `close` would wait
                # default 1000: the consumer would pause for a second whenever 64 MB are queued
                "fetch.queue.backoff.ms": 10,
            },
        )
    )


def _idle_consumers(world: World) -> deque[Consumer]:
    idle: deque[Consumer] = world.state.get("idle consumers", deque)
    return idle


@contextlib.contextmanager
def borrow_consumer(world: World) -> Iterator[Consumer]:
    """Yield a consumer that no other thread uses now, without partitions.

    A new one takes 50 ms to connect, so the state of the world keeps it; not after an error.
    """
    idle = _idle_consumers(world)
    try:
        consumer = idle.pop()
    except IndexError:
        consumer = open_consumer(world)
    try:
        yield consumer
        consumer.unassign()
    except BaseException:
        consumer.close()
        raise
    idle.append(consumer)


def wait_for_message(
    world: World, start: dict[tuple[str, int], int], stop: threading.Event, timeout: float
) -> set[Optional[str]]:
    """Wait until a partition has a message, `stop` is set, or the time is over.

    A message is noticed within milliseconds: the broker answers a fetch request when one arrives.

    Args:
        world: the environment profile.
        start: {(topic, partition): offset of the next message}.
        stop: checked every STOP_CHECK_SECONDS.
        timeout: in seconds.

    Returns:
        Topics that have a message. After an error of Kafka all topics: the next request for one meets it.
    """
    deadline = time.monotonic() + timeout
    with borrow_consumer(world) as consumer:
        consumer.assign([TopicPartition(*partition, offset) for partition, offset in start.items()])
        while not stop.is_set() and time.monotonic() < deadline:
            messages = consumer.consume(1, STOP_CHECK_SECONDS)
            if not messages:
                continue
            # those of other topics arrive in the same moment
            messages += consumer.consume(1000, 0.01)
            if any(message.error() for message in messages):
                stop.wait(STOP_CHECK_SECONDS)  # it may be repeated at once
                return {topic for topic, _ in start}
            return {message.topic() for message in messages}
    return set()


def consume(
    world: World, topic: str, start: dict[int, int], stop: dict[int, int]
) -> Generator[Message, None, None]:
    """Yield the messages of a topic from offset `start` up to, not including, offset `stop`.

    The messages of a partition are in the order of their offsets.

    Args:
        world: the environment profile.
        topic: name of the topic.
        start: {partition: offset}.
        stop: {partition: offset}, of the same partitions.

    Raises:
        StackError: Kafka does not respond, or sends no message for TIMEOUT_SECONDS.
    """
    positions = {p: offset for p, offset in start.items() if offset < stop[p]}
    try:
        yield from _consume(world, topic, positions, stop, RENEW_SECONDS)
    except StackError:
        # After a restart of Kafka, a topic that is created anew has a lower leader epoch than before. A consumer
        # that has known the earlier topic reads nothing from it: now with a new one.
        _idle_consumers(world).clear()
        yield from _consume(world, topic, positions, stop, TIMEOUT_SECONDS)


def _consume(
    world: World, topic: str, positions: dict[int, int], stop: dict[int, int], timeout: float
) -> Generator[Message, None, None]:
    """Yield messages as `consume` does; `positions` has the offsets of the next ones."""
    last_message_at = time.monotonic()
    with borrow_consumer(world) as consumer, translate_errors(world):
        consumer.assign([TopicPartition(topic, *position) for position in positions.items()])
        while positions:
            missing = sum(stop[p] - offset for p, offset in positions.items())
            # returns when it has as many messages as requested, or after the timeout
            batch: list[Message] = consumer.consume(min(5000, missing), 0.05)
            for message in batch:
                if message.error():
                    raise KafkaException(message.error())
                positions[message.partition()] = message.offset() + 1
                if message.offset() < stop[message.partition()]:
                    yield message
            if batch:
                last_message_at = time.monotonic()
            elif time.monotonic() > last_message_at + timeout:
                raise _unavailable_error(
                    world,
                    f"Kafka sent no message for {timeout} s",
                    f"topic {topic!r}, offsets {positions}",
                    "run `workbench status`; nothing is lost, read the topic again",
                )
            # also after the marker at the end of a transaction, which has an offset, but is not a message
            for p in consumer.position([TopicPartition(topic, p) for p in positions]):
                positions[p.partition] = max(positions[p.partition], p.offset)
                if positions[p.partition] >= stop[p.partition]:
                    del positions[p.partition]


def read_all(
    world: World,
    topic: str,
    limit: Optional[int] = None,
    *,
    start_offsets: Optional[dict[int, int]] = None,
    key_filter: Optional[Callable[[Optional[bytes]], bool]] = None,
) -> list[Message]:
    """Return the messages that the topic holds now, ordered by partition and offset.

    The result has confluent_kafka.Message objects, with headers. See `read` for the parameters and
    errors.
    """
    first = start_offsets or {}
    watermarks = watermark_offsets(world, topic)
    start = {p: max(first.get(p, 0), low) for p, (low, _) in watermarks.items()}
    stop = {p: high for p, (_, high) in watermarks.items()}
    with contextlib.closing(consume(world, topic, start, stop)) as messages:
        selected = (m for m in messages if key_filter is None or key_filter(m.key()))
        found = [*itertools.islice(selected, limit)]
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def read(
    world: World,
    topic: str,
    limit: Optional[int] = None,
    *,
    start_offsets: Optional[dict[int, int]] = None,
    key_filter: Optional[Callable[[Optional[bytes]], bool]] = None,
) -> pd.DataFrame:
    """Return the messages that the topic holds now, ordered by partition and offset.

    Args:
        world: the environment profile.
        topic: name of the topic.
        limit: maximum number of messages to read; by default all.
        start_offsets: {partition: first offset to read}, such as an earlier result of
            `end_offsets`. By default reading starts at the first available message.
        key_filter: takes a key, and returns whether to read the message.

    Returns:
        Columns topic, partition, offset, timestamp (UTC), key, value. Key and value are text; bytes
        if they are not UTF-8; None if the message has none (a tombstone has no value). All messages
        are held in memory.

    Raises:
        WorkbenchError: there is no such topic.
    """
    import pandas as pd  # a local import, because it takes a second

    messages = read_all(world, topic, limit, start_offsets=start_offsets, key_filter=key_filter)
    rows = [
        (
            topic,
            m.partition(),
            m.offset(),
            m.timestamp()[1],
            *map(_decode_text, (m.key(), m.value())),
        )
        for m in messages
    ]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    frame["timestamp"] = pd.to_datetime(frame["timestamp"], unit="ms", utc=True)
    return frame


def _decode_text(raw: Optional[bytes]) -> Union[str, bytes, None]:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return raw


def produce(world: World, topic: str, messages: Iterable[Sequence[Any]], **overrides: Any) -> None:
    """Produce messages in their order, and wait until Kafka has acknowledged all of them.

    Args:
        world: the environment profile.
        topic: name of the topic.
        messages: tuples (key, value) or (key, value, options). The options are keyword arguments of
            Producer.produce: headers, timestamp, partition.
        overrides: settings of the producer to add or to replace.

    Raises:
        LakeError: a message is too large for the producer or for the topic.
        StackError: Kafka does not accept the messages.

        In both cases, and if the iterable raises an error, some messages may be in the topic.
    """
    errors: list[KafkaError] = []

    def record_error(error: Optional[KafkaError], message: Message) -> None:
        if error:
            errors.append(error)

    # an idempotent producer keeps the order and writes no message twice when it retries
    defaults = {"enable.idempotence": True, "linger.ms": 20, "message.timeout.ms": 15_000}
    producer = Producer(settings(world, **{**defaults, **overrides}))
    try:
        with translate_errors(world, f"topic {topic!r}"):
            for key, value, *options in messages:
                while len(producer) >= MAX_IN_FLIGHT:
                    producer.poll(0.1)
                extra = options[0] if options else {}
                producer.produce(topic, value, key, on_delivery=record_error, **extra)
                if errors:
                    break
            while producer.flush(ATTEMPT_SECONDS):  # Ctrl-C ends it between two attempts
                pass
            if errors:
                raise KafkaException(errors[0])
    finally:
        # a traceback keeps the producer alive, and it would produce its queue when Kafka is back
        producer.purge()


def create(world: World, name: str, partitions: int = 1, **config: Any) -> None:
    """Create a topic unless it exists.

    The replication factor is the broker's default (KIP-464); in MSK it is the number of zones.

    Args:
        world: the environment profile.
        name: name of the topic.
        partitions: number of partitions.
        config: settings of the topic.

    Raises:
        WorkbenchError: Kafka does not create the topic, or is down.
    """
    if name in names(world):
        return
    admin = AdminClient(settings(world))  # a variable: the end of the client ends its requests
    new = NewTopic(name, partitions, config=config)
    created = admin.create_topics([new], request_timeout=TIMEOUT_SECONDS)
    _await_results(world, created, "created", ignore=KafkaError.TOPIC_ALREADY_EXISTS)
    # the controller has it before the brokers, which clients ask
    wait_until(lambda: name in names(world), f"topic {name!r} to be known", interval=0.02)


def delete(world: World, *topics: str) -> None:
    """Delete topics and wait until they are gone. Missing topics are ignored.

    Raises:
        WorkbenchError: Kafka does not delete a topic, or is down.
    """
    if not topics:
        return
    names(world)  # raises StackError if Kafka does not respond
    # all names, not only the listed ones: the controller may know a new topic before the broker does
    admin = AdminClient(settings(world))
    deleted = admin.delete_topics([*topics], request_timeout=TIMEOUT_SECONDS)
    _await_results(world, deleted, "deleted", ignore=KafkaError.UNKNOWN_TOPIC_OR_PART)
    wait_until(
        lambda: not {*topics} & {*names(world)},
        f"topics {topics} to be gone",
        timeout=30,
    )


def _await_results(
    world: World, futures: dict[str, Future[None]], action: str, ignore: Optional[int] = None
) -> None:
    for topic, future in futures.items():
        try:
            await_result(future)
        except KafkaException as e:
            if error_code(e) != ignore:
                raise WorkbenchError(
                    f"topic {topic!r} was not {action}: {e.args[0].str()}",
                    location=world.kafka.bootstrap,
                ) from e
