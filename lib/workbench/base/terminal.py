"""What is printed to a terminal: nothing in it that a terminal would obey."""

LAYOUT_CHARACTERS = "\n\t"  # what shapes a text of several lines


def escape_unprintable(text: str, keep: str = "") -> str:
    """Return a text with every character that cannot be printed written as an escape, such as
    `\\x1b`.

    Terminals obey escape sequences: they move the cursor, change the title, hide text. Text from
    topics, headers and databases may hold some.

    Args:
        keep: characters that stay, such as LINES. Without it a line break is escaped, too: the text
            stays one line.
    """
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def echo(text: str, style: str = "", stderr: bool = False) -> None:
    """Print a text, which may have several lines, in a style of rich's."""
    from rich.console import Console

    Console(stderr=stderr, soft_wrap=True).print(
        escape_unprintable(text, LAYOUT_CHARACTERS),
        style=style or None,
        markup=False,
        highlight=False,
        emoji=False,
    )
