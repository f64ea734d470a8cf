"""A deployment on AWS: its templates (deploy/<n>-<name>.yaml) as CloudFormation stacks, what they
cost, and their end.

Stacks are called `<deployment>-<name>` and are made in the order of the templates' numbers, for
each imports what those before it export; they are removed in the reverse order. All that belongs to
a deployment bears the tag `workbench:deployment`, so that what is left in the end is seen.
"""

import itertools
import re
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Optional, Sequence

import jmespath
import yaml

from ..base import ROOT, StackError, aws, did_you_mean
from ..base.aws import DEPLOYMENT_TAG

TEMPLATE_DIR = ROOT / "deploy"
OWNER_TAG = "workbench:owner"  # a tag of each stack
# the parameter that no template can write: CloudFormation does not know the brokers
BOOTSTRAP_PARAMETER = "kafka/bootstrap"
# The service-linked role of MSK Connect, one for an account: (its name, the service that it is of)
CONNECT_ROLE = "AWSServiceRoleForKafkaConnect", "kafkaconnect.amazonaws.com"
STACK_TIMEOUT_MINUTES = 60  # that a stack may take: MSK's cluster takes half an hour
STACK_MISSING = "not there"  # the status of a stack that is none
FAILED_CREATE_STATUSES = (
    "ROLLBACK_COMPLETE",
    "ROLLBACK_FAILED",
    "DELETE_FAILED",
)  # of a stack that was never made: it takes no update
IN_PROGRESS_STATUSES = (
    "CREATE_IN_PROGRESS",
    "UPDATE_IN_PROGRESS",
    "DELETE_IN_PROGRESS",
)  # of a stack: an attempt
BUCKETS_QUERY = (
    "[?ResourceType=='AWS::S3::Bucket' && ResourceStatus!='DELETE_COMPLETE'].PhysicalResourceId"
)
# What is listed by its tag for an hour after its end: {the beginning of its ARN's last part: what
# tells its state}
TERMINATED_RESOURCES = aws.CATALOG["terminated_resources"]


@dataclass(frozen=True)
class Deployment:
    """Where a deployment is, and what it is called (region and stack.deployment of the params
    file).
    """

    region: str
    name: str

    def call(self, service: str, operation: str, **given: Any) -> dict[str, Any]:
        return aws.call(self.region, service, operation, **given)

    def paginate(self, service: str, operation: str, key: str, **given: Any) -> list[Any]:
        return aws.paginate(self.region, service, operation, key, **given)

    def stack_name(self, name: str) -> str:
        return f"{self.name}-{name}"


# ---- templates, and what they cost


