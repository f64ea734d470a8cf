"""AWS API calls: clients, paginated responses, translated errors, parameters and secrets.

boto3 finds the credentials (environment, profile, role of the machine), and sends them to AWS only.
The setting `stack.deployment` names the deployment of a world. Its parameters are
`/<deployment>/<name>` in the SSM Parameter Store. Its secrets are `<deployment>/<name>` in the
Secrets Manager. deploy/README.md lists all of them.
"""

import contextlib
import functools
import json
import re
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, TypeVar

from . import yaml_files
from .errors import StackError, WorkbenchError, did_you_mean
from .wait import wait_until

T = TypeVar("T")

# All resources of a deployment have this tag; its value is the name of the deployment.
DEPLOYMENT_TAG = "workbench:deployment"
# Attempts of a call while AWS throttles the call or a service fails. With boto3's backoff all
# attempts take about 20 s.
MAX_ATTEMPTS = 6
DENIAL = re.compile(r"not authorized to perform: (\S+)(?: on resource: (\S+))?")
CATALOG = yaml_files.load(Path(__file__).with_suffix(".yaml"))
KAFKA_IAM_PROPERTIES = CATALOG["kafka_login"]  # properties of a Java Kafka client for MSK with IAM


@functools.cache
def client(region: str, service: str) -> Any:
    """Return the boto3 client of a service. It is kept until a login fails or another world is active.

    Args:
        region: AWS region.
        service: boto3's name of the service, such as `kafkaconnect`.

    Raises:
        StackError: there is no such region, or no such profile.
    """
    import boto3
    from botocore.config import Config

    config = Config(
        retries={"mode": "standard", "total_max_attempts": MAX_ATTEMPTS},
        connect_timeout=10,
        read_timeout=60,
    )
    with translate_errors(f"{service} in {region}"):
        return boto3.Session().client(service, region_name=region, config=config)


def call(region: str, service: str, operation: str, /, **params: Any) -> dict[str, Any]:
    """Call an operation of AWS, and return its response.

    Args:
        region: AWS region.
        service: boto3's name of the service, such as `kafkaconnect`.
        operation: boto3's name of the operation, such as `describe_connector`.
        **params: parameters of the operation.

    Raises:
        StackError: AWS rejects the call, or cannot be reached. `error_code` returns AWS's code.
    """
    with translate_errors(f"{service}.{operation} in {region}"):
        response: dict[str, Any] = getattr(client(region, service), operation)(**params)
        return response


def paginate(region: str, service: str, operation: str, key: str, /, **params: Any) -> list[Any]:
    """Call a paginated operation of AWS, and return the items of all its pages.

    Args:
        region: AWS region.
        service: boto3's name of the service.
        operation: boto3's name of the operation.
        key: the key of the list of items in a response.
        **params: parameters of the operation.

    Raises:
        StackError: AWS rejects the call, or cannot be reached.
    """
    with translate_errors(f"{service}.{operation} in {region}"):
        pages = client(region, service).get_paginator(operation).paginate(**params)
        return [item for page in pages for item in page.get(key, [])]


def fill(template: Path, **values: Any) -> dict[str, Any]:
    """Return the parameters of an operation from a YAML file.

    Args:
        template: the file.
        **values: {field: value} of the {fields} in the file; a list or dict of ASCII texts as JSON.
    """
    filled: dict[str, Any] = yaml_files.parse(template.read_text(encoding="utf-8").format(**values))
    return filled


