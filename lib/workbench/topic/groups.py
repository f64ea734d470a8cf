"""Consumer groups of a Kafka: how far each came in its topics."""

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from ..base import StackError, World, wait_until
from . import topics


def lag(world: World, group: str, *names: str) -> dict[str, int]:
    """Return {topic: how many of its messages a consumer group has not committed yet}. Raises as `topics.bounds`."""
    there = {(topic, p): ends for topic in names for p, ends in topics.bounds(world, topic).items()}
    admin = AdminClient(topics.settings(world))
    with topics.answered(world):  # asked after the ends: what came meanwhile is not counted as waiting
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=topics.TIMEOUT)
        found = topics.result(world, asked[group]).topic_partitions
        for place in found:
            if place.error:
                raise KafkaException(place.error)
    done = {(place.topic, place.partition): place.offset for place in found}
    left = {place: max(0, end - max(begin, done.get(place, begin))) for place, (begin, end) in there.items()}
    return {topic: sum(n for (of, _), n in left.items() if of == topic) for topic in names}


def names(world: World) -> list[str]:
    """Return the names of all consumer groups. Raises: StackError: a broker does not list its own; what the others
    list is not all of them."""
    admin = AdminClient(topics.settings(world))  # held: without a name it is gone before the answer comes
    with topics.answered(world):
        listed = topics.result(world, admin.list_consumer_groups(request_timeout=topics.TIMEOUT))
        for error in listed.errors:  # the client reports a timeout here, beside an empty list of groups
            raise error if isinstance(error, KafkaException) else KafkaException(error)
    return sorted(group.group_id for group in listed.valid)


def forget(world: World, group: str) -> None:
    """Delete a consumer group and its committed offsets; one that does not exist is fine. A member that was killed
    belongs to it until its session expires.

    The group's coordinator confirms the deletion. The list of all groups would not do: a broker that was just started
    may list none before it has loaded them.

    Raises: StackError: after ten seconds the group has members still, or Kafka has not confirmed the deletion.
    """
    admin = AdminClient(topics.settings(world))

    def gone() -> bool:
        asked = admin.delete_consumer_groups([group], request_timeout=topics.TIMEOUT)
        with topics.answered(world, f"consumer group {group!r} at {world.kafka.bootstrap}"):
            try:
                topics.result(world, asked[group])
            except KafkaException as e:
                if e.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                    raise
        return True

    wait_until(gone, f"consumer group {group!r} to be empty", timeout=10, error=StackError,
               next_step="stop its consumers (`workbench storefront down`), and see that Kafka runs")
