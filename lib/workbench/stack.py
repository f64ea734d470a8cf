"""The stack as verbs: up, need, down, status, restart.

In an embedded world the services are ours to start and stop. In any other world the same verbs look whether the
services can be reached, and start nothing.
"""
from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Callable, ContextManager, List, Optional

import psutil

from . import process, services
from .errors import StackError, nearest
from .params import World, host_port, state_dir
from .process import Status
from .services import SERVICES
from .wait import alone


def up(world: World, names: Optional[List[str]] = None, say: Callable[[str], None] = lambda text: None) -> List[Status]:
    """Start what is not running, side by side, and return the status of each service once all answer.

    Args:
        names: services to start (with what they need); all of the world's by default.
        say: is told one line for each service that has become ready.

    Raises:
        StackError: the first service that failed, after the others had their chance.
    """
    if not world.stack.embedded:
        return _reach(world, names)
    chosen = _closure(world, names or services.wanted(world))
    with _one_at_a_time():
        _start(world, chosen, say)
    return [process.status(SERVICES[n], world) for n in chosen]


def _start(world: World, chosen: List[str], say: Callable[[str], None] = lambda text: None) -> None:
    """Start these services side by side (the caller holds the lock)."""
    services.make_secrets()
    begun = time.monotonic()

    def bring(name: str) -> None:
        how = process.start(SERVICES[name], world)
        say(f"{name:<15} {how:<8} {time.monotonic() - begun:5.1f} s")

    # needs are for need(): everything starts at once, as Connect retries until Kafka is there and loads meanwhile
    with ThreadPoolExecutor(len(chosen)) as pool:
        started: List[Future[None]] = [pool.submit(bring, n) for n in chosen]
    failures = [e for e in (f.exception() for f in started) if e]
    if failures:
        raise failures[0]


def need(world: World, *names: str) -> None:
    """Make sure that these services answer, starting them where they do not. What a notebook calls first."""
    if world.stack.embedded:
        chosen = _closure(world, list(names))
        missing = [n for n in chosen if not process.own(n) or not process.answers(SERVICES[n], world)]
        if missing:
            up(world, missing)
    else:
        _reach(world, list(names))


def down(say: Callable[[str], None] = lambda text: None) -> List[str]:
    """Stop every service of this instance, clients of Kafka and PostgreSQL first; return the names of those stopped."""
    stopped: List[str] = []
    waves = (["spark", "connect", "apicurio"], ["spark_worker_1", "spark_worker_2"],
             ["spark_master", "kafka", "postgres"])
    with _one_at_a_time():
        for wave in waves:
            with ThreadPoolExecutor(len(wave)) as pool:
                for name, was in zip(wave, pool.map(lambda n: process.stop(SERVICES[n]), wave)):
                    if was:
                        stopped.append(name)
                        say(f"{name} stopped")
    return stopped


def restart(world: World, name: str) -> None:
    """Stop and start one embedded service."""
    chosen = _closure(world, [name])
    with _one_at_a_time():
        process.stop(SERVICES[name])
        _start(world, chosen)


def status(world: World) -> List[Status]:
    """Return the status of every service of the world, Apicurio included, changing nothing."""
    names = [*services.wanted(world), "apicurio"]
    if not world.stack.embedded:
        return [_look(world, n) for n in ("postgres", "kafka", "connect", "spark")]
    with ThreadPoolExecutor(len(names)) as pool:
        return list(pool.map(lambda n: process.status(SERVICES[n], world), names))


def running() -> List[str]:
    """Names of the services of this instance that have a living process."""
    return [n for n in SERVICES if process.own(n)]


def log(name: str) -> Path:
    """Return the log file of a service."""
    return process.log_file(name)


def _closure(world: World, names: List[str]) -> List[str]:
    """The services named, each after what it needs; for Spark on workers of ours that is the master and those."""
    ours = [n for n in services.wanted(world) if n.startswith("spark_")]
    out: List[str] = []
    for name in names:
        if name not in SERVICES:
            raise StackError(f"there is no service '{name}'", expected=nearest(name, SERVICES))
        needs = ours if name == "spark" else SERVICES[name].needs
        out += [n for n in (*needs, name) if n not in out]
    return out


def _reach(world: World, names: Optional[List[str]]) -> List[Status]:
    found = [_look(world, n) for n in names or ["postgres", "kafka", "connect", "spark"]]
    lost = [s for s in found if s.state != "up"]
    if lost:
        raise StackError(
            f"{', '.join(s.name for s in lost)} cannot be reached from here", where=lost[0].detail,
            expected=f"the services of world '{world.name}' running and reachable",
            next_step=f"check {world.file} and the network path (VPN, security group)",
        )
    return found


def _look(world: World, name: str) -> Status:
    addresses = {"postgres": f"{world.postgres.host}:{world.postgres.port}", "connect": world.connect.url,
                 "kafka": world.kafka.bootstrap.split(",")[0], "spark": world.spark.url}
    try:
        host, port = host_port(addresses[name])
        socket.create_connection((host, port), timeout=3).close()
        return Status(name, "up", port, detail=addresses[name])
    except (OSError, ValueError) as e:
        return Status(name, "unreachable", 0, detail=f"{addresses[name] or 'no address'}: {e}")


def _one_at_a_time() -> ContextManager[None]:
    return alone(state_dir() / "up.lock")


def down_with(pid: int, *, remove: bool) -> None:
    """See to it that this instance goes down when process `pid` is gone, however it ended (used by the tests).

    Args:
        remove: also delete the instance's folder.
    """
    subprocess.Popen(
        [sys.executable, "-m", "workbench.stack", str(pid), "remove" if remove else "keep"], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env=dict(os.environ),
    )


if __name__ == "__main__":
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(sys.argv[1])).wait()
    down()
    if sys.argv[2] == "remove":
        shutil.rmtree(state_dir(), ignore_errors=True)
