"""Services that the workbench does not start: check that they can be reached."""

import socket
from pathlib import Path
from typing import Any, Sequence

from ..base import StackError, World, aws, params, paths, registries, split_host_port
from . import services
from .process import Status

# The requests of services that have an API of AWS; any other service has an address.
AWS_PROBES = Path(__file__).with_suffix(".yaml")


def service_names(world: World) -> tuple[str, ...]:
    """Return the services of a world that has them; for an AWS deployment also lake and engine."""
    names = ("postgres", "kafka", "connect", "spark")
    if world.stack.deployment:
        return (*names, "apicurio", "lake", "query")
    optional = {"apicurio": world.registry.url, "mariadb": world.mysql.host}
    return (*names, *(name for name, address in optional.items() if address))


def check_reachable(world: World, names: Sequence[str]) -> list[Status]:
    """Return the status of each service; raise StackError if one cannot be reached."""
    statuses = [probe(world, name) for name in names]
    unreachable = [status for status in statuses if status.state != "up"]
    if unreachable:
        raise StackError(
            f"{', '.join(status.name for status in unreachable)} cannot be reached from here",
            location=unreachable[0].detail,
            expected=f"the services of world '{world.name}' running and reachable",
            hint=f"check {world.file} and the network path (VPN, security group)",
        )
    return statuses


def probe(world: World, name: str) -> Status:
    """Return whether a service can be reached, over the AWS API or at its address."""
    section = getattr(world, params.SECTION_OF_SERVICE.get(name, name))
    kind = getattr(section, "kind", "")
    requests = aws.fill(
        AWS_PROBES,
        world=world,
        bucket=paths.parse_s3_uri(world.lake.root)[0],
        registries=registries.glue_registries(world),
    )
    request = requests.get(f"{name} {kind}".strip())
    try:
        detail = _call_api(world, **request) if request else _connect(world, name)
    except StackError as e:
        return Status(name, "unreachable", 0, detail=f"{e.message} ({e.location})")
    return Status(name, "up", 0, detail=detail)


def _connect(world: World, name: str) -> str:
    """Connect to the address of a service, and return the address."""
    address = services.get_service(name).address(world)
    if name == "spark" and world.spark.kind == "classic":
        address = world.spark.master
        if not address.startswith("spark:"):
            return "in the notebook's own process"
    try:
        socket.create_connection(split_host_port(address.split(",")[0]), timeout=3).close()
    except (OSError, ValueError) as e:
        raise StackError(f"no connection: {e}", location=address) from e
    return address


def _call_api(world: World, service: str, operation: str, params: dict[str, Any]) -> str:
    """Call the AWS API, and return the service and its region."""
    response = aws.call(world.region, service, operation, **params)
    region = response.get("BucketRegion", world.region)
    if region != world.region:
        raise StackError(f"the bucket is in {region}, not {world.region}", location=str(world.file))
    return f"{service}, {world.region}"
