"""Each call of AWS in the library, as it stands in the code, against botocore's own model of the
service: the operation exists, takes each parameter, is given each that it requires, and has pages
    where pages are asked for. And each of them
is made in some test."""

import ast
import functools
import re
from pathlib import Path
from typing import NamedTuple

import botocore.session
import on_aws
import pytest
from botocore import xform_name
from workbench.base import ROOT
from workbench.stack import remote

pytestmark = pytest.mark.aws

LIB, TESTS = ROOT / "lib" / "workbench", ROOT / "tests"
SESSION = botocore.session.get_session()
# What goes into a call as **name where the function itself does not say what is in it: {(file,
# name): parameters}
STARRED = {
    ("connect/msk.py", "request"): {
        "connectorName",
        "connectorConfiguration",
        "capacity",
        "kafkaCluster",
        "plugins",
        "kafkaClusterClientAuthentication",
        "kafkaClusterEncryptionInTransit",
        "tags",
        "kafkaConnectVersion",
        "logDelivery",
        "serviceExecutionRoleArn",
        "workerConfiguration",
    },  # of _create_request; as a whole in test_msk.py
    ("run/emr_jobs.py", "ids"): {"applicationId", "jobRunId"},  # self.ids
}
ADDED = {"update_connector": {"currentVersion"}}  # by operate, to what it passes on


def looks():
    """What `stack.up` asks of a world on AWS (stack/remote.py, probe), as it is made for one."""
    asked = (
        remote.api_request(on_aws.world(), name) for name in remote.service_names(on_aws.world())
    )
    return [(service, operation, set(given)) for service, operation, given in filter(None, asked)]


# Calls whose operation is no literal: {(file, function): what it may be}
ELSEWHERE = {
    ("stack/remote.py", "_probe_api"): looks(),
}


class Call(NamedTuple):
    """A call as it stands in the code. key: of a list that comes in pages, "" of a single
    answer."""

    where: str
    service: str
    operation: str
    given: frozenset
    key: str = ""
    values: tuple = ()  # (parameter, what stands there)


class Wrapper(NamedTuple):
    """A function of the library that asks AWS what it is told; at: the place of the operation among
    its arguments."""

    at: int
    service: str
    given: frozenset


# ---- what the code says


def texts(node):
    """The texts that an expression may be; nothing where that does not stand there."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    return texts(node.body) + texts(node.orelse) if isinstance(node, ast.IfExp) else []


def keys(node):
    """The keys of what goes in as **: of a dict that stands there, of either where there are
    two."""
    if isinstance(node, ast.Dict):
        return {text for key in node.keys for text in texts(key)}
    return keys(node.body) | keys(node.orelse) if isinstance(node, ast.IfExp) else set()


def given(call, function, file):
    """The parameters of a call: by name, and by ** of a dict that the function itself makes or
    STARRED knows."""
    found = {one.arg for one in call.keywords if one.arg}
    own = {function.args.kwarg.arg} if function and function.args.kwarg else set()
    for one in (one.value for one in call.keywords if one.arg is None):
        name = getattr(one, "id", getattr(one, "attr", ""))
        made = keys(one)
        for node in ast.walk(function) if name else ():
            if isinstance(node, ast.Assign):
                pairs = [
                    (t, v)
                    for target in node.targets
                    for t, v in (
                        zip(target.elts, node.value.elts)
                        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                        else [(target, node.value)]
                    )
                ]
                made |= {
                    key for t, value in pairs if getattr(t, "id", "") == name for key in keys(value)
                }
        made |= STARRED.get((file, name), set())
        assert made or name in own, (
            f"{file}:{call.lineno}: what is in **{ast.unparse(one)}? (STARRED)"
        )
        found |= made
    return frozenset(found)


@functools.cache
def modules():
    """{file: what is in it}"""
    return {
        str(path.relative_to(LIB)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(LIB.rglob("*.py"))
    }


@functools.cache
def within(file):
    """(call, the innermost function that it stands in) of all calls; a lambda is no function."""

    def walk(node, function):
        for child in ast.iter_child_nodes(node):
            inner = child if isinstance(child, ast.FunctionDef) else function
            if isinstance(child, ast.Call):
                yield child, function
            yield from walk(child, inner)

    return list(walk(modules()[file], None))


def asks(call, file):
    """(the place of the service among the arguments, whether pages are asked for) of a call of
    `aws`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if isinstance(call.func, ast.Attribute):
        of = getattr(call.func.value, "id", "")
    else:
        of = "aws" if file == "base/aws.py" else ""
    return (1, name == "paginate") if name in ("call", "paginate") and of == "aws" else None


