"""A deployment on AWS: its templates (deploy/<n>-<name>.yaml) as CloudFormation stacks.

Stacks are named `<deployment>-<name>`. They are created in the order of the templates' numbers,
since each imports exports of its predecessors, and removed in reverse order. Every resource of a
deployment has the tag `workbench:deployment`, so remaining resources can be found afterwards.
"""

import itertools
import re
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Optional, Sequence

import jmespath
import yaml

from ..base import ROOT, StackError, aws, did_you_mean
from ..base.aws import DEPLOYMENT_TAG
from ..stack.artifacts import Progress

Json = dict[str, Any]  # a template, or a part of an AWS response
Parameters = dict[str, str]  # values of a template's parameters

TEMPLATE_DIR = ROOT / "deploy"
OWNER_TAG = "workbench:owner"  # tag of each stack
# A parameter that no template can write: CloudFormation does not know the brokers' addresses.
BOOTSTRAP_PARAMETER = "kafka/bootstrap"
# MSK Connect's service-linked role, one per account: its name, and the service that uses it
CONNECT_ROLE = "AWSServiceRoleForKafkaConnect", "kafkaconnect.amazonaws.com"
STACK_TIMEOUT_MINUTES = 60  # MSK needs half an hour to create a cluster
SPARK_TIMEOUT_S = CONNECTOR_TIMEOUT_S = 15 * 60
STACK_MISSING = "does not exist"  # the status of a stack that does not exist
# Statuses of a stack whose creation failed: it cannot be updated.
FAILED_CREATE_STATUSES = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "DELETE_FAILED")
# Statuses of a stack at the start of an attempt to create, update or delete it
IN_PROGRESS_STATUSES = ("CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS", "DELETE_IN_PROGRESS")
BUCKETS_QUERY = (
    "[?ResourceType=='AWS::S3::Bucket' && ResourceStatus!='DELETE_COMPLETE'].PhysicalResourceId"
)
# Resources that AWS lists by their tag for an hour after their end, and how to read their state
TERMINATED_RESOURCES = aws.CATALOG["terminated_resources"]


@dataclass(frozen=True)
class Deployment:
    """Region and name of a deployment (region and stack.deployment of the params file)."""

    region: str
    name: str

    def call(self, service: str, operation: str, **params: Any) -> Json:
        """Call AWS in this region (see aws.call)."""
        return aws.call(self.region, service, operation, **params)

    def paginate(self, service: str, operation: str, key: str, **params: Any) -> list[Any]:
        """Return all entries of a paginated list in this region (see aws.paginate)."""
        return aws.paginate(self.region, service, operation, key, **params)

    def stack_name(self, name: str) -> str:
        """Return the name of a template's stack."""
        return f"{self.name}-{name}"


class ResourceCost(NamedTuple):
    """The cost of one resource of a template, in USD per hour."""

    template: str
    resource: str
    usd: float


# ---- templates and their cost


class _TemplateLoader(yaml.SafeLoader):
    """Load YAML with CloudFormation's short forms, such as !Ref, !Sub and !GetAtt."""


def _construct_short_form(loader: Any, name: str, node: Any) -> Json:
    options = {} if node.id == "scalar" else {"deep": True}
    value = getattr(loader, f"construct_{node.id}")(node, **options)
    return {name if name in ("Ref", "Condition") else f"Fn::{name}": value}


_TemplateLoader.add_multi_constructor("!", _construct_short_form)


def load_templates(only: Sequence[str] = ()) -> dict[str, Json]:
    """Return the templates by name, in their order.

    Args:
        only: names of templates; all by default.

    Raises:
        StackError: there is no template of such a name.
    """
    paths = {
        path.stem.partition("-")[2]: path for path in sorted(TEMPLATE_DIR.glob("[0-9]-*.yaml"))
    }
    for name in only:
        if name not in paths:
            raise StackError(
                f"there is no template {name!r}",
                location="deploy/",
                expected=did_you_mean(name, paths),
            )
    return {
        name: yaml.load(path.read_text(encoding="utf-8"), _TemplateLoader)  # noqa: S506 - a SafeLoader
        for name, path in paths.items()
        if name in (only or paths)
    }


