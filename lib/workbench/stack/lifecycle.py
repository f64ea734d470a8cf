"""Start, stop and inspect the stack: up, ensure_running, down, status.

In an embedded world the workbench starts and stops the services, except those that the world does
not manage (`managed: false`). A service that was started for another world is restarted. Of a service
that is not managed, and in any other world, these functions check that it can be reached (see
`remote`), and start nothing.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, ContextManager, Iterable, Optional, Sequence, TypeVar

from ..base import ServiceLost, StackError, World, logs, params, paths, pidfiles, secrets, tls
from ..base.wait import file_lock
from . import artifacts, cds, process, remote, services
from .artifacts import Progress
from .process import Status
from .services import get_service, with_dependencies

T = TypeVar("T")


def _stack_lock() -> ContextManager[str]:
    """Hold the lock of this instance's stack while services are started or stopped."""
    paths.link_safe_root()
    return file_lock(paths.state_dir() / "up.lock")


def _run_parallel(function: Callable[[str], T], names: Iterable[str]) -> list[T]:
    """Call a function for each name in parallel and return its results.

    The first error is raised after all calls have ended.
    """
    names = list(names)
    with ThreadPoolExecutor(max(1, len(names))) as pool:
        return list(pool.map(function, names))


def up(
    world: World, names: Sequence[str] = (), progress: Progress = lambda text: None
) -> list[Status]:
    """Start services in parallel, and wait until each is ready. Missing jars are fetched first.

    With Connect also MariaDB and Apicurio Registry start, if this instance has run them before.
    The world stays active afterwards (see `params.activate`).

    Args:
        world: the world of the services.
        names: services to start, with their dependencies; by default all services of the world.
        progress: called with one line per service that is ready.

    Returns:
        The status of each service.

    Raises:
        StackError: the first service that failed, after all others have started or failed; or this
            instance was created with another port base than the world was loaded with.
    """
    params.activate(world)
    reachable = _check_unmanaged(world, names or remote.service_names(world))
    if not world.stack.embedded:
        return reachable
    selected = with_dependencies(world, names or services.DEFAULT_SERVICES)
    world = world.base
    artifacts.ensure(*services.optional_artifacts(world))
    with _stack_lock():
        _start(world, selected, progress)
    return [*(process.status(get_service(name), world) for name in selected), *reachable]


def _start(world: World, names: list[str], progress: Progress = lambda text: None) -> None:
    """Start these services in parallel. The caller holds the lock."""
    stored, expected = paths.stored_port_base(), world.stack.port_base
    if stored not in (None, expected):  # created anew, or by another process, since the load
        raise StackError(
            f"this instance has port base {stored}, and its world was loaded with {expected}",
            location=paths.display_path(paths.port_base_file()),
            hint="load the world again, as a notebook's set-up cell does; nothing was changed",
        )
    secrets.ensure(services.SECRETS)
    secrets.write_s3_credentials(services.S3_KEY_ID, secrets.read()[services.S3_KEY])
    tls.ensure()
    cds.create_base_archive()
    started_at = time.monotonic()
    names = _with_on_demand(world, names)
    outdated = [name for name in names if process.is_outdated(get_service(name), world)]
    own_ports = {port for name in outdated for port in pidfiles.read(name)["ports"]}
    for name in outdated:  # none is stopped that could not start again
        process.require_free_ports(get_service(name), world, own_ports)
    _stop(outdated)

    def start(name: str) -> None:
        result = process.start(get_service(name), world)
        paths.store_port_base(world.stack.port_base)
        action = "restarted" if name in outdated else result
        seconds = time.monotonic() - started_at
        progress(f"{name:<15} {action:<9} {seconds:5.1f} s")

    # Services start without waiting for their dependencies. Connect retries until Kafka is ready, and
    # loads its plugins meanwhile.
    _run_parallel(start, names)


