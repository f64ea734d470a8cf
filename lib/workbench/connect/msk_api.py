"""What MSK Connect, CloudWatch and its logs tell of the connectors of a deployment, and what is
done to one of them.
"""

import datetime as dt
import re
from typing import Any, Optional

from ..base import ConnectorError, StackError, World, aws, nearest
from . import judging

PATIENCE, EVERY = (
    15 * 60,
    5.0,
)  # seconds that a connector may take to run or to be gone, and between two looks at it
METRICS = 3 * 60  # seconds that CloudWatch may be behind
SETTLED = ("RUNNING", "FAILED", "PAUSED")


def call(world: World, operation: str, **given: Any) -> dict[str, Any]:
    return aws.call(world.region, "kafkaconnect", operation, **given)


def full(world: World, name: str) -> str:
    return f"{world.stack.deployment}-{name}"


def _arns(world: World, name: str = "") -> dict[str, str]:
    """{name: ARN} of the connectors whose names begin so, whosever they are: `a-b-c` may be b-c of
    deployment a, and c of a-b.
    """
    start = len(full(world, ""))
    found = aws.pages(
        world.region,
        "kafkaconnect",
        "list_connectors",
        "connectors",
        connectorNamePrefix=full(world, name),
    )
    return {one["connectorName"][start:]: one["connectorArn"] for one in found}


def names(world: World) -> list[str]:
    """Those of this deployment."""
    return sorted(name for name, arn in _arns(world).items() if _is_ours(world, arn))


def _is_ours(world: World, arn: str) -> bool:
    tags = call(world, "list_tags_for_resource", resourceArn=arn).get("tags", {})
    return tags.get(aws.TAG) == world.stack.deployment


def describe(world: World, name: str) -> Optional[dict[str, Any]]:
    """What MSK Connect says of a connector; None where there is none, or it went while it was asked
    for. Raises:
    ConnectorError: it does not bear this deployment's tag, so it is another user's, of the same
        name.
    """
    arn = _arns(world, name).get(name)
    with aws.suppress("^NotFoundException$"):
        if arn and not _is_ours(world, arn):
            raise ConnectorError(
                f"connector {full(world, name)!r} is not of this deployment; nothing was changed",
                where=arn,
                expected=f"the tag {aws.TAG} = {world.stack.deployment}",
                next_step="two users of one account take two names: stack.deployment in the params file",
            )
        return call(world, "describe_connector", connectorArn=arn) if arn else None
    return None


def there(world: World, name: str) -> dict[str, Any]:
    """What `describe` returns. Raises: ConnectorError: there is no such connector."""
    found = describe(world, name)
    if not found:
        raise ConnectorError(
            f"there is no connector {name!r}",
            where=f"MSK Connect, {world.region}",
            expected=nearest(name, names(world)),
            next_step="deploy it with connect.apply",
        )
    return found


def settled(world: World, name: str) -> Optional[dict[str, Any]]:
    """What `describe` returns, once a connector is at rest: one that is being made or changed can
    be neither updated nor deleted.
    """
    found = describe(world, name)  # what is wrong with it is told at once, by no waiting
    if not found or found["connectorState"] in SETTLED:
        return found
    aws.wait(
        lambda: (describe(world, name) or {}).get("connectorState") in (None, *SETTLED),
        f"connector {name!r} to come to rest",
        timeout=PATIENCE,
        every=EVERY,
        error=ConnectorError,
    )
    return describe(world, name)


def operate(world: World, name: str, operation: str, **given: Any) -> None:
    """Let MSK Connect do something to a connector, and wait until that is done. Raises:
    ConnectorError: it came to nothing.
    """
    found = settled(world, name) or there(world, name)
    if operation == "update_connector":
        given["currentVersion"] = found["currentVersion"]
    done = call(world, operation, connectorArn=found["connectorArn"], **given)[
        "connectorOperationArn"
    ]
    seen = aws.wait(
        lambda: [
            now
            for now in [call(world, "describe_connector_operation", connectorOperationArn=done)]
            if re.search("COMPLETE|FAILED", now["connectorOperationState"])
        ],
        f"{operation} of {name!r}",
        timeout=PATIENCE,
        every=EVERY,
        error=ConnectorError,
    )[0]
    if re.search("FAILED|ROLLBACK", seen["connectorOperationState"]):
        why = f"{' '.join(seen.get('errorInfo', {}).values())} … {logged(world, name, found)}"
        raise ConnectorError(
            f"{operation} of connector {name!r} came to nothing, the connector is as it was before: {why}",
            where=f"{full(world, name)}: {seen['connectorOperationState']}",
            next_step=judging.causes(why),
        )


def errored(world: World, name: str, found: dict[str, Any]) -> int:
    """How many tasks have failed, by what CloudWatch heard last."""
    now = dt.datetime.now(dt.timezone.utc)
    begin = max(now - dt.timedelta(seconds=METRICS), found.get("creationTime", now))
    heard = aws.call(
        world.region,
        "cloudwatch",
        "get_metric_statistics",
        Namespace="AWS/KafkaConnect",
        Period=60,
        MetricName="ErroredTaskCount",
        Dimensions=[{"Name": "ConnectorName", "Value": full(world, name)}],
        StartTime=begin,
        EndTime=now,
        Statistics=["Maximum"],
    ).get("Datapoints", [])
    return int(max(heard, key=lambda point: point["Timestamp"])["Maximum"]) if heard else 0


def why(world: World, name: str, found: dict[str, Any]) -> str:
    """Why a connector has failed: the last error in its log, else what MSK Connect says of it,
    which is seldom more than that the log has the reason.
    """
    said = found.get("stateDescription", {})
    return (
        logged(world, name, found)
        or f"{said.get('code', 'no reason given')}: {said.get('message', '')}"
    )


def logged(world: World, name: str, found: dict[str, Any]) -> str:
    """The last error in a connector's log, "" where there is none. An event is a line,
    `[Worker-…] [time] ERROR …`, of a stack trace one each (developer guide, "Logging for MSK
    Connect").
    """
    group = (
        found.get("logDelivery", {})
        .get("workerLogDelivery", {})
        .get("cloudWatchLogs", {})
        .get("logGroup")
    )
    since = dt.datetime.now(dt.timezone.utc) - dt.timedelta(hours=6)
    try:  # the newest come first
        events = (
            aws.pages(
                world.region,
                "logs",
                "filter_log_events",
                "events",
                logGroupName=group,
                startFromHead=False,
                startTime=int(since.timestamp() * 1000),
                PaginationConfig={"MaxItems": 2000},
                filterPattern='?ERROR ?FATAL ?Exception ?"Caused by"',
            )
            if group
            else []
        )
    except StackError as e:
        return f"its log cannot be read: {e.what}"
    # All connectors have one group. A stream is of one worker, of one connector: which one its name
    # tells, or its lines
    mine = re.compile(re.escape(full(world, name)) + r"(?!\w)")
    streams = {
        e["logStreamName"] for e in events if mine.search(f"{e['logStreamName']} {e['message']}")
    }
    trace: list[str] = []
    for event in (e for e in events if e["logStreamName"] in streams):
        trace.insert(0, re.sub(r"^(\[Worker-\w+\] )?(\[[\d\s,:-]+\] )?", "", event["message"]))
        if re.match("ERROR|FATAL", trace[0]):
            break
    return judging.first_line("\n".join(trace))
