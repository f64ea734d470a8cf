"""The same verbs of MSK Connect (its API reference, "kafkaconnect 2021-09-14"). Use them through
`connect`.

A connector is called `<deployment>-<name>` there, and tagged. What it runs on is told by the
deployment: a role for each connector, subnets, security groups, log group, worker configuration.
    MSK Connect starts workers for each
connector: what takes seconds in a Kafka Connect takes minutes here. docs/limits.md says what it
    does not do.
"""

import time
from typing import Any, Optional

from ..base import ConnectorError, StackError, World, aws
from . import msk_api, validation
from .configs import CONNECTOR_CATALOG, PLACEHOLDER, known_keys, unknown_keys
from .msk_api import (
    METRIC_DELAY,
    OPERATION_TIMEOUT,
    POLL_INTERVAL,
    call,
    describe,
    failed_task_count,
    failure_reason,
    full_name,
    require,
    run_operation,
    wait_until_stable,
)

CUSTOM_PLUGINS = {
    name: tuple(said) for name, said in CONNECTOR_CATALOG["msk_plugins"].items()
}  # {custom plugin: (class, type)}
INSTALL_HINT = "put its zip into the lake's bucket as plugins/<plugin>.zip, then `workbench aws up` (deploy/README.md)"
# Of Kafka Connect: the newest that MSK Connect has; the other one, 2.7.1, is too old for any
# Debezium 3. The risk: this Debezium, 3.5, is built with Kafka 4.1. It was seen to work on a Kafka
# Connect 3.7.2, never on MSK Connect (docs/limits.md, deploy/README.md)
KAFKA_CONNECT_VERSION = "3.7.x"
CAPACITY = {
    "provisionedCapacity": {"mcuCount": 1, "workerCount": 1}
}  # 1 vCPU and 4 GiB: each of ours has one task
# Kafka's security.protocol in MSK Connect's words: how a worker shows who it is, and encryption
SECURITY_SETTINGS = {
    "SASL_SSL": ("IAM", "TLS"),
    "SSL": ("NONE", "TLS"),
    "PLAINTEXT": ("NONE", "PLAINTEXT"),
}
# As a Kafka Connect calls them. All else, while MSK Connect is at it, is told as it is.
STATE_NAMES = {"CREATING": "UNASSIGNED", "UPDATING": "UNASSIGNED"}
_healthy_until: dict[
    tuple[str, str], float
] = {}  # {(deployment, connector): until when it is taken for well}


def plugins(world: World) -> list[dict[str, str]]:
    """Return the connector plugins there are, as dicts with class, type ("source" or "sink") and
    version: here the revision of the deployment's custom plugin.
    """
    return [
        {
            "class": CUSTOM_PLUGINS[name][0],
            "type": CUSTOM_PLUGINS[name][1],
            "version": str(plugin["latestRevision"]["revision"]),
        }
        for name, plugin in _custom_plugins(world).items()
    ]


def _custom_plugins(world: World) -> dict[str, Any]:
    """The deployment's custom plugins that are of use, by their names without the deployment's."""
    prefix = full_name(world, "")
    found = aws.paginate(
        world.region, "kafkaconnect", "list_custom_plugins", "customPlugins", namePrefix=prefix
    )
    named = {
        plugin["name"][len(prefix) :]: plugin
        for plugin in found
        if plugin["customPluginState"] == "ACTIVE"
    }
    return {name: named[name] for name in CUSTOM_PLUGINS if name in named}


def validate(world: World, config: dict[str, str], name: str = "") -> None:
    """Judge a configuration, without deploying it, as far as that can be done here: MSK Connect
    asks no plugin for its opinion before a connector runs.

    Refused are a class without a plugin, a secret written out, a ${placeholder} that nobody has
    filled, keys that the plugin does not know where its keys are known (params/connectors/keys),
    and what CreateConnector demands. Values, and whether the database answers, are judged by the
    plugin when it starts: see `wait_running`.

    Raises:
        ConnectorError: one, that lists every refused key with its message.
    """
    name = name or config.get("name") or "to-be-validated"
    wanted = validation.require_plugin(
        config, name, plugins(world), f"MSK Connect, {world.region}", INSTALL_HINT
    )
    validation.reject_plaintext_secrets(world, name, config)
    validation.reject_error_tolerance(name, config)
    known = known_keys(config)
    guesses = unknown_keys(config, known) if known else {}
    problems = {
        key: [validation.unknown_key_message(wanted, guess)] for key, guess in guesses.items()
    }
    problems.update(
        {
            key: [f"nobody has filled {value}"]
            for key, value in config.items()
            if PLACEHOLDER.search(value)
        }
    )
    if not _to_msk_config(config)["tasks.max"].isdecimal():
        problems["tasks.max"] = ["MSK Connect demands a whole number, such as 1"]
    validation.raise_for_problems(name, wanted, problems)