def _validate_parameters(templates: dict[str, Json], values: Parameters) -> None:
    """Raise StackError for an unknown parameter, or a value that its template does not allow.

    CloudFormation would report the error only when it creates the stack, up to an hour later.
    """
    parameters: Json = {}
    for template in templates.values():
        parameters.update(template.get("Parameters", {}))
    for name, value in values.items():
        if name not in parameters:
            raise StackError(
                f"no template has a parameter {name!r}",
                location=", ".join(templates),
                expected=did_you_mean(name, parameters),
            )
        expected = _allowed_values(parameters[name], value)
        if expected:
            raise StackError(
                f"parameter {name} is {value!r}",
                location=parameters[name].get("Description", "deploy/"),
                expected=expected,
            )


def _allowed_values(parameter: Json, value: str) -> str:
    """Return a description of a parameter's allowed values, "" if it allows this value."""
    choices = parameter.get("AllowedValues")
    if choices:
        return "" if value in choices else did_you_mean(value, choices)
    if parameter["Type"] == "Number":
        minimum, maximum = parameter.get("MinValue", 0), parameter.get("MaxValue", 2**63)
        if value.isdecimal() and minimum <= int(value) <= maximum:
            return ""
        return f"a whole number from {minimum:,} to {maximum:,}"
    pattern = parameter.get("AllowedPattern", ".*")
    return "" if re.fullmatch(pattern, value) else f"a text like {pattern}"


def _resolve_template(node: Any, values: Json) -> Any:
    """Return a part of a template with parameters replaced by their values.

    Conditions (Fn::Equals, Fn::Not) become booleans.
    """
    if isinstance(node, list):
        return [_resolve_template(each, values) for each in node]
    if not isinstance(node, dict):
        return node
    resolved = {key: _resolve_template(each, values) for key, each in node.items()}
    if "Fn::Equals" in resolved:
        first, second = resolved["Fn::Equals"]
        return str(first) == str(second)
    if "Fn::Not" in resolved:
        return not resolved["Fn::Not"][0]
    reference = resolved.get("Ref", "")
    return values.get(reference, resolved)


def hourly_cost(
    values: Optional[Parameters] = None,
    only: Sequence[str] = (),
    current: Optional[dict[str, Parameters]] = None,
) -> tuple[list[ResourceCost], str]:
    """Estimate the hourly cost of a deployment offline, from deploy/prices.yaml.

    Args:
        values: values of the templates' parameters.
        only: names of templates; all by default.
        current: the parameters of existing stacks (see `current_parameters`).

    Returns:
        (resources with a cost, date and region of the prices).

    Raises:
        StackError: no template has a parameter, or allows its value; prices.yaml has no price for a
            resource type or for a size.
    """
    values, current = values or {}, current or {}
    templates = load_templates(only)
    _validate_parameters(templates, values)
    catalog = yaml.safe_load((TEMPLATE_DIR / "prices.yaml").read_text(encoding="utf-8"))
    costs = []
    for name, template in templates.items():
        parameters = template.get("Parameters", {})
        defaults = {key: parameter.get("Default", "") for key, parameter in parameters.items()}
        resolved = _resolve_template(template, {**defaults, **current.get(name, {}), **values})
        conditions = resolved.get("Conditions", {})
        for resource_name, resource in resolved["Resources"].items():
            usd = _price(catalog["prices"], resource, f"{name}: {resource_name}")
            condition = resource.get("Condition")
            if usd and (not condition or conditions[condition]):
                costs.append(ResourceCost(name, resource_name, usd))
    return costs, f"{catalog['date']}, {catalog['region']}"


def _price(prices: Json, resource: Json, location: str) -> float:
    """Return the hourly price of a resource in USD. The head of prices.yaml describes its format."""
    location = f"deploy/prices.yaml; {location}"
    price = prices.get(resource["Type"])
    if price is None:
        raise StackError(f"there is no price of {resource['Type']}", location=location)
    if not isinstance(price, list):
        return float(price)
    total = 0.0
    for component in price:
        size = jmespath.search(component.get("by", "`1`"), resource["Properties"])
        if size not in component["prices"]:
            raise StackError(
                f"there is no price of {size!r}",
                location=f"{location}: {component['by']}",
                expected=did_you_mean(str(size), component["prices"]),
            )
        quantity = jmespath.search(component.get("times", "`1`"), resource["Properties"])
        total += component["prices"][size] * float(quantity)
    return total