class _TemplateLoader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms: !Ref, !Sub, !GetAtt …"""


def _construct_short_form(loader: Any, name: str, node: Any) -> dict[str, Any]:
    made = getattr(loader, f"construct_{node.id}")(
        node, **({} if node.id == "scalar" else {"deep": True})
    )
    return {name if name in ("Ref", "Condition") else f"Fn::{name}": made}


_TemplateLoader.add_multi_constructor("!", _construct_short_form)


def load_templates(only: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """The templates by name, in their order; all where none is named. Raises: StackError: there is
    none of a name.
    """
    found = {
        path.stem.partition("-")[2]: path for path in sorted(TEMPLATE_DIR.glob("[0-9]-*.yaml"))
    }
    for name in only:
        if name not in found:
            raise StackError(
                f"there is no template {name!r}",
                location="deploy/",
                expected=did_you_mean(name, found),
            )
    return {
        name: yaml.load(path.read_text(encoding="utf-8"), _TemplateLoader)  # noqa: S506 - a SafeLoader
        for name, path in found.items()
        if not only or name in only
    }


def _validate_parameters(wanted: dict[str, dict[str, Any]], given: dict[str, str]) -> None:
    """Raise StackError for a parameter that none of these templates has, or a value that its
    template does not take: CloudFormation would say so stack by stack, an hour after the first was
    made.
    """
    every = {
        name: one
        for template in wanted.values()
        for name, one in template.get("Parameters", {}).items()
    }
    for name, value in given.items():
        if name not in every:
            raise StackError(
                f"no template has a parameter {name!r}",
                location=", ".join(wanted),
                expected=did_you_mean(name, every),
            )
        expected = _allowed_values(every[name], value)
        if expected:
            raise StackError(
                f"parameter {name} is {value!r}",
                location=every[name].get("Description", "deploy/"),
                expected=expected,
            )


def _allowed_values(parameter: dict[str, Any], value: str) -> str:
    """What a parameter of a template takes; "" where that is this value."""
    choices, pattern = parameter.get("AllowedValues"), parameter.get("AllowedPattern", ".*")
    if choices:
        return "" if value in choices else did_you_mean(value, choices)
    if parameter["Type"] == "Number":
        least, most = parameter.get("MinValue", 0), parameter.get("MaxValue", 2**63)
        good = value.isdecimal() and least <= int(value) <= most
        return "" if good else f"a whole number from {least:,} to {most:,}"
    return "" if re.fullmatch(pattern, value) else f"a text like {pattern}"


def _resolve_template(part: Any, values: dict[str, Any]) -> Any:
    """A part of a template with its parameters' values, and its conditions (Fn::Equals, Fn::Not) as
    true or false.
    """
    if isinstance(part, list):
        return [_resolve_template(each, values) for each in part]
    if not isinstance(part, dict):
        return part
    part = {key: _resolve_template(each, values) for key, each in part.items()}
    if "Fn::Equals" in part:
        return str(part["Fn::Equals"][0]) == str(part["Fn::Equals"][1])
    return not part["Fn::Not"][0] if "Fn::Not" in part else values.get(part.get("Ref"), part)


def hourly_cost(
    given: Optional[dict[str, str]] = None,
    only: Sequence[str] = (),
    before: Optional[dict[str, dict[str, str]]] = None,
) -> tuple[list[tuple[str, str, float]], str]:
    """What a deployment costs, asked of nobody.

    Args:
        given: values of the templates' parameters.
        before: those that stacks have already (see `kept`).
    Returns: (template, resource, USD an hour) of all that costs something; and of what day and
        region the prices are.
    Raises: StackError: no template has a parameter, or takes its value; the list of prices has none
        for a type, or for a size.
    """
    wanted = load_templates(only)
    _validate_parameters(wanted, given or {})
    listed = yaml.safe_load((TEMPLATE_DIR / "prices.yaml").read_text(encoding="utf-8"))
    rows = []
    for stack, template in wanted.items():
        default = {
            name: one.get("Default", "") for name, one in template.get("Parameters", {}).items()
        }
        filled = _resolve_template(
            template, {**default, **(before or {}).get(stack, {}), **(given or {})}
        )
        for name, resource in filled["Resources"].items():
            usd = _price(listed["prices"], resource, f"{stack}: {name}")
            if usd and ("Condition" not in resource or filled["Conditions"][resource["Condition"]]):
                rows.append((stack, name, usd))
    return rows, f"{listed['date']}, {listed['region']}"


def _price(prices: dict[str, Any], resource: dict[str, Any], where: str) -> float:
    """What a resource costs by the list, whose head says how it is read."""
    price = prices.get(resource["Type"])
    if not isinstance(price, list):
        if price is None:
            raise StackError(
                f"there is no price of {resource['Type']}", location=f"deploy/prices.yaml; {where}"
            )
        return price
    total = 0.0
    for part in price:
        size, times = (
            jmespath.search(part.get(key, "`1`"), resource["Properties"]) for key in ("by", "times")
        )
        if size not in part["prices"]:
            raise StackError(
                f"there is no price of {size!r}",
                location=f"deploy/prices.yaml; {where}: {part['by']}",
                expected=did_you_mean(str(size), part["prices"]),
            )
        total += part["prices"][size] * float(times)
    return total


# ---- up


def _describe_stack(on: Deployment, name: str) -> dict[str, Any]:
    with aws.ignore_error_codes("^ValidationError$"):  # "Stack with id … does not exist"
        return on.call("cloudformation", "describe_stacks", StackName=on.stack_name(name))[
            "Stacks"
        ][0]
    return {"StackStatus": STACK_MISSING}


def describe_stacks(on: Deployment, only: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """{template: what CloudFormation says of its stack}; of one that is not there the status NONE,
    and no more.
    """
    return {name: _describe_stack(on, name) for name in load_templates(only)}


def current_parameters(stacks: dict[str, dict[str, Any]]) -> dict[str, dict[str, str]]:
    """{template: the parameters that its stack was made with}, of the stacks that are there: they
    stay as they are where nobody gives others.
    """
    return {
        name: {one["ParameterKey"]: one["ParameterValue"] for one in stack.get("Parameters", ())}
        for name, stack in stacks.items()
        if stack["StackStatus"] not in (STACK_MISSING, *FAILED_CREATE_STATUSES)
    }


def up(
    on: Deployment,
    given: dict[str, str],
    only: Sequence[str] = (),
    *,
    take_ownership: bool = False,
    after_create: Optional[dict[str, Callable[[], None]]] = None,
    progress: Callable[[str], None] = print,
) -> None:
    """Make or update stacks, in their order; what is as it should be is left alone.

    Args:
        given: values of the templates' parameters; what a stack has already stays where no other is
            given.
        mine: take over stacks that were made by somebody else, or by you under another name.
        after: what is done when a stack stands, by its name.
    Raises: StackError: a stack was not made, with the reason of the first resource that failed; one
        of this name is somebody else's.
    """
    wanted, found = load_templates(only), describe_stacks(on, only)
    before = current_parameters(found)
    _validate_parameters(wanted, given)
    owner = _check_owner(on, found, take_ownership)
    for name, template in wanted.items():
        if name == "connect":
            _create_connect_role(on, progress)
        own = {
            k: v
            for k, v in {**before.get(name, {}), **given}.items()
            if k in template.get("Parameters", {})
        }
        progress(
            f"{on.stack_name(name):<24} {_create_or_update(on, name, {**own, 'Deployment': on.name}, owner)}"
        )
        if name == "msk":
            _write_bootstrap(on)
        if after_create and name in after_create:
            after_create[name]()


def _check_owner(on: Deployment, stacks: dict[str, dict[str, Any]], mine: bool) -> str:
    """Return who asks. Raises: StackError: one of these stacks is somebody else's."""
    owner = on.call("sts", "get_caller_identity")["Arn"]
    for name, found in stacks.items():
        tags = {tag["Key"]: tag["Value"] for tag in found.get("Tags", [])}
        if (
            found["StackStatus"] == STACK_MISSING
            or tags.get(DEPLOYMENT_TAG) == on.name
            and (mine or tags.get(OWNER_TAG) == owner)
        ):
            continue
        raise StackError(
            f"stack {on.stack_name(name)!r} is not yours; nothing was changed",
            location=f"made by {tags.get(OWNER_TAG, 'somebody')}",
            expected=f"made by {owner}",
            hint="take another name: `stack.deployment` in a params file of your own. Or, if it is "
            "yours all the same: --mine",
        )
    return owner


