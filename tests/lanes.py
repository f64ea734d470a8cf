"""The lanes of the tests: which files `make test` runs, and which `make check`.

`make test` is for a person who has just cloned the project and for each change: the behaviour of each
package once, with the real services. `make check` runs all other files; `.ci/run` runs both. The tests
that are marked `drill` take hours together; `make drill` runs those of all files.
"""

import os
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
KINDS = ("notebooks", "stack", "unit")
# A test waits a quarter of its time: two stacks leave 25 % of two processors idle, three 4 %.
STACKS_PER_PROCESSOR = 1.5
GIB_PER_STACK = 7  # a stack needs up to 6 GiB, its tests need the rest

# Files of `make test` that need services, in the order of the packages.
WITH_SERVICES = {
    "tests/stack/test_stack.py",
    "tests/stack/test_sources.py",
    "tests/stack/test_connect.py",
    "tests/stack/test_topics.py",
    "tests/stack/test_avro.py",  # the registry
    "tests/stack/test_landing.py",
    "tests/stack/test_hudi.py",
    "tests/stack/test_query.py",  # one kill and restart: Spark between two queries
    "tests/stack/test_streams.py",
    "tests/stack/test_trace.py",
    "tests/stack/test_explore.py",
    "tests/stack/test_own.py",
    "tests/stack/test_reconcile.py",
    "tests/stack/test_tracks.py",
    "tests/stack/test_storefront.py",
    "tests/notebooks/test_museum_tracks.py",  # 50, 90, 99
    "tests/notebooks/test_tracks.py",  # 00, 10
}
AWS = {
    "tests/unit/test_athena.py",
    "tests/unit/test_aws.py",
    "tests/unit/test_aws_calls.py",
    "tests/unit/test_connector_forms.py",
    "tests/unit/test_deploy.py",
    "tests/unit/test_deploy_guide.py",
    "tests/unit/test_deploy_policies.py",
    "tests/unit/test_deploy_scripts.py",
    "tests/unit/test_emr.py",
    "tests/unit/test_emr_jobs.py",
    "tests/unit/test_emr_notebook.py",
    "tests/unit/test_glue_registry.py",
    "tests/unit/test_kafka_iam.py",
    "tests/unit/test_kernel_script.py",
    "tests/unit/test_lease.py",
    "tests/unit/test_msk.py",
    "tests/unit/test_pack.py",
    "tests/unit/test_reach.py",
    "tests/unit/test_schedules.py",
}
STYLE_AND_TOOLS = {  # of notebooks and pages; the project's own tools, tests and benchmarks
    "tests/unit/test_bench.py",
    "tests/unit/test_breaks.py",
    "tests/unit/test_cds.py",
    "tests/unit/test_dashboard.py",
    "tests/unit/test_durations.py",
    "tests/unit/test_makefile.py",
    "tests/unit/test_notebook_calls.py",
    "tests/unit/test_notebook_style.py",
    "tests/unit/test_own_schemas.py",
    "tests/unit/test_protocols.py",
    "tests/unit/test_published.py",
    "tests/unit/test_rooms.py",
    "tests/unit/test_run_tests.py",
    "tests/unit/test_size.py",
    "tests/unit/test_tools.py",
    "tests/unit/test_types_doc.py",
    "tests/unit/test_wheel.py",
    "tests/unit/test_yaml_files.py",
}
UNIT_OF_CHECK = AWS | STYLE_AND_TOOLS


def files(lane, kinds=KINDS):
    """Return the test files of a lane and of some kinds, as sorted paths from the checkout's folder.

    Args:
        lane: `test`, `check`, or `drill`, which has all files.
        kinds: folders below tests/.
    """
    found = [
        path.relative_to(ROOT).as_posix()
        for kind in kinds
        for path in sorted((ROOT / "tests" / kind).glob("test_*.py"))
    ]
    return [file for file in found if lane == "drill" or lane_of(file) == lane]


def lane_of(file):
    """Return `test` or `check`, whichever of them runs a file."""
    is_unit = file.startswith("tests/unit/")
    in_test = file not in UNIT_OF_CHECK if is_unit else file in WITH_SERVICES
    return "test" if in_test else "check"


def count_stacks():
    """Return how many stacks this machine carries: three for two processors, if memory suffices."""
    return max(
        1, min(int(STACKS_PER_PROCESSOR * count_processors()), memory_gib() // GIB_PER_STACK)
    )


def describe_machine(stacks):
    """Return a line on this machine and the stacks that its tests share."""
    return (
        f"{count_processors()} processors, {memory_gib()} GiB: {stacks} stack{'s' * (stacks > 1)}"
    )


def count_processors():
    """Return the processors that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_gib():
    """Return the memory of this machine in GiB, rounded; a system shows a bit less than it has."""
    return round(psutil.virtual_memory().total / 2**30)
