"""The sales of the streaming walkthrough: what the published one states of them holds for the files
that are here."""

import json
from collections import defaultdict
from decimal import Decimal
from types import SimpleNamespace

import pandas
import pytest
from workbench.base import ROOT
from workbench.checks import check
from workbench.source.row_files import read_dicts
from workbench.topic import avro
from workbench.tracks import sales, streams

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


def test_the_notebooks_declare_what_is_published():
    assert (ROOT / "notebooks" / "60_streaming_sales" / "61_schemas.ipynb").is_file()
    assert sales.TRACK.owns.topics[:2] == (
        "pagila.sales.avro",
        "pagila.sales.summary.avro",
    )
