"""What MSK Connect, CloudWatch and its logs tell of the connectors of a deployment, and what is
done to one of them.
"""

import datetime as dt
import re
from typing import Any, Optional

from ..base import ConnectorError, StackError, World, aws, did_you_mean
from . import validation

OPERATION_TIMEOUT, POLL_INTERVAL = (
    15 * 60,
    5.0,
)  # seconds that a connector may take to run or to be gone, and between two looks at it
METRIC_DELAY = 3 * 60  # seconds that CloudWatch may be behind
STABLE_STATES = ("RUNNING", "FAILED", "PAUSED")


def call(world: World, operation: str, **given: Any) -> dict[str, Any]:
    return aws.call(world.region, "kafkaconnect", operation, **given)


def full_name(world: World, name: str) -> str:
    return f"{world.stack.deployment}-{name}"


def _arns(world: World, name: str = "") -> dict[str, str]:
    """{name: ARN} of the connectors whose names begin so, whosever they are: `a-b-c` may be b-c of
    deployment a, and c of a-b.
    """
    start = len(full_name(world, ""))
    found = aws.paginate(
        world.region,
        "kafkaconnect",
        "list_connectors",
        "connectors",
        connectorNamePrefix=full_name(world, name),
    )
    return {one["connectorName"][start:]: one["connectorArn"] for one in found}


def names(world: World) -> list[str]:
    """Those of this deployment."""
    return sorted(name for name, arn in _arns(world).items() if _has_deployment_tag(world, arn))


def _has_deployment_tag(world: World, arn: str) -> bool:
    tags = call(world, "list_tags_for_resource", resourceArn=arn).get("tags", {})
    return tags.get(aws.DEPLOYMENT_TAG) == world.stack.deployment


def describe(world: World, name: str) -> Optional[dict[str, Any]]:
    """What MSK Connect says of a connector; None where there is none, or it went while it was asked
    for. Raises:
    ConnectorError: it does not bear this deployment's tag, so it is another user's, of the same
        name.
    """
    arn = _arns(world, name).get(name)
    with aws.ignore_error_codes("^NotFoundException$"):
        if arn and not _has_deployment_tag(world, arn):
            raise ConnectorError(
                f"connector {full_name(world, name)!r} is not of this deployment; nothing was changed",
                location=arn,
                expected=f"the tag {aws.DEPLOYMENT_TAG} = {world.stack.deployment}",
                hint="two users of one account take two names: stack.deployment in the params file",
            )
        return call(world, "describe_connector", connectorArn=arn) if arn else None
    return None


def require(world: World, name: str) -> dict[str, Any]:
    """What `describe` returns. Raises: ConnectorError: there is no such connector."""
    found = describe(world, name)
    if not found:
        raise ConnectorError(
            f"there is no connector {name!r}",
            location=f"MSK Connect, {world.region}",
            expected=did_you_mean(name, names(world)),
            hint="deploy it with connect.apply",
        )
    return found


def wait_until_stable(world: World, name: str) -> Optional[dict[str, Any]]:
    """What `describe` returns, once a connector is at rest: one that is being made or changed can
    be neither updated nor deleted.
    """
    found = describe(world, name)  # what is wrong with it is told at once, by no waiting
    if not found or found["connectorState"] in STABLE_STATES:
        return found
    aws.wait(
        lambda: (describe(world, name) or {}).get("connectorState") in (None, *STABLE_STATES),
        f"connector {name!r} to come to rest",
        timeout=OPERATION_TIMEOUT,
        interval=POLL_INTERVAL,
        error=ConnectorError,
    )
    return describe(world, name)


def run_operation(world: World, name: str, operation: str, **given: Any) -> None:
    """Let MSK Connect do something to a connector, and wait until that is done. Raises:
    ConnectorError: it came to nothing.
    """
    found = wait_until_stable(world, name) or require(world, name)
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
        timeout=OPERATION_TIMEOUT,
        interval=POLL_INTERVAL,
        error=ConnectorError,
    )[0]
    if re.search("FAILED|ROLLBACK", seen["connectorOperationState"]):
        why = f"{' '.join(seen.get('errorInfo', {}).values())} … {last_logged_error(world, name, found)}"
        raise ConnectorError(
            f"{operation} of connector {name!r} came to nothing, the connector is as it was before: {why}",
            location=f"{full_name(world, name)}: {seen['connectorOperationState']}",
            hint=validation.likely_causes(why),
        )


def failed_task_count(world: World, name: str, found: dict[str, Any]) -> int:
    """How many tasks have failed, by what CloudWatch heard last."""
    now = dt.datetime.now(dt.timezone.utc)
    begin = max(now - dt.timedelta(seconds=METRIC_DELAY), found.get("creationTime", now))
    heard = aws.call(
        world.region,
        "cloudwatch",
        "get_metric_statistics",
        Namespace="AWS/KafkaConnect",
        Period=60,
        MetricName="ErroredTaskCount",
        Dimensions=[{"Name": "ConnectorName", "Value": full_name(world, name)}],
        StartTime=begin,
        EndTime=now,
        Statistics=["Maximum"],
    ).get("Datapoints", [])
    return int(max(heard, key=lambda point: point["Timestamp"])["Maximum"]) if heard else 0


def failure_reason(world: World, name: str, found: dict[str, Any]) -> str:
    """Why a connector has failed: the last error in its log, else what MSK Connect says of it,
    which is seldom more than that the log has the reason.
    """
    said = found.get("stateDescription", {})
    return (
        last_logged_error(world, name, found)
        or f"{said.get('code', 'no reason given')}: {said.get('message', '')}"
    )


def last_logged_error(world: World, name: str, found: dict[str, Any]) -> str:
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
            aws.paginate(
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
        return f"its log cannot be read: {e.message}"
    # All connectors have one group. A stream is of one worker, of one connector: which one its name
    # tells, or its lines
    mine = re.compile(re.escape(full_name(world, name)) + r"(?!\w)")
    streams = {
        e["logStreamName"] for e in events if mine.search(f"{e['logStreamName']} {e['message']}")
    }
    trace: list[str] = []
    for event in (e for e in events if e["logStreamName"] in streams):
        trace.insert(0, re.sub(r"^(\[Worker-\w+\] )?(\[[\d\s,:-]+\] )?", "", event["message"]))
        if re.match("ERROR|FATAL", trace[0]):
            break
    return validation.summarize_stacktrace("\n".join(trace))
