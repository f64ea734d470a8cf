"""Durations of tests are stored, compared with those of the run before, and order the files."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import durations
import pytest
from workbench.base import paths

TESTS = paths.ROOT / "tests"
FILES = {
    "stack/test_known.py": "def test_one(log): pass",
    "stack/test_unknown.py": "def test_one(log): pass",
    "unit/test_first.py": "def test_one(log): pass",
    "unit/test_longest.py": "def test_one(log): pass",
    "unit/test_marked.py": """
import pytest

@pytest.mark.aws
def test_aws(log): pass
@pytest.mark.drill
def test_drill(log): pass
""",
    "unit/test_outcomes.py": """
import pytest

@pytest.fixture
def late():
    yield
    assert False

def test_red(): assert False
def test_red_at_its_end(late): pass
def test_skipped(): pytest.skip("not here")
@pytest.mark.xfail
def test_expected(): assert False
""",
}


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path / "var")
    return tmp_path


@pytest.fixture
def run(checkout):
    """Run pytest in a checkout with FILES and the conftest.py of all tests.

    Returns its output and the ids of the tests with fixture `log`, as they began.
    """
    tests = checkout / "tests"
    for name, text in FILES.items():
        path = tests / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    log = (
        "\n\n@pytest.fixture\ndef log(request):\n"
        f"    with open({str(checkout / 'log')!r}, 'a') as f:\n"
        "        print(request.node.nodeid, file=f)\n"
    )
    (tests / "conftest.py").write_text((TESTS / "conftest.py").read_text() + log)
    (checkout / "pytest.ini").write_text(
        f'[pytest]\npythonpath = "{TESTS / "help"}"\naddopts = --import-mode=importlib\n'
    )

    def do(*options):
        given = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        given["WORKBENCH_ROOT"] = str(checkout)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:nbval",
            *options,
        ]
        done = subprocess.run(command, cwd=checkout, env=given, capture_output=True, text=True)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        begun = (checkout / "log").read_text().split()
        (checkout / "log").unlink()
        return done.stdout, [durations.file_of(test) for test in begun]

    return do


def store(content):
    paths.write_private_file(durations.stored_file(), json.dumps(content).encode())


def test_the_longest_files_begin_first_and_what_passed_is_stored(run):
    store(
        {
            "tests/unit/test_longest.py::test_one": [1, 40],
            "tests/stack/test_known.py::test_one": [3, 0],
            "tests/unit/test_outcomes.py::test_red": [20, 0],
            "tests/unit/test_removed.py::test_one": [20, 0],
        }
    )
    out, begun = run("-n", "1", "--dist", "loadfile")
    assert begun == [
        "tests/unit/test_longest.py",
        "tests/stack/test_unknown.py",  # the assumed time of a stack test
        "tests/stack/test_known.py",
        "tests/unit/test_first.py",
        "tests/unit/test_marked.py",
    ]
    stored = durations.read()
    assert set(stored) == {
        *(f"tests/{name}::test_one" for name in FILES if "def test_one" in FILES[name]),
        "tests/unit/test_marked.py::test_aws",
        "tests/unit/test_outcomes.py::test_red",
    }, "of those that did not pass the earlier duration stays, of a file that is gone nothing"
    assert stored["tests/unit/test_outcomes.py::test_red"] == [20, 0]
    call, fixtures, commit = stored["tests/unit/test_longest.py::test_one"]
    assert fixtures < 40 and commit == ""  # a folder without git
    assert "s  in process gw0" in out and "s  tests/unit/test_outcomes.py" in out


def test_a_failure_is_named_before_the_other_tests_end(run):
    out, _ = run("-n", "1", "--dist", "loadfile")
    red, at_its_end = [
        f"FAILED in {when}: tests/unit/test_outcomes.py::{test}: assert False"
        for when, test in (("call", "test_red"), ("teardown", "test_red_at_its_end"))
    ]
    assert red in out and at_its_end in out
    assert out.index(red) < out.index("[100%]"), "before the last progress"


def test_a_test_that_hangs_fails_and_the_others_run(run, checkout):
    hanging = checkout / "tests" / "unit" / "test_hanging.py"
    hanging.parent.mkdir(parents=True, exist_ok=True)
    hanging.write_text(
        "import time\n\ndef test_hanging(log): time.sleep(60)\ndef test_after(log): pass\n"
    )
    limit = durations.limit_options(2)
    out, begun = run("-n", "1", "--dist", "loadfile", *limit)
    assert "tests/unit/test_hanging.py::test_hanging: Failed: Timeout" in out
    assert begun.count("tests/unit/test_hanging.py") == 2, "the next test of its file, too"


def test_a_run_in_one_process_stores_nothing_and_no_drill_comes_with_other_marks(run):
    out, begun = run("-m", "not aws")
    assert len(begun) == 4 and "tests/unit/test_marked.py" not in begun
    assert "in process" not in out and not durations.stored_file().exists()


@pytest.mark.parametrize(
    "before, now, slower",
    [(4, 8, True), (4, 7.9, False), (2, 4.9, False), (0.01, 5, True), (None, 60, False)],
)
def test_a_test_that_became_slower(before, now, slower):
    stored = {} if before is None else {"a": [before, 1]}
    assert durations.find_slower(stored, {"a": [now, 100]}) == [("a", before, now)] * slower


def test_a_slower_test_is_named_once(checkout):
    store({"tests/unit/test_a.py::test_one": [2.5, 0]})
    (checkout / "tests" / "unit").mkdir(parents=True)
    (checkout / "tests" / "unit" / "test_a.py").touch()
    name = "7.0 s  slower, 2.5 s in the last run: tests/unit/test_a.py::test_one"
    for named in (True, False):
        plugin, lines = durations.Durations(), []
        for when, seconds in (("setup", 1), ("call", 7), ("teardown", 2)):
            plugin.pytest_runtest_logreport(
                SimpleNamespace(
                    nodeid="tests/unit/test_a.py::test_one",
                    when=when,
                    duration=seconds,
                    passed=True,
                    worker_id="gw0",
                )
            )
        plugin.pytest_terminal_summary(
            SimpleNamespace(section=lines.append, write_line=lines.append)
        )
        assert any(name in line for line in lines) == named, lines
        assert durations.read() == {"tests/unit/test_a.py::test_one": [7, 3, ""]}


def test_a_damaged_file_is_no_obstacle(checkout):
    paths.write_private_file(durations.stored_file(), b"{")
    assert durations.read() == {}


def test_a_long_file_without_durations_is_started_early():
    assert [file for file in durations.ASSUMED_FILES if not (paths.ROOT / file).exists()] == []
    assert durations.weigh(["tests/stack/test_own.py::a"], {}) == 350
    assert (
        durations.weigh(["tests/stack/test_own.py::a"], {"tests/stack/test_own.py::a": [1, 2]}) == 3
    )
