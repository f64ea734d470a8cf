"""The process of one service: start, find, wait until ready, stop."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from string import Template
from typing import Any, Callable, Collection, Optional, TypeVar

import psutil

from ..base import (
    StackError,
    WorkbenchError,
    World,
    params,
    pidfiles,
    split_host_port,
    state_dir,
    wait_until,
)
from ..base.environment import proxy_exceptions
from . import cds
from .artifacts import CONF_DIR

T = TypeVar("T")
PerWorld = Callable[[World], T]  # a property of a service that depends on the world

# Variables that are not passed to services. Secrets: a service reads its own from a file that only
# the service and the workbench can read. Settings of other Sparks, Javas and Pythons: a kernel with
# a Spark Connect session sets variables that prevent a classic session from starting, and
# PYTHONPATH may name another pyspark than the pinned one.
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
# Set in the environment of every service: it identifies the process without a pid file.
SERVICE_ID_ENV = "WORKBENCH_SERVICE"
# With less free space, PostgreSQL's next WAL segment (16 MiB) or Kafka's next indexes may not fit.
MIN_FREE_BYTES = 64 << 20
EXIT_SECONDS = 0.5  # from a process's last closed port to its end
ARCHIVE_SECONDS = 45.0  # limit for writing an archive of classes, which happens once
PORT_HINT = (
    "stop that process, or choose other ports: `workbench down`, then "
    f"WORKBENCH_PORT_BASE=<number> make …; {params.OWN_SERVERS_HINT}"
)


@dataclass(frozen=True)
class Service:
    """One service of the stack: how it is configured, started, probed and stopped.

    Attributes:
        address: address of the service, `host:port` or a URL.
        command: writes the configuration of the service, and returns the command line.
        ready: probes the service in its own protocol; returns False or raises if it is not ready.
        depends_on: services that must run before this one.
        env: variables to add to the environment of the process.
        stop_signal: signal to the process group for a regular stop.
        timeout: seconds from the start until the service must be ready.
        initialize: work before the first start, such as initdb.
        extra_ports: further ports on which the service listens.
        config_fingerprint: returns the world's values that command line and configuration contain.
            Unlike `command` it writes nothing. A notebook's first cell compares it with the value
            of the running process.
        startup_notice: text for the user after a start.
        writes_own_log: whether the process writes and rotates its log file itself. Then its standard
            output has a second file.
    """

    name: str
    address: PerWorld[str]
    command: PerWorld[list[str]]
    ready: PerWorld[bool]
    depends_on: tuple[str, ...] = ()
    env: PerWorld[dict[str, str]] = lambda world: {}
    stop_signal: int = signal.SIGTERM
    timeout: float = 90.0
    initialize: PerWorld[object] = lambda world: None
    extra_ports: PerWorld[tuple[int, ...]] = lambda world: ()
    config_fingerprint: PerWorld[object] = lambda world: ()
    startup_notice: str = ""
    writes_own_log: bool = False

    def ports(self, world: World) -> tuple[int, ...]:
        """Return all ports of the service in this world; the first is that of `address`."""
        return (split_host_port(self.address(world))[1], *self.extra_ports(world))


@dataclass(frozen=True)
class Status:
    """One row of `workbench status`.

    Attributes:
        state: up, starting, outdated, stopped, died, port-conflict or unreachable.
        seconds: time since the start.
        memory_mb: resident memory in MiB, with that of child processes.
        log: path of the log file, empty without a log file.
    """

    name: str
    state: str
    port: int
    pid: Optional[int] = None
    seconds: Optional[float] = None
    memory_mb: Optional[int] = None
    log: str = ""
    detail: str = ""


def service_id(name: str) -> str:
    """Return the value of SERVICE_ID_ENV for a service of this instance."""
    return f"{state_dir()}:{name}"


def log_file(name: str) -> Path:
    """Return the path of a service's log file."""
    return state_dir() / "log" / f"{name}.log"


def stdout_file(name: str) -> Path:
    """Return the file for standard output of a service that writes its own log.

    A crashing JVM writes its last message there.
    """
    return log_file(name).with_suffix(".out")


