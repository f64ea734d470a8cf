"""Addresses in connector configurations: updated after the ports of an instance have changed.

Kafka keeps a configuration with the addresses of the day of its deployment. After a start with
another port base the connector would be RUNNING and read nothing, or read the services of another
instance at the old ports.
"""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from ..base import ConnectorError, World, files, local_path, paths
from . import connect_api
from .artifacts import Progress

Config = dict[str, str]
Configs = dict[str, Config]  # by the name of the connector
Addresses = dict[str, str]  # {service: host:port}

# below the state folder: {"": addresses of the services, connector: the old ones that it still has}
RECORD = "addresses.json"
# beside it, until the record is written: every update that was started since
UNFINISHED = "addresses.unfinished.json"
# below the lake's checkpoints: the connectors of the built-in runner (see landing.builtin_runner)
LANDING_JOBS = "connectors.json"
LOOPBACK_ADDRESS = re.compile(r"(https?://)?(127\.0\.0\.1|localhost):\d+")


def service_addresses(world: World) -> Addresses:
    """Return the addresses of the services that connector configurations name."""
    return {
        "postgres": f"{world.postgres.host}:{world.postgres.port}",
        "mariadb": f"{world.mysql.host}:{world.mysql.port}",
        "kafka": world.kafka.bootstrap,
        "apicurio": urlsplit(world.registry.url).netloc,
    }


def replace_addresses(config: Config, old: Addresses, new: Addresses) -> Config:
    """Return a configuration in which new addresses replace the old ones of the same service.

    Other addresses are unchanged.
    """
    moved = {
        old[name]: new[name] for name in new if old[name] != new[name] and old[name] and new[name]
    }
    if not moved:
        return config
    pattern = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, moved))})(?!\d)")
    changed = {
        key: pattern.sub(lambda match: moved[match[1]], value) for key, value in config.items()
    }
    for key, host in config.items():
        if key.endswith(".hostname"):  # Debezium has host and port in two keys
            port_key = f"{key.removesuffix('hostname')}port"
            address = moved.get(f"{host}:{config.get(port_key)}")
            if address:
                changed[key], changed[port_key] = address.rsplit(":", 1)
    return changed


def differ_only_in_addresses(first: Config, second: Config) -> bool:
    """Return whether two configurations differ, and only in addresses of this machine."""

    def mask(config: Config) -> Config:
        masked = {key: LOOPBACK_ADDRESS.sub("", value) for key, value in config.items()}
        return {key: "" if key.endswith(".port") else value for key, value in masked.items()}

    return first != second and mask(first) == mask(second)


def deployed_configs(world: World) -> Configs:
    """Return the connectors of an embedded world: those of Kafka Connect and of the runner."""
    return {**connect_configs(world), **_job_configs(_load_jobs(world))}


def connect_configs(world: World) -> Configs:
    """Return the connectors of Kafka Connect.

    Raises:
        StackError: Kafka Connect does not answer.
    """
    return connect_api.configurations(connect_api.call(world, "GET", connect_api.CONNECTORS_PATH))


def _job_configs(jobs: dict[str, Any]) -> Configs:
    return {name: job["config"] for name, job in jobs.items()}


def _load_jobs(world: World) -> dict[str, Any]:
    return json.loads(files.read_text(_jobs_uri(world)) or "{}")


def update_connectors(world: World, progress: Progress) -> None:
    """Put this world's addresses into deployed connectors if the last start had other addresses.

    Kafka Connect has to run. A connector whose new configuration is rejected (its database is not
    running) is updated at the next start.

    An interrupted update is completed by the next one. A file receives the new configurations
    before the first of them is deployed, and is removed when an update is done. So no configuration
    is updated twice where old and new ports overlap, and none is lost after several interruptions.

    Args:
        world: the world whose services run.
        progress: called with one line per connector that was updated or rejected.

    Raises:
        StackError: Kafka Connect does not answer.
    """
    record, unfinished = paths.state_dir() / RECORD, paths.state_dir() / UNFINISHED
    previous, current = _read_json(record), service_addresses(world)
    if previous == {"": current} and not unfinished.exists():
        return
    rejected = _update_configs(world, previous, current, progress) if previous else {}
    _write_json(record, {"": current, **rejected})
    unfinished.unlink(missing_ok=True)


def _read_json(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _write_json(file: Path, content: dict[str, Any]) -> None:
    files.write_text(f"file:{file}", json.dumps(content, indent=1))


def _update_configs(
    world: World, previous: dict[str, Addresses], current: Addresses, progress: Progress
) -> dict[str, Addresses]:
    """Update all configurations; return the old addresses of connectors that were rejected."""
    file = paths.state_dir() / UNFINISHED
    started = _read_json(file).get("updates", [])
    connectors = connect_configs(world)
    # Any other lake of an embedded world starts empty.
    has_jobs = local_path(_jobs_uri(world)) is not None
    jobs = _job_configs(_load_jobs(world)) if has_jobs else {}

    def old_addresses(kind: str, name: str, config: Config) -> Addresses:
        for update in started:
            if update[kind].get(name) == config:
                return update["addresses"]
        return previous.get(name, previous[""]) if kind == "connectors" else previous[""]

    def updated(kind: str, configs: Configs) -> Configs:
        return {
            name: replace_addresses(config, old_addresses(kind, name, config), current)
            for name, config in configs.items()
        }

    new = {"connectors": updated("connectors", connectors), "jobs": updated("jobs", jobs)}
    _write_json(file, {"updates": [*started, {"addresses": current, **new}]})
    rejected = {}
    for name, config in sorted(connectors.items()):
        new_config = new["connectors"][name]
        if new_config == config:
            continue
        try:
            connect_api.call(world, "PUT", f"/connectors/{quote(name, safe='')}/config", new_config)
            progress(f"connector {name} has the new addresses")
        except ConnectorError as e:
            rejected[name] = old_addresses("connectors", name, config)
            progress(f"connector {name} still has the old addresses: {e.message}")
    if has_jobs:
        _update_jobs(world, jobs, new["jobs"])
    return rejected


def _update_jobs(world: World, old: Configs, new: Configs) -> None:
    """Store the new configurations of jobs, except of those that have been changed meanwhile."""
    uri = _jobs_uri(world)
    with files.exclusive_lock(uri):
        jobs = _load_jobs(world)
        for name, job in jobs.items():
            if job["config"] == old.get(name):
                job["config"] = new[name]
        files.write_text(uri, json.dumps(jobs, indent=1))


def _jobs_uri(world: World) -> str:
    return f"{world.lake.checkpoints}/{LANDING_JOBS}"
