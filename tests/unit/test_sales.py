"""The sales of the streaming walkthrough: what the published one states of them holds for the files
that are here."""

import json
from collections import defaultdict
from decimal import Decimal
from types import SimpleNamespace

import pandas
import pytest
from matplotlib.colors import to_rgb
from matplotlib.dates import date2num
from workbench.base import ROOT, params
from workbench.base.errors import LakeError, ServiceLost
from workbench.checks import check
from workbench.display import draw
from workbench.query import streams
from workbench.source.row_files import read_dicts
from workbench.spark import sessions
from workbench.topic import avro
from workbench.tracks import sales

REGIONS = {row["country"]: row["region"] for row in read_dicts(sales.DATA / "sales_regions.csv")}


def test_the_files():
    rows = read_dicts(sales.DATA / "sales_incremental_large.csv", "|")
    assert len(rows) == len({row["payment_id"] for row in rows}) == 1_800
    assert [row["payment_date"] for row in rows] == sorted(row["payment_date"] for row in rows)
    assert [*rows[0].values()][:3] == ["16666", "204", "3.99"]
    without = {row["country"] for row in rows} - REGIONS.keys()
    assert without == {"Brunei", "Cape Verde", "Côte d'Ivoire"}
    assert set(REGIONS.values()) == {
        "Africa",
        "Arab States",
        "Asia & Pacific",
        "Europe",
        "Latin America",
        "Middle East",
        "North America",
    }
    assert any(not row["district"] for row in rows) and any(not row["city"] for row in rows)


def test_the_published_windows_follow_from_the_files():
    """The table of the reference, reckoned from rows and pace alone."""
    sums = defaultdict(lambda: [Decimal(), 0])
    for n, row in enumerate(read_dicts(sales.DATA / "sales_incremental_large.csv", "|")):
        newest = int(sales.event_time(n).timestamp()) // 300 * 300
        for begin in (newest - 300, newest):
            mine = sums[REGIONS.get(row["country"], sales.UNASSIGNED_REGION), begin]
            mine[0] += Decimal(row["amount"])
            mine[1] += 1
    rows = [
        (region, float(total), n, begin, begin + 600)
        for (region, begin), (total, n) in sums.items()
    ]
    found = pandas.DataFrame(
        rows, columns=["region", "sales", "orders", "window_start", "window_end"]
    )
    found = found.sort_values(["window_start", "sales"], ascending=False, ignore_index=True)
    shown = sales.format_summary(found)
    three = shown[
        shown["window_start"].between("2021-10-03 22:20", "2021-10-03 22:30")
    ].reset_index(drop=True)
    check.reference("S6/sales_by_region_and_window", three)


def test_the_schemas():
    assert len(sales.SCHEMAS) == 6
    for schema in sales.SCHEMAS.values():
        avro.create_reader(schema)
    value = avro.to_spark(sales.SCHEMAS[f"{sales.SALES_TOPIC}-value"])
    assert value["payment_date"].dataType.simpleString() == "bigint", (
        "the logical type beside it means nothing"
    )
    avro.create_reader(sales.SCHEMAS[f"{sales.SALES_TOPIC}-value"])


def test_a_sale_as_it_is_sent():
    first = sales.read_sales()[0]
    assert first["payment_date"] == int(sales.FIRST_EVENT_AT.timestamp())
    assert (first["payment_id"], first["customer_id"], first["amount"]) == (16666, 204, 3.99)
    last = sales.event_time(1_799)
    assert f"{last:%H:%M}" == "22:38"


def test_the_picture_of_windows_has_two_for_each_sale_and_closes_those_behind_the_watermark():
    sale = sales.event_time(900)
    figure = sales.picture(sale, sales.event_time(1_799))
    (axes,) = figure.axes
    spans = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
    *_, at = (line.get_xdata()[0] for line in axes.lines)
    place = date2num(at)
    assert len(spans) == 7 and sum(begin <= place < end for begin, end in spans) == 2
    closed = [end <= date2num(sales.event_time(1_799)) - 10 / 1440 for _, end in spans]
    assert closed == [True] * 3 + [False] * 4
    assert [bar.get_facecolor()[:3] == to_rgb(draw.GRAY) for bar in axes.patches] == closed


