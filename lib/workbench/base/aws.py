"""AWS API calls: clients, paginated responses, translated errors, parameters and secrets.

boto3 finds the credentials (environment, profile, role of the machine), and sends them to AWS only.
The setting `stack.deployment` names the deployment of a world. Its parameters are
`/<deployment>/<name>` in the SSM Parameter Store. Its secrets are `<deployment>/<name>` in the
Secrets Manager. deploy/README.md lists all of them.
"""

import contextlib
import json
import re
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, TypeVar

from . import environment, yaml_files
from .errors import StackError, WorkbenchError, did_you_mean
from .wait import wait_until

T = TypeVar("T")

# All resources of a deployment have this tag; its value is the name of the deployment.
DEPLOYMENT_TAG = "workbench:deployment"
# Attempts of a call while AWS throttles the call or a service fails. With boto3's backoff all
# attempts take about 20 s.
MAX_ATTEMPTS = 6
LOGIN_HINT = "sign in (`aws sso login`, `aws configure`), or set a profile: export AWS_PROFILE=…"
CATALOG = yaml_files.load(Path(__file__).with_suffix(".yaml"))
KAFKA_IAM_PROPERTIES = CATALOG["kafka_login"]  # properties of a Java Kafka client for MSK with IAM


def client(region: str, service: str) -> Any:
    """Return the boto3 client of a service. The active world's state keeps it.

    Args:
        region: AWS region.
        service: boto3's name of the service, such as `kafkaconnect`.

    Raises:
        StackError: there are no credentials, or there is no such region.
    """
    return environment.active_state().get(
        (client, region, service), lambda: _create_client(region, service), lambda c: c.close()
    )


def _create_client(region: str, service: str) -> Any:
    import boto3
    from botocore.config import Config

    config = Config(
        retries={"mode": "standard", "total_max_attempts": MAX_ATTEMPTS},
        connect_timeout=10,
        read_timeout=60,
    )
    with translate_errors(f"{service} in {region}"):
        return boto3.Session().client(service, region_name=region, config=config)


@contextlib.contextmanager
def _calling(region: str, service: str, operation: str) -> Iterator[Any]:
    """Yield the client of a service; one whose login fails is not used again, because it keeps its login."""
    try:
        with translate_errors(f"{service}.{operation} in {region}"):
            yield client(region, service)
    except StackError as e:
        if LOGIN_HINT in e.hint:
            environment.active_state().forget((client, region, service))
        raise


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
    with _calling(region, service, operation) as caller:
        response: dict[str, Any] = getattr(caller, operation)(**params)
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
    items: list[Any] = []
    with _calling(region, service, operation) as caller:
        for page in caller.get_paginator(operation).paginate(**params):
            items += page.get(key, [])
    return items


@contextlib.contextmanager
def translate_errors(location: str) -> Iterator[None]:
    """Translate the errors that boto3 raises in this block to StackError.

    Args:
        location: the operation, shown in the error.

    Raises:
        StackError: an error response of AWS, or a client error in the catalog. Any other exception
            is raised unchanged.
    """
    from botocore import exceptions

    try:
        yield
    except exceptions.ClientError as e:
        raise _translate_error_response(e, location) from e
    except (exceptions.BotoCoreError, RuntimeError) as e:
        error = _translate_client_error(e, location)
        if error is None:
            raise
        raise error from e


def _translate_client_error(error: Exception, location: str) -> Optional[StackError]:
    """Return the StackError for a call without a response; None if the catalog has no entry."""
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


def _translate_error_response(error: Any, location: str) -> StackError:
    """Return the StackError for an error response of AWS (botocore's ClientError)."""
    details = error.response.get("Error", {})
    text = str(details.get("Message", ""))
    code = str(details.get("Code", ""))
    location = f"{location}: {code}"
    if re.search(r"AccessDenied|UnauthorizedOperation|NotAuthorized|^403$|Forbidden", code):
        # The text: "User: arn:… is not authorized to perform: kafka:GetBootstrapBrokers on resource: arn:…
        # because …"
        user = re.search(r"User: (\S+)", text)
        action = re.search(r"perform: (\S+)", text)
        resource = re.search(r"on resource: (\S+)", text)
        message = f"{action[1] if action else error.operation_name} is not allowed"
        if resource:
            message += f" on {resource[1]}"
        hint = f"allow it in a policy of {user[1] if user else 'your role'}"
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
    return StackError(f"AWS rejects {error.operation_name}: {text or code}", location=location)


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
        description: completes "waited 60 s for …" in the error.
        timeout: seconds before giving up.
        interval: seconds between two calls.
        error: the class to raise.
        **options: further arguments of `wait_until`.

    Raises:
        error: after `timeout`, or at once for an error that is not transient.
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
    """Return the SSM parameters of a deployment: {name without the prefix: value}.

    Args:
        region: AWS region.
        deployment: name of the deployment.

    Raises:
        StackError: AWS rejects the call, or cannot be reached.
    """
    prefix = f"/{deployment}/"
    listed = paginate(
        region, "ssm", "get_parameters_by_path", "Parameters", Path=prefix, Recursive=True
    )
    return {parameter["Name"][len(prefix) :]: parameter["Value"] for parameter in listed}


def parameter(region: str, deployment: str, name: str) -> str:
    """Return the value of an SSM parameter of a deployment.

    Args:
        region: AWS region.
        deployment: name of the deployment.
        name: name of the parameter, without the prefix.

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
    location: str = "",
    hint: str = "",
    error: type[WorkbenchError] = StackError,
) -> str:
    """Return one of the parameters of a deployment.

    Args:
        parameters: {name: value}, all parameters of the deployment.
        deployment: name of the deployment.
        name: name of the parameter.
        location: the error's location; by default the SSM name of the parameter.
        hint: the error's hint; by default the commands that list and create the stacks.
        error: the class to raise.

    Raises:
        error: the deployment has no parameter of this name.
    """
    if name not in parameters:
        raise error(
            f"deployment {deployment!r} has no parameter {name!r}",
            location=location or f"SSM /{deployment}/{name}",
            expected=did_you_mean(name, parameters) if parameters else "a deployment",
            hint=hint or "`deploy/up.sh` creates the stacks and their parameters",
        )
    return parameters[name]


def secret(region: str, deployment: str, name: str) -> str:
    """Return the password in a secret of a deployment. The secret has the JSON format of RDS.

    Args:
        region: AWS region.
        deployment: name of the deployment.
        name: name of the secret, without the prefix.

    Raises:
        StackError: AWS rejects the call, or the secret has another format.
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
