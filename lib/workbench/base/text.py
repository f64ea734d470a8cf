"""Texts for people: counts with their nouns."""

from __future__ import annotations


def plural(count: int, noun: str, plural_noun: str | None = None) -> str:
    """Return a count with its noun in the right number.

    Args:
        count: the count.
        noun: the noun in the singular, such as `file`.
        plural_noun: the noun in the plural if it is irregular, such as `entries`.

    Returns:
        "1 file", "0 files", "20,700 files".
    """
    return f"{count:,} {noun if count == 1 else plural_noun or noun + 's'}"
