"""The same verbs of MSK Connect (its API reference, "kafkaconnect 2021-09-14"). Use them through `connect`.

A connector is called `<deployment>-<name>` there, and tagged. What it runs on is told by the deployment: a role for
each connector, subnets, security groups, log group, worker configuration. MSK Connect starts workers for each
connector: what takes seconds in a Kafka Connect takes minutes here.
"""
from __future__ import annotations

import datetime as dt
import time
from typing import Any, Optional

from ..base import ConnectorError, World, aws, nearest, wait_until
from ..base.errors import StackError
from .configs import known_keys, unknown_keys
from .judging import causes, failed, first_line, ignored, no_literal_secret, plugin_of, refuse, slot_is_free

# The connector class of each custom plugin, by its name without the deployment's (deploy/5-connect.yaml), and its type.
PLUGINS = {
    "debezium-postgres": ("io.debezium.connector.postgresql.PostgresConnector", "source"),
    "lenses-s3": ("io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector", "sink"),
    "confluent-s3": ("io.confluent.connect.s3.S3SinkConnector", "sink"),
    "confluent-jdbc": ("io.confluent.connect.jdbc.JdbcSourceConnector", "source"),
}
VERSION = "3.7.x"  # of Kafka Connect: the newest that MSK Connect has; the other one is 2.7.1 (docs/limits.md)
CAPACITY = {"provisionedCapacity": {"mcuCount": 1, "workerCount": 1}}  # 1 vCPU and 4 GiB: each of ours has one task
MINUTES = 15  # that a connector may take to run, or to be gone
TAG = "workbench:deployment"
# As a Kafka Connect calls them. All else, while MSK Connect is at it, is told as it is.
STATES = {"CREATING": "UNASSIGNED", "UPDATING": "UNASSIGNED"}


def _call(world: World, operation: str, **given: Any) -> dict[str, Any]:
    return aws.call(world.region, "kafkaconnect", operation, **given)


def _full(world: World, name: str) -> str:
    return f"{world.stack.deployment}-{name}"


def plugins(world: World) -> list[dict[str, str]]:
    """Return the connector plugins there are, as dicts with class, type ("source" or "sink") and version: here the
    revision of the deployment's custom plugin."""
    return [{"class": PLUGINS[name][0], "type": PLUGINS[name][1], "version": str(plugin["latestRevision"]["revision"])}
            for name, plugin in _custom_plugins(world).items()]


def _custom_plugins(world: World) -> dict[str, Any]:
    """The deployment's custom plugins that are of use, by their names without the deployment's."""
    prefix = _full(world, "")
    found = aws.pages(world.region, "kafkaconnect", "list_custom_plugins", "customPlugins", namePrefix=prefix)
    named = {plugin["name"][len(prefix):]: plugin for plugin in found if plugin["customPluginState"] == "ACTIVE"}
    return {name: named[name] for name in PLUGINS if name in named}


def validate(world: World, config: dict[str, str], name: str = "") -> None:
    """Judge a configuration, without deploying it, as far as that can be done here: MSK Connect asks no plugin for its
    opinion before a connector runs.

    Refused are a class without a plugin, a secret written out, keys that the plugin does not know where its keys are
    known (params/connectors/keys), and what CreateConnector demands. Values, and whether the database answers, are
    judged by the plugin when it starts: see `wait_running`.

    Raises:
        ConnectorError: one, that lists every refused key with its message.
    """
    name = name or config.get("name") or "to-be-validated"
    wanted = plugin_of(config, name, plugins(world), f"MSK Connect, {world.region}")
    no_literal_secret(world, name, config)
    known = known_keys(config)
    guesses = unknown_keys(config, known) if known else {}
    problems = {key: [ignored(wanted, guess)] for key, guess in guesses.items()}
    if not config.get("tasks.max", "").isdecimal():
        problems["tasks.max"] = ["MSK Connect demands a whole number, such as 1"]
    refuse(name, wanted, problems)


