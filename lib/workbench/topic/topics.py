"""Topics of a Kafka: names, ends, count, topic_id, wait_count, messages, read, send, create,
delete.

Reading assigns partitions and commits nothing, so it disturbs no consumer group. Nothing but
`create` makes a topic: a consumer here says with its question that the broker is to make none, and
an admin client asks for the full list.
"""

import contextlib
import itertools
import time
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Callable, Generator, Iterable, Iterator, Optional, Sequence, TypeVar, Union

import pandas as pd
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from .. import connect, stack
from ..base import LakeError, StackError, WorkbenchError, World, did_you_mean, wait_until
from . import kafka_iam

T = TypeVar("T")
IAM_PROTOCOL = "SASL_SSL"  # of a world whose Kafka is MSK
COLUMNS = ["topic", "partition", "offset", "timestamp", "key", "value"]
TIMEOUT_SECONDS = 10
ATTEMPT_SECONDS = 1.0  # seconds of one attempt: between two the service is looked at
UNAVAILABLE_ERRORS = (
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
)
MAX_IN_FLIGHT = 10_000  # messages that a producer holds until Kafka has them
PRODUCE_ERROR_HINTS = {  # what a broker or the client itself says to a message: what to do about it
    KafkaError.MSG_SIZE_TOO_LARGE: "a producer sends at most its message.max.bytes, and a topic takes at most its "
    "max.message.bytes",
    KafkaError.INVALID_TIMESTAMP: "a topic takes none that is message.timestamp.after.max.ms (an hour) ahead",
}
NO_LEADER_ERRORS = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)  # of a topic that is new


def settings(world: World, **more: Any) -> dict[str, Any]:
    """Settings of a confluent_kafka client for the world's Kafka; `more` is added, or takes the
    place of one of them.

    A broker's absence is said by our own error, so the client's own lines on stderr are off.

    Raises: StackError: there is nothing to prove to MSK who we are.
    """
    proof = kafka_iam.settings(world) if world.kafka.security_protocol == IAM_PROTOCOL else {}
    return {
        "bootstrap.servers": world.kafka.bootstrap,
        "security.protocol": world.kafka.security_protocol,
        "log_level": 0,
        **proof,
        **more,
    }


def spark_options(world: World) -> dict[str, str]:
    """Options of Spark's Kafka reader for the world's Kafka, beside those that say what is read.

    To prove to MSK who it is, by its own role, Spark needs Amazon's aws-msk-iam-auth among its
    jars.
    """
    proof = (
        kafka_iam.JAVA_CLIENT_PROPERTIES if world.kafka.security_protocol == IAM_PROTOCOL else {}
    )
    return {
        "kafka.bootstrap.servers": world.kafka.bootstrap,
        "kafka.security.protocol": world.kafka.security_protocol,
        # Kafka's default shows what a producer has taken back, too: it would be in the lake and
        # never in the source
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
        **{f"kafka.{key}": value for key, value in proof.items()},
    }


@contextlib.contextmanager
def translate_errors(world: World, where: str = "") -> Iterator[None]:
    """Raises: StackError: Kafka does not answer; with its state, where it is a service of this
    instance. LakeError: it does not take a message, which is too large, or from too far in the
    future.
    """
    try:
        yield
    except KafkaException as e:
        if e.args[0].code() in PRODUCE_ERROR_HINTS:
            raise LakeError(
                f"a message is refused: {e.args[0].str()}",
                location=where,
                hint=PRODUCE_ERROR_HINTS[e.args[0].code()],
            ) from e
        raise _unavailable_error(
            world,
            f"Kafka does not answer: {e.args[0].str()}",
            where or world.kafka.bootstrap,
            "run `workbench status`, then `workbench up`",
        ) from e


def _unavailable_error(world: World, what: str, where: str, next_step: str) -> StackError:
    """The error for a Kafka that says nothing; where its service has stopped, or our credentials
    have ended, that.
    """
    if world.kafka.security_protocol == IAM_PROTOCOL:
        kafka_iam.token(world.region)  # a client tells nobody that it got no other one
        next_step = kafka_iam.ACCESS_HINT
    return stack.service_down_error(world, "kafka", world.kafka.bootstrap) or StackError(
        what, location=where, hint=next_step
    )


