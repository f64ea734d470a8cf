"""What deploy/pack.py writes for a deployment's bucket."""

import re
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import botocore.session
import pytest
from packing import pack
from workbench.base import paths
from workbench.base.errors import StackError

pytestmark = pytest.mark.aws

ARCHIVE = "workbench/environment.tar.gz"


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
        pack.artifacts, "jars", lambda service: [lib / name for name in jars[service]]
    )
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    monkeypatch.setattr(
        pack,
        "build_wheel",
        lambda: ("workbench/lakehouse_workbench-0-py3-none-any.whl", b"wheel"),
    )
    monkeypatch.setattr(pack.subprocess, "run", a_pip())
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


def packed(folder):
    """All files of a packed folder: {name: time of its last change}."""
    pack.pack(folder)
    return {
        str(file.relative_to(folder)): file.stat().st_mtime_ns
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_all_is_there_and_a_second_time_nothing_is_written(few, tmp_path, capsys):
    folder = tmp_path / "dist"
    first = packed(folder)
    said = capsys.readouterr().out.splitlines()
    assert [line.split("-<")[0] for line in said if line.startswith("missing: ")] == [
        "missing: var/jars/aws-msk-iam-auth",
        "missing: var/msk-connect/msk-config-providers",
        "missing: var/msk-connect/schema-registry-kafkaconnect-converter",
    ]
    assert {
        *"""
        workbench/jobs/bootstrap.sh workbench/jobs/kernel.sh workbench/jobs/ingest.py
        workbench/params/aws.yaml workbench/notebooks/99_teardown.ipynb workbench/jars/kafka-clients-3.jar
        workbench/lakehouse_workbench-0-py3-none-any.whl workbench/environment.tar.gz plugins/lenses-s3.zip
        """.split()
    } <= first.keys()
    assert "workbench/jars/hudi-spark3.jar" not in first, "EMR has its own"
    assert packed(folder) == first
    (few / "debezium-core.jar").write_bytes(b"another")
    (few.parent / "jars").mkdir()
    (few.parent / "jars" / "aws-msk-iam-auth-2.3.0-all.jar").write_bytes(b"login")
    capsys.readouterr()
    second = packed(folder)
    assert {name for name in second if second[name] != first.get(name)} == {
        "workbench/jars/aws-msk-iam-auth-2.3.0-all.jar",
        "plugins/debezium-mysql.zip",
        "plugins/debezium-postgres.zip",
    }, "both of the same jars"
    assert "missing: var/jars" not in capsys.readouterr().out
    (few.parent / "jars" / "aws-msk-iam-auth-2.3.0-all.jar").unlink()
    assert second.keys() - packed(folder).keys() == {
        "workbench/jars/aws-msk-iam-auth-2.3.0-all.jar"
    }


def inside(folder, name):
    """The jars in the archive of a plugin."""
    return zipfile.ZipFile(folder / f"plugins/{name}.zip").namelist()


def test_every_plugin_has_the_provider_of_passwords_and_the_converter_of_glue(
    few, tmp_path, capsys
):
    """The worker's configuration (5-connect.yaml) names the provider for all of them: without it no
    worker starts."""
    shared = few.parent / "msk-connect"
    (shared / "msk-config-providers-0.4.0").mkdir(parents=True)
    for path in (
        "msk-config-providers-0.4.0/msk-config-providers-0.4.0.jar",
        "schema-registry-kafkaconnect-converter-1.1.24.jar",
    ):
        (shared / path).write_bytes(b"shared")
    names = packed(tmp_path / "dist")
    plugins = {Path(name).stem for name in names if name.startswith("plugins/")}
    assert plugins == {"lenses-s3", "debezium-postgres", "debezium-mysql"}, (
        "what they share is no plugin"
    )
    assert {*inside(tmp_path / "dist", "lenses-s3")} > {"sink.jar"}, "at the root of the archive"
    for name in plugins:
        assert {
            "msk-config-providers-0.4.0.jar",
            "schema-registry-kafkaconnect-converter-1.1.24.jar",
        } <= {*inside(tmp_path / "dist", name)}, name
    assert "missing: var/msk-connect" not in capsys.readouterr().out


def test_of_the_versions_of_a_jar_the_newest_is_packed_and_one_with_a_classifier_is_another_jar(
    tmp_path,
):
    """Of two versions in one plugin Kafka Connect loads whichever comes first."""
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
        "jackson-core-2.9.10.jar",
        "jackson-core-2.19.0.jar",
        "netty-4.1.100.Final.jar",
        "netty-4.1.99.Final.jar",
        "netty-codec-4.1.9.Final.jar",
    ]
    assert [
        jar.name for jar in pack.newest_versions([tmp_path / name for name in names])
    ] == sorted(
        {*names}
        - {epoll.format(99, "-linux-x86_64"), "a-1.9.jar", "guava-9-jre.jar", "b-2.0.0-M9.jar"}
        - {"jackson-core-2.9.10.jar", "netty-4.1.99.Final.jar"}
    )