def apply(world: World, name: str, config: dict[str, str]) -> dict[str, Any]:
    """Deploy a connector, or bring it to this configuration; the same again changes nothing. Returns its `status`.

    A failed one is deleted and created again: as every new connector of MSK Connect it begins with a snapshot.

    Raises:
        ConnectorError: the configuration is not valid (nothing is deployed then), or no plugin for it; or a connector
            of this name is somebody else's. StackError: AWS refuses something.
    """
    validate(world, config, name)
    there = {other: _describe(world, other) or {} for other in names(world)}
    slot_is_free(name, config, {other: one.get("connectorConfiguration", {}) for other, one in there.items()})
    before = there.get(name)
    if before:
        _ours(world, name, before)
        if before["connectorState"] == "FAILED":
            delete(world, name)
            before = None
    if not before:
        _create(world, name, config)
    elif before["connectorConfiguration"] != config:
        _settled(world, name)  # one that is at something else takes no update
        now = _describe(world, name) or before
        _call(world, "update_connector", connectorArn=now["connectorArn"], currentVersion=now["currentVersion"],
              connectorConfiguration=config)
    return status(world, name)


def _create(world: World, name: str, config: dict[str, str]) -> None:
    told = aws.parameters(world.region, world.stack.deployment)
    needed = (f"connect/role/{name}", "connect/subnets", "connect/security_groups", "connect/log_group",
              "connect/worker_configuration")
    lacking = [parameter for parameter in needed if parameter not in told]
    if lacking:
        raise ConnectorError(
            f"connector {name!r} cannot be created; nothing was deployed", expected=nearest(lacking[0], told),
            where=f"SSM has no /{world.stack.deployment}/{lacking[0]}",
            next_step="a connector of your own needs a role (deploy/5-connect.yaml has one for each of ours), its ARN "
                      "in that parameter; all else comes with `workbench aws up`")
    role, subnets, groups, log, worker = (told[parameter] for parameter in needed)
    plugin = next(plugin for of, plugin in _custom_plugins(world).items()
                  if PLUGINS[of][0] == config["connector.class"])
    worker_now = _call(world, "describe_worker_configuration", workerConfigurationArn=worker)["latestRevision"]
    _call(world, "create_connector", connectorName=_full(world, name), connectorConfiguration=config, capacity=CAPACITY,
          kafkaCluster={"apacheKafkaCluster": {
              "bootstrapServers": world.kafka.bootstrap,
              "vpc": {"subnets": subnets.split(","), "securityGroups": groups.split(",")}}},
          kafkaClusterClientAuthentication={"authenticationType": "IAM"},
          kafkaClusterEncryptionInTransit={"encryptionType": "TLS"}, kafkaConnectVersion=VERSION,
          logDelivery={"workerLogDelivery": {"cloudWatchLogs": {"enabled": True, "logGroup": log}}},
          plugins=[{"customPlugin": {"customPluginArn": plugin["customPluginArn"],
                                     "revision": plugin["latestRevision"]["revision"]}}],
          serviceExecutionRoleArn=role, tags={TAG: world.stack.deployment},
          workerConfiguration={"workerConfigurationArn": worker, "revision": worker_now["revision"]})


def _ours(world: World, name: str, found: dict[str, Any]) -> None:
    """Raise ConnectorError where a connector does not bear this deployment's tag: another user's, of the same name."""
    tags = _call(world, "list_tags_for_resource", resourceArn=found["connectorArn"])["tags"]
    if tags.get(TAG) != world.stack.deployment:
        raise ConnectorError(f"connector {_full(world, name)!r} is not of this deployment; nothing was changed",
                             where=found["connectorArn"], expected=f"the tag {TAG} = {world.stack.deployment}",
                             next_step="two users of one account take two names: stack.deployment in the params file")


def names(world: World) -> list[str]:
    """Return the names of the connectors deployed now."""
    return sorted(_arns(world))


def _arns(world: World) -> dict[str, str]:
    prefix = _full(world, "")
    found = aws.pages(world.region, "kafkaconnect", "list_connectors", "connectors", connectorNamePrefix=prefix)
    return {one["connectorName"][len(prefix):]: one["connectorArn"] for one in found}


def _describe(world: World, name: str) -> Optional[dict[str, Any]]:
    """What MSK Connect says of a connector; None where there is none, or it went while it was asked for."""
    arn = _arns(world).get(name)
    try:
        return arn and _call(world, "describe_connector", connectorArn=arn)
    except StackError as e:
        if aws.code(e) != "NotFoundException":
            raise
        return None


