"""Start, stop and inspect the stack: up, ensure_running, down, restart, status.

In an embedded world the workbench starts and stops the services, except those that the world does
not manage (`managed: false`). A service that was started for
another world is restarted. An instance keeps its ports while it runs: without WORKBENCH_PORT_BASE
the running port base applies, and another one is rejected. Of a service that is not managed, and in any
other world, these functions check that it can be reached (see `remote`), and start nothing.
"""

import contextlib
import os
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Callable, ContextManager, Iterable, Optional, Sequence, TypeVar

from ..base import ServiceLost, StackError, World, logs, params, paths, pidfiles, secrets, tls
from ..base.wait import RESTART_GRACE_SECONDS, file_lock
from . import addresses, artifacts, cds, process, remote, services
from .artifacts import Progress
from .process import Status
from .services import get_service

T = TypeVar("T")


def _silent(text: str) -> None:
    """Report no progress."""


def _stack_lock() -> ContextManager[str]:
    """Hold the lock of this instance's stack while services are started or stopped."""
    paths.link_safe_root()
    return file_lock(paths.state_dir() / "up.lock")


def up(world: World, names: Sequence[str] = (), progress: Progress = _silent) -> list[Status]:
    """Start services in parallel, and wait until each is ready. Missing jars are fetched first.

    The world stays active afterwards (see `params.activate`).

    Args:
        world: the world of the services.
        names: services to start, with their dependencies; by default all services of the world.
        progress: called with one line per service that is ready.

    Returns:
        The status of each service.

    Raises:
        StackError: the first service that failed, after all others have started or failed.
    """
    params.activate(world)
    if not world.stack.embedded:
        return remote.check_reachable(world, names or remote.service_names(world))
    selected = _with_dependencies(world, names or services.default_services(world))
    reachable = _check_unmanaged(world, names or remote.service_names(world))
    world = world.base
    artifacts.ensure(*services.optional_artifacts(world))
    with _stack_lock():
        _require_same_port_base(world)  # under the lock: another process may just have started it
        _start(world, selected, progress)
    return [*(process.status(get_service(name), world) for name in selected), *reachable]


def _start(world: World, names: list[str], progress: Progress = _silent) -> None:
    """Start these services in parallel. The caller holds the lock."""
    secrets.ensure(services.SECRETS)
    tls.ensure()
    cds.create_base_archive()
    started_at = time.monotonic()
    outdated = _outdated(world, names)
    for name in outdated:
        process.require_free_ports(get_service(name), world, process.bound_ports())
    # Stop all of them before the first start: an outdated service may hold the port of another one.
    _stop(outdated)

    def start(name: str) -> None:
        result = process.start(get_service(name), world)
        notice = get_service(name).startup_notice if result == "started" else ""
        action = "restarted" if name in outdated else result
        seconds = time.monotonic() - started_at
        progress(f"{name:<15} {action:<9} {seconds:5.1f} s  {notice}".rstrip())

    # Services start without waiting for their dependencies. Connect retries until Kafka is ready, and
    # loads its plugins meanwhile.
    _run_parallel(start, names)
    if process.running_process("connect"):
        addresses.update_connectors(world, progress)
    if "connect" in names:
        # Such a connector was deployed by an earlier Connect process with this plugin.
        missing = [name for name in _plugins_in_use(world) if not services.is_plugin_enabled(name)]
        if missing:
            _enable_plugins(missing)
            process.stop(get_service("connect"))
            start("connect")
        in_use = [name for name in _services_in_use(world) if name not in names]
        _run_parallel(start, _with_dependencies(world, in_use) if in_use else [])


def _outdated(world: World, names: list[str]) -> list[str]:
    return [name for name in names if process.is_outdated(get_service(name), world)]


def _run_parallel(function: Callable[[str], T], names: Iterable[str]) -> list[T]:
    """Call a function for each name in parallel and return its results.

    The first error is raised after all calls have ended.
    """
    names = list(names)
    with ThreadPoolExecutor(max(1, len(names))) as pool:
        return list(pool.map(function, names))


def ensure_running(world: World, *names: str) -> None:
    """Start those of these services that are not ready for this world.

    The first cell of a notebook calls this function, which prints a line for each restarted service,
    and activates the world (see `params.activate`) until another one is.

    Raises:
        ParamsError: the environment sets a password that is not the instance's.
        StackError: a service cannot be started or reached, or the world refers to a resource that
            does not exist yet.
    """
    logs.configure()
    params.activate(world)
    if not world.stack.embedded:
        up(world, names)
        return
    _require_same_port_base(world)
    secrets.validate_environment(services.SECRETS)
    _check_unmanaged(world, names)
    selected = _with_dependencies(world, names)
    world = world.base
    outdated = _outdated(world, selected)
    for name in outdated:
        print(f"{name} runs with other settings than those of world '{world.name}': restarting it")
    ready = _run_parallel(lambda name: name not in outdated and _is_ready(world, name), selected)
    to_start = [name for name, is_ready in zip(selected, ready) if not is_ready]
    if to_start:
        up(world, to_start)
    for name in to_start:
        notice = get_service(name).startup_notice
        if notice:
            print(f"{name} was started: {notice}")


