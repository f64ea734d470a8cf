"""What all tests of notebooks share."""

import pytest

pytest.register_assert_rewrite("executing")


@pytest.fixture(autouse=True)
def runs_elsewhere(tmp_path, monkeypatch):
    """Executed notebooks and reports of tests do not land among a person's own."""
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path / "runs"))
