"""The S3 endpoint of an embedded world: moto's server on loopback, limited to S3.

The server keeps all objects in memory, so the lake is lost when it ends. moto verifies the signatures of the
requests, because the service sets INITIAL_NO_AUTH_ACTION_COUNT. A user with the instance's key and a policy is
created before the first request.
"""

import io
import json
import logging
import re
import sys
import threading
from collections.abc import Iterable
from typing import Any, Callable

from ..base import secrets, split_host_port
from ..base.tls import LOOPBACK_NAMES
from .services import S3_KEY, S3_KEY_ID

# The format of the Authorization header; moto raises an exception for any other format.
SIGNATURE_PATTERN = re.compile(
    r"AWS4-HMAC-SHA256 Credential=[^/,\s]+/\d{8}/[\w-]+/s3/aws4_request, ?SignedHeaders=[^,\s]+, ?"
    "Signature=[0-9a-f]+"
)


def create_application(bucket: str) -> Callable[..., Iterable[bytes]]:
    """Return the WSGI application that serves a new bucket to clients on loopback."""
    from botocore import auth
    from moto.core.authorization import ActionAuthenticatorMixin
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.iam.models import iam_backends
    from moto.moto_server.werkzeug_app import create_backend_app
    from moto.s3.models import s3_backends
    from werkzeug.wsgi import get_input_stream

    # moto computes the signature of boto3; Java's SDK also signs `User-Agent`.
    auth.SIGNED_HEADERS_BLACKLIST.clear()
    # moto skips the signature check where X-Amz-Target names one of these operations.
    ActionAuthenticatorMixin.PUBLIC_OPERATIONS.clear()
    iam = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
    iam.create_user("us-east-1", "lake")
    key = iam.create_access_key("lake")
    key.access_key_id, key.secret_access_key = S3_KEY_ID, secrets.read()[S3_KEY]
    statement = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    iam.put_user_policy("lake", "lake", json.dumps(policy))
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(bucket, "us-east-1")
    moto, write_lock = create_backend_app("s3"), threading.Lock()

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        is_signed = SIGNATURE_PATTERN.fullmatch(environ.get("HTTP_AUTHORIZATION", ""))
        # A web page has an origin, or a host name that resolves to 127.0.0.1 (DNS rebinding). The
        # port may be that of a tunnel.
        host = environ.get("HTTP_HOST", "").partition(":")[0]
        is_foreign = "HTTP_ORIGIN" in environ or host not in LOOPBACK_NAMES
        if is_foreign or not is_signed:
            start_response("403 Forbidden", [])
            return []
        # Use the signed encoding: Java's SDK encodes these characters as in HTML forms.
        query = environ["QUERY_STRING"]
        environ["QUERY_STRING"] = query.replace("+", "%20").replace("*", "%2A").replace("%7E", "~")
        # moto checks the condition and then writes: two concurrent conditional writes would both
        # succeed.
        if not environ.keys() & {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"}:
            return moto(environ, start_response)
        # Read the body first: a client that stops sending would hold the lock for everybody.
        environ["wsgi.input"] = io.BytesIO(get_input_stream(environ).read())
        with write_lock:
            return moto(environ, start_response)

    return app


def main(address: str, bucket: str) -> None:
    """Serve a new bucket at this address until SIGTERM."""
    host, port = split_host_port(address)
    app = create_application(bucket)
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # no line for each request
    server = make_server(host, port, app, threaded=True, request_handler=MotoRequestHandler)
    print(f"S3 on {address}, bucket {bucket}: new and empty", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
