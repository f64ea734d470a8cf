"""MSK Connect (API reference "kafkaconnect 2021-09-14"). Use it via `connect`.

In MSK Connect a connector is named `<deployment>-<name>`, and has the tag of the deployment. The
deployment's parameters name its resources: a role for each connector, subnets, security groups, log
group, worker configuration. MSK Connect starts workers for each connector, so operations that take
seconds in Kafka Connect take minutes here. MSK Connect does not call the plugin before a connector runs: so
only `wait_running` reports an invalid value, or a database that does not respond.
docs/limits.md lists what MSK Connect does not support.
"""

import datetime as dt
import re
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, ClassVar, Optional

from ..base import ConnectorError, StackError, World, aws
from . import validation
from .configs import CONNECTOR_CATALOG
from .validation import ConnectorStatus, PartStatus

CUSTOM_PLUGINS = CONNECTOR_CATALOG["msk_plugins"]  # {custom plugin: class}
CREATE_TEMPLATE = Path(__file__).with_name("create_connector.yaml")
# MSK Connect's names for Kafka's security.protocol: authentication of the worker, and encryption.
SECURITY_SETTINGS = {
    "SASL_SSL": ("IAM", "TLS"),
    "SSL": ("NONE", "TLS"),
    "PLAINTEXT": ("NONE", "PLAINTEXT"),
}
# {state of MSK Connect: state of Kafka Connect}. All other states have the same name.
STATE_NAMES = {"CREATING": "UNASSIGNED", "UPDATING": "UNASSIGNED"}
STABLE_STATES = ("RUNNING", "FAILED", "PAUSED")
OPERATION_TIMEOUT = 15 * 60  # seconds that a connector may take to run or to be deleted
POLL_INTERVAL = 5.0  # seconds
HEALTHY_UNTIL = "healthy connectors"  # key of a world's state
METRIC_DELAY = dt.timedelta(minutes=3)  # CloudWatch may be behind by this


