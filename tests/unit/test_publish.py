"""What `workbench aws publish` puts into a deployment's bucket."""

import io
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import on_aws
import pytest
from workbench.base import paths
from workbench.base.errors import StackError
from workbench.deployment import publish

pytestmark = pytest.mark.aws


@pytest.fixture
def bucket(account):
    s3 = account("s3")
    s3.create_bucket(
        Bucket="workbench-lake", CreateBucketConfiguration={"LocationConstraint": on_aws.REGION}
    )
    return s3


@pytest.fixture
def few(monkeypatch, tmp_path):
    """Jars of a few bytes, a plugin of somebody's own, and no wheel: that is built in one test."""
    lib = tmp_path / "lib"
    jars = {"spark": ["hudi-spark3.jar", "kafka-clients-3.jar"], "debezium": ["debezium-core.jar"]}
    (tmp_path / "plugins" / "lenses-s3" / "lib").mkdir(parents=True)
    (tmp_path / "plugins" / "lenses-s3" / "lib" / "sink.jar").write_bytes(b"sink")
    lib.mkdir()
    for name in sum(jars.values(), []):
        (lib / name).write_bytes(name.encode())
    monkeypatch.setattr(
        publish.artifacts, "jars", lambda service: [lib / name for name in jars[service]]
    )
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    monkeypatch.setattr(
        publish,
        "_build_wheel",
        lambda: ("workbench/lakehouse_workbench-0-py3-none-any.whl", b"wheel"),
    )
    monkeypatch.setattr(publish.subprocess, "run", a_pip())
    return lib


def a_pip(code=0, asked=None):
    """A pip that fetches nothing: it makes a module."""

    def run(arguments, **how):
        asked is None or asked.append(arguments)
        Path(arguments[arguments.index("--target") + 1], "workbench").mkdir(parents=True)
        return SimpleNamespace(
            returncode=code, stdout="", stderr="No matching distribution found for pyarrow"
        )

    return run


def keys(s3):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="workbench-lake")
    return {one["Key"] for page in pages for one in page.get("Contents", [])}


def test_all_is_there_and_a_second_time_nothing_is_new(bucket, few):
    said = []
    assert publish.publish(on_aws.REGION, "workbench-lake", said.append) == len(keys(bucket))
    assert len([line for line in said if line.startswith("s3://")]) == len(keys(bucket))
    assert [line.split("-<")[0] for line in said if line.startswith("missing: ")] == [
        "missing: var/jars/aws-msk-iam-auth",
        "missing: var/msk-connect/msk-config-providers",
        "missing: var/msk-connect/schema-registry-kafkaconnect-converter",
    ]
    assert {
        "workbench/jobs/bootstrap.sh",
        "workbench/jobs/kernel.sh",
        "workbench/params/aws.yaml",
        "workbench/notebooks/99_teardown.ipynb",
        "workbench/jars/kafka-clients-3.jar",
        "workbench/lakehouse_workbench-0-py3-none-any.whl",
        "plugins/lenses-s3.zip",
    } <= keys(bucket)
    assert "workbench/jars/hudi-spark3.jar" not in keys(bucket), "EMR has its own"
    assert publish.publish(on_aws.REGION, "workbench-lake", said.append) == 0
    (few / "debezium-core.jar").write_bytes(b"another")
    (few.parent / "jars").mkdir()
    (few.parent / "jars" / "aws-msk-iam-auth-2.3.0-all.jar").write_bytes(b"login")
    said.clear()
    assert publish.publish(on_aws.REGION, "workbench-lake", said.append) == 3
    assert sorted(line.rpartition("/")[2] for line in said[:3]) == [
        "aws-msk-iam-auth-2.3.0-all.jar",
        "debezium-mysql.zip",
        "debezium-postgres.zip",
    ], "both of the same jars"
    assert not [line for line in said if "missing: var/jars" in line]


def inside(bucket, name):
    """The jars in the archive of a plugin."""
    body = bucket.get_object(Bucket="workbench-lake", Key=f"plugins/{name}.zip")["Body"].read()
    return zipfile.ZipFile(io.BytesIO(body)).namelist()


def test_jars_lie_at_the_root_of_an_archive(bucket, few):
    publish.publish(on_aws.REGION, "workbench-lake", lambda text: None)
    for name, jars in (
        ("lenses-s3", ["sink.jar"]),
        ("debezium-postgres", ["debezium-core.jar"]),
        ("debezium-mysql", ["debezium-core.jar"]),
    ):
        assert inside(bucket, name) == jars