@contextlib.contextmanager
def translate_errors(location: str) -> Iterator[None]:
    """Translate the errors that boto3 raises in this block to StackError.

    Args:
        location: the operation, shown in the error.

    Raises:
        StackError: an error response of AWS, or an error of boto3 that aws.yaml has. Any other
            exception is raised unchanged.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    # botocore raises a RuntimeError for new credentials that have expired, too
    except (ClientError, BotoCoreError, RuntimeError) as e:
        error = _to_stack_error(e, location)
        if error is None:
            raise
        raise error from e


def _to_stack_error(error: Exception, location: str) -> Optional[StackError]:
    """Return the error for an exception of boto3; None if it is neither a response of AWS nor in aws.yaml."""
    details = getattr(error, "response", {}).get("Error", {})
    code, text = str(details.get("Code", "")), str(details.get("Message", error))
    names = code or " ".join(cls.__name__ for cls in type(error).__mro__)
    if "still expired" in text:
        names = "Expired"
    known = [row for row in CATALOG["errors"] if re.search(row["codes"], names)]
    if not known and not code:
        return None
    row = known[0] if known else CATALOG["other_error"]
    if row.get("is_login"):
        client.cache_clear()  # a client keeps its credentials, and that there were none
    message = row["message"].format(max_attempts=MAX_ATTEMPTS)
    denied = DENIAL.search(text)
    if denied:
        message = f"{denied[1]} is not allowed on {denied[2] or 'its resource'}"
    location = f"{location}: {code}" if code else location
    return StackError(f"{message}: {text}", location=location, hint=row["hint"])


def error_code(error: BaseException) -> str:
    """Return the AWS error code of an error from `translate_errors`.

    Returns:
        A code such as "NotFoundException"; empty for any other error.
    """
    response = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


@contextlib.contextmanager
def ignore_error_codes(pattern: str) -> Iterator[None]:
    """Ignore certain AWS errors; such an error ends the block, as with contextlib.suppress.

    Args:
        pattern: regular expression of the codes to ignore.

    Raises:
        StackError: an error with any other code.
    """
    try:
        yield
    except StackError as e:
        if not re.search(pattern, error_code(e)):
            raise


def is_transient(error: BaseException) -> bool:
    """Return whether an error from `translate_errors` is transient, so that a retry may succeed.

    Throttling, an unavailable service and a failed connection are transient.
    """
    from botocore import exceptions

    if isinstance(error.__cause__, (exceptions.ConnectionError, exceptions.HTTPClientError)):
        return True
    return re.search(CATALOG["transient_codes"], error_code(error)) is not None


def wait(
    condition: Callable[[], Optional[T]],
    description: str,
    *,
    error: type[WorkbenchError] = StackError,
    **options: Any,
) -> T:
    """Poll AWS like `wait_until`, but raise an expired login or a missing permission at once.

    Args:
        condition: called without arguments.
        description: completes "waited 60 s for …" in the error.
        error: the class to raise.
        **options: further arguments of `wait_until`.

    Raises:
        error: after the timeout, or at once for an error that is not transient.
    """
    return wait_until(
        condition,
        description,
        error=error,
        is_transient=lambda e: not isinstance(e, StackError) or is_transient(e),
        **options,
    )


def parameters(region: str, deployment: str) -> dict[str, str]:
    """Return the SSM parameters of a deployment: {name without the prefix: value}.

    Raises:
        StackError: AWS rejects the call, or cannot be reached.
    """
    prefix = f"/{deployment}/"
    listed = paginate(
        region, "ssm", "get_parameters_by_path", "Parameters", Path=prefix, Recursive=True
    )
    return {parameter["Name"][len(prefix) :]: parameter["Value"] for parameter in listed}


def parameter(region: str, deployment: str, name: str) -> str:
    """Return the value of an SSM parameter of a deployment; its name is without the prefix.

    Raises:
        StackError: the parameter does not exist, or the world has no deployment.
    """
    if not deployment:
        raise StackError(
            "this world has no deployment on AWS",
            location="the params file: stack.deployment",
            hint="choose a world that has one: --world aws",
        )
    return require_parameter(parameters(region, deployment), deployment, name)


def require_parameter(
    parameters: dict[str, str],
    deployment: str,
    name: str,
    *,
    hint: str = "",
    error: type[WorkbenchError] = StackError,
) -> str:
    """Return one of the parameters of a deployment.

    Args:
        parameters: {name: value}, all parameters of the deployment.
        deployment: name of the deployment.
        name: name of the parameter.
        hint: the error's hint; by default the commands that list and create the stacks.
        error: the class to raise.

    Raises:
        error: the deployment has no parameter of this name.
    """
    if name not in parameters:
        raise error(
            f"deployment {deployment!r} has no parameter {name!r}",
            location=f"SSM /{deployment}/{name}",
            expected=did_you_mean(name, parameters) if parameters else "a deployment",
            hint=hint or "`deploy/up.sh` creates the stacks and their parameters",
        )
    return parameters[name]


@functools.cache
def secret(region: str, deployment: str, name: str) -> str:
    """Return the password in a secret of a deployment. A process reads it once.

    Raises:
        StackError: AWS rejects the call, or the secret has not the JSON format of RDS.
    """
    secret_id = f"{deployment}/{name}"
    text = call(region, "secretsmanager", "get_secret_value", SecretId=secret_id)["SecretString"]
    try:
        password: str = json.loads(text)["password"]
    except (ValueError, KeyError, TypeError):
        raise StackError(
            "the secret has an unexpected format",
            location=f"Secrets Manager, {secret_id}",
            expected='{"username": "…", "password": "…"}',
        ) from None
    return password
