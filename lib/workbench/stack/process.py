"""One service process: start it once, know it again, wait until it answers, stop it and only it."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Callable, Collection, Optional

import psutil

from ..base import StackError, World, params, pidfiles, split_host_port, state_dir, wait_until
from .artifacts import CONF_DIR

# Kept from the services. Secrets: a service gets its own through a file that only it and we can
# read. Settings of other Sparks, Javas and Pythons: a kernel with a Spark Connect session holds
# variables that keep a classic session from starting, and a PYTHONPATH may lead to another pyspark
# than the pinned one.
STRIPPED_ENV_PREFIXES = (
    "WORKBENCH_SECRET_",
    "SPARK_",
    "PYSPARK_",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "PG",
    "PYTHONPATH",
    "PYTHONHOME",
)
# in the environment of all that we start: whose process it is, also without a pid file
SERVICE_ID_ENV = "WORKBENCH_SERVICE"
MIN_FREE_BYTES = (
    64 << 20
)  # bytes. With less, PostgreSQL's next log file of 16 MiB or Kafka's next indexes may not fit
PORT_HINT = (
    "stop that process, or choose other ports: `workbench down`, then WORKBENCH_PORT_BASE=<number> make …; "
    + params.OWN_SERVERS_HINT
)


@dataclass(frozen=True)
class Service:
    """One row of the stack: everything that makes a service this one and no other."""

    name: str
    address: Callable[[World], str]  # where it answers: host:port, a scheme before it or not
    command: Callable[[World], list[str]]  # also writes the configuration that the command names
    ready: Callable[
        [World], bool
    ]  # asks in the service's own protocol; may raise instead of returning False
    depends_on: tuple[str, ...] = ()
    env: Callable[[World], dict[str, str]] = lambda world: {}
    stop_signal: int = signal.SIGTERM
    timeout: float = 90.0
    initialize: Callable[[World], None] = lambda world: None  # first-start work, such as initdb
    extra_ports: Callable[[World], tuple[int, ...]] = (
        lambda world: ()
    )  # the other ports it listens on
    # What else of a world goes into its command and configuration. Told apart from `command`, which
    # writes files: a notebook's first cell compares it with what the running process was started
    # with.
    config_fingerprint: Callable[[World], object] = lambda world: ()
    startup_notice: str = ""  # what a person is told when it was started
    # it writes its log file itself, and rolls it; what it prints goes into a file beside it
    writes_own_log: bool = False

    def ports(self, world: World) -> tuple[int, ...]:
        """Every port that it listens on in this world; at the first it answers."""
        return (split_host_port(self.address(world))[1], *self.extra_ports(world))


@dataclass(frozen=True)
class Status:
    """What `workbench status` shows of one service."""

    name: str
    state: str  # up, starting, outdated, stopped, died, stranger, unreachable
    port: int
    pid: Optional[int] = None
    seconds: Optional[float] = None  # since it was started
    memory_mb: Optional[int] = None  # resident, children included
    log: str = ""
    detail: str = ""


def service_id(name: str) -> str:
    """What a service of this instance is marked with."""
    return f"{state_dir()}:{name}"


def log_file(name: str) -> Path:
    return state_dir() / "log" / f"{name}.log"


def render_conf(name: str, **values: object) -> Path:
    """Fill in a template of conf/, write it to the state folder (no secret is in it) and return its
    path.
    """
    path = state_dir() / "conf" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(
        f".{name}.{threading.get_ident()}"
    )  # services that start side by side may share one
    scratch.write_text(
        Template((CONF_DIR / name).read_text(encoding="utf-8")).substitute(values), encoding="utf-8"
    )
    scratch.replace(path)
    return path


def data_dir(name: str) -> Path:
    """A service's folder for what it keeps."""
    path = state_dir() / "data" / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def stdout_file(name: str) -> Path:
    """What a service with a log of its own prints beside it: Java's last words, above all."""
    return log_file(name).with_suffix(".out")


def disk_full_message() -> str:
    """Say that there is no room for the services to go on, and where; the empty text where there is
    some.
    """
    there = next(p for p in (state_dir(), *state_dir().parents) if p.exists())
    free = shutil.disk_usage(there).free
    return (
        f"the disk is full: {free >> 20} MB are free for {state_dir()}"
        if free < MIN_FREE_BYTES
        else ""
    )


def _temp_dir(name: str) -> Path:
    """The service's folder for temporary files. What a killed one leaves there (native libraries
    that Java unpacks, Spark's and Hive's working folders) goes with the next start, or when the
    service is stopped.
    """
    return state_dir() / "tmp" / name


def _read_pid_file(name: str) -> dict[str, Any]:
    return pidfiles.read(pidfiles.pid_file(name))


