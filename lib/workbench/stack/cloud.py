"""A deployment on AWS: its templates (deploy/<n>-<name>.yaml) as CloudFormation stacks, what they cost, and their end.

Stacks are called `<deployment>-<name>` and are made in the order of the templates' numbers, for each imports what those
before it export; they are removed in the reverse order. All that belongs to a deployment bears the tag
`workbench:deployment`, so that what is left in the end is seen.
"""
from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence

import yaml

from ..base import ROOT, StackError, aws, nearest
from ..base.aws import TAG, code

FOLDER = ROOT / "deploy"
OWNER = "workbench:owner"  # a tag of each stack
BOOTSTRAP = "kafka/bootstrap"  # the parameter that no template can write: CloudFormation does not know the brokers
MINUTES = 60  # that a stack may take: MSK's cluster takes half an hour
HUSKS = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "DELETE_FAILED")  # of a stack that was never made: it takes no update
BEGINS = ("CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS", "DELETE_IN_PROGRESS")  # of a stack: an attempt


@dataclass(frozen=True)
class Deployment:
    """Where a deployment is, and what it is called (region and stack.deployment of the params file)."""

    region: str
    name: str

    def call(self, service: str, operation: str, **given: Any) -> dict[str, Any]:
        return aws.call(self.region, service, operation, **given)

    def pages(self, service: str, operation: str, key: str, **given: Any) -> list[Any]:
        return aws.pages(self.region, service, operation, key, **given)

    def stack(self, name: str) -> str:
        return f"{self.name}-{name}"


# ---- templates, and what they cost

class _Yaml(yaml.SafeLoader):
    """YAML with CloudFormation's short forms: !Ref, !Sub, !GetAtt …"""


def _short_form(loader: Any, name: str, node: Any) -> dict[str, Any]:
    made = {yaml.ScalarNode: loader.construct_scalar, yaml.SequenceNode: lambda n: loader.construct_sequence(n, True),
            yaml.MappingNode: lambda n: loader.construct_mapping(n, True)}[type(node)](node)
    return {name if name in ("Ref", "Condition") else f"Fn::{name}": made}


_Yaml.add_multi_constructor("!", _short_form)


