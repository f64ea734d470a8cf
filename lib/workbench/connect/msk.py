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
from . import judging, msk_api
from .configs import KNOWN, PLACEHOLDER, known_keys, unknown_keys
from .msk_api import (
    EVERY,
    METRICS,
    PATIENCE,
    call,
    describe,
    errored,
    full,
    operate,
    settled,
    there,
    why,
)

PLUGINS = {
    name: tuple(said) for name, said in KNOWN["msk_plugins"].items()
}  # {custom plugin: (class, type)}
INSTALL = "put its zip into the lake's bucket as plugins/<plugin>.zip, then `workbench aws up` (deploy/README.md)"
# Of Kafka Connect: the newest that MSK Connect has; the other one, 2.7.1, is too old for any
# Debezium 3. The risk: this Debezium, 3.5, is built with Kafka 4.1. It was seen to work on a Kafka
# Connect 3.7.2, never on MSK Connect (docs/limits.md, deploy/README.md)
VERSION = "3.7.x"
CAPACITY = {
    "provisionedCapacity": {"mcuCount": 1, "workerCount": 1}
}  # 1 vCPU and 4 GiB: each of ours has one task
# Kafka's security.protocol in MSK Connect's words: how a worker shows who it is, and encryption
SECURITY = {"SASL_SSL": ("IAM", "TLS"), "SSL": ("NONE", "TLS"), "PLAINTEXT": ("NONE", "PLAINTEXT")}
# As a Kafka Connect calls them. All else, while MSK Connect is at it, is told as it is.
STATES = {"CREATING": "UNASSIGNED", "UPDATING": "UNASSIGNED"}
_well: dict[
    tuple[str, str], float
] = {}  # {(deployment, connector): until when it is taken for well}


def plugins(world: World) -> list[dict[str, str]]:
    """Return the connector plugins there are, as dicts with class, type ("source" or "sink") and
    version: here the revision of the deployment's custom plugin.
    """
    return [
        {
            "class": PLUGINS[name][0],
            "type": PLUGINS[name][1],
            "version": str(plugin["latestRevision"]["revision"]),
        }
        for name, plugin in _custom_plugins(world).items()
    ]


def _custom_plugins(world: World) -> dict[str, Any]:
    """The deployment's custom plugins that are of use, by their names without the deployment's."""
    prefix = full(world, "")
    found = aws.pages(
        world.region, "kafkaconnect", "list_custom_plugins", "customPlugins", namePrefix=prefix
    )
    named = {
        plugin["name"][len(prefix) :]: plugin
        for plugin in found
        if plugin["customPluginState"] == "ACTIVE"
    }
    return {name: named[name] for name in PLUGINS if name in named}


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
    wanted = judging.plugin_of(
        config, name, plugins(world), f"MSK Connect, {world.region}", INSTALL
    )
    judging.no_literal_secret(world, name, config)
    judging.no_tolerant_source(name, config)
    known = known_keys(config)
    guesses = unknown_keys(config, known) if known else {}
    problems = {key: [judging.ignored(wanted, guess)] for key, guess in guesses.items()}
    problems.update(
        {
            key: [f"nobody has filled {value}"]
            for key, value in config.items()
            if PLACEHOLDER.search(value)
        }
    )
    if not _sent(config)["tasks.max"].isdecimal():
        problems["tasks.max"] = ["MSK Connect demands a whole number, such as 1"]
    judging.refuse(name, wanted, problems)