def bound_ports() -> set[int]:
    """The ports of all services of this instance that have a living process, whichever world they
    were started for.
    """
    names = [f.stem for f in pidfiles.pid_file("any").parent.glob("*.json")]
    return {
        port for n in names if running_process(n) for port in _read_pid_file(n).get("ports", ())
    }


def _start_fingerprint(service: Service, world: World) -> str:
    """What tells a start of this service for this world from one for another world or other ports.
    Writes nothing.
    """
    return json.dumps([service.ports(world), service.config_fingerprint(world)], sort_keys=True)


def is_outdated(service: Service, world: World) -> bool:
    """True when our living process was started for a world with other settings, or on other
    ports.
    """
    return running_process(service.name) is not None and _read_pid_file(service.name).get(
        "told"
    ) != _start_fingerprint(service, world)


def running_process(name: str) -> Optional[psutil.Process]:
    """Return the process that our pid file names, if it still is that process and not a later one
    with its number.
    """
    return pidfiles.find_process(_read_pid_file(name))


def down_reason(name: str) -> str:
    """How it stands with a service that does not answer: "is stopped", "died", "does not listen";
    "" where it does.
    """
    noted = _read_pid_file(name)
    if not running_process(name):
        return (
            f"died. {disk_full_message()}".rstrip(". ")
            if pidfiles.pid_file(name).exists()
            else "is stopped"
        )
    return (
        ""
        if all(map(port_owner, noted["ports"]))
        else "does not listen: it is going down, or coming up"
    )


def is_ready(service: Service, world: World) -> bool:
    """True when the service gives a proper answer in its protocol."""
    with contextlib.suppress(Exception):  # every client has its own "not yet"
        return bool(service.ready(world))
    return False


def port_owner(port: int) -> Optional[str]:
    """Say who listens on a loopback port (pid and program where the system tells), None when nobody
    does. The arguments of the program are left out: they may hold passwords.
    """
    with socket.socket() as probe:
        probe.settimeout(1)
        if probe.connect_ex(("127.0.0.1", port)) != 0:
            return None
    with contextlib.suppress(psutil.Error, PermissionError):
        for c in psutil.net_connections("tcp"):
            if c.status == psutil.CONN_LISTEN and c.laddr.port == port and c.pid:
                return f"pid {c.pid}: {psutil.Process(c.pid).name()}"
    return "a process of another user"


def start(service: Service, world: World) -> str:
    """Bring one service up and return how: "reused" or "started". One that is outdated was stopped
    before.

    Raises:
        StackError: a stranger holds the port, the process died, or it did not answer in time (with
            the last log lines).
    """
    if running_process(service.name):
        try:
            _wait_ready(service, world)
            return "reused"
        except StackError:
            if running_process(service.name):
                raise
            # one that was killed a moment ago may still be there for an instant: it ended while we
            # waited for it
    kill_orphans(service.name)
    require_free_ports(service, world)
    _spawn(service, world)
    _wait_ready(service, world)
    return "started"


def _wait_ready(service: Service, world: World) -> None:
    wait_until(
        lambda: service.ready(world),
        f"{service.name} to answer on port {service.ports(world)[0]}",
        failure_reason=lambda: (
            None
            if running_process(service.name)
            else f"its process ended. {disk_full_message()}\n{log_tail(service.name)}"
        ),
        timeout=service.timeout,
        error=StackError,
        hint=f"read {log_file(service.name)}; `workbench down` and `workbench up` start afresh",
    )


def require_free_ports(service: Service, world: World, ours: Collection[int] = ()) -> None:
    """Raise StackError where another process holds a port of a service.

    Args:
        ours: ports that are held by services which are stopped before this one starts.
    """
    # a predecessor that just died may still be about to let go of its ports
    patience = 5.0 if pidfiles.pid_file(service.name).exists() else 0.0
    for port in (p for p in service.ports(world) if p not in ours):
        with contextlib.suppress(StackError):
            wait_until(
                lambda port=port: port_owner(port) is None,
                "",
                timeout=patience,
                interval=0.05,
                error=StackError,
            )
            continue
        raise StackError(
            f"{service.name} cannot start: port {port} is taken",
            location=port_owner(port) or "",
            hint=PORT_HINT,
        )