def render_conf(name: str, **values: object) -> Path:
    """Fill in a template of conf/, write it to the state folder and return its path.

    No value is a secret.
    """
    path = state_dir() / "conf" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    # Services that start in parallel may render the same file.
    scratch = path.with_name(f".{name}.{threading.get_ident()}")
    template = Template((CONF_DIR / name).read_text(encoding="utf-8"))
    scratch.write_text(template.substitute(values), encoding="utf-8")
    scratch.replace(path)
    return path


def data_dir(name: str) -> Path:
    """Create and return a service's data folder."""
    path = state_dir() / "data" / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def run_command(command: list[str], message: str, *, hint: str = "", **options: Any) -> None:
    """Run a command to its end.

    Args:
        command: program and arguments.
        message: message of the error.
        hint: hint of the error.
        options: further arguments of subprocess.run.

    Raises:
        StackError: the exit code is not zero. The error has the end of the output, stderr last.
    """
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    result = subprocess.run(command, text=True, **options)
    if result.returncode:
        output = (result.stdout or "") + result.stderr
        raise StackError(message, location=output.strip()[-500:], hint=hint)


def disk_full_message() -> str:
    """Return a message if less than MIN_FREE_BYTES are free for the services, else ""."""
    existing = next(path for path in (state_dir(), *state_dir().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free >= MIN_FREE_BYTES:
        return ""
    return f"the disk is full: {free >> 20} MB are free for {state_dir()}"


def temp_dir(name: str) -> Path:
    """Return a service's folder for temporary files.

    A killed service leaves files there: native libraries unpacked by Java, working folders of Spark
    and Hive. The next start or stop of the service removes them.
    """
    return state_dir() / "tmp" / name


def _read_pid_file(name: str) -> dict[str, Any]:
    return pidfiles.read(pidfiles.pid_file(name))


def running_process(name: str) -> Optional[psutil.Process]:
    """Return the process that a service's pid file names, None if it has ended.

    A later process with the same pid does not count.
    """
    return pidfiles.find_process(_read_pid_file(name))


def bound_ports() -> set[int]:
    """Return the ports of all running services of this instance, whichever world started them."""
    names = [file.stem for file in pidfiles.pid_file("any").parent.glob("*.json")]
    running = filter(running_process, names)
    return {port for name in running for port in _read_pid_file(name).get("ports", ())}


def _start_fingerprint(service: Service, world: World) -> str:
    """Return the ports and the config_fingerprint of a service as one text."""
    return json.dumps([service.ports(world), service.config_fingerprint(world)], sort_keys=True)


def is_outdated(service: Service, world: World) -> bool:
    """Return whether the running process was started with other ports or settings than this world's."""
    if not running_process(service.name):
        return False
    return _read_pid_file(service.name).get("told") != _start_fingerprint(service, world)


def down_reason(name: str) -> str:
    """Return why a service is down: it is stopped, died or does not listen; "" if it listens."""
    if running_process(name):
        if all(port_owner(port) for port in _read_pid_file(name)["ports"]):
            return ""
        # A process that ends closes its ports first, and a client notices that at once.
        with contextlib.suppress(StackError):
            wait_until(
                lambda: not running_process(name),
                f"the end of {name}",
                timeout=EXIT_SECONDS,
                interval=0.02,
                error=StackError,
            )
    if running_process(name):
        return "does not listen: it is starting or stopping"
    if pidfiles.pid_file(name).exists():
        return f"died. {disk_full_message()}".rstrip(". ")
    return "is stopped"


def is_ready(service: Service, world: World) -> bool:
    """Return whether the service responds correctly in its protocol."""
    with contextlib.suppress(Exception):  # every client raises its own error for "not yet"
        return bool(service.ready(world))
    return False


def port_owner(port: int) -> Optional[str]:
    """Return which process listens on a loopback port, None for a free port.

    The text has the pid and the program, if the system reports them. It has no arguments, which may
    contain passwords.
    """
    with socket.socket() as probe:
        probe.settimeout(1)
        if probe.connect_ex(("127.0.0.1", port)) != 0:
            return None
    with contextlib.suppress(psutil.Error, PermissionError):
        for connection in psutil.net_connections("tcp"):
            if connection.status != psutil.CONN_LISTEN or not connection.pid:
                continue
            if connection.laddr and connection.laddr.port == port:
                return f"pid {connection.pid}: {psutil.Process(connection.pid).name()}"
    return "a process of another user"


def start(service: Service, world: World) -> str:
    """Start one service and wait until it is ready. The caller has stopped an outdated process.

    Returns:
        "reused" if it was running, else "started".

    Raises:
        StackError: another process has the port, the process died, or it was not ready in time. The
            error has the last log lines.
    """
    if running_process(service.name):
        try:
            _wait_ready(service, world)
            return "reused"
        except StackError:
            # A process that was killed a moment ago may end during the wait: start a new one.
            if running_process(service.name):
                raise
    kill_orphans(service.name)
    require_free_ports(service, world)
    _spawn(service, world)
    _wait_ready(service, world)
    return "started"


def _wait_ready(service: Service, world: World) -> None:
    name = service.name

    def failure_reason() -> Optional[str]:
        if running_process(name):
            return None
        return f"the process of {name} ended. {disk_full_message()}\n{log_tail(name)}"

    port = service.ports(world)[0]
    wait = partial(
        wait_until,
        failure_reason=failure_reason,
        timeout=service.timeout,
        error=StackError,
        hint=f"read {log_file(name)}; restart it with `workbench down` and `workbench up`",
    )
    # A client of the protocol takes processor time, which the start needs, and fills the log of a
    # service that is not ready. A connection to the port is cheap.
    wait(lambda: _is_listening(port), f"{name} to listen on port {port}", interval=0.02)
    wait(lambda: service.ready(world), f"{name} to respond on port {port}", interval=0.05)


def _is_listening(port: int) -> bool:
    socket.create_connection(("127.0.0.1", port), timeout=1).close()
    return True


def require_free_ports(service: Service, world: World, ignored: Collection[int] = ()) -> None:
    """Raise StackError if another process has a port of a service.

    Args:
        service: the service that is about to start.
        world: the world that it starts for.
        ignored: ports of services that are stopped before this one starts.
    """
    # A predecessor that has just died may not have freed its ports yet.
    timeout = 5.0 if pidfiles.pid_file(service.name).exists() else 0.0
    for port in service.ports(world):
        if port not in ignored and not _becomes_free(port, timeout):
            raise StackError(
                f"{service.name} cannot start: port {port} is taken",
                location=port_owner(port) or "",
                hint=PORT_HINT,
            )


def _becomes_free(port: int, timeout: float) -> bool:
    try:
        return wait_until(lambda: not port_owner(port), "", timeout=timeout, interval=0.05)
    except WorkbenchError:
        return False


def _spawn(service: Service, world: World) -> None:
    """Start the process of a service and write its pid file."""
    name = service.name
    service.initialize(world)
    command = service.command(world)
    pid_file, scratch = pidfiles.pid_file(name), temp_dir(name)
    shutil.rmtree(scratch, ignore_errors=True)
    for folder in (log_file(name).parent, pid_file.parent, scratch):
        folder.mkdir(parents=True, exist_ok=True)
    for file in (log_file(name), stdout_file(name)):
        if file.exists():  # a restart must not hide why the previous process died
            file.replace(file.with_suffix(f"{file.suffix}.1"))
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(STRIPPED_ENV_PREFIXES)}
    output = stdout_file(name) if service.writes_own_log else log_file(name)
    with output.open("ab") as stream:
        process = subprocess.Popen(
            command,
            stdout=stream,
            stderr=stream,
            stdin=subprocess.DEVNULL,
            cwd=state_dir(),
            env={
                **inherited,
                **proxy_exceptions(inherited),
                # Java ignores TMPDIR. Every `java` that the service starts reads JDK_JAVA_OPTIONS,
                # and Spark uses SPARK_LOCAL_DIRS.
                "TMPDIR": str(scratch),
                "JDK_JAVA_OPTIONS": f'"-Djava.io.tmpdir={scratch}"',
                "SPARK_LOCAL_DIRS": str(scratch),
                **service.env(world),
                SERVICE_ID_ENV: service_id(name),
            },
            start_new_session=True,
        )
    content = {
        "pid": process.pid,
        "born": pidfiles.start_ticks(psutil.Process(process.pid)),
        "ports": service.ports(world),
        "base": world.stack.port_base,
        "told": _start_fingerprint(service, world),
    }
    unfinished = pid_file.with_suffix(".new")
    unfinished.write_text(json.dumps(content))
    unfinished.replace(pid_file)


def archive_path(name: str) -> Optional[Path]:
    """Return the archive of classes that a running service writes when it stops, None if it does not."""
    process = running_process(name)
    return cds.archive_path(process) if process else None


def stop(service: Service, *, grace_period: float = 15.0) -> bool:
    """Stop a service's process group: send its stop signal, wait, then kill what is left.

    Args:
        service: the service.
        grace_period: seconds between stop signal and kill.

    Returns:
        Whether there was any process to stop.
    """
    process = running_process(service.name)
    archive = archive_path(service.name)
    # A service that is still starting has not loaded all classes of a start.
    is_ready = bool(archive) and not down_reason(service.name)
    if archive:
        grace_period += ARCHIVE_SECONDS
    if process is None:
        grace_period = 0
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, service.stop_signal)
    had_orphans = kill_orphans(service.name, grace_period)
    pidfiles.pid_file(service.name).unlink(missing_ok=True)
    if archive and is_ready:
        cds.keep_archive(archive)
    shutil.rmtree(temp_dir(service.name), ignore_errors=True)
    return process is not None or had_orphans


