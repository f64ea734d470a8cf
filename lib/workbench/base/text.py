"""Texts for people: counts with their nouns."""

from __future__ import annotations


def plural(count: int, noun: str, plural_noun: str | None = None) -> str:
    """Return a count with its noun in the right number.

    Args:
        count: how many there are.
        noun: the noun in the singular, `file`.
        plural_noun: the noun in the plural where it is not formed by an s, `entries`.

    Returns:
        "1 file", "0 files", "20,700 files".
    """
    return f"{count:,} {noun if count == 1 else plural_noun or noun + 's'}"
