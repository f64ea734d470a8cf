"""The library logs only if the environment asks for it."""

import importlib
import logging
import subprocess
import sys

import pytest
import workbench
from workbench.base import logs


@pytest.fixture
def logger(monkeypatch):
    """The logger of the library before it is configured."""
    logger = logging.getLogger("workbench")
    for name, value in (("handlers", []), ("level", logging.NOTSET), ("propagate", True)):
        monkeypatch.setattr(logger, name, value)
    return logger


def test_a_process_logs_to_standard_error(monkeypatch):
    monkeypatch.setenv("WORKBENCH_LOG", "info")
    command = (
        "import logging; from workbench.base import logs; logs.configure(); "
        "logging.getLogger('workbench.x').info('a message')"
    )
    result = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr.endswith("INFO workbench.x: a message\n")


@pytest.mark.parametrize(
    ("value", "level"), [("info", "INFO"), ("DEBUG", "DEBUG"), ("nonsense", "INFO")]
)
def test_the_variable_sets_the_level(monkeypatch, logger, value, level):
    monkeypatch.setenv("WORKBENCH_LOG", value)
    logs.configure()
    assert logging.getLevelName(logger.level) == level


def test_without_the_variable_there_is_a_silent_handler(monkeypatch, logger):
    monkeypatch.delenv("WORKBENCH_LOG", raising=False)
    importlib.reload(workbench)
    logs.configure()
    logs.configure()
    assert [type(handler) for handler in logger.handlers] == [logging.NullHandler]
