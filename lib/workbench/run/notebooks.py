"""The notebooks: order, titles and parameters, and the contents and drawings for notebook 00."""

import ast
import re
from pathlib import Path
from typing import Any, Sequence

from pydantic import TypeAdapter, ValidationError

from ..base import ParamsError, did_you_mean, first_line, paths, yaml_files


def find(targets: Sequence[str] = ()) -> list[Path]:
    """Return the notebooks that the targets name, in reading order, each once.

    Args:
        targets: tracks (`10_outbox`), notebooks by name (`11_source_database`), tracks and
            notebooks by number (`11`), or by path. An empty sequence selects all notebooks but the
            user's own ones, in notebooks/own.

    Raises:
        ParamsError: a target is unknown, empty or outside notebooks/. An unset shell variable or `/`
            must not select every notebook, including the teardown.
    """
    folder = paths.ROOT / "notebooks"
    all_paths = sorted(p for p in folder.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
    if not targets:
        return [p for p in all_paths if paths.OWN_NOTEBOOKS not in p.parents]
    selected: set[Path] = set()
    for target in map(str, targets):
        name = target.rstrip("/")
        bases = (Path.cwd(), paths.ROOT, folder) if name else ()
        places = {(base / name).resolve() for base in bases} - {folder.resolve()}
        matches = [
            p
            for p in all_paths
            if name in (p.stem, p.name)
            or (name.isdecimal() and name in (number(p.stem), number(p.parent.name)))
            or places & {p.resolve(), p.parent.resolve()}
        ]
        if not matches:
            raise ParamsError(
                f"there is no notebook or track {target!r}",
                location="notebooks/",
                expected=did_you_mean(
                    Path(target).stem, {n for p in all_paths for n in (p.stem, p.parent.name)}
                ),
                hint="name one of them; without a target all notebooks run",
            )
        selected.update(matches)
    return sorted(selected)


def number(name: str) -> str:
    """Return the number at the start of a notebook's or track's name: "13" of 13_hudi_ingest."""
    return name.partition("_")[0]


def name(path: Path) -> str:
    """Return the path of a notebook below notebooks/."""
    return path.relative_to(paths.ROOT / "notebooks").as_posix()


def read(path: Path) -> Any:
    """Return a notebook.

    Raises:
        ParamsError: the file is not a notebook.
    """
    import nbformat  # local imports: `workbench down` must run without nbformat and IPython

    try:
        return nbformat.read(path, as_version=4)
    except Exception as e:  # noqa: BLE001 - an empty file, a merge conflict, another format
        raise ParamsError(
            f"this is not a notebook: {first_line(e)}",
            location=str(path),
            expected="a file that Jupyter has saved, without marks of a merge conflict",
        ) from None


def introduction(cells: list[Any], default_title: str) -> dict[str, str]:
    """Return the title and the promise of a notebook, as Markdown.

    Args:
        cells: the cells of the notebook. The first text cell has the heading, and the promise as its
            first paragraph: what the reader has at the end.
        default_title: the title of a notebook without a heading.

    Returns:
        {"title": …, "promise": …}.
    """
    first = next((c["source"] for c in cells if c["cell_type"] == "markdown"), "")
    title, _, text = first.strip().partition("\n")
    promise = " ".join(text.strip().split("\n\n")[0].split())
    if promise.startswith("#"):
        promise = ""
    return {"title": title.strip("# ") or default_title, "promise": promise}


def sections(cells: list[Any]) -> list[str]:
    """Return the section of each cell: the last heading in or above it, "" before the first heading."""
    section, result = "", []
    for cell in cells:
        if cell["cell_type"] == "markdown":
            text = re.sub(r"```.*?```", "", cell["source"], flags=re.S)
            headings = re.findall(r"^#{1,3} +(.+?)\s*#*$", text, re.M)
            if headings:
                section = strip_markdown(headings[-1])
        result.append(section)
    return result


def strip_markdown(markdown: str) -> str:
    """Return a line of Markdown as plain text."""
    without_links = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return re.sub(r"[`*]|(?<!\w)_|_(?!\w)", "", without_links)


def contents() -> Any:
    """Return the table of contents, for display in a notebook at the top of notebooks/."""
    from IPython.display import Markdown  # a local import, as above

    rows = ["| notebook | | at its end |", "|---|---|---|"]
    for path in find():
        intro = introduction(read(path).cells, path.stem)
        promise = re.sub(r"^At the end of this notebook,? ", "", intro["promise"])
        promise = re.sub(r"^\W*[a-z]", lambda begin: begin[0].upper(), promise)
        rows.append(f"| [{path.stem}]({name(path)}) | {intro['title']} | {promise} |")
    return Markdown("\n".join(rows))


def chains(*tracks: str) -> Any:
    """Draw the pipeline of each track: its stages from the source to the result, with their notebooks.

    Args:
        tracks: such as `20_query_based_cdc`; by default all tracks of chains.yaml.
    """
    from IPython.display import HTML

    definitions = yaml_files.load(Path(__file__).with_name("chains.yaml"))
    rows = [{**definitions[track], "number": number(track)} for track in tracks or definitions]
    return HTML(f"<div style='max-width:960px'>{render('chains.svg.j2', tracks=rows)}</div>")


def render(template: str, **values: Any) -> str:
    """Return a page or drawing of a template in the folder of this module; values are escaped."""
    import jinja2  # `workbench down` runs without it

    text = Path(__file__).with_name(template).read_text(encoding="utf-8")
    page = jinja2.Template(text, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return str(page.render(values))


# ---- parameters


def declared_parameters(notebook: Any, path: str) -> dict[str, Any]:
    """Return the parameters that a notebook declares, with their defaults.

    `papermill.inspect_notebook` does not serve here: it misses a text with `=` or `#`, and accepts
    a derived value, which would keep its default when the parameter is set that it is derived from.

    Args:
        notebook: the notebook.
        path: path of the notebook, for errors.

    Raises:
        ParamsError: there is not one parameters cell, it has a value that is not a literal, or it
            does not declare `world`.
    """
    cells = [c.source for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    declared: dict[str, Any] = {}
    statement: Any = None
    try:
        for statement in ast.parse("\n".join(cells)).body:
            is_typed = isinstance(statement, ast.AnnAssign)
            (target,) = [statement.target] if is_typed else statement.targets
            declared[target.id] = ast.literal_eval(statement.value)
    except (SyntaxError, ValueError, TypeError, AttributeError) as e:
        raise ParamsError(
            "the parameters cell contains a statement that is not an assignment of a literal",
            location=f"{path}: {ast.unparse(statement) if statement else e}",
            expected="lines such as scale = 1",
            hint="compute derived values in the cell below",
        ) from None
    if len(cells) != 1 or "world" not in declared:
        raise ParamsError(
            "the notebook has no parameters cell, has several, or does not declare `world` in it",
            location=path,
            expected='one code cell tagged `parameters` with the line world = "local"',
        )
    return declared


def convert_parameters(notebooks: dict[Path, Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """Check parameters against the notebooks, and convert them to the declared types.

    The notebook itself checks whether a value is one of its choices (params.require_choice).

    Args:
        notebooks: {path: notebook}.
        parameters: {name: value}; a text is converted to the type of the default.

    Returns:
        {name: converted value}.

    Raises:
        ParamsError: a parameter is unknown, or its value has another type.
    """
    defaults: dict[str, Any] = {}
    for path, notebook in notebooks.items():
        defaults.update(declared_parameters(notebook, name(path)))
    defaults.pop("world", None)
    for key in parameters:
        if key not in defaults:
            raise ParamsError(
                f"{key!r} is no parameter of the selected notebooks",
                location=", ".join(map(name, notebooks)),
                expected=did_you_mean(key, defaults),
                hint="--world names the world",
            )
    return {key: _convert_value(key, value, defaults[key]) for key, value in parameters.items()}


def _convert_value(name: str, value: Any, default: Any) -> Any:
    if default is None:
        return value
    try:
        adapter = TypeAdapter(type(default), config={"allow_inf_nan": False})
        value = adapter.validate_python(value)
    except ValidationError as e:
        raise ParamsError(
            f"parameter {name} is {value!r:.200}: {e.errors()[0]['msg']}",
            expected=f"a value of the type of its default, {default!r}; --param takes no list or dict",
        ) from None
    # relative to the user's working directory; the kernel starts in the notebook's folder
    if name.endswith("_dir") and value:
        return str(Path(value).expanduser().absolute())
    return value
