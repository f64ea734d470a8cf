"""Consumer groups: lag, committed offsets, names and deletion.

librdkafka 2.16 may abort the process (SIGABRT, pull request 5397) after a request for a group's
coordinator has timed out: when the broker comes back, and the request's admin client still exists.
A traceback keeps an admin client alive. Therefore a consumer reads the committed offsets, and the
admin client that deletes a group is closed before its request times out.
"""

import contextlib

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from ..base import StackError, World, wait_until
from . import topics


def lag(world: World, group: str, *names: str) -> dict[str, int]:
    """Return {topic: number of messages that a consumer group has not committed yet}.

    Args:
        world: the environment profile.
        group: id of the consumer group.
        names: names of the topics.

    Raises:
        LakeError: there is no such topic.
        StackError: Kafka does not respond.
    """
    watermarks = {name: topics.watermark_offsets(world, name) for name in names}
    partitions = [
        TopicPartition(name, p) for name, by_partition in watermarks.items() for p in by_partition
    ]
    # a consumer that never joins the group
    consumer = Consumer(topics.settings(world, **{"group.id": group, "enable.auto.commit": False}))
    lags = dict.fromkeys(names, 0)
    with contextlib.closing(consumer), topics.translate_errors(world):
        # requested after the watermarks: messages that arrive in between do not count as lag
        committed = topics.call_with_deadline(
            lambda seconds: consumer.committed(partitions, timeout=seconds)
        )
        for position in committed:
            if position.error:
                raise KafkaException(position.error)
            low, high = watermarks[position.topic][position.partition]
            # the offset is negative if the group has committed none
            lags[position.topic] += max(0, high - max(low, position.offset))
    return lags


def names(world: World) -> list[str]:
    """Return the names of all consumer groups.

    Raises:
        StackError: a broker does not list its groups, so the list would be incomplete.
    """
    with AdminClient(topics.settings(world)) as admin, topics.translate_errors(world):
        groups = topics.await_result(
            admin.list_consumer_groups(request_timeout=topics.TIMEOUT_SECONDS)
        )
        # after a timeout the list of groups is empty, and only `errors` reports the timeout
        for error in groups.errors:
            raise error if isinstance(error, KafkaException) else KafkaException(error)
    return sorted(group.group_id for group in groups.valid)


def delete(world: World, group: str) -> None:
    """Delete a consumer group and its committed offsets. A missing group is ignored.

    A killed member belongs to the group until its session expires. The group's coordinator confirms
    the deletion. The list of all groups does not, because a broker that was just started may list no
    group before it has loaded them.

    Raises:
        StackError: after ten seconds the group still has members, or Kafka has not confirmed the
            deletion.
    """
    location = f"consumer group {group!r} at {world.kafka.bootstrap}"

    def delete_once() -> bool:
        # the `with` block ends, and closes the client, long before the request times out
        with AdminClient(topics.settings(world)) as admin, topics.translate_errors(world, location):
            futures = admin.delete_consumer_groups(
                [group], request_timeout=3 * topics.TIMEOUT_SECONDS
            )
            try:
                topics.await_result(futures[group])
            except KafkaException as e:
                if topics.error_code(e) != KafkaError.GROUP_ID_NOT_FOUND:
                    raise
        return True

    wait_until(
        delete_once,
        f"consumer group {group!r} to be empty",
        timeout=10,
        error=StackError,
        hint="stop its consumers, and check that Kafka runs",
    )
