"""MSK Connect (API reference "kafkaconnect 2021-09-14"). Use it via `connect`.

In MSK Connect a connector is named `<deployment>-<name>`, and has the tag of the deployment. The
deployment's parameters name its resources: a role for each connector, subnets, security groups, log
group, worker configuration. MSK Connect starts workers for each connector, so operations that take
seconds in Kafka Connect take minutes here. docs/limits.md lists what MSK Connect does not support.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, ClassVar, Optional

import yaml

from ..base import ConnectorError, StackError, aws
from . import validation
from .configs import CONNECTOR_CATALOG, PLACEHOLDER, known_keys, unknown_keys
from .msk_api import METRIC_DELAY, POLL_INTERVAL, MskApi, wait_for_operation
from .validation import ConnectorStatus, PartStatus, TaskStatus

# {custom plugin: (class, type)}
CUSTOM_PLUGINS = {name: tuple(plugin) for name, plugin in CONNECTOR_CATALOG["msk_plugins"].items()}
CREATE_TEMPLATE = Template(
    Path(__file__).with_name("create_connector.yaml").read_text(encoding="utf-8")
)
# MSK Connect's names for Kafka's security.protocol: authentication of the worker, and encryption.
SECURITY_SETTINGS = {
    "SASL_SSL": ("IAM", "TLS"),
    "SSL": ("NONE", "TLS"),
    "PLAINTEXT": ("NONE", "PLAINTEXT"),
}
# {state of MSK Connect: state of Kafka Connect}. All other states have the same name.
STATE_NAMES = {"CREATING": "UNASSIGNED", "UPDATING": "UNASSIGNED"}


@dataclass(frozen=True)
class MskConnect(MskApi):
    """The connectors of a deployment on MSK Connect; a `ConnectBackend`."""

    install_hint: ClassVar[str] = (
        "put its zip into the lake's bucket as plugins/<plugin>.zip, then `deploy/up.sh` "
        "(deploy/README.md)"
    )

    def plugins(self) -> list[dict[str, str]]:
        """Return the connector plugins; a version is the revision of the custom plugin."""
        plugins = []
        for name, plugin in self._custom_plugins().items():
            class_name, plugin_type = CUSTOM_PLUGINS[name]
            version = str(plugin["latestRevision"]["revision"])
            plugins.append({"class": class_name, "type": plugin_type, "version": version})
        return plugins

    def _custom_plugins(self) -> dict[str, Any]:
        """Return the deployment's usable custom plugins, by their names without its prefix."""
        prefix = self.full_name("")
        listed = aws.paginate(
            self.world.region,
            "kafkaconnect",
            "list_custom_plugins",
            "customPlugins",
            namePrefix=prefix,
        )
        active = {
            plugin["name"]: plugin for plugin in listed if plugin["customPluginState"] == "ACTIVE"
        }
        return {name: active[prefix + name] for name in CUSTOM_PLUGINS if prefix + name in active}

    def invalid_keys(self, name: str, config: dict[str, str]) -> dict[str, list[str]]:
        """Find unfilled placeholders, unknown keys, and a tasks.max that CreateConnector rejects.

        Unknown keys are found if params/connectors/keys lists the keys of the plugin. MSK Connect
        does not call the plugin before a connector runs. So only `wait_running` reports an invalid
        value, or a database that does not respond.
        """
        problems = {}
        plugin_keys = known_keys(config)
        if plugin_keys:
            for key, suggestion in unknown_keys(config, plugin_keys).items():
                message = validation.unknown_key_message(config["connector.class"], suggestion)
                problems[key] = [message]
        for key, value in config.items():
            if PLACEHOLDER.search(value):
                problems[key] = [f"the placeholder is not filled: {value}"]
        if not _to_msk_config(config)["tasks.max"].isdecimal():
            problems["tasks.max"] = ["MSK Connect requires a whole number, such as 1"]
        return problems

    def deploy(self, name: str, config: dict[str, str]) -> ConnectorStatus:
        """Deploy a connector, or update its configuration.

        An updated connector continues from its offsets. The method waits for the update, because AWS
        rolls it back if the connector does not become healthy. A failed connector is deleted and
        created again; like every new connector of MSK Connect it begins with a snapshot. Failed
        tasks are restarted.

        Raises:
            ConnectorError: there is no role for the connector, or a connector of this name belongs to
                another deployment; in these cases nothing is deployed. Or an update was rolled back.
            StackError: AWS rejects a request.
        """
        current, target = self.wait_until_stable(name), _to_msk_config(config)
        if not current or current["connectorState"] == "FAILED":
            # created before anything is deleted, because this may fail
            request = self._create_request(name, target)
            self.delete(name)
            self.call("create_connector", **request)
            aws.wait(
                lambda: name in self.names(),
                f"connector {name!r} to appear",
                timeout=60,
                interval=1,
                error=ConnectorError,
            )
            return self.status(name)
        if current["connectorState"] == "PAUSED":
            self.run_operation(name, "resume_connector")
        if current["connectorConfiguration"] != target:
            self.run_operation(name, "update_connector", connectorConfiguration=target)
        elif "FAILED" in validation.states(self.status(name)):
            self.restart(name)
        return self.status(name)

    def _create_request(self, name: str, config: dict[str, str]) -> dict[str, Any]:
        """Return the parameters of CreateConnector."""
        world = self.world
        parameters = aws.parameters(world.region, world.stack.deployment)

        def parameter(key: str) -> str:
            return aws.require_parameter(
                parameters,
                world.stack.deployment,
                key,
                error=ConnectorError,
                hint="nothing was deployed. A connector of your own needs a role (deploy/5-connect.yaml "
                "has one for each of ours), and its ARN in that parameter; `deploy/up.sh` creates "
                "all others",
            )

        role = parameter(f"connect/role/{name}")
        values = {
            "subnets": parameter("connect/subnets"),
            "security_groups": parameter("connect/security_groups"),
            "log_group": parameter("connect/log_group"),
            "worker_configuration": parameter("connect/worker_configuration"),
        }
        plugin = next(
            plugin
            for plugin_name, plugin in self._custom_plugins().items()
            if CUSTOM_PLUGINS[plugin_name][0] == config["connector.class"]
        )
        worker = self.call(
            "describe_worker_configuration",
            workerConfigurationArn=values["worker_configuration"],
        )
        authentication, encryption = SECURITY_SETTINGS[world.kafka.security_protocol]
        text = CREATE_TEMPLATE.substitute(
            values,
            name=self.full_name(name),
            bootstrap=world.kafka.bootstrap,
            authentication=authentication,
            encryption=encryption,
            plugin_arn=plugin["customPluginArn"],
            plugin_revision=plugin["latestRevision"]["revision"],
            role=role,
            tag=aws.DEPLOYMENT_TAG,
            deployment=world.stack.deployment,
            worker_revision=worker["latestRevision"]["revision"],
        )
        return {**yaml.safe_load(text), "connectorConfiguration": config}

    def deployed(self, name: str) -> dict[str, str]:
        return dict((self.describe(name) or {}).get("connectorConfiguration", {}))

    def configs(self) -> dict[str, dict[str, str]]:
        return {name: self.deployed(name) for name in self.names()}

    def status(self, name: str) -> ConnectorStatus:
        """Return the status of a connector, with the states of Kafka Connect.

        MSK Connect reports no tasks. A RUNNING or FAILED connector is reported with `tasks.max` tasks
        in the same state. If it is RUNNING, the number of FAILED tasks is the last value of the
        metric ErroredTaskCount (developer guide, "Monitoring Amazon MSK Connect"), which is one or
        two minutes old. Errors are those of the connector's log.
        """
        return self._to_status(name, self.require(name))

    def _to_status(self, name: str, connector: dict[str, Any]) -> ConnectorStatus:
        config = connector["connectorConfiguration"]
        state = STATE_NAMES.get(connector["connectorState"], connector["connectorState"])
        failed_tasks = self.failed_task_count(name, connector) if state == "RUNNING" else 0
        error = ""
        if state == "FAILED" or failed_tasks:
            error = self.failure_reason(name, connector)

        def part_status(state: str) -> PartStatus:
            part_error = error if state == "FAILED" else ""
            return {"state": state, "worker": "MSK Connect", "error": part_error}

        tasks: list[TaskStatus] = []
        if state in ("RUNNING", "FAILED"):
            for number in range(int(config.get("tasks.max", 1))):
                task_state = "FAILED" if number < failed_tasks else state
                tasks.append({"id": number, **part_status(task_state)})
        connector_type = dict(CUSTOM_PLUGINS.values()).get(config["connector.class"], "")
        return {"name": name, "type": connector_type, **part_status(state), "tasks": tasks}

    def offset(self, name: str) -> None:
        """Return None: MSK Connect does not show the offset."""

    def failure(self, name: str) -> Optional[str]:
        """Return why a connector or a task is FAILED, None if neither is.

        Loops call this method several times a second, but AWS limits the rate of requests. So a
        healthy connector is checked again only after POLL_INTERVAL seconds.
        """
        healthy_until = self._healthy_until()
        if time.monotonic() < healthy_until.get(name, 0):
            return None
        try:
            connector = self.describe(name)
            connector_status = self._to_status(name, connector) if connector else None
            message = validation.failure_message(name, connector_status)
        except StackError as e:
            if not aws.is_transient(e):
                raise
            return None  # the request failed, not the connector
        if not message:
            healthy_until[name] = time.monotonic() + POLL_INTERVAL
        return message

    def _healthy_until(self) -> dict[str, float]:
        """Return {connector: time.monotonic() until which it counts as healthy}."""
        healthy_until: dict[str, float] = self.world.state.get("healthy connectors", dict)
        return healthy_until

    def wait_running(self, name: str, stable_for: float) -> ConnectorStatus:
        return wait_for_operation(
            validation.running_for(lambda: self.status(name), stable_for),
            f"connector {name!r} to be RUNNING",
            failure_reason=lambda: self.failure(name),
            hint=f"read the lines of {self.full_name(name)} in its log group in CloudWatch",
        )

    def restart(self, name: str) -> None:
        """Restart the FAILED tasks of a connector, and wait until the restart is complete.

        Raises:
            ConnectorError: the connector does not exist, or is itself FAILED: AWS restarts only
                RUNNING connectors (developer guide, "Restart a connector").
        """
        current = self.status(name)
        if current["state"] == "FAILED":
            raise ConnectorError(
                f"connector {name!r} is FAILED, and MSK Connect does not restart a failed connector: "
                f"{current['error']}",
                location=self.full_name(name),
                hint="connect.apply(world, name, config) deletes it and creates it again",
            )
        self.run_operation(name, "restart_connector", onlyFailedTasks=True)
        # for this long CloudWatch may report the state before the restart
        self._healthy_until()[name] = time.monotonic() + METRIC_DELAY

    def delete(self, name: str) -> None:
        """Delete a connector, and the offsets of a source connector.

        The offsets of a sink connector stay in its consumer group.

        Raises:
            ConnectorError: the connector belongs to another deployment.
        """
        connector = self.wait_until_stable(name)
        if connector:
            self.call("delete_connector", connectorArn=connector["connectorArn"])
            wait_for_operation(lambda: not self.describe(name), f"connector {name!r} to be gone")


def _to_msk_config(config: dict[str, str]) -> dict[str, str]:
    """Return a configuration in the form of MSK Connect: with tasks.max, and without the name.

    In Kafka Connect the default of tasks.max is 1.
    """
    return {"tasks.max": "1", **{key: value for key, value in config.items() if key != "name"}}
