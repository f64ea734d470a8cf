"""The stack as verbs: up, need, down, status, restart.

In an embedded world the services are ours to start and stop; one that was started for another world
is started anew. An instance keeps its ports while it runs: another port base is refused, and
without WORKBENCH_PORT_BASE it is theirs. In any other world the same verbs look whether the
services can be reached, and start nothing.
"""

import os
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Callable, Optional, Sequence, TypeVar

from ..base import (
    ServiceLost,
    StackError,
    World,
    aws,
    did_you_mean,
    params,
    paths,
    pidfiles,
    secrets,
    split_host_port,
    tls,
)
from ..base.wait import RESTART_GRACE_SECONDS, file_lock
from . import addresses, artifacts, process, services, storefront
from .process import Status
from .services import SERVICES

T = TypeVar("T")
LOCK = "up.lock"  # below the state folder: who starts or stops services holds it


def up(
    world: World,
    names: Optional[list[str]] = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Status]:
    """Start what is not running, side by side, and return the status of each service once all
    answer. Jars that are not there yet are fetched first.

    Args:
        names: services to start (with what they need); all of the world's by default.
        say: is told one line for each service that has become ready.

    Raises:
        StackError: the first service that failed, after the others had their chance.
    """
    if not world.stack.embedded:
        return check_reachable(world, names or _remote_services(world))
    chosen = _with_dependencies(world, names or services.default_services(world))
    artifacts.ensure(*services.optional_artifacts(world))
    with file_lock(paths.state_dir() / LOCK):
        _require_same_port_base(world)  # only now: another that was first may have started it
        _start(world, chosen, progress)
    return [process.status(SERVICES[n], world) for n in chosen]


def _start(world: World, chosen: list[str], say: Callable[[str], None] = lambda text: None) -> None:
    """Start these services side by side (the caller holds the lock)."""
    secrets.ensure(services.SECRETS)  # at first start they are made
    tls.ensure()
    begun = time.monotonic()
    old = [n for n in chosen if process.is_outdated(SERVICES[n], world)]
    for name in old:
        process.require_free_ports(SERVICES[name], world, process.bound_ports())
    _stop(old)  # all of them before the first starts: one may hold the port that another is to have

    def bring(name: str) -> None:
        how = process.start(SERVICES[name], world)
        say(
            f"{name:<15} {'restarted' if name in old else how:<9} {time.monotonic() - begun:5.1f} s"
            + (
                f"  {SERVICES[name].startup_notice}"
                if how == "started" and SERVICES[name].startup_notice
                else ""
            )
        )

    # needs are for need(): everything starts at once, as Connect retries until Kafka is there and
    # loads meanwhile
    _run_parallel(bring, chosen)
    if process.running_process("connect"):
        addresses.update_connectors(world, say)
    if "connect" in chosen:
        missing = [
            name for name in _plugins_in_use(world) if not services.plugin_marker(name).exists()
        ]
        if (
            missing
        ):  # deployed when Connect loaded every plugin, or by a Connect that has ended since
            _enable_plugins(missing)
            process.stop(SERVICES["connect"])
            bring("connect")


def _run_parallel(do: Callable[[str], Any], names: list[str]) -> list:
    """What `do` returns for each of them. The first error is raised when all have come to their
    end.
    """
    with ThreadPoolExecutor(len(names)) as pool:
        return list(pool.map(do, names))


def ensure_running(world: World, *names: str) -> None:
    """Make sure that these services answer for this world, starting them where they do not. What a
    notebook calls first; it prints a line for each service that is restarted.

    Raises:
        ParamsError: the environment gives a password that is not the instance's.
        StackError: a service cannot be started or reached, or the world names what is not there
            yet.
    """
    if not world.stack.embedded:
        up(world, list(names))
    else:
        _require_same_port_base(world)
        secrets.validate_environment(services.SECRETS)
        chosen = _with_dependencies(world, list(names))
        old = [n for n in chosen if process.is_outdated(SERVICES[n], world)]
        missing = [
            n
            for n in chosen
            if n in old
            or not process.running_process(n)
            or not process.is_ready(SERVICES[n], world)
        ]
        for name in old:
            print(f"{name} runs with other settings than world '{world.name}' has: restarting it")
        if missing:
            up(world, missing)
        for name in missing:
            if SERVICES[name].startup_notice:
                print(f"{name} was started: {SERVICES[name].startup_notice}")


