"""The operations of MSK Connect (API reference "kafkaconnect 2021-09-14"). Use them via `connect`.

In MSK Connect a connector is named `<deployment>-<name>`, and has the tag of the deployment. The
deployment's parameters name its resources: a role for each connector, subnets, security groups, log
group, worker configuration. MSK Connect starts workers for each connector, so operations that take
seconds in Kafka Connect take minutes here. docs/limits.md lists what MSK Connect does not support.
"""

import time
from pathlib import Path
from string import Template
from typing import Any, Optional

import yaml

from ..base import ConnectorError, StackError, World, aws
from . import msk_api, validation
from .configs import CONNECTOR_CATALOG, PLACEHOLDER, known_keys, unknown_keys
from .msk_api import (
    METRIC_DELAY,
    POLL_INTERVAL,
    call,
    describe,
    failed_task_count,
    failure_reason,
    full_name,
    require,
    run_operation,
    wait_for_operation,
    wait_until_stable,
)
from .validation import ConnectorStatus, PartStatus, TaskStatus

# {custom plugin: (class, type)}
CUSTOM_PLUGINS = {name: tuple(plugin) for name, plugin in CONNECTOR_CATALOG["msk_plugins"].items()}
INSTALL_HINT = (
    "put its zip into the lake's bucket as plugins/<plugin>.zip, then `workbench aws up` "
    "(deploy/README.md)"
)
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


def plugins(world: World) -> list[dict[str, str]]:
    """Return the connector plugins.

    Returns:
        Dicts with class, type ("source" or "sink") and version (the revision of the deployment's
        custom plugin).
    """
    plugins = []
    for name, plugin in _custom_plugins(world).items():
        class_name, plugin_type = CUSTOM_PLUGINS[name]
        version = str(plugin["latestRevision"]["revision"])
        plugins.append({"class": class_name, "type": plugin_type, "version": version})
    return plugins


def _custom_plugins(world: World) -> dict[str, Any]:
    """Return the deployment's usable custom plugins, by their names without its prefix."""
    prefix = full_name(world, "")
    listed = aws.paginate(
        world.region, "kafkaconnect", "list_custom_plugins", "customPlugins", namePrefix=prefix
    )
    active = {
        plugin["name"]: plugin for plugin in listed if plugin["customPluginState"] == "ACTIVE"
    }
    return {name: active[prefix + name] for name in CUSTOM_PLUGINS if prefix + name in active}


def validate(world: World, config: dict[str, str], name: str = "") -> None:
    """Validate a configuration without deploying it, as far as possible.

    These are rejected: a class without a plugin, a secret in plain text, an unfilled ${placeholder},
    a tasks.max that CreateConnector does not accept, and an unknown key, if params/connectors/keys
    lists the keys of the plugin. MSK Connect does not call the plugin before a connector runs. So
    only `wait_running` reports an invalid value, or a database that does not respond.

    Args:
        world: the world of the deployment.
        config: the configuration.
        name: name of the connector, for the error.

    Raises:
        ConnectorError: the configuration is rejected; the error lists each rejected key with its
            messages.
    """
    name = name or config.get("name") or "to-be-validated"
    location = f"MSK Connect, {world.region}"
    class_name = validation.require_plugin(config, name, plugins(world), location, INSTALL_HINT)
    validation.reject_plaintext_secrets(world, name, config)
    validation.reject_error_tolerance(name, config)
    problems = {}
    plugin_keys = known_keys(config)
    if plugin_keys:
        for key, suggestion in unknown_keys(config, plugin_keys).items():
            problems[key] = [validation.unknown_key_message(class_name, suggestion)]
    for key, value in config.items():
        if PLACEHOLDER.search(value):
            problems[key] = [f"the placeholder is not filled: {value}"]
    if not _to_msk_config(config)["tasks.max"].isdecimal():
        problems["tasks.max"] = ["MSK Connect requires a whole number, such as 1"]
    validation.raise_for_problems(name, class_name, problems)


