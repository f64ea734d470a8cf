"""Services that the workbench does not start: check that they can be reached."""

import socket
from typing import Any, Optional, Sequence

from ..base import StackError, World, aws, paths, registries, split_host_port
from . import services
from .process import Status


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
    request = api_request(world, name)
    try:
        detail = _probe_api(world, *request) if request else _connect(world, name)
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


def _probe_api(world: World, service: str, operation: str, params: dict[str, Any]) -> str:
    """Call the AWS API, and return the service and its region."""
    response = aws.call(world.region, service, operation, **params)
    region = response.get("BucketRegion", world.region)
    if region != world.region:
        raise StackError(f"the bucket is in {region}, not {world.region}", location=str(world.file))
    return f"{service}, {world.region}"


def api_request(world: World, name: str) -> Optional[tuple[str, str, dict[str, Any]]]:
    """Return the AWS request that probes a service, None for a service with an address.

    Returns:
        (AWS service, operation, parameters).
    """
    if name == "lake":
        bucket = paths.parse_s3_uri(world.lake.root)[0]
        return "s3", "head_bucket", {"Bucket": bucket}
    if name == "connect" and world.connect.kind == "msk":
        return "kafkaconnect", "list_connectors", {"maxResults": 1}
    if name == "apicurio" and world.registry.kind == "glue":
        registry = {"RegistryName": registries.glue_registries(world)["value"]}
        return "glue", "get_registry", {"RegistryId": registry}
    if name == "spark" and world.spark.kind == "emr_serverless":
        return "emr-serverless", "get_application", {"applicationId": world.spark.url}
    if name == "query" and world.query.kind == "athena":
        return "athena", "get_work_group", {"WorkGroup": world.stack.deployment}
    return None
