"""Texts for people: counts with their nouns."""


def plural(count: int, noun: str) -> str:
    """Return a count with its noun in the right number.

    Args:
        count: the count.
        noun: the noun in the singular, such as `file`.

    Returns:
        "1 file", "0 files", "20,700 files".
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
