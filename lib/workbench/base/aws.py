"""Calls of AWS: clients, responses, and errors translated for people.

Credentials come from where AWS's own tools find them (environment, profile, role of the machine).
They are sent nowhere else. The resources of a deployment are found by its name, `stack.deployment`:
its parameters are `/<deployment>/<name>` in the SSM Parameter Store, its secrets
`<deployment>/<name>` in the Secrets Manager (deploy/README.md lists them all).
"""

import contextlib
import functools
import json
import re
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, TypeVar

import yaml

from .errors import StackError, WorkbenchError, did_you_mean
from .wait import wait_until

T = TypeVar("T")

DEPLOYMENT_TAG = "workbench:deployment"  # the tag of all resources of a deployment; its name
# Of a call that is throttled or that a service cannot answer: about 20 s in all, with boto3's own
# back-off.
MAX_ATTEMPTS = 6
LOGIN_HINT = "sign in (`aws sso login`, `aws configure`), or set a profile: export AWS_PROFILE=…"
CATALOG = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
KAFKA_IAM_PROPERTIES = CATALOG["kafka_login"]  # with which a Java client of Kafka logs in to MSK


@functools.cache
def client(region: str, service: str) -> Any:
    """Return the boto3 client of a service; there is one for each region and service."""
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
    """Return the response of an operation.

    Args:
        region: AWS region.
        service: boto3's name of the service, such as `kafkaconnect`.
        operation: boto3's name of the operation, such as `describe_connector`.
        **params: parameters of the operation.

    Raises:
        StackError: AWS refuses it, or cannot be reached (see `error_code`).
    """
    with translate_errors(f"{service}.{operation} in {region}"):
        response: dict[str, Any] = getattr(client(region, service), operation)(**params)
    return response


def paginate(region: str, service: str, operation: str, key: str, /, **params: Any) -> list[Any]:
    """Return all items of an operation that returns a list in pages.

    Args:
        region: AWS region.
        service: boto3's name of the service.
        operation: boto3's name of the operation.
        key: the key of the list in a response.
        **params: parameters of the operation.

    Raises:
        StackError: as of `call`.
    """
    items: list[Any] = []
    with translate_errors(f"{service}.{operation} in {region}"):
        for page in client(region, service).get_paginator(operation).paginate(**params):
            items += page.get(key, [])
    return items


@contextlib.contextmanager
def translate_errors(location: str) -> Iterator[None]:
    """Translate the errors of AWS and of its clients in this block to StackError.

    Args:
        location: the operation, for the error.
    """
    from botocore import exceptions

    try:
        yield
    except exceptions.ClientError as e:
        raise _to_stack_error(e, location) from e
    except (exceptions.BotoCoreError, RuntimeError) as e:
        error = _from_client_side(e, location)
        if error is None:
            raise
        raise error from e


def _from_client_side(error: Exception, location: str) -> Optional[StackError]:
    """Return the error to raise when no request was sent, or no response was received."""
    classes = {cls.__name__ for cls in type(error).__mro__}
    for entry in CATALOG["client_errors"]:
        if classes & set(entry["classes"]) and entry.get("contains", "") in str(error):
            return StackError(
                entry["message"].format(error=error),
                location=location,
                expected=entry.get("expected", "").format(error=error),
                hint=entry["hint"].format(login_hint=LOGIN_HINT),
            )
    return None


def _to_stack_error(error: Any, location: str) -> StackError:
    details = error.response.get("Error", {})
    text = str(details.get("Message", ""))
    code = str(details.get("Code", ""))
    location = f"{location}: {code}"
    if re.search(r"AccessDenied|UnauthorizedOperation|NotAuthorized|^403$|Forbidden", code):
        # "User: arn:… is not authorized to perform: kafka:GetBootstrapBrokers on resource: arn:…
        # because …"
        user = re.search(r"User: (\S+)", text)
        action = re.search(r"perform: (\S+)", text)
        resource = re.search(r"on resource: (\S+)", text)
        message = f"{action[1] if action else error.operation_name} is not allowed"
        if resource:
            message += f" on {resource[1]}"
        hint = f"let a policy of {user[1] if user else 'your role'} allow it"
        return StackError(
            message, location=location, expected=text, hint=f'{hint} (deploy/README.md, "Rights")'
        )
    for pattern, message, hint in CATALOG["errors"]:
        if re.search(pattern, code):
            return StackError(
                message.format(max_attempts=MAX_ATTEMPTS),
                location=location,
                expected=text,
                hint=hint.format(login_hint=LOGIN_HINT),
            )
    return StackError(f"AWS refuses {error.operation_name}: {text or code}", location=location)


