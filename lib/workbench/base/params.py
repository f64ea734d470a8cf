"""Worlds: `load("local")` turns params/local.yaml into frozen models, strictly.

A world is an environment profile: one params file that describes all services and paths that a
walkthrough uses. Every file has the same keys; a file that says `extends: local` needs only those that
differ from params/local.yaml. Values may contain references.

  ${port:N}       the N-th port of this checkout's instance (port base + N),
  ${state}        the folder of this instance's service state and lake,
  ${root}         the folder of the checkout,
  ${deployment}   the file's stack.deployment: the name of its deployment on AWS,
  ${ssm:NAME}     a parameter of that deployment, requested from AWS at load time (see aws.py),
  ${secret:NAME}  a secret, resolved only when `.reveal()` is called (see secrets.py).
"""

import html
import os
import re
import typing
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, Mapping, Optional, Union

import yaml
from pydantic import BaseModel, Field, PrivateAttr, ValidationError
from pydantic.fields import FieldInfo

from . import aws, environment, paths, pidfiles, secrets, yaml_files
from .errors import ParamsError, did_you_mean, redact_credentials
from .paths import LOOPBACK_ADDRESS
from .secrets import Secret, s3_credentials_file
from .state import State

OWN_SERVERS_HINT = (
    "to use a server of your own, set managed: false beside its address; a database of your own is a source "
    "(docs/your_own.md)"
)
# {service of the stack: section of a world}, where the names differ
SECTION_OF_SERVICE = {"mariadb": "mysql", "apicurio": "registry", "s3": "lake"}
# the sources that a world has without an entry in `sources`; the name of each is its engine, too
BUILT_IN_SOURCES = ("postgres", "mariadb")
MAX_INTERVAL_S = 86_400
COPY_LINE_HINT = "copy the line from params/local.yaml and adapt it"


class ConfigModel(BaseModel, frozen=True, extra="forbid", strict=True, allow_inf_nan=False):
    """A section of a world, strictly typed.

    Unknown keys, and numbers that are infinite or none, are rejected. An int field rejects "5432", and
    a bool field rejects 1.
    """


class Stack(ConfigModel):
    """The services: embedded or external."""

    # True: `stack` starts the services. False: `stack` only checks that they can be reached.
    embedded: bool
    # On AWS: the prefix of the names of stacks, parameters, secrets, connectors and tags; else "".
    deployment: str = Field(
        pattern=r"^([a-z][a-z0-9-]{1,19})?$", description="2 to 20 small letters, digits and -"
    )
    port_base: int
    java_compiler: Literal["quick", "full"]  # see stack/services.py


class Service(ConfigModel):
    """A service that an embedded stack can start."""

    # False: the user runs it. An embedded stack neither starts nor stops it.
    managed: bool = True


class Server(Service):
    """A database server."""

    host: str
    port: int
    admin_user: str
    admin_password: Secret
    replication_user: str
    replication_password: Secret
    # "" lets the client choose. verify-full compares the host name with the certificate, which one
    # of ssl_ca (a PEM file) has signed, by default one of the system's.
    ssl: Literal["", "disable", "require", "verify-full"] = ""
    ssl_ca: str = ""


class Postgres(Server):
    """The source database."""

    database: str


class MySql(Server):
    """The second source database: MariaDB, or MySQL (Aurora), which has another Debezium plugin."""

    kind: Literal["mariadb", "mysql"]
    database: str = ""  # used by sources only; "" in a world's own section
    password_reference: str  # see Connect.password_reference


class Source(ConfigModel):
    """A source database of the user."""

    engine: Literal["postgres", "mariadb", "mysql"]
    host: str
    port: int
    database: str
    user: str
    password: Secret
    # the user of the connectors; by default `user`
    replication_user: str = ""
    replication_password: Optional[Secret] = None
    password_reference: str = (
        ""  # see Connect.password_reference; by default for the embedded Connect
    )
    ssl: Literal["", "disable", "require", "verify-full"] = ""
    ssl_ca: str = ""
    # True: on the server of the world, whose administrator `user` is. A capture grants what it needs.
    managed: bool = False


class Kafka(Service):
    """The Kafka cluster."""

    bootstrap: str
    # SASL_SSL: MSK with IAM authentication (see topic/kafka_iam.py)
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_SSL"]


