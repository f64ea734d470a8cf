"""The S3 endpoint of an embedded world: moto's server, of S3 alone, on loopback, asking for the
instance's key.

It holds all in memory: when it ends, the lake is gone. moto itself judges the signatures of the
requests (its option INITIAL_NO_AUTH_ACTION_COUNT); a user with a key and a policy is made before
the first of them.
"""

import contextlib
import ipaddress
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterable
from typing import Callable

from ..base import secrets, split_host_port
from .services import S3_KEY, S3_KEY_ID

# the form of a signature; moto fails on any other
SIGNATURE_PATTERN = re.compile(
    r"AWS4-HMAC-SHA256 Credential=[^/,\s]+/\d{8}/[\w-]+/s3/aws4_request, ?SignedHeaders=[^,\s]+, ?"
    "Signature=[0-9a-f]+"
)


def is_loopback(host: str) -> bool:
    """Whether a Host header names loopback by address or as localhost, with any port (a tunnel has
    another one). A web page of another name that resolves to 127.0.0.1 (DNS rebinding) has that
    name here.
    """
    name = host.partition(":")[0]
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def create_application(name: str) -> Callable[..., Iterable[bytes]]:
    """Return the WSGI application that serves a new bucket of this name, to clients that call it by
    a loopback name.
    """
    os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "0"  # before moto is imported
    from botocore import auth
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.core.authorization import ActionAuthenticatorMixin
    from moto.iam.models import iam_backends
    from moto.moto_server.werkzeug_app import create_backend_app
    from moto.s3.models import s3_backends

    # moto signs a request again as boto3 would have, and Java's SDK signs `User-Agent` as well
    auth.SIGNED_HEADERS_BLACKLIST[:] = []
    ActionAuthenticatorMixin.PUBLIC_OPERATIONS[
        :
    ] = []  # moto checks no signature where X-Amz-Target names one of them
    iam = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
    iam.create_user("us-east-1", "lake")
    key = iam.create_access_key("lake")
    key.access_key_id, key.secret_access_key = S3_KEY_ID, secrets.read()[S3_KEY]
    iam.put_user_policy(
        "lake",
        "lake",
        json.dumps(
            {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}],
            }
        ),
    )
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(name, "us-east-1")
    moto, one = create_backend_app("s3"), threading.Lock()

    def app(asked, answer):  # type: ignore[no-untyped-def]
        signed = SIGNATURE_PATTERN.fullmatch(asked.get("HTTP_AUTHORIZATION", ""))
        foreign = {
            "HTTP_ORIGIN",
            "HTTP_X_AMZ_TARGET",
        } & asked.keys()  # a web page's, and another service's than S3
        if not is_loopback(asked.get("HTTP_HOST", "")) or foreign or not signed:
            answer("403 Forbidden", [])
            return []
        # as it is signed; Java's SDK sends a blank, and two more, as forms do
        asked["QUERY_STRING"] = (
            asked["QUERY_STRING"].replace("+", "%20").replace("*", "%2A").replace("%7E", "~")
        )
        # moto looks first and writes then: of two conditional writes at once both would win
        conditional = {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"} & asked.keys()
        with one if conditional else contextlib.nullcontext():
            return moto(asked, answer)

    return app


def main(address: str, name: str) -> None:
    """Serve a new bucket of this name until TERM."""
    host, port = split_host_port(address)
    app = create_application(name)
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # else a line for each request
    server = make_server(host, port, app, threaded=True, request_handler=MotoRequestHandler)
    print(f"S3 on {address}, bucket {name}: new and empty", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
