"""A full disk, and folders of somebody else's: said in a sentence, wherever it is noticed."""

import errno
import os
import shlex
import subprocess
import sys
from collections import namedtuple

import nbformat
import pytest
from workbench.base import params, paths
from workbench.base.paths import ROOT
from workbench.cli import main as cli
from workbench.run import execute, runner
from workbench.stack import doctor, process, services

Usage = namedtuple("Usage", "total used free")
SPACE = ["unshare", "--mount"]  # a mount in it is nobody else's, and ends with the command


@pytest.fixture
def full(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path / "var")
    monkeypatch.setattr(process.shutil, "disk_usage", lambda path: Usage(0, 0, 3 << 20))


def test_the_status_of_a_service_that_died_names_it(full, monkeypatch):
    """The state folder need not exist yet."""
    monkeypatch.setattr(process, "port_owner", lambda port: None)  # another stack may run here
    assert process.disk_full_message() == f"the disk is full: 3 MB are free for {paths.state_dir()}"
    (paths.state_dir() / "run").mkdir(parents=True)
    (paths.state_dir() / "run" / "kafka.json").write_text("{}")
    seen = process.status(services.SERVICES["kafka"], params.load("local"))
    assert seen.state == "died" and seen.detail.startswith("the disk is full: 3 MB are free")
    assert process.down_reason("kafka").startswith("died. the disk is full: 3 MB are free")


def test_a_red_notebook_names_it(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path / "var")
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path / "runs"))

    def fills_the_disk(path, values, **options):
        monkeypatch.setattr(process.shutil, "disk_usage", lambda path: Usage(0, 0, 3 << 20))
        return execute.ExecutionResult(nbformat.read(path, 4), reason="Kafka: Local: Timed out")

    monkeypatch.setattr(runner, "execute_notebook", fills_the_disk)
    (entry,) = runner.run(["11_source_database"], progress=False).notebooks
    assert entry.error["message"].startswith(
        "Kafka: Local: Timed out\nthe disk is full: 3 MB are free"
    )


def in_a_space(script, tmp_path):
    """Run a shell script as root in a mount namespace of its own, with this checkout's notebooks
    and a var/ beside."""
    if (
        os.geteuid()
        or subprocess.run(
            [*SPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True
        ).returncode
    ):
        pytest.skip("mounting is not allowed here")
    for name in ("notebooks", "params"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("var", "runs"):
        (tmp_path / name).mkdir()
    given = {**os.environ, "WORKBENCH_ROOT": str(tmp_path), "WORKBENCH_INSTANCE": "main"}
    runner = f"{shlex.quote(sys.executable)} -m workbench.cli run 11_source_database"
    done = subprocess.run(
        [*SPACE, "sh", "-c", script.format(run=runner)],
        cwd=tmp_path,
        env=given,
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "Traceback" not in said and len(said.splitlines()) < 6, said
    return said


@pytest.mark.parametrize(
    ("size", "says"),
    [("40m", "nothing is run: the disk is full: 40 MB are free"), ("4k", "the disk is full")],
)
def test_a_run_on_a_full_disk(tmp_path, size, says):
    said = in_a_space(f"mount -t tmpfs -o size={size} none var && {{run}}", tmp_path)
    assert says in said and "free disk space" in said


def test_a_run_whose_record_does_not_fit(tmp_path):
    said = in_a_space("mount -t tmpfs -o size=4k,nr_inodes=2 none runs && {run}", tmp_path)
    assert "the disk is full: No space left on device" in said and "free disk space" in said


def test_a_run_in_folders_of_somebody_else(tmp_path):
    said = in_a_space(
        "chown -R 65534 var && setpriv --bounding-set=-all --inh-caps=-all {run}", tmp_path
    )
    assert (
        f"a file cannot be read or written: Permission denied\n  location: {tmp_path}/var" in said
    )
    assert 'sudo chown -R "$(id -un)" var runs' in said


def test_the_doctor_names_the_owner(tmp_path, monkeypatch):
    (tmp_path / "main").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / "main")
    found = doctor._check("disk", lambda: doctor._disk(tmp_path))
    assert found.level == "problem" and "sudo chown" in found.remedy
    assert found.detail == f"{tmp_path / 'main'} is not writable: it belongs to user {os.getuid()}"


def test_other_errors_of_the_system_are_not_taken_for_it(monkeypatch, tmp_path, capsys):
    def app(arguments):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    with pytest.raises(SystemExit):
        cli.main([])
    assert capsys.readouterr().err.startswith(
        "OSError: [Errno 5] Input/output error\n  location: traceback in "
    )