@dataclass(frozen=True)
class MskConnect:
    """The connectors of a deployment on MSK Connect. See `rest.KafkaConnect` for the attributes."""

    world: World
    install_hint: ClassVar[str] = (
        "put its zip into the lake's bucket as plugins/<plugin>.zip, then `deploy/up.sh` "
        "(deploy/README.md)"
    )
    # An operation takes minutes. An expired login or a missing permission ends the wait at once.
    wait: ClassVar[Callable[..., Any]] = staticmethod(
        partial(aws.wait, timeout=OPERATION_TIMEOUT, interval=POLL_INTERVAL, error=ConnectorError)
    )

    @property
    def location(self) -> str:
        return f"MSK Connect, {self.world.region}"

    @property
    def log_hint(self) -> str:
        return f"read its log: `aws logs tail /{self.world.stack.deployment}/connect --since 1h`"

    def _call(self, operation: str, **params: Any) -> dict[str, Any]:
        return aws.call(self.world.region, "kafkaconnect", operation, **params)

    def _full_name(self, name: str) -> str:
        """Return MSK Connect's name of a connector."""
        return f"{self.world.stack.deployment}-{name}"

    def plugins(self) -> list[dict[str, str]]:
        """Return the connector plugins; a version is the revision of the custom plugin."""
        return [
            {
                "class": class_name,
                "type": _plugin_type(class_name),
                "version": str(plugin["latestRevision"]["revision"]),
            }
            for class_name, plugin in _custom_plugins(self.world).items()
        ]

    def invalid_keys(self, name: str, config: dict[str, str]) -> dict[str, list[str]]:
        """Return {}: MSK Connect does not validate a configuration."""
        return {}

    def names(self) -> list[str]:
        return sorted(self._list_arns())

    def offset(self, name: str) -> None:
        """Return None: MSK Connect does not show offsets."""

    def _list_arns(self, name: str = "") -> dict[str, str]:
        """Return {name: ARN} of this deployment's connectors whose names begin with `name`.

        The tag decides: `a-b-c` may be b-c of deployment a, or c of deployment a-b.
        """
        prefix = self._full_name("")
        listed = aws.paginate(
            self.world.region,
            "kafkaconnect",
            "list_connectors",
            "connectors",
            connectorNamePrefix=prefix + name,
        )
        arns = {}
        for connector in listed:
            arn = connector["connectorArn"]
            tags = self._call("list_tags_for_resource", resourceArn=arn).get("tags", {})
            if tags.get(aws.DEPLOYMENT_TAG) == self.world.stack.deployment:
                arns[connector["connectorName"][len(prefix) :]] = arn
        return arns

    def _describe(self, name: str) -> dict[str, Any]:
        """Return MSK Connect's description of a connector; empty if it does not exist."""
        with aws.ignore_error_codes("^NotFoundException$"):  # deleted meanwhile
            arn = self._list_arns(name).get(name)
            if arn:
                return self._call("describe_connector", connectorArn=arn)
        return {}

    def _describe_stable(self, name: str) -> dict[str, Any]:
        """Return the result of `_describe` once no operation on the connector is running.

        A connector that is being created or changed can be neither updated nor deleted.
        """

        def is_stable() -> bool:
            return self._describe(name).get("connectorState") in (None, *STABLE_STATES)

        self.wait(is_stable, f"connector {name!r} to be stable")
        return self._describe(name)

    def deployed(self, name: str) -> dict[str, str]:
        return dict(self._describe(name).get("connectorConfiguration", {}))

    def find_status(self, name: str) -> Optional[ConnectorStatus]:
        """Return the status of a connector, with the states of Kafka Connect.

        MSK Connect reports no tasks. A RUNNING or FAILED connector is reported with `tasks.max` tasks
        in the same state. If it is RUNNING, the number of FAILED tasks is that of a metric, which is
        one or two minutes old. The errors are AWS's description, which usually refers to the log.
        """
        connector = self._describe(name)
        if not connector:
            return None
        config = connector["connectorConfiguration"]
        state = STATE_NAMES.get(connector["connectorState"], connector["connectorState"])
        task_count = int(config["tasks.max"]) if state in ("RUNNING", "FAILED") else 0
        failed_tasks = (
            _failed_task_count(self.world.region, self._full_name(name))
            if state == "RUNNING"
            else 0
        )
        reason = ": ".join(connector.get("stateDescription", {}).values())
        error = f"{reason or 'no reason given'} ({self.log_hint})"

        def part_status(state: str) -> PartStatus:
            part_error = error if state == "FAILED" else ""
            return {"state": state, "worker": "MSK Connect", "error": part_error}

        return {
            "name": name,
            "type": _plugin_type(config["connector.class"]),
            **part_status(state),
            "tasks": [
                {"id": number, **part_status("FAILED" if number < failed_tasks else state)}
                for number in range(task_count)
            ],
        }

    def failure(self, name: str) -> Optional[str]:
        """Return why a connector or a task is FAILED, None if neither is.

        Loops call this method several times a second, but AWS limits the rate of requests. So a
        healthy connector is checked again only after POLL_INTERVAL seconds.
        """
        # {connector: time.monotonic() until which it counts as healthy}
        healthy_until: dict[str, float] = self.world.state.get(HEALTHY_UNTIL, dict)
        if time.monotonic() < healthy_until.get(name, 0):
            return None
        try:
            message = validation.failure_message(name, self.find_status(name))
        except StackError as e:
            if not aws.is_transient(e):
                raise
            return None  # the request failed, not the connector
        if not message:
            healthy_until[name] = time.monotonic() + POLL_INTERVAL
        return message

    def deploy(self, name: str, config: dict[str, str]) -> None:
        """Deploy a connector, or update its configuration.

        An updated connector continues from its offsets. The method waits for the update, because AWS
        rolls it back if the connector does not become healthy. A failed connector is deleted and
        created again; like every new connector of MSK Connect it begins with a snapshot. Failed
        tasks are restarted.

        Raises:
            ConnectorError: there is no role for the connector; then nothing is deployed. Or an update was
                rolled back.
            StackError: AWS rejects a request.
        """
        current, target = self._describe_stable(name), _to_msk_config(config)
        if not current or current["connectorState"] == "FAILED":
            # created before anything is deleted, because this may fail
            request = self._create_request(name, target)
            if current:
                self.delete(name)
            self._call("create_connector", **request)
            return
        if current["connectorState"] == "PAUSED":
            self._run_operation(name, "resume_connector")
        if current["connectorConfiguration"] != target:
            self._run_operation(name, "update_connector", connectorConfiguration=target)
        elif "FAILED" in validation.states(self.find_status(name)):
            self.restart(name)

    def _create_request(self, name: str, config: dict[str, str]) -> dict[str, Any]:
        """Return the parameters of CreateConnector.

        Raises:
            ConnectorError: a parameter of the deployment is missing, such as the connector's role.
        """
        world = self.world
        parameters = aws.parameters(world.region, world.stack.deployment)
        role = aws.require_parameter(
            parameters,
            world.stack.deployment,
            f"connect/role/{name}",
            error=ConnectorError,
            hint="nothing was deployed. A connector of your own needs a role (deploy/5-connect.yaml has "
            "one for each of ours), and its ARN in that parameter",
        )
        worker = self._call(
            "describe_worker_configuration",
            workerConfigurationArn=parameters["connect/worker_configuration"],
        )
        authentication, encryption = SECURITY_SETTINGS[world.kafka.security_protocol]
        request = aws.fill(
            CREATE_TEMPLATE,
            name=self._full_name(name),
            world=world,
            tag=aws.DEPLOYMENT_TAG,
            role=role,
            parameters=parameters,
            authentication=authentication,
            encryption=encryption,
            plugin=_custom_plugins(world)[config["connector.class"]],
            worker=worker,
        )
        return {**request, "connectorConfiguration": config}

    def _run_operation(self, name: str, operation: str, **params: Any) -> None:
        """Run an operation on a connector that exists, and wait until it is complete.

        Args:
            name: name of the connector.
            operation: boto3's name of the operation.
            **params: parameters of the operation.

        Raises:
            ConnectorError: the operation failed, or was rolled back; or the connector was deleted meanwhile.
        """
        connector = self._describe_stable(name)
        if not connector:
            raise ConnectorError(f"there is no connector {name!r} any more", location=self.location)
        if operation == "update_connector":
            params["currentVersion"] = connector["currentVersion"]
        response = self._call(operation, connectorArn=connector["connectorArn"], **params)
        number = response["connectorOperationArn"]

        def completed() -> Optional[dict[str, Any]]:
            result = self._call("describe_connector_operation", connectorOperationArn=number)
            is_complete = re.search("COMPLETE|FAILED", result["connectorOperationState"])
            return result if is_complete else None

        result = self.wait(completed, f"{operation} of {name!r}")
        state = result["connectorOperationState"]
        if re.search("FAILED|ROLLBACK", state):
            reason = " ".join(result.get("errorInfo", {}).values())
            raise ConnectorError(
                f"{operation} of connector {name!r} failed, and the connector is unchanged: {reason}",
                location=f"{self._full_name(name)}: {state}",
                hint=validation.likely_causes(reason) or self.log_hint,
            )

    def restart(self, name: str) -> None:
        """Restart the FAILED tasks of a connector, and wait until the restart is complete.

        Raises:
            ConnectorError: the connector is itself FAILED: AWS restarts only RUNNING connectors
                (developer guide, "Restart a connector").
        """
        if self._describe_stable(name).get("connectorState") == "FAILED":
            raise ConnectorError(
                f"connector {name!r} is FAILED, and MSK Connect does not restart a failed connector",
                location=self._full_name(name),
                hint="in Python: connect.apply(world, name, connect.deployed(world, name)) deletes and creates it",
            )
        self._run_operation(name, "restart_connector", onlyFailedTasks=True)
        # for this long CloudWatch may report the state before the restart
        healthy_until = self.world.state.get(HEALTHY_UNTIL, dict)
        healthy_until[name] = time.monotonic() + METRIC_DELAY.total_seconds()

    def delete(self, name: str) -> None:
        """Delete a connector; the offsets of a sink connector stay in its consumer group."""
        connector = self._describe_stable(name)
        if not connector:  # an earlier call has deleted it
            return
        self._call("delete_connector", connectorArn=connector["connectorArn"])
        self.wait(lambda: not self._describe(name), f"connector {name!r} to be gone")


