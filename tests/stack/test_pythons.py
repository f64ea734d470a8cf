"""The lock on each other Python of this machine that fits: installed, unit tests, rows through everything."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from workbench.base import paths
from workbench.stack import artifacts

FITTING = [(3, minor) for minor in range(10, 14)]


def pythons():
    """Version → program of those that fit and are not this one: in the PATH, and pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = {}
    for version in FITTING:
        name = ".".join(map(str, version))
        for program in [shutil.which(f"python{name}"), *sorted(pyenv.glob(f"{name}.*/bin/python3"))]:
            if program and version != sys.version_info[:2]:
                code = "import sys, venv, ensurepip; print(*sys.version_info[:2], sep='.')"
                said = subprocess.run([program, "-c", code], capture_output=True, text=True)  # pyenv's `shim` may fail
                if said.stdout.strip() == name:
                    found.setdefault(name, str(program))
    return found


@pytest.mark.drill
@pytest.mark.parametrize("version", [".".join(map(str, v)) for v in FITTING])
def test_the_lock_on_another_python(version, tmp_path):
    """In a clone of what is committed, with the jars of this checkout."""
    program = pythons().get(version)
    if not program:
        pytest.skip(f"Python {version} is this one, or is not here")
    clone = tmp_path / "clone"
    given = {k: v for k, v in os.environ.items() if not k.startswith(("WORKBENCH_", "PYTEST_", "PYTHON", "MAKE"))}
    given["WORKBENCH_PORT_BASE"] = str(int(os.environ["WORKBENCH_PORT_BASE"]) + 120)

    def do(*command):
        done = subprocess.run(command, cwd=clone, env=given, capture_output=True, text=True)
        assert done.returncode == 0, f"{command} on Python {version}:\n{(done.stdout + done.stderr)[-3000:]}"
        return done.stdout

    subprocess.run(["git", "clone", "-q", paths.ROOT, clone], check=True)
    shutil.copytree(artifacts.LIB, clone / "var" / "lib")
    do("make", f"PYTHON={program}", "install")
    do(".venv/bin/python", "-m", "pytest", "-q", "tests/unit")
    try:
        assert "passed: 1 of 1 notebooks" in do(".venv/bin/workbench", "run", "13_hudi_ingest")
    finally:
        do(".venv/bin/workbench", "down")
