"""The services of the embedded stack: one class for each, and how the Java ones are started.

Java is tuned for short, small workloads, and its logs are limited in size. process.py runs every
service by the same rules.
"""

import json
import os
import shutil
import socket
import sys
import uuid
import zipfile
from pathlib import Path
from typing import Any, Sequence

import requests

from ..base import (
    StackError,
    World,
    did_you_mean,
    http,
    params,
    paths,
    secrets,
    split_host_port,
    tls,
)
from ..base.registries import AVRO_CONVERTER, REGISTRY_V2
from . import artifacts, cds
from .databases import MariaDb, Postgres
from .process import Service, data_dir, log_file, render_conf, run_command, temp_dir

# The key of the embedded S3 endpoint: its id, and the name of the secret
S3_KEY_ID, S3_KEY = "WORKBENCHLAKE0000000", "s3.key"
KAFKA_CLUSTER_ID = "d29ya2JlbmNoLWxha2VzYQ"
DEFAULT_SERVICES = ("postgres", "kafka", "connect", "s3", "spark")
ON_DEMAND_SERVICES = ("apicurio", "mariadb")  # started by the notebooks that need them
# passwords and keys of an instance
SECRETS = (
    "postgres.admin",
    "postgres.replication",
    "mysql.admin",
    "mysql.replication",
    "connect.admin",
    S3_KEY,
)
# Maximum size of a Java service's log file in bytes. The databases' logs are small and not limited.
LOG_SIZE = 10 << 20
# Avro allocates memory for strings, bytes and lists before it reads them, with the length that the
# message declares. So a malformed message can exhaust a JVM's memory. A message that declares more
# than these limits is rejected. The limit of items also bounds the time for items of zero bytes: a
# JVM needs a second for this number.
MAX_TEXT_BYTES, MAX_LIST_ITEMS = 32 << 20, 1 << 20
# What a client of HTTP/2 sends first: the preface, and an empty SETTINGS frame (RFC 9113, section 3.4).
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
# The options of every Java service. The serial garbage collector halves the start-up time. The time zone is
# UTC, because local time can go back. JIT compilation: over notebooks 11 to 13 the full compiler uses nearly
# half of the CPU time without benefit; services that handle 100,000 rows repeatedly run two to three times as
# fast with it (-XX:TieredStopAtLevel=4). The code cache has the size of the full compiler's: at the default of
# the quick one, a fifth of it, Spark's code is evicted.
JAVA_OPTIONS = f"""
-XX:+UseSerialGC
-XX:-UsePerfData
-Djava.net.preferIPv4Stack=true
-Duser.timezone=UTC
-Dorg.apache.avro.limits.string.maxLength={MAX_TEXT_BYTES}
-Dorg.apache.avro.limits.bytes.maxLength={MAX_TEXT_BYTES}
-Dorg.apache.avro.limits.collectionItems.maxLength={MAX_LIST_ITEMS}
-XX:ReservedCodeCacheSize=240m
-XX:TieredStopAtLevel=1
{os.environ.get("WORKBENCH_JAVA_OPTIONS", "")}
""".split()


def java_logging_options(name: str, level: str = "info") -> list[str]:
    """Return the options that make a Java service write and rotate its log, `log_file(name)`."""
    return [
        f"-Dlog4j2.configurationFile={artifacts.CONF_DIR / 'log4j2.properties'}",
        f"-Dworkbench.log={log_file(name)}",
        f"-Dworkbench.level={level}",
        f"-Dworkbench.log_size={LOG_SIZE}",
    ]


class JavaService(Service):
    """A service whose process is a Java.

    Attributes:
        heap: maximum heap, such as 512m.
        main: main class.
    """

    writes_own_log = True
    heap: str
    main: str

    def java(
        self,
        class_path: Sequence[Path],
        *arguments: object,
        options: Sequence[str] = (),
    ) -> list[str]:
        """Return the command line.

        Args:
            class_path: jars.
            arguments: arguments of the main class.
            options: further options of Java.
        """
        return [
            str(artifacts.java_home() / "bin" / "java"),
            *JAVA_OPTIONS,
            *cds.options(temp_dir(self.name), JAVA_OPTIONS, class_path),
            f"-Xmx{self.heap}",
            *options,
            *java_logging_options(self.name),
            "-cp",
            os.pathsep.join(map(str, class_path)),
            self.main,
            *map(str, arguments),
        ]


def _request(url: str, auth: Any = None, method: str = "GET") -> requests.Response:
    return http.session(url).request(method, url, timeout=2, auth=auth, verify=tls.verify(url))


