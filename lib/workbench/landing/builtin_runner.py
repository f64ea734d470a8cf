"""Connectors that run as jobs of ours where the Kafka Connect has no plugin for them. The verbs are
those of `connect`.

A Connect works on its own, again and again; such a job works when `step` is called. What is
deployed so is kept below the lake's checkpoints: each one's configuration, state and error. Whose
plugin is there is deployed in the Connect, and the job steps aside.
"""

import json
from typing import Any, Optional, Union

from pyspark.sql import SparkSession

from .. import connect
from ..base import ConnectorError, WorkbenchError, World, files
from ..connect.validation import reject_plaintext_secrets
from ..stack.addresses import LANDING_JOBS
from . import job, polling, settings, sinks, sources

WORKER = "workbench.landing"  # in the place of a Connect worker's address
# {kind of connector: (what reads its JSON, what does its work, what forgets how far it came)},
# sources first
CONNECTOR_KINDS = {
    "source": (
        sources.parse,
        lambda spark, world, config: polling.poll(world, config),
        polling.reset_offsets,
    ),
    "sink": (sinks.parse, job.run, job.delete_checkpoint),
}


def apply(world: World, name: str, config: dict[str, str]) -> dict[str, Any]:
    """Deploy a connector, or bring it to this configuration; the same again changes nothing.
    Returns its `status`.

    Raises: ConnectorError: the configuration cannot be honoured, or there is neither a plugin for
        it nor a job; nothing is deployed then. The Connect runs another connector of this name.
    """
    kind = _kind(config)
    if kind is None or config["connector.class"] in [
        plugin["class"] for plugin in connect.plugins(world)
    ]:
        applied = connect.apply(world, name, config)
        _save_state(world, name, None)
        return applied
    reject_plaintext_secrets(world, name, config)  # the configuration is kept in a file
    parse, _, _ = CONNECTOR_KINDS[kind]
    parse({"name": name, **config}, world)
    if name in connect.names(world):
        raise ConnectorError(
            f"connector {name!r} runs in the Connect",
            location=world.connect.url,
            expected="another name",
            hint=f"connect.delete(world, {name!r}) removes that one",
        )
    if _load_state(world).get(name, {}).get("config") != config:
        _save_state(world, name, {"config": config, "state": "UNASSIGNED", "error": ""})
    return status(world, name)


def names(world: World) -> list[str]:
    """Return the names of the connectors deployed now, of the Connect and of ours."""
    return sorted({*connect.names(world), *_load_state(world)})


def status(world: World, name: str) -> dict[str, Any]:
    """Return as `connect.status` does; `worker` says which side it runs on. A job of ours has one
    task, UNASSIGNED before its first step, RUNNING after one that went well, else FAILED.

    Raises: ConnectorError: there is no such connector.
    """
    kept = _load_state(world).get(name)
    if kept is None:
        return connect.status(world, name)
    now = {"state": kept["state"], "worker": WORKER, "error": kept["error"]}
    return {"name": name, "type": _kind(kept["config"]), **now, "tasks": [{"id": 0, **now}]}


def run_once(
    spark: SparkSession, world: World, *only: str
) -> dict[str, Union[polling.Polled, job.LandingCounts]]:
    """One poll of each source that is a job of ours, then one landing of each sink; of these
    connectors, or of all.

    Those in the Connect do their work by themselves. One that fails does not keep the others from
    theirs; the next step tries it again.

    Returns: {name: counts}.
    Raises: ConnectorError: there is no such connector. WorkbenchError: what the first one that
        failed has said.
    """
    for name in only:
        status(world, name)
    ours = {
        name: kept["config"]
        for name, kept in _load_state(world).items()
        if not only or name in only
    }
    done: dict[str, Any] = {}
    failed: list[WorkbenchError] = []
    for name, config in sorted(
        ours.items(), key=lambda one: [*CONNECTOR_KINDS].index(_kind(one[1]))
    ):
        _, work, _ = CONNECTOR_KINDS[_kind(config)]
        try:
            done[name] = work(spark, world, {"name": name, **config})
            _save_state(world, name, {"config": config, "state": "RUNNING", "error": ""}, config)
        except Exception as e:
            _save_state(
                world,
                name,
                {"config": config, "state": "FAILED", "error": getattr(e, "message", repr(e))},
                config,
            )
            if not isinstance(e, WorkbenchError):
                raise
            failed.append(e)
    if failed:
        raise failed[0]
    return done


def delete(world: World, name: str) -> None:
    """Delete a connector; one that is not there is fine. How far it had come is forgotten, too;
    topics and landed files stay. Raises: LakeError: its job is at work.
    """
    kept = _load_state(world).get(name)
    if kept is None:
        connect.delete(world, name)
        return
    _, _, forget = CONNECTOR_KINDS[_kind(kept["config"])]
    forget(world, {"name": name, **kept["config"]})
    _save_state(world, name, None)


def _kind(config: dict[str, str]) -> Optional[str]:
    return next(
        (
            kind
            for kind in CONNECTOR_KINDS
            if config.get("connector.class") in settings.SUPPORTED[kind]
        ),
        None,
    )


def _state_path(world: World) -> str:
    return f"{world.lake.checkpoints}/{LANDING_JOBS}"


def _load_state(world: World) -> dict[str, dict[str, Any]]:
    """{name: {"config": …, "state": …, "error": …}}"""
    return json.loads(files.read_text(_state_path(world)) or "{}")


def _save_state(
    world: World, name: str, kept: Optional[dict[str, Any]], of: Optional[dict[str, str]] = None
) -> None:
    """Keep a connector, or forget it where `kept` is None. of: only where it still has this
    configuration: what was applied or deleted while it was at work stays so.
    """
    with files.exclusive_lock(_state_path(world)):  # another notebook may keep one at the same time
        ours = _load_state(world)
        if of is not None and ours.get(name, {}).get("config") != of:
            return
        ours[name] = kept
        files.write_text(
            _state_path(world),
            json.dumps({name: one for name, one in ours.items() if one}, indent=1),
        )