def _create_or_update(on: Deployment, name: str, given: dict[str, str], owner: str) -> str:
    """Make or update a stack and wait for it; return what was done."""
    before = _wait_until_stable(on, name)
    if before in FAILED_CREATE_STATUSES:
        _delete_stack(on, name)
    new = before in (STACK_MISSING, *FAILED_CREATE_STATUSES)
    (path,) = TEMPLATE_DIR.glob(f"[0-9]-{name}.yaml")
    try:
        on.call(
            "cloudformation",
            "create_stack" if new else "update_stack",
            StackName=on.stack_name(name),
            TemplateBody=path.read_text(encoding="utf-8"),
            Capabilities=["CAPABILITY_NAMED_IAM"],
            Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in given.items()],
            Tags=[{"Key": DEPLOYMENT_TAG, "Value": on.name}, {"Key": OWNER_TAG, "Value": owner}],
        )
    except StackError as e:
        if "No updates are to be performed" in str(e):
            return "is as it should be"
        raise
    return _wait_for_status(
        on, name, "made" if new else "updated", "CREATE_COMPLETE", "UPDATE_COMPLETE"
    )


def _wait_until_stable(on: Deployment, name: str) -> str:
    """Wait until nothing is going on with a stack; return its status then."""

    def still() -> str:
        now = _describe_stack(on, name)["StackStatus"]
        return "" if now.endswith("_IN_PROGRESS") else now

    return aws.wait(
        still, f"stack {on.stack_name(name)}", timeout=60 * STACK_TIMEOUT_MINUTES, interval=5
    )


def _wait_for_status(on: Deployment, name: str, what: str, *states: str) -> str:
    """Wait until what a stack was told is over, and return it. Raises: StackError: it is not in one
    of the states.
    """
    now = _wait_until_stable(on, name)
    if now not in states:
        raise StackError(
            f"stack {on.stack_name(name)} was not {what}: {_failure_reason(on, name)}",
            location=f"CloudFormation, {on.region}: {now}",
            hint="mend that, then do the same again: it goes on from here",
        )
    return f"was {what}"


