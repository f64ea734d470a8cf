"""The notebooks: in reading order, what each promises, what its parameters cell declares, and, for
the first notebook, their table of contents and the drawings of their chains.
"""

import ast
import re
from itertools import accumulate
from pathlib import Path
from typing import Any, Sequence

import yaml

from ..base import ParamsError, did_you_mean, first_line, params, paths


def find(targets: Sequence[str] = ()) -> list[Path]:
    """Return the notebooks that the targets name, all where there is none, in reading order, each
    once.

    Args:
        targets: tracks (`10_outbox`), notebooks by name (`11_source_database`), tracks and
            notebooks by number (`11`), or by path.

    Raises:
        ParamsError: an unknown target; or one that is empty or lies outside notebooks/ (an unset
            variable, `/`): it would name every notebook, the teardown too.
    """
    base = paths.ROOT / "notebooks"
    known = sorted(p for p in base.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
    chosen = set() if targets else set(known)
    for target in targets:
        text = str(target).rstrip("/")
        meant = {
            q.resolve() for q in (Path(text), paths.ROOT / text, base / text) if text and q.exists()
        }
        meant = {q for q in meant if base.resolve() in q.parents}
        hits = [
            p
            for p in known
            if text in (p.stem, p.name)
            or meant & {p.resolve(), *p.resolve().parents}
            or text.isdecimal()
            and text in (number(p.stem), number(p.parent.name))
        ]
        if not hits:
            raise ParamsError(
                f"there is no notebook or track {str(target)!r}",
                location="notebooks/",
                expected=did_you_mean(
                    Path(text).stem,
                    {name for p in known for name in (p.stem, p.parent.name)} - {base.name},
                ),
                hint=""
                if Path(text).name
                else "name one of them; all notebooks run where no target is given",
            )
        chosen.update(hits)
    return [p for p in known if p in chosen]


def number(name: str) -> str:
    """Return what stands before the first underscore of a notebook's or track's name: "13" of
    13_hudi_ingest.
    """
    return name.partition("_")[0]


def name(path: Path) -> str:
    """What a notebook is called: its path below notebooks/."""
    return path.relative_to(paths.ROOT / "notebooks").as_posix()


def introduction(cells: list[Any], default_title: str) -> dict[str, str]:
    """Title and promise of a notebook, as Markdown: heading and first paragraph of its first cell
    of text; `otherwise` where it has no title.
    """
    first = next((c["source"] for c in cells if c["cell_type"] == "markdown"), "")
    title, _, rest = first.strip().partition("\n")
    promise = " ".join(re.split(r"\n\s*\n", rest.strip())[0].split())
    return {
        "title": title.strip("# ") or default_title,
        "promise": "" if promise.startswith("#") else promise,
    }


def sections(cells: list[Any]) -> list[str]:
    """For each cell the last heading that stands in it or above it; the empty text above the
    first.
    """
    own = [
        re.findall(r"^#{1,3} +(.+?)\s*#*$", re.sub(r"```.*?```", "", c["source"], flags=re.S), re.M)
        if c["cell_type"] == "markdown"
        else []
        for c in cells
    ]
    return list(
        accumulate(
            (strip_markdown(found[-1]) if found else "" for found in own),
            lambda above, here: here or above,
        )
    )


def strip_markdown(markdown: str) -> str:
    """A line of Markdown as plain text."""
    return re.sub(r"[`*]|(?<!\w)_|_(?!\w)", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown))


def contents() -> Any:
    """The table of contents, for display in a notebook at the top of notebooks/."""
    import nbformat  # here, and IPython below: `workbench down` needs neither
    from IPython.display import Markdown

    rows = ["| notebook | | at its end |", "|---|---|---|"]
    for path in find():
        intro = introduction(nbformat.read(path, as_version=4).cells, path.stem)
        promise = re.sub(r"^At the end of this notebook,? ", "", intro["promise"])
        rows.append(
            f"| [{path.stem}]({name(path)}) | {intro['title']} | {promise[:1].upper()}{promise[1:]} |"
        )
    return Markdown("\n".join(rows))