class Connect(Service):
    """Kafka Connect (rest), or MSK Connect."""

    kind: Literal["rest", "msk"]
    url: str
    user: str  # of the REST API; "" if it requires no password
    password: Secret
    topic_prefix: str
    # The reference to a secret in a connector configuration. Only the Connect worker resolves it.
    password_reference: str
    # Whether the embedded worker serves its and Debezium's JMX metrics for Prometheus.
    jmx_metrics: bool = False

    @property
    def auth(self) -> Optional[tuple[str, bytes]]:
        """User and password of the REST API, None if it requires none."""
        return (self.user, self.password.reveal().encode()) if self.user else None


class Registry(Service):
    """The schema registry."""

    kind: Literal["apicurio", "glue"]
    url: str
    wire: Literal["apicurio", "apicurio_legacy8", "glue"]  # see topic/wire.py


class Lake(ConfigModel):
    """The lake's endpoint and folders, as file:, s3a: or s3: URIs."""

    # URL of an S3 service other than AWS, such as http://127.0.0.1:9000; "" for AWS, and for a
    # folder.
    endpoint: str
    root: str  # everything lies below it
    landing: str  # raw files written by the sink
    tables: str  # Hudi tables
    dead_letters: str
    checkpoints: str


class Spark(Service):
    """Spark, and its size."""

    # connect: Spark Connect; existing: the session that the kernel has already; classic: a session
    # in this process, for `master`; emr_serverless: Spark Connect on EMR Serverless.
    kind: Literal["connect", "existing", "classic", "emr_serverless"]
    url: str  # of Spark Connect, sc://…; on EMR Serverless the id of the application
    master: str  # local[2], spark://…, yarn
    # number of workers that the embedded stack starts for a spark:// master
    workers: int = Field(
        ge=0, le=2, description="0, 1 or 2; 0 for a cluster of your own, which has its workers"
    )
    driver_memory: str
    executor_memory: str
    parallelism: int


class Query(ConfigModel):
    """The query engine."""

    kind: Literal["spark", "athena"]


# a warning (amber), and an alarm (red); strict mode would reject YAML's list
Limits = Annotated[tuple[float, float], Field(strict=False)]


class Watch(ConfigModel):
    """Thresholds of `workbench watch`: a warning (amber), then an alarm (red)."""

    # between two observations
    interval_s: float = Field(
        10.0, gt=0, le=MAX_INTERVAL_S, description="seconds, above 0 and up to a day"
    )
    freshness_s: Limits = (10.0, 60.0)  # p95 from commit to visible, of ten minutes
    unread_s: Limits = (10.0, 60.0)  # age of the oldest message that is not in the lake
    retained_mib: Limits = (256.0, 1024.0)  # log that a slot retains
    disk_full_h: Limits = (24.0, 4.0)  # until the retained log fills the disk
    disk_free_mib: Limits = (2048.0, 512.0)
    stalled_s: float = 60.0  # slot whose position stands still while the log grows
    silent_s: float = 30.0  # source that changes, topic without messages
    small_files: int = 200  # base files below 1 MiB
    log_ratio: float = 1.0  # bytes of unmerged logs for each byte of base files
    # of notifications; "" for none. The password of the mail server is a secret.
    webhook: Optional[Secret] = None  # the URL of a webhook is a credential
    sns_topic: str = ""
    mail_to: str = ""
    mail_server: str = ""  # host:port
    mail_user: str = ""
    mail_password: Optional[Secret] = None


class Sections(ConfigModel):
    """All sections of one params file."""

    name: str
    description: str
    region: str
    stack: Stack
    postgres: Postgres
    mysql: MySql
    kafka: Kafka
    connect: Connect
    registry: Registry
    lake: Lake
    spark: Spark
    query: Query
    # {name: source}; the name is that of the source in commands and secrets
    sources: dict[str, Source] = Field(default_factory=dict)
    watch: Watch = Field(default_factory=Watch)
    file: Path = Path()  # the path of the file; not a key


