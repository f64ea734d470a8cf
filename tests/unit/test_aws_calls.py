"""Each call of AWS in the library is named in a test file in which botocore compares calls with the service's model.

The words in the files decide: they do not prove that a test makes the call with the library's parameters. botocore's
Stubber compares, the double of test_msk.py, moto's clients, and the clients of the dry runs, whose calls are in
tests/stack/aws_calls.
"""

import re

import botocore.session
import on_aws
import pytest
from botocore import xform_name
from workbench.base import ROOT

pytestmark = pytest.mark.aws

SESSION = botocore.session.get_session()
SOURCES = {
    path: path.read_text(encoding="utf-8")
    for suffix in ("py", "yaml")
    for path in (ROOT / "lib/workbench").rglob(f"*.{suffix}")
}
# Calls that a test makes with moto, without their names: {(service, operation): file}
BY_MOTO = {
    ("sns", "publish"): "unit/test_watch.py",
    ("s3", "get_object"): "stack/test_s3.py",  # of a lock
    ("s3", "put_object"): "stack/test_s3.py",
}


def made(called):
    """Return those of the calls that tests make."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        if re.search(r"stubbed_client\(", text):
            found |= {each for each in called if all(f'"{word}"' in text for word in each)}
        if "ParamValidator" in text:
            found |= {each for each in called if f"def {each[1]}(" in text}
    for path in (ROOT / "tests/stack/aws_calls").glob("*.txt"):
        recorded = re.findall(r"^([\w-]+)\.(\w+)$", path.read_text(encoding="utf-8"), re.M)
        found |= {(service, xform_name(operation)) for service, operation in recorded}
    return found


def test_each_call_is_made_in_a_test():
    named = on_aws.operations(SOURCES.values())
    in_tests = made(set().union(*named))
    assert len(named) > 30
    assert {frozenset([each]) for each in BY_MOTO} == {
        each for each in named if not each & in_tests
    }
    for file in BY_MOTO.values():
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(r"\(account[,)]|s3_help", text), f"no moto in {file}"


def test_aws_is_called_in_no_other_way():
    found = {
        (path.relative_to(ROOT / "lib/workbench").as_posix(), way)
        for path, text in SOURCES.items()
        for way in re.findall(r"boto3\.\w+|\bclient\(", text)
    }
    assert found == {
        ("base/aws.py", "boto3.Session"),
        ("base/aws.py", "client("),
        ("base/files.py", "boto3.Session"),
        ("topic/kafka_iam.py", "boto3.Session"),  # for credentials
        ("query/athena.py", "client("),  # PyAthena's: test_athena.py
    }


PAGES = r'aws\.paginate\(\s*[^,"]+,\s*"([\w-]+)",\s*"(\w+)",\s*"(\w+)"'


@pytest.mark.parametrize("service, operation, key", re.findall(PAGES, "".join(SOURCES.values())))
def test_a_list_that_comes_in_pages_has_the_key_of_its_items(service, operation, key):
    name = "".join(word.title() for word in operation.split("_"))
    assert SESSION.get_paginator_model(service).get_paginator(name)["result_key"] in (key, [key])
