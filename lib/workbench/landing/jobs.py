"""Connectors that run as jobs of ours where the Kafka Connect has no plugin for them. The verbs are those of `connect`.

A Connect works on its own, again and again; such a job works when `step` is called. What is deployed so is kept below
the lake's checkpoints, a file for each connector: its configuration, state and error. Whose plugin is there is deployed
in the Connect, and the job steps aside.
"""
from __future__ import annotations

import json
from typing import Any, Optional, Union
from urllib.parse import quote, unquote

from pyspark.sql import SparkSession

from .. import connect
from ..base import ConnectorError, WorkbenchError, World, files, nearest
from . import job, polling, settings, sinks, sources

WORKER = "workbench.landing"  # in the place of a Connect worker's address


def apply(world: World, name: str, config: dict[str, str]) -> dict[str, Any]:
    """Deploy a connector, or bring it to this configuration; the same again changes nothing. Returns its `status`.

    Raises: ConnectorError: the configuration cannot be honoured, or there is neither a plugin for it nor a job; nothing
        is deployed then. The Connect runs another connector of this name.
    """
    if config.get("connector.class") in [plugin["class"] for plugin in connect.plugins(world)]:
        applied = connect.apply(world, name, config)
        files.remove(_place(world, name))
        return applied
    if not _is_source(config) and config.get("connector.class") not in settings.HONOURED["sink"]:
        connect.validate(world, config, name)  # says what is missing
    (sources.parse if _is_source(config) else sinks.parse)({"name": name, **config}, world)
    if name in connect.names(world):
        raise ConnectorError(f"connector {name!r} runs in the Connect", where=world.connect.url,
                             expected="another name", next_step=f"connect.delete(world, {name!r}) removes that one")
    if (_read(world, name) or {}).get("config") != config:
        _write(world, name, config, "UNASSIGNED")
    return status(world, name)


def names(world: World) -> list[str]:
    """Return the names of the connectors deployed now, of the Connect and of ours."""
    return sorted({*connect.names(world), *_ours(world)})


def status(world: World, name: str) -> dict[str, Any]:
    """Return as `connect.status` does; `worker` says which side it runs on. A job of ours has one task, UNASSIGNED
    before its first step, RUNNING after one that went well, else FAILED.

    Raises: ConnectorError: there is no such connector.
    """
    kept = _read(world, name)
    if kept is None:
        if name not in connect.names(world):
            raise ConnectorError(f"there is no connector {name!r}", expected=nearest(name, names(world)),
                                 next_step="deploy it with landing.apply")
        return connect.status(world, name)
    now = {"state": kept["state"], "worker": WORKER, "error": kept["error"]}
    kind = "source" if _is_source(kept["config"]) else "sink"
    return {"name": name, "type": kind, **now, "tasks": [{"id": 0, **now}]}


def step(spark: SparkSession, world: World, *only: str) -> dict[str, Union[polling.Polled, job.LandingCounts]]:
    """One poll of each source that is a job of ours, then one landing of each sink; of these connectors, or of all.

    Those in the Connect do their work by themselves. One that fails does not keep the others from theirs; the next step
    tries it again.

    Returns: {name: counts}.
    Raises: ConnectorError: there is no such connector. WorkbenchError: what the first one that failed has said.
    """
    here = [name for name in only or _ours(world) if status(world, name)["worker"] == WORKER]
    configs = {name: (_read(world, name) or {})["config"] for name in here}
    done: dict[str, Any] = {}
    failed: list[WorkbenchError] = []
    for name in sorted(here, key=lambda name: not _is_source(configs[name])):
        work = polling.poll if _is_source(configs[name]) else job.run
        try:
            done[name] = work(spark, world, {"name": name, **configs[name]})
            _write(world, name, configs[name], "RUNNING")
        except WorkbenchError as e:
            failed.append(e)
            _write(world, name, configs[name], "FAILED", e.what)
    if failed:
        raise failed[0]
    return done


def delete(world: World, name: str) -> None:
    """Delete a connector; one that is not there is fine. How far it had come is forgotten, too; topics and landed files
    stay. Raises: LakeError: its job is at work."""
    kept = _read(world, name)
    if kept is None:
        connect.delete(world, name)
        return
    config = {"name": name, **kept["config"]}
    if _is_source(config):
        polling.forget(world, config)
    else:
        job.forget(world, config)
    files.remove(_place(world, name))


def _is_source(config: dict[str, str]) -> bool:
    return config.get("connector.class") == sources.JDBC


def _place(world: World, name: str) -> str:
    return f"{world.lake.checkpoints}/connectors/{quote(name, safe='')}.json"


def _ours(world: World) -> list[str]:
    found = [i.base_name for i in files.entries(f"{world.lake.checkpoints}/connectors") if i.extension == "json"]
    return sorted(unquote(name.removesuffix(".json")) for name in found)


def _read(world: World, name: str) -> Optional[dict[str, Any]]:
    return json.loads(files.read_text(_place(world, name)) or "null")


def _write(world: World, name: str, config: dict[str, str], state: str, error: str = "") -> None:
    files.write_text(_place(world, name), json.dumps({"config": config, "state": state, "error": error}, indent=1))
