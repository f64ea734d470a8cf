"""Worlds: `load("local")` turns params/local.yaml into frozen models, strictly.

One params file is one world. Every file has the same keys. Values may hold
  ${port:N}       the N-th port of this checkout's instance (port base + N),
  ${state}        the folder of this instance's service state and lake,
  ${deployment}   the file's stack.deployment: what it is called that was made for it on AWS,
  ${ssm:NAME}     a parameter of that deployment, asked of AWS when the file is loaded (see aws.py),
  ${secret:NAME}  a secret, resolved only when somebody calls `.reveal()` (see secrets.py).
"""

import html
import os
import re
import typing
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Optional

import yaml
from pydantic import BaseModel, Field, ValidationError
from pydantic.fields import FieldInfo

from . import aws, environment, paths, pidfiles
from .errors import ParamsError, did_you_mean, redact_credentials
from .secrets import Secret, s3_credentials_file

# What YAML's loader raises for a text that it cannot load: ValueError for a date that does not
# exist, RecursionError for deep nesting, AttributeError for the tag !!timestamp on other text
YAML_LOAD_ERRORS = (yaml.YAMLError, ValueError, RecursionError, AttributeError)
LOOPBACK_ADDRESS = re.compile(
    r"(\w+://)?(127\.0\.0\.1|localhost)(:\d+)?(/.*)?"
)  # an address on this machine, or a host
OWN_SERVERS_HINT = (
    "to use servers of your own, copy params/local.yaml to a new name, set stack.embedded: false and give "
    'the address of every service there (docs/trouble.md, "A server of your own")'
)


class ConfigModel(BaseModel, frozen=True, extra="forbid", strict=True):
    """A part of a world: no unknown keys, and strictly: an int takes no "5432", a bool no 1."""


class Stack(ConfigModel):
    embedded: (
        bool  # True: `stack` starts the services; False: it only checks that they can be reached
    )
    # on AWS: begins the names of stacks, parameters, secrets, connectors and tags; "" elsewhere
    deployment: str = Field(
        pattern=r"^([a-z][a-z0-9-]{1,19})?$", description="2 to 20 small letters, digits and -"
    )
    port_base: int
    java_compiler: Literal["quick", "full"]  # see stack/services.py


class Postgres(ConfigModel):
    host: str
    port: int
    database: str
    admin_user: str
    admin_password: Secret
    replication_user: str
    replication_password: Secret


class MySql(ConfigModel):
    kind: Literal["mariadb", "mysql"]  # MariaDB, or MySQL (Aurora's): another plugin of Debezium's
    host: str
    port: int
    admin_user: str
    admin_password: Secret
    replication_user: str
    replication_password: Secret
    password_reference: str  # as connect's


class Kafka(ConfigModel):
    bootstrap: str
    security_protocol: Literal[
        "PLAINTEXT", "SSL", "SASL_SSL"
    ]  # SASL_SSL: MSK's, by IAM (see topic/kafka_iam.py)


class Connect(ConfigModel):
    kind: Literal["rest", "msk"]  # a Kafka Connect, or MSK Connect
    url: str
    user: str  # of its REST API; "" where that asks for no password
    password: Secret
    topic_prefix: str
    password_reference: (
        str  # how a connector config names a secret: the Connect worker resolves it, never we
    )

    @property
    def auth(self) -> Optional[tuple[str, bytes]]:
        """User and password of the REST API, as `requests` takes them; None where it asks for
        none.
        """
        return (self.user, self.password.reveal().encode()) if self.user else None


class Registry(ConfigModel):
    kind: Literal["apicurio", "glue"]
    url: str
    wire: Literal["apicurio", "apicurio_legacy8", "confluent", "glue"]  # see topic/wire.py


class Lake(ConfigModel):
    # of an S3 that is not AWS's own, such as http://127.0.0.1:9000; "" for AWS's, and for a folder
    endpoint: str
    root: str  # file:, s3a: or s3: address below which everything lies
    landing: str  # raw files written by the sink
    tables: str  # Hudi tables
    dead_letters: str
    checkpoints: str


class Spark(ConfigModel):
    # Spark Connect; a session that the kernel has already; one that is made in this process, for
    # `master`; Spark Connect on EMR Serverless
    kind: Literal["connect", "existing", "classic", "emr_serverless"]
    url: str  # of Spark Connect, sc://…; on EMR Serverless the application's id
    master: str  # local[2], spark://…, yarn
    # workers that the embedded stack starts for a spark:// master; 0 where it starts none
    workers: int = Field(
        ge=0, le=2, description="0, 1 or 2; a cluster of your own brings its workers: 0"
    )
    driver_memory: str
    executor_memory: str
    parallelism: int


class Query(ConfigModel):
    kind: Literal["spark", "athena"]