def _to_msk_config(config: dict[str, str]) -> dict[str, str]:
    """A configuration as MSK Connect is sent it: it demands tasks.max, which is 1 in Kafka Connect
    where it is not given, and has the name apart.
    """
    return {"tasks.max": "1", **{key: value for key, value in config.items() if key != "name"}}


def apply(world: World, name: str, config: dict[str, str]) -> dict[str, Any]:
    """Deploy a connector, or bring it to this configuration; the same again changes nothing.
    Returns its `status`.

    A changed one goes on where it was: its update is waited for, for AWS undoes one with which the
    connector does not get well. A failed one is deleted and created again: as every new connector
    of MSK Connect it begins with a snapshot. Where a task of it has failed, that is started again.

    Raises:
        ConnectorError: the configuration is not valid, or there is no plugin or no role for it, or
            a connector of this name is somebody else's: nothing is deployed then. An update was
            undone. StackError: AWS refuses something.
    """
    validate(world, config, name)
    validation.require_free_slot(
        name,
        config,
        {}
        if "slot.name" not in config
        else {
            other: (describe(world, other) or {}).get("connectorConfiguration", {})
            for other in names(world)
        },
    )
    validation.require_root_publication(world, name, config)
    before, wanted = wait_until_stable(world, name), _to_msk_config(config)
    if not before or before["connectorState"] == "FAILED":
        new = _create_request(
            world, name, wanted
        )  # what is missing for it is missed before anything is deleted
        delete(world, name)
        call(world, "create_connector", **new)
        aws.wait(
            lambda: name in names(world),
            f"connector {name!r} to appear",
            timeout=60,
            interval=1,
            error=ConnectorError,
        )
        return status(world, name)
    if before["connectorState"] == "PAUSED":
        run_operation(world, name, "resume_connector")
    if before["connectorConfiguration"] != wanted:
        run_operation(world, name, "update_connector", connectorConfiguration=wanted)
    elif "FAILED" in validation.states(status(world, name)):
        restart(world, name)
    return status(world, name)


def _create_request(world: World, name: str, config: dict[str, str]) -> dict[str, Any]:
    """What CreateConnector is given."""
    told = aws.parameters(world.region, world.stack.deployment)
    role, subnets, groups, log, worker = (
        aws.require_parameter(
            told,
            world.stack.deployment,
            needed,
            error=ConnectorError,
            hint="nothing was deployed. A "
            "connector of your own needs a role (deploy/5-connect.yaml has one for each of ours), its ARN in "
            "that parameter; all else comes with `workbench aws up`",
        )
        for needed in (
            f"connect/role/{name}",
            "connect/subnets",
            "connect/security_groups",
            "connect/log_group",
            "connect/worker_configuration",
        )
    )
    authentication, encryption = SECURITY_SETTINGS[world.kafka.security_protocol]
    plugin = next(
        plugin
        for of, plugin in _custom_plugins(world).items()
        if CUSTOM_PLUGINS[of][0] == config["connector.class"]
    )
    worker_now = call(world, "describe_worker_configuration", workerConfigurationArn=worker)[
        "latestRevision"
    ]
    return dict(
        connectorName=full_name(world, name),
        connectorConfiguration=config,
        capacity=CAPACITY,
        kafkaCluster={
            "apacheKafkaCluster": {
                "bootstrapServers": world.kafka.bootstrap,
                "vpc": {"subnets": subnets.split(","), "securityGroups": groups.split(",")},
            }
        },
        kafkaClusterClientAuthentication={"authenticationType": authentication},
        kafkaClusterEncryptionInTransit={"encryptionType": encryption},
        kafkaConnectVersion=KAFKA_CONNECT_VERSION,
        logDelivery={"workerLogDelivery": {"cloudWatchLogs": {"enabled": True, "logGroup": log}}},
        plugins=[
            {
                "customPlugin": {
                    "customPluginArn": plugin["customPluginArn"],
                    "revision": plugin["latestRevision"]["revision"],
                }
            }
        ],
        serviceExecutionRoleArn=role,
        tags={aws.DEPLOYMENT_TAG: world.stack.deployment},
        workerConfiguration={"workerConfigurationArn": worker, "revision": worker_now["revision"]},
    )


def names(world: World) -> list[str]:
    """Return the names of the connectors deployed now."""
    return msk_api.names(world)


