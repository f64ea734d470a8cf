"""The formatter, the linter, the type checker and the spelling checker find nothing."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from workbench.base import paths

PYTHON = ["lib", "tests", "notebooks", "deploy", ".ci"]
TEXTS = ["README.md", "CONTRIBUTING.md", "Makefile", "docs", "deploy", "params", "lib"]


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "format", "--check", *PYTHON],
        ["ruff", "check", *PYTHON],
        ["mypy"],
        ["codespell", *TEXTS],
    ],
    ids=["format", "lint", "types", "spelling"],
)
def test_a_tool_finds_nothing(command):
    program = Path(sys.executable).with_name(command[0])
    done = subprocess.run(
        [str(program), *command[1:]], cwd=paths.ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_list_of_notebooks_is_current():
    listed = runpy.run_path(str(paths.ROOT / ".ci" / "list_notebooks.py"))
    page = paths.ROOT / "notebooks" / "README.md"
    assert page.read_text(encoding="utf-8") == listed["page"]()