class World(ConfigModel):
    name: str
    describe: str
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
    file: Path = Path()  # where it was read; no key

    @property
    def uses_embedded_s3(self) -> bool:
        """Whether its lake lies on an S3 endpoint that the embedded stack starts."""
        return self.stack.embedded and bool(LOOPBACK_ADDRESS.fullmatch(self.lake.endpoint))

    def _repr_html_(self) -> str:
        cells = ((key, html.escape(value)) for key, value in flatten(self))
        rows = "".join(
            f"<tr><td><code>{key}</code></td><td><code>{value}</code></td></tr>"
            for key, value in cells
        )
        title = f"world <b>{html.escape(self.name)}</b>: {html.escape(self.describe)}"
        return f"<details><summary>{title}</summary><table>{rows}</table></details>"


def flatten(part: ConfigModel, prefix: str = "") -> list:
    """Return `[(key path, value as text), …]` of a world; secrets, and logins in addresses, show as
    dots.
    """
    out: list = []
    for name, value in part:
        nested = isinstance(value, ConfigModel)
        out += (
            flatten(value, f"{prefix}{name}.")
            if nested
            else [(f"{prefix}{name}", redact_credentials(str(value)))]
        )
    return out


def world_names() -> list:
    """Names of the worlds there are."""
    return sorted(p.stem for p in (paths.ROOT / "params").glob("*.yaml") if p.stem != "versions")


def load(name: str) -> World:
    """Load params/<name>.yaml. An embedded world takes the variables PG… out of this process's
    environment; the variables AWS_… are set for a lake in S3 until another world is loaded (see
    environment.s3_environment).

    Raises:
        ParamsError: no such world; an unknown, missing or mistyped key; a reference that does not
            exist.
    """
    return load_file(_params_file(name))


def _params_file(name: str) -> Path:
    """The file of a world. Raises ParamsError: there is none."""
    if name not in world_names():
        raise ParamsError(
            f"there is no world {name!r}",
            location=f"params/{name}.yaml",
            expected=did_you_mean(str(name), world_names()),
            hint="name one of these, or copy params/local.yaml to a new name and edit it",
        )
    return paths.ROOT / "params" / f"{name}.yaml"


def read_deployment(name: str) -> tuple[str, str]:
    """(region, name) of a world's deployment on AWS: what is known of it before it is made.

    Raises: ParamsError: no such world, or it is none of AWS.
    """
    raw = _read_yaml(_params_file(name))
    stack = raw.get("stack") if isinstance(raw.get("stack"), dict) else {}
    found = str(raw.get("region") or ""), str(stack.get("deployment") or "")
    if not all(found):
        raise ParamsError(
            f"world {name!r} is none of AWS",
            location=f"params/{name}.yaml",
            expected="a region, and a name in stack.deployment",
            hint="--world aws",
        )
    return found


def _read_yaml(path: Path) -> dict:
    """The keys of a params file. Raises ParamsError: it is not YAML, has none, or one twice."""
    shown = paths.display_path(path)
    try:
        text = path.read_text(encoding="utf-8")
        _reject_duplicate_keys(yaml.compose(text, Loader=yaml.SafeLoader), shown)
        raw = yaml.safe_load(text)
    except YAML_LOAD_ERRORS as e:
        raise ParamsError(
            "the params file is not YAML, or not UTF-8", location=f"{shown}: {e}"
        ) from None
    if not isinstance(raw, dict):
        raise ParamsError(
            "the params file holds no keys",
            location=shown,
            expected="the keys of params/local.yaml",
        )
    return raw


def load_file(path: Path) -> World:
    """Load one params file (see `load`)."""
    shown, raw = paths.display_path(path), _read_yaml(path)
    base = _port_base(raw, shown)
    try:
        world = World.model_validate(_resolve_references(raw, shown, ReferenceResolver(raw, base)))
    except ValidationError as e:
        raise _to_params_error(e, shown) from None  # its own text would show the values
    if world.stack.embedded:
        _reject_remote_services(world, shown)
        _reject_unprotected_services(world, shown)
        if not paths.is_shell_safe(paths.SAFE_ROOT):
            raise ParamsError(
                "Spark and Hudi cannot work in this folder, and no link to it could be made",
                location=str(paths.ROOT),
                expected=f"a path of letters, digits and _ . / - only, or {paths.USER_RUNTIME_DIR} yours alone (mode 0700)",
                hint="move the checkout to such a path",
            )
        environment.clear_libpq_environment()
    _apply_s3_environment(
        environment.s3_environment(
            world.lake.endpoint,
            world.region,
            s3_credentials_file() if world.uses_embedded_s3 else None,
        )
    )
    stack = world.stack.model_copy(update={"port_base": base})
    spark, own = world.spark, os.environ.get("WORKBENCH_SPARK")
    if (
        own and not world.stack.embedded
    ):  # in a job on EMR, and on the nodes of its cluster: the Spark that is there
        require_choice("WORKBENCH_SPARK", own, "classic", "existing")
        spark = spark.model_copy(update={"kind": own, "master": ""})
    return world.model_copy(update={"file": Path(shown), "stack": stack, "spark": spark})


