"""Reads every notebook. A rule is a function from a notebook to sentences about what is wrong; each
is seen to fail."""

import ast
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from workbench.base import paths
from workbench.base.errors import ParamsError
from workbench.run import notebooks

NOTEBOOKS = notebooks.find()  # not the user's own ones
LITERALS = {  # what belongs into a params file: a notebook runs in every world
    "host": r"127\.0\.0\.1|0\.0\.0\.0|\blocalhost\b|\.amazonaws\.com|['\"][\w.-]+:\d{4,5}['\"]",
    "port": r"\bport\s*=\s*\d{4,5}\b|['\"]?\bport['\"]?\s*:\s*['\"]?\d{4,5}\b|:\d{4,5}/",
    "bucket": r"\bs3[an]?://",
    "instant": r"['\"]\d{14}(?:\d{3})?['\"]",
    "path": r"['\"](?:file:)?(?:/(?:tmp|home|root|work|mnt|var|Users|opt)/|~/|[A-Z]:\\)",
    "account": r"['\"]\d{12}['\"]|\barn:aws",
}
# a text among the parameters, and the comment that names its choices: `source = "landed"  #
# "landed": the files; …`
CHOICES = re.compile(r"""^(\w+) *= *(?:"[^"]*"|'[^']*') *#(.*)""", re.M)
# methods that return a new table or value and change nothing
DATAFRAME_METHODS = {
    "agg",
    "assign",
    "astype",
    "collect",
    "describe",
    "fillna",
    "groupby",
    "head",
    "merge",
    "pivot_table",
    "rename",
    "reset_index",
    "round",
    "select",
    "set_index",
    "sort_values",
    "tail",
    "toPandas",
    "to_dict",
    "to_frame",
    "value_counts",
}
FORBIDDEN = {
    "sleep": r"\bsleep\s*\(|\bimport sleep\b",
    "sys.path": r"\bsys\.path\b",
    "SparkSession.builder": r"\bSparkSession\s*\.\s*builder\b",
    "magic": r"^\s*(?!%%sql\b|%load_ext workbench\.explore$)[%!]|get_ipython\(\)\.",
    "bare except": r"except\s*:",
    "secret revealed": r"\.reveal\(\)",
    "escaped dollar, which a picture shows": r"\\+\$",
}


def code_cells(book):
    return [c for c in book.cells if c.cell_type == "code" and c.source.strip()]


def tags(cell):
    return cell.metadata.get("tags", [])


def lines(cell):
    return sum(1 for line in cell.source.splitlines() if line.strip())


def parameters_are_judged_first(book):
    """In the cell after them, which removes nothing."""
    at = next((i for i, c in enumerate(book.cells) if "parameters" in tags(c)), len(book.cells))
    first = next((c.source for c in book.cells[at + 1 :] if c.cell_type == "code"), "")
    for name in (
        re.findall(r"^(\w+) *=", book.cells[at].source, re.M) if at < len(book.cells) else []
    ):
        if not re.search(rf"[(=\s]{name}\s*[,)]", first):
            yield f"the cell after the parameters does not look at {name}"
    for name, said in CHOICES.findall(book.cells[at].source) if at < len(book.cells) else []:
        words = re.findall(r'"[^"]+"(?=:)', said)
        if words and f'params.require_choice("{name}", {name}, {", ".join(words)})' not in first:
            yield f"the cell after the parameters does not hold {name} to its choices"


def title_is_verb_and_noun(book):
    first = (
        book.cells[0].source.splitlines()
        if book.cells and book.cells[0].cell_type == "markdown"
        else [""]
    )
    if not re.fullmatch(r"# [A-Z][a-z]+( \S+)+", first[0]):
        yield f"the first line is {first[0]!r}, not '# Verb the noun'"
    if not any(line.strip() and not line.startswith("#") for line in first[1:]):
        yield "no sentence of promise under the title"


def sections_are_there(book):
    headings = [
        h
        for c in book.cells
        if c.cell_type == "markdown"
        for h in re.findall(r"^## .*", c.source, re.M)
    ]
    if not any(re.match(r"## 1\. ", h) for h in headings):
        yield "no section '## 1. …'"
    last = ["## Exercises", "## Check", "## Terms in this notebook", "## Next"]
    for heading in last:
        if heading not in headings:
            yield f"no section {heading!r}"
    if [heading for heading in headings if heading in last] != last:
        yield "the last sections are not Exercises, Check, Terms, Next"