def parameters(function):
    return [
        one.arg for one in (*function.args.posonlyargs, *function.args.args) if one.arg != "self"
    ]


def wrappers():
    """{(file, function): Wrapper}, of functions that pass on the operation that they were told;
    also to such a one."""
    found = {}
    for _ in range(2):
        for file in modules():
            for call, function in within(file):
                asked, known = asks(call, file), wrapper_of(call, file, found)
                if not function or not (asked or known) or (file == "base/aws.py"):
                    continue
                at = asked[0] + 1 if asked else known.at
                service = (
                    texts(call.args[at - 1])[0]
                    if asked and texts(call.args[at - 1])
                    else known and known.service
                )
                operation = getattr(call.args[at], "id", "")
                if service and operation in parameters(function):
                    more = given(call, function, file) | (known.given if known else frozenset())
                    found[file, function.name] = Wrapper(
                        parameters(function).index(operation), service, more
                    )
    return found


@functools.cache
def imported(file):
    """{name: the file that it comes from}, of what a file has from its neighbours."""
    return {
        one.name: f"{Path(file).parent}/{node.module}.py"
        for node in ast.walk(modules()[file])
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for one in node.names
    }


def wrapper_of(call, file, found):
    """The Wrapper that is called: one of the same file, or one that was imported from a
    neighbour."""
    of, name = getattr(call.func, "value", None), getattr(call.func, "attr", "")
    name = name if getattr(of, "id", "") == "self" else getattr(call.func, "id", "")
    return found.get((imported(file).get(name, file), name))


@functools.cache
def calls():
    """All calls of AWS in the library. Raises AssertionError for one that cannot be made out."""
    told, found, used = wrappers(), [], set()
    for file in modules():
        for call, function in within(file):
            where = f"{file}:{call.lineno}"
            asked, known = asks(call, file), wrapper_of(call, file, told)
            if not (asked or known):
                continue
            at = asked[0] + 1 if asked else known.at
            services = texts(call.args[at - 1]) if asked else [known.service]
            operations, place = texts(call.args[at]), (file, function.name)
            if not operations or not services:
                assert place in told or place in ELSEWHERE, (
                    f"{where}: what is asked? (ELSEWHERE) {ast.unparse(call)}"
                )
                used.add(place)
                found += [
                    Call(where, *one[:2], frozenset(one[2]), *one[3:])
                    for one in ELSEWHERE.get(place, ())
                ]
                continue
            parameters_given = given(call, function, file) | (known.given if known else frozenset())
            values = tuple((one.arg, one.value) for one in call.keywords if one.arg)
            key = texts(call.args[at + 1])[0] if asked and asked[1] else ""
            found += [
                Call(where, services[0], one, parameters_given | ADDED.get(one, set()), key, values)
                for one in operations
            ]
    assert ELSEWHERE.keys() <= used, "of a function that asks nothing"
    return found


# ---- what AWS says


@functools.cache
def service(name):
    """botocore's model of a service, and the names of its operations by boto3's."""
    found = SESSION.get_service_model(name)
    return found, {xform_name(operation): operation for operation in found.operation_names}


def requires(shape):
    """What has to be given; a token that makes a call safe to repeat is botocore's own to make."""
    return {
        name
        for name in shape.required_members
        if not shape.members[name].metadata.get("idempotencyToken")
    }