def _reject_remote_services(world: World, shown: str) -> None:
    """Raise ParamsError for an address on another machine: an embedded stack starts its services on
    this one.
    """
    addresses = {
        "postgres.host": world.postgres.host,
        "mysql.host": world.mysql.host,
        "kafka.bootstrap": world.kafka.bootstrap,
        "connect.url": world.connect.url,
        "registry.url": world.registry.url,
        "spark.url": world.spark.url,
    }
    if world.spark.workers:
        addresses["spark.master"] = world.spark.master
    for key, address in addresses.items():
        if address and not LOOPBACK_ADDRESS.fullmatch(address):
            raise ParamsError(
                f"{key} is {address!r}, and an embedded stack starts its services on this machine",
                location=f"{shown}: {key}",
                expected="127.0.0.1; nothing was started or stopped",
                hint=OWN_SERVERS_HINT,
            )


def _reject_unprotected_services(world: World, shown: str) -> None:
    """Raise ParamsError for an address or a login with which an embedded service would never be
    reached.
    """
    where, fault, expected = "", "", ""
    if not world.connect.user:
        where, fault, expected = (
            "connect.user",
            "is empty",
            "a name: the embedded Kafka Connect requires a password",
        )
    elif not world.registry.url.startswith("https://"):
        where, fault = "registry.url", f"is {world.registry.url!r}"
        expected = "https://127.0.0.1:<port>: the embedded registry speaks HTTPS only"
    if where:
        raise ParamsError(
            f"{where} {fault}",
            location=f"{shown}: {where}",
            expected=expected,
            hint="copy the line of params/local.yaml",
        )


def _apply_s3_environment(settings: dict[str, str]) -> None:
    if environment.apply_environment(settings):
        # they were made for the endpoint, the region and the key of before
        aws.client.cache_clear()


def _reject_duplicate_keys(node: Optional[yaml.Node], shown: str, path: str = "") -> None:
    """Raise ParamsError for a key that stands twice in one mapping: YAML takes the last, and says
    nothing.
    """
    seen: set = set()
    for key, value in node.value if isinstance(node, yaml.MappingNode) else []:
        name = f"{path}.{key.value}".lstrip(".")
        if name in seen:
            raise ParamsError(
                f"key '{name}' is given twice",
                location=f"{shown}: line {key.start_mark.line + 1}",
                hint="remove one of the two",
            )
        seen.add(name)
        _reject_duplicate_keys(value, shown, name)


def _port_base(raw: dict, shown: str) -> int:
    """Port base of this instance: WORKBENCH_PORT_BASE, else that of its running services, else the
    file's.
    """
    stack, stated = raw.get("stack"), os.environ.get("WORKBENCH_PORT_BASE")
    base = (
        stated
        or pidfiles.running_port_base()
        or (stack.get("port_base") if isinstance(stack, dict) else None)
    )
    number = (
        int(base) if str(base).isdecimal() else -1
    )  # isdigit is also true of ², which is no number for int
    if (stated or type(base) is int) and not 1024 <= number <= 65500:
        where = (
            "the environment variable WORKBENCH_PORT_BASE"
            if stated
            else f"{shown}: stack.port_base"
        )
        raise ParamsError(f"port base is {base!r}", location=where, expected="1024 to 65500")
    return number  # of one that is missing or mistyped `_refused` tells


class ReferenceResolver:
    """What the references of a file stand for. AWS is asked when the first of them needs it."""

    def __init__(self, raw: dict, base: int):
        stack = raw.get("stack") if isinstance(raw.get("stack"), dict) else {}
        self.port_base, self.region, self.deployment = (
            base,
            str(raw.get("region")),
            str(stack.get("deployment") or ""),
        )
        self.values = {
            "state": str(paths.state_dir()),
            "root": str(paths.SAFE_ROOT),
            "deployment": self.deployment,
        }

    @cached_property
    def parameters(self) -> dict[str, str]:
        _apply_s3_environment({})  # AWS is asked with the user's own key
        return aws.parameters(self.region, self.deployment)

    def resolve(self, reference: str, where: str) -> str:
        kind, _, arg = reference.partition(":")
        if kind == "port" and arg.isdecimal() and int(arg) < 40:
            return str(self.port_base + int(arg))
        if kind in self.values and not arg:
            return self.values[kind]
        if kind == "ssm" and arg and self.deployment:
            return aws.require_parameter(
                self.parameters, self.deployment, arg, where, error=ParamsError
            )
        raise ParamsError(
            f"unknown reference ${{{reference}}}",
            location=where,
            expected="${port:0…39}, ${state}, "
            "${root}, ${deployment}, ${ssm:NAME} where there is a deployment, or ${secret:NAME} alone",
        )


