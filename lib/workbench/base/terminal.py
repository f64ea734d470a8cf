"""Text for a terminal, without control characters."""

LAYOUT_CHARACTERS = "\n\t"  # the control characters that a text of several lines needs


def escape_unprintable(text: str, allowed: str = "") -> str:
    r"""Replace every character that cannot be printed by an escape, such as `\x1b`.

    Escape sequences move the cursor, change the title or hide text. Text from topics, headers and
    databases may contain them.

    Args:
        text: any text.
        allowed: characters that stay, such as LAYOUT_CHARACTERS. By default line breaks are escaped as
            well, and the text stays on one line.
    """
    return "".join(
        c if c.isprintable() or c in allowed else c.encode("unicode_escape").decode() for c in text
    )


def echo(text: str, style: str = "", stderr: bool = False) -> None:
    """Print a text of one or several lines.

    Args:
        text: what to print; characters that cannot be printed are escaped.
        style: a style of the library `rich`, such as "bold red".
        stderr: print to standard error.
    """
    from rich.console import Console

    Console(stderr=stderr, soft_wrap=True).print(
        escape_unprintable(text, LAYOUT_CHARACTERS),
        style=style or None,
        markup=False,
        highlight=False,
        emoji=False,
    )
