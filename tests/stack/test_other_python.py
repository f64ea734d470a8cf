"""Spark's workers run another Python than this process, as those of EMR do: a landing is refused,
and lands nothing."""

import dataclasses
import os
import shutil

import instance
import pytest
from lake_help import change_record, new_topic, produce
from test_pythons import FITTING, OF_EMR, pythons
from workbench import landing, stack
from workbench.base import params, paths
from workbench.base.errors import StackError
from workbench.landing.models import LENSES
from workbench.spark import session
from workbench.stack import artifacts, services
from workbench.topic import topics


@pytest.fixture
def other(monkeypatch):
    """World `local` in an instance of its own, whose Spark's workers run another Python: (world,
    its version)."""
    found = pythons([*OF_EMR[:1], *FITTING])
    if not found:
        pytest.skip("there is no other Python here")
    version, program = next(iter(found.items()))
    artifacts.install()
    monkeypatch.setenv("WORKBENCH_INSTANCE", "test-other-python")
    monkeypatch.setenv("WORKBENCH_PORT_BASE", str(int(os.environ["WORKBENCH_PORT_BASE"]) + 120))
    spark = services.SERVICES["spark"]
    monkeypatch.setitem(
        services.SERVICES,
        "spark",
        dataclasses.replace(
            spark, env=lambda world: {**spark.env(world), "PYSPARK_PYTHON": program}
        ),
    )
    stack.down()
    shutil.rmtree(paths.state_dir(), ignore_errors=True)
    instance.stop_with_process(os.getpid(), remove=True)
    yield params.load("local"), version
    stack.down()
    shutil.rmtree(paths.state_dir(), ignore_errors=True)


@pytest.mark.drill  # a start of Spark; tests/unit hold the words
def test_a_landing_meets_workers_of_another_python(other):
    world, version = other
    stack.up(world, ["kafka", "spark"])
    topic = new_topic(world)
    produce(world, topic, change_record(1, 1))
    sink = {
        "connector.class": LENSES,
        "topics": topic,
        "connect.s3.kcql": f"INSERT INTO lake:{topic} SELECT * FROM {topic} STOREAS `json` WITH_FLUSH_COUNT = 3",
    }
    with pytest.raises(
        StackError, match=f"(?s)Spark's workers run Python {version}.*expected: +Python {version}"
    ):
        landing.run(session(world), world, sink)
    assert session(world).range(3).count() == 3, "what needs no Python there goes on"
    assert not [*paths.local_path(world.lake.landing).rglob("*.json")]
    topics.delete(world, topic)