def load_plugins(world: World, *names: str) -> None:
    """Have the embedded Connect load plugins of services.OPTIONAL_PLUGINS, until `unload_plugins`.
    Connect is restarted where it has not loaded them yet. A Connect of another world stays as it
    is.

    Raises:
        StackError: Connect cannot be started.
    """
    if world.stack.embedded:
        _enable_plugins(names)
        ensure_running(world, "connect")


def unload_plugins(world: World, *names: str) -> None:
    """Have the embedded Connect load these plugins no more, but for those of which a connector is
    deployed. Where it runs with one of them, it is restarted. A Connect of another world stays as
    it is.

    Raises:
        StackError: Connect does not answer, or cannot be started.
    """
    wanted = (
        [name for name in names if services.plugin_marker(name).exists()]
        if world.stack.embedded
        else []
    )
    used = _plugins_in_use(world) if wanted and process.running_process("connect") else []
    unused = [name for name in wanted if name not in used]
    for name in unused:
        services.plugin_marker(name).unlink()
    if unused and process.is_outdated(SERVICES["connect"], world):
        ensure_running(world, "connect")


def _enable_plugins(names: Sequence[str]) -> None:
    for name in names:
        services.plugin_marker(name).parent.mkdir(parents=True, exist_ok=True)
        services.plugin_marker(name).touch()


def _plugins_in_use(world: World) -> list[str]:
    """The plugins of services.OPTIONAL_PLUGINS of which a connector is deployed in Connect, which
    has to run.
    """
    classes = [
        config.get("connector.class", "") for config in addresses.connect_configs(world).values()
    ]
    return [
        name
        for name, part in services.OPTIONAL_PLUGINS.items()
        if any(part in each for each in classes)
    ]


def down(progress: Callable[[str], None] = lambda text: None) -> list[str]:
    """Stop every service of this instance, each before what it needs; return the names of those
    stopped.
    """
    with file_lock(paths.state_dir() / LOCK):
        return _stop(list(SERVICES), progress)


def stop(*names: str) -> list[str]:
    """Stop these services only; return the names of those that there was something of to stop."""
    with file_lock(paths.state_dir() / LOCK):
        return _stop([get_service(name).name for name in names])


def _stop(names: list[str], say: Callable[[str], None] = lambda text: None) -> list[str]:
    """Stop these services wave by wave, and return the names of those that there was something of
    to stop.
    """
    stopped: list[str] = []
    while names:
        needed = {ensure_running for n in names for need in SERVICES[n].depends_on}
        wave, names = [n for n in names if n not in needed], [n for n in names if n in needed]
        for name, was in zip(wave, _run_parallel(lambda n: process.stop(SERVICES[n]), wave)):
            if was:
                stopped.append(name)
                say(f"{name} stopped")
    return stopped


def restart(world: World, name: str) -> None:
    """Stop and start one embedded service."""
    chosen = _with_dependencies(world, [name])
    artifacts.ensure(*services.optional_artifacts(world))
    with file_lock(paths.state_dir() / LOCK):
        _require_same_port_base(world)
        if process.running_process(
            name
        ):  # of one that was killed, a process that it has left may hold the port: stop ends it
            process.require_free_ports(SERVICES[name], world, process.bound_ports())
        process.stop(SERVICES[name])
        _start(world, chosen)


