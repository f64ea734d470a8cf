"""`make` before there is a .venv: it chooses a Python that fits, and names it."""

import os
import shutil
import subprocess

import pytest
from workbench.base.paths import ROOT

NAMES = ["python3", "python3.13", "python3.12", "python3.11", "python3.10"]


@pytest.fixture
def make(tmp_path):
    """Run `make -n install` in a fresh clone on a machine with these Pythons; return its output."""
    for file in ("Makefile", "requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    (tmp_path / "bin").mkdir()

    def run(fitting, *words):
        for name in {*NAMES, *fitting}:  # all Pythons, so that none of this machine's is asked
            (tmp_path / "bin" / name).write_text(f"#!/bin/sh\nexit {int(name not in fitting)}\n")
            (tmp_path / "bin" / name).chmod(0o755)
        path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        given = {
            k: v for k, v in os.environ.items() if k not in ("PYTHON", "MAKEFLAGS", "MAKELEVEL")
        }
        done = subprocess.run(
            ["make", *words, "install"],
            cwd=tmp_path,
            env={**given, "PATH": path},
            capture_output=True,
            text=True,
        )
        return done.stdout + done.stderr

    return run


@pytest.mark.parametrize(
    ("fitting", "chosen"),
    [
        (NAMES, "python3"),
        (["python3.10", "python3.12"], "python3.12"),
        (["python3.13", "uv"], "python3.13"),
    ],
)
def test_the_newest_python_that_fits_where_python3_does_not(make, fitting, chosen):
    said = make(fitting, "-n")
    assert f"{chosen} -m venv" in said and f"into .venv with {chosen}," in said


def test_uv_brings_a_python_where_none_fits(make):
    said = make(["uv"], "-n")
    assert "uv venv --quiet --seed --python '>=3.10,<3.14' .venv" in said


@pytest.mark.parametrize("chosen", [(), ("PYTHON=python3.10",)])
def test_no_python_that_fits(make, chosen):
    """A Python that the user has chosen is not replaced by another one."""
    said = make(["uv"] if chosen else [], *chosen)
    assert "Error" in said and "installing" not in said


@pytest.mark.parametrize(
    ("version", "fits"), [((3, 9), False), ((3, 10), True), ((3, 13), True), ((3, 14), False)]
)
def test_which_pythons_fit(version, fits):
    """The versions are those of the doctor."""
    rows = (ROOT / "Makefile").read_text().replace("\\\n", "").splitlines()
    code = (
        next(row for row in rows if row.startswith("FITS")).partition(":= import sys;")[2].strip()
    )
    seen = subprocess.run(
        ["python3", "-c", f"import sys; sys.version_info = {version}; {code}"],
        capture_output=True,
        text=True,
    )
    assert (seen.returncode == 0) == fits
    assert fits or f"Python {version[0]}.{version[1]} found, 3.10 to 3.13 needed" in seen.stderr
