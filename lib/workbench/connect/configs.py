"""Connectors: config, plugins, validate, apply, status, wait_running, delete.

A configuration is the JSON in params/connectors, the same for a Kafka Connect and for MSK Connect. What differs is a
module per kind with the same public functions: connect_rest is there, MSK Connect's is not yet; `kind: msk` says so.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import urlsplit

from ..base.errors import ConnectorError, nearest
from ..base.params import World
from ..base.paths import ROOT
from . import rest

FOLDER = ROOT / "params" / "connectors"


def config(world: World, name: str, **more: Any) -> Dict[str, str]:
    """Return the connector configuration params/connectors/<name>.json with its ${placeholders} filled from `world`.

    Args:
        more: values for placeholders that the world does not know, or in place of the world's.

    Raises:
        ConnectorError: no such file; not a flat JSON object, or one with a key given twice; a placeholder nobody fills;
            an argument nobody uses.
    """
    path, shown = FOLDER / f"{name}.json", f"params/connectors/{name}.json"
    files = sorted(p.stem for p in FOLDER.glob("*.json"))
    if name not in files:
        raise ConnectorError(
            f"there is no connector configuration {name!r}", where=shown, expected=nearest(name, files)
        )
    try:
        raw = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=lambda pairs: _once(pairs, shown))
    except ValueError as e:
        raise ConnectorError(f"not JSON: {e}", where=shown) from e
    if not isinstance(raw, dict) or not all(isinstance(v, str) for v in raw.values()):
        raise ConnectorError(
            "a connector configuration is one flat object of texts",
            where=shown,
            expected='every value in quotes, such as "tasks.max": "1"',
        )
    values = {**placeholders(world), **{k: str(v) for k, v in more.items()}}
    used = set()

    def fill(key: str, match: re.Match[str]) -> str:
        used.add(match.group(1))
        if match.group(1) not in values:
            raise ConnectorError(
                f"unknown placeholder {match.group(0)}",
                where=f"{shown}: {key}",
                expected=nearest(match.group(1), values),
                next_step=f"correct it, or give it a value: connect.config(world, {name!r}, …=…)",
            )
        return values[match.group(1)]

    # one pass, so that a filled-in ${file:…} is left for the Connect worker to resolve
    filled = {k: re.sub(r"\$\{([^}:]*)\}", lambda m, k=k: fill(k, m), v) for k, v in raw.items()}
    for key in sorted(set(more) - used):
        raise ConnectorError(f"{shown} has no placeholder ${{{key}}}", where=shown, expected=nearest(key, used))
    return filled


def _once(pairs: List[Tuple[str, Any]], shown: str) -> Dict[str, Any]:
    """Return what `dict` would, but refuse a key that is given twice: JSON takes the last, and says nothing."""
    found: Dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ConnectorError(f"key {key!r} is given twice", where=f"{shown}: {key}",
                                 next_step="remove one of the two")
        found[key] = value
    return found


def placeholders(world: World) -> Dict[str, str]:
    """Return what `world` fills into connector configurations. No secret is among it, only a reference to one."""
    pg, region = world.postgres, world.region
    lake = urlsplit(world.lake.landing)
    return {
        "topic_prefix": world.connect.topic_prefix,
        # PostgreSQL: "lower-case letters, numbers, and the underscore character"
        "slot_prefix": re.sub(r"[^a-z0-9_]", "_", world.connect.topic_prefix.lower()),
        "database_host": pg.host,
        "database_port": str(pg.port),
        "database_name": pg.database,
        "database_user": pg.replication_user,
        "password_reference": world.connect.password_reference,
        "moma_database": "moma",  # the time travel walkthrough's, by whose name its topics begin, too
        "registry_url": f"{world.registry.url}/apis/registry/v2" if world.registry.url else "",
        "kafka_bootstrap": world.kafka.bootstrap,
        "region": region or "local",
        "s3_endpoint": f"https://s3.{region}.amazonaws.com/" if region else "",
        # where the lake is a folder there is no bucket; its landing folder takes that place
        "bucket": lake.netloc if lake.scheme.startswith("s3") else "landing",
    }


def _side(world: World) -> Any:
    """Return the module that does the work for this world's kind of Connect."""
    if world.connect.kind == "rest":
        return rest
    raise ConnectorError(
        f"connectors of kind {world.connect.kind!r} are not there yet",
        where=f"{world.file}: connect.kind",
        expected="rest (a Kafka Connect)",
        next_step="choose a world whose connect.kind is rest",
    )


def plugins(world: World) -> List[Dict[str, str]]:
    """Return the connector plugins there are, as dicts with class, type ("source" or "sink") and version."""
    return _side(world).plugins(world)


def validate(world: World, config: Dict[str, str], name: str = "") -> None:
    """Let the plugin itself judge a configuration, without deploying it.

    For Debezium this also tries the database. Keys that nobody knows are refused too (Connect and Debezium ignore them
    silently), and so is a secret written out.

    Raises:
        ConnectorError: one, that lists every refused key with its message.
    """
    _side(world).validate(world, config, name)


def apply(world: World, name: str, config: Dict[str, str]) -> Dict[str, Any]:
    """Deploy a connector, or bring it to this configuration; the same again changes nothing. Returns its `status`.

    Raises:
        ConnectorError: the configuration is not valid (nothing is deployed then), or no plugin for it.
    """
    return _side(world).apply(world, name, config)


def names(world: World) -> List[str]:
    """Return the names of the connectors deployed now."""
    return _side(world).names(world)


def status(world: World, name: str) -> Dict[str, Any]:
    """Return {name, type, state, worker, error, tasks: [{id, state, worker, error}]}; `error` begins the trace.

    Raises:
        ConnectorError: there is no such connector.
    """
    return _side(world).status(world, name)


def failure(world: World, name: str) -> Optional[str]:
    """Return a sentence (first line of the trace, likely causes) when a connector or task is FAILED, else None."""
    return _side(world).failure(world, name)


def wait_running(world: World, name: str, *, timeout: float = 60, settle: float = 1.0) -> Dict[str, Any]:
    """Wait until a connector and all its tasks are RUNNING, and stay so for `settle` seconds; return its `status`.

    Raises:
        ConnectorError: at once when one of them is FAILED, with the first line of the trace and likely causes.
    """
    return _side(world).wait_running(world, name, timeout=timeout, settle=settle)


def restart(world: World, name: str) -> None:
    """Start again what has FAILED of a connector: itself, its tasks. It goes on where it was. See `wait_running`."""
    _side(world).restart(world, name)


def delete(world: World, name: str, *, forget_offsets: bool = True) -> None:
    """Delete a connector and wait until it is gone; one that is not there is fine.

    Args:
        forget_offsets: also forget how far it had read, so that the next `apply` takes a new snapshot (a new connector
            of MSK Connect always does). The replication slot stays: see postgres.drop_slot.
    """
    _side(world).delete(world, name, forget_offsets=forget_offsets)
