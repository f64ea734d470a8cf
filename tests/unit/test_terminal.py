"""Text for a terminal contains nothing that the terminal obeys."""

import pytest
from workbench.base import errors, terminal
from workbench.checks import check
from workbench.cli import main as cli


@pytest.mark.parametrize(
    "text, shown",
    [
        ("Zoë • €5 'x' \\x1b", "Zoë • €5 'x' \\x1b"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b31m", "\\x9b31m"),
        ("a\rb\nc\td", "a\\rb\\nc\\td"),
        ("\x07\x00\x7f", "\\x07\\x00\\x7f"),
        ("\u202e\u200b", "\\u202e\\u200b"),
        ("\udc80", "\\udc80"),
    ],
)
def test_what_cannot_be_printed_is_escaped(text, shown):
    assert terminal.escape_unprintable(text) == shown


def test_lines_stay_lines_where_a_text_has_several(capsys):
    terminal.echo("one\x1b[1m\n  two :smile: [b]")
    assert capsys.readouterr().out == "one\\x1b[1m\n  two :smile: [b]\n"


def test_an_error_of_the_command_line_cannot_clear_the_screen(monkeypatch, capsys):
    def refuse(arguments):
        raise errors.LakeError("there is no topic '\x1b[2J'", location="\x1b]0;x\x07", hint="a\nb")

    monkeypatch.setattr(cli, "app", refuse)
    with pytest.raises(SystemExit):
        cli.main([])
    said = capsys.readouterr().err
    assert (
        "\x1b" not in said
        and said.splitlines()[0] == "there is no topic '\\x1b[2J'"
        and len(said.splitlines()) == 4
    )


def test_a_check_escapes_the_values_that_it_shows(capsys):
    with pytest.raises(errors.CheckFailed):
        check.equal("title", "\x1b[2J", "x", "lake", "source")
    assert "\\x1b[2J" in capsys.readouterr().out