class World(Sections):
    """An environment profile: the sections of one params file, and what is open of it."""

    _state: State = PrivateAttr(default_factory=State)
    _base: Optional["World"] = PrivateAttr(None)

    @property
    def state(self) -> State:
        """The clients, sessions and caches of this world; `close()` closes all of them."""
        return self._state

    def __hash__(self) -> int:
        """Return the hash of a few fields, because `sources` is a dict."""
        return hash((self.name, self.file, self.postgres, self.mysql))

    def __copy__(self) -> "World":
        """Return a copy with a state of its own."""
        copy = super().__copy__()
        copy._state = State()
        return copy

    def manages(self, service: str) -> bool:
        """Return whether the embedded stack starts and stops a service.

        Args:
            service: name of the service, as in `workbench status`.
        """
        name = SECTION_OF_SERVICE.get(service, service.partition("_")[0])
        return self.stack.embedded and getattr(getattr(self, name, None), "managed", True)

    @property
    def source_names(self) -> list[str]:
        """The names of the sources: those of the stack, and those of the user."""
        return [*BUILT_IN_SOURCES, *self.sources]

    def source(self, name: str) -> "World":
        """Return a world whose source database is this source; it shares the state of this world.

        The functions of `source.postgres` (or `source.mariadb`) work on the database of the source.

        Args:
            name: one of `source_names`. "postgres" and "mariadb" are the servers of the stack.

        Raises:
            ParamsError: there is no such source, or it is managed and not on the world's server.
        """
        if name in BUILT_IN_SOURCES:
            return self.base
        if name not in self.sources:
            raise ParamsError(
                f"world {self.name!r} has no source {name!r}",
                location=f"{self.file}: sources",
                expected=did_you_mean(name, self.source_names),
                hint="docs/your_own.md shows how a source is added",
            )
        world = self.base.model_copy(update=_source_sections(self.base, self.sources[name]))
        world._state, world._base = self._state, self.base
        return world

    def source_engine(self, name: str) -> str:
        """Return the engine of a source: postgres, mariadb or mysql."""
        return self.sources[name].engine if name in self.sources else name

    def server(self, engine: str) -> Union[Postgres, MySql]:
        """Return the section with the database server of an engine."""
        return self.postgres if engine == "postgres" else self.mysql

    @property
    def base(self) -> "World":
        """The world that `source` was called on, whose services the stack starts; else this world."""
        return self._base or self

    @property
    def secrets(self) -> list[Secret]:
        """The secrets of this world and of its sources."""
        sections = [*(section for _, section in self.base), *self.sources.values()]
        models = [section for section in sections if isinstance(section, ConfigModel)]
        return [value for model in models for _, value in model if isinstance(value, Secret)]

    @property
    def uses_embedded_s3(self) -> bool:
        """Whether the lake is on an S3 endpoint that the embedded stack starts."""
        return self.stack.embedded and bool(LOOPBACK_ADDRESS.fullmatch(self.lake.endpoint))

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td><code>{key}</code></td><td><code>{html.escape(value)}</code></td></tr>"
            for key, value in flatten(self)
        )
        title = f"world <b>{html.escape(self.name)}</b>: {html.escape(self.description)}"
        return f"<details><summary>{title}</summary><table>{rows}</table></details>"


def _source_sections(world: World, source: Source) -> dict[str, ConfigModel]:
    """Return the sections of a world that describe a source.

    Raises:
        ParamsError: a managed source, whose roles a capture may change, is not on the world's server.
    """
    server = world.server(source.engine)
    if source.managed and (source.host, source.port) != (server.host, server.port):
        raise ParamsError(
            f"the source {source.host}:{source.port} is managed, and not on the server of its world",
            location=f"{world.file}: sources",
            expected=f"the address {server.host}:{server.port}, or no key `managed`",
        )
    login = source.replication_password or source.password
    reference = source.password_reference or f"${{directory:{secrets.secrets_dir()}:{login.name}}}"
    settings = {
        **source.model_dump(include={"host", "port", "database", "ssl", "ssl_ca", "managed"}),
        "admin_user": source.user,
        "admin_password": source.password,
        "replication_user": source.replication_user or source.user,
        "replication_password": login,
    }
    if source.engine == "postgres":
        connect = world.connect.model_copy(update={"password_reference": reference})
        return {"postgres": Postgres(**settings), "connect": connect}
    return {"mysql": MySql(kind=source.engine, password_reference=reference, **settings)}