def status(world: World, name: str) -> dict[str, Any]:
    """Return {name, type, state, worker, error, tasks: [{id, state, worker, error}]}, states as a Kafka Connect's.

    MSK Connect tells of no task: one is made up of the connector's state, where it has come to run or to fail.

    Raises:
        ConnectorError: there is no such connector.
    """
    found = _describe(world, name)
    if not found:
        raise ConnectorError(f"there is no connector {name!r}", where=f"MSK Connect, {world.region}",
                             expected=nearest(name, names(world)), next_step="deploy it with connect.apply")
    state = STATES.get(found["connectorState"], found["connectorState"])
    now = {"state": state, "worker": "MSK Connect", "error": _why(world, name, found) if state == "FAILED" else ""}
    wanted = found["connectorConfiguration"].get("connector.class")
    tasks = [{"id": 0, **now}] if state in ("RUNNING", "FAILED") else []
    return {"name": name, "type": dict(PLUGINS.values()).get(wanted, ""), **now, "tasks": tasks}


def _why(world: World, name: str, found: dict[str, Any]) -> str:
    """Why a connector has failed: the last error in its log, else what MSK Connect says of it, which is seldom more
    than that the log has the reason."""
    said = found.get("stateDescription", {})
    group = (found.get("logDelivery", {}).get("workerLogDelivery", {}).get("cloudWatchLogs", {}).get("logGroup")
             or aws.parameters(world.region, world.stack.deployment).get("connect/log_group"))
    since = dt.datetime.now(dt.timezone.utc) - dt.timedelta(hours=6)
    events = aws.pages(world.region, "logs", "filter_log_events", "events", logGroupName=group,
                       logStreamNamePrefix=_full(world, name), startTime=int(since.timestamp() * 1000),
                       filterPattern='?ERROR ?Exception ?"Caused by"') if group else []
    errors = [event["message"] for event in events]
    trace = next((text for text in reversed(errors) if causes(text)), errors[-1] if errors else "")
    return first_line(trace) or f"{said.get('code', 'no reason given')}: {said.get('message', '')}"


def failure(world: World, name: str) -> Optional[str]:
    """Return a sentence (the last error of its log, likely causes) when a connector is FAILED, else None."""
    found = _describe(world, name)
    if not found:
        return f"there is no connector {name!r}"
    return failed("it", _why(world, name, found)) if found["connectorState"] == "FAILED" else None


def wait_running(world: World, name: str, *, steady: float = 1.0) -> dict[str, Any]:
    """Wait until a connector is RUNNING, and stays so for `steady` seconds; return its `status`. It takes minutes.

    Raises:
        ConnectorError: at once when it is FAILED, with the reason from its log and likely causes.
    """
    since: Optional[float] = None

    def running() -> Optional[dict[str, Any]]:
        nonlocal since
        seen = status(world, name)
        since = (since or time.monotonic()) if seen["state"] == "RUNNING" else None
        return seen if since is not None and time.monotonic() - since >= steady else None

    return wait_until(running, f"connector {name!r} to be RUNNING", timeout=60 * MINUTES, every=max(steady, 1.0),
                      error=ConnectorError, failed=lambda: failure(world, name),
                      next_step=f"its log in CloudWatch begins with {_full(world, name)}")


def restart(world: World, name: str) -> None:
    """Start again what has FAILED of a connector; what runs is left alone. It goes on where it was. See `wait_running`.

    Raises: ConnectorError: there is no such connector.
    """
    status(world, name)
    _call(world, "restart_connector", connectorArn=_arns(world)[name], onlyFailedTasks=True)


def delete(world: World, name: str) -> None:
    """Delete a connector and wait until it is gone; one that is not there is fine.

    How far it had read is forgotten, too: the next one of its name is a new connector, and takes a new snapshot. The
    replication slot stays: see postgres.drop_slot. Raises: ConnectorError: it is somebody else's.
    """
    found = _describe(world, name)
    if not found:
        return
    _ours(world, name, found)
    if found["connectorState"] != "DELETING":
        _settled(world, name)
        _call(world, "delete_connector", connectorArn=found["connectorArn"])
    wait_until(lambda: name not in names(world), f"connector {name!r} to be gone", timeout=60 * MINUTES, every=2,
               error=ConnectorError)


def _settled(world: World, name: str) -> None:
    """Wait until a connector is at rest: one that is being made or changed can be neither updated nor deleted."""
    wait_until(lambda: (_describe(world, name) or {}).get("connectorState") in (None, "RUNNING", "FAILED", "PAUSED"),
               f"connector {name!r} to come to rest", timeout=60 * MINUTES, every=2, error=ConnectorError)