# ---- up


def _call(deployment: Deployment, operation: str, stack: str, **params: Any) -> Json:
    """Call CloudFormation for a template's stack."""
    name = deployment.stack_name(stack)
    return deployment.call("cloudformation", operation, StackName=name, **params)


def _describe_stack(deployment: Deployment, name: str) -> Json:
    with aws.ignore_error_codes("^ValidationError$"):  # "Stack with id … does not exist"
        described: Json = _call(deployment, "describe_stacks", name)["Stacks"][0]
        return described
    return {"StackStatus": STACK_MISSING}


def describe_stacks(deployment: Deployment, only: Sequence[str] = ()) -> dict[str, Json]:
    """Return CloudFormation's description of each template's stack.

    A stack that does not exist has only the status STACK_MISSING.
    """
    return {name: _describe_stack(deployment, name) for name in load_templates(only)}


def current_parameters(stacks: dict[str, Json]) -> dict[str, Parameters]:
    """Return the parameters of each existing stack, by template.

    An update keeps the parameters without a new value.
    """
    return {
        name: {each["ParameterKey"]: each["ParameterValue"] for each in stack.get("Parameters", ())}
        for name, stack in stacks.items()
        if stack["StackStatus"] not in (STACK_MISSING, *FAILED_CREATE_STATUSES)
    }


def up(
    deployment: Deployment,
    values: Parameters,
    only: Sequence[str] = (),
    *,
    take_ownership: bool = False,
    after_create: Optional[dict[str, Callable[[], None]]] = None,
    progress: Progress = print,
) -> None:
    """Create or update stacks in their order. A stack without changes is left as it is.

    Args:
        deployment: the deployment.
        values: values of the templates' parameters. Other parameters of existing stacks keep their
            values.
        only: names of templates; all by default.
        take_ownership: take over stacks of another owner, which may be the same person with another
            identity.
        after_create: functions to call after a stack was created or updated, by template.
        progress: called with one line per stack.

    Raises:
        StackError: a stack was not created, with the reason of the first failed resource; or a
            stack of this name has another owner.
    """
    templates, stacks = load_templates(only), describe_stacks(deployment, only)
    current = current_parameters(stacks)
    _validate_parameters(templates, values)
    owner = _check_owner(deployment, stacks, take_ownership)
    for name, template in templates.items():
        if name == "connect":
            _create_connect_role(deployment, progress)
        parameters = {
            key: value
            for key, value in {**current.get(name, {}), **values}.items()
            if key in template.get("Parameters", {})
        }
        parameters["Deployment"] = deployment.name
        result = _create_or_update(deployment, name, parameters, owner)
        progress(f"{deployment.stack_name(name):<24} {result}")
        if name == "msk":
            _write_bootstrap(deployment)
        if after_create and name in after_create:
            after_create[name]()


def _check_owner(deployment: Deployment, stacks: dict[str, Json], take_ownership: bool) -> str:
    """Return the identity of the caller.

    Raises:
        StackError: one of these stacks has another owner.
    """
    caller = deployment.call("sts", "get_caller_identity")["Arn"]
    for name, stack in stacks.items():
        tags = {tag["Key"]: tag["Value"] for tag in stack.get("Tags", [])}
        owner = tags.get(OWNER_TAG, "somebody else")
        is_of_deployment = tags.get(DEPLOYMENT_TAG) == deployment.name
        if stack["StackStatus"] == STACK_MISSING:
            continue
        if not is_of_deployment or not (take_ownership or owner == caller):
            raise StackError(
                f"stack {deployment.stack_name(name)!r} is not yours; nothing was changed",
                location=f"made by {owner}",
                expected=f"made by {caller}",
                hint="choose another name: `stack.deployment` in a params file of your own. If the "
                "stack is yours all the same: --take-ownership",
            )
    return str(caller)