def call_with_deadline(world: World, ask: Callable[[float], T]) -> T:
    """Return what a blocking call of a client returns within TIMEOUT seconds. It is called again
    and again with the seconds that one attempt may take, so that a Kafka whose process is gone is
    reported soon.

    Raises: ServiceLost: it is gone. What `ask` raises.
    """
    deadline, look = time.monotonic() + TIMEOUT_SECONDS, stack.watch(world, "kafka")
    while True:
        # before the first attempt, too: from then on the time counts for which the service is gone
        look()
        try:
            return ask(ATTEMPT_SECONDS if world.stack.embedded else TIMEOUT_SECONDS)
        except KafkaException as e:
            if e.args[0].code() not in UNAVAILABLE_ERRORS or time.monotonic() >= deadline:
                raise


def await_result(world: World, future: Any) -> Any:
    """Return the result of an admin client's request. Raises: ServiceLost: Kafka is gone. What the
    request raises.
    """

    def outcome(seconds: float) -> tuple[Any, Optional[KafkaException]]:
        try:
            return future.result(seconds), None
        except FutureTimeout:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None
        except (
            KafkaException
        ) as error:  # the request has ended: waiting for it again would not help
            return None, error

    value, error = call_with_deadline(world, outcome)
    if error:
        raise error
    return value


def _list_partitions(world: World, admin: Any = None) -> dict[str, list[int]]:
    """Return {topic: partitions} of all topics. Raises StackError when Kafka does not answer."""
    admin = admin or AdminClient(settings(world))
    with translate_errors(world):
        listed = call_with_deadline(
            world, lambda seconds: admin.list_topics(timeout=seconds)
        ).topics
        return {name: sorted(t.partitions) for name, t in listed.items()}


def names(world: World) -> list[str]:
    """Return the names of all topics, Kafka's own (consumer offsets) and those of MSK and MSK
    Connect left out.
    """
    return sorted(
        t for t in _list_partitions(world) if not t.startswith(("__consumer", "__amazon_msk"))
    )


def watermark_offsets(world: World, topic: str) -> dict[int, tuple[int, int]]:
    """Return {partition: (offset of the first message that is there, offset after the last)}.

    Asked with each look of an ingest, and by whoever waits for messages, hence by name: the list of
    all topics takes an admin client ten times as long.

    Raises:
        LakeError: there is no such topic.
    """

    def asked() -> Union[dict[int, tuple[int, int]], KafkaException, None]:
        try:  # of a transaction that goes on nothing can be read
            listed = call_with_deadline(
                world, lambda seconds: reader.list_topics(topic, timeout=seconds)
            ).topics[topic]
            if listed.error:
                raise KafkaException(listed.error)
            return {
                p: call_with_deadline(
                    world,
                    lambda seconds, p=p: reader.get_watermark_offsets(
                        TopicPartition(topic, p), timeout=seconds
                    ),
                )
                for p in listed.partitions
            }
        except KafkaException as e:
            return None if e.args[0].code() in NO_LEADER_ERRORS else e

    with contextlib.closing(_consumer(world)) as reader, translate_errors(world):
        found = wait_until(
            asked, f"topic {topic!r} to have a leader", timeout=TIMEOUT_SECONDS, interval=0.05
        )
        if not isinstance(found, KafkaException):
            return found
        if found.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise found
    raise LakeError(
        f"there is no topic {topic!r}",
        location=world.kafka.bootstrap,
        expected=did_you_mean(topic, names(world)),
        hint="the first message makes it: is the connector RUNNING? (connect.status)",
    )


def end_offsets(world: World, topic: str) -> dict[int, int]:
    """Return {partition: end offset}, a place in the topic to `read(after=…)` from later."""
    return {p: end for p, (_, end) in watermark_offsets(world, topic).items()}


def offset_span(world: World, topic: str) -> int:
    """Return how many messages the topic holds: end minus beginning, summed over its partitions.
    Raises as `bounds`.
    """
    return sum(end - begin for begin, end in watermark_offsets(world, topic).values())


