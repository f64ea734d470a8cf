"""A classic session in the kernel, as EMR's own kernels and spark-submit have it: the first
walkthrough passes."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from workbench.base import paths
from workbench.stack import artifacts

BESIDE = 160  # of this process's ports


@pytest.mark.drill
def test_the_first_walkthrough_passes_in_a_classic_session(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    for name in ("notebooks", "data", "docs", "deploy", "var"):
        (root / name).symlink_to(paths.ROOT / name)
    shutil.copytree(paths.ROOT / "params", root / "params")
    text = (root / "params" / "local.yaml").read_text()
    for connect, classic in (
        ("name: local\n", "name: classic\n"),
        ("kind: connect\n", "kind: classic\n"),
    ):
        assert text.count(connect) == 1
        text = text.replace(connect, classic)
    (root / "params" / "classic.yaml").write_text(text)
    jars = ",".join(map(str, artifacts.jars("spark")))
    given = {
        **os.environ,
        "WORKBENCH_ROOT": str(root),
        "WORKBENCH_RUNS": str(tmp_path / "runs"),
        "WORKBENCH_INSTANCE": f"{os.environ['WORKBENCH_INSTANCE']}-classic",
        "WORKBENCH_PORT_BASE": str(int(os.environ["WORKBENCH_PORT_BASE"]) + BESIDE),
        # what a cluster's own configuration says
        "JAVA_HOME": str(artifacts.java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--jars {jars} --conf spark.ui.enabled=false "
        f"--conf spark.sql.catalogImplementation=hive "
        f"--conf spark.driver.bindAddress=127.0.0.1 "
        f"--conf spark.sql.warehouse.dir=file:{tmp_path}/warehouse --driver-java-options "
        f"'-Dderby.system.home={tmp_path} -Duser.timezone=UTC' pyspark-shell",
    }
    # an earlier test of this process may have opened a session of Spark Connect, which sets it
    given.pop("SPARK_CONNECT_MODE_ENABLED", None)
    command = [sys.executable, "-m", "workbench.cli"]
    try:
        done = subprocess.run(
            [*command, "run", "10_outbox", "--world", "classic"],
            env=given,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=900,
        )
        (record,) = (tmp_path / "runs").glob("*/run.json")
        found = json.loads(record.read_text())["notebooks"]
        failed = [(n["path"], n["error"]) for n in found if n["status"] != "passed"]
        assert done.returncode == 0 and not failed, (
            f"{failed}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    finally:
        subprocess.run([*command, "down", "--yes"], env=given, capture_output=True)
        shutil.rmtree(paths.VAR_DIR / "instances" / given["WORKBENCH_INSTANCE"], ignore_errors=True)