@pytest.mark.parametrize("text", [True, False])
def test_what_a_query_tells(text):
    def edge(n):
        offsets = {"t": {"0": n}}
        return json.dumps(offsets) if text else offsets

    def report(batch, begin, end, **time):
        return {
            "batchId": batch,
            "timestamp": "2026-11-24T11:59:02.000Z",
            "durationMs": {"triggerExecution": 934},
            "eventTime": time,
            "sink": {"numOutputRows": 56},
            "stateOperators": [{"numRowsTotal": 56, "numRowsDroppedByWatermark": 1}],
            "sources": [
                {"startOffset": edge(begin), "endOffset": edge(end), "numInputRows": end - begin}
            ],
        }

    query = SimpleNamespace(
        recentProgress=[
            report(0, 0, 3, watermark="1970-01-01T00:00:00.000Z", max="2021-10-03T22:38:41.705Z"),
            report(1, 3, 3, watermark="2021-10-03T22:28:41.705Z"),
            report(2, 3, 7, watermark="2021-10-03T22:28:41.705Z"),
        ]
    )
    found = streams.progress(query)
    assert found["batch"].tolist() == [0, 2] and found["rows"].tolist() == [3, 4], (
        "one without messages is left out"
    )
    assert found["begin"].tolist() == [{0: 0}, {0: 3}] and found["dropped_groups"].tolist() == [
        1,
        1,
    ]
    assert found["watermark"].isna().tolist() == [True, False] and found["seconds"].tolist() == [
        0.934,
        0.934,
    ]


def test_each_micro_batch_with_messages_is_logged(caplog):
    def report(batch, rows):
        return {
            "batchId": batch,
            "timestamp": "2026-11-24T11:59:02.000Z",
            "durationMs": {"triggerExecution": 1500},
            "sink": {},
            "stateOperators": [],
            "sources": [{"startOffset": None, "endOffset": None, "numInputRows": rows}],
        }

    query = SimpleNamespace(
        name="sales", isActive=False, recentProgress=[report(0, 7), report(1, 0), report(2, 3)]
    )
    caplog.set_level("INFO", "workbench.query.streams")
    streams._log_batches(query)
    assert caplog.messages == [
        "query sales: batch 0: 7 rows in 1.5 s",
        "query sales: batch 2: 3 rows in 1.5 s",
    ]


class Running:
    """A streaming query on a server that ends: each call raises this."""

    name, id = "q", "7"

    def __init__(self, error):
        self.error = error

    @property
    def lastProgress(self):  # noqa: N802 - Spark's name
        raise self.error

    def stop(self):
        raise self.error

    def exception(self):
        return None


NPE = 'java.lang.NullPointerException: Cannot invoke "org.apache.spark.SparkContext.x()" because "y" is null'


@pytest.mark.parametrize(
    "error, looks, raised, says",
    [
        (NPE, 3, ServiceLost, "the service spark died"),
        ("StatusCode.CANCELLED", 3, ServiceLost, "the service spark died"),
        ("any other", 1, ServiceLost, "the service spark died"),
        (NPE, 10**6, LakeError, "query failed: .*NullPointer"),
        ("any other", 10**6, LakeError, "query failed: .*any other"),
    ],
)
@pytest.mark.parametrize("call", [lambda query: query.lastProgress, lambda query: query.stop()])
def test_a_query_names_a_server_that_ends_and_still_answers(
    monkeypatch, error, looks, raised, says, call
):
    """looks: at which look at the service it is seen to be gone."""

    class Spark:
        client = SimpleNamespace(_builder=SimpleNamespace(endpoint="127.0.0.1:1"), is_closed=False)

    seen = []

    def lost(world, name, address=""):
        seen.append(name)
        return (
            ServiceLost("the service spark died")
            if seen.count("spark") >= looks and name == "spark"
            else None
        )

    monkeypatch.setattr(sessions, "unreachable_reason", lambda spark: "")
    monkeypatch.setattr(sessions, "world_of", lambda spark: params.load("local"))
    monkeypatch.setattr(sessions.stack, "service_down_error", lost)
    query = streams.Query(Spark(), params.load("local"), Running(RuntimeError(error)))
    assert query.name == "q" and query.id == "7" and query.exception() is None
    assert not hasattr(query, "_repr_html_") and not hasattr(query, "lastprogress")
    with pytest.raises(raised, match=says):
        call(query)


def test_the_notebooks_declare_what_is_published():
    assert (ROOT / "notebooks" / "60_streaming_sales" / "61_schemas.ipynb").is_file()
    assert sales.TRACK.owns.topics[:2] == (
        "pagila.sales.avro",
        "pagila.sales.summary.avro",
    )
