"""The addresses in connector configurations: updated after the ports of an instance have changed.

A configuration holds the addresses of the day that it was deployed, and Kafka keeps it. After a
start with another port base its connector would be RUNNING and read nothing, or read what another
instance has at the old ports.
"""

import json
import re
from pathlib import Path
from typing import Any, Callable
from urllib.parse import quote, urlsplit

from ..base import ConnectorError, World, files, local_path, paths
from . import connect_api

# below the state folder: {"": addresses of the services, connector: those that it still has}
RECORD = "addresses.json"
# beside it, until the record is written: each update that was begun since
UNFINISHED = "addresses.unfinished.json"
# below the lake's checkpoints: the connectors that run as jobs (see landing.builtin_runner)
LANDING_JOBS = "connectors.json"
LOOPBACK_ADDRESS = re.compile(r"(https?://)?(127\.0\.0\.1|localhost):\d+")


def service_addresses(world: World) -> dict[str, str]:
    """Return {service: host:port} of the services that connector configurations name."""
    return {
        "postgres": f"{world.postgres.host}:{world.postgres.port}",
        "mariadb": f"{world.mysql.host}:{world.mysql.port}",
        "kafka": world.kafka.bootstrap,
        "apicurio": urlsplit(world.registry.url).netloc,
    }


def replace_addresses(
    config: dict[str, str], old: dict[str, str], new: dict[str, str]
) -> dict[str, str]:
    """Return a configuration with new addresses in the place of old ones; others are left alone.

    Args:
        old, new: {service: host:port}.
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
    for key in (
        key for key in config if key.endswith(".hostname")
    ):  # Debezium has host and port in two keys
        port = key[: -len("hostname")] + "port"
        address = moved.get(f"{config[key]}:{config.get(port)}")
        if address:
            changed[key], changed[port] = address.rsplit(":", 1)
    return changed


def differ_only_in_addresses(one: dict[str, str], other: dict[str, str]) -> bool:
    """Return whether two configurations differ, and in nothing but addresses on this machine."""

    def masked(config: dict[str, str]) -> dict[str, str]:
        return {
            key: "" if key.endswith(".port") else LOOPBACK_ADDRESS.sub("", value)
            for key, value in config.items()
        }

    return one != other and masked(one) == masked(other)


def deployed_configs(world: World) -> dict[str, dict[str, str]]:
    """Return {connector: configuration} of an embedded world, of Kafka Connect and of the jobs."""
    return {**connect_configs(world), **_job_configs(world)}


def connect_configs(world: World) -> dict[str, dict[str, str]]:
    """Return {connector: configuration} of Kafka Connect, which has to run. Raises: StackError: no
    answer.
    """
    return connect_api.configurations(connect_api.call(world, "GET", connect_api.CONNECTORS_PATH))


def _job_configs(world: World) -> dict[str, dict[str, str]]:
    return {
        name: job["config"]
        for name, job in json.loads(files.read_text(_jobs_uri(world)) or "{}").items()
    }


def update_connectors(world: World, progress: Callable[[str], None]) -> None:
    """Give deployed connectors the addresses of this world, where the services had others at the
    last start.

    Kafka Connect has to run. A connector whose new configuration it refuses (the database does not
    run) is tried again at the next start. An update that was interrupted is finished: the new
    configurations are added to a file before the first of them is deployed, and stay there until an
    update is done. No configuration is updated twice where old and new ports overlap, and none is
    forgotten after several interruptions.

    Args:
        say: is called with one line for each connector that was updated or refused.

    Raises:
        StackError: Kafka Connect does not answer.
    """
    record, unfinished, now = (
        paths.state_dir() / RECORD,
        paths.state_dir() / UNFINISHED,
        service_addresses(world),
    )
    before = _read(record)
    if before == {"": now} and not unfinished.exists():
        return
    behind = _update_configs(world, before, now, progress) if before else {}
    _write(record, {"": now, **behind})
    unfinished.unlink(missing_ok=True)


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _write(file: Path, content: dict[str, Any]) -> None:
    files.write_text(f"file:{file}", json.dumps(content, indent=1))


def _update_configs(
    world: World,
    before: dict[str, dict[str, str]],
    now: dict[str, str],
    progress: Callable[[str], None],
) -> dict[str, dict[str, str]]:
    """Return {connector: its old addresses} of those that Kafka Connect refused."""
    file = paths.state_dir() / UNFINISHED
    begun = _read(file).get("updates", [])
    has_jobs = (
        local_path(_jobs_uri(world)) is not None
    )  # any other lake of an embedded world begins empty
    connectors, jobs = connect_configs(world), _job_configs(world) if has_jobs else {}

    def addresses_in(
        kind: str, name: str, config: dict[str, str], recorded: dict[str, str]
    ) -> dict[str, str]:
        return next((one["addresses"] for one in begun if one[kind].get(name) == config), recorded)

    old = {
        name: addresses_in("connectors", name, config, before.get(name, before[""]))
        for name, config in connectors.items()
    }
    wanted = {
        name: replace_addresses(config, old[name], now) for name, config in connectors.items()
    }
    wanted_jobs = {
        name: replace_addresses(config, addresses_in("jobs", name, config, before[""]), now)
        for name, config in jobs.items()
    }
    _write(
        file, {"updates": [*begun, {"addresses": now, "connectors": wanted, "jobs": wanted_jobs}]}
    )
    behind = {}
    for name, config in sorted(connectors.items()):
        if wanted[name] == config:
            continue
        try:
            connect_api.call(
                world, "PUT", f"/connectors/{quote(name, safe='')}/config", wanted[name]
            )
            progress(f"connector {name} has the new addresses")
        except ConnectorError as e:
            behind[name] = old[name]
            progress(f"connector {name} still has the old addresses: {e.message}")
    if has_jobs:
        with files.exclusive_lock(_jobs_uri(world)):
            kept = json.loads(files.read_text(_jobs_uri(world)) or "{}")
            kept = {
                name: {**job, "config": wanted_jobs[name]}
                if job["config"] == jobs.get(name)
                else job
                for name, job in kept.items()
            }
            files.write_text(_jobs_uri(world), json.dumps(kept, indent=1))
    return behind


def _jobs_uri(world: World) -> str:
    return f"{world.lake.checkpoints}/{LANDING_JOBS}"