def test_every_plugin_has_the_provider_of_passwords_and_the_converter_of_glue(bucket, few):
    """The worker's configuration (5-connect.yaml) names the provider for all of them: without it no
    worker starts."""
    shared = few.parent / "msk-connect"
    (shared / "msk-config-providers-0.4.0").mkdir(parents=True)
    for path in (
        "msk-config-providers-0.4.0/msk-config-providers-0.4.0.jar",
        "schema-registry-kafkaconnect-converter-1.1.24.jar",
    ):
        (shared / path).write_bytes(b"shared")
    said = []
    publish.publish(on_aws.REGION, "workbench-lake", said.append)
    plugins = {
        key[len("plugins/") : -len(".zip")] for key in keys(bucket) if key.startswith("plugins/")
    }
    assert plugins == {"lenses-s3", "debezium-postgres", "debezium-mysql"}, (
        "what they share is no plugin"
    )
    for name in plugins:
        assert {
            "msk-config-providers-0.4.0.jar",
            "schema-registry-kafkaconnect-converter-1.1.24.jar",
        } <= {*inside(bucket, name)}, name
    assert not [line for line in said if "missing: var/msk-connect" in line]


def test_a_jar_is_in_an_archive_once_in_its_newest_version(bucket, few):
    """Of two versions in one plugin Kafka Connect loads whichever comes first."""
    shared, own = few.parent / "msk-connect" / "lib", few.parent / "plugins" / "lenses-s3" / "lib"
    shared.mkdir(parents=True)
    for name in (
        "jackson-core-2.9.10.jar",
        "netty-4.1.100.Final.jar",
        "netty-codec-4.1.9.Final.jar",
    ):
        (shared / name).write_bytes(b"a jar")
    for name in ("jackson-core-2.19.0.jar", "netty-4.1.99.Final.jar", "sink.jar"):
        (own / name).write_bytes(b"a jar")
    publish.publish(on_aws.REGION, "workbench-lake", lambda text: None)
    assert inside(bucket, "lenses-s3") == [
        "jackson-core-2.19.0.jar",
        "netty-4.1.100.Final.jar",
        "netty-codec-4.1.9.Final.jar",
        "sink.jar",
    ]


def test_jars_with_classifiers_are_artifacts_of_their_own(tmp_path):
    epoll = "netty-transport-native-epoll-4.1.{}.Final{}.jar"
    names = [
        epoll.format(100, "-linux-x86_64"),
        epoll.format(100, "-linux-aarch_64"),
        epoll.format(100, ""),
        epoll.format(99, "-linux-x86_64"),
        "a-1.2-tests.jar",
        "a-1.10.jar",
        "a-1.9.jar",
        "guava-9-jre.jar",
        "guava-33.4.0-jre.jar",
        "b-2.0.0-M10.jar",
        "b-2.0.0-M9.jar",
        "avro.jar",
    ]
    assert [
        jar.name for jar in publish._newest_versions([tmp_path / name for name in names])
    ] == sorted(
        {*names}
        - {epoll.format(99, "-linux-x86_64"), "a-1.9.jar", "guava-9-jre.jar", "b-2.0.0-M9.jar"}
    )


def test_debeziums_plugin_has_neither_kafkas_own_jars_nor_another_registrys_converter():
    """Kafka Connect brings the one; messages on MSK Connect are written with Glue's
    (connect/catalog.yaml)."""
    jars = [jar.name for jar in publish.plugin_jars()["debezium-postgres"]]
    assert [name for name in jars if name.startswith("debezium-connector-postgres-")]
    assert [
        name
        for name in jars
        if name.startswith(("apicurio-", "kafka-clients-", "connect-api-", "slf4j-"))
    ] == []


def test_a_jar_that_was_not_fetched_is_named(bucket, few):
    (few / "debezium-core.jar").unlink()
    with pytest.raises(StackError, match="(?s)debezium-core.jar is missing.*make install"):
        publish.publish(on_aws.REGION, "workbench-lake", lambda text: None)


def test_the_library_and_its_packages_are_one_archive_for_emrs_python(bucket, few, monkeypatch):
    asked = []
    monkeypatch.setattr(publish.subprocess, "run", a_pip(asked=asked))
    for wheel in (b"wheel", b"wheel", b"another"):
        monkeypatch.setattr(
            publish, "_build_wheel", lambda of=wheel: ("workbench/workbench-0-py3-none-any.whl", of)
        )
        publish.publish(on_aws.REGION, "workbench-lake", lambda text: None)
    assert len(asked) == 2, "once for each wheel"
    assert asked[0][asked[0].index("--python-version") + 1] == "3.9" and asked[0][-1].endswith(
        "-none-any.whl"
    )
    body = bucket.get_object(Bucket="workbench-lake", Key=publish.ENVIRONMENT_ARCHIVE)[
        "Body"
    ].read()
    assert "./workbench" in tarfile.open(fileobj=io.BytesIO(body)).getnames()


def test_packages_that_are_not_to_be_had_are_named_and_nothing_is_published(
    bucket, few, monkeypatch
):
    monkeypatch.setattr(publish.subprocess, "run", a_pip(code=1))
    with pytest.raises(
        StackError,
        match="(?s)could not download the library's dependencies.*No matching distribution found for pyarrow",
    ):
        publish.publish(on_aws.REGION, "workbench-lake", lambda text: None)
    assert not keys(bucket)