def _to_msk_config(config: dict[str, str]) -> dict[str, str]:
    """Return a configuration in the form of MSK Connect: with tasks.max, and without the name.

    In Kafka Connect the default of tasks.max is 1.
    """
    return {"tasks.max": "1", **{key: value for key, value in config.items() if key != "name"}}


def apply(world: World, name: str, config: dict[str, str]) -> ConnectorStatus:
    """Deploy a connector, or update its configuration; an unchanged one changes nothing.

    An updated connector continues from its offsets. The function waits for the update, because AWS
    rolls it back if the connector does not become healthy. A failed connector is deleted and created
    again; like every new connector of MSK Connect it begins with a snapshot. Failed tasks are
    restarted.

    Args:
        world: the world of the deployment.
        name: name of the connector.
        config: its configuration.

    Returns:
        The connector's `status`.

    Raises:
        ConnectorError: the configuration is not valid, there is no plugin or no role for it, or a
            connector of this name belongs to another deployment; in these cases nothing is deployed.
            Or an update was rolled back.
        StackError: AWS rejects a request.
    """
    validate(world, config, name)
    if "slot.name" in config:
        deployed_configs = {other_name: deployed(world, other_name) for other_name in names(world)}
        validation.require_free_slot(name, config, deployed_configs)
    validation.require_root_publication(world, name, config)
    current, target = wait_until_stable(world, name), _to_msk_config(config)
    if not current or current["connectorState"] == "FAILED":
        # created before anything is deleted, because this may fail
        request = _create_request(world, name, target)
        delete(world, name)
        call(world, "create_connector", **request)
        aws.wait(
            lambda: name in names(world),
            f"connector {name!r} to appear",
            timeout=60,
            interval=1,
            error=ConnectorError,
        )
        return status(world, name)
    if current["connectorState"] == "PAUSED":
        run_operation(world, name, "resume_connector")
    if current["connectorConfiguration"] != target:
        run_operation(world, name, "update_connector", connectorConfiguration=target)
    elif "FAILED" in validation.states(status(world, name)):
        restart(world, name)
    return status(world, name)