def _spawn(service: Service, world: World) -> None:
    service.initialize(world)
    command = service.command(world)
    log, out, scratch = log_file(service.name), stdout_file(service.name), _temp_dir(service.name)
    shutil.rmtree(scratch, ignore_errors=True)
    for folder in (log.parent, pidfiles.pid_file(service.name).parent, scratch):
        folder.mkdir(parents=True, exist_ok=True)
    for file in (log, out):
        if file.exists():
            file.replace(
                file.with_suffix(f"{file.suffix}.1")
            )  # a restart must not hide why the last one died
    given = {k: v for k, v in os.environ.items() if not k.startswith(STRIPPED_ENV_PREFIXES)}
    # Java looks at no TMPDIR; every `java` that the service starts reads the second, and Spark goes
    # by the third
    given |= {
        "TMPDIR": str(scratch),
        "JDK_JAVA_OPTIONS": f'"-Djava.io.tmpdir={scratch}"',
        "SPARK_LOCAL_DIRS": str(scratch),
    }
    with (out if service.writes_own_log else log).open("ab") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            cwd=state_dir(),
            env={**given, **service.env(world), SERVICE_ID_ENV: service_id(service.name)},
            start_new_session=True,
        )
    noted = {
        "pid": process.pid,
        "born": pidfiles.start_ticks(psutil.Process(process.pid)),
        "ports": service.ports(world),
        "base": world.stack.port_base,
        "told": _start_fingerprint(service, world),
    }
    unfinished = pidfiles.pid_file(service.name).with_suffix(".new")
    unfinished.write_text(json.dumps(noted))
    unfinished.replace(pidfiles.pid_file(service.name))


def stop(service: Service, *, grace_period: float = 15.0) -> bool:
    """Stop our process group: its stop signal, a wait, then KILL. Return whether there was anything
    to stop.
    """
    process = running_process(service.name)
    if process is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, service.stop_signal)
    swept = kill_orphans(service.name, grace_period if process is not None else 0)
    pidfiles.pid_file(service.name).unlink(missing_ok=True)
    shutil.rmtree(_temp_dir(service.name), ignore_errors=True)
    return process is not None or swept


def kill_orphans(name: str, grace_period: float = 0) -> bool:
    """Kill what is left of a service after `patience` seconds, and return whether there was
    anything: one that does not heed its signal, the backends of a PostgreSQL killed with -9, one
        whose starter was killed before it noted the pid.
    """
    seen = set(_find_orphans(name))
    psutil.wait_procs(seen, timeout=grace_period)

    def ended() -> bool:
        seen.update(
            _find_orphans(name)
        )  # looked up each time: one of them may have started another before it ended
        # One that is ending loses its environment, our mark with it, before it lets go of its
        # ports: it is waited for as the process that was seen, until it is gone or a zombie, which
        # holds nothing any more.
        rest = [p for p in seen if pidfiles.is_alive(p)]
        for p in rest:
            with contextlib.suppress(psutil.Error):
                p.kill()
        return not rest

    wait_until(ended, f"the rest of {name} to end", timeout=30, error=StackError)
    return bool(seen)


def _find_orphans(name: str) -> list[psutil.Process]:
    """Processes that carry this service's mark. PostgreSQL's backends write their title over it
    (and leave the group): they are known by their name and by working in our data folder.
    """
    folder = os.path.realpath(state_dir() / "data" / name)
    found = psutil.process_iter(["environ", "name", "cwd"])  # each None where it is another user's
    return [
        p
        for p in found
        if pidfiles.is_alive(p)
        and (
            (p.info["environ"] or {}).get(SERVICE_ID_ENV) == service_id(name)
            or (p.info["name"], p.info["cwd"]) == (name, folder)
        )
    ]


def log_tail(name: str, lines: int = 12) -> str:
    """What a service said last, in its log and in what it printed beside it, for an error to
    show.
    """
    files = [f for f in (log_file(name), stdout_file(name)) if f.is_file()]
    return "\n".join(
        f"    | {line[:200]}"
        for f in files
        for line in f.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    )


def status(service: Service, world: World) -> Status:
    """Look at one service without changing anything."""
    (port, *_), log = service.ports(world), str(log_file(service.name))
    process = running_process(service.name)
    if process is None:
        died, stranger = pidfiles.pid_file(service.name).exists(), port_owner(port)
        state = "stranger" if stranger else "died" if died else "stopped"
        return Status(
            service.name,
            state,
            port,
            log=log if died else "",
            detail=stranger or (disk_full_message() if died else ""),
        )
    try:
        memory = (
            sum(p.memory_info().rss for p in [process, *process.children(recursive=True)]) >> 20
        )
        age = time.time() - process.create_time()
    except psutil.Error:
        return Status(service.name, "died", port, log=log)
    state, detail = "up", ""
    if is_outdated(service, world):
        state, port = "outdated", _read_pid_file(service.name)["ports"][0]
        detail = (
            f"runs with other settings than world '{world.name}' has; `workbench up` restarts it"
        )
    elif not is_ready(service, world):
        state, detail = "starting", disk_full_message()
    return Status(service.name, state, port, process.pid, age, memory, log, detail)
