"""Run the tests on as many stacks side by side as this machine carries (see conftest.py); red, too,
where they leave something behind.

usage: tests/run_tests.py [unit] [stack] [notebooks] [options of pytest, such as -k hudi
    --durations=20]
"""

import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import psutil
from workbench.base import paths
from workbench.base.errors import did_you_mean

sys.path.append(str(Path(__file__).parent / "help"))  # pytest does so by itself
import durations  # noqa: E402
import instance  # noqa: E402

KINDS = ("notebooks", "stack", "unit")
SIDE_BY_SIDE = ["-n", "auto", "--dist", "loadfile"]  # in the order of durations.py
SIDE_BY_SIDE += ["-p", "no:nbval"]  # the import of this plugin takes a second


def changed_files():
    """What is changed or new in this checkout, as git puts it; none where git does not say."""
    if not shutil.which("git"):
        return set()
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=paths.ROOT, capture_output=True, text=True
    )
    return set(status.stdout.splitlines())


def main(words):
    """Return the exit code: pytest's, 1 where something is left behind, 2 for tests of no such
    kind."""
    chosen = list(takewhile(lambda word: not word.startswith("-"), words))
    for kind in chosen:
        if kind not in KINDS:
            print(f"there are no tests {kind!r}: {did_you_mean(kind, KINDS)}", file=sys.stderr)
            return 2
    folders = [f"tests/{kind}" for kind in KINDS if kind in (chosen or KINDS)]
    options = words[len(chosen) :]
    limit = durations.limit_options(
        durations.LONGEST_DRILL if "drill" in options else durations.LONGEST_TEST
    )
    command = [sys.executable, "-m", "pytest", "-q", *SIDE_BY_SIDE, *limit, *folders, *options]
    before = changed_files()
    code = subprocess.call(command, cwd=paths.ROOT)
    psutil.wait_procs(
        instance.watchers(), timeout=60
    )  # they take down what a killed process could not
    left = [
        f"process {p.pid} of {name}: {' '.join(p.cmdline())[:200]}"
        for p, name in instance.find_service_processes(f"{paths.VAR_DIR}/test")
    ]
    left += [f"changed or new file: {line}" for line in sorted(changed_files() - before)]
    if left:
        print(
            "the tests left something behind (or somebody changed a file meanwhile):",
            *left,
            sep="\n  ",
        )
    return code or bool(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
