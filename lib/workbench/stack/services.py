"""The services of the embedded stack, one row each, and how those that are Javas are started: tuned
for short, small work, with a log that does not grow for ever. process.py runs any of them by the
same rules.
"""

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Sequence

from ..base import StackError, World, environment, paths, secrets, split_host_port, tls
from . import artifacts, databases, storefront
from .process import Service, data_dir, log_file, render_conf

S3_KEY_ID, S3_KEY = (
    "WORKBENCHLAKE0000000",
    "s3.key",
)  # of the key to our S3 endpoint: its id, the name of the secret
ON_DEMAND_SERVICES = (
    "apicurio",
    "mariadb",
)  # services that are started when a notebook asks for them
# of Connect: its connectors read and write any file, so it is loaded only while a notebook needs it
OPTIONAL_PLUGINS = {
    "filestream": "FileStream"
}  # {plugin: what every class of its connectors holds}
SECRETS = (
    "postgres.admin",
    "postgres.replication",
    "mysql.admin",
    "mysql.replication",
    "connect.admin",
)  # an instance's passwords
LOG_SIZE = 10 << 20  # bytes, of a Java's log. The databases' have little in them, and no cap
# How Java compiles. Over notebooks 11 to 13 its full compiler takes nearly half of all the
# processor's time and pays nothing back; services that handle 100,000 rows again and again work two
# or three times as fast with it. The room for compiled code is what the full one has: with a fifth
# of it, quick's default, Spark's falls out again.
COMPILERS = {"quick": ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"], "full": []}
# Avro makes the room for a text, for bytes or for a list before it reads them, as much as the
# message says: one that lies ends a Java for want of memory, again and again. One that says more
# than this is malformed. Items that take no bytes are bounded by nothing else in a Java that is not
# ours, which takes a second for as many as these.
AVRO_LIMITS = [
    f"-Dorg.apache.avro.limits.{of}.maxLength={limit}"
    for of, limit in (("string", 32 << 20), ("bytes", 32 << 20), ("collectionItems", 1 << 20))
]
AVRO_CONVERTER, REGISTRY_V2 = (
    "io.apicurio.registry.utils.converter.AvroConverter",
    "/apis/registry/v2",
)


def glue_registries(world: World) -> dict[str, str]:
    """{side of a message: Glue's registry of its schemas}, of a deployment (deploy/2-lake.yaml)."""
    return {side: f"{world.stack.deployment}-{side}s" for side in ("key", "value")}


def java_options(compiler: str) -> list[str]:
    """Options of every Java: the cheapest collector starts in half the time. UTC, as no clock here
    goes back.
    """
    return [
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        "-Djava.net.preferIPv4Stack=true",
        "-Duser.timezone=UTC",
        *AVRO_LIMITS,
        *COMPILERS[compiler],
    ]


def java_logging_options(name: str, level: str = "info") -> list[str]:
    """Options by which a Java writes its log, size and all, into `log_file(name)`."""
    return [
        f"-Dlog4j2.configurationFile={artifacts.CONF_DIR / 'log4j2.properties'}",
        f"-Dworkbench.log={log_file(name)}",
        f"-Dworkbench.level={level}",
        f"-Dworkbench.log_size={LOG_SIZE}",
    ]


def java_command(
    world: World,
    name: str,
    heap: str,
    classpath: Sequence[Path],
    main: str,
    *args: object,
    options: Sequence[str] = (),
) -> list[str]:
    """The command line of a service that is a Java program: its heap, class path, main class and
    arguments.
    """
    return [
        str(artifacts.java_home() / "bin" / "java"),
        *java_options(world.stack.java_compiler),
        f"-Xmx{heap}",
        *options,
        *java_logging_options(name),
        "-cp",
        os.pathsep.join(map(str, classpath)),
        main,
        *map(str, args),
    ]


# --- Kafka and Kafka Connect
# -----------------------------------------------------------------------------------------


def _controller_port(world: World) -> int:
    return split_host_port(world.kafka.bootstrap)[1] + 1


def _kafka_properties(world: World) -> Path:
    return render_conf(
        "kafka.properties",
        bootstrap=world.kafka.bootstrap,
        controller=f"127.0.0.1:{_controller_port(world)}",
        data=data_dir("kafka"),
    )


def _kafka_command(world: World) -> list[str]:
    return java_command(
        world, "kafka", "512m", artifacts.jars("kafka"), "kafka.Kafka", _kafka_properties(world)
    )


def _initialize_kafka(world: World) -> None:
    if (data_dir("kafka") / "meta.properties").exists():
        return
    command = java_command(
        world,
        "kafka-format",
        "128m",
        artifacts.jars("kafka"),
        "kafka.tools.StorageTool",
        "format",
        "--ignore-formatted",
        "-t",
        "d29ya2JlbmNoLWxha2VzYQ",
        "-c",
        _kafka_properties(world),
    )
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise StackError(
            "Kafka could not format its storage",
            location=(done.stdout + done.stderr).strip()[-500:],
        )


def _kafka_ready(world: World) -> bool:
    from confluent_kafka.admin import AdminClient

    # asked while it starts: tried again at once, not after twice as long each time
    admin = AdminClient(
        {
            "bootstrap.servers": world.kafka.bootstrap,
            "log_level": 0,
            "reconnect.backoff.max.ms": 100,
        }
    )
    return bool(admin.list_topics(timeout=2).brokers)


def _user_plugins() -> list[str]:
    """The plugins that a person has put into var/plugins: a folder of jars each."""
    return sorted(path.name for path in (paths.VAR_DIR / "plugins").glob("*") if path.is_dir())


def plugin_marker(name: str) -> Path:
    """Return the file whose existence says that Connect loads a plugin of OPTIONAL_PLUGINS (see
    verbs.load_plugins).
    """
    return paths.state_dir() / "plugins" / name


def _enabled_plugins() -> list[str]:
    return [name for name in OPTIONAL_PLUGINS if plugin_marker(name).exists()]


def _prepare_plugin_path() -> Path:
    """Make the worker's plugin.path: Connect takes every folder below it for a plugin, so it holds
    nothing else.

    plugin.discovery=service_load finds what a service file names, and Apicurio's jar has none
    (Debezium's has). The one that is made here is what Kafka's `connect-plugin-path sync-manifests`
    would make, without starting a Java for it.
    """
    converter = data_dir("plugins/converter")
    for link in converter.parent.iterdir():
        if link.is_symlink():
            link.unlink()
    links = {
        converter.parent / name: artifacts.LIB / name for name in ("debezium", *_enabled_plugins())
    }
    links[converter / "lib"] = artifacts.LIB / "converter"
    links |= {
        converter.parent / f"own-{name}": paths.VAR_DIR / "plugins" / name
        for name in _user_plugins()
    }
    for link, target in links.items():
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    with zipfile.ZipFile(converter / "manifest.jar", "w") as jar:
        jar.writestr(
            "META-INF/services/org.apache.kafka.connect.storage.Converter", AVRO_CONVERTER + "\n"
        )
    return converter.parent


def _connect_command(world: World) -> list[str]:
    # for Kafka's sink to a file, which makes the file and no folder
    (paths.local_path(world.lake.landing) or paths.state_dir()).mkdir(parents=True, exist_ok=True)
    # not every plugin has a service file; to look at all classes of its jars takes seconds
    settings = render_conf(
        "connect.properties",
        bootstrap=world.kafka.bootstrap,
        port=split_host_port(world.connect.url)[1],
        plugins=_prepare_plugin_path(),
        discovery="hybrid_warn" if _user_plugins() else "service_load",
        secrets=secrets.secrets_dir(),
    )
    users = secrets.write_connect_users({world.connect.user: world.connect.password.reveal()})
    login = render_conf("connect-login.conf", users=users, user=world.connect.user)
    trust = artifacts.truststore_options(
        data_dir("connect"), [tls.certificate_files()[0]]
    )  # the converters ask the registry
    # what a snapshot allocates is garbage a moment later: the more of it fits, the less often it is
    # collected
    return java_command(
        world,
        "connect",
        "768m",
        artifacts.jars("kafka"),
        "org.apache.kafka.connect.cli.ConnectDistributed",
        settings,
        options=["-Xmn448m", *trust, f"-Djava.security.auth.login.config={login}"],
    )


def _get(url: str, auth: Any = None) -> Any:
    import requests

    return requests.get(url, timeout=2, auth=auth, verify=tls.verify(url))


# --- Apicurio Registry
# -----------------------------------------------------------------------------------------------


def _apicurio_command(world: World) -> list[str]:
    home = artifacts.LIB / "apicurio-registry-app"
    jars = [next(home.glob("*-runner.jar")), *sorted((home / "lib").rglob("*.jar"))]
    host, port = split_host_port(world.registry.url)
    certificate, key = tls.certificate_files()
    settings = render_conf(
        "apicurio.options",
        host=host,
        port=port,
        data=data_dir("apicurio"),
        log=log_file("apicurio"),
        log_size=LOG_SIZE,
        certificate=certificate,
        key=key,
    )
    return java_command(
        world, "apicurio", "384m", jars, "io.quarkus.runner.GeneratedMain", options=[f"@{settings}"]
    )


# --- An S3 endpoint
# --------------------------------------------------------------------------------------------------


def _s3_env(world: World) -> dict[str, str]:
    """What reaches the lake in S3 (see environment.s3_environment). Where the endpoint is ours, its key is
    made and kept.
    """
    if world.uses_embedded_s3:
        secrets.ensure([S3_KEY])
        secrets.write_s3_credentials(S3_KEY_ID, secrets.read()[S3_KEY])
    found = environment.s3_environment(
        world.lake.endpoint,
        world.region,
        secrets.s3_credentials_file() if world.uses_embedded_s3 else None,
    )
    return {name: value for name, value in found.items() if value}


def _lake_location(world: World) -> tuple[str, str]:
    return world.lake.endpoint, world.region


def _s3_command(world: World) -> list[str]:
    return [
        sys.executable,
        "-m",
        "workbench.stack.s3",
        world.lake.endpoint,
        paths.parse_s3_uri(world.lake.root)[0],
    ]


# --- Spark
# -----------------------------------------------------------------------------------------------------------


def _spark_env(world: World) -> dict[str, str]:
    return {
        "JAVA_HOME": str(artifacts.java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SPARK_HOME": str(artifacts.package_dir("pyspark")),
        "PYSPARK_PYTHON": str(paths.service_path(Path(sys.executable))),
        # a worker asks for it before it starts an executor, and PySpark's wheel lacks the file that
        # tells it
        "SPARK_SCALA_VERSION": str(artifacts.versions()["scala"]),
        "SPARK_WORKER_DIR": str(data_dir("spark_work")),
        **_s3_env(world),
    }


def optional_artifacts(world: World) -> list[str]:
    """What of artifacts.OPTIONAL_SERVICES this world's services need."""
    return ["s3"] if world.stack.embedded and world.lake.endpoint else []


def _spark_settings(world: World) -> dict[str, object]:
    """What of a world the server makes its configuration of (see spark.server), and the versions
    that it runs with.
    """
    return {
        "spark": world.spark.model_dump(),
        "tables": world.lake.tables,
        "java_compiler": world.stack.java_compiler,
        "endpoint": world.lake.endpoint,
        "region": world.region,
        "versions": artifacts.versions(),
    }


def _spark_command(world: World) -> list[str]:
    return [sys.executable, "-m", "workbench.spark.server", json.dumps(_spark_settings(world))]


def _spark_ready(world: World) -> bool:
    import grpc

    host, port = split_host_port(world.spark.url)
    soon = [
        (f"grpc.{which}_reconnect_backoff_ms", 100) for which in ("initial", "min", "max")
    ]  # default: a second
    with grpc.insecure_channel(f"{host}:{port}", options=soon) as channel:
        return grpc.channel_ready_future(channel).result(timeout=5) is None


def _standalone_command(
    world: World, name: str, number: int, main: str, *args: object
) -> list[str]:
    redirecting, pages = _web_ports(world, number)
    settings = render_conf(
        "standalone.options", keystore=tls.keystore(), keystore_password=tls.KEYSTORE_PASSWORD
    )
    return java_command(
        world,
        name,
        "256m",
        [artifacts.package_dir("pyspark") / "jars" / "*"],
        f"org.apache.spark.deploy.{main}",
        "--host",
        "127.0.0.1",
        "--webui-port",
        redirecting,
        *args,
        options=[f"@{settings}", f"-Dspark.ssl.standalone.port={pages}"],
    )


def _web_ports(world: World, number: int) -> tuple[int, int]:
    """The web ports of the master (0) or of a worker: of HTTP, which redirects, and of HTTPS, which
    has the pages.
    """
    return world.stack.port_base + 10 + number, world.stack.port_base + 13 + number


def _web_status(world: World, number: int = 0) -> dict[str, Any]:
    """What the master, or a worker, tells of itself at its web port."""
    return _get(f"https://127.0.0.1:{_web_ports(world, number)[1]}/json/").json()


def _worker_service(number: int) -> Service:
    name = f"spark_worker_{number}"

    def command(world: World) -> list[str]:
        return _standalone_command(
            world,
            name,
            number,
            "worker.Worker",
            "--cores",
            1,
            "--memory",
            world.spark.executor_memory,
            world.spark.master,
        )

    def ready(world: World) -> bool:
        """Whether the master counts it as alive; one that came back has a new id."""
        alive = [w["id"] for w in _web_status(world)["workers"] if w["state"] == "ALIVE"]
        return _web_status(world, number)["id"] in alive

    return Service(
        name,
        lambda w: f"127.0.0.1:{_web_ports(w, number)[1]}",
        command,
        ready,
        writes_own_log=True,
        depends_on=("spark_master",),
        env=_spark_env,
        extra_ports=lambda w: _web_ports(w, number)[:1],
        config_fingerprint=lambda w: (
            w.spark.master,
            w.spark.executor_memory,
            w.stack.java_compiler,
            *_lake_location(w),
        ),
    )


SERVICES: dict[str, Service] = {
    s.name: s
    for s in (
        Service(
            "postgres",
            lambda w: f"{w.postgres.host}:{w.postgres.port}",
            databases.postgres_command,
            databases.postgres_ready,
            initialize=databases.initialize_postgres,
            stop_signal=signal.SIGINT,
        ),  # "fast": TERM would wait until every client has gone
        Service(
            "mariadb",
            lambda w: f"{w.mysql.host}:{w.mysql.port}",
            databases.mariadb_command,
            databases.mariadb_ready,
            initialize=databases.initialize_mariadb,
        ),
        Service(
            "kafka",
            lambda w: w.kafka.bootstrap.split(",")[0],
            _kafka_command,
            _kafka_ready,
            writes_own_log=True,
            initialize=_initialize_kafka,
            extra_ports=lambda w: (_controller_port(w),),
            config_fingerprint=lambda w: (w.kafka.bootstrap, w.stack.java_compiler),
        ),
        Service(
            "connect",
            lambda w: w.connect.url,
            _connect_command,
            lambda w: _get(w.connect.url + "/connectors", w.connect.auth).ok,
            writes_own_log=True,
            depends_on=("postgres", "kafka"),
            config_fingerprint=lambda w: (
                w.kafka.bootstrap,
                w.connect.user,
                w.stack.java_compiler,
                *_enabled_plugins(),
                *_user_plugins(),
            ),
        ),
        Service(
            "apicurio",
            lambda w: w.registry.url,
            _apicurio_command,
            lambda w: _get(w.registry.url + REGISTRY_V2 + "/system/info").ok,
            writes_own_log=True,
            config_fingerprint=lambda w: (w.registry.url, w.stack.java_compiler),
        ),
        # only what bears a signature is answered: a refusal says that it is there
        Service(
            "s3",
            lambda w: w.lake.endpoint,
            _s3_command,
            lambda w: _get(w.lake.endpoint).status_code == 403,
            initialize=_s3_env,
            config_fingerprint=lambda w: (w.lake.endpoint, w.lake.root),
            startup_notice="it holds the lake in memory: the lake is empty now",
        ),
        Service(
            "spark_master",
            lambda w: w.spark.master,
            lambda w: _standalone_command(
                w, "spark_master", 0, "master.Master", "--port", split_host_port(w.spark.master)[1]
            ),
            lambda w: _web_status(w)["status"] == "ALIVE",
            writes_own_log=True,
            env=_spark_env,
            extra_ports=lambda w: _web_ports(w, 0),
            config_fingerprint=lambda w: (w.stack.java_compiler, *_lake_location(w)),
        ),
        _worker_service(1),
        _worker_service(2),
        Service(
            "spark",
            lambda w: w.spark.url,
            _spark_command,
            _spark_ready,
            writes_own_log=True,
            env=_spark_env,
            config_fingerprint=_spark_settings,
            depends_on=("s3", "spark_master", "spark_worker_1", "spark_worker_2"),
        ),
        *storefront.SERVICES,
    )
}


def default_services(world: World) -> list[str]:
    """Names of the services that this world's stack starts; WHEN_ASKED only when a notebook asks
    for them.
    """
    cluster = [f"spark_worker_{n + 1}" for n in range(world.spark.workers)]
    own_s3 = ["s3"] if world.uses_embedded_s3 else []
    return [
        "postgres",
        "kafka",
        "connect",
        *own_s3,
        *(["spark_master", *cluster] if cluster else []),
        "spark",
    ]
