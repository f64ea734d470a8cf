"""The runner, on tiny notebooks in a temporary project."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import on_aws
import psutil
import pytest
from jupyter_client.manager import AsyncKernelManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from workbench.base import params, paths, secrets
from workbench.base.errors import ParamsError, WorkbenchError
from workbench.run import execute, history, notebooks, run_record, runner

HERE = Path(__file__).resolve().parents[2]
PARAMETERS = 'world = "local"\nscale = 1'


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "params").mkdir()
    for name in ("local.yaml", "versions.yaml"):
        shutil.copy(HERE / "params" / name, tmp_path / "params")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path / "var")
    monkeypatch.setenv("WORKBENCH_ROOT", str(tmp_path))
    return tmp_path


def write(project, name, *cells, declares=PARAMETERS):
    """Write a notebook with a title, a parameters cell (unless None) and the cells."""
    book = new_notebook(cells=[new_markdown_cell(f"# Try {Path(name).stem}\n\nIt is *tried*.")])
    if declares is not None:
        book.cells.append(new_code_cell(declares, metadata={"tags": ["parameters"]}))
    for source in cells:
        book.cells.append(
            new_markdown_cell(source) if source.startswith("#") else new_code_cell(source)
        )
    path = project / "notebooks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(book, path)
    return path


def quietly(*args, **kwargs):
    return runner.run(*args, progress=False, **kwargs)


# ---- before anything starts (no kernel)


def test_order_and_targets(project):
    for name in (
        "99_teardown.ipynb",
        "10_outbox/12_b.ipynb",
        "10_outbox/11_a.ipynb",
        "00_start_here.ipynb",
        "20_other/21_c.ipynb",
        "10_outbox/.ipynb_checkpoints/11_a-checkpoint.ipynb",
    ):
        write(project, name)

    def names(*targets):
        return [path.stem for path in notebooks.find(targets)]

    assert names() == ["00_start_here", "11_a", "12_b", "21_c", "99_teardown"]
    assert names("12_b", "10_outbox") == ["11_a", "12_b"]
    assert names("notebooks/20_other/21_c.ipynb", "10_outbox/11_a.ipynb") == ["11_a", "21_c"]
    assert names(str(project / "notebooks" / "10_outbox/")) == ["11_a", "12_b"]
    assert names("12") == ["12_b"] and names("10") == ["11_a", "12_b"]
    with pytest.raises(ParamsError, match="did you mean '10_outbox'"):
        names("10_outbx")
    with pytest.raises(ParamsError, match="there is no notebook or track '13'"):
        names("13")


def test_the_drawing_of_all_chains_names_every_notebook_of_every_track():
    drawing = notebooks.chains().data
    numbers = {
        number for text in re.findall(r'y="117">([^<]*)<', drawing) for number in text.split(" · ")
    }
    assert numbers == {
        path.stem[:2] for path in notebooks.find() if path.parent.name != "notebooks"
    }
    one = notebooks.chains("30_log_based_cdc").data
    assert (
        "30 · Log-based capture" in one
        and one.count("<rect") == 1 + 6
        and one.count("marker-end") == 5
    )


@pytest.mark.parametrize("target", ["", "/", "//", " ", ".", "..", "notebooks", "notebooks/"])
def test_a_target_that_names_no_part_of_the_notebooks_is_refused(project, monkeypatch, target):
    for name in ("99_teardown.ipynb", "10_outbox/11_a.ipynb"):
        write(project, name)
    monkeypatch.chdir(project)
    with pytest.raises(ParamsError, match="(?s)there is no notebook or track.*11_a"):
        notebooks.find([target])
    with pytest.raises(ParamsError, match="there is no notebook or track"):
        notebooks.find(["11_a", target])
    monkeypatch.chdir(project / "notebooks/10_outbox")
    assert [p.stem for p in notebooks.find(["."])] == ["11_a"]


@pytest.mark.parametrize(
    "declares, says",
    [
        (None, "has no parameters cell"),
        ("world = 'local'\nscale = 2 * 5", "not an assignment of a literal"),
        ("world = 'local'\nname = f'{world}-1'", "not an assignment of a literal"),
        ("import os\nworld = 'local'", "not an assignment of a literal"),
        ("scale = 1", "does not declare `world`"),
        ("world = ", "(?s)not an assignment of a literal.*invalid syntax"),
    ],
)
def test_parameters_cell(project, declares, says):
    write(project, "10_outbox/11_a.ipynb", declares=declares)
    with pytest.raises(ParamsError, match=says):
        quietly(["10_outbox"])
    assert not (project / "runs").exists()


@pytest.mark.parametrize(
    "default, text, value",
    [
        ("None", "2026-01-31", "2026-01-31"),
        ("None", "1:30", "1:30"),
        ("None", "no", "no"),
        ("0.5", "1e-3", 0.001),
        ("0.5", "2", 2.0),
        ("1", "1_000", 1000),
        ("'x'", "010", "010"),
    ],
)
def test_a_parameter_is_what_was_typed(project, default, text, value):
    declares = f"world = 'local'\nday = {default}"
    path = write(project, "10_outbox/11_a.ipynb", "assert day == " + repr(value), declares=declares)
    books = {path: notebooks.read(path)}
    converted = notebooks.convert_parameters(books, {"day": text})
    assert converted == {"day": value} and type(converted["day"]) is type(value)


OF_ANOTHER_TYPE = ("[", "9" * 5_000, "1:30", "0x1F", "true", "many")


@pytest.mark.parametrize(
    "default, value",
    [
        *(("1", value) for value in OF_ANOTHER_TYPE),
        ("True", "maybe"),
        ("0.5", "nan"),
    ],
)
def test_a_parameter_of_another_type_is_refused(project, default, value):
    write(project, "10_outbox/11_a.ipynb", declares=f"world = 'local'\nday = {default}")
    message = f"(?s)parameter day is .*of the type of its default, {default}"
    with pytest.raises(ParamsError, match=message):
        quietly(["10_outbox"], parameters={"day": value})
    assert not (project / "runs").exists()


def test_a_typed_parameter_and_a_cell_that_may_fail(project):
    declares = "world: str = 'local'\nday: str = '2026-01-01'"
    path = write(
        project,
        "10_outbox/11_a.ipynb",
        "raise ValueError(day)",
        "assert day == '2026-01-31'",
        declares=declares,
    )
    book = nbformat.read(path, as_version=4)
    failing = next(cell for cell in book.cells if cell.source.startswith("raise"))
    failing.metadata["tags"] = ["raises-exception"]
    nbformat.write(book, path)
    result = quietly(["10_outbox"], parameters={"day": "2026-01-31"})
    assert result.status == "passed", result.notebooks


def test_a_verbose_run_shows_the_log_of_the_kernel_in_the_terminal(project, monkeypatch, capsys):
    code = "import logging, workbench\nfrom workbench.base import logs\nlogs.configure()\n"
    write(
        project, "10_outbox/11_a.ipynb", f"{code}logging.getLogger('workbench.x').info('batch 1')"
    )
    monkeypatch.setenv("WORKBENCH_LOG", "info")
    assert runner.run(["10_outbox"]).status == "passed"
    assert re.search(r"(?m)INFO workbench.x: batch 1$", capsys.readouterr().out)


@pytest.mark.parametrize(
    "content", ["", "<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> b\n", "[]", "{}", "\udcff"]
)
def test_a_file_that_is_no_notebook_is_named(project, content):
    path = write(project, "10_outbox/11_a.ipynb")
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ParamsError, match=r"(?s)this is not a notebook.*10_outbox/11_a.ipynb"):
        quietly(["10_outbox"])
    assert not (project / "runs").exists()


def test_unknown_parameter(project):
    write(project, "10_outbox/11_a.ipynb")
    with pytest.raises(
        ParamsError, match="(?s)'skale' is no parameter of the selected notebooks.*mean 'scale'"
    ):
        quietly(parameters={"skale": 2})
    with pytest.raises(ParamsError, match="--world"):
        quietly(parameters={"world": "aws"})
    assert not (project / "runs").exists()


def test_a_relative_folder_is_taken_from_where_it_was_typed(project, monkeypatch, tmp_path):
    """The kernel starts in the folder of the notebook."""
    write(project, "10_outbox/11_a.ipynb", declares='world = "local"\nfrom_dir = ""')
    monkeypatch.chdir(tmp_path / "params")
    books = {p: nbformat.read(p, as_version=4) for p in notebooks.find()}
    for typed, found in (
        ("my data", f"{tmp_path}/params/my data"),
        ("/data", "/data"),
        ("", ""),
        ("~/data", os.path.expanduser("~/data")),
    ):
        assert notebooks.convert_parameters(books, {"from_dir": typed}) == {"from_dir": found}


def test_runs_of_two_instances_in_one_second_have_folders_of_their_own(project):
    world = params.load("local")
    with ThreadPoolExecutor(8) as pool:
        made = [*pool.map(lambda _: run_record.create({}, world, [], {}).folder, range(16))]
    assert len({*made}) == 16
    made[0].rmdir()  # the number of folders is no free name
    assert run_record.create({}, world, [], {}).folder not in made[1:]


def test_secrets_of_the_secrets_manager_are_masked_in_a_run(account, monkeypatch, tmp_path):
    """A kernel reveals them; the process that writes the record has not used them itself."""
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path))
    spark = on_aws.world().spark.model_copy(update={"kind": "classic"})
    world = on_aws.world().model_copy(update={"spark": spark})
    monkeypatch.setattr(params, "load", lambda name: world)
    manager = account("secretsmanager")
    for secret in {*world.secrets}:
        text = json.dumps({"username": "u", "password": f"canary-of-{secret.name}"})
        manager.create_secret(Name=f"{secret.deployment}/{secret.name}", SecretString=text)

    def prints_it(path, values, **options):
        output = nbformat.v4.new_output("stream", text="it is canary-of-postgres.admin")
        return execute.ExecutionResult(new_notebook(cells=[new_code_cell("x", outputs=[output])]))

    monkeypatch.setattr(runner, "execute_notebook", prints_it)
    folder = runner.run(["11_source_database"], "aws", progress=False).folder
    written = [f.read_text() for f in folder.rglob("*") if f.is_file()]
    assert len(written) == 4 and "canary-of" not in "".join(written)
    assert any(f"it is {secrets.MASK}" in text for text in written)


def test_masking_reaches_every_form(project, monkeypatch):
    monkeypatch.setenv("WORKBENCH_SECRET_POSTGRES_ADMIN", 'can"ary<1>/x')
    text = run_record.mask_secrets(
        {
            "a": ['x can"ary<1>/x y'],
            "b": "can&quot;ary&lt;1&gt;/x",
            "c": "can%22ary%3C1%3E%2Fx",
            "d": 'can\\"ary<1>/x',
            'can"ary<1>/x': 1,
        }
    )
    assert "ary" not in json.dumps(text)


# ---- with kernels


def test_no_kernel_is_interrupted_at_its_end(project, monkeypatch):
    """It would be printed as an error, now and then: `[IPKernelApp] ERROR | KeyboardInterrupt
    caught in kernel.`"""
    write(project, "20_other/21_c.ipynb", "1 + 1")
    signals = []

    async def signalled(self, number):
        signals.append(number)

    monkeypatch.setattr(AsyncKernelManager, "_async_signal_kernel", signalled)
    assert quietly().status == "passed" and signals == []


KERNELS_OF_THE_RUN = """
import psutil
import time

