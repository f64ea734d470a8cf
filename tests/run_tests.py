"""Run a lane of the tests (lanes.py) on as many stacks side by side as this machine carries; red, too,
where they leave something behind.

usage: tests/run_tests.py test|check|drill [unit] [stack] [notebooks] [options of pytest, such as
    -k hudi --durations=20]
"""

import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import lanes
import psutil
from workbench.base import paths
from workbench.base.errors import did_you_mean

sys.path.append(str(Path(__file__).parent / "help"))  # pytest does so by itself
import durations  # noqa: E402
import instance  # noqa: E402

REST = {
    "test": "`make check` runs the others, `make drill` the tests that take hours",
    "check": "`make test` runs the others, `make drill` the tests that take hours",
    "drill": "`make test` and `make check` run the tests of these files that are no drill",
}


def changed_files():
    """What is changed or new in this checkout, as git puts it; none where git does not say."""
    if not shutil.which("git"):
        return set()
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=paths.ROOT, capture_output=True, text=True
    )
    return set(status.stdout.splitlines())


def main(words):
    """Return the exit code: pytest's, 1 where something is left behind, 2 for wrong usage."""
    lane, *words = words or [""]
    if lane not in REST:
        print(f"there is no lane {lane!r}: {did_you_mean(lane, list(REST))}", file=sys.stderr)
        return 2
    chosen = list(takewhile(lambda word: not word.startswith("-"), words))
    for kind in chosen:
        if kind not in lanes.KINDS:
            print(
                f"there are no tests {kind!r}: {did_you_mean(kind, lanes.KINDS)}", file=sys.stderr
            )
            return 2
    files = lanes.files(lane, [kind for kind in lanes.KINDS if kind in (chosen or lanes.KINDS)])
    stacks = lanes.count_stacks()
    print(lanes.describe_machine(stacks), flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(stacks), "--dist", "loadfile"]
    command += ["-p", "no:nbval"]  # the import of this plugin takes a second
    command += durations.limit_options(
        durations.LONGEST_DRILL if lane == "drill" else durations.LONGEST_TEST
    )
    command += ["-m", "drill"] if lane == "drill" else []
    command += [*files, *words[len(chosen) :]]
    before = changed_files()
    code = subprocess.call(command, cwd=paths.ROOT)
    psutil.wait_procs(
        instance.watchers(), timeout=60
    )  # they take down what a killed process could not
    left = [
        f"process {p.pid} of {name}: {' '.join(p.cmdline())[:200]}"
        for p, name in instance.find_service_processes(f"{paths.VAR_DIR}/instances/test")
    ]
    left += [f"changed or new file: {line}" for line in sorted(changed_files() - before)]
    if left:
        print(
            "the tests left something behind (or somebody changed a file meanwhile):",
            *left,
            sep="\n  ",
        )
    print(
        f"`make {lane}` took {len(files)} of {len(lanes.files('drill'))} test files: {REST[lane]}"
    )
    return code or bool(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