def unknown(shape, node, path):
    """Keys of dicts that stand in the code which AWS's shape has not."""
    if isinstance(node, ast.Dict) and shape.type_name == "structure":
        for key, value in zip(node.keys, node.values):
            for text in texts(key) if key else ():
                if text not in shape.members:
                    yield f"{path}.{text}"
                else:
                    yield from unknown(shape.members[text], value, f"{path}.{text}")
    elif isinstance(node, ast.List) and shape.type_name == "list":
        for value in node.elts:
            yield from unknown(shape.member, value, f"{path}[]")


def names(of):
    return f"{of.where} {of.service}.{of.operation}"


def test_all_calls_are_found():
    """So many at least, and of each of these services: else it is not the code that is read
    here."""
    assert len(calls()) > 30
    assert {one.service for one in calls()} == {
        "athena",
        "cloudwatch",
        "emr",
        "emr-serverless",
        "glue",
        "kafkaconnect",
        "s3",
        "secretsmanager",
        "sns",
        "ssm",
        "sts",
    }
    by = {
        (str(path.relative_to(LIB)), found)
        for path in LIB.rglob("*.py")
        for found in re.findall(r"boto3\.\w+|\bclient\(", path.read_text(encoding="utf-8"))
    }
    assert by == {
        ("base/aws.py", "boto3.Session"),
        ("base/aws.py", "client("),
        ("base/files.py", "boto3.Session"),
        ("topic/kafka_iam.py", "boto3.Session"),  # for credentials
        ("query/athena.py", "client("),  # PyAthena's: test_athena.py
    }, "asked of AWS by another way"


@pytest.mark.parametrize("one", calls(), ids=names)
def test_a_call_is_one_that_aws_takes(one):
    model, operations = service(one.service)
    assert one.operation in operations, f"{one.service} has no {one.operation}"
    operation = model.operation_model(operations[one.operation])
    shape = operation.input_shape
    has = set(shape.members) if shape else set()
    assert set(one.given) - {"PaginationConfig"} <= has, "parameters that it does not take"
    assert (requires(shape) if shape else set()) <= set(one.given), "parameters that it requires"
    assert not [
        text
        for name, value in one.values
        if name in has
        for text in unknown(shape.members[name], value, name)
    ]
    assert one.key or "PaginationConfig" not in one.given
    if one.key:
        pages = SESSION.get_paginator_model(one.service).get_paginator(operation.name)
        keys_of = (
            pages["result_key"] if isinstance(pages["result_key"], list) else [pages["result_key"]]
        )
        assert one.key in keys_of and one.key in operation.output_shape.members


# ---- and in which test each of them is made

# By moto, or by moto's server, without a word of the operation's name in the test: {(service,
# operation): its file}
BY_MOTO = {
    ("sns", "publish"): "unit/test_watch.py",
    ("s3", "get_object"): "stack/test_s3.py",  # of a lock
    ("s3", "put_object"): "stack/test_s3.py",
}

IN_MEMORY = {
    ("kafkaconnect", "resume_connector"),
    ("cloudwatch", "get_metric_statistics"),
}  # test_msk


@functools.cache
def made():
    """{(service, operation)} of what is stubbed in tests, and what the dry runs have asked
    (tests/stack/aws_calls)."""
    found = set()
    for path in TESTS.rglob("test_*.py"):
        words = {
            node.value
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        stubbed = (
            words & {one.service for one in calls()}
            if "stubbed_client(" in path.read_text(encoding="utf-8")
            else set()
        )
        found |= {(name, word) for name in stubbed for word in words if path != Path(__file__)}
    for path in (TESTS / "stack/aws_calls").glob("*.txt"):
        found |= {
            (name, xform_name(operation))
            for name, operation in re.findall(
                r"^([\w-]+)\.(\w+)$", path.read_text(encoding="utf-8"), re.M
            )
        }
    return found


def test_each_call_is_made_in_some_test():
    asked = {(one.service, one.operation) for one in calls()}
    assert asked - made() - BY_MOTO.keys() == IN_MEMORY
    assert BY_MOTO.keys() <= asked - made()
    for file in BY_MOTO.values():
        assert re.search(r"\(account[,)]|s3_help", (TESTS / file).read_text(encoding="utf-8")), (
            f"no moto in {file}"
        )