def _create_or_update(deployment: Deployment, name: str, parameters: Parameters, owner: str) -> str:
    """Create or update a stack, wait for it, and return what was done."""
    status = _wait_until_stable(deployment, name)
    if status in FAILED_CREATE_STATUSES:
        _delete_stack(deployment, name)
    is_new = status in (STACK_MISSING, *FAILED_CREATE_STATUSES)
    (path,) = TEMPLATE_DIR.glob(f"[0-9]-{name}.yaml")
    tags = {DEPLOYMENT_TAG: deployment.name, OWNER_TAG: owner}
    try:
        _call(
            deployment,
            "create_stack" if is_new else "update_stack",
            name,
            TemplateBody=path.read_text(encoding="utf-8"),
            Capabilities=["CAPABILITY_NAMED_IAM"],
            Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in parameters.items()],
            Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
        )
    except StackError as e:
        if "No updates are to be performed" in str(e):
            return "is up to date"
        raise
    action = "created" if is_new else "updated"
    return _wait_for_status(deployment, name, action, "CREATE_COMPLETE", "UPDATE_COMPLETE")


def _wait_until_stable(deployment: Deployment, name: str) -> str:
    """Wait until no operation on a stack is in progress; return its status."""

    def stable_status() -> str:
        status = _describe_stack(deployment, name)["StackStatus"]
        return "" if status.endswith("_IN_PROGRESS") else status

    stack_name, timeout = deployment.stack_name(name), 60 * STACK_TIMEOUT_MINUTES
    return aws.wait(stable_status, f"stack {stack_name}", timeout=timeout, interval=5)


def _wait_for_status(deployment: Deployment, name: str, action: str, *expected: str) -> str:
    """Wait for the end of an operation on a stack; return "was <action>".

    Raises:
        StackError: the stack has another status than those expected.
    """
    status = _wait_until_stable(deployment, name)
    if status not in expected:
        reason = _failure_reason(deployment, name)
        raise StackError(
            f"stack {deployment.stack_name(name)} was not {action}: {reason}",
            location=f"CloudFormation, {deployment.region}: {status}",
            hint="correct the cause, then repeat the command: it continues from here",
        )
    return f"was {action}"


def _failure_reason(deployment: Deployment, name: str) -> str:
    """Return the first failure of the last attempt: later ones are only cancellations."""
    events = deployment.paginate(
        "cloudformation",
        "describe_stack_events",
        "StackEvents",
        StackName=deployment.stack_name(name),
    )

    def is_within_attempt(event: Json) -> bool:
        is_stack = event["LogicalResourceId"] == event["StackName"]
        return not is_stack or event["ResourceStatus"] not in IN_PROGRESS_STATUSES

    # Events are sorted by time, the newest first.
    attempt = itertools.takewhile(is_within_attempt, events)
    failures = [event for event in attempt if event["ResourceStatus"].endswith("_FAILED")]
    first = failures[-1] if failures else {}
    reason = first.get("ResourceStatusReason", "no reason reported")
    return f"{first.get('LogicalResourceId', name)}: {reason}"


def _create_connect_role(deployment: Deployment, progress: Progress) -> None:
    """Create MSK Connect's service-linked role, unless the account has it.

    The role is in no template, because all deployments of an account share it, and CloudFormation
    fails if the role exists with another description.
    """
    name, service = CONNECT_ROLE
    with aws.ignore_error_codes("^NoSuchEntity"):
        deployment.call("iam", "get_role", RoleName=name)
        return
    deployment.call("iam", "create_service_linked_role", AWSServiceName=service)
    progress(
        f"{name}, the account's role for MSK Connect, was created; it stays after "
        "`workbench aws down`"
    )


def _write_bootstrap(deployment: Deployment) -> None:
    """Store the brokers' addresses for clients with IAM among the deployment's parameters."""
    cluster = aws.parameter(deployment.region, deployment.name, "kafka/cluster")
    brokers = deployment.call("kafka", "get_bootstrap_brokers", ClusterArn=cluster)
    name = f"/{deployment.name}/{BOOTSTRAP_PARAMETER}"
    deployment.call(
        "ssm",
        "put_parameter",
        Name=name,
        Value=brokers["BootstrapBrokerStringSaslIam"],
        Type="String",
        Overwrite=True,
    )
    deployment.call(
        "ssm",
        "add_tags_to_resource",
        ResourceType="Parameter",
        ResourceId=name,
        Tags=[{"Key": DEPLOYMENT_TAG, "Value": deployment.name}],
    )


