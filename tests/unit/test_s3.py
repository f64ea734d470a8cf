"""The S3 endpoint of an embedded world, without a server: which requests it accepts."""

import pytest
import web_page
from botocore import auth
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from workbench.base import secrets
from workbench.stack import s3, services

PORT = 21_000
OWN = f"127.0.0.1:{PORT}"
UNSIGNED = {"Authorization": web_page.GUESSED_SIGNATURE}
REQUESTS = [
    ("GET", "/"),
    ("GET", "/lake"),
    ("GET", "/lake?list-type=2"),
    ("HEAD", "/lake"),
    ("PUT", "/lake"),
    ("DELETE", "/lake"),
    ("POST", "/lake?delete"),
    ("GET", "/lake?acl"),
    ("PUT", "/lake?policy"),
    ("GET", "/lake/a.txt"),
    ("HEAD", "/lake/a.txt"),
    ("PUT", "/lake/a.txt"),
    ("DELETE", "/lake/a.txt"),
    ("POST", "/lake/a.txt?uploads"),
    ("GET", "/moto-api/data.json"),
]
TARGETS = [
    "AWSCognitoIdentityService.GetId",
    "AWSCognitoIdentityProviderService.SignUp",
]


@pytest.fixture
def ask(monkeypatch):
    """Send requests to the endpoint, whose bucket contains a.txt; return status and body."""
    from moto import settings
    from moto.core.authorization import ActionAuthenticatorMixin
    from moto.core.base_backend import BackendDict
    from werkzeug.test import Client

    monkeypatch.setenv("INITIAL_NO_AUTH_ACTION_COUNT", "0")
    monkeypatch.setattr(
        settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0
    )  # moto may have been imported before
    monkeypatch.setattr(auth, "SIGNED_HEADERS_BLACKLIST", [*auth.SIGNED_HEADERS_BLACKLIST])
    monkeypatch.setattr(
        ActionAuthenticatorMixin, "PUBLIC_OPERATIONS", [*ActionAuthenticatorMixin.PUBLIC_OPERATIONS]
    )
    monkeypatch.setattr(secrets, "read", lambda: {services.S3_KEY: "the key"})
    BackendDict.reset()
    client = Client(s3.create_application("lake"))

    def call(method, path, headers, body=b""):
        answer = client.open(path, method=method, data=body, headers={"Host": OWN, **headers})
        return answer.status_code, answer.get_data()

    assert (
        call(
            "PUT", "/lake/a.txt", signed("PUT", "/lake/a.txt", body=b"of the lake"), b"of the lake"
        )[0]
        == 200
    )
    yield call
    BackendDict.reset()


def signed(method, path, key="the key", body=b"", **headers):
    request = AWSRequest(method, f"http://{OWN}{path}", data=body, headers=headers)
    S3SigV4Auth(Credentials(services.S3_KEY_ID, key), "s3", "us-east-1").add_auth(request)
    return dict(request.headers)


def test_a_request_that_is_signed_with_the_key_is_answered(ask):
    assert ask("GET", "/lake/a.txt", signed("GET", "/lake/a.txt")) == (200, b"of the lake")
    assert ask("GET", "/lake/a.txt", signed("GET", "/lake/a.txt", key="another"))[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "AWS4-HMAC-SHA256 x"},
        UNSIGNED,
        *({**UNSIGNED, "X-Amz-Target": target} for target in TARGETS),
        {"Authorization": "x", "X-Amz-Target": TARGETS[0]},
        {**UNSIGNED, "X-Amz-Target": TARGETS[0], "Host": f"lake.127.0.0.1:{PORT}"},
        {**UNSIGNED, "X-Amz-Target": TARGETS[0], "Origin": "http://evil.example"},
    ],
)
def test_a_request_without_a_signature_gets_nothing(ask, headers):
    answers = {
        (method, path): ask(method, path, headers, b"x" if method in ("PUT", "POST") else b"")
        for method, path in REQUESTS
    }
    told = {
        request: (status, body)
        for request, (status, body) in answers.items()
        if not 400 <= status < 500 or b"of the lake" in body
    }
    assert told == {}
    assert ask("GET", "/lake/a.txt", signed("GET", "/lake/a.txt")) == (200, b"of the lake")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "lake.evil.example"},
        {"Origin": "http://evil.example"},
        {"Host": "127.0.0.1.evil.example"},
    ],
)
def test_a_signed_request_of_a_foreign_page_is_refused(ask, headers):
    assert ask("GET", "/lake/a.txt", {**signed("GET", "/lake/a.txt"), **headers})[0] == 403


def test_moto_itself_checks_every_signature(ask):
    """Not only the application before moto: a target does not skip the check."""
    from moto.core.authorization import ActionAuthenticatorMixin

    assert ActionAuthenticatorMixin.PUBLIC_OPERATIONS == []
