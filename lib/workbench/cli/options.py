"""Options and steps that several commands share."""

import typer

from ..base import params
from ..base.terminal import echo
from ..stack.doctor import Finding

WORLD = typer.Option("local", help="Which params/<world>.yaml.")
YES = typer.Option(False, "--yes", "-y", help="Do not ask for confirmation.")
# {level of a finding: (mark, color)}
MARKS = {"ok": ("✔", "green"), "warning": ("!", "yellow"), "problem": ("✘", "red")}


def open_world(name: str) -> params.World:
    """Load a world, and activate it for the rest of the process."""
    world = params.load(name)
    params.activate(world)
    return world


def confirm(question: str, yes: bool) -> None:
    """Ask a question before something is removed, unless the answer was given by --yes."""
    if not yes:
        typer.confirm(question, default=False, abort=True)


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