# ---- down


def down(
    deployment: Deployment,
    before_delete: Callable[[], None] = lambda: None,
    *,
    take_ownership: bool = False,
    progress: Progress = print,
) -> None:
    """Remove all resources of a deployment. The next call resumes an interrupted one.

    The call removes connectors, Spark sessions and jobs, replication slots and publications, the
    objects in the buckets, and the stacks in reverse order.

    Args:
        deployment: the deployment.
        before_delete: drops replication slots and publications, while database and parameters still
            exist.
        take_ownership: also remove stacks of another owner (see `up`).
        progress: called with one line per step.

    Raises:
        StackError: resources with the deployment's tag remain (the error names them); a stack has
            another owner (then nothing is removed); or AWS rejects a request.
    """
    stacks = describe_stacks(deployment)
    _check_owner(deployment, stacks, take_ownership)
    progress(f"connectors: {_delete_connectors(deployment)} ended")
    progress(f"sessions and jobs of Spark: {_stop_spark(deployment)} ended")
    before_delete()
    for name in reversed(list(stacks)):
        if stacks[name]["StackStatus"] == STACK_MISSING:
            continue
        stack_name = deployment.stack_name(name)
        resources = deployment.paginate(
            "cloudformation", "list_stack_resources", "StackResourceSummaries", StackName=stack_name
        )
        for bucket in jmespath.search(BUCKETS_QUERY, resources):
            progress(f"bucket {bucket}: {_empty_bucket(deployment, bucket)} objects removed")
        progress(f"{stack_name:<24} {_delete_stack(deployment, name)}")
    with aws.ignore_error_codes("ParameterNotFound"):
        name = f"/{deployment.name}/{BOOTSTRAP_PARAMETER}"
        deployment.call("ssm", "delete_parameter", Name=name)

    def none_remain() -> bool:
        arns = remaining_resources(deployment)
        if arns:
            raise LookupError(f"{len(arns)} resources remain: {', '.join(arns)}")
        return True

    # AWS's index of tags lags some minutes behind.
    aws.wait(
        none_remain,
        f"all resources with tag {DEPLOYMENT_TAG} = {deployment.name} in {deployment.region} to be "
        "removed",
        timeout=300,
        interval=10,
        hint="remove them manually, or repeat `workbench aws down`",
    )


def remaining_resources(deployment: Deployment) -> list[str]:
    """Return the ARNs of existing resources with the deployment's tag.

    AWS lists terminated resources for another hour; they are left out.
    """
    resources = deployment.paginate(
        "resourcegroupstaggingapi",
        "get_resources",
        "ResourceTagMappingList",
        TagFilters=[{"Key": DEPLOYMENT_TAG, "Values": [deployment.name]}],
    )
    arns = sorted(resource["ResourceARN"] for resource in resources)
    return [arn for arn in arns if not _is_terminated(deployment, arn)]


def _is_terminated(deployment: Deployment, arn: str) -> bool:
    _, _, aws_service, _, _, resource = arn.split(":", 5)
    kind, slash, identifier = resource.partition("/")
    probe = TERMINATED_RESOURCES.get(f"{aws_service}:{kind}{slash}")
    if not probe:
        return False
    service, operation, key, states_query = probe
    # A plural parameter takes a list of ids.
    value = [identifier] if key.endswith("s") else identifier
    with aws.ignore_error_codes("NotFound|InvalidRequest"):
        response = deployment.call(service, operation, **{key: value})
        states = jmespath.search(states_query, response)
        return all(re.match("terminated|deleted", state, re.I) for state in states)
    return True


def _delete_connectors(deployment: Deployment) -> int:
    """Delete the deployment's connectors, wait until they are gone, and return their number."""
    connectors = _own_connectors(deployment)
    for connector in connectors:
        if connector["connectorState"] != "DELETING":
            arn = connector["connectorArn"]
            deployment.call("kafkaconnect", "delete_connector", connectorArn=arn)
    aws.wait(
        lambda: not _own_connectors(deployment),
        "the connectors to be gone",
        timeout=CONNECTOR_TIMEOUT_S,
        interval=5,
    )
    return len(connectors)


