"""The benchmark: its measures can be imported, and docs/measured.md shows the stored figures of `peers`."""

import json
import re
import sys
from pathlib import Path

import pytest
from workbench.base.paths import ROOT
from workbench.stack import artifacts

sys.path.append(str(ROOT / "tests" / "bench"))
import bench
import bench_peers
import peers_spark

TABLES = ("default", "copy-on-write", "Iceberg merge-on-read", "Delta", "Delta deletion vectors")
SIZES = (10, 20, 30)


def figures(**of_default):
    """Figures of a run in which everything took 1 s, and the default table what is named here."""
    seconds = {
        str(size): {
            operation: {t: [1.0, 9.0, 0.5] for t in TABLES} for operation in operations.split()
        }
        for size, operations in zip(SIZES, ("upsert", "load upsert delete read", "upsert"))
    }
    for name, value in of_default.items():
        operation, _, size = name.partition("_")
        seconds[size][operation]["default"] = [value]
    return {
        "date": "2026-01-02",
        "commit": "abc",
        "processors": 2,
        "load_average": 0.1,
        "seed": 7,
        "rounds": 3,
        "changed": 1000,
        "partitions": 4,
        "sizes": list(SIZES),
        "versions": {"Hudi": "1.0.2", "Iceberg": "1.10.0", "Delta": "3.3.2"},
        "hudi": {
            str(size): {"default": "mor, BUCKET", "copy-on-write": "cow, BUCKET"} for size in SIZES
        },
        "seconds": seconds,
        "bytes": {"after the load": dict.fromkeys(TABLES, 1024 * 1024)},
    }


def test_every_measure_can_be_chosen():
    assert set(bench.NOT_BY_DEFAULT) | bench.WITHOUT_STACK <= set(bench.MEASURES)
    for module in (bench.bench_travel, bench.bench_peers):
        assert list(module.SIZES) == sorted(module.SIZES)  # --sizes replaces them


def test_measured_md_shows_the_stored_figures():
    document = bench_peers.DOCUMENT.read_text(encoding="utf-8")
    assert document.count(bench_peers.BEGIN) == document.count(bench_peers.END) == 1
    assert bench_peers.stored_part() in document, (
        "docs/measured.md was edited by hand, or tests/bench/peers.json: "
        'run `make bench ARGS="--only peers --write"`'
    )


def test_publish_replaces_only_the_part_between_the_markers(tmp_path, monkeypatch):
    for name in ("LAST_RUN", "FIGURES", "DOCUMENT"):
        monkeypatch.setattr(bench_peers, name, tmp_path / name)
    begin, end = bench_peers.BEGIN, bench_peers.END
    bench_peers.DOCUMENT.write_text(f"before\n{begin}\n{bench_peers.NOTHING}\n{end}\nafter\n")
    assert bench_peers.stored_part() in bench_peers.DOCUMENT.read_text()
    bench_peers.LAST_RUN.write_text(json.dumps(figures(upsert_20=0.25)))
    bench_peers.publish()
    text = bench_peers.DOCUMENT.read_text()
    assert text.startswith(f"before\n{begin}\n## Beside") and text.endswith(f"\n{end}\nafter\n")
    assert bench_peers.stored_part() in text
    assert re.search(r"^\| upsert, 20 rows, s \| 0\.25 \| 1\.00 \| 1\.00 ", text, re.M)
    edited = text.replace("0.25", "0.15")
    assert edited != text and bench_peers.stored_part() not in edited


@pytest.mark.parametrize(
    ("took", "missed"),
    [
        ({}, "upsert upsert upsert upsert"),  # of both sizes, against Iceberg and against Delta
        ({"upsert_20": 0.2, "upsert_30": 0.2, "upsert_10": 0.15}, ""),
        ({"upsert_20": 0.2, "upsert_30": 0.2, "upsert_10": 0.1}, "upsert"),
        ({"upsert_20": 0.2, "upsert_30": 0.2, "read_20": 2.1}, "read"),
        ({"upsert_20": 0.2, "upsert_30": 0.2, "load_20": 1.6}, "load"),
    ],
)
def test_goals(took, missed):
    lines = bench_peers.goals(figures(**took), "default")
    assert len(lines) == 7
    assert [re.match(r"\w+", line.what)[0] for line in lines if not line.met] == missed.split()


def test_the_pinned_jars_are_fetched_for_the_bench_only():
    services = {a.service for a in artifacts.locked_artifacts()}
    assert "peers" not in services and "spark" in services
    with peers_spark.pins():
        pinned = artifacts.locked_artifacts()
    assert {a.service for a in pinned} == {"peers"}
    assert {"org.apache.iceberg", "io.delta"} == {a.org for a in pinned}
    assert artifacts.LOCK != Path(peers_spark.PINS)
