"""What is installed with the library, for example on EMR.

Enough for every module, without the embedded stack.
"""

import re
import subprocess
import sys

import minimal_install
import setuptools
from packaging.requirements import Requirement
from workbench.base.paths import ROOT


def listed(block):
    """Return the requirements of a list in pyproject.toml; Python 3.10 has no TOML parser."""
    text = re.search(rf"^{block} = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.M | re.S)[
        1
    ]
    return [Requirement(one) for one in re.findall(r'"([^"]+)"', text)]


def test_every_module_is_imported_without_the_embedded_stack():
    """Modules of `stack` and `spark.server` import packages of the embedded stack only when they start it."""
    code = minimal_install.IMPORT_SCRIPT.format(refused=set(minimal_install.EMBEDDED_PACKAGES))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout.strip(), done.stdout + done.stderr


def test_both_packages_are_in_the_wheel():
    names = {name.split(".")[0] for name in setuptools.find_packages(str(ROOT / "lib"))}
    assert names == {"workbench", "storefront"}


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
    base, embedded = (
        {one.name.replace("-", "_") for one in listed(block)}
        for block in ("dependencies", "embedded")
    )
    assert not base & {*minimal_install.EMBEDDED_PACKAGES, "pyspark"}
    assert embedded <= {*minimal_install.EMBEDDED_PACKAGES, "pyspark"}, (
        "the test above imports without these packages"
    )


def test_params_notebooks_and_data_are_found_beside_an_installed_library(tmp_path):
    """A wheel contains none of them.

    WORKBENCH_ROOT names the folder that `deploy/publish.sh` fills.
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
