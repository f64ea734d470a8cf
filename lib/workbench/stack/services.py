"""The services of the embedded stack, and how the Java ones among them are started.

Java is tuned for short, small workloads, and its logs are limited in size. process.py runs every
service by the same rules.
"""

import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import uuid
import zipfile
from pathlib import Path
from typing import Any, Sequence, Union

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
from . import artifacts, cds, databases
from .process import Service, data_dir, log_file, render_conf, run_command, temp_dir

# The key of the embedded S3 endpoint: its id, and the name of the secret
S3_KEY_ID, S3_KEY = "WORKBENCHLAKE0000000", "s3.key"
KAFKA_CLUSTER_ID = "d29ya2JlbmNoLWxha2VzYQ"
FORMATTED = ("meta.properties", "bootstrap.checkpoint")  # the files of Kafka's formatted storage
ON_DEMAND_SERVICES = ("apicurio", "mariadb")  # started by the notebooks that need them
# Connect plugins that are loaded only while a notebook needs them, {name: part of every class name}.
# These connectors can read and write any file.
OPTIONAL_PLUGINS = {"filestream": "FileStream"}
REGISTERED_SERVICES: list[str] = []  # services of other packages; they start on demand, too
# passwords of an instance
SECRETS = (
    "postgres.admin",
    "postgres.replication",
    "mysql.admin",
    "mysql.replication",
    "connect.admin",
)
# Maximum size of a Java service's log file in bytes. The databases' logs are small and not limited.
LOG_SIZE = 10 << 20
# JIT compilation. Over notebooks 11 to 13 the full compiler uses nearly half of the CPU time
# without benefit; services that handle 100,000 rows repeatedly run two to three times as fast with
# it. The code cache has the size of the full compiler's: at the default of quick, a fifth of it,
# Spark's code is evicted.
COMPILERS: dict[str, list[str]] = {
    "quick": ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"],
    "full": [],
}
# Avro allocates memory for strings, bytes and lists before it reads them, with the length that the
# message declares. So a malformed message can exhaust a JVM's memory. A message that declares more
# than these limits is rejected. The limit of items also bounds the time for items of zero bytes: a
# JVM needs a second for this number.
MAX_TEXT_BYTES, MAX_LIST_ITEMS = 32 << 20, 1 << 20
AVRO_LIMITS = [
    f"-Dorg.apache.avro.limits.string.maxLength={MAX_TEXT_BYTES}",
    f"-Dorg.apache.avro.limits.bytes.maxLength={MAX_TEXT_BYTES}",
    f"-Dorg.apache.avro.limits.collectionItems.maxLength={MAX_LIST_ITEMS}",
]