class Kafka(JavaService):
    """Kafka: broker and controller in one process."""

    name, heap, main = "kafka", "512m", "kafka.Kafka"

    def address(self, world: World) -> str:
        return world.kafka.bootstrap.split(",")[0]

    def ports(self, world: World) -> tuple[int, ...]:
        """Return the ports of the broker and of the controller."""
        port = split_host_port(self.address(world))[1]
        return port, port + 1

    def settings(self, world: World) -> object:
        return world.kafka.bootstrap

    def initialize(self, world: World) -> None:
        """Format the storage, unless that has been done."""
        if (data_dir("kafka") / "meta.properties").exists():
            return
        class_path = os.pathsep.join(map(str, artifacts.jars("kafka")))
        java = [artifacts.java_home() / "bin" / "java", *JAVA_OPTIONS, "-cp", class_path]
        arguments = ["format", "--ignore-formatted", "-t", KAFKA_CLUSTER_ID, "-c"]
        command = [*java, "kafka.tools.StorageTool", *arguments, self._conf(world)]
        run_command([*map(str, command)], "Kafka could not format its storage")

    def _conf(self, world: World) -> Path:
        return render_conf(
            self.name,
            "kafka.properties",
            bootstrap=world.kafka.bootstrap,
            controller=f"127.0.0.1:{self.ports(world)[1]}",
            data=data_dir("kafka"),
        )

    def command(self, world: World) -> list[str]:
        return self.java(artifacts.jars("kafka"), self._conf(world))

    def ready(self, world: World) -> bool:
        """Return whether the broker lists topics."""
        from confluent_kafka.admin import AdminClient

        settings: dict[str, Any] = {
            "bootstrap.servers": world.kafka.bootstrap,
            "log_level": 0,
            # Kafka is starting: reconnect at once, not after increasing delays.
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 20,
        }
        return bool(AdminClient(settings).list_topics(timeout=2).brokers)


class Connect(JavaService):
    """A worker of Kafka Connect."""

    name, heap, main = "connect", "768m", "org.apache.kafka.connect.cli.ConnectDistributed"
    depends_on = ("postgres", "kafka")

    def address(self, world: World) -> str:
        return world.connect.url

    def settings(self, world: World) -> object:
        return world.kafka.bootstrap, world.connect.user, self._user_plugins()

    def _user_plugins(self) -> list[str]:
        """Return the plugins that the user has put into var/plugins: one folder of jars for each."""
        return sorted(path.name for path in (paths.VAR_DIR / "plugins").glob("*") if path.is_dir())

    def prepare_plugin_path(self) -> Path:
        """Create the worker's plugin.path and return it.

        Connect treats every folder below it as a plugin, so it contains nothing else.

        plugin.discovery=service_load finds only classes listed in a service file. Apicurio's jar has
        no such file (Debezium's jar has one), so one is created here. Kafka's `connect-plugin-path
        sync-manifests` would create the same, with a JVM of its own.
        """
        folder = data_dir(self.name) / "plugins"
        shutil.rmtree(folder, ignore_errors=True)
        converter = folder / "converter"
        converter.mkdir(parents=True)
        (converter / "lib").symlink_to(artifacts.LIB / "converter")
        for name in ("debezium", "filestream"):
            (folder / name).symlink_to(artifacts.LIB / name)
        for name in self._user_plugins():
            (folder / f"own-{name}").symlink_to(paths.VAR_DIR / "plugins" / name)
        with zipfile.ZipFile(converter / "manifest.jar", "w") as jar:
            service_file = "META-INF/services/org.apache.kafka.connect.storage.Converter"
            jar.writestr(service_file, AVRO_CONVERTER + "\n")
        return folder

    def command(self, world: World) -> list[str]:
        # Kafka's file sink creates the file, but not its folder.
        landing = paths.local_path(world.lake.landing) or paths.state_dir()
        landing.mkdir(parents=True, exist_ok=True)
        settings = render_conf(
            self.name,
            "connect.properties",
            bootstrap=world.kafka.bootstrap,
            port=split_host_port(self.address(world))[1],
            plugins=self.prepare_plugin_path(),
            # A user's plugin may have no service file. A scan of all classes of its jars takes seconds.
            discovery="hybrid_warn" if self._user_plugins() else "service_load",
            secrets=secrets.secrets_dir(),
        )
        user = world.connect.user
        users = secrets.write_connect_users({user: world.connect.password.reveal()})
        login = render_conf(self.name, "connect-login.conf", users=users, user=user)
        # The converters call the registry over HTTPS.
        truststore = artifacts.truststore_options(data_dir(self.name), tls.certificate_files()[0])
        # Most objects of a snapshot are short-lived: a large young generation is collected less often.
        options = ["-Xmn448m", *truststore, f"-Djava.security.auth.login.config={login}"]
        return self.java(artifacts.jars("kafka"), settings, options=options)

    def ready(self, world: World) -> bool:
        """Return whether Connect knows its connectors.

        A worker that has not joined its group may respond that there are none (seen with 4.3.1). Only
        a worker in its group rejects the deletion of an unknown connector with 404.
        """
        url, auth = f"{self.address(world)}/connectors", world.connect.auth
        listing = _request(url, auth)
        if not listing.ok:
            return False
        unknown = f"{url}/{uuid.uuid4()}"  # no user's connector has this name
        return bool(listing.json()) or _request(unknown, auth, "DELETE").status_code == 404


