"""What `make test` does: all kinds of tests or the chosen ones, and red where they leave something
behind."""

import importlib.util
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import instance
import lanes
import psutil
import pytest
from workbench.base import paths
from workbench.base.wait import wait_until

TESTS = paths.ROOT / "tests"


@pytest.fixture
def script(tmp_path, monkeypatch):
    """tests/run_tests.py, in a repository of its own; `called` takes what it runs."""
    spec = importlib.util.spec_from_file_location("run_tests", TESTS / "run_tests.py")
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
        return script.main(["test", *(words or ["unit"])])

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
        f"process 7 of {paths.VAR_DIR}/instances/test-gw0:kafka: java kafka.Kafka"
        in capsys.readouterr().out
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


@pytest.fixture
def command_of(script, monkeypatch):
    def run(*words):
        commands = []
        monkeypatch.setattr(instance, "watchers", list)
        monkeypatch.setattr(
            script.subprocess, "call", lambda command, cwd: commands.append(command) or 0
        )
        assert script.main(list(words)) == 0
        return commands[0]

    return run


def test_each_test_file_is_in_one_lane(command_of, capsys):
    everything = {path.relative_to(TESTS.parent).as_posix() for path in TESTS.glob("*/test_*.py")}
    run = {
        lane: {word for word in command_of(lane) if word.startswith("tests/")}
        for lane in ("test", "check", "drill")
    }
    assert run["test"] and run["check"] and not run["test"] & run["check"]
    assert run["test"] | run["check"] == run["drill"] == everything
    assert lanes.WITH_SERVICES | lanes.UNIT_OF_CHECK <= everything, "a file was renamed or removed"
    out = capsys.readouterr().out
    assert f"`make test` took {len(run['test'])} of {len(everything)} test files" in out
    assert "`make check` runs the others" in out


def test_the_chosen_kinds_and_pytests_options(command_of):
    command = command_of("check", "unit", "stack", "-k", "test_params or stack")
    assert command[-2:] == ["-k", "test_params or stack"]
    assert {word.split("/")[1] for word in command if word.startswith("tests/")} == {
        "unit",
        "stack",
    }
    assert command_of("drill", "stack")[-len(lanes.files("drill", ["stack"])) - 2 :][:2] == [
        "-m",
        "drill",
    ]


@pytest.mark.parametrize(
    "processors, memory, stacks",
    [(1, 8, 1), (2, 7, 1), (2, 16, 2), (2, 23, 3), (4, 32, 4), (8, 32, 4), (8, 64, 9)],
)
def test_stacks_that_a_machine_carries(monkeypatch, capsys, command_of, processors, memory, stacks):
    monkeypatch.setattr(lanes, "count_processors", lambda: processors)
    monkeypatch.setattr(lanes, "memory_gib", lambda: memory)
    command = command_of("test")
    assert command[command.index("-n") + 1] == str(stacks)
    assert f"{processors} processors, {memory} GiB: {stacks} stack" in capsys.readouterr().out


@pytest.mark.parametrize("words, meant", [(["tset"], "test"), (["check", "untit"], "unit")])
def test_what_there_is_not_is_wrong_usage(script, capsys, words, meant):
    assert script.main(words) == 2 and f"did you mean {meant!r}?" in capsys.readouterr().err