def parameters_are_literals(book):
    try:
        declared = {*notebooks.declared_parameters(book, "")}
        count = len(declared - {"world"})
        if "world" not in declared or count > 4:
            yield f"{count} parameters: world and one to four knobs"
    except ParamsError as e:
        yield str(e)


def is_folded(cell):
    return cell.metadata.get("jupyter", {}).get("source_hidden", False)


def cells_are_short(book):
    """Visible cells are short; a folded cell, which only checks, may be longer."""
    visible = [lines(c) for c in code_cells(book) if not is_folded(c)] or [0]
    folded = [lines(c) for c in code_cells(book) if is_folded(c)] or [0]
    if statistics.median(visible) > 5:
        yield f"the median visible code cell has {statistics.median(visible):g} lines, at most 5"
    if max(visible) > 15:
        yield f"the longest visible code cell has {max(visible)} lines, at most 15"
    if max(folded) > 40:
        yield f"the longest folded code cell has {max(folded)} lines, at most 40"


def imports_are_few(book):
    count = sum(
        len(re.findall("^(?:from|import) workbench", c.source, re.M)) for c in code_cells(book)
    )
    if count > 7:
        yield f"{count} lines import from workbench, at most 7: import nouns, several in a line"


def something_is_checked(book):
    after = False
    for cell in book.cells:
        after = after or (cell.cell_type == "markdown" and "## Check" in cell.source.splitlines())
        if after and cell.cell_type == "code" and re.search(r"\bcheck\.\w+\(", cell.source):
            return
    yield "no check below '## Check'"


def checks_are_folded(book):
    below_check = False
    for number, cell in enumerate(book.cells):
        below_check = below_check or "## Check" in cell.source.splitlines()
        if below_check and cell.cell_type == "code" and not is_folded(cell):
            yield f"cell {number} below '## Check' is not folded: set jupyter.source_hidden"


def no_literal_of_a_world(book):
    for cell in code_cells(book):
        for name, rule in LITERALS.items():
            found = re.search(rule, cell.source)
            if found:
                yield f"{name} literal {found.group(0)!r}"


def nothing_forbidden(book):
    for cell in code_cells(book):
        for name, rule in FORBIDDEN.items():
            found = re.search(rule, cell.source, re.M)
            if found:
                yield f"{name}: {found.group(0).strip()!r}"


def code_is_python(book):
    for cell in code_cells(book):
        try:
            ast.parse(TransformerManager().transform_cell(cell.source))
        except SyntaxError as e:
            yield f"not Python: {e}"


def is_value(expression):
    """Return whether an expression has no effect, so that its value is lost unless displayed."""
    if isinstance(expression, (ast.Await, ast.Yield, ast.YieldFrom)):
        return False
    if not isinstance(expression, ast.Call):
        return True
    function = expression.func
    if re.match(r"(show|draw|pd)\.", ast.unparse(function)):
        return True
    return isinstance(function, ast.Attribute) and function.attr in DATAFRAME_METHODS