class Apicurio(JavaService):
    """The schema registry."""

    name, heap, main = "apicurio", "384m", "io.quarkus.runner.GeneratedMain"

    def address(self, world: World) -> str:
        return world.registry.url

    def settings(self, world: World) -> object:
        return world.registry.url

    def command(self, world: World) -> list[str]:
        home = artifacts.LIB / "apicurio-registry-app"
        jars = [next(home.glob("*-runner.jar")), *sorted((home / "lib").rglob("*.jar"))]
        host, port = split_host_port(self.address(world))
        certificate, key = tls.certificate_files()
        settings = render_conf(
            self.name,
            "apicurio.options",
            host=host,
            port=port,
            data=data_dir("apicurio"),
            log=log_file("apicurio"),
            log_size=LOG_SIZE,
            certificate=certificate,
            key=key,
        )
        return self.java(jars, options=[f"@{settings}"])

    def ready(self, world: World) -> bool:
        """Return whether the registry describes itself."""
        return _request(self.address(world) + REGISTRY_V2 + "/system/info").ok


class S3(Service):
    """The S3 endpoint."""

    name = "s3"

    def address(self, world: World) -> str:
        return world.lake.endpoint

    def settings(self, world: World) -> object:
        return world.lake.endpoint, world.lake.root

    def environment(self, world: World) -> dict[str, str]:
        return {"INITIAL_NO_AUTH_ACTION_COUNT": "0"}  # read when moto is imported

    def initialize(self, world: World) -> None:
        """Say what a start means."""
        print("s3 was started: it holds the lake in memory: the lake is empty now")

    def command(self, world: World) -> list[str]:
        bucket = paths.parse_s3_uri(world.lake.root)[0]
        return [sys.executable, "-m", "workbench.stack.s3", world.lake.endpoint, bucket]

    def ready(self, world: World) -> bool:
        """Return whether the endpoint rejects an unsigned request."""
        return _request(world.lake.endpoint).status_code == 403


def optional_artifacts(world: World) -> list[str]:
    """Return the services of artifacts.OPTIONAL_SERVICES that this world needs."""
    return ["s3"] if world.stack.embedded and world.lake.endpoint else []


class Spark(Service):
    """The Spark Connect server."""

    name = "spark"
    depends_on = ("s3",)
    writes_own_log = True

    def address(self, world: World) -> str:
        return world.spark.url

    def settings(self, world: World) -> object:
        """Return the values that the server's configuration depends on (see spark.server)."""
        return {
            "spark": world.spark.model_dump(),
            "tables": world.lake.tables,
            "endpoint": world.lake.endpoint,
            "region": world.region,
            "versions": artifacts.versions(),
        }

    def environment(self, world: World) -> dict[str, str]:
        return {
            "JAVA_HOME": str(artifacts.java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "SPARK_HOME": str(data_dir("spark_home")),
            "PYSPARK_PYTHON": str(paths.service_path(Path(sys.executable))),
            # Spark needs it to start an executor. PySpark's wheel lacks the file that contains it.
            "SPARK_SCALA_VERSION": str(artifacts.versions()["scala"]),
            # of the Java that assembles the command line of Spark
            "SPARK_LAUNCHER_OPTS": " ".join([*JAVA_OPTIONS, *cds.base_options()]),
            **{name: value for name, value in params.lake_variables(world).items() if value},
        }

    def initialize(self, world: World) -> None:
        """Create a new SPARK_HOME: workers of a cluster on this machine write their executors' logs into it."""
        home = data_dir("spark_home")
        shutil.rmtree(home)
        home.mkdir()
        for name in ("bin", "jars"):
            (home / name).symlink_to(artifacts.package_dir("pyspark") / name)

    def command(self, world: World) -> list[str]:
        return [sys.executable, "-m", "workbench.spark.server", json.dumps(self.settings(world))]

    def ready(self, world: World) -> bool:
        """Return whether the server answers the beginning of an HTTP/2 connection.

        A gRPC client takes 0.2 seconds to close its channel, and each `spark.session` asks.
        """
        with socket.create_connection(
            split_host_port(self.address(world)), timeout=5
        ) as connection:
            connection.sendall(HTTP2_PREFACE)
            return connection.recv(9)[3:4] == b"\4"  # the type of a SETTINGS frame


SERVICES: dict[str, Service] = {}


def register(*services: Service) -> None:
    """Add services, also of another package, which imports `stack`. Names and ports are unique."""
    SERVICES.update({service.name: service for service in services})


register(Postgres(), MariaDb(), Kafka(), Connect(), Apicurio(), S3(), Spark())


def get_service(name: str) -> Service:
    """Return the service of this name; raise StackError with a suggestion for an unknown name."""
    if name not in SERVICES:
        raise StackError(f"there is no service '{name}'", expected=did_you_mean(name, SERVICES))
    return SERVICES[name]


def with_dependencies(world: World, names: Sequence[str]) -> list[str]:
    """Return those of these services that the world has, each after the services that it needs."""
    ordered: dict[str, None] = {}
    for name in names:
        service = get_service(name)
        if world.manages(name):
            ordered.update(dict.fromkeys([*with_dependencies(world, service.depends_on), name]))
    return list(ordered)