def java_options(compiler: str) -> list[str]:
    """Return the options of every Java service.

    The serial garbage collector halves the start-up time. The time zone is UTC, because local time can
    go back.
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
    """Return the options that make a Java service write and rotate its log, `log_file(name)`."""
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
    """Return the command line of a Java service.

    Args:
        world: world of the service.
        name: name of the service; its log has this name.
        heap: maximum heap, such as 512m.
        classpath: jars.
        main: main class.
        args: arguments of the main class.
        options: further options of Java.
    """
    general = java_options(world.stack.java_compiler)
    is_service = name in SERVICES
    sharing = cds.base_options()
    if is_service:
        has_agent = any(option.startswith("-javaagent:") for option in options)
        sharing = cds.options(temp_dir(name), general, classpath, can_write=not has_agent)
    return [
        str(artifacts.java_home() / "bin" / "java"),
        *general,
        *sharing,
        f"-Xmx{heap}",
        *options,
        *java_logging_options(name),
        "-cp",
        os.pathsep.join(map(str, classpath)),
        main,
        *map(str, args),
    ]


def _request(url: str, auth: Any = None, method: str = "GET") -> Any:
    return http.session(url).request(method, url, timeout=2, auth=auth, verify=tls.verify(url))


# --- Kafka and Kafka Connect


def _connect_ready(world: World) -> bool:
    """Return whether Connect knows its connectors.

    A worker that has not joined its group may respond that there are none (seen with 4.3.1). Only a
    worker in its group rejects the deletion of an unknown connector with 404.
    """
    url, auth = f"{world.connect.url}/connectors", world.connect.auth
    listing = _request(url, auth)
    if not listing.ok:
        return False
    unknown = uuid.uuid4()  # no user's connector has this name
    return bool(listing.json()) or _request(f"{url}/{unknown}", auth, "DELETE").status_code == 404


def _controller_port(world: World) -> int:
    return split_host_port(world.kafka.bootstrap)[1] + 1


def _kafka_command(world: World) -> list[str]:
    return _kafka_java(world, "kafka", "512m", "kafka.Kafka")


def _kafka_java(world: World, name: str, heap: str, main: str, *args: str) -> list[str]:
    """Return the command line of a Kafka class whose last argument is the configuration."""
    settings = render_conf(
        "kafka.properties",
        bootstrap=world.kafka.bootstrap,
        controller=f"127.0.0.1:{_controller_port(world)}",
        data=data_dir("kafka"),
    )
    return java_command(world, name, heap, artifacts.jars("kafka"), main, *args, settings)


def _initialize_kafka(world: World) -> None:
    """Format the storage, unless that has been done.

    Kafka's own tool formats the storage of the first instance, which takes seconds. Further
    instances copy the result; only the id of the folder differs.
    """
    folder, template = data_dir("kafka"), _kafka_template()
    properties, checkpoint = FORMATTED
    if (folder / properties).exists():
        return
    # A file may be empty after a crash of the machine.
    if all(path.exists() and path.stat().st_size for path in map(template.joinpath, FORMATTED)):
        shutil.copyfile(template / checkpoint, folder / checkpoint)
        text = (template / properties).read_text(encoding="utf-8")
        # Kafka's form of an id: 16 bytes in base64, without a leading "-" (the first bit is 0)
        identifier = base64.urlsafe_b64encode(bytes([ord(os.urandom(1)) & 127]) + os.urandom(15))
        text = re.sub(r"(?m)^(directory\.id=).*$", rf"\g<1>{identifier.decode()[:22]}", text)
        paths.write_private_file(folder / properties, text.encode())  # marks the folder as complete
        return
    arguments = ("format", "--ignore-formatted", "-t", KAFKA_CLUSTER_ID, "-c")
    main = "kafka.tools.StorageTool"
    command = _kafka_java(world, "kafka-format", "128m", main, *arguments)
    run_command(command, "Kafka could not format its storage")
    with contextlib.suppress(OSError):  # an instance does not need the template
        _save_kafka_template(folder, template)


def _save_kafka_template(folder: Path, template: Path) -> None:
    template.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=template.parent) as scratch:
        copy = Path(scratch) / "copy"
        copy.mkdir()
        for name in FORMATTED:
            shutil.copyfile(folder / name, copy / name)
        shutil.rmtree(template, ignore_errors=True)  # a damaged one
        copy.rename(template)


def _kafka_template() -> Path:
    """Return the folder with a formatted storage of this Kafka and these settings."""
    jars = "".join(a.sha256 for a in artifacts.locked_artifacts() if a.service == "kafka")
    settings = (artifacts.CONF_DIR / "kafka.properties").read_text(encoding="utf-8")
    digest = hashlib.sha256(f"{KAFKA_CLUSTER_ID}{jars}{settings}".encode()).hexdigest()[:16]
    return artifacts.LIB / "templates" / f"kafka-{digest}"


def _kafka_ready(world: World) -> bool:
    from confluent_kafka.admin import AdminClient

    settings: dict[str, Union[str, int, float, bool]] = {
        "bootstrap.servers": world.kafka.bootstrap,
        "log_level": 0,
        # Kafka is starting: reconnect at once, not after increasing delays.
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 20,
    }
    return bool(AdminClient(settings).list_topics(timeout=2).brokers)


def _user_plugins() -> list[str]:
    """Return the plugins that the user has put into var/plugins: one folder of jars for each."""
    return sorted(path.name for path in (paths.VAR_DIR / "plugins").glob("*") if path.is_dir())


def plugin_marker(name: str) -> Path:
    """Return the marker file of a plugin of OPTIONAL_PLUGINS.

    Connect loads the plugin if the file exists (see lifecycle.load_plugins).
    """
    return paths.state_dir() / "plugins" / name


def is_plugin_enabled(name: str) -> bool:
    """Return whether Connect loads a plugin of OPTIONAL_PLUGINS."""
    return plugin_marker(name).exists()


def _enabled_plugins() -> list[str]:
    return [name for name in OPTIONAL_PLUGINS if is_plugin_enabled(name)]


def _prepare_plugin_path() -> Path:
    """Create the worker's plugin.path and return it.

    Connect treats every folder below it as a plugin, so it contains nothing else.

    plugin.discovery=service_load finds only classes listed in a service file. Apicurio's jar has no
    such file (Debezium's jar has one), so one is created here. Kafka's `connect-plugin-path
    sync-manifests` would create the same, with a JVM of its own.
    """
    converter = data_dir("plugins/converter")
    folder = converter.parent
    for link in (converter / "lib", *folder.iterdir()):
        if link.is_symlink():
            link.unlink()
    (converter / "lib").symlink_to(artifacts.LIB / "converter")
    for name in ("debezium", *_enabled_plugins()):
        (folder / name).symlink_to(artifacts.LIB / name)
    for name in _user_plugins():
        (folder / f"own-{name}").symlink_to(paths.VAR_DIR / "plugins" / name)
    with zipfile.ZipFile(converter / "manifest.jar", "w") as jar:
        service_file = "META-INF/services/org.apache.kafka.connect.storage.Converter"
        jar.writestr(service_file, AVRO_CONVERTER + "\n")
    return folder


def _connect_command(world: World) -> list[str]:
    # Kafka's file sink creates the file, but not its folder.
    (paths.local_path(world.lake.landing) or paths.state_dir()).mkdir(parents=True, exist_ok=True)
    settings = render_conf(
        "connect.properties",
        bootstrap=world.kafka.bootstrap,
        port=split_host_port(world.connect.url)[1],
        plugins=_prepare_plugin_path(),
        # A user's plugin may have no service file. A scan of all classes of its jars takes seconds.
        discovery="hybrid_warn" if _user_plugins() else "service_load",
        secrets=secrets.secrets_dir(),
    )
    user = world.connect.user
    users = secrets.write_connect_users({user: world.connect.password.reveal()})
    login = render_conf("connect-login.conf", users=users, user=user)
    # The converters call the registry over HTTPS.
    truststore = artifacts.truststore_options(data_dir("connect"), [tls.certificate_files()[0]])
    # Most objects of a snapshot are short-lived: a large young generation is collected less often.
    return java_command(
        world,
        "connect",
        "768m",
        artifacts.jars("kafka"),
        "org.apache.kafka.connect.cli.ConnectDistributed",
        settings,
        options=[
            "-Xmn448m",
            *truststore,
            f"-Djava.security.auth.login.config={login}",
            *_jmx_options(world),
        ],
    )


def jmx_ports(world: World) -> tuple[int, ...]:
    """Return the port of Kafka Connect's JMX metrics; none if `connect.jmx_metrics` is false."""
    return (world.stack.port_base + 8,) if world.connect.jmx_metrics else ()


def _jmx_options(world: World) -> list[str]:
    """Return the option of the Java agent that serves JMX metrics to Connect's user, if any."""
    if not world.connect.jmx_metrics:
        return []
    salt, iterations = uuid.uuid4().hex, 100_000
    password = world.connect.password.reveal().encode()
    settings = render_conf(
        "jmx.yaml",
        user=json.dumps(world.connect.user),
        password_hash=hashlib.pbkdf2_hmac("sha256", password, salt.encode(), iterations).hex(),
        salt=salt,
        iterations=iterations,
    )
    (jar,), (port,) = artifacts.jars("jmx"), jmx_ports(world)
    return [f"-javaagent:{jar}=127.0.0.1:{port}:{settings}"]


# --- Apicurio Registry


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
    main = "io.quarkus.runner.GeneratedMain"
    return java_command(world, "apicurio", "384m", jars, main, options=[f"@{settings}"])


# --- the S3 endpoint


def _s3_env(world: World) -> dict[str, str]:
    """Return the environment for access to a lake in S3.

    The key of the embedded endpoint is created at the first call.
    """
    if world.uses_embedded_s3:
        secrets.ensure([S3_KEY])
        secrets.write_s3_credentials(S3_KEY_ID, secrets.read()[S3_KEY])
    return {name: value for name, value in params.lake_variables(world).items() if value}


def _lake_location(world: World) -> tuple[str, str]:
    return world.lake.endpoint, world.region


def _s3_command(world: World) -> list[str]:
    bucket = paths.parse_s3_uri(world.lake.root)[0]
    return [sys.executable, "-m", "workbench.stack.s3", world.lake.endpoint, bucket]


def optional_artifacts(world: World) -> list[str]:
    """Return the services of artifacts.OPTIONAL_SERVICES that this world needs."""
    return ["s3"] if world.stack.embedded and world.lake.endpoint else []


# --- Spark


def _spark_env(world: World) -> dict[str, str]:
    return {
        "JAVA_HOME": str(artifacts.java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SPARK_HOME": str(artifacts.package_dir("pyspark")),
        "PYSPARK_PYTHON": str(paths.service_path(Path(sys.executable))),
        # Spark needs it to start an executor. PySpark's wheel lacks the file that contains it.
        "SPARK_SCALA_VERSION": str(artifacts.versions()["scala"]),
        # of the Java that assembles the command line of Spark
        "SPARK_LAUNCHER_OPTS": " ".join([*java_options("quick"), *cds.base_options()]),
        **_s3_env(world),
    }


def spark_jars() -> list[Path]:
    """Return the jars of PySpark."""
    return sorted((artifacts.package_dir("pyspark") / "jars").glob("*.jar"))


def _spark_settings(world: World) -> dict[str, object]:
    """Return the world's values that the Spark server's configuration depends on (spark.server)."""
    return {
        "spark": world.spark.model_dump(),
        "tables": world.lake.tables,
        "java_compiler": world.stack.java_compiler,
        "endpoint": world.lake.endpoint,
        "region": world.region,
        "versions": artifacts.versions(),
    }


def _spark_command(world: World) -> list[str]:
    settings = json.dumps(_spark_settings(world))
    return [sys.executable, "-m", "workbench.spark.server", settings]


def _spark_ready(world: World) -> bool:
    import grpc

    # The default delay between two attempts is a second.
    options = [(f"grpc.{kind}_reconnect_backoff_ms", 20) for kind in ("initial", "min", "max")]
    options.append(("grpc.enable_http_proxy", 0))
    host, port = split_host_port(world.spark.url)
    with grpc.insecure_channel(f"{host}:{port}", options=options) as channel:
        grpc.channel_ready_future(channel).result(timeout=5)
    return True


SERVICES: dict[str, Service] = {
    service.name: service
    for service in (
        Service(
            "postgres",
            lambda w: f"{w.postgres.host}:{w.postgres.port}",
            databases.postgres_command,
            databases.postgres_ready,
            initialize=databases.initialize_postgres,
            # PostgreSQL's fast shutdown: SIGTERM would wait until every client has disconnected
            stop_signal=signal.SIGINT,
        ),
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
            _connect_ready,
            writes_own_log=True,
            depends_on=("postgres", "kafka"),
            extra_ports=jmx_ports,
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
            lambda w: _request(w.registry.url + REGISTRY_V2 + "/system/info").ok,
            writes_own_log=True,
            config_fingerprint=lambda w: (w.registry.url, w.stack.java_compiler),
        ),
        Service(
            "s3",
            lambda w: w.lake.endpoint,
            _s3_command,
            # The endpoint accepts only signed requests: a rejection shows that it is running.
            lambda w: _request(w.lake.endpoint).status_code == 403,
            env=lambda w: {"INITIAL_NO_AUTH_ACTION_COUNT": "0"},  # read when moto is imported
            initialize=_s3_env,
            config_fingerprint=lambda w: (w.lake.endpoint, w.lake.root),
            startup_notice="it holds the lake in memory: the lake is empty now",
        ),
        Service(
            "spark",
            lambda w: w.spark.url,
            _spark_command,
            _spark_ready,
            writes_own_log=True,
            env=_spark_env,
            config_fingerprint=_spark_settings,
            depends_on=("s3",),
        ),
    )
}


def register(*services: Service) -> None:
    """Add services of another package, which imports `stack`.

    The names and the ports differ from those of the other services.
    """
    SERVICES.update({service.name: service for service in services})
    REGISTERED_SERVICES.extend(service.name for service in services)


def unregistered(name: str) -> Service:
    """Return a service of a package that this process has not imported; it can only be stopped."""
    return Service(name, lambda world: "", lambda world: [], lambda world: False)


def get_service(name: str) -> Service:
    """Return the service of this name; raise StackError with a suggestion for an unknown name."""
    if name not in SERVICES:
        raise StackError(f"there is no service '{name}'", expected=did_you_mean(name, SERVICES))
    return SERVICES[name]


def dependencies(name: str) -> set[str]:
    """Return the direct and indirect dependencies of a service."""
    direct = get_service(name).depends_on
    return {*direct, *(each for dependency in direct for each in dependencies(dependency))}


def default_services(world: World) -> list[str]:
    """Return the services that this world's stack starts and manages, without ON_DEMAND_SERVICES."""
    names = ["postgres", "kafka", "connect"]
    if world.uses_embedded_s3:
        names.append("s3")
    return list(filter(world.manages, [*names, "spark"]))
