"""Splitting SQL into statements, and what a loader does before it connects."""

import pytest
from workbench.base import params
from workbench.base.errors import SourceError
from workbench.source.loading import split_statements
from workbench.tracks import northwind


@pytest.mark.parametrize(
    "text, expected",
    [
        ("SELECT 1; SELECT 2", [(1, "SELECT 1"), (1, "SELECT 2")]),
        ("\n\nSELECT 1;\n\nSELECT\n2;\n", [(3, "SELECT 1"), (5, "SELECT\n2")]),
        ("SELECT ';', 'it''s;';SELECT 2;", [(1, "SELECT ';', 'it''s;'"), (1, "SELECT 2")]),
        (r"SELECT E'a\';b'; SELECT 2;", [(1, r"SELECT E'a\';b'"), (1, "SELECT 2")]),
        (r"SELECT 'a\'; SELECT 2;", [(1, r"SELECT 'a\'"), (1, "SELECT 2")]),  # no escape without E
        ('SELECT ";""" ; SELECT 2;', [(1, 'SELECT ";"""'), (1, "SELECT 2")]),
        ("DO $$ BEGIN a; b; END $$; SELECT 2;", [(1, "DO $$ BEGIN a; b; END $$"), (1, "SELECT 2")]),
        ("DO $x$ $$ ; $$ ; $x$; SELECT 2;", [(1, "DO $x$ $$ ; $$ ; $x$"), (1, "SELECT 2")]),
        ("-- a; b\nSELECT 1; /* c;\n d */\nSELECT 2; -- e", [(2, "SELECT 1"), (4, "SELECT 2")]),
        ("SELECT '-- no comment', 1;\n;;\n;", [(1, "SELECT '-- no comment', 1")]),
        ("SELECT 'two\nlines';\nSELECT 2;", [(1, "SELECT 'two\nlines'"), (3, "SELECT 2")]),
        ("SELECT 'Genève';", [(1, "SELECT 'Genève'")]),
        ("", []),
        (" \n-- nothing\n", []),
    ],
)
def test_statements(text, expected):
    assert list(split_statements(text)) == expected


def test_nothing_is_done_without_confirmation():
    """Declined: not even a connection is made (none is there in a unit test)."""
    asked = []
    assert (
        northwind.loader.load(params.load("local"), confirm=lambda q: bool(asked.append(q))) == {}
    )
    assert len(asked) == 1 and "datalake" in asked[0]


@pytest.mark.parametrize("scale", [0, -1, 1001, 1.5, "2", True])
def test_a_scale_out_of_range_is_refused(scale):
    with pytest.raises(SourceError, match="scale is"):
        northwind.loader.validate(params.load("local"), scale=scale)