def flatten(section: ConfigModel, prefix: str = "") -> list[tuple[str, str]]:
    """Return the values of a world by key path, without defaults.

    Args:
        section: a world, or a section of it.
        prefix: key path of the section, with a dot at its end.

    Returns:
        `[(key path, value as text), …]`; secrets, and credentials in URIs, are dots.
    """
    rows: list[tuple[str, str]] = []
    for name, value in section:
        path = f"{prefix}{name}"
        if name not in section.model_fields_set:  # a default
            continue
        if isinstance(value, ConfigModel):
            rows += flatten(value, f"{path}.")
        elif isinstance(value, dict):
            for key, item in value.items():
                rows += flatten(item, f"{path}.{key}.")
        else:
            rows.append((path, redact_credentials(str(value))))
    return rows


def world_names() -> list[str]:
    """Return the names of the worlds."""
    files = (paths.ROOT / "params").glob("*.yaml")
    return sorted(file.stem for file in files if file.stem != "versions")


def load(name: str) -> World:
    """Load params/<name>.yaml.

    Nothing outside the world changes (see `activate`). A value of `${ssm:…}` is requested with the user's
    own variables: those of an active world are away during the request, for all threads.

    Raises:
        ParamsError: no such world; an unknown, missing or mistyped key; a reference that does not
            exist.
    """
    return load_file(_params_file(name))


def _params_file(name: str) -> Path:
    if name not in world_names():
        raise ParamsError(
            f"there is no world {name!r}",
            location=f"params/{name}.yaml",
            expected=did_you_mean(str(name), world_names()),
            hint="choose one of these, or copy params/local.yaml to a new name and edit it",
        )
    return paths.ROOT / "params" / f"{name}.yaml"


def _deployment(raw: dict[str, Any]) -> tuple[str, str]:
    return str(raw.get("region") or ""), str(_stack_section(raw).get("deployment") or "")


def _stack_section(raw: dict[str, Any]) -> dict[str, Any]:
    section = raw.get("stack")
    return section if isinstance(section, dict) else {}


def _read_params(path: Path, extended: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the keys of a params file, with those of the file that it extends.

    Args:
        path: the file.
        extended: the files that extend it.

    Raises:
        ParamsError: see `_read_yaml`; or files extend each other.
    """
    raw = _read_yaml(path)
    base = raw.pop("extends", None)
    if base is None:
        return raw
    base_path = _params_file(str(base))
    if base_path in (path, *extended):
        raise ParamsError(
            f"the file extends itself: {base}",
            location=f"{paths.display_path(path)}: extends",
            expected="a world such as local",
        )
    inherited = _read_params(base_path, (path, *extended))
    return _merge({**inherited, "name": path.stem}, raw)


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a mapping with changes, which may be nested; an entry of `sources` is replaced as a whole."""
    merged = dict(base)
    for key, value in changes.items():
        is_section = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = {**base[key], **value} if is_section else value
    return merged


def _read_yaml(path: Path) -> dict[str, Any]:
    """Return the keys of a params file.

    Raises:
        ParamsError: the file is not YAML, is empty, or has a key twice.
    """
    file = paths.display_path(path)
    try:
        raw = yaml_files.read(path)
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml_files.PlainLoader)
        _reject_duplicate_keys(node, file)
    except yaml.YAMLError as e:
        raise ParamsError(
            "the params file is not YAML, or not UTF-8", location=f"{file}: {e}"
        ) from None
    if not isinstance(raw, dict):
        raise ParamsError(
            "the params file has no keys", location=file, expected="the keys of params/local.yaml"
        )
    return raw