def kill_orphans(name: str, grace_period: float = 0) -> bool:
    """Kill the remaining processes of a service after `grace_period` seconds.

    Examples are a process that ignores its stop signal, the backends of a PostgreSQL that was killed
    by SIGKILL, and a process without a pid file, because its starter was killed.

    Returns:
        Whether there was any process.
    """
    processes = set(_find_orphans(name))
    psutil.wait_procs(processes, timeout=grace_period)

    def all_ended() -> bool:
        # Search each time: a process may have started another one before it ended.
        processes.update(_find_orphans(name))
        # An exiting process loses its environment, and the marker in it, before it frees its ports.
        # Therefore wait until each process that was found before has ended or is a zombie, which
        # holds no port.
        alive = [process for process in processes if pidfiles.is_alive(process)]
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        return not alive

    wait_until(all_ended, f"the remaining processes of {name} to end", timeout=30, error=StackError)
    return bool(processes)


def _find_orphans(name: str) -> list[psutil.Process]:
    """Return the processes that carry this service's marker in their environment.

    PostgreSQL's backends overwrite the marker with their title and leave the process group. Their
    program name and working folder, the data folder, identify them.
    """
    folder = os.path.realpath(state_dir() / "data" / name)

    def belongs_to_service(process: psutil.Process) -> bool:
        info = process.info  # a value is None for a process of another user
        has_marker = (info["environ"] or {}).get(SERVICE_ID_ENV) == service_id(name)
        return has_marker or (info["name"], info["cwd"]) == (name, folder)

    processes = psutil.process_iter(["environ", "name", "cwd"])
    return [p for p in processes if belongs_to_service(p) and pidfiles.is_alive(p)]