def docstrings(tree):
    """Return the docstring statements of all functions and classes of a cell."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, definitions)]
    return [node.body[0] for node in nodes if ast.get_docstring(node) is not None]


def shown_values_are_last(book):
    """A cell displays its last expression only. Every other value, also one in a loop or a function,
    is lost without an error."""
    for number, cell in enumerate(book.cells):
        try:
            source = cell.source if cell.cell_type == "code" else ""
            tree = ast.parse(TransformerManager().transform_cell(source))
        except SyntaxError:
            continue  # code_is_python reports it
        last = tree.body[-1] if tree.body else None
        skipped = [last, *docstrings(tree)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and node not in skipped and is_value(node.value):
                text = ast.unparse(node)[:60]
                yield f"cell {number} shows a value that is lost: {text!r} is not its last line"
        if re.match(r"(show|draw)\.", ast.unparse(last) if last else "") and cell.source.endswith(
            ";"
        ):
            yield f"cell {number} shows a value that its last semicolon hides"


def outputs_are_stripped(book):
    for number, cell in enumerate(book.cells):
        if (
            cell.cell_type == "code"
            and "keep_output" not in tags(cell)
            and (cell.outputs or cell.execution_count)
        ):
            yield f"cell {number} has stored output or a count, and no tag keep_output"
        if cell.cell_type == "code" and "keep_output" in tags(cell) and not cell.outputs:
            yield f"cell {number} is tagged keep_output and has no output"
        if (
            cell.cell_type == "code" and cell.outputs and cell.execution_count is None
        ):  # nbval: "Unrun reference cell"
            yield f"cell {number} has output and no count: .venv/bin/python .ci/strip_notebooks.py gives it one"
        if "raises-exception" in tags(cell):
            yield f"cell {number} is tagged raises-exception: the runner fails on it; use check.expect_failure"


def kernel_is_python3(book):
    if book.metadata.get("kernelspec", {}).get("name") != "python3":
        yield "the kernelspec is not python3"


RULES = [
    title_is_verb_and_noun,
    sections_are_there,
    parameters_are_literals,
    parameters_are_judged_first,
    cells_are_short,
    imports_are_few,
    something_is_checked,
    checks_are_folded,
    no_literal_of_a_world,
    nothing_forbidden,
    code_is_python,
    shown_values_are_last,
    outputs_are_stripped,
    kernel_is_python3,
]
FREE = {  # what a notebook of another kind need not have
    "00_start_here": {sections_are_there, something_is_checked},
    "99_teardown": {sections_are_there},
}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook(path):
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    wrong = [w for rule in RULES if rule not in FREE.get(path.stem, ()) for w in rule(book)]
    assert not wrong, f"{path.name}:\n" + "\n".join(wrong)


# ---- the rules themselves


def good():
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(
        metadata={"kernelspec": kernel},
        cells=[
            new_markdown_cell("# Load the source database\n\nA database with 829 orders in it."),
            new_code_cell('world = "local"\nscale = 1', metadata={"tags": ["parameters"]}),
            new_markdown_cell("## 1. Load"),
            new_code_cell(
                "look(scale=scale)\nrows = sources.frame(world, 'select 1 as n -- 21:30')\nrows['n'] % 2"
            ),
            new_markdown_cell("## Exercises\n\n1. …"),
            new_markdown_cell("## Check"),
            new_code_cell(
                "check.equal('orders', 829, 829)", metadata={"jupyter": {"source_hidden": True}}
            ),
            new_markdown_cell("## Terms in this notebook\n\n- **Order**: …"),
            new_markdown_cell("## Next\n\n…"),
        ],
    )


def test_a_folded_cell_may_have_forty_lines():
    book = good()
    replace(6, "1\n" * 40)(book)
    assert list(cells_are_short(book)) == []


def test_a_good_notebook_passes():
    assert [w for rule in RULES for w in rule(good())] == []


def replace(index, source):
    def change(book):
        book.cells[index].source = source

    return change


def drop(index):
    return lambda book: book.cells.pop(index)


def output(book):
    book.cells[3].outputs = [nbformat.v4.new_output("stream", text="829")]


def tag(name):
    return lambda book: book.cells[3].metadata.update(tags=[name])


@pytest.mark.parametrize(
    "rule, change, says",
    [
        (title_is_verb_and_noun, replace(0, "# Database\n\nYes."), "Verb the noun"),
        (title_is_verb_and_noun, replace(0, "# Load the source"), "promise"),
        (sections_are_there, drop(2), "## 1."),
        (sections_are_there, drop(4), "## Exercises"),
        (sections_are_there, drop(5), "## Check"),
        (sections_are_there, drop(7), "## Terms"),
        (sections_are_there, drop(8), "## Next"),
        (sections_are_there, lambda book: book.cells.insert(3, book.cells.pop(8)), "last sections"),
        (sections_are_there, lambda book: book.cells.insert(6, book.cells.pop(4)), "last sections"),
        (parameters_are_literals, drop(1), "no parameters cell"),
        (parameters_are_literals, replace(1, 'world = "local"\nrows = 2 * 5'), "literal"),
        (parameters_are_literals, replace(1, "scale = 1"), "world"),
        (
            parameters_are_literals,
            replace(1, 'world = "local"\na = b = c = d = 1\n' + "e=1\nf=1\ng=1\nh=1"),
            "parameters",
        ),
        (parameters_are_judged_first, replace(3, "params.load(world)"), "does not look at scale"),
        (
            parameters_are_judged_first,
            replace(1, 'world = "local"\nscale = "a"  # "a": one; "b": two'),
            "to its choices",
        ),
        (cells_are_short, replace(3, "1\n" * 16), "longest visible"),
        (cells_are_short, lambda book: [replace(i, "1\n" * 6)(book) for i in (1, 3)], "median"),
        (cells_are_short, replace(6, "1\n" * 41), "longest folded"),
        (imports_are_few, replace(3, "from workbench import hudi\n" * 8), "at most 7"),
        (something_is_checked, replace(6, "print(829)"), "no check"),
        (checks_are_folded, lambda book: book.cells[6].metadata.clear(), "not folded"),
        (no_literal_of_a_world, replace(3, "connect('127.0.0.1')"), "host"),
        (no_literal_of_a_world, replace(3, "connect('broker:9092')"), "host"),
        (no_literal_of_a_world, replace(3, "connect(port=5432)"), "port"),
        (no_literal_of_a_world, replace(3, "read('s3a://lake/orders')"), "bucket"),
        (
            no_literal_of_a_world,
            replace(3, "option('as.of.instant', '20261121093000123')"),
            "instant",
        ),
        (no_literal_of_a_world, replace(3, "read('/tmp/lake')"), "path"),
        (no_literal_of_a_world, replace(3, "read('file:/home/me/lake')"), "path"),
        (no_literal_of_a_world, replace(3, "role('arn:aws:iam::1')"), "account"),
        (nothing_forbidden, replace(3, "import time\ntime.sleep(3)"), "sleep"),
        (nothing_forbidden, replace(3, "import sys\nsys.path.append('..')"), "sys.path"),
        (nothing_forbidden, replace(3, "spark = SparkSession.builder.getOrCreate()"), "builder"),
        (nothing_forbidden, replace(3, "%%sparksql\nselect 1"), "magic"),
        (nothing_forbidden, replace(3, "!ls"), "magic"),
        (nothing_forbidden, replace(3, "try:\n    1\nexcept:\n    pass"), "bare except"),
        (nothing_forbidden, replace(3, "world.postgres.admin_password.reveal()"), "secret"),
        (nothing_forbidden, replace(3, r'draw.ranking(rows, unit="\$")'), "escaped dollar"),
        (code_is_python, replace(3, "select 1"), "not Python"),
        (
            shown_values_are_last,
            replace(3, "show.table(rows)\nprint(len(rows))"),
            "is not its last line",
        ),
        (shown_values_are_last, replace(3, "draw.record_history(rows);"), "semicolon"),
        (
            shown_values_are_last,
            replace(3, "rows\nprint(len(rows))"),
            "'rows' is not its last line",
        ),
        (shown_values_are_last, replace(3, "rows['n'] % 2\nprint(1)"), "is not its last line"),
        (shown_values_are_last, replace(3, "rows.head()\nprint(1)"), "is not its last line"),
        (shown_values_are_last, replace(3, "pd.DataFrame(rows)\nprint(1)"), "is not its last line"),
        (
            shown_values_are_last,
            replace(3, "for n in (1, 2):\n    rows[n]"),
            "is not its last line",
        ),
        (
            shown_values_are_last,
            replace(3, "if rows:\n    show.table(rows)"),
            "is not its last line",
        ),
        (
            shown_values_are_last,
            replace(3, "def count():\n    'How many.'\n    len(rows), 1\n\ncount()"),
            "(len(rows), 1)",
        ),
        (outputs_are_stripped, output, "stored output"),
        (outputs_are_stripped, tag("keep_output"), "has no output"),
        (outputs_are_stripped, output, "no count"),
        (outputs_are_stripped, tag("raises-exception"), "expect_failure"),
        (
            kernel_is_python3,
            lambda book: book.metadata.kernelspec.update(name="pysparkkernel"),
            "python3",
        ),
    ],
)
def test_each_rule_fails_on_a_bad_notebook(rule, change, says):
    book = good()
    change(book)
    wrong = list(rule(book))
    assert wrong and says in " ".join(wrong)


@pytest.mark.parametrize(
    "source",
    [
        "def count():\n    'How many rows.'\n    return len(rows)\n\n\ncount()",
        "check.equal('rows', 1, 1)\nrows.append(1)\nrows",
        "for name in names:\n    print(name)",
        "show.table(rows)",
    ],
)
def test_a_docstring_an_effect_and_the_last_value_are_not_lost(source):
    book = good()
    replace(3, source)(book)
    assert list(shown_values_are_last(book)) == []


def test_stripping_changes_no_notebook_as_committed_and_takes_what_a_run_leaves(tmp_path):
    copies = [Path(shutil.copy(p, tmp_path / p.name)) for p in NOTEBOOKS]
    before = {c: c.read_bytes() for c in copies}
    ran = nbformat.read(copies[1], as_version=4)
    for number, cell in enumerate(c for c in ran.cells if c.cell_type == "code"):
        cell.execution_count, cell.outputs = (
            number + 1,
            [nbformat.v4.new_output("stream", text="x")],
        )
    nbformat.write(ran, copies[1])
    subprocess.run([sys.executable, paths.ROOT / ".ci" / "strip_notebooks.py", *copies], check=True)
    assert {c: c.read_bytes() for c in copies} == before
