"""Durations of tests, and the order of files that follows from them.

`make test` and `make check` store the durations of the tests that passed (`stored_file`). The next run names the
tests that became slower, and starts the files that take longest first, so that all processes end at
about the same time. A run without `-n` stores nothing: its tests do not share the processors, and
all tests of the next `make test` would look slower.
"""

import json
import shutil
import subprocess
from collections import defaultdict

from workbench.base import paths
from xdist.scheduler import LoadFileScheduling

SLOW = 5  # seconds; a shorter test is not reported as slower
TIMES_SLOWER = 2
LONGEST = 10  # files in the summary
LONGEST_TEST, LONGEST_DRILL = 600, 3 * 3600  # seconds with fixtures; a longer test fails
# seconds of a test that no run has stored yet; the first run of a checkout has only these
ASSUMED = {"notebooks": 90, "stack": 8, "unit": 0.1}
# the same for the files whose tests take longer; a long file that starts last would be waited for
ASSUMED_FILES = {
    "tests/notebooks/test_museum_tracks.py": 700,
    "tests/notebooks/test_tracks.py": 400,
    "tests/notebooks/test_more_tracks.py": 900,
    "tests/notebooks/test_operations_track.py": 800,
    "tests/stack/test_own_flows.py": 600,
    "tests/stack/test_own.py": 350,
    "tests/stack/test_own_promise.py": 300,
    "tests/stack/test_own_commands.py": 220,
    "tests/stack/test_own_interruptions.py": 60,
    "tests/stack/test_own_messages.py": 230,
    "tests/stack/test_own_mariadb.py": 180,
    "tests/stack/test_own_verdict.py": 170,
    "tests/stack/test_readiness.py": 150,
    "tests/stack/test_types.py": 140,
    "tests/stack/test_transforms.py": 10,
}


def limit_options(seconds):
    """Return the options of pytest-timeout with which a longer test fails and the others run."""
    return ["--timeout", str(seconds), "--timeout-method", "signal"]


def stored_file():
    """Return the path of the stored durations."""
    return paths.VAR_DIR / "test-durations.json"


def read():
    """Return the stored durations: {id of a test: [seconds of its call, seconds of its fixtures, commit]}."""
    try:
        return json.loads(stored_file().read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # a damaged file costs the order of one run
        return {}


def run_commit():
    """Return the short name of the checked-out commit, "" where git does not say."""
    if not shutil.which("git"):
        return ""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True).stdout.strip()


def file_of(test):
    """Return the file in the id of a test."""
    return test.partition("::")[0]


def find_slower(before, now):
    """Return the tests that became slower, the slowest first: (test, seconds before, seconds now).

    Only calls are compared. The first test of a process pays for the fixtures of all others.
    """
    found = [
        (test, before[test][0], call)
        for test, (call, *_) in now.items()
        if test in before and call >= max(SLOW, TIMES_SLOWER * before[test][0])
    ]
    return sorted(found, key=lambda row: -row[2])


def weigh(tests, durations):
    """Return the seconds that the tests of a file will take; those without a duration take the assumed time."""
    file = file_of(next(iter(tests), ""))
    if file in ASSUMED_FILES and not any(test in durations for test in tests):
        return ASSUMED_FILES[file]
    return sum(
        sum(durations[test][:2]) if test in durations else ASSUMED.get(test.split("/")[1], 1)
        for test in tests
    )


class LongestFirst(LoadFileScheduling):
    """Scheduler of pytest-xdist for whole files, the longest first."""

    def __init__(self, config, log):
        super().__init__(config, log)
        self._durations = read()

    def _assign_work_unit(self, node):
        longest = max(self.workqueue, key=lambda file: weigh(self.workqueue[file], self._durations))
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)


class Durations:
    """Plugin of the process that reports (with `-n`, the one that runs no tests)."""

    def __init__(self):
        self._seconds = defaultdict(lambda: [0.0, 0.0])
        self._by_process = defaultdict(float)
        self._called, self._failed = set(), set()

    def pytest_xdist_make_scheduler(self, config, log):
        return LongestFirst(config, log) if config.getoption("dist") == "loadfile" else None

    def pytest_runtest_logreport(self, report):
        self._seconds[report.nodeid][report.when != "call"] += report.duration
        # the report of a process that crashed has no worker_id, and no duration
        self._by_process[getattr(report, "worker_id", "that crashed")] += report.duration
        if report.when == "call" and report.passed:
            self._called.add(report.nodeid)
        elif not report.passed:
            self._failed.add(report.nodeid)

    def passed(self):
        """Return the durations of the tests that passed, including the end of their fixtures."""
        return {
            test: [round(seconds, 2) for seconds in self._seconds[test]]
            for test in self._called - self._failed
        }

    def pytest_terminal_summary(self, terminalreporter):
        before, now = read(), self.passed()
        self._summarize(terminalreporter, find_slower(before, now))
        kept = {
            test: each for test, each in before.items() if (paths.ROOT / file_of(test)).exists()
        }
        commit = run_commit()
        stored = {test: [*seconds, commit] for test, seconds in now.items()}
        text = json.dumps({**kept, **stored}, indent=0, sort_keys=True)
        paths.write_private_file(stored_file(), text.encode())

    def _summarize(self, reporter, slower):
        by_file = defaultdict(float)
        for test, seconds in self._seconds.items():
            by_file[file_of(test)] += sum(seconds)
        reporter.section("durations")
        for process, seconds in sorted(self._by_process.items()):
            reporter.write_line(f"{seconds:7.1f} s  in process {process}")
        for file in sorted(by_file, key=by_file.get, reverse=True)[:LONGEST]:
            reporter.write_line(f"{by_file[file]:7.1f} s  {file}")
        for test, before, now in slower:
            reporter.write_line(f"{now:7.1f} s  slower, {before:.1f} s in the last run: {test}")
