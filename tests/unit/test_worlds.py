"""Several worlds are open in one process, and none changes the process but by `activate`."""

import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import on_aws
import pytest
import workbench
from workbench import params
from workbench.base import aws, http, paths
from workbench.query import spark_sql
from workbench.spark import sessions, state_of, world_of

LIB = Path(workbench.__file__).parent


def test_a_client_is_kept_until_another_world_is_active(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    worlds = [on_aws.world().model_copy(update={"region": name}) for name in ("one", "two")]
    params.activate(worlds[0])
    made = aws.client("one", "s3")
    params.activate(worlds[0])
    assert aws.client("one", "s3") is made
    params.activate(worlds[1])
    assert aws.client("one", "s3") is not made, (
        "it may have the address or the key of the other one"
    )


# --- what importing and loading leave as it was

CHILD = """
import importlib, json, os, pkgutil, sys
import IPython, pandas
from IPython.core.interactiveshell import InteractiveShell
sys.path.insert(0, sys.argv[1])
for name in json.loads(sys.argv[2]):  # what other libraries do at import is not ours
    importlib.import_module(name)

WRITES = "os.mkdir os.symlink os.link os.rename os.remove os.rmdir os.chmod os.truncate".split()
written = []

def watch(event, arguments):
    if event in WRITES:
        written.append([event, str(arguments[0])])
    elif event == "open" and isinstance(arguments[2], int) and arguments[2] & 3:
        written.append([event, str(arguments[0])])

def options():
    registered = pandas._config.config._registered_options
    return {name: pandas.get_option(name) for name in registered}

def shown():
    shell = InteractiveShell.instance()
    return {k: set(f.type_printers) for k, f in shell.display_formatter.formatters.items()}

before = dict(os.environ), options(), shown()
sys.addaudithook(watch)
import workbench
for module in pkgutil.walk_packages(workbench.__path__, "workbench."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
import on_aws
from workbench import params
names = params.world_names()
worlds = [on_aws.world(name) for name in names]
after = dict(os.environ), options(), shown()
root = str(params.paths.ROOT)
print(json.dumps([names, root, [a == b for a, b in zip(before, after)], written]))
"""
FOREIGN = "pyspark.sql papermill botocore.session sqlglot psycopg pyarrow matplotlib.pyplot".split()


def test_imports_and_loads_change_nothing(tmp_path):
    """In a checkout whose path needs a link."""
    root = tmp_path / "x y"
    root.mkdir()
    for name in ("params", "data", "notebooks", "deploy"):
        (root / name).symlink_to(paths.ROOT / name)
    user = {"PGSSLMODE": "require", "AWS_PROFILE": "mine", "NO_PROXY": "a.example"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(paths.ROOT / "tests/help"), json.dumps(FOREIGN)],
        env={
            **os.environ,
            **user,
            "WORKBENCH_ROOT": str(root),
            "PYTHONDONTWRITEBYTECODE": "1",
            "WORKBENCH_SECRET_CONNECT_ADMIN": "x",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    names, used, same, written = json.loads(done.stdout.splitlines()[-1])
    assert (names, used) == (params.world_names(), str(root))
    assert same == [True, True, True], "os.environ, pandas options, IPython's formatters"
    assert [w for w in written if not w[1].startswith("/dev/")] == []


def test_only_activate_changes_the_environment():
    """Elsewhere a change of `os.environ` is made for a child process, in a dict."""
    change = re.compile(
        r"environ(\[[^]]*\] *\|?= |\.(pop|update|setdefault|clear|popitem)\b| *\|= )|del os\.environ|putenv|unsetenv"
    )
    found = {
        str(path.relative_to(LIB))
        for path in LIB.rglob("*.py")
        if change.search(path.read_text(encoding="utf-8"))
    }
    # a WSGI request's own `environ` is a dict
    assert found - {"stack/s3.py"} == {"base/environment.py"}
    assert "os.environ" not in (LIB / "stack/s3.py").read_text(encoding="utf-8")


# --- activate


@pytest.fixture
def user(monkeypatch):
    """The environment of a user with settings of his own."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "PG", "SPARK_CONNECT"))]:
        monkeypatch.delenv(name)
    for name, value in {
        "PGSERVICE": "cloud",
        "AWS_PROFILE": "mine",
        "AWS_ACCESS_KEY_ID": "AKID",
        "AWS_SESSION_TOKEN": "",
        "NO_PROXY": "corp.example",
        "no_grpc_proxy": "corp.example",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("no_proxy", raising=False)
    return environment_now()


def environment_now():
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


def changes(user):
    now = environment_now()
    return {name: now.get(name) for name in {*user, *now} if user.get(name) != now.get(name)}


def test_activate_replaces_what_another_world_has_set(user):
    local, s3, cloud = params.load("local"), params.load("s3"), on_aws.world()
    exceptions = "corp.example,127.0.0.1,localhost"
    remote = {
        **dict.fromkeys(["no_proxy", "NO_PROXY", "no_grpc_proxy"], exceptions),
        "SPARK_CONNECT_MODE_ENABLED": "1",
    }
    for _ in range(2):
        params.activate(cloud)
        assert changes(user) == {**remote, "AWS_REGION": on_aws.REGION}
        params.activate(s3)
        inside = changes(user)
        assert inside["AWS_ACCESS_KEY_ID"] is inside["PGSERVICE"] is None
        assert inside["AWS_ENDPOINT_URL_S3"] == s3.lake.endpoint
        assert inside["AWS_PROFILE"] == "default" and "AWS_SHARED_CREDENTIALS_FILE" in inside
        params.activate(local)
        params.activate(local)
        assert changes(user) == {**remote, "PGSERVICE": None}


def test_an_activation_that_changes_nothing_touches_nothing(user, monkeypatch):
    """Another thread may be reading the environment."""
    params.activate(params.load("s3"))

    class Untouched(dict):
        def __setitem__(self, name, value):
            pytest.fail(f"{name} is set again")

    world = params.load("s3")
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", Untouched(os.environ))
        params.activate(world)


# --- settings that are passed to a client


def test_loopback_is_called_without_the_users_proxy(monkeypatch, answering):
    server = answering({"/x": (200, "here")})
    for name in ("http_proxy", "HTTP_PROXY", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert http.call("it", "GET", f"{server.url}/x").text == "here"
    assert http.session("http://h.example/x").trust_env


# --- sessions of Spark


class Session:
    """A session of Spark Connect, as far as its settings go."""

    def __init__(self, builder=SimpleNamespace(endpoint="127.0.0.1:1")):
        self.client = SimpleNamespace(
            _retry_policy={}, _execute_and_fetch=None, _builder=builder, config=lambda _: None
        )
        self.conf = SimpleNamespace(set=lambda *_: None, get=lambda _: "true")


def test_a_session_has_the_state_of_its_world():
    worlds = [params.load("local") for _ in range(2)]
    spark = [sessions._configure(Session(), world) for world in worlds]
    sibling = spark_sql._ansi_session(spark[0])
    assert spark_sql._ansi_session(spark[0]) is sibling is not spark[0]
    for session, world in zip(spark, worlds):
        assert world_of(session) is world and state_of(session) is world.state
    assert world_of(sibling) is worlds[0] and worlds[0].state is not worlds[1].state
    assert world_of(Session()) is None


def test_a_session_that_is_collected_in_a_thread_of_the_client_blocks_no_query():
    """In a process of its own: without the cure its later queries would wait forever."""
    code = """
from pyspark.sql.connect.client import SparkConnectClient, reattach
from workbench.spark.sessions import configure_client

client = SparkConnectClient("sc://127.0.0.1:1")
configure_client(client)
responses = reattach.ExecutePlanResponseReattachableIterator
responses._release_thread_pool.apply_async(client.close).get(20)
assert client.is_closed
responses._initialize_pool_if_necessary()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_query_gets_another_session_if_a_restarted_spark_rejects_its_own():
    """A late release of an interrupted query makes the new server reject that session's id."""
    spark = sessions._configure(Session(), params.load("local"))
    sibling = spark_sql._ansi_session(spark)

    def rejects(error):
        def get(name):
            raise error

        return SimpleNamespace(get=get)

    sibling.conf = rejects(RuntimeError("no such setting"))
    with pytest.raises(RuntimeError, match="no such setting"):
        spark_sql._ansi_session(spark)
    sibling.conf = rejects(
        RuntimeError("[INVALID_HANDLE.SESSION_NOT_FOUND] The handle is invalid.")
    )
    another = spark_sql._ansi_session(spark)
    assert spark_sql._ansi_session(spark) is another is not sibling
    assert world_of(another) is world_of(spark)


def test_a_world_keeps_no_session_that_nobody_else_has():
    world = params.load("local")
    address = id(sessions._configure(Session(), world))
    gc.collect()
    assert address not in map(id, sessions._worlds)
