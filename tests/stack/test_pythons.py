"""The lock on each other Python of this machine that fits: installed, unit tests, rows through everything. And the
wheel on those of EMR."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import bare
import pyspark
import pytest
from workbench.base import paths
from workbench.stack import artifacts

FITTING = [(3, minor) for minor in range(10, 14)]


# The oldest and the newest of EMR 7 (its release guide, "Application versions in Amazon EMR 7.x releases")
OF_EMR = [(3, 9), (3, 11)]


def pythons(wanted=FITTING):
    """Version → program of those that fit and are not this one: in the PATH, and pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = {}
    for version in wanted:
        name = ".".join(map(str, version))
        for program in [shutil.which(f"python{name}"), *sorted(pyenv.glob(f"{name}.*/bin/python3"))]:
            if program and (version != sys.version_info[:2] or wanted is OF_EMR):
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


@pytest.mark.drill
@pytest.mark.parametrize("version", [".".join(map(str, v)) for v in OF_EMR])
def test_the_wheel_on_a_python_of_emr(version, tmp_path):
    """In an empty environment: what it names is installed with it, and then each module is imported. Only pyspark is
    not named: it lies beside Spark there, as it does here."""
    program = pythons(OF_EMR).get(version)
    if not program:
        pytest.skip(f"Python {version} is not here")
    for package in ("pyspark", "py4j"):
        (tmp_path / "spark").mkdir(exist_ok=True)
        (tmp_path / "spark" / package).symlink_to(Path(pyspark.__file__).parents[1] / package)
    clone, python = tmp_path / "clone", tmp_path / "empty" / "bin" / "python"
    subprocess.run(["git", "clone", "-q", paths.ROOT, clone], check=True)
    (clone / ".venv").symlink_to(Path(sys.executable).parents[1])
    made = subprocess.run(["make", "--assume-old=.venv/.installed", "wheel"], cwd=clone, capture_output=True, text=True)
    (wheel,) = (clone / "dist").glob("*.whl")
    given = {k: v for k, v in os.environ.items() if k.upper().startswith(("PIP_", "SSL_", "HTTP", "NO_PROXY"))}
    assert made.stdout.strip() == f"dist/{wheel.name}", made.stdout + made.stderr
    for command in ([program, "-m", "venv", tmp_path / "empty"],
                    [python, "-m", "pip", "install", "-q", "--only-binary=:all:", wheel],
                    [python, "-c", bare.IMPORTS.format(refused=set())],
                    [tmp_path / "empty" / "bin" / "workbench", "--help"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True,
                              env={**given, "PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "spark")})
        assert done.returncode == 0, f"{command} on Python {version}:\n{(done.stdout + done.stderr)[-3000:]}"
        if command[1] == "-c":
            assert not done.stdout.strip(), done.stdout
    there = {p.name.split("-")[0] for p in (tmp_path / "empty" / "lib").glob("python*/site-packages/*.dist-info")}
    assert not there & {*bare.EMBEDDED, "pyspark"}