def load_file(path: Path) -> World:
    """Load one params file (see `load`)."""
    file, raw = paths.display_path(path), _read_params(path)
    port_base = _port_base(raw, file)
    resolver = ReferenceResolver(raw, port_base)
    try:
        world = World.model_validate(_resolve_references(raw, file, resolver))
    except ValidationError as e:
        raise _to_params_error(e, file) from None  # pydantic's text would show secrets
    for reserved in sorted({*BUILT_IN_SOURCES} & {*world.sources}):
        raise ParamsError(
            f"a source cannot have the name {reserved!r}, which is the server of the stack",
            location=f"{file}: sources.{reserved}",
            expected=f"any other name than {' and '.join(BUILT_IN_SOURCES)}",
            hint=f"call it {reserved}_own",
        )
    if world.stack.embedded:
        _validate_embedded(world, file)
    if world.connect.jmx_metrics and not world.manages("connect"):
        raise ParamsError(
            "connect.jmx_metrics is true, but this Kafka Connect is not the embedded one",
            location=f"{file}: connect.jmx_metrics",
            expected="false: whoever starts Kafka Connect also starts its JMX exporter",
        )
    spark, kind = world.spark, os.environ.get("WORKBENCH_SPARK")
    # set in jobs on EMR and on the nodes of its cluster: they use the Spark that is installed there
    if kind and not world.stack.embedded:
        require_choice("WORKBENCH_SPARK", kind, "classic", "existing")
        spark = spark.model_copy(update={"kind": kind, "master": ""})
    stack = world.stack.model_copy(update={"port_base": port_base})
    return world.model_copy(update={"file": Path(file), "stack": stack, "spark": spark})


def activate(world: World) -> environment.Activation:
    """Put in force the few settings that libraries read from this process only.

    They are environment variables: AWS_… for a lake in S3, exceptions from the user's proxies for
    loopback, the mode of pyspark; and in an embedded world libpq's PG… are removed. The clients of
    AWS that are created meanwhile belong to `world.state`.

    In a `with` statement the previous settings are restored at the end of the block. Otherwise they
    stay until another world is activated. `stack.ensure_running` and the commands call this function.

    Raises:
        ParamsError: other users can enter the folder of the link to the checkout.
    """
    paths.link_safe_root()
    return environment.Activation((world.state, partial(_variables, world)))


def _variables(world: World, user_environment: Mapping[str, str]) -> environment.Variables:
    variables = {**environment.proxy_exceptions(user_environment), **lake_variables(world)}
    if world.stack.embedded:
        variables |= environment.libpq_variables(user_environment)
    if world.spark.kind in ("connect", "emr_serverless"):
        # SparkSession.builder.remote(…) sets it, too; it does not accept the options of a channel
        variables["SPARK_CONNECT_MODE_ENABLED"] = "1"
    return variables


def lake_variables(world: World) -> environment.Variables:
    """Return the variables with which clients reach the lake (see environment.s3_environment)."""
    credentials_file = s3_credentials_file() if world.uses_embedded_s3 else None
    return environment.s3_environment(world.lake.endpoint, world.region, credentials_file)


def _validate_embedded(world: World, file: str) -> None:
    """Check that an embedded stack can serve a world: it starts its services on this machine.

    Raises:
        ParamsError: an address on another machine, or one without the protection that the embedded
            service requires; or Spark cannot work in the folder of the checkout.
    """
    addresses = {
        "postgres.host": world.postgres.host,
        "mysql.host": world.mysql.host,
        "kafka.bootstrap": world.kafka.bootstrap,
        "connect.url": world.connect.url,
        "registry.url": world.registry.url,
        "spark.url": world.spark.url,
        "spark.master": world.spark.master if world.spark.workers else "",
    }
    for key, address in addresses.items():
        is_managed = getattr(world, key.partition(".")[0]).managed
        if is_managed and address and not LOOPBACK_ADDRESS.fullmatch(address):
            raise ParamsError(
                f"{key} is {address!r}, and an embedded stack starts its services on this machine",
                location=f"{file}: {key}",
                expected="127.0.0.1; nothing was started or stopped",
                hint=OWN_SERVERS_HINT,
            )
    if world.connect.managed and not world.connect.user:
        raise ParamsError(
            "connect.user is empty",
            location=f"{file}: connect.user",
            expected="a name: the embedded Kafka Connect requires a password",
            hint=COPY_LINE_HINT,
        )
    if world.registry.managed and not world.registry.url.startswith("https://"):
        raise ParamsError(
            f"registry.url is {world.registry.url!r}",
            location=f"{file}: registry.url",
            expected="https://127.0.0.1:<port>: the embedded registry accepts HTTPS only",
            hint=COPY_LINE_HINT,
        )
    if not paths.is_shell_safe(paths.SAFE_ROOT):
        raise ParamsError(
            "Spark and Hudi cannot work in this folder, and no link to it could be created",
            location=str(paths.ROOT),
            expected="a path of letters, digits and _ . / - only, or a folder "
            f"{paths.USER_RUNTIME_DIR} that only this user can enter (mode 0700)",
            hint="move the checkout to such a path",
        )


