"""Observations as Prometheus metrics.

The lag has the name and the labels of kminion (github.com/redpanda-data/kminion); its group is the flow, and
its topic the lake table.
"""

import threading
from typing import Any, Callable, Iterable, Iterator, Sequence
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from ..base import StackError
from ..base.http import foreign_reason
from .problems import LEVELS, SIGNALS, Observation

FRESHNESS = "seconds from the commit in the source until the row is visible in the lake"


class FlowCollector(Collector):
    """The metrics of the last observations; `observed` is replaced after each."""

    def __init__(self) -> None:
        """Collect nothing yet."""
        self.observed: Sequence[Observation] = ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        freshness = _gauge("workbench_freshness_seconds", FRESHNESS, "flow", "quantile")
        state = _gauge("workbench_flow_state", "0 green, 1 amber, 2 red", "flow", "signal")
        lag = _gauge(
            "kminion_kafka_consumer_group_topic_partition_lag",
            "messages of a partition that are not in the lake table",
            "group_id",
            "topic_name",
            "partition_id",
        )
        retained = _gauge(
            "workbench_slot_retained_bytes", "log that a slot retains", "flow", "slot"
        )
        dead_letters = _gauge("workbench_dead_letters", "dead letters of a table", "flow", "table")
        files = _gauge("workbench_lake_files", "base files that a read needs", "flow", "size")
        logs = _gauge("workbench_lake_log_bytes", "unmerged logs", "flow")
        for each in self.observed:
            for quantile, name in (("0.5", "p50"), ("0.95", "p95")):
                if each.freshness:
                    freshness.add_metric([each.flow, quantile], each.freshness[name])
            for signal in SIGNALS:
                levels = [p.level for p in each.problems if p.signal == signal]
                state.add_metric([each.flow, signal], max(map(LEVELS.index, levels), default=0))
            for table, partitions in each.unread.items():
                for partition, count in partitions.items():
                    lag.add_metric([each.flow, table, str(partition)], count)
            for gauge, values in (
                (retained, each.retained),
                (dead_letters, {name: sum(n.values()) for name, n in each.dead_letters.items()}),
                (files, {"small": each.small_files, "all": each.files}),
            ):
                for name, value in values.items():
                    gauge.add_metric([each.flow, name], value)
            logs.add_metric([each.flow], each.log_bytes)
        yield from (freshness, state, lag, retained, dead_letters, files, logs)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=labels)


class _Handler(WSGIRequestHandler):
    """Logs nothing, and does not wait for a client that sends nothing."""

    timeout = 10

    def log_message(self, *_: Any) -> None:
        pass


def serve(port: int) -> FlowCollector:
    """Serve metrics at http://127.0.0.1:<port>/metrics in a thread; return their collector.

    Raises:
        StackError: the port is not free.
    """
    registry, collector = CollectorRegistry(), FlowCollector()
    registry.register(collector)
    export = make_wsgi_app(registry)

    def respond(request: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        hosts, origins = (
            [request[key]] if key in request else [] for key in ("HTTP_HOST", "HTTP_ORIGIN")
        )
        foreign = foreign_reason(hosts, origins, port)
        if foreign:
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [foreign.encode()]
        answer: Iterable[bytes] = export(request, start_response)
        return answer

    try:
        server = make_server("127.0.0.1", port, respond, ThreadingWSGIServer, _Handler)
    except OSError as e:
        raise StackError(
            f"metrics cannot be served: {e.strerror}",
            location=f"127.0.0.1:{port}",
            hint="name a free port above 1023: --metrics PORT",
        ) from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return collector
