"""deploy/jobs/kernel.sh with fake commands of an EMR node.

EMR installs after the first step, kernels are behind links, and kernels run as another user than
steps.
"""

import json
import os
import subprocess
import sys
import threading
import time

import pytest
from workbench.base.paths import ROOT

pytestmark = pytest.mark.aws

FAKES = {
    "sudo": 'exec "$@"',
    "hadoop": 'echo "hadoop $*" >> "$CALLS"',
    "install": 'echo "install $*" >> "$CALLS"',
    # EMR makes the user when it has installed what notebooks need
    "id": '[ -e "$NODE/user" ]',
}


@pytest.fixture
def node(tmp_path):
    """A node before EMR has installed the kernels: (its folder, environment of the script)."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in FAKES.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    (tmp_path / "profile.sh").write_text(
        "export WORKBENCH_ROOT=/opt/workbench WORKBENCH_SPARK=classic "
        "SPARK_HOME=/usr/lib/spark PYTHONPATH=/opt/workbench/environment\n"
    )
    given = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "NODE": str(tmp_path),
        "CALLS": str(tmp_path / "calls"),
        "PROFILE": str(tmp_path / "profile.sh"),
        "KERNELS": str(tmp_path / "emr"),
        "PYTHON": sys.executable,
        "POLL": "0.1",
        "WAIT": "20",
    }
    return tmp_path, given


def installed(folder):
    """Install a kernel as EMR does, in a folder behind a link."""
    kernel = folder / "mnt" / "share" / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text('{"argv": ["python"]}')
    (folder / "emr").mkdir(exist_ok=True)
    (folder / "emr" / "notebook-env").symlink_to(folder / "mnt")
    (folder / "user").touch()
    return kernel / "kernel.json"


def run(given):
    script = ROOT / "deploy/jobs/kernel.sh"
    return subprocess.run(["bash", script], env=given, capture_output=True, text=True, timeout=60)


def test_a_kernel_behind_a_link_is_found_and_its_user_has_a_place_in_hdfs(node):
    folder, given = node
    spec = installed(folder)
    done = run(given)
    assert done.returncode == 0, done.stderr
    kernel = json.loads(spec.read_text())
    assert kernel["argv"][0] == sys.executable and kernel["env"]["WORKBENCH_SPARK"] == "classic"
    # AWS's own two lines (EMR Management Guide, "Differences in capabilities by cluster release
    # version"): without them a Spark session of this user cannot put its files anywhere
    assert (folder / "calls").read_text().splitlines() == [
        "install -d -o emr-notebook -m 700 /opt/workbench/var /opt/workbench/runs",
        "hadoop fs -mkdir -p /user/emr-notebook",
        "hadoop fs -chown emr-notebook /user/emr-notebook",
    ]


def test_it_waits_for_emrs_installation_and_outlasts_what_that_writes_last(node):
    folder, given = node

    def emr():
        time.sleep(0.5)
        spec = installed(folder)
        time.sleep(0.25)
        spec.write_text('{"argv": ["what EMR wrote last"]}')

    thread = threading.Thread(target=emr)
    thread.start()
    done = run(given)
    thread.join()
    assert done.returncode == 0, done.stderr
    (spec,) = (folder / "mnt").rglob("kernel.json")
    assert json.loads(spec.read_text())["argv"][0] == sys.executable


def test_where_no_kernel_comes_it_fails_and_says_so(node):
    folder, given = node
    done = run({**given, "WAIT": "1"})
    assert done.returncode == 1 and "no kernel python3" in done.stderr
