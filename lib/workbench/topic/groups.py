"""Consumer groups of a Kafka: how far each came in its topics.

librdkafka 2.16 ends the process (SIGABRT, pull request 5397) when a broker comes back after a
request for a group's coordinator has timed out in an admin client that still exists. A traceback
keeps its client. So committed offsets are read by a consumer, and the admin client that deletes a
group is destroyed before its request times out.
"""

import contextlib

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from ..base import StackError, World, wait_until
from . import topics


def lag(world: World, group: str, *names: str) -> dict[str, int]:
    """Return {topic: how many of its messages a consumer group has not committed yet}. Raises as
    `topics.watermark_offsets`.
    """
    there = {
        (topic, p): ends
        for topic in names
        for p, ends in topics.watermark_offsets(world, topic).items()
    }
    asked = [TopicPartition(*place) for place in there]
    member = Consumer(
        topics.settings(world, **{"group.id": group, "enable.auto.commit": False})
    )  # it never joins
    with contextlib.closing(member), topics.translate_errors(world):
        # asked after the ends: what came meanwhile is not counted as waiting
        found = topics.call_with_deadline(
            world, lambda seconds: member.committed(asked, timeout=seconds)
        )
        for place in found:
            if place.error:
                raise KafkaException(place.error)
    done = {(place.topic, place.partition): place.offset for place in found}
    left = {
        place: max(0, end - max(begin, done.get(place, begin)))
        for place, (begin, end) in there.items()
    }
    return {topic: sum(n for (of, _), n in left.items() if of == topic) for topic in names}


def names(world: World) -> list[str]:
    """Return the names of all consumer groups. Raises: StackError: a broker does not list its own;
    what the others list is not all of them.
    """
    with AdminClient(topics.settings(world)) as admin, topics.translate_errors(world):
        listed = topics.await_result(
            world, admin.list_consumer_groups(request_timeout=topics.TIMEOUT_SECONDS)
        )
        for (
            error
        ) in listed.errors:  # the client reports a timeout here, beside an empty list of groups
            raise error if isinstance(error, KafkaException) else KafkaException(error)
    return sorted(group.group_id for group in listed.valid)


def delete(world: World, group: str) -> None:
    """Delete a consumer group and its committed offsets; one that does not exist is fine. A member
    that was killed belongs to it until its session expires.

    The group's coordinator confirms the deletion. The list of all groups would not do: a broker
    that was just started may list none before it has loaded them.

    Raises: StackError: after ten seconds the group has members still, or Kafka has not confirmed
        the deletion.
    """

    def gone() -> bool:
        where = f"consumer group {group!r} at {world.kafka.bootstrap}"
        # the wait for the result ends long before the request's own time limit, and so does the
        # client
        with AdminClient(topics.settings(world)) as admin, topics.translate_errors(world, where):
            asked = admin.delete_consumer_groups(
                [group], request_timeout=3 * topics.TIMEOUT_SECONDS
            )
            try:
                topics.await_result(world, asked[group])
            except KafkaException as e:
                if e.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                    raise
        return True

    wait_until(
        gone,
        f"consumer group {group!r} to be empty",
        timeout=10,
        error=StackError,
        hint="stop its consumers (`workbench storefront down`), and see that Kafka runs",
    )