def _failure_reason(on: Deployment, name: str) -> str:
    """The first failure of the last attempt: what comes after it was only cancelled."""
    events = on.paginate(
        "cloudformation", "describe_stack_events", "StackEvents", StackName=on.stack_name(name)
    )
    # the newest first; where the stack itself began, an earlier attempt ended
    last = itertools.takewhile(
        lambda e: (
            e["LogicalResourceId"] != e["StackName"]
            or e["ResourceStatus"] not in IN_PROGRESS_STATUSES
        ),
        events,
    )
    *_, first = [{}, *(e for e in last if e["ResourceStatus"].endswith("_FAILED"))]
    return f"{first.get('LogicalResourceId', name)}: {first.get('ResourceStatusReason', 'no reason told')}"


def _create_connect_role(on: Deployment, say: Callable[[str], None]) -> None:
    """Create MSK Connect's service-linked role, unless the account has it. No template does:
    CloudFormation fails where the role exists with another description, and the deployments of an
    account share it.
    """
    name, service = CONNECT_ROLE
    with aws.ignore_error_codes("^NoSuchEntity"):
        on.call("iam", "get_role", RoleName=name)
        return
    on.call("iam", "create_service_linked_role", AWSServiceName=service)
    say(
        f"{name}, the account's own role of MSK Connect, was made; it stays after `workbench aws down`"
    )


def _write_bootstrap(on: Deployment) -> None:
    """Put the brokers' addresses, as clients by IAM need them, among the deployment's
    parameters.
    """
    cluster = aws.parameter(on.region, on.name, "kafka/cluster")
    brokers = on.call("kafka", "get_bootstrap_brokers", ClusterArn=cluster)[
        "BootstrapBrokerStringSaslIam"
    ]
    on.call(
        "ssm",
        "put_parameter",
        Name=f"/{on.name}/{BOOTSTRAP_PARAMETER}",
        Value=brokers,
        Type="String",
        Overwrite=True,
    )
    on.call(
        "ssm",
        "add_tags_to_resource",
        ResourceType="Parameter",
        ResourceId=f"/{on.name}/{BOOTSTRAP_PARAMETER}",
        Tags=[{"Key": DEPLOYMENT_TAG, "Value": on.name}],
    )


# ---- down


def down(
    on: Deployment,
    before_delete: Callable[[], None] = lambda: None,
    *,
    take_ownership: bool = False,
    progress: Callable[[str], None] = print,
) -> None:
    """Remove all of a deployment: connectors, Spark's sessions and jobs, slots and publications,
    what is in its buckets, stacks in reverse order. Interrupted, it goes on when it is called
    again.

    Args:
        release: drops replication slots and publications, while the database and the parameters are
            still there.
        mine: also stacks that were made by somebody else, or by you under another name.
    Raises: StackError: something is left that bears the deployment's tag, each named; a stack is
        somebody else's, and nothing was removed; or AWS refuses something.
    """
    found = describe_stacks(on)
    _check_owner(on, found, take_ownership)
    for what, end in (
        ("connectors", _delete_connectors),
        ("sessions and jobs of Spark", _stop_spark),
    ):
        progress(f"{what}: {end(on)} ended")
    before_delete()
    for name in (
        each for each in reversed(list(found)) if found[each]["StackStatus"] != STACK_MISSING
    ):
        has = on.paginate(
            "cloudformation",
            "list_stack_resources",
            "StackResourceSummaries",
            StackName=on.stack_name(name),
        )
        for bucket in jmespath.search(BUCKETS_QUERY, has):
            progress(f"bucket {bucket}: {_empty_bucket(on, bucket)} objects removed")
        progress(f"{on.stack_name(name):<24} {_delete_stack(on, name)}")
    with aws.ignore_error_codes("ParameterNotFound"):
        on.call("ssm", "delete_parameter", Name=f"/{on.name}/{BOOTSTRAP_PARAMETER}")

    def none_left() -> bool:
        if rest := remaining_resources(on):
            raise LookupError(f"{len(rest)} are left: {', '.join(rest)}")
        return True

    # AWS's own list of tags runs some minutes behind
    aws.wait(
        none_left,
        f"all that bears the tag {DEPLOYMENT_TAG} = {on.name} to be gone from {on.region}",
        timeout=300,
        interval=10,
        hint="remove them by hand, or call `workbench aws down` again",
    )


def remaining_resources(on: Deployment) -> list[str]:
    """ARNs of what bears the deployment's tag. What has ended is listed with it for an hour more:
    it does not count.
    """
    found = on.paginate(
        "resourcegroupstaggingapi",
        "get_resources",
        "ResourceTagMappingList",
        TagFilters=[{"Key": DEPLOYMENT_TAG, "Values": [on.name]}],
    )
    return sorted(one["ResourceARN"] for one in found if not _is_terminated(on, one["ResourceARN"]))