def topic_id(world: World, name: str, admin: Any = None) -> str:
    """Return Kafka's own id of a topic that is there: another one after it was deleted and made
    anew. admin: a client that is there already; one is made otherwise.
    """
    admin = admin or AdminClient(settings(world))
    with translate_errors(world, f"topic {name!r} at {world.kafka.bootstrap}"):
        asked = admin.describe_topics(TopicCollection([name]), request_timeout=TIMEOUT_SECONDS)
        return str(await_result(world, asked[name]).topic_id)


def wait_for_messages(
    world: World, topic: str, n: int, *, timeout: Optional[float] = None, connector: str = ""
) -> int:
    """Wait until the topic exists and holds at least `n` messages; return how many it holds then.

    Args:
        timeout: in seconds; by default one minute, and one second for each 500 messages.
        connector: the connector that writes them; waiting ends at once when that one is FAILED.

    Raises:
        WorkbenchError: after `timeout`, naming the count reached; or the connector's failure.
    """

    def enough() -> tuple[int]:
        there = offset_span(world, topic)
        if there < n:
            raise WorkbenchError(f"it holds {there}")
        return (there,)  # true also where that is none

    timeout = 60 + n / 500 if timeout is None else timeout
    return wait_until(
        enough,
        f"{n} messages in topic {topic!r}",
        timeout=timeout,
        interval=0.2,
        failure_reason=lambda: connect.failure(world, connector) if connector else None,
        hint="look at connect.status and the worker's log",
    )[0]


def _consumer(world: World) -> Consumer:
    """A consumer for `messages`: it joins no group, commits nothing, and makes no topic."""
    return Consumer(
        settings(
            world,
            **{
                "group.id": "workbench",
                "enable.auto.commit": False,
                "allow.auto.create.topics": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,  # default 500, which closing waits out
                # default 1000: a second lost each time 64 MB wait to be consumed
                "fetch.queue.backoff.ms": 10,
            },
        )
    )


def consume(
    world: World, topic: str, start: dict[int, int], stop: dict[int, int]
) -> Generator[Any, None, None]:
    """The messages of a topic from offsets `start` up to before `stop`, of each partition in the
    order of its offsets.

    Args:
        start, stop: {partition: offset}, of the same partitions.

    Raises:
        StackError: Kafka does not answer, or sent nothing for ten seconds.
    """
    at = {p: n for p, n in start.items() if n < stop[p]}
    heard, look = time.monotonic(), stack.watch(world, "kafka")
    with contextlib.closing(_consumer(world)) as reader, translate_errors(world):
        reader.assign([TopicPartition(topic, p, n) for p, n in at.items()])
        while at:
            # returns when it has as many as there may be, or at the timeout
            batch = reader.consume(min(5000, sum(stop[p] - n for p, n in at.items())), 0.05)
            for message in batch:
                if message.error():
                    raise KafkaException(message.error())
                at[message.partition()] = message.offset() + 1
                if message.offset() < stop[message.partition()]:
                    yield message
            if batch:
                heard = time.monotonic()
            elif time.monotonic() > heard + TIMEOUT_SECONDS:
                raise _unavailable_error(
                    world,
                    f"Kafka sent nothing for {TIMEOUT_SECONDS} s",
                    f"topic {topic!r}, offsets {at}",
                    "run `workbench status`; nothing is lost, read it again",
                )
            # where a transaction ended, no message stands at the last offset, but the client has
            # passed it
            else:
                look()
                for place in reader.position([TopicPartition(topic, p) for p in at]):
                    at[place.partition] = max(at[place.partition], place.offset)
            at = {p: n for p, n in at.items() if n < stop[p]}


def read_all(
    world: World, topic: str, *, start_offsets: Optional[dict[int, int]] = None
) -> list[Any]:
    """The messages that the topic holds now, as confluent_kafka has them (headers, too), by
    partition and offset.
    after: as `read` has it. Raises as `messages`, and LakeError: there is no such topic.
    """
    return sorted(
        _consume_available(world, topic, start_offsets), key=lambda m: (m.partition(), m.offset())
    )


