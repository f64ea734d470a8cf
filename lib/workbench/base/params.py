"""Worlds: `load("local")` turns params/local.yaml into frozen dataclasses, strictly.

One params file is one world. Every file has the same keys. Values may hold
  ${port:N}       the N-th port of this checkout's instance (port base + N),
  ${state}        the folder of this instance's service state and lake,
  ${secret:NAME}  a secret, resolved only when somebody calls `.reveal()` (see secrets.py).
"""
from __future__ import annotations

import dataclasses
import html
import os
import re
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Tuple

import yaml

from . import paths, pidfiles
from .errors import ParamsError, nearest
from .secrets import Secret


def _spare_loopback() -> None:
    """Let no proxy that the environment names stand between us and our own services, for us and for all that we start.

    What the user excepts stays so. gRPC reads lower case only, and knows no `*`, so it has a variable of its own."""
    stated = f'{os.environ.get("no_proxy", "")},{os.environ.get("NO_PROXY", "")}'
    hosts = list(dict.fromkeys(h for h in re.split(r"[\s,]+", stated) if h))
    extended = ",".join(hosts + [h for h in ("127.0.0.1", "localhost") if h not in hosts])
    plain = "*" if "*" in hosts else extended  # a star counts only where it stands alone
    os.environ.update(no_proxy=plain, NO_PROXY=plain, no_grpc_proxy=extended)


_spare_loopback()  # here, since every module that speaks with a service has imported this one before


