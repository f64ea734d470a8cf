"""All tests run in an instance of their own, separate from a running stack of this checkout.

Its services start once, when the first test needs them. They are removed at the end, even if pytest
is killed. With `-n` each process (`gw0`, `gw1`, …) has an instance and ports of its own.
"""

import contextlib
import os
import shutil

import pytest

FIRST_PORT, PORTS = (
    int(os.environ.get("WORKBENCH_TEST_PORT_BASE", "21800")),
    200,
)  # for one process and its further stacks
WORKER = os.environ.get(
    "PYTEST_XDIST_WORKER", ""
)  # empty in a run without -n, and in the controller process

os.environ["WORKBENCH_INSTANCE"] = f"test{WORKER and '-'}{WORKER}"
os.environ["WORKBENCH_PORT_BASE"] = str(FIRST_PORT + PORTS * int(WORKER[2:] or 0))


def pytest_configure(config):
    """Leave out drill tests that are not asked for, also with another `-m`.

    In the controller of a run with `-n`, also store durations and start the longest files first.
    """
    chosen = config.option.markexpr
    if "drill" not in chosen:
        config.option.markexpr = f"not drill and ({chosen})" if chosen else "not drill"
    if not WORKER and config.option.dist != "no":
        import durations

        config.pluginmanager.register(durations.Durations())
        config.pluginmanager.register(FailuresAtOnce(config))


class FailuresAtOnce:
    """Plugin that names each failure when it happens, not only at the end of all tests.

    A run that a time limit ends has named its failures.
    """

    def __init__(self, config):
        self._config = config

    def pytest_runtest_logreport(self, report):
        if report.failed:
            lines = report.longreprtext.splitlines() or [""]
            cause = next((line for line in lines if line.startswith("E ")), lines[-1])
            reporter = self._config.pluginmanager.get_plugin("terminalreporter")
            reporter.write_line("")  # the dots end here
            reporter.write_line(
                f"FAILED in {report.when}: {report.nodeid}: {cause.removeprefix('E').strip()[:300]}"
            )


@pytest.fixture(scope="session")
def world():
    """Yield world `local`, embedded, with running PostgreSQL, Kafka, Connect and Spark."""
    import instance
    import worlds
    from workbench import stack
    from workbench.base import params, paths
    from workbench.stack import artifacts, process

    artifacts.install()
    with instance.exclusive_run(), contextlib.ExitStack() as held:
        stack.down()
        shutil.rmtree(paths.state_dir(), ignore_errors=True)
        loaded = params.load("local")  # with the ports of this run, not of a state that was left
        held.enter_context(worlds.activated(loaded))
        instance.stop_with_process(os.getpid(), remove=True)
        stack.up(loaded)
        if process.writes_archive(
            "spark"
        ):  # after an hour of tests Spark needs a minute to write it
            stack.stop("spark")
            stack.ensure_running(loaded, "spark")
        yield loaded
        stack.down()
        shutil.rmtree(paths.state_dir(), ignore_errors=True)


@pytest.fixture(scope="module")
def spark(world):
    """Return a session on the shared Spark Connect server.

    It is a new one if the tests of another module have killed Spark.
    """
    from workbench.spark import session

    return session(world)
