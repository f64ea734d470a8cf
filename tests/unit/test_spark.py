"""The configuration of the embedded Spark."""
import dataclasses

import pytest
from workbench.base import params
from workbench.spark import sessions
from workbench.stack import artifacts


@pytest.mark.parametrize("world, more, blank", [
    ("local", {}, True), ("cluster", {}, True),
    ("cluster", {"workers": 0, "master": "spark://10.0.0.1:7077"}, False),
])
def test_hadoops_cluster_settings_are_left_out_on_one_machine_only(monkeypatch, world, more, blank):
    monkeypatch.setattr(artifacts, "jars", lambda kind: ["/a.jar", "/b.jar"])
    loaded = params.load(world)
    loaded = dataclasses.replace(loaded, spark=dataclasses.replace(loaded.spark, **more))
    conf = sessions.server_conf(loaded)
    own = f"{sessions.NO_CLUSTER_SETTINGS}:" if blank else ""
    assert conf["spark.driver.extraClassPath"] == f"{own}/a.jar:/b.jar"
    assert conf.get("spark.executor.extraClassPath", conf["spark.driver.extraClassPath"]).startswith(own)
    for side in ("driver", "executor"):  # Hudi's clock
        options = conf.get(f"spark.{side}.extraJavaOptions", conf["spark.driver.extraJavaOptions"])
        assert "-Duser.timezone=UTC" in options.split()
    assert {f.name for f in sessions.NO_CLUSTER_SETTINGS.iterdir()} == {
        "hdfs-default.xml", "mapred-default.xml", "yarn-default.xml"}
