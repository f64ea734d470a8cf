"""How long a person waits for the whole: `make demo` in a fresh clone and again, the stack's start,
its memory."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from bench_line import Line, say, seconds
from workbench import stack
from workbench.base.params import World
from workbench.base.paths import ROOT, state_dir

MIB_PER_GIB = 1024


def start(world: World) -> Line:
    """Start every service that this world's outbox walkthrough needs, from nothing; what was
    downloaded is there."""
    took = seconds(lambda: stack.up(world))
    return Line(
        "stack ready, nothing running before, its databases made anew",
        f"{took:.1f} s",
        "",
        took,
        "s",
        6,
    )


def memory(world: World) -> Line:
    """What all services hold resident after the measures before this one."""
    mib = sum(s.memory_mb or 0 for s in stack.status(world))
    return Line(
        "memory of all services, after these measures",
        f"{mib:,} MiB",
        "",
        mib / MIB_PER_GIB,
        "GiB",
        4.5,
    )


def demo(*_: Any) -> list[Line]:
    """`make demo` in a clone of the last commit with an empty HOME, and again on the stack that it
    left running.

    Packages and jars are fetched from their registries; the minutes are those of this line to them,
    too.
    """
    clone, home = state_dir() / "clone", state_dir() / "home"
    home.mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    kept = (
        "PATH",
        "LANG",
        "LC_ALL",
        "TMPDIR",
        "SSL_CERT_FILE",
        "PIP_INDEX_URL",
        "HTTP",
        "http",
        "REQUESTS_",
    )
    env: dict[str, str] = {k: v for k, v in os.environ.items() if k.startswith(kept)}
    env.update(
        HOME=str(home), WORKBENCH_PORT_BASE=str(int(os.environ["WORKBENCH_PORT_BASE"]) + 100)
    )
    lines = []
    try:
        for what, goal in (("fresh clone, empty HOME", 180), ("again", 60)):
            say(f"demo: {what}")
            took = seconds(lambda: subprocess.run(["make", "demo"], cwd=clone, env=env, check=True))
            lines.append(Line(f"make demo, {what}", f"{took:.0f} s", "", took, "s", goal))
    finally:
        subprocess.run(
            ["make", "down"], cwd=clone, env=env, check=False
        )  # the folder goes with the instance's
    return lines
