"""Requests to MSK Connect, CloudWatch and CloudWatch Logs about a deployment's connectors."""

import datetime as dt
import re
from dataclasses import dataclass
from typing import Any, Callable, Optional, TypeVar

from ..base import ConnectorError, StackError, World, aws
from . import validation

T = TypeVar("T")

OPERATION_TIMEOUT = 15 * 60  # seconds that a connector may take to run or to be deleted
POLL_INTERVAL = 5.0  # seconds
METRIC_DELAY = 3 * 60  # seconds that CloudWatch may be behind
STABLE_STATES = ("RUNNING", "FAILED", "PAUSED")
LOG_PERIOD = dt.timedelta(hours=6)  # how far back a log is searched


def wait_for_operation(condition: Callable[[], Optional[T]], description: str, **options: Any) -> T:
    """Wait for an operation, which takes minutes. See `aws.wait` for the arguments and the result."""
    return aws.wait(
        condition,
        description,
        timeout=OPERATION_TIMEOUT,
        interval=POLL_INTERVAL,
        error=ConnectorError,
        **options,
    )


@dataclass(frozen=True)
class MskApi:
    """Requests about the connectors of a deployment."""

    world: World

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """Return the response of an operation of MSK Connect."""
        return aws.call(self.world.region, "kafkaconnect", operation, **params)

    def full_name(self, name: str) -> str:
        """Return MSK Connect's name of a connector."""
        return f"{self.world.stack.deployment}-{name}"

    @property
    def location(self) -> str:
        """Service and region, for errors."""
        return f"MSK Connect, {self.world.region}"

    def _list_arns(self, name: str = "") -> dict[str, str]:
        """Return {name: ARN} of the connectors whose names have this prefix.

        Some may belong to other deployments: `a-b-c` is b-c of deployment a, or c of deployment a-b.
        """
        prefix_length = len(self.full_name(""))
        listed = aws.paginate(
            self.world.region,
            "kafkaconnect",
            "list_connectors",
            "connectors",
            connectorNamePrefix=self.full_name(name),
        )
        return {item["connectorName"][prefix_length:]: item["connectorArn"] for item in listed}

    def names(self) -> list[str]:
        """Return the names of the connectors of this deployment."""
        arns = self._list_arns()
        return sorted(name for name, arn in arns.items() if self._has_deployment_tag(arn))

    def _has_deployment_tag(self, arn: str) -> bool:
        tags = self.call("list_tags_for_resource", resourceArn=arn).get("tags", {})
        return bool(tags.get(aws.DEPLOYMENT_TAG) == self.world.stack.deployment)

    def describe(self, name: str) -> Optional[dict[str, Any]]:
        """Return MSK Connect's description of a connector, None if it does not exist.

        Raises:
            ConnectorError: the connector does not have this deployment's tag, so it belongs to another
                deployment.
        """
        arn = self._list_arns(name).get(name)
        if not arn:
            return None
        with aws.ignore_error_codes("^NotFoundException$"):  # deleted meanwhile
            if not self._has_deployment_tag(arn):
                raise ConnectorError(
                    f"connector {self.full_name(name)!r} belongs to another deployment; "
                    "nothing was changed",
                    location=arn,
                    expected=f"the tag {aws.DEPLOYMENT_TAG} = {self.world.stack.deployment}",
                    hint="two users of one account need two names: stack.deployment in the params file",
                )
            return self.call("describe_connector", connectorArn=arn)
        return None

    def require(self, name: str) -> dict[str, Any]:
        """Return the result of `describe`.

        Raises:
            ConnectorError: the connector does not exist.
        """
        connector = self.describe(name)
        if not connector:
            raise validation.missing_connector_error(name, self.location, self.names())
        return connector

    def wait_until_stable(self, name: str) -> Optional[dict[str, Any]]:
        """Return the result of `describe` once no operation on a connector is running.

        A connector that is being created or changed can be neither updated nor deleted.
        """
        connector = self.describe(name)  # an error is raised at once, without waiting
        if not connector or connector["connectorState"] in STABLE_STATES:
            return connector
        wait_for_operation(
            lambda: (self.describe(name) or {}).get("connectorState") in (None, *STABLE_STATES),
            f"connector {name!r} to be stable",
        )
        return self.describe(name)

    def run_operation(self, name: str, operation: str, **params: Any) -> None:
        """Run an operation on a connector, and wait until it is complete.

        Args:
            name: name of the connector.
            operation: boto3's name of the operation.
            **params: parameters of the operation.

        Raises:
            ConnectorError: the operation failed, or was rolled back.
        """
        connector = self.wait_until_stable(name) or self.require(name)
        if operation == "update_connector":
            params["currentVersion"] = connector["currentVersion"]
        response = self.call(operation, connectorArn=connector["connectorArn"], **params)
        arn = response["connectorOperationArn"]

        def completed() -> Optional[dict[str, Any]]:
            result = self.call("describe_connector_operation", connectorOperationArn=arn)
            is_complete = re.search("COMPLETE|FAILED", result["connectorOperationState"])
            return result if is_complete else None

        result = wait_for_operation(completed, f"{operation} of {name!r}")
        state = result["connectorOperationState"]
        if re.search("FAILED|ROLLBACK", state):
            error = " ".join(result.get("errorInfo", {}).values())
            reason = f"{error} … {self.last_logged_error(name, connector)}"
            raise ConnectorError(
                f"{operation} of connector {name!r} failed, and the connector is unchanged: {reason}",
                location=f"{self.full_name(name)}: {state}",
                hint=validation.likely_causes(reason),
            )

    def failed_task_count(self, name: str, connector: dict[str, Any]) -> int:
        """Return the last value of CloudWatch's metric of failed tasks, 0 if it has no value yet."""
        now = dt.datetime.now(dt.timezone.utc)
        start = max(now - dt.timedelta(seconds=METRIC_DELAY), connector.get("creationTime", now))
        response = aws.call(
            self.world.region,
            "cloudwatch",
            "get_metric_statistics",
            Namespace="AWS/KafkaConnect",
            Period=60,
            MetricName="ErroredTaskCount",
            Dimensions=[{"Name": "ConnectorName", "Value": self.full_name(name)}],
            StartTime=start,
            EndTime=now,
            Statistics=["Maximum"],
        )
        datapoints = sorted(
            response.get("Datapoints", []), key=lambda datapoint: datapoint["Timestamp"]
        )
        return int(datapoints[-1]["Maximum"]) if datapoints else 0

    def failure_reason(self, name: str, connector: dict[str, Any]) -> str:
        """Return why a connector has failed.

        Returns:
            The last error in its log. Without one, the description of MSK Connect, which usually
            only refers to the log.
        """
        description = connector.get("stateDescription", {})
        return (
            self.last_logged_error(name, connector)
            or f"{description.get('code', 'no reason given')}: {description.get('message', '')}"
        )

    def last_logged_error(self, name: str, connector: dict[str, Any]) -> str:
        """Return the last error in a connector's log; empty without an error.

        An event is one line, `[Worker-…] [time] ERROR …`; a stack trace has one event for each line
        (developer guide, "Logging for MSK Connect").
        """
        delivery = connector.get("logDelivery", {}).get("workerLogDelivery", {})
        log_group = delivery.get("cloudWatchLogs", {}).get("logGroup")
        if not log_group:
            return ""
        since = dt.datetime.now(dt.timezone.utc) - LOG_PERIOD
        try:
            events = aws.paginate(
                self.world.region,
                "logs",
                "filter_log_events",
                "events",
                logGroupName=log_group,
                startFromHead=False,  # newest first
                startTime=int(since.timestamp() * 1000),
                PaginationConfig={"MaxItems": 2000},
                filterPattern='?ERROR ?FATAL ?Exception ?"Caused by"',
            )
        except StackError as e:
            return f"its log cannot be read: {e.message}"
        # All connectors share one group. A stream is one worker of one connector, which is named in the
        # name of the stream or in its lines.
        own_name = re.compile(re.escape(self.full_name(name)) + r"(?!\w)")
        streams = {
            event["logStreamName"]
            for event in events
            if own_name.search(f"{event['logStreamName']} {event['message']}")
        }
        trace: list[str] = []
        for event in events:
            if event["logStreamName"] in streams:
                line = re.sub(r"^(\[Worker-\w+\] )?(\[[\d\s,:-]+\] )?", "", event["message"])
                trace.insert(0, line)
                if re.match("ERROR|FATAL", line):
                    break
        return validation.summarize_stacktrace("\n".join(trace))