def templates(only: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """The templates by name, in their order; all where none is named. Raises: StackError: there is none of a name."""
    found = {path.stem.partition("-")[2]: path for path in sorted(FOLDER.glob("[0-9]-*.yaml"))}
    for name in only:
        if name not in found:
            raise StackError(f"there is no template {name!r}", where="deploy/", expected=nearest(name, found))
    return {name: yaml.load(path.read_text(encoding="utf-8"), _Yaml)  # noqa: S506 - a SafeLoader
            for name, path in found.items() if not only or name in only}


def _values(template: dict[str, Any], given: dict[str, str]) -> dict[str, Any]:
    """A template's parameters: those given, else as it has them by default."""
    return {name: given.get(name, one.get("Default", "")) for name, one in template.get("Parameters", {}).items()}


def kept(on: Deployment, only: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """{template: the parameters that its stack was made with}, of the stacks that are there: they stay as they are
    where nobody gives others."""
    found = {name: _look(on, name) for name in templates(only)}
    return {name: {one["ParameterKey"]: one["ParameterValue"] for one in stack.get("Parameters", ())}
            for name, stack in found.items() if stack and stack["StackStatus"] not in HUSKS}


def _check(wanted: dict[str, dict[str, Any]], given: dict[str, str], before: dict[str, dict[str, str]]) -> None:
    """Raise StackError for a parameter that no template has, or one that has no value."""
    every = {name for template in wanted.values() for name in template.get("Parameters", {})}
    for name in given:
        if name not in every:
            raise StackError(f"no template has a parameter {name!r}", where=", ".join(wanted),
                             expected=nearest(name, every))
    for stack, template in wanted.items():
        for name, one in template.get("Parameters", {}).items():
            if name not in {**before.get(stack, {}), **given} and "Default" not in one:
                raise StackError(f"the template {stack} needs a value", where=name, expected=one.get("Description", ""),
                                 next_step=f"--parameter {name}=…")


def cost(given: Optional[dict[str, str]] = None, only: Sequence[str] = (),
         before: Optional[dict[str, dict[str, str]]] = None) -> tuple[list[tuple[str, str, float]], str]:
    """What a deployment costs, asked of nobody.

    Args:
        given: values of the templates' parameters.
        before: those that stacks have already (see `kept`).
    Returns: (template, resource, USD an hour) of all that costs something; and of what day and region the prices are.
    Raises: StackError: the list of prices has none for a type, or for a size.
    """
    listed = yaml.safe_load((FOLDER / "prices.yaml").read_text(encoding="utf-8"))
    rows = []
    for stack, template in templates(only).items():
        values = _values(template, {**(before or {}).get(stack, {}), **(given or {})})
        for name, resource in template["Resources"].items():
            if resource["Type"] not in listed["prices"]:
                raise StackError(f"there is no price of {resource['Type']}",
                                 where=f"deploy/prices.yaml; {stack}: {name}")
            price = listed["prices"][resource["Type"]]
            if _made(template, resource, values):
                rows.append((stack, name, _price(price, resource, values, f"{stack}: {name}")))
    return [row for row in rows if row[2]], f"{listed['date']}, {listed['region']}"


def _made(template: dict[str, Any], resource: dict[str, Any], values: dict[str, Any]) -> bool:
    """Whether a resource is made with these parameters, as far as its condition is an Fn::Equals."""
    condition = template.get("Conditions", {}).get(resource.get("Condition"), {})
    sides = [_resolved(side, values) for side in condition.get("Fn::Equals", (1, 1))]
    return str(sides[0]) == str(sides[1])


def _resolved(value: Any, values: dict[str, Any]) -> Any:
    return values.get(value["Ref"], value) if isinstance(value, dict) and "Ref" in value else value


def _price(price: Any, resource: dict[str, Any], values: dict[str, Any], where: str) -> float:
    def of(path: str) -> Any:
        found: Any = resource.get("Properties", {})
        for key in path.split("."):
            found = _resolved(found.get(key) if isinstance(found, dict) else None, values)
        return found

    def times(part: dict[str, Any]) -> float:
        given = part.get("times", 1)
        many = of(given) if isinstance(given, str) else given
        return len(many) if isinstance(many, list) else float(1 if many is None else many)

    total = 0.0
    for part in [{"prices": {None: price}}] if isinstance(price, (int, float)) else price:
        size = of(part["by"]) if "by" in part else None
        if isinstance(size, dict) or size not in part["prices"]:
            raise StackError(f"there is no price of {size!r}", where=f"deploy/prices.yaml; {where}",
                             expected=nearest(str(size), map(str, part["prices"])))
        total += part["prices"][size] * times(part)
    return total


# ---- up

def up(on: Deployment, given: dict[str, str], only: Sequence[str] = (), *, mine: bool = False,
       after: Optional[dict[str, Callable[[], None]]] = None, say: Callable[[str], None] = print) -> None:
    """Make or update stacks, in their order; what is as it should be is left alone.

    Args:
        given: values of the templates' parameters; what a stack has already stays where no other is given.
        mine: take over stacks that were made by somebody else, or by you under another name.
        after: what is done when a stack stands, by its name.
    Raises: StackError: a stack was not made, with the reason of the first resource that failed; one of this name is
        somebody else's.
    """
    wanted, before = templates(only), kept(on, only)
    _check(wanted, given, before)
    owner = _refuse_anothers(on, wanted, mine)
    for name, template in wanted.items():
        say(f"{on.stack(name):<24} {_bring(on, name, template, {**before.get(name, {}), **given}, owner)}")
        if name == "msk":
            _write_bootstrap(on)
        if after and name in after:
            after[name]()


def _refuse_anothers(on: Deployment, names: Iterable[str], mine: bool) -> str:
    """Return who asks. Raises: StackError: one of these stacks is somebody else's."""
    owner = on.call("sts", "get_caller_identity")["Arn"]
    for name in names:
        found = _look(on, name)
        tags = {tag["Key"]: tag["Value"] for tag in (found or {}).get("Tags", [])}
        if not found or tags.get(TAG) == on.name and (mine or tags.get(OWNER) == owner):
            continue
        raise StackError(f"stack {on.stack(name)!r} is not yours; nothing was changed",
                         where=f"made by {tags.get(OWNER, 'somebody')}", expected=f"made by {owner}",
                         next_step="take another name: `stack.deployment` in a params file of your own. Or, if it is "
                                   "yours all the same: --mine")
    return owner


def _look(on: Deployment, name: str) -> Optional[dict[str, Any]]:
    """What CloudFormation says of a stack; None where there is none."""
    try:
        return on.call("cloudformation", "describe_stacks", StackName=on.stack(name))["Stacks"][0]
    except StackError as e:
        if code(e) != "ValidationError":  # "Stack with id … does not exist"
            raise
        return None


def _bring(on: Deployment, name: str, template: dict[str, Any], given: dict[str, str], owner: str) -> str:
    """Make or update a stack and wait for it; return what was done."""
    before = _look(on, name)
    if before and before["StackStatus"].endswith("_IN_PROGRESS"):
        before = _settled(on, name)
    if before and before["StackStatus"] in HUSKS:
        _delete(on, name)
        before = None
    (path,) = FOLDER.glob(f"[0-9]-{name}.yaml")
    own = {**{k: v for k, v in given.items() if k in template.get("Parameters", {})}, "Deployment": on.name}
    asked = dict(StackName=on.stack(name), TemplateBody=path.read_text(encoding="utf-8"),
                 Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in own.items()],
                 Capabilities=["CAPABILITY_NAMED_IAM"],
                 Tags=[{"Key": TAG, "Value": on.name}, {"Key": OWNER, "Value": owner}])
    try:
        on.call("cloudformation", "update_stack" if before else "create_stack", **asked)
    except StackError as e:
        if "No updates are to be performed" in str(e):
            return "is as it should be"
        raise
    last = _settled(on, name)
    if last is None or "ROLLBACK" in last["StackStatus"] or "FAILED" in last["StackStatus"]:
        raise StackError(f"stack {on.stack(name)} was not {'updated' if before else 'made'}: {_reason(on, name)}",
                         where=f"CloudFormation, {on.region}: {last['StackStatus'] if last else 'gone'}",
                         next_step="mend that, then `workbench aws up` again: it goes on from here")
    return "was updated" if before else "was made"


def _settled(on: Deployment, name: str) -> Optional[dict[str, Any]]:
    """Wait until nothing is going on with a stack; return what it is then, None where it is gone."""
    def still() -> Any:
        found = _look(on, name)
        return (found,) if found is None or not found["StackStatus"].endswith("_IN_PROGRESS") else None

    return aws.wait(still, f"stack {on.stack(name)}", timeout=60 * MINUTES, every=5)[0]


def _reason(on: Deployment, name: str) -> str:
    """The first failure of the last attempt: what comes after it was only cancelled."""
    events = on.pages("cloudformation", "describe_stack_events", "StackEvents", StackName=on.stack(name))
    # the newest first; where the stack itself began, an earlier attempt ended
    last = itertools.takewhile(lambda e: e["LogicalResourceId"] != e["StackName"] or e["ResourceStatus"] not in BEGINS,
                               events)
    failed = [e for e in last if e["ResourceStatus"].endswith("_FAILED")]
    first = failed[-1] if failed else {}
    return f"{first.get('LogicalResourceId', name)}: {first.get('ResourceStatusReason', 'no reason told')}"


def _write_bootstrap(on: Deployment) -> None:
    """Put the brokers' addresses, as clients by IAM need them, among the deployment's parameters."""
    cluster = aws.parameter(on.region, on.name, "kafka/cluster")
    brokers = on.call("kafka", "get_bootstrap_brokers", ClusterArn=cluster)["BootstrapBrokerStringSaslIam"]
    on.call("ssm", "put_parameter", Name=f"/{on.name}/{BOOTSTRAP}", Value=brokers, Type="String", Overwrite=True)
    on.call("ssm", "add_tags_to_resource", ResourceType="Parameter", ResourceId=f"/{on.name}/{BOOTSTRAP}",
            Tags=[{"Key": TAG, "Value": on.name}])


def status(on: Deployment) -> list[tuple[str, str]]:
    """(stack, its state) of each template."""
    found = {name: _look(on, name) for name in templates()}
    return [(on.stack(name), one["StackStatus"] if one else "not there") for name, one in found.items()]


# ---- down

def down(on: Deployment, release: Callable[[], None] = lambda: None, *, mine: bool = False,
         say: Callable[[str], None] = print) -> None:
    """Remove all of a deployment: connectors, Spark's sessions and jobs, slots and publications, what is in its
    buckets, stacks in reverse order. Interrupted, it goes on when it is called again.

    Args:
        release: drops replication slots and publications, while the database and the parameters are still there.
        mine: also stacks that were made by somebody else, or by you under another name.
    Raises: StackError: something is left that bears the deployment's tag, each named; a stack is somebody else's, and
        nothing was removed; or AWS refuses something.
    """
    _refuse_anothers(on, templates(), mine)
    for what, end in (("connectors", _end_connectors), ("sessions and jobs of Spark", _end_spark)):
        say(f"{what}: {end(on)} ended")
    release()
    for name in reversed(list(templates())):
        if _look(on, name):
            for bucket in _buckets(on, name):
                say(f"bucket {bucket}: {_empty(on, bucket)} objects removed")
            _delete(on, name)
            say(f"{on.stack(name):<24} was removed")
    try:
        on.call("ssm", "delete_parameter", Name=f"/{on.name}/{BOOTSTRAP}")
    except StackError as e:
        if code(e) != "ParameterNotFound":
            raise
    _none_left(on)


def _none_left(on: Deployment) -> None:
    rest: list[str] = []

    def none() -> bool:
        rest[:] = left(on)
        return not rest

    try:  # AWS's own list of tags runs some minutes behind
        aws.wait(none, "all that bears the deployment's tag to be gone", timeout=300, every=10)
    except StackError as e:
        if code(e) or not rest:
            raise
        raise StackError(f"{len(rest)} are left: {', '.join(rest)}", where=f"tag {TAG} = {on.name}, {on.region}",
                         next_step="remove them by hand, or call `workbench aws down` again") from e


def left(on: Deployment) -> list[str]:
    """ARNs of what bears the deployment's tag. What has ended is listed with it for an hour more: it does not count."""
    found = on.pages("resourcegroupstaggingapi", "get_resources", "ResourceTagMappingList",
                     TagFilters=[{"Key": TAG, "Values": [on.name]}])
    return sorted(one["ResourceARN"] for one in found if not _ended(on, one["ResourceARN"]))


def _ended(on: Deployment, arn: str) -> bool:
    service, (kind, _, number) = arn.split(":")[2], arn.split(":", 5)[5].partition("/")
    try:
        if (service, kind) == ("ec2", "instance"):
            found = on.pages("ec2", "describe_instances", "Reservations", InstanceIds=[number])
            return all(one["State"]["Name"] == "terminated" for group in found for one in group["Instances"])
        if (service, kind) == ("ec2", "natgateway"):
            found = on.pages("ec2", "describe_nat_gateways", "NatGateways", NatGatewayIds=[number])
            return all(one["State"] == "deleted" for one in found)
        if (service, kind) == ("elasticmapreduce", "cluster"):
            status = on.call("emr", "describe_cluster", ClusterId=number)["Cluster"]["Status"]
            return status["State"].startswith("TERMINATED")
    except StackError as e:
        if not re.search("NotFound|InvalidRequest", code(e)):
            raise
        return True
    return False


def _end_connectors(on: Deployment) -> int:
    def there() -> list[dict[str, Any]]:
        return on.pages("kafkaconnect", "list_connectors", "connectors", connectorNamePrefix=on.stack(""))

    found = there()
    for one in found:
        if one["connectorState"] != "DELETING":
            on.call("kafkaconnect", "delete_connector", connectorArn=one["connectorArn"])
    aws.wait(lambda: not there(), "the connectors to be gone", timeout=15 * 60, every=5)
    return len(found)


def _end_spark(on: Deployment) -> int:
    """End what runs in the deployment's application of EMR Serverless, and stop it: it cannot be deleted before, nor
    stopped before all has ended (its API's reference, DeleteApplication and StopApplication)."""
    count = 0
    for one in on.pages("emr-serverless", "list_applications", "applications"):
        if one["name"] != on.name or one["state"] not in ("STARTING", "STARTED", "STOPPING"):
            continue
        application = {"applicationId": one["id"]}
        for end, number in _running(on, application):
            on.call("emr-serverless", end, **application, **number)
            count += 1
        aws.wait(lambda of=application: not _running(on, of, "TERMINATING", "CANCELLING"),
                 "sessions and jobs of Spark to end", timeout=15 * 60, every=5)
        on.call("emr-serverless", "stop_application", **application)
        aws.wait(lambda of=application: on.call("emr-serverless", "get_application", **of)["application"]["state"]
                 in ("STOPPED", "TERMINATED"), "the application of EMR Serverless to stop", timeout=15 * 60, every=5)
    return count


def _running(on: Deployment, application: dict[str, str], *also: str) -> list[tuple[str, dict[str, str]]]:
    """The sessions and jobs of an application that have not ended: (what ends it, its number); also: states of one that
    was told to end."""
    sessions = on.pages("emr-serverless", "list_sessions", "sessions", **application,
                        states=["SUBMITTED", "STARTING", "STARTED", "IDLE", "BUSY", *also[:1]])
    jobs = on.pages("emr-serverless", "list_job_runs", "jobRuns", **application,
                    states=["SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", "QUEUED", *also[1:]])
    return [("terminate_session", {"sessionId": one["sessionId"]}) for one in sessions] + [
        ("cancel_job_run", {"jobRunId": one["id"]}) for one in jobs]


def _buckets(on: Deployment, name: str) -> Iterator[str]:
    for one in on.pages("cloudformation", "list_stack_resources", "StackResourceSummaries", StackName=on.stack(name)):
        if one["ResourceType"] == "AWS::S3::Bucket" and one["ResourceStatus"] != "DELETE_COMPLETE":
            yield one["PhysicalResourceId"]


def _empty(on: Deployment, bucket: str) -> int:
    """Remove all objects of a bucket, all versions; return how many. One that is gone has none."""
    count = 0
    try:
        while True:
            page = on.call("s3", "list_object_versions", Bucket=bucket, MaxKeys=1000)
            found = [{"Key": one["Key"], "VersionId": one["VersionId"]}
                     for one in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]]
            if not found:
                return count
            refused = on.call("s3", "delete_objects", Bucket=bucket, Delete={"Objects": found, "Quiet": True})
            if refused.get("Errors"):
                first = refused["Errors"][0]
                raise StackError(f"{first['Key']} was not removed: {first.get('Message')}", where=f"s3://{bucket}")
            count += len(found)
    except StackError as e:
        if code(e) != "NoSuchBucket":
            raise
        return count


def _delete(on: Deployment, name: str) -> None:
    on.call("cloudformation", "delete_stack", StackName=on.stack(name))
    last = _settled(on, name)
    if last is not None and last["StackStatus"] != "DELETE_COMPLETE":
        raise StackError(f"stack {on.stack(name)} was not removed: {_reason(on, name)}",
                         where=f"CloudFormation, {on.region}: {last['StackStatus']}",
                         next_step="mend that, then `workbench aws down` again: it goes on from here")
