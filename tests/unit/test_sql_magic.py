"""The cell magic %%sql in a real shell of IPython; the engine is a double that keeps what it gets."""

import datetime as dt
import importlib.util
import re
from decimal import Decimal
from types import SimpleNamespace

import nbformat
import numpy as np
import pandas as pd
import pytest
from browser import needs_browser, shown
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from nbformat.v4 import new_code_cell, new_notebook
from workbench import hudi
from workbench.base import params
from workbench.base.errors import ParamsError
from workbench.explore import magic
from workbench.query import dialect
from workbench.run import execute

ROWS = pd.DataFrame({"id": range(50), "name": ["<script>alert(1)</script>", None] * 25})


class Engine:
    """Keeps the statements with their values, and returns ROWS."""

    def __init__(self, world, read_as_of=None):
        self.world, self.read_as_of, self.statements = world, read_as_of, []

    def sql(self, text, values):
        dialect.require_values({token.text for token in dialect.placeholders(text)}, values)
        self.statements.append((text, values))
        frame = ROWS.copy()
        frame.attrs.update(statement=text, bytes_scanned=2_000_000)
        return frame


@pytest.fixture
def notebook(monkeypatch):
    """A shell with `world` and `%%sql`; `engines` are those that were used."""
    engines = []

    def backend(world, read_as_of=None):
        engines.append(Engine(world, read_as_of))
        return engines[-1]

    monkeypatch.setattr(magic, "backend", backend)
    monkeypatch.setattr(magic, "SparkSql", backend)
    shell = InteractiveShell.instance()
    shell.user_ns["world"] = params.load("local")
    with capture_output():
        shell.run_line_magic("load_ext", "workbench.explore")
        magic.load_ipython_extension(shell)  # the extension stays loaded in a second shell
    yield SimpleNamespace(shell=shell, engines=engines)
    InteractiveShell.clear_instance()


def run(notebook, line, cell):
    """Run a cell as a person does, and return its outputs; raise its error."""
    with capture_output() as captured:
        result = notebook.shell.run_cell(f"%%sql {line}\n{cell}", store_history=True)
    if not result.success:
        raise result.error_in_exec
    return [output.data for output in captured.outputs]


def statements(notebook):
    return [statement for engine in notebook.engines for statement in engine.statements]


def test_the_rows_are_shown_assigned_and_the_last_result(notebook):
    (data,) = run(notebook, "rows <<", "SELECT * FROM lake.artists -- all of them")
    assert notebook.shell.user_ns["rows"].equals(ROWS) and notebook.shell.user_ns["_"].equals(ROWS)
    assert statements(notebook) == [("SELECT * FROM lake.artists -- all of them", {})], "run once"
    assert "50 rows, 2.0 MB read" in data["text/html"] and "50 rows" in data["text/plain"]
    assert "-- all of them</pre>" in data["text/html"]
    run(notebook, "", "SELECT 1")
    assert notebook.shell.user_ns["_"].equals(ROWS)


def test_a_statement_may_end_with_a_semicolon(notebook):
    """IPython shows no result of such a cell."""
    assert len(run(notebook, "", "SELECT 1;")) == 1


def test_variables_are_bound_and_never_part_of_the_text(notebook):
    quote = "x' OR '1'='1"
    notebook.shell.push(
        {
            "name": quote,
            "year": np.int64(1900),
            "day": dt.date(2026, 1, 2),
            "price": Decimal("1.50"),
            "at": np.datetime64("2026-01-02T03:04:05"),
        }
    )
    text = "SELECT ':no', :name, :year, :day, :price, :at -- :neither"
    (data,) = run(notebook, "", text)
    ((statement, values),) = statements(notebook)
    assert statement == text
    assert values == {
        "name": quote,
        "year": 1900,
        "day": dt.date(2026, 1, 2),
        "price": Decimal("1.50"),
        "at": dt.datetime(2026, 1, 2, 3, 4, 5),
    }
    assert type(values["year"]) is int and isinstance(values["at"], dt.datetime)
    assert ":year = 1900" in data["text/html"]


@pytest.mark.parametrize(
    "line, cell, message",
    [
        ("rows <<", "  \n", "has no statement"),
        ("--att t3", "SELECT 1", "(?s)options are not valid.*--att t3.*--at LABEL"),
        ("--at", "SELECT 1", "options are not valid"),
        ("--at t1 t2", "SELECT 1", "options are not valid"),
        ("1x <<", "SELECT 1", "(?s)options are not valid.*name <<"),
        ("", "SELECT :yaer", "(?s)no variable 'yaer'.*did you mean 'year'"),
    ],
)
def test_a_wrong_cell_is_one_clear_error_and_runs_nothing(notebook, line, cell, message):
    notebook.shell.user_ns["year"] = 1
    with pytest.raises(ParamsError, match=message):
        run(notebook, line, cell)
    assert not statements(notebook)


