"""The tables of Athena's functions, casts and types in Spark SQL (athena_functions.yaml)."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from ..base import yaml_files

WINDOW_PLACEHOLDER = "\0"  # where FILTER and OVER go, if they do not go to the end
NOT_TRANSLATED = "workbench: "  # begins the messages that a translated query raises itself

_TABLES = yaml_files.load(Path(__file__).with_suffix(".yaml"))
FUNCTIONS: dict[str, object] = _TABLES["functions"]
CASTS: dict[str, str] = _TABLES["casts"]
TEXT_FORMS: dict[str, str] = _TABLES["forms"]
DATE_SPECIFIERS: dict[str, str] = _TABLES["date_specifiers"]
# {function: its result type}
RESULTS = {name: kind for kind, names in _TABLES["results"].items() for name in names.split()}
# {number of arguments: functions with the same name and meaning in Spark}
SAME_NAMES = {count: set(names.split()) for count, names in _TABLES["same"].items()}


def find_template(name: str, arguments: int, kind: str) -> Optional[str]:
    """Return the Spark SQL of a function; None if it is unknown, or has other arguments.

    Args:
        name: the function.
        arguments: their number.
        kind: kind of the type on which the translation depends.
    """
    if name in SAME_NAMES.get(arguments, ()):
        places = ", ".join(f"${n}" for n in range(arguments))
        return f"{name.upper()}({places})"
    template = FUNCTIONS.get(name)
    if isinstance(template, dict):
        template = template.get(arguments) or template.get(kind) or template.get("other")
    if not isinstance(template, str):
        return None
    numbers = [int(number) for number in re.findall(r"\$(\d)", template)]
    is_complete = arguments == max(numbers, default=-1) + 1
    return template if is_complete or "$all" in template else None


def depends_on_type(name: str) -> bool:
    """Whether the Spark SQL of a function depends on the type of its last argument."""
    template = FUNCTIONS.get(name)
    return isinstance(template, dict) and "other" in template


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replace each `$name` of a template by its value."""
    return re.sub(r"\$(\w+)", lambda match: values[match[1]], template)
