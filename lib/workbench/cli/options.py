"""Options that several commands share, and the old names of renamed options."""

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from ..base import params
from ..base.terminal import echo
from ..stack.doctor import Finding

WORLD = typer.Option("local", help="Which params/<world>.yaml.")
YES = typer.Option(False, "--yes", "-y", help="Do not ask for confirmation.")
# {level of a finding: (mark, color)}
MARKS = {"ok": ("✔", "green"), "warning": ("!", "yellow"), "problem": ("✘", "red")}
# {old name: new name}. The old names are accepted for one release.
RENAMED_OPTIONS = {"--mine": "--take-ownership", "--no-mine": "--no-take-ownership"}


def open_world(name: str) -> params.World:
    """Load a world, and activate it for the rest of the process."""
    world = params.load(name)
    params.activate(world)
    return world


class CommandGroup(TyperGroup):
    """A group of commands that accepts the old names of options, with a note on stderr."""

    # typer has its own copy of click in newer releases, whose Context it does not export
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments after old names of options have been replaced."""
        return super().parse_args(ctx, [_current_name(argument) for argument in args])


def _current_name(argument: str) -> str:
    name, equals, value = argument.partition("=")
    if name not in RENAMED_OPTIONS:
        return argument
    new_name = RENAMED_OPTIONS[name]
    print(f"note: {name} is now {new_name}; the next release removes {name}", file=sys.stderr)
    return new_name + equals + value


def parse_key_values(arguments: list[str], option: str) -> dict[str, str]:
    """Return the values of a repeated option of the form name=value.

    Args:
        arguments: the values as typed.
        option: name of the option, for the error.

    Raises:
        typer.BadParameter: a value is not name=value.
    """
    values = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not (equals and name.isidentifier()):
            raise typer.BadParameter(f"{argument!r} is not name=value", param_hint=option)
        values[name] = value
    return values


def print_findings(findings: list[Finding]) -> None:
    """Print findings of the doctor; exit with code 1 if one is a problem."""
    for finding in findings:
        mark, color = MARKS[finding.level]
        remedy = f"\n    {finding.remedy}" if finding.remedy else ""
        echo(f"{mark} {finding.subject}: {finding.detail}{remedy}", color)
    if any(finding.level == "problem" for finding in findings):
        raise typer.Exit(1)