def _to_msk_config(config: dict[str, str]) -> dict[str, str]:
    """Return a configuration in the form of MSK Connect: with tasks.max, and without the name.

    In Kafka Connect the default of tasks.max is 1.
    """
    return {"tasks.max": "1", **{key: value for key, value in config.items() if key != "name"}}


def _plugin_type(class_name: str) -> str:
    return "sink" if class_name.endswith("SinkConnector") else "source"


def _failed_task_count(region: str, full_name: str) -> int:
    """Return the last value of CloudWatch's metric of failed tasks, 0 if it has no value yet.

    Source: Amazon's developer guide, "Monitoring Amazon MSK Connect".
    """
    now = dt.datetime.now(dt.timezone.utc)
    response = aws.call(
        region,
        "cloudwatch",
        "get_metric_statistics",
        Namespace="AWS/KafkaConnect",
        Period=60,
        MetricName="ErroredTaskCount",
        Dimensions=[{"Name": "ConnectorName", "Value": full_name}],
        StartTime=now - METRIC_DELAY,
        EndTime=now,
        Statistics=["Maximum"],
    )
    values = {point["Timestamp"]: point["Maximum"] for point in response.get("Datapoints", [])}
    return int(values[max(values)]) if values else 0


def _custom_plugins(world: World) -> dict[str, dict[str, Any]]:
    """Return the deployment's usable custom plugins: {class of the connector: plugin}."""
    prefix = f"{world.stack.deployment}-"
    listed = aws.paginate(
        world.region,
        "kafkaconnect",
        "list_custom_plugins",
        "customPlugins",
        namePrefix=prefix,
    )
    plugins = {}
    for plugin in listed:
        name = plugin["name"][len(prefix) :]
        if name in CUSTOM_PLUGINS and plugin["customPluginState"] == "ACTIVE":
            plugins[CUSTOM_PLUGINS[name]] = plugin
    return plugins