def status(world: World) -> list[Status]:
    """Return the status of every service of the world, those that start when asked included, and of
    the storefront's those that were started; nothing is changed.
    """
    if not world.stack.embedded:
        return [_probe(world, n) for n in _remote_services(world)]
    _require_same_port_base(world)
    started = [row.name for row in storefront.SERVICES if pidfiles.pid_file(row.name).exists()]
    return _run_parallel(
        lambda n: process.status(SERVICES[n], world),
        [*services.default_services(world), *services.ON_DEMAND_SERVICES, *started],
    )


def service_down_error(world: World, name: str, address: str) -> Optional[StackError]:
    """The error for a service that is not there any more: its name, its state and what to do. None
    where it is there, or where it is none of ours: the world is not embedded, or the address not of
    this machine.

    Asked after a client has failed: every client has words of its own for a server that is gone.
    """
    here = world.stack.embedded and params.LOOPBACK_ADDRESS.fullmatch(address.split(",")[0])
    how = process.down_reason(name) if here else ""
    if not how:
        return None
    error = StackError if process.running_process(name) else ServiceLost
    return error(
        f"the service {name} {how}",
        location=f"{address}; its log: {process.log_file(name)}",
        expected="that it runs while a notebook does",
        hint="`workbench up` starts it again. Then run the "
        "notebook's set-up cell, and this one again; nothing is lost",
    )


def process_down_error(world: World, name: str) -> Optional[StackError]:
    """The error for a service of this instance that has no process any more, None otherwise. Unlike
    `lost` it does not look at the service's ports, which takes a while.
    """
    return (
        None
        if process.running_process(name)
        else service_down_error(world, name, get_service(name).address(world))
    )


def watch(world: World, *names: str) -> Callable[[], None]:
    """Return a function for polling: it raises ServiceLost once one of these services has been gone
    for GRACE seconds. In a world that is not embedded it does nothing.
    """
    gone_since: dict[str, float] = {}

    def look() -> None:
        for name in names if world.stack.embedded else ():
            if process.running_process(name):
                gone_since.pop(name, None)
            elif (
                time.monotonic() - gone_since.setdefault(name, time.monotonic())
                >= RESTART_GRACE_SECONDS
            ):
                error = process_down_error(world, name)
                if isinstance(error, ServiceLost):
                    error.since = gone_since[name]
                    raise error

    return look


def run_watched(world: World, call: Callable[[Callable[[], bool]], T], *names: str) -> T:
    """Return what a blocking call returns, or raise ServiceLost when one of these services is gone
    meanwhile (see `watch`).

    Args:
        call: called in a thread, which is left to its own time limit when ServiceLost is raised.
            Its argument is a function that returns False from then on: the call sends nothing any
            more.
    """
    outcome: Future = Future()
    abandoned = threading.Event()

    def run() -> None:
        try:
            outcome.set_result(call(lambda: not abandoned.is_set()))
        except BaseException as e:  # noqa: BLE001 - raised again where the result is taken
            outcome.set_exception(e)

    look = watch(world, *names)
    threading.Thread(target=run, daemon=True).start()
    try:
        while not wait([outcome], timeout=0.5).done:
            look()
    finally:
        abandoned.set()
    return outcome.result()


def running() -> list[str]:
    """Names of the services of this instance that have a living process."""
    return [n for n in SERVICES if process.running_process(n)]


def _with_dependencies(world: World, names: list[str]) -> list[str]:
    """The services named, each after those of this world that it needs, directly or not."""
    ours, found = services.default_services(world), {}
    for name in names:
        found.update(
            dict.fromkeys(
                _with_dependencies(world, [n for n in get_service(name).depends_on if n in ours])
            )
        )
        found[name] = None
    return list(found)


def get_service(name: str) -> process.Service:
    """Return the service of this name, StackError with the nearest name where there is none."""
    if name not in SERVICES:
        raise StackError(f"there is no service '{name}'", expected=did_you_mean(name, SERVICES))
    return SERVICES[name]


