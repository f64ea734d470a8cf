"""Calls of AWS: a client, its answers, and its errors as people are told them.

Credentials come from where AWS's own tools look (environment, profile, role of the machine), and go
nowhere else. What a deployment has made is found by its name, `stack.deployment`: its parameters
are `/<deployment>/<name>` in the SSM Parameter Store, its secrets `<deployment>/<name>` in the
Secrets Manager (deploy/README.md has them all).
"""

import contextlib
import functools
import json
import re
from pathlib import Path
from typing import Any, Callable, Iterator, TypeVar

import yaml

from .errors import StackError, WorkbenchError, did_you_mean
from .wait import wait_until

T = TypeVar("T")

DEPLOYMENT_TAG = "workbench:deployment"  # that all of a deployment bears, its name for a value
# of a call that is throttled, or that a service could not answer: some 20 s in all, by boto3's own
# back-off
MAX_ATTEMPTS = 6
LOGIN_HINT = "sign in (`aws sso login`, `aws configure`), or name a profile: export AWS_PROFILE=…"
CATALOG = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
KAFKA_IAM_PROPERTIES = CATALOG["kafka_login"]  # by which a client of Kafka's in Java logs in to MSK


@functools.cache
def client(region: str, service: str) -> Any:
    """Return boto3's client of a service, one for each."""
    import boto3
    from botocore.config import Config

    with translate_errors(f"{service} in {region}"):
        return boto3.Session().client(
            service,
            region_name=region,
            config=Config(
                retries={"mode": "standard", "total_max_attempts": MAX_ATTEMPTS},
                connect_timeout=10,
                read_timeout=60,
            ),
        )


def call(region: str, service: str, operation: str, /, **given: Any) -> dict[str, Any]:
    """Return what an operation answers. Its name is boto3's, `describe_connector` say.

    Raises: StackError: AWS refuses it, or cannot be reached; see `code` for what it is called
        there.
    """
    with translate_errors(f"{service}.{operation} in {region}"):
        return getattr(client(region, service), operation)(**given)


def paginate(region: str, service: str, operation: str, key: str, /, **given: Any) -> list[Any]:
    """All of a list that AWS gives out in pages; key: what it is called in an answer."""
    with translate_errors(f"{service}.{operation} in {region}"):
        return [
            one
            for page in client(region, service).get_paginator(operation).paginate(**given)
            for one in page.get(key, [])
        ]


@contextlib.contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """What AWS, or a client of it, raises in this block is told as a StackError."""
    from botocore import exceptions as of

    try:
        yield
    except of.ClientError as e:
        raise _to_stack_error(e, where) from e
    except (of.BotoCoreError, RuntimeError) as e:
        kinds = {kind.__name__ for kind in type(e).__mro__}
        told = next(
            (
                of
                for of in CATALOG["unasked"]
                if kinds & {*of["errors"]} and of.get("says", "") in str(e)
            ),
            None,
        )
        if told is None:
            raise
        what, expected, step = (
            told.get(part, "").format(error=e, sign_in=LOGIN_HINT)
            for part in ("what", "expected", "next")
        )
        raise StackError(what, location=where, expected=expected, hint=step) from e


def _to_stack_error(e: Any, where: str) -> StackError:
    found, said = e.response.get("Error", {}), str(e.response.get("Error", {}).get("Message", ""))
    name = str(found.get("Code", ""))
    told = next(
        (
            (what.format(tries=MAX_ATTEMPTS), step.format(sign_in=LOGIN_HINT))
            for pattern, what, step in CATALOG["errors"]
            if re.search(pattern, name)
        ),
        None,
    )
    if re.search(r"AccessDenied|UnauthorizedOperation|NotAuthorized|^403$|Forbidden", name):
        # "User: arn:… is not authorized to perform: kafka:GetBootstrapBrokers on resource: arn:…
        # because …"
        who, action, on = (
            re.search(p, said) for p in (r"User: (\S+)", r"perform: (\S+)", r"on resource: (\S+)")
        )
        what = f"{action[1] if action else e.operation_name} is not allowed" + (
            f" on {on[1]}" if on else ""
        )
        told = (
            what,
            f'let a policy of {who[1] if who else "your role"} allow it (deploy/README.md, "Rights")',
        )
    what, step = told or (f"AWS refuses {e.operation_name}: {said or name}", "")
    return StackError(what, location=f"{where}: {name}", expected=said if told else "", hint=step)


def error_code(error: BaseException) -> str:
    """What AWS calls an error that was raised by `answered`, "NotFoundException" say; "" for any
    other.
    """
    response = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


@contextlib.contextmanager
def ignore_error_codes(pattern: str) -> Iterator[None]:
    """An AWS error whose code matches is fine: it ends this block, as contextlib.suppress does."""
    try:
        yield
    except StackError as e:
        if not re.search(pattern, error_code(e)):
            raise


def is_transient(error: BaseException) -> bool:
    """Whether an error that `answered` raised may be over soon: AWS is asked too often, it or the
    network is away.
    """
    from botocore import exceptions as of

    away = isinstance(error.__cause__, (of.ConnectionError, of.HTTPClientError))
    return away or bool(re.search(CATALOG["passing"], error_code(error)))


def wait(look: Callable[[], T], what: str, *, timeout: float, interval: float, **more: Any) -> T:
    """Ask AWS until it answers something true, and return that. Only errors that pass are waited
    for: a login that has expired meanwhile, or a right that is missing, is raised at once.

    Args: as of wait_until.
    """

    def once() -> Any:
        try:
            return look()
        except StackError as e:
            if is_transient(e):
                raise
            return e

    found = wait_until(
        once, what, timeout=timeout, interval=interval, **{"error": StackError, **more}
    )
    if isinstance(found, StackError):
        raise found
    return found


def parameters(region: str, deployment: str) -> dict[str, str]:
    """The SSM parameters of a deployment, by their names without its own."""
    prefix = f"/{deployment}/"
    found = paginate(
        region, "ssm", "get_parameters_by_path", "Parameters", Path=prefix, Recursive=True
    )
    return {one["Name"][len(prefix) :]: one["Value"] for one in found}


def parameter(region: str, deployment: str, name: str) -> str:
    """One of them. Raises: StackError: there is none of this name; the world has no deployment."""
    if not deployment:
        raise StackError(
            "this world is none of AWS",
            location="the params file: stack.deployment",
            hint="name one that is: --world aws",
        )
    return require_parameter(parameters(region, deployment), deployment, name)


def require_parameter(
    have: dict[str, str],
    deployment: str,
    name: str,
    location: str = "",
    hint: str = "",
    error: type[WorkbenchError] = StackError,
) -> str:
    """One of the parameters that a deployment has. Raises: error: it has none of this name."""
    if name not in have:
        raise error(
            f"deployment {deployment!r} has no parameter {name!r}",
            location=location or f"SSM /{deployment}/{name}",
            expected=did_you_mean(name, have) if have else "a deployment",
            hint=hint
            or "`workbench aws status` shows which stacks there are; `workbench aws up` makes them",
        )
    return have[name]


def secret(region: str, deployment: str, name: str) -> str:
    """The password that a secret of a deployment holds, as {"password": …}, in the form RDS keeps
    its own.
    """
    text = call(region, "secretsmanager", "get_secret_value", SecretId=f"{deployment}/{name}")[
        "SecretString"
    ]
    try:
        return json.loads(text)["password"]
    except (ValueError, KeyError, TypeError):
        raise StackError(
            "the secret is not as expected",
            location=f"Secrets Manager, {deployment}/{name}",
            expected='{"username": "…", "password": "…"}',
        ) from None