def _with_on_demand(world: World, names: list[str]) -> list[str]:
    """Return these services; with Connect also those on demand that this instance has run.

    Without them the tasks of deployed connectors would fail.
    """
    used = [
        name for name in services.ON_DEMAND_SERVICES if (paths.state_dir() / "data" / name).exists()
    ]
    return with_dependencies(world, [*names, *used]) if "connect" in names else names


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
    _check_unmanaged(world, names)
    if not world.stack.embedded:
        return
    secrets.validate_environment(services.SECRETS)
    selected = with_dependencies(world, names)
    world = world.base
    found = _run_parallel(lambda name: process.status(get_service(name), world), selected)
    for row in found:
        if row.state == "outdated":
            print(
                f"{row.name} runs with other settings than those of world '{world.name}': restarting it"
            )
    to_start = [row.name for row in found if row.state != "up"]
    if to_start:
        up(world, to_start)


def _check_unmanaged(world: World, names: Sequence[str]) -> list[Status]:
    """Check that the services that the world does not manage can be reached; return their status."""
    return remote.check_reachable(world, [name for name in names if not world.manages(name)])


def down(progress: Progress = lambda text: None) -> list[str]:
    """Stop every service of this instance, dependents first; return the names of those stopped."""
    with _stack_lock():
        return _stop(_known_names(), progress)


def _known_names() -> list[str]:
    """Return the names of all services, also of packages that this process has not imported."""
    return list(dict.fromkeys([*services.SERVICES, *pidfiles.names()]))


def stop(*names: str) -> list[str]:
    """Stop only these services; return the names of those that had a process."""
    with _stack_lock():
        return _stop([get_service(name).name for name in names])


def _stop(names: list[str], progress: Progress = lambda text: None) -> list[str]:
    """Stop these services, dependents first; return the names of those that had a process."""
    stopped: list[str] = []
    remaining = {*names}
    while remaining:
        known = [services.SERVICES[name] for name in remaining if name in services.SERVICES]
        required = {name for service in known for name in service.depends_on}
        batch = sorted(remaining - required)
        remaining &= required
        writers = ", ".join(filter(process.writes_archive, batch))
        if writers:
            progress(f"{writers}: writing an archive of classes, for faster starts")
        had_process = _run_parallel(process.stop, batch)
        stopped += [name for name, was_running in zip(batch, had_process) if was_running]
    for name in stopped:
        progress(f"{name} stopped")
    return stopped


def status(world: World) -> list[Status]:
    """Return the status of every service of the world, including services started on demand.

    Services of other packages are included once they have been started. Nothing is changed.
    """
    world = world.base
    external = [name for name in remote.service_names(world) if not world.manages(name)]
    own = [*services.DEFAULT_SERVICES, *services.ON_DEMAND_SERVICES, *pidfiles.names()]
    own = [name for name in dict.fromkeys(own) if name in services.SERVICES and world.manages(name)]
    return [
        *_run_parallel(lambda name: process.status(get_service(name), world), own),
        *_run_parallel(lambda name: remote.probe(world, name), external),
    ]


def running() -> list[str]:
    """Return the names of the services of this instance that have a running process."""
    return [name for name in _known_names() if process.running_process(name)]


def service_down_error(world: World, name: str, address: str = "") -> Optional[StackError]:
    """Return the error for a service that is down: its name, its state and a hint.

    Call it after a client has failed: each client has its own error for a lost server.

    Args:
        world: the world of the client.
        name: name of the service.
        address: address that the client has called, by default the service's.

    Returns:
        None if the service is up, or is not a service of this instance: the world does not manage it,
        or the address is not on this machine.
    """
    if not world.manages(name):
        return None
    address = address or get_service(name).address(world)
    reason = process.down_reason(name)
    if not reason or not paths.LOOPBACK_ADDRESS.fullmatch(address.split(",")[0]):
        return None
    # asked of the reason, because a supervisor may have started it again meanwhile
    error = StackError if reason == process.NOT_LISTENING else ServiceLost
    return error(
        f"the service {name} {reason}",
        location=f"{address}; its log: {process.log_file(name)}",
        expected="a running service while a notebook runs",
        hint="`workbench up` starts it again. Then run the notebook's set-up cell, and this one "
        "again; nothing is lost",
    )
