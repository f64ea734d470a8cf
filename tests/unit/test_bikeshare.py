"""The bike-share database without a server: its loader, and its kinds of changes."""

import re

import pytest
from workbench.base import params
from workbench.base.errors import SourceError
from workbench.tracks import bikeshare, pagila


def test_it_has_one_size_and_no_files_of_the_user(tmp_path):
    scripts = [step.path.name for step in bikeshare.loader.steps(None)]
    assert scripts == ["01_bikeshare_ddl.sql", "02_bikeshare_rows.sql"]
    for values, says in (({"scale": 2}, "scale is 2"), ({"from_dir": tmp_path}, "only generated")):
        with pytest.raises(SourceError, match=says):
            bikeshare.loader.validate(params.load("local"), **values)


def test_every_time_in_the_scripts_has_its_offset():
    """Otherwise the rows would depend on the time zone of the server."""
    for script in bikeshare.DATA.glob("*.sql"):
        text = script.read_text(encoding="utf-8")
        times = re.findall(r"'\d{4}-\d\d-\d\d \d\d:\d\d[^']*'", text)
        assert [time for time in times if not time.endswith("+00'")] == [], script


def test_changes():
    """A seed always gives the same ones, of every kind and table."""
    changes = list(pagila.random_changes(36, 500, path=bikeshare.CHANGES))
    assert changes == list(pagila.random_changes(36, 500, path=bikeshare.CHANGES))
    statements = [statement for transaction in changes for statement, _ in transaction]
    assert len(statements) == 500
    kinds = {
        re.match(r"(INSERT INTO|UPDATE|DELETE FROM) (\w+)", each).groups() for each in statements
    }
    words = ("INSERT INTO", "UPDATE", "DELETE FROM")
    assert kinds == {(word, table) for word in words for table in bikeshare.TABLES}
    (one,) = pagila.random_changes(36, 1, ["weather"], bikeshare.CHANGES)
    assert "weather" in one[0][0]
