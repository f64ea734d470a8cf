"""The lock on each other Python of this machine that fits: installed, unit tests, rows through
everything. And the wheel on those of EMR."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import minimal_install
import packing
import pyspark
import pytest
from workbench.base import paths
from workbench.stack import artifacts

FITTING = [(3, minor) for minor in range(10, 14)]


# The oldest and the newest of EMR 7 (its release guide, "Application versions in Amazon EMR 7.x
# releases")
OF_EMR = [(3, 9), (3, 11)]


def pythons(wanted=FITTING):
    """Version → program of those that fit and are not this one: in the PATH, and pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = {}
    for version in wanted:
        name = ".".join(map(str, version))
        for program in [
            shutil.which(f"python{name}"),
            *sorted(pyenv.glob(f"{name}.*/bin/python3")),
        ]:
            if program and (version != sys.version_info[:2] or wanted is OF_EMR):
                code = "import sys, venv, ensurepip; print(*sys.version_info[:2], sep='.')"
                said = subprocess.run(
                    [program, "-c", code], capture_output=True, text=True
                )  # pyenv's `shim` may fail
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
    given = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("WORKBENCH_", "PYTEST_", "PYTHON", "MAKE"))
    }
    given["WORKBENCH_PORT_BASE"] = str(int(os.environ["WORKBENCH_PORT_BASE"]) + 120)

    def do(*command):
        done = subprocess.run(command, cwd=clone, env=given, capture_output=True, text=True)
        assert done.returncode == 0, (
            f"{command} on Python {version}:\n{(done.stdout + done.stderr)[-3000:]}"
        )
        return done.stdout

    subprocess.run(["git", "clone", "-q", paths.ROOT, clone], check=True)
    shutil.copytree(artifacts.LIB, clone / "var" / "lib")
    do("make", f"PYTHON={program}", "dev")  # with what the tests need
    do(".venv/bin/python", "-m", "pytest", "-q", "tests/unit")
    try:
        assert "passed: 1 of 1 notebooks" in do(".venv/bin/workbench", "run", "13_hudi_ingest")
    finally:
        do(".venv/bin/workbench", "down")


@pytest.fixture
def wheel(tmp_path):
    """The wheel of what is committed."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", paths.ROOT, clone], check=True)
    (clone / ".venv").symlink_to(Path(sys.executable).parents[1])
    command = ["make", "--no-print-directory", "--assume-old=.venv/.installed", "wheel"]
    made = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    (wheel,) = (clone / "dist").glob("*.whl")
    assert made.stdout.strip() == f"dist/{wheel.name}", made.stdout + made.stderr
    return wheel


@pytest.fixture
def done(tmp_path):
    """Runs a command and returns what it printed. As on EMR, pyspark lies beside Spark; params and
    data are there."""
    for package in ("pyspark", "py4j"):
        (tmp_path / "spark").mkdir(exist_ok=True)
        (tmp_path / "spark" / package).symlink_to(Path(pyspark.__file__).parents[1] / package)
    given = {
        k: v
        for k, v in os.environ.items()
        if k.upper().startswith(("PIP_", "SSL_", "HTTP", "NO_PROXY", "PATH"))
    }

    def do(*command, path=""):
        there = {
            **given,
            "WORKBENCH_ROOT": str(paths.ROOT),
            "PYTHONPATH": f"{tmp_path / 'spark'}:{path}",
        }
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=there)
        assert run.returncode == 0, f"{command}:\n{(run.stdout + run.stderr)[-3000:]}"
        return run.stdout.strip()

    return do


@pytest.mark.drill
@pytest.mark.parametrize("version", [".".join(map(str, v)) for v in OF_EMR])
def test_the_wheel_on_a_python_of_emr(version, wheel, done, tmp_path):
    """In an empty environment: what it names is installed with it, and then each module is
    imported."""
    program = pythons(OF_EMR).get(version)
    if not program:
        pytest.skip(f"Python {version} is not here")
    done(program, "-m", "venv", "empty")
    done("empty/bin/python", "-m", "pip", "install", "-q", "--only-binary=:all:", wheel)
    assert not done("empty/bin/python", "-c", minimal_install.IMPORT_SCRIPT.format(refused=set()))
    assert "ingest" in done("empty/bin/workbench", "--help")
    there = {
        p.name.split("-")[0]
        for p in (tmp_path / "empty" / "lib").glob("python*/site-packages/*.dist-info")
    }
    assert "psycopg" in there and not there & {*minimal_install.EMBEDDED_PACKAGES, "pyspark"}


@pytest.mark.drill
def test_the_archive_for_jobs_on_the_python_of_emr(wheel, done, tmp_path, monkeypatch):
    """It is made by this Python, for another: what only that one needs is in it, too."""
    program = pythons(OF_EMR).get(packing.pack.PYTHON)
    if not program:
        pytest.skip(f"Python {packing.pack.PYTHON} is not here")
    file = tmp_path / "environment.tar.gz"
    packing.pack.write_environment(file, tmp_path / "digest", wheel.name, wheel.read_bytes())
    with tarfile.open(file) as archive:
        archive.extractall(tmp_path / "environment", filter="data")
    assert not done(
        program,
        "-c",
        minimal_install.IMPORT_SCRIPT.format(refused=set()),
        path=tmp_path / "environment",
    )