def _own_connectors(deployment: Deployment) -> list[Json]:
    """Return the connectors with the deployment's tag.

    The prefix of a name is not enough: `workbench-b-x` belongs to deployment workbench-b.
    """
    prefix = deployment.stack_name("")
    connectors = []
    for connector in deployment.paginate(
        "kafkaconnect", "list_connectors", "connectors", connectorNamePrefix=prefix
    ):
        arn = connector["connectorArn"]
        with aws.ignore_error_codes("^NotFoundException$"):  # deleted meanwhile
            response = deployment.call("kafkaconnect", "list_tags_for_resource", resourceArn=arn)
            if response.get("tags", {}).get(DEPLOYMENT_TAG) == deployment.name:
                connectors.append(connector)
    return connectors


def _stop_spark(deployment: Deployment) -> int:
    """End the sessions and jobs of the deployment's EMR Serverless application, then stop it.

    An application cannot be deleted before it is stopped, nor stopped before all its runs have
    ended (API reference, DeleteApplication and StopApplication).

    Returns:
        The number of sessions and jobs that were ended.
    """
    count = 0
    for entry in deployment.paginate("emr-serverless", "list_applications", "applications"):
        is_active = entry["state"] in ("STARTING", "STARTED", "STOPPING")
        if entry["name"] == deployment.name and is_active:
            count += _stop_application(deployment, entry["id"])
    return count


def _stop_application(deployment: Deployment, application_id: str) -> int:
    application = {"applicationId": application_id}
    runs = _active_runs(deployment, application_id)
    for operation, run_id in runs:
        deployment.call("emr-serverless", operation, **application, **run_id)
    aws.wait(
        lambda: not _active_runs(deployment, application_id, include_terminating=True),
        "sessions and jobs of Spark to end",
        timeout=SPARK_TIMEOUT_S,
        interval=5,
    )
    deployment.call("emr-serverless", "stop_application", applicationId=application_id)

    def is_stopped() -> bool:
        response = deployment.call(
            "emr-serverless", "get_application", applicationId=application_id
        )
        return response["application"]["state"] in ("STOPPED", "TERMINATED")

    aws.wait(
        is_stopped, "the application of EMR Serverless to stop", timeout=SPARK_TIMEOUT_S, interval=5
    )
    return len(runs)


def _active_runs(
    deployment: Deployment, application_id: str, *, include_terminating: bool = False
) -> list[tuple[str, Parameters]]:
    """Return the sessions and jobs of an application that have not ended.

    Returns:
        [(operation that ends the run, {parameter: id of the run})].
    """
    runs = []
    for kind in aws.CATALOG["emr_run_kinds"]:
        states = kind["states"]
        if include_terminating:
            states = [*states, kind["terminating_state"]]
        entries = deployment.paginate(
            "emr-serverless",
            kind["list_operation"],
            kind["result_key"],
            applicationId=application_id,
            states=states,
        )
        id_parameter, id_field = kind["id_parameter"], kind["id_field"]
        runs += [(kind["cancel_operation"], {id_parameter: entry[id_field]}) for entry in entries]
    return runs


def _empty_bucket(deployment: Deployment, bucket: str) -> int:
    """Remove all versions of all objects of a bucket; return their number.

    A bucket that does not exist counts as empty.
    """
    import boto3

    responses: list[Json] = []
    location = f"s3://{bucket}"
    with aws.ignore_error_codes("NoSuchBucket"), aws.translate_errors(location):
        s3 = boto3.resource("s3", region_name=deployment.region)
        responses = s3.Bucket(bucket).object_versions.delete()
    errors = jmespath.search("[].Errors[]", responses)
    if errors:
        message = f"{errors[0]['Key']} was not removed: {errors[0].get('Message')}"
        raise StackError(message, location=location)
    return len(jmespath.search("[].Deleted[]", responses))


def _delete_stack(deployment: Deployment, name: str) -> str:
    """Remove a stack, wait for it, and return what was done."""
    _call(deployment, "delete_stack", name)
    return _wait_for_status(deployment, name, "removed", STACK_MISSING)
