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
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, Mapping, Optional, Union

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from . import aws, environment, paths, secrets, yaml_files
from .errors import ParamsError, did_you_mean, redact_credentials
from .paths import LOOPBACK_ADDRESS
from .secrets import Secret, s3_credentials_file
from .state import State

OWN_SERVERS_HINT = (
    "to use a server of your own, set managed: false beside its address; a database of your own is a source "
    "(docs/your_own.md)"
)
# {key: (pattern, expected value)} of the services that an embedded stack starts
_HERE = (f"({LOOPBACK_ADDRESS.pattern})?", "127.0.0.1: an embedded stack is on this machine")
EMBEDDED_VALUES = {
    "postgres.host": _HERE,
    "mysql.host": _HERE,
    "kafka.bootstrap": _HERE,
    "connect.url": _HERE,
    "connect.user": (".+", "a name: the embedded Kafka Connect requires a password"),
    "registry.url": (r"https://(127\.0\.0\.1|localhost):\d+", "https://127.0.0.1:<port>"),
    "spark.url": _HERE,
}
# {service of the stack: section of a world}, where the names differ
SECTION_OF_SERVICE = {"mariadb": "mysql", "apicurio": "registry", "s3": "lake"}
# the sources that a world has without an entry in `sources`; the name of each is its engine, too
BUILT_IN_SOURCES = ("postgres", "mariadb")
MAX_INTERVAL_S = 86_400
SECRET_REFERENCE = re.compile(rf"\$\{{secret:({secrets.SECRET_NAME.pattern})\}}")
COPY_LINE_HINT = "copy the line from params/local.yaml and adapt it"


def _parse_digits(value: Any) -> Any:
    """Return the number of a text of digits: a parameter of AWS is a text."""
    return int(value) if isinstance(value, str) and re.fullmatch("[0-9]+", value) else value


def _require_reference(value: Any) -> Any:
    """Reject a password in a params file."""
    if not isinstance(value, Secret):
        raise ValueError(
            "a password is always a reference such as ${secret:postgres.admin}; "
            "`workbench secret NAME` stores a password of your own"
        )
    return value


Number = Annotated[int, BeforeValidator(_parse_digits)]
Password = Annotated[Secret, BeforeValidator(_require_reference)]


class ConfigModel(BaseModel, frozen=True, extra="forbid", strict=True, allow_inf_nan=False):
    """A section of a world, strictly typed.

    Unknown keys, and numbers that are infinite or none, are rejected. A text field rejects 5432, and a
    bool field rejects 1.
    """


class Stack(ConfigModel):
    """The services: embedded or external."""

    # True: `stack` starts the services. False: `stack` only checks that they can be reached.
    embedded: bool
    # On AWS: the prefix of the names of stacks, parameters, secrets, connectors and tags; else "".
    deployment: str = Field(
        pattern=r"^([a-z][a-z0-9-]{1,19})?$", description="2 to 20 small letters, digits and -"
    )
    port_base: Number = Field(ge=1024, le=65500)
    java_compiler: Literal["quick", "full"]  # see stack/services.py


class Service(ConfigModel):
    """A service that an embedded stack can start."""

    # False: the user runs it. An embedded stack neither starts nor stops it.
    managed: bool = True


class Server(Service):
    """A database server, and a database on it."""

    engine: Literal["postgres", "mariadb", "mysql"]
    host: str
    port: Number
    database: str
    admin_user: str
    admin_password: Password
    replication_user: str  # the user of the connectors
    replication_password: Password
    # see Connect.password_reference, which the section `postgres` has instead
    password_reference: str = ""
    # "" lets the client choose. verify-full compares the host name with the certificate, which one
    # of ssl_ca (a PEM file) has signed, by default one of the system's.
    ssl: Literal["", "disable", "require", "verify-full"] = ""
    ssl_ca: str = ""


class PostgresServer(Server):
    """The PostgreSQL of a world."""

    engine: Literal["postgres"]


class MySqlServer(Server):
    """The MariaDB or MySQL of a world."""

    engine: Literal["mariadb", "mysql"]