def kernels():
    children = psutil.Process().parent().children()
    return [each.pid for each in children if "ipykernel" in " ".join(each.cmdline())]

end = time.monotonic() + 30
while len(kernels()) < 2 and time.monotonic() < end:
    time.sleep(0.05)
print("kernels", *kernels())
"""


def test_the_next_kernel_starts_early_defines_no_name_and_ends_with_the_run(project):
    no_name = "import os, sys\nassert 'pandas' in sys.modules and 'pandas' not in globals()"
    write(project, "10_outbox/11_a.ipynb", KERNELS_OF_THE_RUN)
    write(project, "10_outbox/12_b.ipynb", f"{no_name}\nprint('kernel', os.getpid())", "1 / 0")
    write(project, "10_outbox/13_c.ipynb", "1")
    write(project, "20_other/21_d.ipynb", f"{no_name}\nprint(os.getcwd())")
    record = quietly()
    statuses = [entry.status for entry in record.notebooks]
    assert statuses == ["passed", "failed", "skipped", "passed"]
    first, second, last = (
        (record.folder / f"notebooks/{path}.ipynb").read_text()
        for path in ("10_outbox/11_a", "10_outbox/12_b", "20_other/21_d")
    )
    kernels = {*re.search(r"kernels (\d+) (\d+)", first).groups()}
    assert re.search(r"kernel (\d+)", second)[1] in kernels
    assert str(project / "notebooks/20_other") in last
    assert not [p for p in psutil.Process().children() if "ipykernel" in " ".join(p.cmdline())]


def test_a_failure_ends_its_track_only_and_no_file_of_the_run_has_a_secret(
    project, monkeypatch, capsys
):
    canary = "canary-7f3a9c"
    secrets_folder = paths.state_dir() / "secrets"
    secrets_folder.mkdir(parents=True)
    (secrets_folder / "postgres.admin").write_text(canary)
    write(
        project,
        "10_outbox/11_a.ipynb",
        "## 1. Count",
        "from workbench.checks import check\ncheck.equal('orders', 829, 829)",
        f"print('{canary}')\nscale",
        declares='world = "local"\nscale = 1\nlabel = "x"',
    )
    write(
        project,
        "10_outbox/12_b.ipynb",
        "## 2. Break",
        f"from workbench.checks import check\n'{canary}'",
        "check.equal('rows', 828, 829)",
    )
    write(project, "10_outbox/13_c.ipynb", "1 + 1")
    write(project, "20_other/21_d.ipynb", "assert scale == 3")

    result = runner.run(parameters={"scale": "3"})

    assert result.status == "failed" and result.exit_code == 1
    entries = {Path(e.path).stem: e for e in result.notebooks}
    assert {k: e.status for k, e in entries.items()} == {
        "11_a": "passed",
        "12_b": "failed",
        "13_c": "skipped",
        "21_d": "passed",
    }
    assert entries["11_a"].checks[0]["section"] == "1. Count"
    assert "3" in str(
        [
            c.get("outputs")
            for c in nbformat.read(
                result.folder / "notebooks/10_outbox/11_a.ipynb", as_version=4
            ).cells[-1:]
        ]
    )
    assert (
        entries["12_b"].error["name"] == "CheckFailed" and "828" in entries["12_b"].error["message"]
    )
    lines = capsys.readouterr().out
    assert (
        "▶ 10_outbox/11_a.ipynb" in lines
        and "1 of 1 checks passed" in lines
        and "✘ 10_outbox/12_b.ipynb" in lines
    )

    written = [f for f in result.folder.rglob("*") if f.is_file()]
    assert {f.name for f in written} == {
        "run.json",
        "report.html",
        "11_a.ipynb",
        "11_a.html",
        "12_b.ipynb",
        "12_b.html",
        "21_d.ipynb",
        "21_d.html",
    }
    assert not [f for f in written if canary in f.read_text()] and canary not in lines
    page = result.report.read_text()
    assert (
        page.index("Failed in")
        < page.index("<h2>Notebooks</h2>")
        < page.index("How to repeat this")
    )


def earlier(books, status, instance=""):
    """Write the record of a run of the notebooks, newer than the ones before; return its folder."""
    opened = {path: notebooks.read(path) for path in books}
    record = run_record.create(opened, params.load("local"), [], {})
    record.status = record.notebooks[0].status = status
    record.instance = instance or record.instance
    record.save()
    time_of_change = 1e9 + len(list(record.folder.parent.iterdir()))
    os.utime(record.folder / "run.json", (time_of_change, time_of_change))
    return record.folder


def test_only_the_last_run_is_resumed_and_only_if_it_did_not_pass(project):
    """A run that passed makes an older failed one history."""
    books = [write(project, "10_outbox/11_a.ipynb")]
    assert run_record.find_resumable(books, "local", {}) is None
    broken = earlier(books, "failed")
    assert run_record.find_resumable(books, "local", {}).folder == broken
    earlier(books, "passed")
    assert run_record.find_resumable(books, "local", {}) is None
    killed = earlier(books, "running")
    earlier(books, "running", instance="of-another-one")
    assert run_record.find_resumable(books, "local", {"scale": 4}) is None
    found = run_record.find_resumable(books, "local", {})
    assert found.folder == killed and found.notebooks[0].status == "pending"


def test_an_active_run_is_running_in_the_history_and_then_what_it_became(project):
    """The notebook itself looks, from its kernel's process."""
    asks = "from workbench.run import history\nassert [r.status for r in history.records()] == ['running']"
    write(project, "10_outbox/11_a.ipynb", asks)
    record = quietly(["10_outbox"])
    assert record.status == "passed", record.notebooks[0].error
    assert [each.status for each in history.records()] == ["passed"]


