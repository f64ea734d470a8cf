"""YAML: the files of the library (`load`), and what a person or another program wrote (`parse`).

`load` uses libyaml, which is ten times as fast as Python's parser, whose errors show the line.
"""

import re
from pathlib import Path
from typing import Any, Optional

import yaml

from .errors import first_line

# {tag: (pattern, first characters)} of plain scalars: a subset of YAML 1.2's core schema. YAML 1.1 reads 010
# as 8, 1:30 as 90, no as false, and 2026-01-31 as an object. Here these are texts.
_SCALARS = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    "int": (r"[-+]?(0|[1-9][0-9_]*)", [*"-+0123456789"]),
    "float": (
        r"[-+]?((0|[1-9][0-9_]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?",
        [*"-+.0123456789"],
    ),
    "merge": ("<<", ["<"]),
}
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


class PlainLoader(yaml.SafeLoader):
    """Mappings, lists, texts, numbers, true, false and null. Aliases and tags are refused.

    A few hundred bytes with aliases can stand for gigabytes.
    """

    yaml_implicit_resolvers: dict[str, list[Any]] = {}

    def compose_node(self, parent: Optional[yaml.Node], index: Any) -> Optional[yaml.Node]:
        """Compose a node that is neither an alias nor has a tag, and whose text files can hold."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        refused = "an alias" if isinstance(event, yaml.AliasEvent) else ""
        if getattr(event, "tag", None):
            refused = f"the tag {event.tag}"
        if _NO_TEXT.search(str(getattr(event, "value", ""))):
            refused = "a character that is no text"
        if refused:
            raise yaml.MarkedYAMLError(
                problem=f"{refused}: not allowed", problem_mark=event.start_mark
            )
        node: Optional[yaml.Node] = super().compose_node(parent, index)
        return node


for _tag, (_pattern, _first) in _SCALARS.items():
    PlainLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^({_pattern})$"), _first
    )


def load(path: Path, *, as_text: bool = False) -> Any:
    """Return the content of a YAML file of the library, which may have aliases.

    Args:
        path: the file.
        as_text: return every scalar as a text.
    """
    name = "BaseLoader" if as_text else "SafeLoader"
    loader = getattr(yaml, f"C{name}", None) or getattr(yaml, name)  # a build may lack libyaml
    return yaml.load(path.read_text(encoding="utf-8"), loader)  # noqa: S506 - both are safe


def parse(text: str) -> Any:
    """Return the value of YAML that a person or another program wrote (see PlainLoader).

    Raises:
        yaml.YAMLError: the text is not such YAML; the error names the line, if there is one.
    """
    try:
        return yaml.load(text, PlainLoader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError:
        raise
    except Exception as e:  # noqa: BLE001 - PyYAML raises many types: deep nesting, too many digits
        raise yaml.YAMLError(first_line(e)) from None


def read(path: Path) -> Any:
    """Return the value of a YAML file that a person or another program wrote (see `parse`).

    Raises:
        yaml.YAMLError: the file is not such YAML, or not UTF-8.
        FileNotFoundError: there is no such file.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as e:
        raise yaml.YAMLError(f"not UTF-8: {e}") from None
