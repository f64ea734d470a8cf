"""The command line: exit codes, errors as text, questions, and no slow imports."""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import typer
from typer.testing import CliRunner
from workbench import own, tracks
from workbench.base import LakeError, paths, secrets
from workbench.cli import main as cli
from workbench.stack import process

ROWS = [
    process.Status("kafka", "up", 21401, 7, 3.2, 410),
    process.Status("spark", "died", 21405, detail="[Errno 111] see its log"),
]


def call(*arguments, **kwargs):
    return CliRunner().invoke(cli.app, list(arguments), **kwargs)


def module(monkeypatch, name, **functions):
    for function, made in functions.items():
        monkeypatch.setattr(importlib.import_module(f"workbench.{name}"), function, made)


@pytest.mark.parametrize(
    "package, slow",
    [
        ("cli.main", {"pandas", "papermill", "pyspark", "IPython"}),
        # each kernel imports these; nbformat takes two seconds
        ("tracks, workbench.operate", {"papermill", "nbformat"}),
    ],
)
def test_an_import_imports_nothing_slow(package, slow):
    code = f"import sys, workbench.{package}; print([m for m in {slow} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    "arguments, code, says",
    [
        (["run", "--world", "locale"], 1, "(?s)there is no world 'locale'.*did you mean 'local'"),
        (["run", "--param", "scale"], 2, "name=value"),
        (["rnu"], 2, "rnu"),
    ],
)
def test_errors_are_text_and_exit_1_and_wrong_usage_is_2(capsys, arguments, code, says):
    with pytest.raises(SystemExit) as e:
        cli.main(arguments)
    shown = capsys.readouterr().err
    assert e.value.code == code and "Traceback" not in shown and re.search(says, shown)


def test_an_unforeseen_error_is_told_on_one_line_and_its_traceback_is_in_a_file(
    monkeypatch, capsys, tmp_path
):
    error = RuntimeError("http://me:geheim@host says \x1b[2J\n  next:     rm -r")
    module(monkeypatch, "stack", status=mock.Mock(side_effect=error))
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    with pytest.raises(SystemExit) as e:
        cli.main(["status"])
    shown, file = capsys.readouterr().err, paths.state_dir() / "log" / "traceback.txt"
    assert e.value.code == 1 and shown.startswith(
        "RuntimeError: http://••••••@host says \\x1b[2J\\n  next:     rm -r\n"
    )
    assert "Traceback" not in shown and str(file) in shown and "\x1b" not in shown
    text = file.read_text()
    assert (
        text.startswith("Traceback")
        and "geheim" not in text
        and file.stat().st_mode & 0o777 == 0o600
    )
    full = mock.Mock(side_effect=OSError(28, "No space"))
    monkeypatch.setattr(paths, "write_private_file", full)
    with pytest.raises(SystemExit):
        cli.main(["status"])
    assert "traceback not written" in (shown := capsys.readouterr().err) and "No space" in shown


def test_status_shows_a_table(monkeypatch):
    module(monkeypatch, "stack", status=lambda world: ROWS)
    out = call("status").output
    assert "kafka" in out and "410 MB" in out and "died" in out and "[Errno 111] see its log" in out


def test_doctor_exits_1_on_a_problem(monkeypatch):
    found = [SimpleNamespace(level="problem", subject="Java", detail="none", remedy="make install")]
    module(monkeypatch, "stack.doctor", examine=lambda world: found)
    result = call("doctor")
    assert result.exit_code == 1 and "✘ Java: none\n    make install" in result.output


