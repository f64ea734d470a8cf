"""What `make test` does: all kinds of tests or the chosen ones, and red where they leave something
behind."""

import importlib.util
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import instance
import psutil
import pytest
from workbench.base import paths
from workbench.base.wait import wait_until


@pytest.fixture
def script(tmp_path, monkeypatch):
    """tests/run_tests.py, in a repository of its own; `called` takes what it runs."""
    spec = importlib.util.spec_from_file_location(
        "run_tests", paths.ROOT / "tests" / "run_tests.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path / "var")
    return module


@pytest.fixture
def pytest_then(script, monkeypatch):
    def run(make=lambda: None, *words, watchers=list):  # not those of the run that this test is of
        monkeypatch.setattr(script.subprocess, "call", lambda *a, **k: make() or 0)
        monkeypatch.setattr(instance, "watchers", watchers)
        return script.main(list(words) or ["unit"])

    return run


def test_tests_that_leave_something_behind_are_red(pytest_then, monkeypatch, tmp_path, capsys):
    assert pytest_then() == 0
    assert pytest_then(lambda: (tmp_path / "litter.txt").write_text("x") and None) == 1
    assert "changed or new file: ?? litter.txt" in capsys.readouterr().out
    assert pytest_then() == 0, "it was there before"
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        assert pytest_then() == 0, "a machine without git"
    monkeypatch.setattr(
        instance,
        "find_service_processes",
        lambda start: [
            (SimpleNamespace(pid=7, cmdline=lambda: ["java", "kafka.Kafka"]), f"{start}-gw0:kafka")
        ],
    )
    assert pytest_then() == 1
    assert (
        f"process 7 of {paths.VAR_DIR}/test-gw0:kafka: java kafka.Kafka" in capsys.readouterr().out
    )


def test_who_takes_down_what_was_killed_is_waited_for(pytest_then, monkeypatch):
    seen = []
    other = subprocess.Popen(
        [sys.executable, instance.__file__, str(os.getpid()), "keep"], stdin=subprocess.DEVNULL
    )
    watching = wait_until(  # a new process has its command line a moment later
        lambda: [p for p in instance.watchers() if p.pid == other.pid], "the watcher", timeout=10
    )
    monkeypatch.setattr(
        instance,
        "find_service_processes",
        lambda start: seen.append(psutil.pid_exists(other.pid)) or [],
    )
    assert pytest_then(lambda: other.send_signal(signal.SIGTERM), watchers=lambda: watching) == 0
    assert watching and seen == [False]


@pytest.mark.parametrize(
    "words, folders, options",
    [
        ([], ["tests/notebooks", "tests/stack", "tests/unit"], []),
        (["unit", "stack"], ["tests/stack", "tests/unit"], []),
        (
            ["-k", "test_params or stack"],
            ["tests/notebooks", "tests/stack", "tests/unit"],
            ["-k", "test_params or stack"],
        ),
        (["stack", "-m", "drill"], ["tests/stack"], ["-m", "drill"]),
    ],
)
def test_the_chosen_kinds_and_pytests_options(script, monkeypatch, words, folders, options):
    seen = []
    monkeypatch.setattr(instance, "watchers", list)
    monkeypatch.setattr(script.subprocess, "call", lambda command, cwd: seen.extend(command) or 0)
    assert script.main(words) == 0 and seen[-len(folders + options) :] == folders + options


def test_a_kind_that_there_is_not_is_wrong_usage(script, capsys):
    assert script.main(["untit"]) == 2 and "did you mean 'unit'?" in capsys.readouterr().err
