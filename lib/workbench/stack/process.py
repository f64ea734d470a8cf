"""The process of one service: start, find, wait until ready, stop."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from string import Template
from typing import Collection, Optional

import psutil

from ..base import (
    StackError,
    WorkbenchError,
    World,
    params,
    paths,
    pidfiles,
    split_host_port,
    state_dir,
    wait_until,
)
from ..base.environment import proxy_exceptions
from . import cds
from .artifacts import CONF_DIR

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
START_SECONDS = 90.0  # from the start of a service until it must be ready
STOP_SECONDS = 15.0  # from the stop signal until the rest of a service is killed
ARCHIVE_SECONDS = 45.0  # more time for writing an archive of classes, which happens once
FREE_SECONDS = 2.0  # from the end of a process until its ports are free
NOT_LISTENING = "does not listen: it is starting or stopping"
EXIT_SECONDS = 0.5  # from a process's last closed port to its end
PORT_HINT = (
    "stop that process, or create the instance with other ports: `workbench down`, `workbench clean` (removes "
    "its data; with the same WORKBENCH_INSTANCE), then WORKBENCH_PORT_BASE=<number> make …; "
    f"{params.OWN_SERVERS_HINT}"
)


class Service(ABC):
    """One service of the stack: how it is configured, started and probed.

    Attributes:
        name: its name, as in `workbench status`.
        depends_on: services that must run before this one.
        stop_signal: signal to the process group for a regular stop.
        writes_own_log: whether the process writes and rotates its log file itself. Then its standard
            output has a second file.
    """

    name: str
    depends_on: tuple[str, ...] = ()
    stop_signal = signal.SIGTERM
    writes_own_log = False

    @abstractmethod
    def address(self, world: World) -> str:
        """Return the address of the service, `host:port` or a URL."""

    @abstractmethod
    def command(self, world: World) -> list[str]:
        """Write the configuration of the service, and return the command line."""

    @abstractmethod
    def ready(self, world: World) -> bool:
        """Probe the service in its own protocol; return False or raise if it is not ready."""

    def settings(self, world: World) -> object:
        """Return the world's values that command line and configuration contain, beside the ports.

        The service is restarted for a world with other values. Unlike `command` it writes nothing.
        """
        return ()

    def environment(self, world: World) -> dict[str, str]:
        """Return variables to add to the environment of the process."""
        return {}

    def initialize(self, world: World) -> None:  # noqa: B027 - most services need nothing
        """Do what the first start requires, such as initdb."""

    def ports(self, world: World) -> tuple[int, ...]:
        """Return all ports of the service in this world; the first is that of `address`."""
        return (split_host_port(self.address(world))[1],)

    def fingerprint(self, world: World) -> str:
        """Return the ports and settings as one text."""
        return json.dumps([self.ports(world), self.settings(world)], sort_keys=True)


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


def render_conf(service: str, template: str, **values: object) -> Path:
    """Fill in a template of conf/, write it to the state folder and return its path.

    No value is a secret.
    """
    path = state_dir() / "conf" / service / template
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (CONF_DIR / template).read_text(encoding="utf-8")
    path.write_text(Template(text).substitute(values), encoding="utf-8")
    return path


def data_dir(name: str) -> Path:
    """Create and return a service's data folder."""
    path = state_dir() / "data" / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def run_command(
    command: list[str], message: str, *, hint: str = "", stdin: Optional[str] = None
) -> None:
    """Run a command to its end.

    Args:
        command: program and arguments.
        message: message of the error.
        hint: hint of the error.
        stdin: standard input.

    Raises:
        StackError: the exit code is not zero. The error has the end of the output.
    """
    result = subprocess.run(command, input=stdin, text=True, capture_output=True, cwd="/")
    if result.returncode:
        output = result.stderr.strip() or result.stdout.strip()
        raise StackError(message, location=output[-500:], hint=hint)


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


def running_process(name: str) -> Optional[psutil.Process]:
    """Return the process that a service's pid file names, None if it has ended.

    A later process with the same pid does not count.
    """
    return pidfiles.find_process(pidfiles.read(name))


def is_outdated(service: Service, world: World) -> bool:
    """Return whether the running process was started with other ports or settings than this world's."""
    record = pidfiles.read(service.name)
    is_running = pidfiles.find_process(record) is not None
    return is_running and record.get("fingerprint") != service.fingerprint(world)


def down_reason(name: str) -> str:
    """Return why a service is down: it is stopped, died or does not listen; "" if it listens."""
    if running_process(name):
        if not any(map(_is_free, pidfiles.read(name)["ports"])):
            return ""
        # A process that ends closes its ports first, and a client notices that at once.
        with contextlib.suppress(WorkbenchError):
            wait_until(
                lambda: not running_process(name), "its end", timeout=EXIT_SECONDS, interval=0.02
            )
    if running_process(name):
        return NOT_LISTENING
    if pidfiles.pid_file(name).exists():
        return f"died. {disk_full_message()}".rstrip(". ")
    return "is stopped"


