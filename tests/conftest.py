"""All tests run in an instance of their own, beside whatever a person has running in this checkout.

Its services start when the first test asks for them, once, and are gone afterwards, also when pytest is killed.
"""
import os
import shutil

import pytest

os.environ["WORKBENCH_INSTANCE"] = "test"
os.environ["WORKBENCH_PORT_BASE"] = os.environ.get("WORKBENCH_TEST_PORT_BASE", "21800")


@pytest.fixture(scope="session")
def world():
    """World `local`, embedded, with PostgreSQL, Kafka, Connect and Spark answering."""
    from workbench import artifacts, params, stack

    artifacts.install()
    loaded = params.load("local")
    stack.down()
    shutil.rmtree(params.state_dir(), ignore_errors=True)
    stack.down_with(os.getpid(), remove=True)
    stack.up(loaded)
    yield loaded
    stack.down()
    shutil.rmtree(params.state_dir(), ignore_errors=True)


@pytest.fixture(scope="module")
def spark(world):
    """A session on the shared Spark Connect server; a new one where the tests of another module have killed Spark."""
    from workbench.spark import session

    return session(world)
