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

import os
import re
from functools import cache, partial
from pathlib import Path
from typing import Any, Mapping, Optional, Union

import yaml
from pydantic import PrivateAttr, ValidationError

from . import aws, environment, paths, secrets, yaml_files
from .errors import ParamsError, did_you_mean, redact_credentials
from .models import ConfigModel, Sections, Server, Source, parse_digits
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
KEY_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
PROFILE_VARIABLES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
CREDENTIALS_FILE_VARIABLES = (
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CREDENTIAL_PROFILES_FILE",  # version 1 of the Java SDK
    "AWS_CONFIG_FILE",
)
# the sources that a world has without an entry in `sources`; the name of each is its engine, too
BUILT_IN_SOURCES = ("postgres", "mariadb")
SECRET_REFERENCE = re.compile(rf"\$\{{secret:({secrets.SECRET_NAME.pattern})\}}")
REFERENCE = re.compile(r"(?<!\$)\$\{([^${}]*)\}")
COPY_LINE_HINT = "copy the line from params/local.yaml and adapt it"


class World(Sections):
    """An environment profile: the sections of one params file, and what is open of it."""

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
        if service == "s3":
            return self.uses_embedded_s3
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


def _section(raw: dict[str, Any], name: str) -> dict[str, Any]:
    section = raw.get(name)
    return section if isinstance(section, dict) else {}


def _read_params(path: Path, *extending: Path) -> dict[str, Any]:
    """Return the keys of a params file, with those of the files that it extends.

    Args:
        path: the file.
        extending: the files that extend it.

    Raises:
        ParamsError: see `_read_yaml`; or files extend each other.
    """
    raw = _read_yaml(path)
    if "extends" not in raw:
        return raw
    base = _params_file(str(raw.pop("extends")))
    if base in (path, *extending):
        raise ParamsError(
            f"the file extends itself: {base.stem}",
            location=f"{paths.display_path(path)}: extends",
            expected="a world such as local",
        )
    merged = {**_read_params(base, path, *extending), "name": path.stem}
    for name, value in raw.items():
        merged[name] = {**_section(merged, name), **value} if isinstance(value, dict) else value
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
    # an instance keeps the port base that it was created with; the variable is for a new one
    port_base = paths.stored_port_base() or os.environ.get("WORKBENCH_PORT_BASE")
    if port_base and _section(raw, "stack"):
        raw["stack"] = {**raw["stack"], "port_base": port_base}
    try:
        world = World.model_validate(_resolve(raw, file))
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
        # The user has set libpq's variables (PGSSLMODE, PGSERVICE, PGTZ …) for another database. They would
        # change or break every connection to the embedded PostgreSQL; some override its arguments.
        variables |= {name: None for name in user_environment if name.startswith("PG")}
    if world.spark.kind != "classic":
        # SparkSession.builder.remote(…) sets it, too; it does not accept the options of a channel
        variables["SPARK_CONNECT_MODE_ENABLED"] = "1"
    return variables


def lake_variables(world: World) -> environment.Variables:
    """Return the variables with which clients reach a lake in S3.

    They are read by boto3, pyarrow, the Java SDKs and hudi-rs. For an embedded endpoint they name the
    file with its key, and the variables of the user's own keys are removed.
    """
    variables: environment.Variables = {}
    if world.region or world.lake.endpoint:
        variables["AWS_REGION"] = world.region or "us-east-1"
    if world.lake.endpoint:
        variables |= {"AWS_ENDPOINT_URL_S3": world.lake.endpoint, "AWS_ALLOW_HTTP": "true"}
    if world.uses_embedded_s3:
        variables |= dict.fromkeys(KEY_VARIABLES)
        variables |= dict.fromkeys(PROFILE_VARIABLES, "default")
        variables |= dict.fromkeys(CREDENTIALS_FILE_VARIABLES, str(s3_credentials_file()))
    return variables


def _validate_embedded(world: World, file: str) -> None:
    """Check that an embedded stack can serve a world: it starts its services on this machine.

    Raises:
        ParamsError: an address on another machine, or one without the protection that the embedded
            service requires.
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


def _resolve(raw: dict[str, Any], file: str) -> dict[str, Any]:
    """Return the keys of a file with their references resolved; one to a secret is a Secret.

    AWS is called when the first reference needs it.

    Raises:
        ParamsError: there is no such reference.
    """
    stack = _section(raw, "stack")
    region, deployment = str(raw.get("region") or ""), str(stack.get("deployment") or "")
    port_base = parse_digits(stack.get("port_base"))
    first_port = port_base if isinstance(port_base, int) else 0  # pydantic rejects any other
    values = {f"port:{n}": str(first_port + n) for n in range(paths.MAX_PORTS)}
    values["state"], values["root"] = str(paths.state_dir()), str(paths.SAFE_ROOT)
    values["deployment"] = deployment
    parameters = cache(partial(aws.parameters, region, deployment))

    def look_up(path: str, reference: re.Match[str]) -> str:
        kind, _, name = reference[1].partition(":")
        if kind == "ssm" and deployment:
            return aws.require_parameter(parameters(), deployment, name, error=ParamsError)
        if reference[1] not in values:
            raise ParamsError(
                f"unknown reference {reference[0]}",
                location=f"{file}: {path}",
                expected="${port:0…39}, ${state}, ${root}, ${deployment}, ${ssm:NAME} where there "
                "is a deployment, or ${secret:NAME} as the whole value",
            )
        return values[reference[1]]

    def resolve(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {name: resolve(value[name], f"{path}.{name}") for name in value}
        if not isinstance(value, str):
            return value
        secret = SECRET_REFERENCE.fullmatch(value)
        if secret:
            return Secret(secret[1], region, deployment)
        # $${ is an escape: the text is for a Connect worker, which resolves it. Our own references
        # inside it are resolved here.
        return REFERENCE.sub(partial(look_up, path), value).replace("$${", "${")

    return {str(name): resolve(value, str(name)) for name, value in raw.items()}


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
