"""Update the addresses in connector configurations after the ports of an instance have changed.

Kafka Connect keeps a configuration with the addresses at the time of its deployment. After a start
with another port base, the connector would be RUNNING, but read nothing, or read the services of
another instance at the old ports.
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
Configs = dict[str, Config]  # {connector: configuration}
Addresses = dict[str, str]  # {service: host:port}

# In the state folder. The key "" has the addresses of the services; each other key is a connector
# whose update was rejected, with the old addresses in its configuration.
RECORD_FILE = "addresses.json"
# In the same folder until an update is complete: {"updates": the updates started since then}. An
# update has addresses, the new configurations in Kafka Connect (connectors) and in the runner (jobs).
UNFINISHED_FILE = "addresses.unfinished.json"
# In the lake's checkpoints folder: the connectors of the built-in runner (landing.builtin_runner).
RUNNER_STATE_FILE = "connectors.json"
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
    """Return a configuration with the new address of a service wherever it has the old one.

    Args:
        config: the configuration.
        old: the addresses to replace.
        new: their replacements.
    """
    replacements = {
        old[name]: new[name] for name in new if old[name] != new[name] and old[name] and new[name]
    }
    if not replacements:
        return config
    pattern = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, replacements))})(?!\d)")
    changed = {
        key: pattern.sub(lambda match: replacements[match[1]], value)
        for key, value in config.items()
    }
    for key, host in config.items():
        if key.endswith(".hostname"):  # Debezium has host and port in two keys
            port_key = f"{key.removesuffix('hostname')}port"
            address = replacements.get(f"{host}:{config.get(port_key)}")
            if address:
                changed[key], changed[port_key] = address.rsplit(":", 1)
    return changed


def differ_only_in_addresses(first: Config, second: Config) -> bool:
    """Return whether the only differences of two configurations are ports and loopback addresses.

    The result is False for equal configurations.

    Args:
        first: a configuration.
        second: another configuration.
    """

    def mask(config: Config) -> Config:
        masked = {key: LOOPBACK_ADDRESS.sub("", value) for key, value in config.items()}
        return {key: "" if key.endswith(".port") else value for key, value in masked.items()}

    return first != second and mask(first) == mask(second)


def deployed_configs(world: World) -> Configs:
    """Return the connectors of an embedded world, in Kafka Connect and in the built-in runner.

    Raises:
        StackError: Kafka Connect does not respond.
    """
    return {**connect_configs(world), **_runner_configs(_load_runner_state(world))}


def connect_configs(world: World) -> Configs:
    """Return the connectors in Kafka Connect.

    Raises:
        StackError: Kafka Connect does not respond.
    """
    return connect_api.configurations(connect_api.call(world, "GET", connect_api.CONNECTORS_PATH))


def _runner_configs(state: dict[str, Any]) -> Configs:
    return {name: connector["config"] for name, connector in state.items()}


def _load_runner_state(world: World) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(files.read_text(_runner_state_uri(world)) or "{}")
    return state


def update_connectors(world: World, progress: Progress) -> None:
    """Update the deployed connectors if the services have other addresses than at the last start.

    Kafka Connect must be running. If it rejects a new configuration, for example because the
    database is down, the next start updates that connector.

    The next call completes an interrupted update. All new configurations are written to a file
    before the first is deployed, and the file is removed after the last. So no configuration is
    updated twice if old and new ports overlap, and none is lost after several interruptions.

    Args:
        world: the world of the running services.
        progress: called with one line per connector that was updated or rejected.

    Raises:
        StackError: Kafka Connect does not respond.
    """
    record, unfinished = paths.state_dir() / RECORD_FILE, paths.state_dir() / UNFINISHED_FILE
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
    file = paths.state_dir() / UNFINISHED_FILE
    unfinished_updates = _read_json(file).get("updates", [])
    connectors = connect_configs(world)
    # A lake in the embedded S3 endpoint is empty after each start, so it has no runner state.
    has_runner_state = local_path(_runner_state_uri(world)) is not None
    runner_configs = _runner_configs(_load_runner_state(world)) if has_runner_state else {}

    def old_addresses(kind: str, name: str, config: Config) -> Addresses:
        for update in unfinished_updates:
            if update[kind].get(name) == config:
                addresses: Addresses = update["addresses"]
                return addresses
        return previous.get(name, previous[""]) if kind == "connectors" else previous[""]

    def updated(kind: str, configs: Configs) -> Configs:
        return {
            name: replace_addresses(config, old_addresses(kind, name, config), current)
            for name, config in configs.items()
        }

    new = {"connectors": updated("connectors", connectors), "jobs": updated("jobs", runner_configs)}
    _write_json(file, {"updates": [*unfinished_updates, {"addresses": current, **new}]})
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
    if has_runner_state:
        _update_runner(world, runner_configs, new["jobs"])
    return rejected


def _update_runner(world: World, old: Configs, new: Configs) -> None:
    """Store new configurations in the runner's state, unless the user has changed them meanwhile."""
    uri = _runner_state_uri(world)
    with files.exclusive_lock(uri):
        state = _load_runner_state(world)
        for name, connector in state.items():
            if connector["config"] == old.get(name):
                connector["config"] = new[name]
        files.write_text(uri, json.dumps(state, indent=1))


def _runner_state_uri(world: World) -> str:
    return f"{world.lake.checkpoints}/{RUNNER_STATE_FILE}"
