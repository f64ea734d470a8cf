"""The YAML files of the library, read with libyaml, which is ten times as fast as Python's parser.

A file that a person edits is read by `yaml.safe_load` instead: its errors show the line.
"""

from pathlib import Path
from typing import Any

import yaml


def load(path: Path, *, as_text: bool = False) -> Any:
    """Return the content of a YAML file.

    Args:
        path: the file.
        as_text: return every scalar as a text.
    """
    name = "BaseLoader" if as_text else "SafeLoader"
    loader = getattr(yaml, f"C{name}", None) or getattr(yaml, name)  # a build may lack libyaml
    return yaml.load(path.read_text(encoding="utf-8"), loader)  # noqa: S506 - both are safe