def _reject_duplicate_keys(node: Optional[yaml.Node], file: str, path: str = "") -> None:
    """Raise ParamsError for a key that occurs twice in one mapping.

    YAML itself silently takes the last one.
    """
    if not isinstance(node, yaml.MappingNode):
        return
    names: set[str] = set()
    for key, value in node.value:
        name = f"{path}.{key.value}".lstrip(".")
        if name in names:
            raise ParamsError(
                f"key '{name}' occurs twice",
                location=f"{file}: line {key.start_mark.line + 1}",
                hint="remove one of the two",
            )
        names.add(name)
        _reject_duplicate_keys(value, file, name)


def _port_base(raw: dict[str, Any], file: str) -> int:
    """Return the port base of this instance.

    The first of these that exists: WORKBENCH_PORT_BASE, the port base of the running services, the
    key of the file. Returns -1 if the key is missing or mistyped: `_to_params_error` reports that.
    """
    location = "the environment variable WORKBENCH_PORT_BASE"
    value = os.environ.get("WORKBENCH_PORT_BASE") or pidfiles.running_port_base()
    if not value:
        location = f"{file}: stack.port_base"
        value = _stack_section(raw).get("port_base")
        if type(value) is not int:
            return -1
    # isdecimal: isdigit is also true of ², which int() rejects
    port_base = int(value) if str(value).isdecimal() else -1
    if not 1024 <= port_base <= 65500:
        raise ParamsError(f"port base is {value!r}", location=location, expected="1024 to 65500")
    return port_base


class ReferenceResolver:
    """The values of a file's references; AWS is called when the first one needs it."""

    def __init__(self, raw: dict[str, Any], port_base: int):
        """Read the region and the deployment from the file.

        Args:
            raw: the keys of the file.
            port_base: port base of the instance.
        """
        self.port_base = port_base
        self.region, self.deployment = _deployment(raw)
        self.values = {
            "state": str(paths.state_dir()),
            "root": str(paths.SAFE_ROOT),
            "deployment": self.deployment,
        }

    @cached_property
    def parameters(self) -> dict[str, str]:
        """The SSM parameters of the deployment."""
        with environment.Activation(environment.NO_WORLD):  # AWS is called with the user's own key
            return aws.parameters(self.region, self.deployment)

    def resolve(self, reference: str, location: str) -> str:
        """Return the value of a reference.

        Args:
            reference: the text between ${ and }.
            location: file and key path, for the error.

        Raises:
            ParamsError: there is no such reference.
        """
        kind, _, arg = reference.partition(":")
        if kind == "port" and arg.isdecimal() and int(arg) < 40:
            return str(self.port_base + int(arg))
        if kind in self.values and not arg:
            return self.values[kind]
        if kind == "ssm" and arg and self.deployment:
            return aws.require_parameter(
                self.parameters, self.deployment, arg, location, error=ParamsError
            )
        raise ParamsError(
            f"unknown reference ${{{reference}}}",
            location=location,
            expected="${port:0…39}, ${state}, ${root}, ${deployment}, ${ssm:NAME} where there is a "
            "deployment, or ${secret:NAME} as the whole value",
        )


def _resolve_references(
    value: Any, file: str, resolver: ReferenceResolver, path: str = "", kind: Any = World
) -> Any:
    """Return a value of a params file with its references resolved.

    A reference to a secret becomes a Secret, which only fields of that type accept. Text with
    references becomes a number only in fields of numbers, so an id such as 0012 keeps its zeros.

    Args:
        value: a mapping, or a scalar.
        file: the file, for errors.
        resolver: returns the values of references.
        path: key path of the value.
        kind: the type that the world declares for the value.
    """
    if isinstance(value, dict):
        return {
            name: _resolve_references(
                item, file, resolver, f"{path}.{name}".lstrip("."), _declared_type(kind, name)
            )
            for name, item in value.items()
        }
    if not isinstance(value, str):
        return value
    secret = re.fullmatch(rf"\$\{{secret:({secrets.SECRET_NAME.pattern})\}}", value)
    if secret:
        return Secret(secret[1], resolver.region, resolver.deployment)

    def resolve(match: re.Match[str]) -> str:
        return resolver.resolve(match[1], f"{file}: {path}")

    # $${ is an escape: the text is for a Connect worker, which resolves it. Our own references
    # inside it are resolved here.
    text = re.sub(r"\$\{(deployment|state|root)\}", resolve, value)
    text = re.sub(r"(?<!\$)\$\{([^}]*)\}", resolve, text).replace("$${", "${")
    return int(text) if kind is int and text != value and text.isdecimal() else text


