"""Observations as Prometheus metrics."""

import threading
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from ..base import StackError
from ..base.http import foreign_reason
from .problems import LEVELS, Observation

# {metric: (its text, the label beside `flow`)}
METRICS = {
    "workbench_freshness_seconds": (
        "seconds from the commit in the source until the row is visible in the lake",
        "quantile",
    ),
    "workbench_flow_state": ("0 green, 1 amber, 2 red", "signal"),
    "workbench_unread_messages": ("messages that are not in the lake table", "table"),
    "workbench_slot_retained_bytes": ("log that a slot retains", "slot"),
    "workbench_dead_letters": ("dead letters of a table", "table"),
    "workbench_lake_files": ("base files that a read needs", "size"),
    "workbench_lake_log_bytes": ("unmerged logs", ""),
}


class FlowCollector(Collector):
    """The metrics of the last observations; `observed` is replaced after each."""

    def __init__(self) -> None:
        """Collect nothing yet."""
        self.observed: Sequence[Observation] = ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        for name, (text, label) in METRICS.items():
            gauge = GaugeMetricFamily(name, text, labels=["flow", label] if label else ["flow"])
            for each in self.observed:
                for value_of_label, value in _values(each)[name].items():
                    labels = [each.flow, value_of_label] if label else [each.flow]
                    gauge.add_metric(labels, value)
            yield gauge


def _values(each: Observation) -> dict[str, Mapping[str, float]]:
    """Return {metric: {value of its label: value}} of an observation."""
    fresh = each.freshness
    return {
        "workbench_freshness_seconds": {"0.5": fresh["p50"], "0.95": fresh["p95"]} if fresh else {},
        "workbench_flow_state": {s: LEVELS.index(level) for s, level in each.levels().items()},
        "workbench_unread_messages": each.unread,
        "workbench_slot_retained_bytes": each.retained,
        "workbench_dead_letters": each.dead_letters,
        "workbench_lake_files": {"small": each.small_files, "all": each.files},
        "workbench_lake_log_bytes": {"": each.log_bytes},
    }


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
