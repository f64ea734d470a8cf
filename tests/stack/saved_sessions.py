"""A session of an analyst on each table of a lake, saved as a notebook of its own.

The sessions are the cells of a notebook, so that they run in every world as the saved ones do.
"""

import contextlib
import uuid

import nbformat
from workbench.base import paths

# Each kind of call, as far as the table has what it needs. What is left out is printed with the reason.
SESSIONS = """
from workbench import explore, hudi, params, stack, tracks
from workbench.base.errors import LakeError

world = params.load(world)
stack.ensure_running(world, "spark")


def explore_table(name):
    table, history = explore.find(world, name), explore.history(world, name).frame
    instants = history[history["readable"]]["instant"]
    labels = hudi.labels(world, table)
    labels = list(labels[labels["instant"].isin(instants)]["label"])
    first, *_, last = 2 * (labels or list(instants))
    explore.at(world, name)
    rows = explore.at(world, name, last).rows
    explore.profile(world, name, at=last, against=first)
    explore.chart(rows)
    statement = f"SELECT count(*) AS n FROM {[*hudi.catalog_names(table)][-1]}"
    if labels:
        explore.slider(world, name, labels[-4:], at=last)
    for call in (
        lambda: explore.sql(world, statement),
        lambda: explore.sql(world, statement, at=last),
        lambda: explore.diff(world, name, first, last),
        lambda: explore.row(world, name, rows[table.key[0]].tolist()[0]),
    ):
        try:
            call()
        except LakeError as e:
            print(f"left out: {name}: {str(e).splitlines()[0]}")


listed = explore.tables(world)
for number, name in enumerate(listed[listed["kind"].str.startswith("Hudi")]["table"]):
    get_ipython().user_ns.pop("_explore_calls", None)
    try:
        explore_table(name)
        path = explore.save(f"{prefix}_{number:02}")
        print(f"saved: {name}: {path.stem}")
    except Exception as e:
        print(f"failed: {name}: {type(e).__name__}: {e}")
"""


@contextlib.contextmanager
def sessions():
    """Yield the name of the notebook of sessions, which is the beginning of those that it saves."""
    prefix = f"test_{uuid.uuid4().hex[:8]}"
    tags = {"tags": ["parameters"]}
    parameters = nbformat.v4.new_code_cell(f'world = "local"\nprefix = "{prefix}"', metadata=tags)
    cells = [parameters, nbformat.v4.new_code_cell(SESSIONS)]
    paths.OWN_NOTEBOOKS.mkdir(exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells), paths.OWN_NOTEBOOKS / f"{prefix}.ipynb")
    try:
        yield prefix
    finally:
        for path in paths.OWN_NOTEBOOKS.glob(f"{prefix}*.ipynb"):
            path.unlink()
        with contextlib.suppress(OSError):  # there are notebooks of the user
            paths.OWN_NOTEBOOKS.rmdir()


def output(folder):
    """Return {"saved": {table: notebook}, "left out": …, "failed": …} of the notebook of sessions."""
    (path,) = folder.rglob("test_*.ipynb")
    (*_, cell) = nbformat.read(path, as_version=4).cells
    lines = "".join(out.get("text", "") for out in cell.outputs).splitlines()
    found = {"saved": {}, "left out": {}, "failed": {}}
    for line in lines:
        kind, _, rest = line.partition(": ")
        name, _, text = rest.partition(": ")
        if kind in found:
            found[kind][name] = text
    return found


def red_checks(record):
    """Return the checks that did not pass, and the errors, of the saved notebooks of a run."""
    return [
        (entry["path"], entry["error"] or check)
        for entry in record["notebooks"]
        for check in entry["checks"] or [{"ok": None, "what": "no check"}]
        if entry["error"] or not check["ok"]
    ]