def _consume_available(
    world: World, topic: str, start_offsets: Optional[dict[int, int]] = None
) -> Generator[Any, None, None]:
    """The messages that the topic holds now, from the offsets `after` on."""
    there = watermark_offsets(world, topic)
    start = {p: max((start_offsets or {}).get(p, 0), begin) for p, (begin, _) in there.items()}
    return consume(world, topic, start, {p: end for p, (_, end) in there.items()})


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
        limit: stop after this many messages.
        after: read from these offsets on, as `ends` returned them; what came later than then.
        only: asked with each message's key; the others are passed over.

    Returns:
        Columns topic, partition, offset, timestamp (UTC), key, value. Key and value are text, bytes
        where they are not UTF-8, None where the message has none (a tombstone's value). All is held
        in memory.

    Raises:
        WorkbenchError: there is no such topic.
    """
    with contextlib.closing(_consume_available(world, topic, start_offsets)) as found:
        wanted = (m for m in found if key_filter is None or key_filter(m.key()))
        rows = [
            (
                topic,
                m.partition(),
                m.offset(),
                m.timestamp()[1],
                _decode_text(m.key()),
                _decode_text(m.value()),
            )
            for m in itertools.islice(wanted, limit)
        ]
    frame = pd.DataFrame(rows, columns=COLUMNS).sort_values(
        ["partition", "offset"], ignore_index=True
    )
    frame["timestamp"] = pd.to_datetime(frame["timestamp"], unit="ms", utc=True)
    return frame


def _decode_text(raw: Optional[bytes]) -> Union[str, bytes, None]:
    try:
        return None if raw is None else raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


def produce(world: World, topic: str, messages: Iterable[Sequence[Any]], **more: Any) -> None:
    """Send messages, (key, value) each, in their order; Kafka has all of them when this returns.

    Args:
        messages: where one has a third part, that is what its producer is told besides: headers,
            timestamp, partition.
        more: settings of the producer.

    Raises: LakeError: one is too large for the producer, or for the topic. StackError: Kafka does
        not take them. A part of them may be there then. What making one of them raises.
    """
    refused: list[KafkaError] = []

    def delivered(error: Optional[KafkaError], message: Any) -> None:
        if error:
            refused.append(error)

    look = stack.watch(world, "kafka")
    # an idempotent producer keeps the order, and sends none twice, when it tries again
    producer = Producer(
        settings(
            world,
            **{"enable.idempotence": True, "linger.ms": 20, "message.timeout.ms": 30_000, **more},
        )
    )
    try:
        with translate_errors(world, f"topic {topic!r}"):
            for key, value, *told in messages:
                while len(producer) >= MAX_IN_FLIGHT:
                    producer.poll(0.1)
                    look()
                producer.produce(topic, value, key, on_delivery=delivered, **dict(*told))
                if refused:
                    break
            while producer.flush(ATTEMPT_SECONDS):
                look()
            if refused:
                raise KafkaException(refused[0])
    finally:  # a traceback keeps the producer, which would send what it has when Kafka is back
        producer.purge()


def create(world: World, name: str, partitions: int = 1, **config: str) -> None:
    """Make a topic, unless it is there. Its replicas are as many as the broker makes by default
    (KIP-464), of MSK one for each zone. config: of the topic. Raises WorkbenchError: Kafka refuses
    it, or is gone.
    """
    admin = AdminClient(settings(world))
    if name not in _list_partitions(world, admin):
        try:
            asked = admin.create_topics(
                [NewTopic(name, partitions, config=config)], request_timeout=TIMEOUT_SECONDS
            )
            await_result(world, asked[name])
        except KafkaException as e:
            raise WorkbenchError(
                f"topic {name!r} was not made: {e.args[0].str()}", location=world.kafka.bootstrap
            ) from e


def delete(world: World, *topics: str) -> None:
    """Delete topics and wait until they are gone; those that do not exist are fine."""
    if not topics:
        return
    admin = AdminClient(settings(world))  # one connection for all questions
    _list_partitions(world, admin)  # says so where Kafka does not answer
    # not only those it lists: of one that was made a moment ago the controller knows, and the
    # broker may not yet
    for topic, future in admin.delete_topics(list(topics), request_timeout=TIMEOUT_SECONDS).items():
        try:
            await_result(world, future)
        except KafkaException as e:
            if e.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise WorkbenchError(
                    f"topic {topic!r} was not deleted: {e.args[0].str()}",
                    location=world.kafka.bootstrap,
                ) from e
    wait_until(
        lambda: not {*topics} & {*_list_partitions(world, admin)},
        f"topics {topics} to be gone",
        timeout=30,
    )