# How Java compiles in the embedded services. Over notebooks 11 to 13 its full compiler takes nearly half of all the
# processor's time and pays nothing back; services that handle 100,000 rows again and again work two or three times as
# fast with it.
# The room for compiled code is what the full one has: with a fifth of it, quick's default, Spark's falls out again.
COMPILERS = {"quick": ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"], "full": []}


@dataclass(frozen=True)
class Stack:
    embedded: bool  # True: `stack` starts the services; False: it only checks that they can be reached
    port_base: int
    java_compiler: str = field(metadata={"one_of": tuple(COMPILERS)})


@dataclass(frozen=True)
class Postgres:
    host: str
    port: int
    database: str
    admin_user: str
    admin_password: Secret
    replication_user: str
    replication_password: Secret


@dataclass(frozen=True)
class Kafka:
    bootstrap: str
    security_protocol: str  # PLAINTEXT, or what a managed cluster asks for


@dataclass(frozen=True)
class Connect:
    kind: str  # "rest" (Kafka Connect) or "msk" (MSK Connect)
    url: str
    topic_prefix: str
    password_reference: str  # how a connector config names a secret: the Connect worker resolves it, never we


@dataclass(frozen=True)
class Registry:
    kind: str  # "apicurio" or "glue"
    url: str
    wire: str = field(metadata={"one_of": ("apicurio", "apicurio_legacy8", "confluent")})  # see topic/wire.py


@dataclass(frozen=True)
class Lake:
    root: str  # file:, s3a: or s3: address below which everything lies
    landing: str  # raw files written by the sink
    tables: str  # Hudi tables
    dead_letters: str
    checkpoints: str


@dataclass(frozen=True)
class Spark:
    kind: str  # "connect" (Spark Connect), "classic" (spark.master), "existing" (the session of an EMR notebook)
    url: str
    master: str
    # workers that the embedded stack starts for a spark:// master; 0 where it starts none
    workers: int = field(metadata={"one_of": (0, 1, 2), "next_step": "a cluster of your own brings its workers: 0"})
    driver_memory: str
    executor_memory: str
    parallelism: int


@dataclass(frozen=True)
class Query:
    kind: str  # "spark" or "athena"
    workgroup: str
    output: str


@dataclass(frozen=True)
class World:
    name: str
    describe: str
    region: str
    stack: Stack
    postgres: Postgres
    kafka: Kafka
    connect: Connect
    registry: Registry
    lake: Lake
    spark: Spark
    query: Query
    file: str = field(default="", metadata={"derived": True})

    def _repr_html_(self) -> str:
        cells = ((key, html.escape(value)) for key, value in flatten(self))
        rows = "".join(f"<tr><td><code>{key}</code></td><td><code>{value}</code></td></tr>" for key, value in cells)
        title = f"world <b>{html.escape(self.name)}</b>: {html.escape(self.describe)}"
        return f"<details><summary>{title}</summary><table>{rows}</table></details>"


def flatten(world: World, prefix: str = "") -> list:
    """Return `[(key path, value as text), …]` of a world; secrets show as dots."""
    out: list = []
    for f in dataclasses.fields(world):
        value = getattr(world, f.name)
        path = f"{prefix}{f.name}"
        out += flatten(value, path + ".") if dataclasses.is_dataclass(value) and not isinstance(value, Secret) else [
            (path, str(value))
        ]
    return out


def worlds() -> list:
    """Names of the worlds there are."""
    return sorted(p.stem for p in (paths.ROOT / "params").glob("*.yaml") if p.stem != "versions")


def load(name: str) -> World:
    """Load params/<name>.yaml. An embedded world takes the variables PG… out of this process's environment.

    Raises:
        ParamsError: no such world; an unknown, missing or mistyped key; a reference that does not exist.
    """
    path = paths.ROOT / "params" / f"{name}.yaml"
    if not re.fullmatch(r"[a-z0-9_-]+", str(name)) or name == "versions" or not path.is_file():
        raise ParamsError(
            f"there is no world {name!r}", where=f"params/{name}.yaml", expected=nearest(str(name), worlds()),
            next_step="name one of these, or copy params/local.yaml to a new name and edit it",
        )
    return load_file(path)


def load_file(path: Path) -> World:
    """Load one params file (see `load`)."""
    shown = str(path.relative_to(paths.ROOT)) if path.is_relative_to(paths.ROOT) else str(path)
    try:
        text = path.read_text(encoding="utf-8")
        _refuse_doubles(yaml.compose(text, Loader=yaml.SafeLoader), shown)
        raw = yaml.safe_load(text)
    except UnicodeDecodeError as e:
        raise ParamsError("the params file is not UTF-8", where=f"{shown}: byte {e.start} is 0x{e.object[e.start]:02x}",
                          next_step="save it as UTF-8") from None
    except yaml.YAMLError as e:
        raise ParamsError("the params file is not YAML", where=f"{shown}: {e}") from None
    if not isinstance(raw, dict):
        raise ParamsError("the params file holds no keys", where=shown, expected="the keys of params/local.yaml")
    base = _port_base(raw, shown)
    world = _build(World, _substitute(raw, shown, base), shown, "")
    if world.stack.embedded:
        if not paths.is_plain(paths.LINK):
            raise ParamsError(
                "Spark and Hudi cannot work in this folder, and no link to it could be made", where=str(paths.ROOT),
                expected=f"a path of letters, digits and _ . / - only, or {paths.LINKS} yours alone (mode 0700)",
                next_step="move the checkout to such a path")
        _forget_postgres()
    return dataclasses.replace(
        world, file=shown, stack=dataclasses.replace(world.stack, port_base=base)
    )


def _refuse_doubles(node: Optional[yaml.Node], shown: str, path: str = "") -> None:
    """Raise ParamsError for a key that stands twice in one mapping: YAML takes the last, and says nothing."""
    seen: set = set()
    for key, value in node.value if isinstance(node, yaml.MappingNode) else []:
        name = f"{path}.{key.value}".lstrip(".")
        if name in seen:
            raise ParamsError(f"key '{name}' is given twice", where=f"{shown}: line {key.start_mark.line + 1}",
                              next_step="remove one of the two")
        seen.add(name)
        _refuse_doubles(value, shown, name)


def _forget_postgres() -> None:
    """Take libpq's variables (PGSSLMODE, PGSERVICE, PGOPTIONS …) out of our environment: set for a database elsewhere,
    they would change or refuse every connection to the embedded one, and not all of them yield to what a call says."""
    for name in [n for n in os.environ if n.startswith("PG")]:
        os.environ.pop(name, None)


def _port_base(raw: dict, shown: str) -> int:
    """Port base of this instance: WORKBENCH_PORT_BASE, else that of its running services, else the file's."""
    stack, stated = raw.get("stack"), os.environ.get("WORKBENCH_PORT_BASE")
    running = None if stated else pidfiles.port_base()
    if running is not None:
        return running
    if not stated and not (isinstance(stack, dict) and type(stack.get("port_base")) is int):
        return 0  # missing or mistyped: _build says so
    text = stated or stack["port_base"]
    base = int(text) if str(text).isdecimal() else -1  # isdigit is also true of ², which is no number for int
    if not 1024 <= base <= 65500:
        where = "the environment variable WORKBENCH_PORT_BASE" if stated else f"{shown}: stack.port_base"
        raise ParamsError(f"port base is {text!r}", where=where, expected="1024 to 65500")
    return base


def _substitute(value: Any, shown: str, base: int, path: str = "") -> Any:
    if isinstance(value, dict):
        return {k: _substitute(v, shown, base, f"{path}.{k}".lstrip(".")) for k, v in value.items()}
    if not isinstance(value, str):
        return value
    known = {"state": str(paths.state_dir()), "root": str(paths.LINK)}

    def replace(m: re.Match[str]) -> str:
        kind, _, arg = m.group(1).partition(":")
        if kind == "secret":
            return m.group(0)
        if kind == "port" and arg.isdecimal() and int(arg) < 40:
            return str(base + int(arg))
        if kind in known and not arg:
            return known[kind]
        raise ParamsError(
            f"unknown reference {m.group(0)}", where=f"{shown}: {path}",
            expected="${port:0…39}, ${state}, ${root} or ${secret:NAME}",
        )

    # a doubled $ is an escape: the text is for a Connect worker, not for us
    new = re.sub(r"(?<!\$)\$\{([^}]*)\}", replace, value).replace("$${", "${")
    return int(new) if new != value and new.isdecimal() else new


def _build(cls: type, raw: Any, shown: str, path: str) -> Any:
    hints = typing.get_type_hints(cls)
    fields = {f.name for f in dataclasses.fields(cls) if not f.metadata.get("derived")}
    if not isinstance(raw, dict):
        raise ParamsError(
            f"{path or 'the file'} is {_kind(raw)}", where=f"{shown}: {path}",
            expected=f"a mapping with {', '.join(sorted(fields))}",
        )
    for key in raw:
        if key not in fields:
            raise ParamsError(
                f"unknown key '{key}'", where=f"{shown}: {path + '.' if path else ''}{key}",
                expected=nearest(str(key), fields), next_step="rename or remove the key",
            )
    missing = sorted(fields - set(raw))
    if missing:
        raise ParamsError(
            f"missing key '{missing[0]}'", where=f"{shown}: {path + '.' if path else ''}{missing[0]}",
            expected=f"a value of type {_type_name(hints[missing[0]])}",
            next_step="copy the line from params/local.yaml and adapt it",
        )
    values = {k: _value(hints[k], raw[k], shown, f"{path}.{k}".lstrip(".")) for k in raw}
    for f in dataclasses.fields(cls):
        allowed = f.metadata.get("one_of")
        if allowed and values[f.name] not in allowed:
            raise ParamsError(f"{path}.{f.name} is {values[f.name]!r}", where=f"{shown}: {path}.{f.name}",
                              expected=nearest(str(values[f.name]), map(str, allowed)),
                              next_step=f.metadata.get("next_step", ""))
    return cls(**values)


def _value(kind: type, raw: Any, shown: str, path: str) -> Any:
    if kind is Secret:
        return Secret.parse(raw, where=f"{shown}: {path}")
    if dataclasses.is_dataclass(kind):
        return _build(kind, raw, shown, path)
    if kind is str and isinstance(raw, str) and "${secret:" in raw:
        raise ParamsError(
            "a secret stands where plain text is expected", where=f"{shown}: {path}",
            expected="a literal: this value is shown and logged",
        )
    if type(raw) is not kind:  # bool is an int for isinstance, and "8083" must not pass for a number
        raise ParamsError(
            f"{path} is {_kind(raw)}", where=f"{shown}: {path}", expected=f"a value of type {_type_name(kind)}",
        )
    return raw


def _kind(raw: Any) -> str:
    return "empty" if raw is None else f"{raw!r} ({type(raw).__name__})"


def _type_name(kind: type) -> str:
    return "mapping" if dataclasses.is_dataclass(kind) and kind is not Secret else kind.__name__.lower()


def host_port(address: str) -> Tuple[str, int]:
    """Split `host:port` (also with a scheme before it) into both."""
    host, _, port = re.sub(r"^\w+://", "", address).split("/")[0].rpartition(":")
    return host, int(port)


def choice(name: str, value: str, *choices: str) -> None:
    """Raise ParamsError when the value of a notebook's parameter is none of its choices."""
    if value not in choices:
        raise ParamsError(f"parameter {name} is {value!r}", expected=nearest(str(value), choices),
                          next_step="nothing was changed")


def between(name: str, value: int, least: int, most: int) -> None:
    """Raise ParamsError when the value of a notebook's parameter is no whole number from `least` to `most`."""
    if type(value) is not int or not least <= value <= most:
        raise ParamsError(f"parameter {name} is {value!r}", expected=f"a whole number from {least:,} to {most:,}",
                          next_step="nothing was changed")