def _resolve_references(
    value: Any, shown: str, known: ReferenceResolver, path: str = "", kind: Any = World
) -> Any:
    """Fill in the references. A secret becomes a Secret: only where one is expected will it do.
    Text that was filled in becomes a number only where the world declares a number (`kind`): an id
    such as 0012 keeps its zeros.
    """
    if isinstance(value, dict):
        keys = kind.model_fields if isinstance(kind, type) and issubclass(kind, ConfigModel) else {}
        return {
            k: _resolve_references(
                v,
                shown,
                known,
                f"{path}.{k}".lstrip("."),
                keys[k].annotation if k in keys else None,
            )
            for k, v in value.items()
        }
    if not isinstance(value, str):
        return value
    secret = re.fullmatch(r"\$\{secret:([a-z0-9_.]+)\}", value)
    if secret:
        return Secret(secret.group(1), known.region, known.deployment)
    # a doubled $ is an escape: the text is for a Connect worker, not for us; what is ours within it
    # is filled in
    inner = re.sub(
        r"\$\{(deployment|state|root)\}", lambda m: known.resolve(m[1], f"{shown}: {path}"), value
    )
    new = re.sub(
        r"(?<!\$)\$\{([^}]*)\}", lambda m: known.resolve(m[1], f"{shown}: {path}"), inner
    ).replace("$${", "${")
    return int(new) if kind is int and new != value and new.isdecimal() else new


def _to_params_error(error: ValidationError, shown: str) -> ParamsError:
    """What a person is told of a file that is no world: an unknown key first, since the right one
    is missing then.
    """
    ranks = {"extra_forbidden": 0, "missing": 1}
    found = min(error.errors(), key=lambda e: ranks.get(e["type"], 2))
    *above, key = found["loc"]
    path, raw, keys = ".".join(map(str, found["loc"])), found["input"], _config_keys(World)
    for name in above:
        keys = _config_keys(keys[name].annotation)
    if key not in keys:
        return ParamsError(
            f"unknown key '{key}'",
            location=f"{shown}: {path}",
            expected=did_you_mean(str(key), keys),
            hint="rename or remove the key",
        )
    kind, expected, next_step = keys[key].annotation, _expected_value(keys[key], raw), ""
    if found["type"] == "missing":
        what, next_step = (
            f"missing key '{key}'",
            "copy the line from params/local.yaml and adapt it",
        )
    elif kind is Secret:
        what = "a password stands in a params file" if raw else "the secret is empty"
        next_step = (
            "put the value into the environment variable WORKBENCH_SECRET_… and name it here"
        )
    elif kind is str and isinstance(raw, Secret):
        what, expected = (
            "a secret stands where plain text is expected",
            "a literal: this value is shown and logged",
        )
    else:
        what = f"{path} is empty" if raw is None else f"{path} is {raw!r} ({type(raw).__name__})"
    return ParamsError(what, location=f"{shown}: {path}", expected=expected, hint=next_step)


def _expected_value(key: FieldInfo, raw: Any) -> str:
    kind, choices = key.annotation, typing.get_args(key.annotation)
    if kind is Secret:
        return "a reference such as ${secret:postgres.admin}"
    if choices:
        return did_you_mean(str(raw), choices)
    if issubclass(kind, ConfigModel):
        return f"a mapping with {', '.join(sorted(_config_keys(kind)))}"
    return key.description or f"a value of type {kind.__name__}"


def _config_keys(part: type[ConfigModel]) -> dict[str, FieldInfo]:
    """The keys of a part of a world, and what each of them holds."""
    return {name: key for name, key in part.model_fields.items() if key.annotation is not Path}


def split_host_port(address: str) -> tuple[str, int]:
    """Split `host:port` (also with a scheme before it) into both."""
    host, _, port = re.sub(r"^\w+://", "", address).split("/")[0].rpartition(":")
    return host.strip("[]"), int(port)


def require_choice(name: str, value: str, *choices: str) -> None:
    """Raise ParamsError when the value of a notebook's parameter is none of its choices."""
    if value not in choices:
        raise ParamsError(
            f"parameter {name} is {value!r}",
            expected=did_you_mean(str(value), choices),
            hint="nothing was changed",
        )


def require_range(name: str, value: int, least: int, most: int) -> None:
    """Raise ParamsError when the value of a notebook's parameter is no whole number from `least` to
    `most`.
    """
    if type(value) is not int or not least <= value <= most:
        raise ParamsError(
            f"parameter {name} is {value!r}",
            expected=f"a whole number from {least:,} to {most:,}",
            hint="nothing was changed",
        )
