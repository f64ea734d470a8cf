"""Secrets are made once, in a file that only we can read, and are found by name."""
import stat

import pytest
from workbench import stack
from workbench.base import params, paths, secrets
from workbench.base.errors import ParamsError
from workbench.base.secrets import Secret
from workbench.stack import services


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "VAR", tmp_path)
    return tmp_path


def test_made_once_and_readable_by_us_only():
    path = secrets.ensure(["a.b", "c"])
    first = secrets.read(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert set(first) == {"a.b", "c"} and all(len(v) >= 24 for v in first.values()) and first["a.b"] != first["c"]
    assert {**secrets.read(secrets.ensure(["a.b", "d"])), "d": ""} == {**first, "d": ""}
    assert not list(path.parent.glob("*.new"))


def test_the_passwords_of_an_instance_are_those_it_names():
    services.make_secrets()
    assert set(secrets.read(secrets.secrets_file())) == set(services.SECRETS)


def test_the_environment_gives_what_the_file_has_not(monkeypatch):
    monkeypatch.setenv("WORKBENCH_SECRET_A_B", "from outside")
    assert Secret("a.b").reveal() == "from outside"
    secrets.ensure(["a.b", "c"])
    assert secrets.read(secrets.secrets_file())["a.b"] == "from outside", "Kafka Connect reads the file"
    secrets.ensure(["a.b"])
    monkeypatch.delenv("WORKBENCH_SECRET_A_B")
    secrets.ensure(["a.b"])
    assert Secret("a.b").reveal() == "from outside"


def test_another_value_in_the_environment_is_refused_and_the_file_stays(monkeypatch):
    services.make_secrets()
    before = secrets.read(secrets.secrets_file())
    monkeypatch.setenv("WORKBENCH_SECRET_POSTGRES_ADMIN", "canary-outside")
    for call in (services.make_secrets, lambda: stack.need(params.load("local"), "kafka")):
        with pytest.raises(ParamsError, match="WORKBENCH_SECRET_POSTGRES_ADMIN is not the password") as error:
            call()
        said = str(error.value)
        assert str(secrets.secrets_file()) in said and "unset" in said and "workbench clean" in said
        assert "canary" not in said and before["postgres.admin"] not in said
    assert secrets.read(secrets.secrets_file()) == before


ODD = [r"a\b\n\u0041", " two  spaces ", "#!=:", "pässword ☃ 😀", "\\", "a=b", "\"'${x}"]


def test_odd_passwords_come_back_as_they_were(monkeypatch):
    for n, text in enumerate(ODD):
        monkeypatch.setenv(f"WORKBENCH_SECRET_S{n}", text)
    found = secrets.read(secrets.ensure([f"s{n}" for n in range(len(ODD))]))
    assert [found[f"s{n}"] for n in range(len(ODD))] == ODD
    text = secrets.secrets_file().read_text(encoding="utf-8")
    assert text.isascii() and r"s0=a\\b" in text and "s1=\\u0020two" in text, "Java would read something else"
    secrets.ensure(["other"])
    assert {**secrets.read(secrets.secrets_file()), "other": ""} == {**found, "other": ""}


def test_the_escapes_of_java_properties_are_read_as_java_reads_them(folder):
    path = folder / "x.properties"
    path.write_text("a=x\\\\y\\tz\\u00E4\\:\n")
    assert secrets.read(path) == {"a": "x\\y\tzä:"}


@pytest.mark.parametrize("text", ["two\nlines", "tab\t", "byte \udc80"])
def test_a_password_that_no_file_can_hold_is_refused(monkeypatch, text):
    monkeypatch.setenv("WORKBENCH_SECRET_A_B", text)
    with pytest.raises(ParamsError, match="WORKBENCH_SECRET_A_B holds a line break") as error:
        secrets.ensure(["a.b"])
    assert text not in str(error.value) and not secrets.secrets_file().exists()


def test_a_secret_that_is_nowhere_says_where_to_put_it():
    with pytest.raises(ParamsError, match="WORKBENCH_SECRET_NO_SUCH"):
        Secret("no.such").reveal()
