"""A captured table whose topic and lake tables a test has made."""

from workbench.flow import Capture, CaptureFlow


def captured(topic, tables=(), key="id", format="json", sink=None):
    """Return a flow with one captured table, whose name is that of the topic's table.

    Args:
        topic: the topic.
        tables: the lake tables.
        key: the key column.
        format: format of the messages.
        sink: configuration of its sink connector; None if nothing lands the topic.
    """

    class Flow(CaptureFlow):
        def topic(self, world, name=""):
            return topic

        def tables(self, world, *names):
            return list(tables)

    source = f"public.{topic.rpartition('.')[2]}"
    capture = Capture(source, key, "connector", sink="sink" if sink else "", format=format)
    return Flow((capture,), config=lambda world, name: sink)
