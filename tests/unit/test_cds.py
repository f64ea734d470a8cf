"""Archives of Java's classes: written once, used from then on, never in the way of a start."""

import re
import subprocess
import zipfile

import pytest
from workbench.stack import artifacts, cds
from workbench.stack.services import JAVA_OPTIONS

IVY = next((artifacts.package_dir("pyspark") / "jars").glob("ivy-*.jar"))


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The folder for temporary files of a service, and an empty folder of archives."""
    monkeypatch.setattr(cds, "FOLDER", tmp_path / "a folder" / "cds")
    folder = tmp_path / "service"
    folder.mkdir()
    return folder


def options(scratch):
    return cds.options(scratch, JAVA_OPTIONS, [IVY])


def run(scratch, *more):
    """Run a Java program with the options of a service; return its output without the log."""
    java = [artifacts.java_home() / "bin" / "java", *JAVA_OPTIONS, *options(scratch)]
    command = [*java, *more, "-cp", IVY, "org.apache.ivy.Main", "-version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return result.stdout + result.stderr


def shared_classes(scratch):
    """Return how many classes a Java takes from the base archive, and from the service's."""
    log = scratch.parent / "classes.log"
    run(scratch, f"-Xlog:class+load:file={log}")
    text = log.read_text()
    return len(re.findall(r"file$", text, re.M)), len(re.findall(r"file \(top\)$", text, re.M))


def test_the_second_start_takes_its_classes_from_the_archive_of_the_first(scratch):
    plain = run(scratch)  # without a base archive
    cds.create_base_archive()
    assert run(scratch) == plain and any(scratch.glob("*.jsa"))  # without a word
    assert [path.parent for path in scratch.glob("*.jsa")] == [scratch]
    cds.keep(scratch)
    assert not list(scratch.iterdir()) and run(scratch) == plain and not list(scratch.iterdir())
    base, own = shared_classes(scratch)
    assert base > 100 and own > 10


def test_another_jar_or_option_gets_another_archive_and_few_are_kept(scratch, tmp_path):
    cds.create_base_archive()
    jar = tmp_path / "a.jar"
    names = []
    for size in range(5):
        jar.write_bytes(b"x" * size)
        names.append(cds.options(scratch, [], [jar])[-1])
    names.append(cds.options(scratch, ["-Dx=y"], [jar])[-1])
    assert len({*names}) == 6
    for name in names:
        (scratch / name.rpartition("/")[2]).write_bytes(cds.MAGIC)
        cds.keep(scratch)
    assert len(list(cds.FOLDER.glob("service-*.jsa"))) == cds.MAX_ARCHIVES
    [option, _] = cds.options(scratch, ["-Dx=y"], [jar])  # is used
    assert option.startswith(f"-XX:SharedArchiveFile={cds.FOLDER}/service-")


@pytest.mark.parametrize("content", [b"", bytes(4096)], ids=["not written", "killed meanwhile"])
def test_an_archive_that_java_did_not_complete_is_not_kept(scratch, content):
    cds.FOLDER.mkdir(parents=True)
    (scratch / "service-1.jsa").write_bytes(content)
    cds.keep(scratch)
    assert not list(cds.FOLDER.glob("service-*"))


@pytest.mark.parametrize("damage", ["empty", "text"])
def test_a_damaged_archive_does_not_prevent_a_start(scratch, damage):
    plain = run(scratch)
    cds.create_base_archive()
    run(scratch)
    cds.keep(scratch)
    [archive] = cds.FOLDER.glob("service-*")
    assert f"-XX:SharedArchiveFile={archive}" in options(scratch)
    content = archive.read_bytes()
    archive.unlink()
    size = len(content)
    damaged = {"empty": b"", "text": (b"text" * size)[:size]}
    archive.write_bytes(damaged[damage])
    assert run(scratch) == plain


def test_a_java_that_cannot_write_a_base_archive_runs_without(scratch, monkeypatch, tmp_path):
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "lib" / "modules").touch()
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setattr(artifacts, "java_home", lambda: home)
    cds.create_base_archive()
    assert options(scratch) == []


def test_the_files_of_a_folder_come_in_one_jar_which_is_made_once(scratch, tmp_path):
    folder = tmp_path / "settings"
    folder.mkdir()
    (folder / "a.xml").write_text("<a/>")
    jar = cds.jar_of(folder)
    created = jar.stat().st_mtime_ns
    with zipfile.ZipFile(jar) as archive:
        assert archive.read("a.xml") == b"<a/>"
    assert cds.jar_of(folder) == jar and jar.stat().st_mtime_ns == created
    (folder / "a.xml").write_text("<bc/>")
    assert cds.jar_of(folder) != jar
    cds.FOLDER = scratch / "file"  # the fixture restores it
    cds.FOLDER.touch()
    assert cds.jar_of(folder) == folder, "without a jar Spark starts as usual"
