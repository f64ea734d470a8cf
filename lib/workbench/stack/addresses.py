"""The addresses in connector configurations: updated after the ports of an instance have changed.

A configuration holds the addresses of the day that it was deployed, and Kafka keeps it. After a start with another port
base its connector would be RUNNING and read nothing, or read what another instance has at the old ports.
"""

import json
import re
from typing import Any, Callable
from urllib.parse import quote, urlsplit

from ..base import StackError, World, files, http, local_path, paths

RECORD = "addresses.json"  # below the state folder: {"": addresses of the services, connector: those that it still has}
LANDING_JOBS = "connectors.json"  # below the lake's checkpoints: the connectors that run as jobs (see landing.jobs)
LOCAL = re.compile(r"(https?://)?(127\.0\.0\.1|localhost):\d+")


def of(world: World) -> dict[str, str]:
    """Return {service: host:port} of the services that connector configurations name."""
    return {"postgres": f"{world.postgres.host}:{world.postgres.port}",
            "mariadb": f"{world.mysql.host}:{world.mysql.port}",
            "kafka": world.kafka.bootstrap, "apicurio": urlsplit(world.registry.url).netloc}


def updated(config: dict[str, str], old: dict[str, str], new: dict[str, str]) -> dict[str, str]:
    """Return a configuration with new addresses in the place of old ones; others are left alone.

    Args:
        old, new: {service: host:port}.
    """
    moved = {old[name]: new[name] for name in new if old[name] != new[name] and old[name] and new[name]}
    if not moved:
        return config
    pattern = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, moved))})(?!\d)")
    changed = {key: pattern.sub(lambda match: moved[match[1]], value) for key, value in config.items()}
    for key in (key for key in config if key.endswith(".hostname")):  # Debezium has host and port in two keys
        port = key[:-len("hostname")] + "port"
        address = moved.get(f"{config[key]}:{config.get(port)}")
        if address:
            changed[key], changed[port] = address.rsplit(":", 1)
    return changed


def differ_only(one: dict[str, str], other: dict[str, str]) -> bool:
    """Return whether two configurations differ, and in nothing but addresses on this machine."""
    def masked(config: dict[str, str]) -> dict[str, str]:
        return {key: "" if key.endswith(".port") else LOCAL.sub("", value) for key, value in config.items()}

    return one != other and masked(one) == masked(other)


def deployed(world: World) -> dict[str, dict[str, str]]:
    """Return {connector: configuration} of an embedded world, of Kafka Connect and of the jobs."""
    connectors = _connect(world, "GET", "/connectors?expand=info")
    jobs = json.loads(files.read_text(_jobs(world)) or "{}")
    return {**{name: known["info"]["config"] for name, known in connectors.items()},
            **{name: job["config"] for name, job in jobs.items()}}


def update(world: World, say: Callable[[str], None]) -> None:
    """Give deployed connectors the addresses of this world, where the services had others at the last start.

    Kafka Connect has to run. A connector whose new configuration it refuses (the database does not run) is tried again
    at the next start.

    Args:
        say: is called with one line for each connector that was updated or refused.

    Raises:
        StackError: Kafka Connect does not answer.
    """
    record, now = paths.state_dir() / RECORD, of(world)
    before = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    if before == {"": now}:
        return
    behind = _update_connectors(world, before, now, say) if before else {}
    files.write_text(f"file:{record}", json.dumps({"": now, **behind}, indent=1))


def _update_connectors(world: World, before: dict[str, dict[str, str]], now: dict[str, str],
                       say: Callable[[str], None]) -> dict[str, dict[str, str]]:
    """Return {connector: its old addresses} of those that Kafka Connect refused."""
    behind = {}
    for name, known in sorted(_connect(world, "GET", "/connectors?expand=info").items()):
        config, old = known["info"]["config"], before.get(name, before[""])
        wanted = updated(config, old, now)
        if wanted == config:
            continue
        try:
            _connect(world, "PUT", f"/connectors/{quote(name, safe='')}/config", wanted)
            say(f"connector {name} has the new addresses")
        except StackError as e:
            behind[name] = old
            say(f"connector {name} still has the old addresses: {e.what}")
    if local_path(_jobs(world)):  # any other lake of an embedded world begins empty
        with files.alone(_jobs(world)):
            jobs = json.loads(files.read_text(_jobs(world)) or "{}")
            jobs = {name: {**job, "config": updated(job["config"], before[""], now)} for name, job in jobs.items()}
            files.write_text(_jobs(world), json.dumps(jobs, indent=1))
    return behind


def _jobs(world: World) -> str:
    return f"{world.lake.checkpoints}/{LANDING_JOBS}"


def _connect(world: World, method: str, path: str, body: Any = None) -> Any:
    answer = http.call("Kafka Connect", method, world.connect.url.rstrip("/") + path, body, auth=world.connect.auth)
    if answer.status_code >= 400:
        raise StackError(f"Kafka Connect answers {answer.status_code}: {answer.text[:300]}", where=f"{method} {path}")
    return answer.json()