def _check_unmanaged(world: World, names: Sequence[str]) -> list[Status]:
    """Check that the services that the world does not manage can be reached; return their status."""
    return remote.check_reachable(world, [name for name in names if not world.manages(name)])


def _is_ready(world: World, name: str) -> bool:
    return process.running_process(name) is not None and process.is_ready(get_service(name), world)


def load_plugins(world: World, *names: str) -> None:
    """Make the embedded Connect load plugins of services.OPTIONAL_PLUGINS, until `unload_plugins`.

    Connect is restarted if it has not loaded them yet. A Connect of another world is unchanged.

    Raises:
        StackError: Connect cannot be started.
    """
    if world.manages("connect"):
        _enable_plugins(names)
        ensure_running(world, "connect")


def unload_plugins(world: World, *names: str) -> None:
    """Make the embedded Connect stop loading these plugins, except those of deployed connectors.

    Connect is restarted if it runs with one of them. A Connect of another world is unchanged.

    Raises:
        StackError: Connect does not respond, or cannot be started.
    """
    enabled = [name for name in names if services.is_plugin_enabled(name)]
    if not enabled or not world.manages("connect"):
        return
    used = _plugins_in_use(world) if process.running_process("connect") else []
    unused = set(enabled).difference(used)
    for name in unused:
        services.plugin_marker(name).unlink()
    if unused and process.is_outdated(get_service("connect"), world):
        ensure_running(world, "connect")


def _enable_plugins(names: Sequence[str]) -> None:
    for name in names:
        marker = services.plugin_marker(name)
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()


def _plugins_in_use(world: World) -> list[str]:
    """Return the plugins of services.OPTIONAL_PLUGINS that deployed connectors use.

    Connect must be running.
    """
    configs = addresses.connect_configs(world).values()
    classes = " ".join(config.get("connector.class", "") for config in configs)
    return [name for name, pattern in services.OPTIONAL_PLUGINS.items() if pattern in classes]


def _services_in_use(world: World) -> list[str]:
    """Return the services started on demand whose address a deployed connector has.

    Without them its tasks would fail. Connect must be running.
    """
    known = addresses.service_addresses(world)
    named = set[str]()
    for config in addresses.connect_configs(world).values():
        database = f"{config.get('database.hostname')}:{config.get('database.port')}"
        named |= {
            name
            for name, address in known.items()
            if address == database or any(address in value for value in config.values())
        }
    return [name for name in services.ON_DEMAND_SERVICES if name in named and world.manages(name)]


def down(progress: Progress = _silent) -> list[str]:
    """Stop every service of this instance, dependents first; return the names of those stopped."""
    with _stack_lock():
        # services of packages that this process has not imported; no other service depends on them
        unregistered = [name for name in pidfiles.names() if name not in services.SERVICES]
        stopped = [name for name in unregistered if process.stop(services.unregistered(name))]
        return stopped + _stop(list(services.SERVICES), progress)


def stop(*names: str) -> list[str]:
    """Stop only these services; return the names of those that had a process."""
    with _stack_lock():
        return _stop([get_service(name).name for name in names])


def kill(name: str) -> None:
    """Kill all processes of a service, as a crash would, and wait for their end; for lessons and tests.

    The process that the pid file names may be the parent of the one that works: Spark's is Python,
    and its child a JVM. PostgreSQL's backends have process groups of their own.
    """
    running = process.running_process(name)
    if running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    process.kill_orphans(name)


def _stop(names: list[str], progress: Progress = _silent) -> list[str]:
    """Stop these services, dependents first; return the names of those that had a process."""
    stopped: list[str] = []
    while names:
        required = {name for each in names for name in services.dependencies(each)}
        batch = [name for name in names if name not in required]
        names = [name for name in names if name in required]
        writers = [name for name in batch if process.archive_path(name)]
        if writers:
            progress(f"{', '.join(writers)}: writing an archive of classes, for faster starts")
        for name, had_process in zip(
            batch, _run_parallel(lambda name: process.stop(get_service(name)), batch)
        ):
            if had_process:
                stopped.append(name)
                progress(f"{name} stopped")
    return stopped


def restart(world: World, name: str) -> None:
    """Stop and start one embedded service.

    Raises:
        StackError: the world does not manage the service.
    """
    if not world.manages(name):
        raise StackError(f"{name} is not restarted: world {world.name!r} does not manage it")
    world = world.base  # the administrator of a source is another user
    selected = _with_dependencies(world, [name])
    artifacts.ensure(*services.optional_artifacts(world))
    with _stack_lock():
        _require_same_port_base(world)
        # A killed service may have left a process that holds the port: stop ends it.
        if process.running_process(name):
            process.require_free_ports(get_service(name), world, process.bound_ports())
        process.stop(get_service(name))
        _start(world, selected)