class Source(Server):
    """A source database of the user; by default its user is that of the connectors, too."""

    admin_user: str = Field(validation_alias="user")
    admin_password: Password = Field(validation_alias="password")
    # True: on the server of the world, whose administrator `user` is. A capture grants what it needs.
    managed: bool = False

    @model_validator(mode="before")
    @classmethod
    def _complete_login(cls, keys: Any) -> Any:
        if not isinstance(keys, dict):
            return keys
        user, password = keys.get("user"), keys.get("password")
        return {"replication_user": user, "replication_password": password, **keys}


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
    password: Password
    topic_prefix: str
    # The reference to a secret in a connector configuration. Only the Connect worker resolves it.
    password_reference: str

    @property
    def auth(self) -> Optional[tuple[str, bytes]]:
        """User and password of the REST API, None if it requires none."""
        return (self.user, self.password.reveal().encode()) if self.user else None


class Registry(Service):
    """The schema registry."""

    kind: Literal["apicurio", "glue"]
    url: str
    wire: Literal["apicurio_legacy8", "glue"]  # see topic/wire.py


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

    # connect: Spark Connect; classic: a session in this process, for `master`; emr_serverless: Spark
    # Connect on EMR Serverless.
    kind: Literal["connect", "classic", "emr_serverless"]
    url: str  # of Spark Connect, sc://…; on EMR Serverless the id of the application
    master: str  # local[2], local-cluster[2,1,1024], spark://…, yarn
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
    disk_free_mib: Limits = (2048.0, 512.0)
    stalled_s: float = 60.0  # slot whose position stands still while the log grows
    silent_s: float = 30.0  # source that changes, topic without messages
    small_files: int = 200  # base files below 1 MiB
    log_ratio: float = 1.0  # bytes of unmerged logs for each byte of base files
    # of notifications; "" for none. The password of the mail server is a secret.
    webhook: Optional[Password] = None  # the URL of a webhook is a credential
    sns_topic: str = ""
    mail_to: str = ""
    mail_server: str = ""  # host:port
    mail_user: str = ""
    mail_password: Optional[Password] = None


class World(ConfigModel):
    """An environment profile: the sections of one params file, and what is open of it."""

    name: str
    description: str
    region: str
    stack: Stack
    postgres: PostgresServer
    mysql: MySqlServer  # MariaDB, or MySQL (Aurora), which has another Debezium plugin
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
    _state: State = PrivateAttr(default_factory=State)
    _base: Optional["World"] = PrivateAttr(None)

    @property
    def state(self) -> State:
        """The clients, sessions and caches of this world; its sources share them."""
        return self._state

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
        section = self.sources[name]
        server = self.base.server(section.engine)
        if section.managed and (section.host, section.port) != (server.host, server.port):
            raise ParamsError(
                f"the source {name} is managed, and not on the server of its world",
                location=f"{self.file}: sources.{name}",
                expected=f"the address {server.host}:{server.port}, or no key `managed`",
            )
        reference = section.password_reference
        if not reference:
            secret = section.replication_password.name
            reference = f"${{directory:{secrets.secrets_dir()}:{secret}}}"
        changes: dict[str, ConfigModel] = {
            "mysql": section.model_copy(update={"password_reference": reference})
        }
        if section.engine == "postgres":
            connect = self.connect.model_copy(update={"password_reference": reference})
            changes = {"postgres": section, "connect": connect}
        world = self.base.model_copy(update=changes)
        world._base = self.base
        return world

    def source_engine(self, name: str) -> str:
        """Return the engine of a source: postgres, mariadb or mysql."""
        return self.sources[name].engine if name in self.sources else name

    def server(self, engine: str) -> Server:
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


