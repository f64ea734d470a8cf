"""A session with each table of all walkthroughs, in each world: the notebook that `explore.save` writes
of it runs headless, and all its checks pass."""

import json

import instance
import pytest
import saved_sessions
from lake_help import labeled_table
from workbench import hudi
from workbench.explore import finding
from workbench.run import runner
from workbench.spark import session

pytestmark = pytest.mark.drill

# all notebooks that write tables of the lake
TRACKS = [
    "10_outbox",
    "20_query_based_cdc",
    "30_log_based_cdc",
    "40_schema_evolution",
    "50_time_travel",
    "60_streaming_sales",
    "90_your_own",
]


def check_saved_sessions(world, tables):
    """Save a session with each table of the lake, and run what was saved.

    Args:
        world: name of the world.
        tables: tables, by their path in the lake, of which a session must be saved.
    """
    with saved_sessions.sessions() as prefix:
        result = runner.run([prefix], world, progress=False)
        assert result.status == "passed", result.notebooks[0]["error"]
        found = saved_sessions.output(result.folder)
        assert not found["failed"] and set(tables) <= set(found["saved"]), found
        result = runner.run([*found["saved"].values()], world, timeout=1200, progress=False)
    record = json.loads((result.folder / "run.json").read_text(encoding="utf-8"))
    assert len(record["notebooks"]) == len(found["saved"])
    assert not saved_sessions.red_checks(record) and result.status == "passed"


def test_all_tables_in_world_local(world, tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path))
    result = runner.run(TRACKS, timeout=1800, progress=False)
    assert result.status == "passed", [n["error"] for n in result.notebooks if n["error"]]
    check_saved_sessions("local", ["moma/artists_cow", "moma/artists_mor", "bikeshare/weather"])


@pytest.mark.parametrize("name, ports", [("s3", 60), ("cluster", 80)])
def test_tables_in_other_worlds(name, ports, tmp_path, monkeypatch):
    """A table of each type, with three labels; the second one is not in the catalog."""
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path))
    services = ["kafka", "spark", *(["s3"] if name == "s3" else [])]
    with instance.world_of_its_own(name, ports, services) as world:
        spark = session(world)
        tables = [labeled_table(world, spark, kind)[1] for kind in ("cow", "mor")]
        hudi.register(spark, tables[0])
        check_saved_sessions(name, [finding.relative_path(world, table) for table in tables])
