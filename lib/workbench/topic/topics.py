"""Topics of a Kafka: names, ends, count, topic_id, wait_count, messages, read, delete.

Reading assigns partitions and commits nothing, so it disturbs no consumer group. Nothing here ever creates a topic:
every function looks the topic up in the full list first (asking a broker for one topic by name may create it).
"""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import Any, Callable, Dict, Generator, List, Optional, Union

import pandas as pd
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from .. import connect, stack
from ..base.errors import LakeError, StackError, WorkbenchError, nearest
from ..base.params import World
from ..base.wait import wait_until

COLUMNS = ["topic", "partition", "offset", "timestamp", "key", "value"]
TIMEOUT = 10


def settings(world: World, **more: Any) -> Dict[str, Any]:
    """Settings of a confluent_kafka client for the world's Kafka; `more` is added, or takes the place of one of them.

    A broker's absence is said by our own error, so the client's own lines on stderr are off.
    """
    return {"bootstrap.servers": world.kafka.bootstrap, "security.protocol": world.kafka.security_protocol,
            "log_level": 0, **more}


def spark_options(world: World) -> Dict[str, str]:
    """Options of Spark's Kafka reader for the world's Kafka, beside those that say what is read."""
    return {"kafka.bootstrap.servers": world.kafka.bootstrap,
            "kafka.security.protocol": world.kafka.security_protocol,
            # Kafka's default shows what a producer has taken back, too: it would be in the lake and never in the source
            "kafka.isolation.level": "read_committed",
            "failOnDataLoss": "true"}


def silent(world: World, error: KafkaException) -> StackError:
    """The error for a Kafka that does not answer: its state, where it is a service of this instance."""
    return stack.lost(world, "kafka", world.kafka.bootstrap) or StackError(
        f"Kafka does not answer: {error.args[0].str()}", where=world.kafka.bootstrap,
        next_step="run `workbench status`, then `workbench up`")


def _partitions(world: World, admin: Any = None) -> Dict[str, List[int]]:
    """Return {topic: partitions} of all topics. Raises StackError when Kafka does not answer."""
    admin = admin or AdminClient(settings(world))
    try:
        listed = admin.list_topics(timeout=TIMEOUT)
    except KafkaException as e:
        raise silent(world, e) from e
    return {name: sorted(t.partitions) for name, t in listed.topics.items()}


def _of(world: World, topic: str) -> List[int]:
    """Return the partitions of one topic. Raises WorkbenchError when there is no such topic."""
    listed = _partitions(world)
    if topic not in listed:
        shown = [t for t in listed if not t.startswith("__consumer")]
        raise WorkbenchError(f"there is no topic {topic!r}", where=world.kafka.bootstrap,
                             expected=nearest(topic, shown),
                             next_step="the first message makes it: is the connector RUNNING? (connect.status)")
    return listed[topic]


def names(world: World) -> List[str]:
    """Return the names of all topics, Kafka's own (consumer offsets) left out."""
    return sorted(t for t in _partitions(world) if not t.startswith("__consumer"))


def _offsets(world: World, topic: str, spec: OffsetSpec, partitions: List[int]) -> Dict[int, int]:
    asked = {TopicPartition(topic, p): spec for p in partitions}
    admin = AdminClient(settings(world))  # in a variable: once it is collected, its futures never end
    # of a transaction that goes on nothing can be read
    futures = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT)
    try:
        return {tp.partition: future.result(TIMEOUT + 5).offset for tp, future in futures.items()}
    except KafkaException as e:
        raise silent(world, e) from e


def ends(world: World, topic: str) -> Dict[int, int]:
    """Return {partition: end offset}, a place in the topic to `read(after=…)` from later."""
    return _offsets(world, topic, OffsetSpec.latest(), _of(world, topic))


def count(world: World, topic: str) -> int:
    """Return how many messages the topic holds: end minus beginning, summed over its partitions.

    Raises:
        WorkbenchError: there is no such topic.
    """
    partitions = _of(world, topic)
    begins = _offsets(world, topic, OffsetSpec.earliest(), partitions)
    return sum(end - begins[p] for p, end in _offsets(world, topic, OffsetSpec.latest(), partitions).items())


def topic_id(world: World, name: str, admin: Any = None) -> str:
    """Return Kafka's own id of a topic that is there: another one after it was deleted and made anew.

    Args:
        admin: a client that is there already; one is made otherwise.

    Raises:
        LakeError: the topic cannot be described.
    """
    admin = admin or AdminClient(settings(world))  # held until the answer is there
    try:
        asked = admin.describe_topics(TopicCollection([name]), request_timeout=TIMEOUT)
        return str(asked[name].result(TIMEOUT + 5).topic_id)
    except KafkaException as e:
        raise stack.lost(world, "kafka", world.kafka.bootstrap) or LakeError(
            f"the topic cannot be described: {e.args[0].str()}", where=f"{name} at {world.kafka.bootstrap}",
            next_step="topics.names(world) lists the topics; run `workbench status`") from e