def flatten(section: Union[ConfigModel, dict[str, Any]], prefix: str = "") -> list[tuple[str, str]]:
    """Return the values of a world by key path, without defaults.

    Args:
        section: a world, or a section of it.
        prefix: key path of the section, with a dot at its end.

    Returns:
        `[(key path, value as text), …]`; secrets, and credentials in URIs, are dots.
    """
    rows: list[tuple[str, str]] = []
    for name, value in section.items() if isinstance(section, dict) else section:
        if isinstance(section, ConfigModel) and name not in section.model_fields_set:
            continue  # a default
        if isinstance(value, (ConfigModel, dict)):
            rows += flatten(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", redact_credentials(str(value))))
    return rows


def world_names() -> list[str]:
    """Return the names of the worlds."""
    files = (paths.ROOT / "params").glob("*.yaml")
    return sorted(file.stem for file in files if file.stem != "versions")


def load(name: str) -> World:
    """Load params/<name>.yaml. Nothing outside the world changes (see `activate`).

    Raises:
        ParamsError: no such world; an unknown, missing or mistyped key; a reference that does not
            exist.
        StackError: AWS rejects the request of a value of `${ssm:…}`, or cannot be reached.
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
    return str(raw.get("region") or ""), str(_section(raw, "stack").get("deployment") or "")


def _section(raw: dict[str, Any], name: str) -> dict[str, Any]:
    section = raw.get(name)
    return section if isinstance(section, dict) else {}


def _read_params(path: Path) -> dict[str, Any]:
    """Return the keys of a params file, with those of the files that it extends.

    Raises:
        ParamsError: see `_read_yaml`; or files extend each other.
    """
    raw, files = _read_yaml(path), [path]
    while "extends" in raw:
        name = str(raw.pop("extends"))
        files.append(_params_file(name))
        if files[-1] in files[:-1]:
            raise ParamsError(
                f"the file extends itself: {name}",
                location=f"{paths.display_path(path)}: extends",
                expected="a world such as local",
            )
        raw = _merge({**_read_yaml(files[-1]), "name": path.stem}, raw)
    return raw


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a file with changes; the keys of a section are merged one by one."""
    merged = {**base, **changes}
    for name in changes:
        if isinstance(changes[name], dict):
            merged[name] = {**_section(base, name), **changes[name]}
    return merged


def _read_yaml(path: Path) -> dict[str, Any]:
    """Return the keys of a params file.

    Raises:
        ParamsError: the file is not YAML, or has no keys.
    """
    file = paths.display_path(path)
    try:
        raw = yaml_files.load(path)
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
    # an instance keeps the port base that it was created with
    port_base = os.environ.get("WORKBENCH_PORT_BASE") or paths.stored_port_base()
    if port_base and _section(raw, "stack"):
        raw["stack"] = {**raw["stack"], "port_base": port_base}
    try:
        world = World.model_validate(References(raw, file).resolve(raw))
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
    spark = world.spark
    # set in jobs on EMR and on the nodes of its cluster: they use the Spark that is installed there
    if os.environ.get("WORKBENCH_SPARK") and not world.stack.embedded:
        spark = spark.model_copy(update={"kind": "classic", "master": ""})
    return world.model_copy(update={"file": Path(file), "spark": spark})


def activate(world: World) -> None:
    """Put in force the few settings that libraries read from this process only.

    They are environment variables: AWS_… for a lake in S3, exceptions from the user's proxies for
    loopback, the mode of pyspark; and in an embedded world libpq's PG… are removed. They stay until
    another world is activated. `stack.ensure_running` and the commands call this function.

    Raises:
        ParamsError: other users can enter the folder of the link to the checkout.
    """
    paths.link_safe_root()
    if environment.apply(partial(_variables, world)):
        aws.client.cache_clear()


def _variables(world: World, user_environment: Mapping[str, str]) -> environment.Variables:
    variables = {**environment.proxy_exceptions(user_environment), **lake_variables(world)}
    if world.stack.embedded:
        variables |= environment.libpq_variables(user_environment)
    if world.spark.kind != "classic":
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
    for key, (pattern, expected) in EMBEDDED_VALUES.items():
        section, _, name = key.partition(".")
        service = getattr(world, section)
        value = getattr(service, name)
        if service.managed and not re.fullmatch(pattern, value):
            raise ParamsError(
                f"{key} is {value!r}",
                location=f"{file}: {key}",
                expected=f"{expected}; nothing was started or stopped",
                hint=OWN_SERVERS_HINT,
            )
    if not paths.is_shell_safe(paths.SAFE_ROOT):
        raise ParamsError(
            "Spark and Hudi cannot work in this folder, and no link to it could be created",
            location=str(paths.ROOT),
            expected="a path of letters, digits and _ . / - only, or a folder "
            f"{paths.USER_RUNTIME_DIR} that only this user can enter (mode 0700)",
            hint="move the checkout to such a path",
        )


class References:
    """The values of a file's references; AWS is called when the first one needs it."""

    def __init__(self, raw: dict[str, Any], file: str):
        """Read the region, the deployment and the port base from the keys of a file.

        Args:
            raw: the keys.
            file: the file, for errors.
        """
        self.file = file
        self.region, self.deployment = _deployment(raw)
        self.values = {
            "state": str(paths.state_dir()),
            "root": str(paths.SAFE_ROOT),
            "deployment": self.deployment,
        }
        port_base = _parse_digits(_section(raw, "stack").get("port_base"))
        if not isinstance(port_base, int):
            port_base = 0  # the world is not valid, and pydantic says so
        self.values |= {f"port:{n}": str(port_base + n) for n in range(paths.MAX_PORTS)}

    @cached_property
    def parameters(self) -> dict[str, str]:
        """The SSM parameters of the deployment."""
        return aws.parameters(self.region, self.deployment)

    def resolve(self, value: Any, path: str = "") -> Any:
        """Return a value of the file with its references resolved; one to a secret is a Secret.

        Args:
            value: a mapping, or a scalar.
            path: key path of the value.

        Raises:
            ParamsError: there is no such reference.
        """
        if isinstance(value, dict):
            return {name: self.resolve(value[name], f"{path}.{name}") for name in value}
        if not isinstance(value, str):
            return value
        secret = SECRET_REFERENCE.fullmatch(value)
        if secret:
            return Secret(secret[1], self.region, self.deployment)

        def look_up(match: re.Match[str]) -> str:
            return self._look_up(match[1], path.lstrip("."))

        # $${ is an escape: the text is for a Connect worker, which resolves it. Our own references
        # inside it are resolved here.
        text = re.sub(r"\$\{(deployment|state|root)\}", look_up, value)
        return re.sub(r"(?<!\$)\$\{([^}]*)\}", look_up, text).replace("$${", "${")

    def _look_up(self, reference: str, path: str) -> str:
        """Return the value of a reference: the text between ${ and }."""
        if reference in self.values:
            return self.values[reference]
        kind, _, name = reference.partition(":")
        if kind == "ssm" and self.deployment:
            return aws.require_parameter(self.parameters, self.deployment, name, error=ParamsError)
        raise ParamsError(
            f"unknown reference ${{{reference}}}",
            location=f"{self.file}: {path}",
            expected="${port:0…39}, ${state}, ${root}, ${deployment}, ${ssm:NAME} where there is a "
            "deployment, or ${secret:NAME} as the whole value",
        )


def _to_params_error(error: ValidationError, file: str) -> ParamsError:
    """Return the error for a file that is not a valid world; it shows no value of the file.

    An unknown key is reported first, because the right key is missing then.
    """
    ranks = {"extra_forbidden": 0, "invalid_key": 0, "missing": 1}
    problem = min(error.errors(include_input=False), key=lambda e: ranks.get(e["type"], 2))
    keys = [str(key) for key in problem["loc"] if key != "[key]"]
    path = ".".join(keys)
    location = f"{file}: {path}"
    rank = ranks.get(problem["type"])
    if rank == 0:
        return ParamsError(
            f"unknown key '{keys[-1]}'",
            location=location,
            expected=did_you_mean(keys[-1], _section_keys(keys[:-1])),
            hint="rename or remove the key",
        )
    message = f"missing key '{keys[-1]}'" if rank == 1 else f"{path}: {problem['msg']}"
    if path == "stack.port_base" and "WORKBENCH_PORT_BASE" in os.environ:
        location = "the environment variable WORKBENCH_PORT_BASE"
    return ParamsError(message, location=location, hint=COPY_LINE_HINT)


def _section_keys(path: list[str]) -> list[str]:
    """Return the valid keys of a section."""
    section: Any = World
    for name in path:
        if name == "sources":
            section = Source
        elif name in section.model_fields:
            section = section.model_fields[name].annotation
    return [name for name in section.model_fields if name != "file"]


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