def _is_terminated(on: Deployment, arn: str) -> bool:
    kind, slash, number = ":".join(arn.split(":", 5)[2::3]).partition("/")
    if kind + slash not in TERMINATED_RESOURCES:
        return False
    service, operation, key, states = TERMINATED_RESOURCES[kind + slash]
    with aws.ignore_error_codes("NotFound|InvalidRequest"):
        told = on.call(service, operation, **{key: [number] if key.endswith("s") else number})
        return all(
            re.match("terminated|deleted", state, re.I) for state in jmespath.search(states, told)
        )
    return True


def _delete_connectors(on: Deployment) -> int:
    def ours() -> Iterator[dict[str, Any]]:
        for one in on.paginate(
            "kafkaconnect", "list_connectors", "connectors", connectorNamePrefix=on.stack_name("")
        ):
            with aws.ignore_error_codes("^NotFoundException$"):  # it went meanwhile
                # by its tag: `workbench-b-x` is one of deployment workbench-b
                if (
                    on.call(
                        "kafkaconnect", "list_tags_for_resource", resourceArn=one["connectorArn"]
                    )
                    .get("tags", {})
                    .get(DEPLOYMENT_TAG)
                    == on.name
                ):
                    yield one

    found = list(ours())
    for one in found:
        if one["connectorState"] != "DELETING":
            on.call("kafkaconnect", "delete_connector", connectorArn=one["connectorArn"])
    aws.wait(lambda: not any(ours()), "the connectors to be gone", timeout=15 * 60, interval=5)
    return len(found)


def _stop_spark(on: Deployment) -> int:
    """End what runs in the deployment's application of EMR Serverless, and stop it: it cannot be
    deleted before, nor stopped before all has ended (its API's reference, DeleteApplication and
    StopApplication).
    """
    count = 0
    for one in on.paginate("emr-serverless", "list_applications", "applications"):
        if one["name"] != on.name or one["state"] not in ("STARTING", "STARTED", "STOPPING"):
            continue
        of = {"applicationId": one["id"]}
        for ends, number in _active_runs(on, of):
            on.call("emr-serverless", ends, **of, **number)
            count += 1
        aws.wait(
            lambda of=of: not _active_runs(on, of, ending=True),
            "sessions and jobs of Spark to end",
            timeout=15 * 60,
            interval=5,
        )
        on.call("emr-serverless", "stop_application", **of)
        aws.wait(
            lambda of=of: (
                on.call("emr-serverless", "get_application", **of)["application"]["state"]
                in ("STOPPED", "TERMINATED")
            ),
            "the application of EMR Serverless to stop",
            timeout=15 * 60,
            interval=5,
        )
    return count


def _active_runs(
    on: Deployment, of: dict[str, str], *, ending: bool = False
) -> list[tuple[str, dict[str, str]]]:
    """The sessions and jobs of an application that have not ended: (what ends it, its number).
    ending: those too that were told to end.
    """
    return [
        (run["cancel_operation"], {run["id_parameter"]: one[run["id_field"]]})
        for run in aws.CATALOG["emr_run_kinds"]
        for one in on.paginate(
            "emr-serverless",
            run["list_operation"],
            run["result_key"],
            **of,
            states=run["states"] + [run["terminating_state"]] * ending,
        )
    ]


def _empty_bucket(on: Deployment, bucket: str) -> int:
    """Remove all objects of a bucket, all versions; return how many. One that is gone has none."""
    import boto3

    removed: list[dict[str, Any]] = []
    with aws.ignore_error_codes("NoSuchBucket"), aws.translate_errors(f"s3://{bucket}"):
        removed = (
            boto3.resource("s3", region_name=on.region).Bucket(bucket).object_versions.delete()
        )
    refused = jmespath.search("[].Errors[]", removed)
    if refused:
        raise StackError(
            f"{refused[0]['Key']} was not removed: {refused[0].get('Message')}",
            location=f"s3://{bucket}",
        )
    return len(jmespath.search("[].Deleted[]", removed))


def _delete_stack(on: Deployment, name: str) -> str:
    """Remove a stack and wait for it; return what was done."""
    on.call("cloudformation", "delete_stack", StackName=on.stack_name(name))
    return _wait_for_status(on, name, "removed", STACK_MISSING)