def status(world: World) -> list[Status]:
    """Return the status of every service of the world, including services started on demand.

    Services of other packages are included once they have been started. Nothing is changed.
    """
    world = world.base
    if not world.stack.embedded:
        return [remote.probe(world, name) for name in remote.service_names(world)]
    _require_same_port_base(world)
    names = [*services.default_services(world), *services.ON_DEMAND_SERVICES]
    names += [n for n in services.REGISTERED_SERVICES if pidfiles.pid_file(n).exists()]
    others = [name for name in remote.service_names(world) if not world.manages(name)]
    return [
        *_run_parallel(
            lambda name: process.status(get_service(name), world), filter(world.manages, names)
        ),
        *_run_parallel(lambda name: remote.probe(world, name), others),
    ]


def service_down_error(world: World, name: str, address: str) -> Optional[StackError]:
    """Return the error for a service that is down: its name, its state and a hint.

    Call it after a client has failed: each client has its own error for a lost server.

    Returns:
        None if the service is up, or is not a service of this instance: the world does not manage it,
        or the address is not on this machine.
    """
    if not world.manages(name) or not paths.LOOPBACK_ADDRESS.fullmatch(address.split(",")[0]):
        return None
    reason = process.down_reason(name)
    if not reason:
        return None
    error = StackError if process.running_process(name) else ServiceLost
    return error(
        f"the service {name} {reason}",
        location=f"{address}; its log: {process.log_file(name)}",
        expected="a running service while a notebook runs",
        hint="`workbench up` starts it again. Then run the notebook's set-up cell, and this one "
        "again; nothing is lost",
    )


def process_down_error(world: World, name: str) -> Optional[StackError]:
    """Return the error for a service of this instance that has no process, else None.

    Unlike `service_down_error` it does not probe the service's ports, which is slow.
    """
    if process.running_process(name):
        return None
    return service_down_error(world, name, get_service(name).address(world))


def watch(world: World, *names: str) -> Callable[[], None]:
    """Return a function for polling that raises ServiceLost when one of these services is lost.

    A service is lost when it has had no process for RESTART_GRACE_SECONDS. Services that the world does
    not manage are ignored.
    """
    down_since: dict[str, float] = {}

    def check() -> None:
        for name in filter(world.manages, names):
            if process.running_process(name):
                down_since.pop(name, None)
                continue
            since = down_since.setdefault(name, time.monotonic())
            if time.monotonic() - since >= RESTART_GRACE_SECONDS:
                error = process_down_error(world, name)
                if isinstance(error, ServiceLost):
                    raise error

    return check


def run_watched(world: World, call: Callable[[Callable[[], bool]], T], *names: str) -> T:
    """Return the result of a blocking call; raise ServiceLost if one of these services is lost.

    Args:
        world: the world of the services.
        call: called in a thread, which continues until its own time limit when ServiceLost is
            raised. Its argument is a function that then returns False, so that the call sends no
            further request.
        names: the services (see `watch`).
    """
    future: Future[T] = Future()
    abandoned = threading.Event()

    def run() -> None:
        try:
            future.set_result(call(lambda: not abandoned.is_set()))
        except BaseException as e:  # noqa: BLE001 - raised by future.result()
            future.set_exception(e)

    check = watch(world, *names)
    threading.Thread(target=run, daemon=True).start()
    try:
        while not wait([future], timeout=0.5).done:
            check()
    finally:
        abandoned.set()
    return future.result()


def running() -> list[str]:
    """Return the names of the services of this instance that have a running process."""
    names = dict.fromkeys([*services.SERVICES, *pidfiles.names()])
    return [name for name in names if process.running_process(name)]


def _with_dependencies(world: World, names: Sequence[str]) -> list[str]:
    """Return the managed ones of these services, each after its direct and indirect dependencies."""
    available = {*services.default_services(world), *services.REGISTERED_SERVICES}
    ordered: dict[str, None] = {}
    for name in filter(world.manages, names):
        dependencies = [each for each in get_service(name).depends_on if each in available]
        ordered.update(dict.fromkeys([*_with_dependencies(world, dependencies), name]))
    return list(ordered)


def _require_same_port_base(world: World) -> None:
    """Raise StackError if this instance runs with another port base than this world has.

    WORKBENCH_PORT_BASE may have changed, or a kernel loaded its world before the instance was
    moved.
    """
    current, expected = pidfiles.running_port_base(), world.stack.port_base
    if current in (None, expected):
        return
    origin = "this world was loaded with"
    hint = "load the world again (a notebook's set-up cell does)"
    if os.environ.get("WORKBENCH_PORT_BASE") == str(expected):
        origin = "WORKBENCH_PORT_BASE is"
        hint = "`unset WORKBENCH_PORT_BASE`"
    raise StackError(
        f"instance {paths.instance_name()} runs with port base {current}, and {origin} {expected}",
        location=f"running: {', '.join(running())}; nothing was restarted",
        expected="the ports that the instance was started with, as long as it runs",
        hint=f"{hint}; to move the instance, `workbench down` first; to run a second one beside "
        "it, set another WORKBENCH_INSTANCE as well",
    )
