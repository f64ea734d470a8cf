"""YAML as people write it: the scalars of YAML 1.2's core schema, and no key twice."""

import re
from pathlib import Path
from typing import Any

import yaml

from .errors import first_line

# {tag: pattern} of plain scalars. YAML 1.1 reads 010 as 8, 1:30 as 90, no as false,
# and 2026-01-31 as an object. Here these are texts.
_SCALARS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(0|[1-9][0-9_]*)",
    "float": r"[-+]?((0|[1-9][0-9_]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?",
    "merge": "<<",
}


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A safe loader, by libyaml where it is there: it is ten times as fast as Python's."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping; YAML itself silently takes the last value of a key that is there twice."""
        names: set[str] = set()
        for key, _ in node.value:
            if key.value in names:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key.value!r} occurs twice", problem_mark=key.start_mark
                )
            names.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


for _tag, _pattern in _SCALARS.items():
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^({_pattern})$"), None)


def parse(text: str) -> Any:
    """Return the value of a YAML text.

    Raises:
        yaml.YAMLError: the text is not such YAML; the error names the line, if there is one.
    """
    try:
        return yaml.load(text, Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError:
        raise
    except Exception as e:  # noqa: BLE001 - PyYAML raises many types: deep nesting, too many digits
        raise yaml.YAMLError(first_line(e)) from None


def load(path: Path) -> Any:
    """Return the value of a YAML file.

    Raises:
        yaml.YAMLError: the file is not YAML, or not UTF-8.
        FileNotFoundError: there is no such file.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as e:
        raise yaml.YAMLError(f"not UTF-8: {e}") from None