def chains(*tracks: str) -> Any:
    """Draw the chains of these tracks (`20_query_based_cdc`), or of all, below each other: each
    link from the source to the result, with its notebooks (chains.yaml).
    """
    import jinja2
    from IPython.display import HTML

    here = Path(__file__).parent
    every = yaml.safe_load((here / "chains.yaml").read_text(encoding="utf-8"))
    template = jinja2.Template(
        (here / "chains.svg.j2").read_text(encoding="utf-8"), autoescape=True
    )
    svg = template.render(tracks=[{**every[name], "number": name[:2]} for name in tracks or every])
    return HTML(f"<div style='max-width:960px'>{svg}</div>")


# ---- parameters


def declared_parameters(book: Any, shown: str) -> dict[str, Any]:
    """Return name → default of a notebook's parameters cell.

    Raises:
        ParamsError: no such cell, or a value in it that is not a literal. (A derived value would
            keep its default when papermill sets what it was derived from.)
    """
    cells = [
        c
        for c in book.cells
        if c.cell_type == "code" and "parameters" in c.metadata.get("tags", [])
    ]
    if len(cells) != 1:
        raise ParamsError(
            f"the notebook has {len(cells) or 'no'} parameters cell{'s'[: len(cells) > 1]}",
            location=shown,
            expected="one code cell tagged `parameters`",
            hint="tag the cell that says world = …",
        )
    found, node = {}, None
    try:
        for node in ast.parse(cells[0].source).body:
            found[node.targets[0].id] = ast.literal_eval(node.value)
    except (SyntaxError, ValueError, TypeError, AttributeError) as e:
        raise ParamsError(
            "the parameters cell holds something else than literals",
            location=f"{shown}: {ast.unparse(node) if node else e}",
            expected="lines such as scale = 1",
            hint="compute it in the cell below",
        ) from None
    if "world" not in found:
        raise ParamsError(
            "the parameters cell does not declare `world`",
            location=shown,
            expected='world = "local"',
        )
    return found


def convert_parameters(books: dict[Path, Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """Check parameters against the notebooks, and return them in the declared types. Whether a
    value is one of its choices the notebook itself judges, by params.require_choice. Raises ParamsError.
    """
    declarations = {name(p): declared_parameters(b, name(p)) for p, b in books.items()}
    every = {k: v for d in declarations.values() for k, v in d.items() if k != "world"}
    for key, value in parameters.items():
        if key == "world":
            raise ParamsError("the world is not a parameter", hint="name it with --world")
        if key not in every:
            raise ParamsError(
                f"no selected notebook declares the parameter {key!r}",
                location=", ".join(declarations),
                expected=did_you_mean(key, every) if every else "none",
            )
        users = ", ".join(book for book, names in declarations.items() if key in names)
        parameters[key] = _convert_value(key, value, every[key], users)
    return parameters


def _convert_value(name: str, value: Any, default: Any, where: str) -> Any:
    expected = f"a value of type {type(default).__name__}, such as {default!r}"
    if isinstance(value, str) and not isinstance(default, str):
        try:
            value = yaml.safe_load(value)
        except params.YAML_LOAD_ERRORS as e:
            raise ParamsError(
                f"parameter {name} is {value[:60]!r}, which is not YAML: {first_line(e)}",
                location=where,
                expected=expected,
            ) from None
    if isinstance(default, float) and type(value) is int:
        value = float(value)
    if default is not None and type(value) is not type(default):
        raise ParamsError(
            f"parameter {name} is {value!r} ({type(value).__name__})",
            location=where,
            expected=expected,
        )
    if (
        name.endswith("_dir") and value
    ):  # from where the user typed it; the kernel starts in the notebook's folder
        return str(Path(value).expanduser().absolute())
    return value
