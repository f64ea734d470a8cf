"""Archives of Java's classes: written once, used from then on, never in the way of a start."""

import os
import re
import subprocess
import threading
import zipfile
from pathlib import Path

import psutil
import pytest
from workbench.stack import artifacts, cds
from workbench.stack.services import java_options

IVY = next((artifacts.package_dir("pyspark") / "jars").glob("ivy-*.jar"))


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The folder for temporary files of a service, and an empty folder of archives."""
    monkeypatch.setattr(cds, "FOLDER", tmp_path / "a folder" / "cds")
    folder = tmp_path / "service"
    folder.mkdir()
    return folder


def options(scratch):
    return cds.options(scratch, java_options("quick"), [IVY])


def keep(scratch):
    """Keep the archive in the folder of a stopped service."""
    [archive] = scratch.glob("*.jsa")
    cds.keep_archive(archive)


def run(scratch, *more):
    """Run a Java program with the options of a service; return its output without the log."""
    java = [artifacts.java_home() / "bin" / "java", *java_options("quick"), *options(scratch)]
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
    plain = run(scratch)
    assert options(scratch) == cds.base_options() == []  # no base archive: as without archives
    cds.create_base_archive()
    assert run(scratch) == plain  # writes the archive, without a word
    assert [path.parent for path in scratch.glob("*.jsa")] == [scratch]
    keep(scratch)
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
        keep(scratch)
    assert len(list(cds.FOLDER.glob("service-*.jsa"))) == cds.MAX_ARCHIVES
    [option, _] = cds.options(scratch, ["-Dx=y"], [jar])  # is used
    assert option.startswith(f"-XX:SharedArchiveFile={cds.FOLDER}/service-")


def test_an_unfinished_archive_is_not_kept(scratch):
    cds.create_base_archive()
    run(scratch)
    [archive] = scratch.glob("*.jsa")
    content = archive.read_bytes()
    archive.unlink()
    archive.write_bytes(bytes(4096) + content[4096:])  # as of a Java that was killed
    keep(scratch)
    assert not list(cds.FOLDER.glob("service-*.jsa"))
    assert options(scratch) == cds.base_options()  # not every stop waits for an archive
    [marker] = cds.FOLDER.glob("*.failed")
    os.utime(marker, (0, 0))
    assert options(scratch)[-1].startswith(cds.ARCHIVE_OPTION)


@pytest.mark.parametrize("why", ["no room", "read-only"])
def test_no_archive_is_written_where_there_is_no_room_for_it(scratch, why, monkeypatch):
    cds.create_base_archive()
    assert options(scratch)[-1].startswith(cds.ARCHIVE_OPTION)
    if why == "no room":
        monkeypatch.setattr(cds, "MIN_FREE_BYTES", 1 << 60)
    else:
        access = os.access  # root may write anywhere
        monkeypatch.setattr(os, "access", lambda p, mode: p != cds.FOLDER and access(p, mode))
    assert options(scratch) == cds.base_options() != []


def test_two_services_that_wrote_the_same_archive_keep_one(scratch):
    cds.create_base_archive()
    name = options(scratch)[-1].rpartition("/")[2]
    for size in (10, 20):
        (scratch / name).write_bytes(cds.MAGIC + bytes(size))
        keep(scratch)
        (scratch / name).unlink(missing_ok=True)
    assert [path.stat().st_size for path in cds.FOLDER.glob("service-*.jsa")] == [14]


def test_the_archive_unused_for_longest_is_removed_first(scratch, tmp_path):
    cds.create_base_archive()
    jars = [tmp_path / f"{n}.jar" for n in range(3)]
    for time, jar in enumerate(jars):
        jar.write_bytes(b"")
        name = cds.options(scratch, [], [jar])[-1].rpartition("/")[2]
        (scratch / name).write_bytes(cds.MAGIC)
        os.utime(scratch / name, (time, time))
        if jar == jars[2]:
            cds.options(scratch, [], [jars[0]])  # a start uses the oldest one
        keep(scratch)
    removed = [cds.ARCHIVE_OPTION in cds.options(scratch, [], [jar])[-1] for jar in jars]
    assert removed == [False, True, False]


@pytest.mark.parametrize("damage", ["cut", "empty", "text"])
def test_a_damaged_archive_does_not_prevent_a_start(scratch, damage):
    plain = run(scratch)
    cds.create_base_archive()
    run(scratch)
    keep(scratch)
    [archive] = cds.FOLDER.glob("service-*")
    assert f"-XX:SharedArchiveFile={archive}" in options(scratch)
    content = archive.read_bytes()
    archive.unlink()
    size = len(content)
    damaged = {"cut": content[: size // 2], "empty": b"", "text": (b"text" * size)[:size]}
    archive.write_bytes(damaged[damage])
    assert run(scratch) == plain


def test_a_java_that_cannot_write_a_base_archive_runs_without(scratch, monkeypatch, tmp_path):
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setattr(artifacts, "java_home", lambda: home)
    cds.create_base_archive()
    assert options(scratch) == []


def test_a_process_that_has_just_ended_hides_no_archive():
    class Ended(psutil.Process):
        def __init__(self):
            pass

        def cmdline(self):
            raise psutil.ZombieProcess(1)

    class Launcher(Ended):
        def children(self, recursive=False):
            return [Ended(), Java()]

    class Java(Ended):
        def cmdline(self):
            return ["java", f"{cds.ARCHIVE_OPTION}/a/b.jsa"]

    assert cds.archive_path(Launcher()) == Path("/a/b.jsa")


def test_two_at_once_create_one_base_archive(scratch):
    threads = [threading.Thread(target=cds.create_base_archive) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(cds.FOLDER.glob("*.jsa"))) == 1 and not list(cds.FOLDER.glob("*.new"))


def test_the_files_of_a_folder_come_in_one_jar_which_is_made_once(scratch, tmp_path):
    folder = tmp_path / "settings"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.xml").write_text("<a/>")
    jar = cds.jar_of(folder)
    created = jar.stat().st_mtime_ns
    with zipfile.ZipFile(jar) as archive:
        assert archive.namelist() == ["a.xml"] and archive.read("a.xml") == b"<a/>"
    assert cds.jar_of(folder) == jar and jar.stat().st_mtime_ns == created
    (folder / "a.xml").write_text("<b/>")
    assert cds.jar_of(folder) != jar
    jar.write_bytes(b"")  # as after a crash of the machine
    made = cds.jar_of(folder)
    (folder / "a.xml").write_text("<a/>")
    with zipfile.ZipFile(cds.jar_of(folder)) as archive:
        assert archive.read("a.xml") == b"<a/>" and cds.jar_of(folder) == jar != made


def test_a_folder_stays_a_folder_where_no_jar_can_be_written(scratch, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    folder = tmp_path / "settings"
    folder.mkdir()
    (folder / "a.xml").write_text("<a/>")
    monkeypatch.setattr(cds.zipfile, "ZipFile", refuse)
    assert cds.jar_of(folder) == folder


def test_a_java_with_an_agent_uses_an_archive_but_writes_none(scratch):
    """Java 17 ends at once if it has an agent and writes an archive."""
    cds.create_base_archive()
    assert any(cds.ARCHIVE_OPTION in option for option in cds.options(scratch, [], [IVY]))
    reading = cds.options(scratch, [], [IVY], can_write=False)
    assert reading and not any(cds.ARCHIVE_OPTION in option for option in reading)