def test_without_a_world_the_error_names_the_variable(notebook):
    notebook.shell.user_ns["world"] = "local"
    with pytest.raises(ParamsError, match="(?s)`world` is no world.*params.load"):
        run(notebook, "", "SELECT 1")
    del notebook.shell.user_ns["world"]
    with pytest.raises(ParamsError, match="no variable 'world'"):
        run(notebook, "", "SELECT 1")


def test_at_reads_each_table_as_of_the_label(notebook, monkeypatch):
    """A label may be that of a variable."""
    monkeypatch.setattr(magic, "find", lambda world, name: f"table {name}")
    monkeypatch.setattr(hudi, "as_of", lambda session, world, table, label: (session, table, label))
    notebook.shell.user_ns["until"] = "t3"
    for option in ("--at t3", "--at {until}", "--at $until "):
        run(notebook, option, "SELECT 1")
        read_as_of = notebook.engines[-1].read_as_of
        assert read_as_of("session", "lake.artists") == ("session", "table lake.artists", "t3")
    run(notebook, "", "SELECT 1")
    assert notebook.engines[-1].read_as_of is None


def test_the_grid_is_complete_without_scripts_and_escaped(notebook):
    (data,) = run(notebook, "", "SELECT 1 < 2")
    page = data["text/html"]
    static = page[page.index("_fallback") :].partition("</table>")[0]
    assert static.count('<tr><td style="border:1px') == 25 and "&lt;script&gt;alert" in static
    assert "<script>alert" not in page and "1 &lt; 2" in page
    assert "25 more rows not shown" in page and len(page) < 30_000
    assert "http" not in re.sub(r"href=\S+|http://www.w3.org/\S+", "", page), "works offline"


def test_a_statement_without_rows_has_no_grid(notebook, monkeypatch):
    empty = pd.DataFrame()
    empty.attrs["statement"] = "CREATE DATABASE x"
    monkeypatch.setattr(Engine, "sql", lambda *_: empty)
    (data,) = run(notebook, "", "CREATE DATABASE x")
    assert "_fallback" not in data["text/html"] and "0 rows" in data["text/html"]


def test_without_itables_the_first_rows_are_a_table(notebook, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        magic.importlib.util, "find_spec", lambda name: name != "itables" and find_spec(name)
    )
    with capture_output() as captured:
        magic.load_ipython_extension(notebook.shell)
    assert not captured.outputs
    (data,) = run(notebook, "", "SELECT 1")
    assert "first 25 of 50 rows" in data["text/html"] and "_fallback" not in data["text/html"]


def test_a_magic_that_ipython_refuses_fails_a_headless_run(tmp_path):
    """IPython prints its message, and nothing of the cell's outputs is an error."""
    path = tmp_path / "book.ipynb"
    cells = [new_code_cell("world = 'local'", metadata={"tags": ["parameters"]})]
    cells += [new_code_cell("%%sql\nSELECT 1"), new_code_cell("print('later')")]
    nbformat.write(new_notebook(cells=cells), path)
    result = execute.execute_notebook(path, {"world": "local"})
    assert "Cell magic `%%sql` not found" in result.reason and not result.notebook.cells[-1].outputs


@needs_browser
def test_the_grid_sorts_filters_and_pages(notebook, tmp_path):
    with capture_output() as captured:
        magic.load_ipython_extension(notebook.shell)
    script = "".join(output.data["text/html"] for output in captured.outputs)
    assert len(script) < 1_100_000
    (data,) = run(notebook, "", "SELECT 1")
    search = """const wait = setInterval(() => {
        const input = document.querySelector("input[type=search]");
        if (!input) return;
        input.value = "49"; input.dispatchEvent(new Event("input", {bubbles: true}));
        clearInterval(wait);
    }, 50);"""
    before, after = (shown(tmp_path, script + data["text/html"], *a) for a in ((), (search,)))
    assert "Showing 1 to 25 of 50 entries" in before and "dt-paging" in before
    assert "Showing 1 to 1 of 1 entry" in after
    assert "_fallback" in shown(tmp_path, data["text/html"], scripts=False)
