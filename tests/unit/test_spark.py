"""The configuration of the embedded Spark."""

import pytest
from workbench.base import params
from workbench.spark import server
from workbench.stack import artifacts, cds
from worlds import with_settings


@pytest.mark.parametrize(
    "world, more, tables, blank",
    [
        ("local", {}, "file:/lake", [server.EMPTY_CORE_CONF, server.EMPTY_CLUSTER_CONF]),
        ("cluster", {}, "s3a://bucket/lake", [server.EMPTY_CLUSTER_CONF]),
        ("cluster", {"master": "spark://10.0.0.1:7077"}, "file:/lake", []),
    ],
)
def test_hadoops_settings_are_left_out_on_one_machine_and_without_an_object_store_only(
    monkeypatch, world, more, tables, blank
):
    monkeypatch.setattr(artifacts, "jars", lambda kind: ["/a.jar", "/b.jar"])
    monkeypatch.setattr(cds, "options", lambda *_: [])
    loaded = params.load(world)
    loaded = with_settings(loaded, spark=more, lake={"tables": tables})
    conf = server.server_conf(loaded.spark, loaded.lake.tables)
    own = "".join(f"{cds.jar_of(folder)}:" for folder in blank)
    assert conf["spark.driver.extraClassPath"] == f"{own}/a.jar:/b.jar"
    assert conf.get(
        "spark.executor.extraClassPath", conf["spark.driver.extraClassPath"]
    ).startswith(own)
    for side in ("driver", "executor"):  # Hudi's clock
        options = conf.get(f"spark.{side}.extraJavaOptions", conf["spark.driver.extraJavaOptions"])
        assert "-Duser.timezone=UTC" in options.split()


def test_a_catalog_whose_making_was_killed_is_made_anew_and_a_whole_one_is_kept(tmp_path):
    metastore = tmp_path / "metastore"
    server.remove_incomplete_metastore(metastore)  # the first start: there is none
    (metastore / "seg0").mkdir(parents=True)
    server.remove_incomplete_metastore(metastore)
    assert not metastore.exists()
    metastore.mkdir()
    (metastore / "service.properties").touch()
    server.remove_incomplete_metastore(metastore)
    assert metastore.exists()