def _to_params_error(error: ValidationError, file: str) -> ParamsError:
    """Return the error for a file that is not a valid world.

    An unknown key is reported first, because the right key is missing then.
    """
    ranks = {"extra_forbidden": 0, "missing": 1}
    problem = min(error.errors(), key=lambda e: ranks.get(e["type"], 2))
    *parents, name = map(str, problem["loc"])
    path, raw = ".".join([*parents, name]), problem["input"]
    kind: Any = World
    for parent in parents:
        kind = _declared_type(kind, parent)
    location, fields = f"{file}: {path}", _config_keys(kind)
    if typing.get_origin(kind) is dict:
        keys = ", ".join(sorted(_config_keys(_declared_type(kind, name))))
        return ParamsError(
            f"{path} is {raw!r}", location=location, expected=f"a mapping with {keys}"
        )
    if name not in fields:
        return ParamsError(
            f"unknown key '{name}'",
            location=location,
            expected=did_you_mean(name, fields),
            hint="rename or remove the key",
        )
    kind, expected, hint = fields[name].annotation, _expected_value(fields[name], raw), ""
    if problem["type"] == "missing":
        message = f"missing key '{name}'"
        hint = COPY_LINE_HINT
    elif kind in (Secret, Optional[Secret]):
        message = "the params file contains a password" if raw else "the secret is empty"
        hint = "`workbench secret NAME` stores a password of your own; refer to it here: ${secret:NAME}"
    elif kind is str and isinstance(raw, Secret):
        message = "a secret is used where plain text is expected"
        expected = "a literal: this value is shown and logged"
    elif raw is None:
        message = f"{path} is empty"
    else:
        message = f"{path} is {raw!r} ({type(raw).__name__})"
    return ParamsError(message, location=location, expected=expected, hint=hint)


def _expected_value(field: FieldInfo, raw: Any) -> str:
    kind: Any = field.annotation
    if kind in (Secret, Optional[Secret]):
        return "a reference such as ${secret:postgres.admin}"
    if typing.get_origin(kind) is Literal:
        return did_you_mean(str(raw), typing.get_args(kind))
    if _config_keys(kind):
        return f"a mapping with {', '.join(sorted(_config_keys(kind)))}"
    return field.description or f"a value of type {getattr(kind, '__name__', kind)}"


def _declared_type(kind: Any, name: str) -> Any:
    """Return the type of a section's key, or of an entry of a mapping; None for an unknown key."""
    if typing.get_origin(kind) is dict:
        return typing.get_args(kind)[1]
    fields = _config_keys(kind)
    return fields[name].annotation if name in fields else None


def _config_keys(kind: Any) -> dict[str, FieldInfo]:
    """Return the keys of a section and their fields; none if the type is not a section."""
    if not (isinstance(kind, type) and issubclass(kind, ConfigModel)):
        return {}
    return {
        name: field for name, field in kind.model_fields.items() if field.annotation is not Path
    }


def split_host_port(address: str) -> tuple[str, int]:
    """Return (host, port) of `host:port`, also with a scheme before it and a path after it."""
    host, _, port = re.sub(r"^\w+://", "", address).split("/")[0].rpartition(":")
    return host.strip("[]"), int(port)


def require_choice(name: str, value: str, *choices: str) -> None:
    """Raise ParamsError if the value of a notebook parameter is not one of its choices."""
    if value not in choices:
        raise ParamsError(
            f"parameter {name} is {value!r}",
            expected=did_you_mean(str(value), choices),
            hint="nothing was changed",
        )


def require_range(name: str, value: int, minimum: int, maximum: int) -> None:
    """Raise ParamsError if the value of a notebook parameter is not a whole number in a range."""
    if type(value) is not int or not minimum <= value <= maximum:
        raise ParamsError(
            f"parameter {name} is {value!r}",
            expected=f"a whole number from {minimum:,} to {maximum:,}",
            hint="nothing was changed",
        )