def _is_free(port: int) -> bool:
    """Return whether no process listens on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def port_owner(port: int) -> Optional[str]:
    """Return which process listens on a loopback port, None for a free port.

    The text has the pid and the program, if the system reports them. It has no arguments, which may
    contain passwords.
    """
    if _is_free(port):
        return None
    with contextlib.suppress(psutil.Error, PermissionError):
        for connection in psutil.net_connections("tcp"):
            is_listener = connection.status == psutil.CONN_LISTEN and connection.pid
            if is_listener and connection.laddr and connection.laddr.port == port:
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
    kill(service.name)
    require_free_ports(service, world)
    _spawn(service, world)
    _wait_ready(service, world)
    return "started"


def _wait_ready(service: Service, world: World) -> None:
    name, port = service.name, service.ports(world)[0]

    def failure_reason() -> Optional[str]:
        if running_process(name):
            return None
        return f"the process of {name} ended. {disk_full_message()}\n{log_tail(name)}"

    wait_until(
        # A client of the protocol takes processor time, which the start needs, and fills the log of a
        # service that is not ready. A connection to the port is cheap.
        lambda: not _is_free(port) and service.ready(world),
        f"{name} to respond on port {port}",
        failure_reason=failure_reason,
        timeout=START_SECONDS,
        interval=0.03,
        error=StackError,
        hint=f"read {log_file(name)}; restart it with `workbench down` and `workbench up`",
    )


def require_free_ports(service: Service, world: World, ignored: Collection[int] = ()) -> None:
    """Raise StackError if another process has a port of a service.

    Args:
        service: the service that is about to start.
        world: the world that it starts for.
        ignored: ports of services that are stopped before this one starts.
    """
    for port in {*service.ports(world)}.difference(ignored):
        # A predecessor that has just died may not have freed its ports yet.
        with contextlib.suppress(WorkbenchError):
            wait_until(partial(_is_free, port), "", timeout=FREE_SECONDS, interval=0.05)
        owner = port_owner(port)
        if owner:
            raise StackError(
                f"{service.name} cannot start: port {port} is taken", location=owner, hint=PORT_HINT
            )


def _spawn(service: Service, world: World) -> None:
    """Start the process of a service and write its pid file."""
    name = service.name
    scratch = temp_dir(name)
    shutil.rmtree(scratch, ignore_errors=True)
    for folder in (log_file(name).parent, scratch):
        folder.mkdir(parents=True, exist_ok=True)
    service.initialize(world)
    command = service.command(world)
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
                **service.environment(world),
                SERVICE_ID_ENV: service_id(name),
            },
            start_new_session=True,
        )
    record = {
        "pid": process.pid,
        "started_ticks": pidfiles.start_ticks(psutil.Process(process.pid)),
        "ports": service.ports(world),
        "stop_signal": service.stop_signal,
        "fingerprint": service.fingerprint(world),
    }
    paths.write_private_file(pidfiles.pid_file(name), json.dumps(record).encode())


def writes_archive(name: str) -> bool:
    """Return whether a running service writes an archive of classes when it stops, which takes some seconds."""
    # A service that is still starting has not loaded all classes of a start.
    return any(temp_dir(name).glob("*.jsa")) and not down_reason(name)


def stop(name: str) -> bool:
    """Stop a service's process group: send its stop signal, wait, then kill what is left.

    Returns:
        Whether there was any process to stop.
    """
    process, archives, alive = running_process(name), writes_archive(name), []
    if process:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, pidfiles.read(name)["stop_signal"])
        seconds = STOP_SECONDS + ARCHIVE_SECONDS * archives
        alive = psutil.wait_procs([process, *_find_orphans(name)], timeout=seconds)[1]
    had_orphans = kill(name)
    if archives and not alive:
        cds.keep(temp_dir(name))
    pidfiles.pid_file(name).unlink(missing_ok=True)
    shutil.rmtree(temp_dir(name), ignore_errors=True)
    return process is not None or had_orphans


def kill(name: str) -> bool:
    """Kill all processes of a service, as a crash would, and wait for their end.

    Examples are a process that ignores its stop signal, the backends of a PostgreSQL that was killed
    by SIGKILL, the JVM of a Spark whose Python was killed, and a process without a pid file, because its
    starter was killed.

    Returns:
        Whether there was any process.
    """
    processes: set[psutil.Process] = set()

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
    program = (name, os.path.realpath(state_dir() / "data" / name))
    return [
        process
        for process in psutil.process_iter(["environ", "name", "cwd"])
        # a value of info is None for a process of another user
        if (process.info["environ"] or {}).get(SERVICE_ID_ENV) == service_id(name)
        or (process.info["name"], process.info["cwd"]) == program
        if pidfiles.is_alive(process)
    ]


def log_tail(name: str) -> str:
    """Return the last lines of a service's log and of its standard output, for an error."""
    return "\n".join(
        f"    | {line[:200]}"
        for file in (log_file(name), stdout_file(name))
        if file.is_file()
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines()[-12:]
    )


def status(service: Service, world: World) -> Status:
    """Return the status of one service. Nothing is changed."""
    name, port = service.name, service.ports(world)[0]
    process, has_run = running_process(name), pidfiles.pid_file(name).exists()
    log = str(log_file(name)) if has_run else ""
    owner = None if process else port_owner(port)
    if owner:
        return Status(name, "port-conflict", port, log=log, detail=owner)
    died = Status(name, "died", port, log=log, detail=disk_full_message())
    if process is None:
        return died if has_run else Status(name, "stopped", port)
    try:
        family = [process, *process.children(recursive=True)]
        memory = sum(each.memory_info().rss for each in family) >> 20
        age = time.time() - process.create_time()
    except psutil.Error:  # it has just ended
        return died
    up = Status(name, "up", port, process.pid, age, memory, log)
    if is_outdated(service, world):
        detail = f"runs with other settings than those of world '{world.name}'; `workbench up` restarts it"
        return replace(up, state="outdated", port=pidfiles.read(name)["ports"][0], detail=detail)
    with contextlib.suppress(Exception):  # every client raises its own error for "not yet"
        if service.ready(world):
            return up
    return replace(up, state="starting", detail=disk_full_message())