def _sent(config: dict[str, str]) -> dict[str, str]:
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
    judging.slot_is_free(
        name,
        config,
        {}
        if "slot.name" not in config
        else {
            other: (describe(world, other) or {}).get("connectorConfiguration", {})
            for other in names(world)
        },
    )
    judging.publishes_roots(world, name, config)
    before, wanted = settled(world, name), _sent(config)
    if not before or before["connectorState"] == "FAILED":
        new = _new(
            world, name, wanted
        )  # what is missing for it is missed before anything is deleted
        delete(world, name)
        call(world, "create_connector", **new)
        aws.wait(
            lambda: name in names(world),
            f"connector {name!r} to appear",
            timeout=60,
            every=1,
            error=ConnectorError,
        )
        return status(world, name)
    if before["connectorState"] == "PAUSED":
        operate(world, name, "resume_connector")
    if before["connectorConfiguration"] != wanted:
        operate(world, name, "update_connector", connectorConfiguration=wanted)
    elif "FAILED" in judging.states(status(world, name)):
        restart(world, name)
    return status(world, name)


def _new(world: World, name: str, config: dict[str, str]) -> dict[str, Any]:
    """What CreateConnector is given."""
    told = aws.parameters(world.region, world.stack.deployment)
    role, subnets, groups, log, worker = (
        aws.among(
            told,
            world.stack.deployment,
            needed,
            error=ConnectorError,
            next_step="nothing was deployed. A "
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
    authentication, encryption = SECURITY[world.kafka.security_protocol]
    plugin = next(
        plugin
        for of, plugin in _custom_plugins(world).items()
        if PLUGINS[of][0] == config["connector.class"]
    )
    worker_now = call(world, "describe_worker_configuration", workerConfigurationArn=worker)[
        "latestRevision"
    ]
    return dict(
        connectorName=full(world, name),
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
        kafkaConnectVersion=VERSION,
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
        tags={aws.TAG: world.stack.deployment},
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
    return _status(world, name, there(world, name))


def _status(world: World, name: str, found: dict[str, Any]) -> dict[str, Any]:
    config, state = (
        found["connectorConfiguration"],
        STATES.get(found["connectorState"], found["connectorState"]),
    )
    wrong = errored(world, name, found) if state == "RUNNING" else 0
    error = why(world, name, found) if state == "FAILED" or wrong else ""

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
        "type": dict(PLUGINS.values()).get(config["connector.class"], ""),
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
    if time.monotonic() < _well.get(key, 0):
        return None
    try:
        found = describe(world, name)
        told = judging.failure(name, found and _status(world, name, found))
    except StackError as e:
        if not aws.passes(e):
            raise
        return None  # of the connector that says nothing
    if not told:
        _well[key] = time.monotonic() + EVERY
    return told


def wait_running(world: World, name: str, *, steady: float = 1.0) -> dict[str, Any]:
    """Wait until a connector is RUNNING, and stays so for `steady` seconds; return its `status`. It
    takes minutes.

    Raises:
        ConnectorError: at once when it is FAILED, with the reason from its log and likely causes.
    """
    return aws.wait(
        judging.steadily(lambda: status(world, name), steady),
        f"connector {name!r} to be RUNNING",
        timeout=PATIENCE,
        every=EVERY,
        error=ConnectorError,
        failed=lambda: failure(world, name),
        next_step=f"read the lines of {full(world, name)} in its log group in CloudWatch",
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
            where=full(world, name),
            next_step="connect.apply(world, name, config) deletes it and creates it again",
        )
    operate(world, name, "restart_connector", onlyFailedTasks=True)
    _well[world.stack.deployment, name] = (
        time.monotonic() + METRICS
    )  # till then CloudWatch may tell of what was before


def delete(world: World, name: str) -> None:
    """Delete a connector and wait until it is gone; one that is not there is fine.

    How far a source had read is forgotten, too: the next one of its name is a new connector, and
    takes a new snapshot. How far a sink had read stays in its consumer group. The replication slot
    stays: see postgres.drop_slot.
    Raises: ConnectorError: it is somebody else's.
    """
    found = settled(world, name)
    if found:
        call(world, "delete_connector", connectorArn=found["connectorArn"])
        aws.wait(
            lambda: not describe(world, name),
            f"connector {name!r} to be gone",
            timeout=PATIENCE,
            every=EVERY,
            error=ConnectorError,
        )
