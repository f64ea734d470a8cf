"""Texts for people."""

import pytest
from workbench.base.text import plural


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (20700, "20,700 files")]
)
def test_a_noun_follows_its_count(count, text):
    assert plural(count, "file") == text
