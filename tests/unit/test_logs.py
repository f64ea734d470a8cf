"""The library logs only if the environment asks for it, and not into the output of a cell."""

import io
import logging
import subprocess
import sys

import pytest
from workbench.base import logs

EMIT = "import workbench, logging; logging.getLogger('workbench.hudi.x').{level}('a message')"


@pytest.fixture
def logger(monkeypatch):
    """The logger of the library before it is configured."""
    logger = logging.getLogger("workbench")
    for name, value in (("handlers", []), ("level", logging.NOTSET), ("propagate", True)):
        monkeypatch.setattr(logger, name, value)
    return logger


def run(level, monkeypatch, value):
    monkeypatch.setenv("WORKBENCH_LOG", value)
    command = [sys.executable, "-c", EMIT.format(level=level)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


@pytest.mark.parametrize(
    ("value", "level", "is_logged"),
    [
        ("", "error", False),
        ("info", "info", True),
        ("info", "debug", False),
        ("DEBUG", "debug", True),
        ("nonsense", "info", True),
    ],
)
def test_records_go_to_standard_error_when_the_variable_is_set(
    monkeypatch, value, level, is_logged
):
    result = run(level, monkeypatch, value)
    assert result.stdout == ""
    assert ("workbench.hudi.x: a message" in result.stderr) is is_logged
    assert len(result.stderr.splitlines()) == is_logged


def test_without_the_variable_there_is_a_silent_handler(monkeypatch, logger):
    monkeypatch.delenv("WORKBENCH_LOG", raising=False)
    logs.configure()
    logs.configure()
    assert [type(handler) for handler in logger.handlers] == [logging.NullHandler]


def test_a_kernel_logs_to_the_descriptor_that_it_was_started_with(monkeypatch, logger, tmp_path):
    """ipykernel replaces sys.stderr, and file descriptor 2, by the output of the cell."""
    cell = io.StringIO()
    with (tmp_path / "log").open("w") as file:
        cell.fileno = file.fileno
        monkeypatch.setenv("WORKBENCH_LOG", "info")
        monkeypatch.setattr(sys, "stderr", cell)
        logs.configure()
        logger.info("a message")
        logs.configure()
    assert len(logger.handlers) == 1 and cell.getvalue() == ""
    assert "INFO workbench: a message" in (tmp_path / "log").read_text()
