"""All tests run in an instance of their own, beside whatever a person has running in this checkout.

Its services start when the first test asks for them, once, and are gone afterwards, also when
pytest is killed. With `-n` each process (`gw0`, `gw1`, …) has an instance and ports of its own.
"""

import os
import shutil

import psutil
import pytest

GIB = 2**30
FIRST_PORT, PORTS = (
    int(os.environ.get("WORKBENCH_TEST_PORT_BASE", "21800")),
    200,
)  # of one process and its side stacks
WORKER = os.environ.get(
    "PYTEST_XDIST_WORKER", ""
)  # empty in a run without -n, and in the one that hands out the tests

os.environ["WORKBENCH_INSTANCE"] = f"test{WORKER and '-'}{WORKER}"
os.environ["WORKBENCH_PORT_BASE"] = str(FIRST_PORT + PORTS * int(WORKER[2:] or 0))


def pytest_xdist_auto_num_workers(config):
    """`-n auto`: two stacks side by side where two processors and 16 GiB (of which a system shows a
    bit less) are."""
    return 2 if (os.cpu_count() or 1) >= 2 and psutil.virtual_memory().total >= 15 * GIB else 1


@pytest.fixture(scope="session")
def world():
    """World `local`, embedded, with PostgreSQL, Kafka, Connect and Spark answering."""
    import instance
    from workbench import stack
    from workbench.base import params, paths
    from workbench.stack import artifacts

    artifacts.install()
    loaded = params.load("local")
    with instance.exclusive_run():
        stack.down()
        shutil.rmtree(paths.state_dir(), ignore_errors=True)
        instance.stop_with_process(os.getpid(), remove=True)
        stack.up(loaded)
        yield loaded
        stack.down()
        shutil.rmtree(paths.state_dir(), ignore_errors=True)


@pytest.fixture(scope="module")
def spark(world):
    """A session on the shared Spark Connect server; a new one where the tests of another module
    have killed Spark."""
    from workbench.spark import session

    return session(world)
