"""Secrets are made once, in a file that only we can read, and are found by name."""
import stat

import pytest
from workbench import params, secrets
from workbench.errors import ParamsError
from workbench.secrets import Secret


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(params, "VAR", tmp_path)
    return tmp_path


def test_made_once_and_readable_by_us_only():
    path = secrets.ensure(["a.b", "c"])
    first = secrets.read(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert set(first) == {"a.b", "c"} and all(len(v) >= 24 for v in first.values()) and first["a.b"] != first["c"]
    assert {**secrets.read(secrets.ensure(["a.b", "d"])), "d": ""} == {**first, "d": ""}
    assert not list(path.parent.glob("*.new"))


def test_the_environment_goes_before_the_file(monkeypatch):
    secrets.ensure(["a.b"])
    monkeypatch.setenv("WORKBENCH_SECRET_A_B", "from outside")
    assert Secret("a.b").reveal() == "from outside"
    secrets.ensure(["a.b", "c"])
    assert secrets.read(secrets.secrets_file())["a.b"] == "from outside", "Kafka Connect reads the file"


def test_a_secret_that_is_nowhere_says_where_to_put_it():
    with pytest.raises(ParamsError, match="WORKBENCH_SECRET_NO_SUCH"):
        Secret("no.such").reveal()


@pytest.mark.parametrize("raw", ["hunter2", "", None, 5, "${secret:}", "x${secret:a}", "${secret:A}"])
def test_only_a_reference_is_a_secret(raw):
    with pytest.raises(ParamsError) as error:
        Secret.parse(raw, where="f: k")
    assert "hunter2" not in str(error.value) and "f: k" in str(error.value)
