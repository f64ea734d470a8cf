"""What is installed with the library, for example on EMR.

Enough for every module, without the embedded stack.
"""

import subprocess
import sys

import minimal_install
from minimal_install import listed
from packaging.requirements import Requirement
from workbench.base.paths import ROOT


def test_every_module_is_imported_with_the_base_dependencies_only():
    """No module imports a package at its top that pyproject.toml lists only for the embedded stack or for tests."""
    refused = minimal_install.refused_modules()
    assert {"cryptography", "moto", "pytest", "werkzeug"} <= refused
    code = minimal_install.IMPORT_SCRIPT.format(refused=refused)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout.strip(), done.stdout + done.stderr


def test_what_is_installed_without_the_lock_stands_in_the_list_of_reasons():
    reasons = {
        r.name: r
        for r in (
            Requirement(line.split("#")[0].strip())
            for line in (ROOT / "requirements.in").read_text().splitlines()
            if line[0] != "#"
        )
    }
    for one in listed("dependencies") + listed("embedded"):
        assert one.name in reasons, f"{one.name} has no line in requirements.in"
        assert one.extras == reasons[one.name].extras, one
        if "==" in str(one.specifier):
            assert one.specifier == reasons[one.name].specifier, (
                f"{one}: another version in requirements.in"
            )
    assert not {one.name.replace("-", "_") for one in listed("dependencies")} & {
        *minimal_install.EMBEDDED_PACKAGES,
        "pyspark",
    }


def test_params_notebooks_and_data_are_found_beside_an_installed_library(tmp_path):
    """A wheel contains none of them.

    WORKBENCH_ROOT names the folder that `workbench aws publish` fills.
    """
    (tmp_path / "params").mkdir()
    (tmp_path / "params" / "own.yaml").touch()
    code = "from workbench.base import params, paths; print(paths.ROOT, params.world_names())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"WORKBENCH_ROOT": str(tmp_path)},
        cwd=tmp_path,
    )
    assert done.stdout.split() == [str(tmp_path), "['own']"], done.stderr
