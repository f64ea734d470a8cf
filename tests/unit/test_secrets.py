"""Secrets are created once, in private files, and are found by name."""

import re
import stat

import pytest
from workbench import stack
from workbench.base import params, paths, secrets
from workbench.base.errors import ParamsError
from workbench.base.secrets import Secret
from workbench.run import run_record
from workbench.stack import services


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    return tmp_path


def test_made_once_and_readable_by_us_only():
    secrets.ensure(["a.b", "c"])
    first = secrets.read()
    assert {stat.S_IMODE(f.stat().st_mode) for f in secrets.secrets_dir().iterdir()} == {0o600}
    assert stat.S_IMODE(secrets.secrets_dir().stat().st_mode) == 0o700
    assert (
        set(first) == {"a.b", "c"}
        and all(len(v) >= 24 for v in first.values())
        and first["a.b"] != first["c"]
    )
    secrets.ensure(["a.b", "d"])
    assert {**secrets.read(), "d": ""} == {**first, "d": ""}
    assert not list(secrets.secrets_dir().glob(".*"))


def test_the_environment_gives_what_the_file_has_not(monkeypatch):
    monkeypatch.setenv("WORKBENCH_SECRET_A_B", "from outside")
    assert Secret("a.b").reveal() == "from outside"
    secrets.ensure(["a.b", "c"])
    assert secrets.read()["a.b"] == "from outside", "Kafka Connect reads the file"
    secrets.ensure(["a.b"])
    monkeypatch.delenv("WORKBENCH_SECRET_A_B")
    secrets.ensure(["a.b"])
    assert Secret("a.b").reveal() == "from outside"


def test_another_value_in_the_environment_is_refused_by_the_embedded_stack(monkeypatch):
    """PostgreSQL keeps the password of its initialization, and Kafka Connect reads the file."""
    secrets.ensure(services.SECRETS)
    before = secrets.read()
    monkeypatch.setenv("WORKBENCH_SECRET_POSTGRES_ADMIN", "canary-outside")
    for call in (
        lambda: secrets.ensure(services.SECRETS),
        lambda: stack.ensure_running(params.load("local"), "kafka"),
    ):
        with pytest.raises(
            ParamsError, match="WORKBENCH_SECRET_POSTGRES_ADMIN is not the password"
        ) as error:
            call()
        said = str(error.value)
        assert str(secrets.secrets_dir()) in said and "unset" in said and "workbench clean" in said
        assert "canary" not in said and before["postgres.admin"] not in said
    assert secrets.read() == before


def test_the_environment_goes_before_what_an_embedded_stack_has_stored(monkeypatch):
    """A world with a PostgreSQL of its own has the same names of secrets as `local`."""
    secrets.ensure(["postgres.admin"])
    monkeypatch.setenv("WORKBENCH_SECRET_POSTGRES_ADMIN", "of the server elsewhere")
    assert Secret("postgres.admin").reveal() == "of the server elsewhere"


ODD = [r"a\b\n\u0041", " two  spaces ", "#!=:", "pässword ☃ 😀", "\\", "a=b", "\"'${x}"]


def test_odd_passwords_come_back_as_they_were(monkeypatch):
    for n, text in enumerate(ODD):
        monkeypatch.setenv(f"WORKBENCH_SECRET_S{n}", text)
    secrets.ensure([f"s{n}" for n in range(len(ODD))])
    found = secrets.read()
    assert [found[f"s{n}"] for n in range(len(ODD))] == ODD
    for n, text in enumerate(ODD):  # as it stands: so does Java read it
        assert (secrets.secrets_dir() / f"s{n}").read_bytes() == text.encode()
    secrets.ensure(["other"])
    assert {**secrets.read(), "other": ""} == {**found, "other": ""}


def test_users_of_connect_are_written_as_java_reads_them():
    """`java.util.Properties` in words: a backslash escapes, \\uXXXX is a character, leading blanks
    do not count."""
    file = secrets.write_connect_users({f"user{n}": text for n, text in enumerate(ODD)})
    lines = file.read_text(encoding="ascii").splitlines()
    values = [line.partition("=")[2].lstrip(" ") for line in lines]
    pairs = re.compile(r"\\u([0-9a-f]{4})|\\(.)")
    read = [pairs.sub(lambda m: chr(int(m[1], 16)) if m[1] else m[2], value) for value in values]
    assert [text.encode("utf-16", "surrogatepass").decode("utf-16") for text in read] == ODD
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["two\nlines", "tab\t", "byte \udc80"])
def test_a_password_that_no_file_can_hold_is_refused(monkeypatch, text):
    monkeypatch.setenv("WORKBENCH_SECRET_A_B", text)
    with pytest.raises(ParamsError, match="(?s)cannot be printed.*WORKBENCH_SECRET_A_B") as error:
        secrets.ensure(["a.b"])
    assert text not in str(error.value) and not secrets.secrets_dir().exists()


def test_a_secret_that_is_nowhere_says_where_to_put_it():
    with pytest.raises(ParamsError, match="WORKBENCH_SECRET_NO_SUCH"):
        Secret("no.such").reveal()


def test_a_secret_of_the_user_is_stored_and_an_invalid_one_is_not(monkeypatch, tmp_path):
    monkeypatch.setattr(secrets, "state_dir", lambda: tmp_path / "var" / "x")
    secrets.store("bikes", "s3cret")
    assert secrets.read() == {"bikes": "s3cret"}
    assert secrets.secrets_dir().joinpath("bikes").stat().st_mode & 0o777 == 0o600
    for name, text in (("bikes", ""), ("bikes", "two\nlines"), ("../bikes", "x"), ("Bikes", "x")):
        with pytest.raises(ParamsError):
            secrets.store(name, text)
    assert secrets.read() == {"bikes": "s3cret"}


def test_a_file_that_is_no_text_is_no_secret(monkeypatch, tmp_path):
    monkeypatch.setattr("workbench.base.paths.VAR_DIR", tmp_path)
    secrets.store("mine", "canary-7")
    (secrets.secrets_dir() / "key.der").write_bytes(b"\xff\xfe\x00")
    (secrets.secrets_dir() / "folder").mkdir()
    assert secrets.read() == {"mine": "canary-7"}
    assert run_record.mask_secrets("canary-7") == secrets.MASK
