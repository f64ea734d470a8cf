"""Load athena.txt, the Spark SQL of each function, operator and cast of Athena."""

from pathlib import Path
from typing import Any, NamedTuple, Optional


class Entry(NamedTuple):
    """A line of athena.txt: the names of the arguments, and the Spark SQL in one or more forms."""

    arguments: list[str]
    forms: list[str]


def _load(path: Path) -> dict[str, list[Entry]]:
    """Read the file, whose header describes its syntax, into {name: entries}."""
    functions: dict[str, list[Entry]] = {}
    macros: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        signature, arrow, text = line.partition(" -> ")
        if line.startswith("$"):
            macro, _, replacement = line.partition(" = ")
            macros[macro] = replacement
        elif arrow:
            for macro, replacement in macros.items():
                text = text.replace(macro, replacement)
            name, _, arguments = signature.rstrip(")").partition("(")
            entry = Entry(arguments.split(", ") if arguments else [], text.split(" ;; "))
            functions.setdefault(name, []).append(entry)
        elif not line.startswith("#"):
            for name in line.split():
                functions[name] = [Entry(["*args"], [f"{name.upper()}({{args}})"])]
    return functions


FUNCTIONS = _load(Path(__file__).with_name("athena.txt"))


def find(name: str, arguments: list[Any]) -> Optional[tuple[dict[str, list[Any]], list[str]]]:
    """Find the entry of a function that accepts these arguments.

    Args:
        name: the name in athena.txt.
        arguments: sqlglot trees of the arguments.

    Returns:
        ({name of an argument: trees}, forms of the entry); None if there is no such entry.
    """
    for entry in FUNCTIONS.get(name, []):
        fixed_names = [n for n in entry.arguments if n != "*args"]
        named = list(zip(fixed_names, arguments))
        variable = arguments[len(fixed_names) :]
        has_right_count = len(named) == len(fixed_names) and (
            not variable or "*args" in entry.arguments
        )
        has_literals = all(a.sql().lower() == n for n, a in named if n.startswith("'"))
        if has_right_count and has_literals:
            return {**{n: [a] for n, a in named}, "args": variable}, entry.forms
    return None