def wait_count(world: World, topic: str, n: int, *, timeout: Optional[float] = None, connector: str = "") -> int:
    """Wait until the topic exists and holds at least `n` messages; return how many it holds then.

    Args:
        timeout: in seconds; by default one minute, and one second for each 500 messages.
        connector: the connector that writes them; waiting ends at once when that one is FAILED.

    Raises:
        WorkbenchError: after `timeout`, naming the count reached; or the connector's failure.
    """
    timeout = 60 + n / 500 if timeout is None else timeout
    seen = {"count": 0}

    def enough() -> bool:
        seen["count"] = count(world, topic)
        return seen["count"] >= n

    def failed() -> Optional[str]:
        return connect.failure(world, connector) if connector else None

    try:
        wait_until(enough, f"{n} messages in topic {topic!r}", timeout=timeout, every=0.2, failed=failed)
    except WorkbenchError as e:
        raise WorkbenchError(f"{e.what}; it holds {seen['count']}",
                             where=f"topic {topic!r}" + (f"; {e.where}" if e.where else ""),
                             next_step=e.next_step or "look at connect.status and the worker's log") from e
    return seen["count"]


def consumer(world: World) -> Consumer:
    """A consumer for `messages`: it joins no group, commits nothing, and makes no topic."""
    return Consumer(settings(world, **{
        "group.id": "workbench", "enable.auto.commit": False, "allow.auto.create.topics": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 20,  # default 500, which closing waits out
        "fetch.queue.backoff.ms": 10,  # default 1000: a second lost each time 64 MB wait to be consumed
    }))


def messages(world: World, reader: Consumer, topic: str, start: Dict[int, int],
             stop: Dict[int, int]) -> Generator[Any, None, None]:
    """The messages of a topic from offsets `start` up to before `stop`, of each partition in the order of its offsets.

    Args:
        reader: a `consumer`; what it was assigned before is lost.
        start, stop: {partition: offset}, of the same partitions.

    Raises:
        StackError: Kafka does not answer, or sent nothing for ten seconds.
    """
    at = {p: n for p, n in start.items() if n < stop[p]}
    heard = time.monotonic()
    try:
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
            elif time.monotonic() > heard + TIMEOUT:
                raise stack.lost(world, "kafka", world.kafka.bootstrap) or StackError(
                    f"Kafka sent nothing for {TIMEOUT} s", where=f"topic {topic!r}, offsets {at}",
                    next_step="run `workbench status`; nothing is lost, read it again")
            else:  # where a transaction ended, no message stands at the last offset, but the client has passed it
                for place in reader.position([TopicPartition(topic, p) for p in at]):
                    at[place.partition] = max(at[place.partition], place.offset)
            at = {p: n for p, n in at.items() if n < stop[p]}
    except KafkaException as e:
        raise silent(world, e) from e
    finally:
        reader.unassign()


def read(world: World, topic: str, limit: Optional[int] = None, *, after: Optional[Dict[int, int]] = None,
         only: Optional[Callable[[Optional[bytes]], bool]] = None) -> pd.DataFrame:
    """Return the messages that the topic holds now, ordered by partition and offset.

    Args:
        limit: stop after this many messages.
        after: read from these offsets on, as `ends` returned them; what came later than then.
        only: asked with each message's key; the others are passed over.

    Returns:
        Columns topic, partition, offset, timestamp (UTC), key, value. Key and value are text, bytes where they are not
        UTF-8, None where the message has none (a tombstone's value). All is held in memory.

    Raises:
        WorkbenchError: there is no such topic.
    """
    upto = ends(world, topic)
    begins = _offsets(world, topic, OffsetSpec.earliest(), list(upto))
    start = {p: max((after or {}).get(p, 0), begin) for p, begin in begins.items()}
    with contextlib.closing(consumer(world)) as reader, contextlib.closing(
            messages(world, reader, topic, start, upto)) as found:
        wanted = (m for m in found if only is None or only(m.key()))
        rows = [(topic, m.partition(), m.offset(), m.timestamp()[1], _text(m.key()), _text(m.value()))
                for m in itertools.islice(wanted, limit)]
    frame = pd.DataFrame(rows, columns=COLUMNS).sort_values(["partition", "offset"], ignore_index=True)
    frame["timestamp"] = pd.to_datetime(frame["timestamp"], unit="ms", utc=True)
    return frame


def _text(raw: Optional[bytes]) -> Union[str, bytes, None]:
    try:
        return None if raw is None else raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


def delete(world: World, *topics: str) -> None:
    """Delete topics and wait until they are gone; those that do not exist are fine."""
    admin = AdminClient(settings(world))  # one connection for all questions
    known = _partitions(world, admin)
    there = [t for t in topics if t in known]
    if not there:
        return
    for topic, future in admin.delete_topics(there, request_timeout=TIMEOUT).items():
        try:
            future.result(TIMEOUT + 5)
        except KafkaException as e:
            if e.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise WorkbenchError(f"topic {topic!r} was not deleted: {e.args[0].str()}",
                                     where=world.kafka.bootstrap) from e
    wait_until(lambda: not set(there) & set(_partitions(world, admin)), f"topics {there} to be gone", timeout=30)