def _create_request(world: World, name: str, config: dict[str, str]) -> dict[str, Any]:
    """Return the parameters of CreateConnector."""
    parameters = aws.parameters(world.region, world.stack.deployment)

    def parameter(key: str) -> str:
        return aws.require_parameter(
            parameters,
            world.stack.deployment,
            key,
            error=ConnectorError,
            hint="nothing was deployed. A connector of your own needs a role (deploy/5-connect.yaml "
            "has one for each of ours), and its ARN in that parameter; `workbench aws up` creates "
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
        for plugin_name, plugin in _custom_plugins(world).items()
        if CUSTOM_PLUGINS[plugin_name][0] == config["connector.class"]
    )
    worker = call(
        world,
        "describe_worker_configuration",
        workerConfigurationArn=values["worker_configuration"],
    )
    authentication, encryption = SECURITY_SETTINGS[world.kafka.security_protocol]
    text = CREATE_TEMPLATE.substitute(
        values,
        name=full_name(world, name),
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


def names(world: World) -> list[str]:
    """Return the names of the deployed connectors."""
    return msk_api.names(world)


def deployed(world: World, name: str) -> dict[str, str]:
    """Return the configuration of a deployed connector; empty if it does not exist."""
    return dict((describe(world, name) or {}).get("connectorConfiguration", {}))


def status(world: World, name: str) -> ConnectorStatus:
    """Return the status of a connector, with the states of Kafka Connect.

    MSK Connect reports no tasks. A RUNNING or FAILED connector is reported with `tasks.max` tasks in
    the same state. If it is RUNNING, the number of FAILED tasks is the last value of the metric
    ErroredTaskCount (developer guide, "Monitoring Amazon MSK Connect"), which is one or two minutes
    old.

    Returns:
        {name, type, state, worker, error, tasks: [{id, state, worker, error}]}.

    Raises:
        ConnectorError: the connector does not exist, or belongs to another deployment.
    """
    return _to_status(world, name, require(world, name))


def _to_status(world: World, name: str, connector: dict[str, Any]) -> ConnectorStatus:
    config = connector["connectorConfiguration"]
    state = STATE_NAMES.get(connector["connectorState"], connector["connectorState"])
    failed_tasks = failed_task_count(world, name, connector) if state == "RUNNING" else 0
    error = ""
    if state == "FAILED" or failed_tasks:
        error = failure_reason(world, name, connector)

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


def failure(world: World, name: str) -> Optional[str]:
    """Return why a connector or a task is FAILED, None if neither is.

    Loops call this function several times a second, but AWS limits the rate of requests. So a
    healthy connector is checked again only after POLL_INTERVAL seconds.

    Returns:
        A sentence with the last error in the connector's log, and likely causes.
    """
    healthy_until = _healthy_until(world)
    if time.monotonic() < healthy_until.get(name, 0):
        return None
    try:
        connector = describe(world, name)
        connector_status = _to_status(world, name, connector) if connector else None
        message = validation.failure_message(name, connector_status)
    except StackError as e:
        if not aws.is_transient(e):
            raise
        return None  # the request failed, not the connector
    if not message:
        healthy_until[name] = time.monotonic() + POLL_INTERVAL
    return message


def _healthy_until(world: World) -> dict[str, float]:
    """Return {connector: time.monotonic() until which it counts as healthy}."""
    healthy_until: dict[str, float] = world.state.get("healthy connectors", dict)
    return healthy_until


def wait_running(world: World, name: str, *, stable_for: float = 1.0) -> ConnectorStatus:
    """Wait until a connector is RUNNING and stays RUNNING, which takes minutes.

    Args:
        world: the world of the deployment.
        name: name of the connector.
        stable_for: seconds for which the connector must be RUNNING.

    Returns:
        The connector's `status`.

    Raises:
        ConnectorError: at once when the connector is FAILED, with the reason from its log and
            likely causes.
    """
    return wait_for_operation(
        validation.running_for(lambda: status(world, name), stable_for),
        f"connector {name!r} to be RUNNING",
        failure_reason=lambda: failure(world, name),
        hint=f"read the lines of {full_name(world, name)} in its log group in CloudWatch",
    )


def restart(world: World, name: str) -> None:
    """Restart the FAILED tasks of a connector, and wait until the restart is complete.

    The tasks continue from their offsets. Running tasks are not restarted. See `wait_running`.

    Raises:
        ConnectorError: the connector does not exist, or is itself FAILED: AWS restarts only RUNNING
            connectors (developer guide, "Restart a connector").
    """
    current = status(world, name)
    if current["state"] == "FAILED":
        raise ConnectorError(
            f"connector {name!r} is FAILED, and MSK Connect does not restart a failed connector: "
            f"{current['error']}",
            location=full_name(world, name),
            hint="connect.apply(world, name, config) deletes it and creates it again",
        )
    run_operation(world, name, "restart_connector", onlyFailedTasks=True)
    # for this long CloudWatch may report the state before the restart
    _healthy_until(world)[name] = time.monotonic() + METRIC_DELAY


def delete(world: World, name: str) -> None:
    """Delete a connector, which need not exist, and wait until it is gone.

    The offsets of a source connector are deleted, too, so the next connector of this name takes a
    new snapshot. The offsets of a sink connector stay in its consumer group. The replication slot
    stays (see postgres.drop_slot).

    Raises:
        ConnectorError: the connector belongs to another deployment.
    """
    connector = wait_until_stable(world, name)
    if connector:
        call(world, "delete_connector", connectorArn=connector["connectorArn"])
        wait_for_operation(lambda: not describe(world, name), f"connector {name!r} to be gone")