def error_code(error: BaseException) -> str:
    """Return AWS's code of an error that `translate_errors` has raised.

    Returns:
        A code such as "NotFoundException"; empty for any other error.
    """
    response = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


@contextlib.contextmanager
def ignore_error_codes(pattern: str) -> Iterator[None]:
    """Ignore AWS errors in this block: one of them ends the block, as in contextlib.suppress.

    Args:
        pattern: regular expression of the codes to ignore.
    """
    try:
        yield
    except StackError as e:
        if not re.search(pattern, error_code(e)):
            raise


def is_transient(error: BaseException) -> bool:
    """Return whether an error that `translate_errors` has raised may soon be over.

    That is so if AWS throttles, or AWS or the network cannot be reached.
    """
    from botocore import exceptions

    if isinstance(error.__cause__, (exceptions.ConnectionError, exceptions.HTTPClientError)):
        return True
    return re.search(CATALOG["transient_codes"], error_code(error)) is not None


def wait(
    condition: Callable[[], Optional[T]],
    description: str,
    *,
    timeout: float,
    interval: float,
    error: type[WorkbenchError] = StackError,
    **options: Any,
) -> T:
    """Poll AWS until the condition returns a true value, and return that value.

    Only transient errors count as "not yet". An expired login or a missing permission is raised at
    once.

    Args:
        condition: called without arguments.
        description: what is waited for.
        timeout: seconds before giving up.
        interval: seconds between two calls.
        error: the class to raise.
        **options: further arguments of `wait_until`.
    """
    return wait_until(
        condition,
        description,
        timeout=timeout,
        interval=interval,
        error=error,
        is_transient=lambda e: not isinstance(e, StackError) or is_transient(e),
        **options,
    )


def parameters(region: str, deployment: str) -> dict[str, str]:
    """Return the SSM parameters of a deployment, by their names without its prefix."""
    prefix = f"/{deployment}/"
    listed = paginate(
        region, "ssm", "get_parameters_by_path", "Parameters", Path=prefix, Recursive=True
    )
    return {parameter["Name"][len(prefix) :]: parameter["Value"] for parameter in listed}


def parameter(region: str, deployment: str, name: str) -> str:
    """Return an SSM parameter of a deployment.

    Raises:
        StackError: it does not exist, or the world has no deployment.
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
    location: str = "",
    hint: str = "",
    error: type[WorkbenchError] = StackError,
) -> str:
    """Return one of the parameters of a deployment.

    Args:
        parameters: the parameters that it has.
        deployment: its name.
        name: name of the parameter.
        location: of the error; by default the parameter's name in SSM.
        hint: of the error; by default to look at the deployment.
        error: the class to raise.

    Raises:
        error: there is no parameter of this name.
    """
    if name not in parameters:
        raise error(
            f"deployment {deployment!r} has no parameter {name!r}",
            location=location or f"SSM /{deployment}/{name}",
            expected=did_you_mean(name, parameters) if parameters else "a deployment",
            hint=hint or "`workbench aws status` lists the stacks; `workbench aws up` creates them",
        )
    return parameters[name]


def secret(region: str, deployment: str, name: str) -> str:
    """Return the password in a secret of a deployment: {"password": …}, the format of RDS.

    Raises:
        StackError: AWS refuses it, or the secret has another format.
    """
    secret_id = f"{deployment}/{name}"
    text = call(region, "secretsmanager", "get_secret_value", SecretId=secret_id)["SecretString"]
    try:
        password: str = json.loads(text)["password"]
    except (ValueError, KeyError, TypeError):
        raise StackError(
            "the secret is not as expected",
            location=f"Secrets Manager, {secret_id}",
            expected='{"username": "…", "password": "…"}',
        ) from None
    return password