def deployed(world: World, name: str) -> dict[str, str]:
    """Return the configuration with which a connector is deployed; empty where there is no such
    connector.
    """
    return dict((describe(world, name) or {}).get("connectorConfiguration", {}))


def status(world: World, name: str) -> dict[str, Any]:
    """Return {name, type, state, worker, error, tasks: [{id, state, worker, error}]}, states as a
    Kafka Connect's.

    MSK Connect tells of no task. Where a connector has come to run or to fail, there are as many as
    `tasks.max`, each in its state, but of one that runs as many FAILED as the metric
    ErroredTaskCount said last (developer guide, "Monitoring Amazon MSK Connect"), which is a minute
    or two behind.

    Raises:
        ConnectorError: there is no such connector, or it is somebody else's.
    """
    return _status(world, name, require(world, name))


def _status(world: World, name: str, found: dict[str, Any]) -> dict[str, Any]:
    config, state = (
        found["connectorConfiguration"],
        STATE_NAMES.get(found["connectorState"], found["connectorState"]),
    )
    wrong = failed_task_count(world, name, found) if state == "RUNNING" else 0
    error = failure_reason(world, name, found) if state == "FAILED" or wrong else ""

    def part(state: str) -> dict[str, str]:
        return {
            "state": state,
            "worker": "MSK Connect",
            "error": error if state == "FAILED" else "",
        }

    tasks = [
        {"id": i, **part("FAILED" if i < wrong else state)}
        for i in range(int(config.get("tasks.max", 1)))
    ]
    return {
        "name": name,
        "type": dict(CUSTOM_PLUGINS.values()).get(config["connector.class"], ""),
        **part(state),
        "tasks": tasks if state in ("RUNNING", "FAILED") else [],
    }


def failure(world: World, name: str) -> Optional[str]:
    """Return a sentence (the last error of its log, likely causes) when a connector or task is
    FAILED, else None.

    Loops ask several times in a second, which AWS does not bear: that a connector is well is
    believed for some seconds.
    """
    key = world.stack.deployment, name
    if time.monotonic() < _healthy_until.get(key, 0):
        return None
    try:
        found = describe(world, name)
        told = validation.failure_message(name, found and _status(world, name, found))
    except StackError as e:
        if not aws.is_transient(e):
            raise
        return None  # of the connector that says nothing
    if not told:
        _healthy_until[key] = time.monotonic() + POLL_INTERVAL
    return told


def wait_running(world: World, name: str, *, stable_for: float = 1.0) -> dict[str, Any]:
    """Wait until a connector is RUNNING, and stays so for `steady` seconds; return its `status`. It
    takes minutes.

    Raises:
        ConnectorError: at once when it is FAILED, with the reason from its log and likely causes.
    """
    return aws.wait(
        validation.running_for(lambda: status(world, name), stable_for),
        f"connector {name!r} to be RUNNING",
        timeout=OPERATION_TIMEOUT,
        interval=POLL_INTERVAL,
        error=ConnectorError,
        failure_reason=lambda: failure(world, name),
        hint=f"read the lines of {full_name(world, name)} in its log group in CloudWatch",
    )


def restart(world: World, name: str) -> None:
    """Start again the tasks of a connector that have FAILED, and wait until that is done; what runs
    is left alone. They go on where they were. See `wait_running`.

    Raises: ConnectorError: there is no such connector, or it is itself FAILED: AWS restarts none
        but one that is RUNNING (developer guide, "Restart a connector").
    """
    seen = status(world, name)
    if seen["state"] == "FAILED":
        raise ConnectorError(
            f"connector {name!r} is FAILED, and MSK Connect restarts none that is: {seen['error']}",
            location=full_name(world, name),
            hint="connect.apply(world, name, config) deletes it and creates it again",
        )
    run_operation(world, name, "restart_connector", onlyFailedTasks=True)
    _healthy_until[world.stack.deployment, name] = (
        time.monotonic() + METRIC_DELAY
    )  # till then CloudWatch may tell of what was before


def delete(world: World, name: str) -> None:
    """Delete a connector and wait until it is gone; one that is not there is fine.

    How far a source had read is forgotten, too: the next one of its name is a new connector, and
    takes a new snapshot. How far a sink had read stays in its consumer group. The replication slot
    stays: see postgres.drop_slot.
    Raises: ConnectorError: it is somebody else's.
    """
    found = wait_until_stable(world, name)
    if found:
        call(world, "delete_connector", connectorArn=found["connectorArn"])
        aws.wait(
            lambda: not describe(world, name),
            f"connector {name!r} to be gone",
            timeout=OPERATION_TIMEOUT,
            interval=POLL_INTERVAL,
            error=ConnectorError,
        )