def test_a_page_that_cannot_be_made_does_not_end_the_run(project, monkeypatch, capsys):
    def fail(notebook, folder):
        raise ValueError("no template")

    monkeypatch.setattr(runner.export, "to_html", fail)
    green = earlier([write(project, "10_outbox/11_a.ipynb", "1")], "passed")
    result = runner.run(["11"], resume=True)
    lines = capsys.readouterr().out
    assert result.status == "passed" and "no HTML page 11_a.html: no template" in lines
    assert "no run to resume" in lines and result.folder != green and result.notebooks[0].cells
    assert (result.folder / "notebooks" / "10_outbox" / "11_a.ipynb").is_file()
    assert not list(result.folder.rglob("11_a.html"))


def test_a_killed_kernel_and_a_slow_notebook_fail_with_a_clear_message(project):
    write(
        project,
        "10_outbox/11_a.ipynb",
        "## Die",
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    )
    pid_file = project / "kernel.pid"
    hang = f"import os, threading\nopen('{pid_file}', 'w').write(str(os.getpid()))"
    write(project, "20_other/21_b.ipynb", f"{hang}\nthreading.Event().wait(60)")
    began = time.monotonic()
    result = quietly(timeout=3)
    assert time.monotonic() - began < 25
    died, slow = (e.error for e in result.notebooks)
    assert (
        "kernel died" in died["message"]
        and died["section"] == "Die"
        and "SIGKILL" in died["source"]
    )
    assert "longer than 3 s" in slow["message"] and "wait(60)" in slow["source"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    assert "kernel died" in result.report.read_text()


def test_own_data_that_differ_leave_the_run_passed_and_are_counted_apart(project, capsys):
    write(
        project,
        "10_outbox/11_a.ipynb",
        "from workbench.checks import check",
        "check.equal('rows', 828, 829, custom_data='/my/data')\ncheck.equal('rows', 829, 829, custom_data='/my/data')",
    )
    result = runner.run()
    assert result.status == "passed" and [c["ok"] for c in result.notebooks[0].checks] == [
        None,
        True,
    ]
    text = "1 of 2 checks passed, 1 shown: own data differ"
    assert text in capsys.readouterr().out and f"1 of 1 notebooks, {text}" in str(result)


def test_a_red_check_that_the_notebook_caught_is_still_red(project):
    write(
        project,
        "10_outbox/11_a.ipynb",
        "from workbench.checks import check\ntry:\n    check.equal('rows', 1, 2)\nexcept AssertionError:\n    pass",
    )
    assert quietly().notebooks[0].error["message"] == "check failed: rows"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_command_ends_its_kernel_writes_the_report_and_is_resumed(project, number):
    pid_file, second = project / "kernel.pid", project / "second"
    write(project, "10_outbox/11_a.ipynb", "1")
    write(
        project,
        "10_outbox/12_b.ipynb",
        f"import os, threading\nopen('{pid_file}', 'w').write(str(os.getpid()))",
        f"threading.Event().wait(0 if os.path.exists('{second}') else 60)",
    )
    write(project, "10_outbox/13_c.ipynb", "1")
    command = [sys.executable, "-m", "workbench.cli", "run", "10_outbox", "-p", "scale=2"]
    process = subprocess.Popen(command, cwd=project, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    with pytest.raises(WorkbenchError, match=f"process {process.pid} holds"):
        quietly()
    process.send_signal(number)
    assert process.wait(20) == 130, process.stderr.read()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    (file,) = project.glob("runs/*/run.json")
    record = json.loads(file.read_text())
    statuses = [record["status"], *(e["status"] for e in record["notebooks"])]
    assert statuses == ["stopped", "passed", "stopped", "skipped"]
    assert "stopped by the user" in next(project.glob("runs/*/report.html")).read_text()
    second.touch()
    done = subprocess.run([*command[:5], "--resume"], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "passed: 3 of 3 notebooks" in done.stdout and len([*project.glob("runs/*")]) == 1
    again = json.loads(file.read_text())
    assert again["status"] == "passed" and again["parameters"] == {"scale": 2}
    assert again["notebooks"][0] == record["notebooks"][0]  # was not run a second time