def test_debeziums_plugin_has_neither_kafkas_own_jars_nor_another_registrys_converter():
    """Kafka Connect brings the one; messages on MSK Connect are written with Glue's
    (connect/catalog.yaml)."""
    jars = [jar.name for jar in pack.plugin_jars()["debezium-postgres"]]
    assert [name for name in jars if name.startswith("debezium-connector-postgres-")]
    assert [
        name
        for name in jars
        if name.startswith(("apicurio-", "kafka-clients-", "connect-api-", "slf4j-"))
    ] == []


def test_a_jar_that_was_not_fetched_is_named(few, tmp_path):
    (few / "debezium-core.jar").unlink()
    with pytest.raises(StackError, match="(?s)debezium-core.jar is missing.*make install"):
        pack.pack(tmp_path / "dist")


def test_the_library_and_its_packages_are_one_archive_for_emrs_python(few, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(pack.subprocess, "run", a_pip(asked=asked))
    for wheel in (b"wheel", b"wheel", b"another"):
        monkeypatch.setattr(
            pack, "build_wheel", lambda of=wheel: ("workbench/workbench-0-py3-none-any.whl", of)
        )
        pack.pack(tmp_path / "dist")
    assert len(asked) == 2, "once for each wheel"
    *options, wheel_file = asked[0]
    assert wheel_file.endswith("-none-any.whl") and "--no-deps" in options
    assert options[options.index("--python-version") + 1] == "3.9"
    assert options[options.index("--requirement") + 1] == str(pack.LOCK)
    monkeypatch.setattr(pack, "LOCK", tmp_path / "other.lock")
    pack.LOCK.write_text("boto3==1")
    pack.pack(tmp_path / "dist")
    assert len(asked) == 3, "and for another lock"
    assert "./workbench" in tarfile.open(tmp_path / "dist" / ARCHIVE).getnames()
    (tmp_path / "dist" / ARCHIVE).unlink()
    pack.pack(tmp_path / "dist")
    assert len(asked) == 4, "a bad archive that is removed is made again"


def test_the_lock_has_each_package_of_the_library_in_one_version():
    """Two days would give two archives."""
    names = re.findall(r"(?m)^([\w.-]+)(?:\[.*\])?==[\w.]+$", pack.LOCK.read_text())
    lines = [line for line in pack.LOCK.read_text().splitlines() if not line.startswith("#")]
    assert len(names) == len({*names}) == len(lines)
    project = (paths.ROOT / "pyproject.toml").read_text()
    declared = re.search(r"(?s)\ndependencies = \[\n(.*?)\n\]", project)[1]
    assert {*re.findall(r'"([\w-]+)', declared)} <= {*names}


def test_the_archives_botocore_knows_what_the_library_asks_of_msk_connect(
    few, tmp_path, monkeypatch
):
    """The last botocore for EMR's Python has no RestartConnector: the archive has a newer model."""
    pack.pack(tmp_path / "dist")
    tarfile.open(tmp_path / "dist" / ARCHIVE).extractall(tmp_path / "packages", filter="data")
    session = botocore.session.get_session()
    loader = botocore.loaders.Loader(
        [str(tmp_path / "packages/botocore/data")], include_default_search_paths=False
    )
    session.register_component("data_loader", loader)
    operations = session.get_service_model("kafkaconnect").operation_names
    assert {"RestartConnector", "ResumeConnector"} <= {*operations}


def test_packages_that_are_not_to_be_had_are_named_and_nothing_is_written(
    few, tmp_path, monkeypatch
):
    monkeypatch.setattr(pack.subprocess, "run", a_pip(code=1))
    with pytest.raises(
        StackError,
        match="(?s)could not download the library's dependencies.*No matching distribution found for pyarrow",
    ):
        pack.pack(tmp_path / "dist")
    assert not (tmp_path / "dist").exists()