def log_tail(name: str, lines: int = 12) -> str:
    """Return the last lines of a service's log and of its standard output, for an error."""
    return "\n".join(
        f"    | {line[:200]}"
        for file in (log_file(name), stdout_file(name))
        if file.is_file()
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    )


def status(service: Service, world: World) -> Status:
    """Return the status of one service. Nothing is changed."""
    name = service.name
    log = str(log_file(name))
    port = service.ports(world)[0]
    process = running_process(name)
    if process is None:
        return _status_without_process(name, port)
    try:
        family = [process, *process.children(recursive=True)]
        memory = sum(each.memory_info().rss for each in family) >> 20
        age = time.time() - process.create_time()
    except psutil.Error:
        return Status(name, "died", port, log=log)
    up = Status(name, "up", port, process.pid, age, memory, log)
    if is_outdated(service, world):
        return replace(
            up,
            state="outdated",
            port=_read_pid_file(name)["ports"][0],
            detail=f"runs with other settings than those of world '{world.name}'; "
            "`workbench up` restarts it",
        )
    if not is_ready(service, world):
        return replace(up, state="starting", detail=disk_full_message())
    return up


def _status_without_process(name: str, port: int) -> Status:
    died = pidfiles.pid_file(name).exists()
    log = str(log_file(name)) if died else ""
    owner = port_owner(port)
    if owner:
        return Status(name, "port-conflict", port, log=log, detail=owner)
    if died:
        return Status(name, "died", port, log=log, detail=disk_full_message())
    return Status(name, "stopped", port)