def check_reachable(world: World, names: Sequence[str]) -> list[Status]:
    found = [_probe(world, n) for n in names]
    lost = [s for s in found if s.state != "up"]
    if lost:
        raise StackError(
            f"{', '.join(s.name for s in lost)} cannot be reached from here",
            location=lost[0].detail,
            expected=f"the services of world '{world.name}' running and reachable",
            hint=f"check {world.file} and the network path (VPN, security group)",
        )
    return found


def _probe(world: World, name: str) -> Status:
    """Whether a service of somebody else's answers: asked over AWS's API, else at its address."""
    kind, master = world.spark.kind, world.spark.master
    if name == "spark" and (
        kind == "existing" or kind == "classic" and not master.startswith("spark:")
    ):
        return Status(name, "up", 0, detail="in the notebook's own process")
    asked = _api_probe(world, name)
    if asked:
        service, operation, given = asked
        try:
            answer = aws.call(world.region, service, operation, **given)
        except StackError as e:
            return Status(name, "unreachable", 0, detail=f"{e.message} ({e.location})")
        at = answer.get("BucketRegion", world.region)
        if at != world.region:
            return Status(
                name,
                "unreachable",
                0,
                detail=f"the bucket lies in {at}, {world.file} says {world.region}",
            )
        return Status(name, "up", 0, detail=f"{service}, {world.region}")
    address = master if name == "spark" and kind == "classic" else get_service(name).address(world)
    try:
        host, port = split_host_port(address.split(",")[0])
        socket.create_connection((host, port), timeout=3).close()
        return Status(name, "up", port, detail=address)
    except (OSError, ValueError) as e:
        return Status(name, "unreachable", 0, detail=f"{address or 'no address'}: {e}")


def _api_probe(world: World, name: str) -> Optional[tuple[str, str, dict[str, Any]]]:
    """What is asked of AWS about a service: AWS's name of it, operation, parameters. None where it
    has an address.
    """
    of, lake = world.stack.deployment, world.lake
    if name == "lake":
        return ("s3", "head_bucket", {"Bucket": paths.parse_s3_uri(lake.root)[0]})
    kinds = {
        "connect": world.connect.kind,
        "apicurio": world.registry.kind,
        "spark": world.spark.kind,
        "query": world.query.kind,
    }
    return {
        "msk": ("kafkaconnect", "list_connectors", {"maxResults": 1}),
        "glue": (
            "glue",
            "get_registry",
            {"RegistryId": {"RegistryName": services.glue_registries(world)["value"]}},
        ),
        "emr_serverless": ("emr-serverless", "get_application", {"applicationId": world.spark.url}),
        "athena": ("athena", "get_work_group", {"WorkGroup": of}),
    }.get(kinds.get(name, ""))


def _remote_services(world: World) -> tuple[str, ...]:
    """The services that a world has, whoever runs them; of a deployment on AWS registry, lake and
    engine, too.
    """
    return (
        "postgres",
        "kafka",
        "connect",
        "spark",
        *(("apicurio", "lake", "query") if world.stack.deployment else ()),
    )


def _require_same_port_base(world: World) -> None:
    """Raise StackError where a service of this instance runs with another port base than this world
    has: another WORKBENCH_PORT_BASE, or a kernel that loaded its world before the instance was
        moved.
    """
    there, wanted = pidfiles.running_port_base(), world.stack.port_base
    if there in (None, wanted):
        return
    stated = os.environ.get("WORKBENCH_PORT_BASE") == str(wanted)
    back = (
        "`unset WORKBENCH_PORT_BASE`"
        if stated
        else "load the world again (a notebook's set-up cell does)"
    )
    given = "WORKBENCH_PORT_BASE is" if stated else "this world was loaded with"
    raise StackError(
        f"instance {paths.instance_name()} runs with port base {there}, and {given} {wanted}",
        location=f"running: {', '.join(running())}; nothing was restarted",
        expected="the ports that an instance was started with, as long as it runs",
        hint=f"{back}; to move the instance, `workbench down` first; for a second one beside it, "
        "another WORKBENCH_INSTANCE as well",
    )