@pytest.mark.parametrize(
    "level, subject, runs",
    [("problem", "memory", False), ("problem", "jars", True), ("warning", "memory", True)],
)
def test_demo_goes_in_order_and_stops_at_a_problem(monkeypatch, tmp_path, level, subject, runs):
    found = [SimpleNamespace(level=level, subject=subject, detail="", remedy="")]
    steps = mock.Mock()
    steps.run.return_value = SimpleNamespace(status="failed", report="report.html", exit_code=1)
    module(monkeypatch, "stack.doctor", examine=lambda world: found)
    module(monkeypatch, "stack.artifacts", install=steps.install)
    module(monkeypatch, "stack", up=steps.up)
    module(monkeypatch, "run.runner", run=steps.run)
    result = call("demo", "--from", str(tmp_path))
    assert result.exit_code == 1
    assert [each[0] for each in steps.method_calls] == (["install", "up", "run"] if runs else [])
    if runs:
        values = {"from_dir": str(tmp_path)}
        steps.run.assert_called_with(["00_start_here", "10_outbox"], "local", values)
    assert ("make down" in result.output) == runs


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path / "var")
    for name in (f"var/instances/{paths.instance_name()}/lake", "var/lib/kafka", "runs/one"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def test_clean_asks_keeps_downloads_and_refuses_while_services_run(monkeypatch, folders):
    module(monkeypatch, "stack", running=lambda: ["kafka"])
    assert isinstance(call("clean", "--yes").exception, cli.WorkbenchError)
    module(monkeypatch, "stack", running=list)
    refused = call("clean", input="\n")
    assert refused.exit_code == 1 and str(folders / "runs") in refused.output
    assert (paths.state_dir() / "lake").exists()
    assert call("clean", "--yes").exit_code == 0
    assert not paths.state_dir().exists() and not (folders / "runs").exists()
    monkeypatch.setenv("WORKBENCH_INSTANCE", "lib")  # the name of a folder of downloads
    (paths.state_dir() / "lake").mkdir(parents=True)
    assert call("clean", "--yes").exit_code == 0 and not paths.state_dir().exists()
    assert (folders / "var/lib").exists()
    assert "nothing to remove" in call("clean").output


@pytest.fixture
def going_on(folders, request):
    """Start a run of an instance, by default of this one, in another process that is still running; return its pid."""
    lock = (
        paths.state_dir().with_name(getattr(request, "param", paths.instance_name())) / "run.lock"
    )
    lock.parent.mkdir(exist_ok=True)
    code = f"""import time; from pathlib import Path; from workbench.base.wait import file_lock
with file_lock(Path({str(lock)!r})):"""
    run = subprocess.Popen(
        [sys.executable, "-c", f"{code}\n    print('holds', flush=True); time.sleep(600)"],
        stdout=subprocess.PIPE,
    )
    assert run.stdout.readline() == b"holds\n"
    yield str(run.pid)
    run.kill()
    run.wait()


def test_down_and_clean_ask_under_a_run(monkeypatch, folders, going_on):
    done = []
    module(monkeypatch, "stack", running=list, down=lambda say: done.append("down") or ["kafka"])
    for verb in (["down"], ["clean"]):
        for answer in ("\n", ""):  # no, and nobody there to answer
            refused = call(*verb, input=answer)
            assert (
                refused.exit_code == 1
                and f"notebooks are running (process {going_on})" in refused.output
            )
            assert "--yes" in refused.output
    assert done == [] and paths.state_dir().exists() and (folders / "runs/one").exists()
    assert (
        call("down", input="y\n").exit_code == 0
        and call("down", "--yes").exit_code == 0
        and len(done) == 2
    )
    assert call("clean", "--yes").exit_code == 0 and not paths.state_dir().exists()


@pytest.mark.parametrize("going_on", ["another"], indirect=True)
def test_clean_asks_under_a_run_of_another_instance(monkeypatch, folders, going_on):
    """All instances share runs/."""
    module(monkeypatch, "stack", running=list)
    refused = call("clean", input="\n")
    assert refused.exit_code == 1 and f"(process {going_on})" in refused.output
    assert (folders / "runs/one").exists()


def test_down_lists_the_slots_that_stay(monkeypatch, folders):
    module(monkeypatch, "stack", down=lambda say: ["kafka"])
    paths.flows_dir().mkdir()
    monkeypatch.setattr(own, "describe_slots", lambda: ["replication slot msk_own_bikes"])
    assert "replication slot msk_own_bikes" in call("down").output


def test_lab_listens_on_loopback_with_a_token_of_jupyters_own(monkeypatch):
    seen = {}
    monkeypatch.setenv("JUPYTER_TOKEN", "inherited")
    monkeypatch.setattr("os.execve", lambda program, argv, env: seen.update(argv=argv, env=env))
    assert call("lab", "--no-browser").exit_code == 0
    assert (
        "--ServerApp.ip=127.0.0.1" in seen["argv"]
        and "--ServerApp.open_browser=False" in seen["argv"]
    )
    assert "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb" in seen["argv"]
    assert "token" not in " ".join(seen["argv"]) and "JUPYTER_TOKEN" not in seen["env"]
    # a page that JupyterLab exports folds the code of folded cells
    (template,) = [one for one in seen["argv"] if one.startswith("--HTMLExporter.template_file=")]
    assert "source_hidden" in Path(template.partition("=")[2]).read_text()


def test_ctrl_c_ends_a_verb_with_130_and_without_a_traceback(monkeypatch, capsys):
    module(monkeypatch, "stack", status=mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(SystemExit) as e:
        cli.main(["status"])
    assert e.value.code == 130 and "Traceback" not in capsys.readouterr().err


def test_trace_follows_the_row_that_is_named(monkeypatch):
    monkeypatch.setattr("workbench.cli.main.open_world", lambda name: name)
    module(monkeypatch, "trace", row=lambda *a: a)
    track = SimpleNamespace(flow=SimpleNamespace(names=["artists"]))
    monkeypatch.setattr(tracks, "find_captured_table", lambda name, world: (track, name))
    result = call("trace", "artists", "299")
    assert result.exit_code == 0 and "'artists', '299')" in result.output
    assert call("trace", "artists").exit_code == 2
    track.flow.names = []
    refused = call("trace", "60_streaming_sales", "1").exception
    assert isinstance(refused, LakeError) and "has no captured tables" in refused.message


@pytest.mark.parametrize(
    "state, calls, says",
    [
        ("RUNNING", ["restart", "status", "wait_running"], "one is RUNNING"),
        # nobody waits for a minute until a paused connector runs
        (
            "PAUSED",
            ["restart", "status"],
            "connector one is PAUSED, and a restart does not resume it",
        ),
    ],
)
def test_a_connector_is_restarted_and_waited_for(monkeypatch, state, calls, says):
    monkeypatch.setattr("workbench.cli.operate.open_world", lambda name: name)
    cluster = mock.Mock(**{"status.return_value": {"state": state}})
    module(monkeypatch, "connect", **{name: getattr(cluster, name) for name in calls})
    result = call("connector", "restart", "one", "--world", "mine")
    assert cluster.mock_calls == [getattr(mock.call, name)("mine", "one") for name in calls]
    assert says in (result.output or str(result.exception))
    assert result.exit_code == (state != "RUNNING")


def test_no_list_of_names_has_a_list_as_its_default():
    """Click 8.1, the last one for Python 3.9, refuses it. Another version is installed here."""

    def arguments(command):
        for child in getattr(command, "commands", {}).values():
            yield from arguments(child)
        yield from (one for one in command.params if one.nargs == -1)

    found = list(arguments(typer.main.get_command(cli.app)))
    assert len(found) >= 4 and all(one.default is None for one in found)


def test_a_secret_of_the_user_is_read_from_standard_input(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    result = call("secret", "my.admin", input="s3cret\n")
    assert result.exit_code == 0 and "s3cret" not in result.output
    assert secrets.read() == {"my.admin": "s3cret"}
    secrets.store("postgres.admin", "kept")
    assert "which keeps it" in str(call("secret", "postgres.admin", input="x\n").exception)
    assert secrets.read()["postgres.admin"] == "kept"
