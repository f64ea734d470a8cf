"""What a web page can do to the listeners of this machine when its name resolves to 127.0.0.1 (DNS
rebinding).

Every listening socket is judged by the protocol that it speaks. The socket itself is asked: there
is no list of ports.
"""

import contextlib
import itertools
import socket
import ssl
import struct

import psutil
import requests

FOREIGN_HEADERS = {
    "Host": "page.example",
    "Origin": "http://page.example",
    "Referer": "http://page.example/page",
}
GUESSED_SIGNATURE = (
    "AWS4-HMAC-SHA256 Credential=guess/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, "
    "Signature=0123456789abcdef"
)
# what a page may say of itself: rebound; with a guessed password; and from its own name to ours, as
# a form sends it
PAGES = [
    FOREIGN_HEADERS,
    {**FOREIGN_HEADERS, "Authorization": "Basic d29ya2JlbmNoOmd1ZXNz"},
    {
        "Origin": "http://page.example",
        "Referer": "http://page.example/page",
        "Content-Type": "text/plain",
    },
    # and what moto takes for an operation without a signature, of a bucket that the host names
    {
        **FOREIGN_HEADERS,
        "Authorization": GUESSED_SIGNATURE,
        "X-Amz-Target": "AWSCognitoIdentityService.GetId",
    },
    {
        "Host": "lake.page.example",
        "Authorization": GUESSED_SIGNATURE,
        "X-Amz-Target": "AWSCognitoIdentityService.GetId",
    },
]
READ_METHODS, CHANGE_METHODS = ("GET", "HEAD", "OPTIONS"), ("POST", "PUT", "PATCH", "DELETE")
REQUESTS = {  # {path: methods}: to list, to read files and secrets, to write, to change, to stop
    # Kafka Connect
    "/": (*READ_METHODS, "POST"),
    "/connectors": (*READ_METHODS, "POST"),
    "/connectors?expand=info&expand=status": READ_METHODS,
    "/connectors/canary": ("GET", "DELETE"),
    "/connectors/canary/config": ("GET", "PUT", "PATCH"),
    "/connectors/canary/restart": (*READ_METHODS, "POST"),
    "/connectors/canary/restart?includeTasks=true": ("POST",),
    "/connectors/canary/tasks": READ_METHODS + CHANGE_METHODS,
    "/connectors/canary/tasks/0/restart": ("POST",),
    "/connectors/canary/fence": CHANGE_METHODS,
    "/connectors/canary/stop": ("PUT",),
    "/connectors/canary/pause": ("PUT",),
    "/connectors/canary/offsets": READ_METHODS + CHANGE_METHODS,
    "/admin/loggers": READ_METHODS,
    "/admin/loggers/root": ("PUT",),
    "/connector-plugins": READ_METHODS,
    "/connector-plugins/PostgresConnector/config/validate": ("OPTIONS", "PUT"),
    "/application.wadl": ("GET",),
    "/health": READ_METHODS,
    # the registry
    "/apis/registry/v2/search/artifacts": READ_METHODS,
    "/apis/registry/v2/groups/default/artifacts": ("POST", "DELETE"),
    "/apis/ccompat/v7/subjects": READ_METHODS,
    "/q/health": ("GET",),
    # the storefront
    "/metrics": READ_METHODS,
    "/faults": ("POST",),
    "/customers": READ_METHODS + CHANGE_METHODS,
    "/customers/1": READ_METHODS + CHANGE_METHODS,
    "/orders": CHANGE_METHODS,
    # S3
    "/lake": READ_METHODS + CHANGE_METHODS,
    "/lake?list-type=2": READ_METHODS,
    "/lake/stolen": CHANGE_METHODS,
    "/moto-api/": READ_METHODS,
    "/moto-api/reset": ("POST",),
    "/moto-api/data.json": ("GET",),
    # Spark
    "/json/": READ_METHODS,
    "/json/clusterinfo": READ_METHODS,
    "/metrics/json": READ_METHODS,
    "/metrics/prometheus": READ_METHODS,
    "/environment": READ_METHODS,
    "/app/kill/?id=app&terminate=true": ("POST",),
    "/driver/kill/": ("POST",),
    "/workers/kill/": ("POST",),
    "/logPage/": READ_METHODS,
    "/log?appId=x&executorId=0&logType=stderr": READ_METHODS,
    "/api/v1/applications": READ_METHODS,
    "/v1/submissions/create": ("POST",),
    # JupyterLab
    "/api": READ_METHODS,
    "/api/contents": READ_METHODS + CHANGE_METHODS,
    "/api/kernels": READ_METHODS + CHANGE_METHODS,
    "/api/sessions": READ_METHODS,
    "/lab": READ_METHODS,
    "/api/terminals": ("GET", "POST"),
    "/files/README.md": READ_METHODS,
    "/login": READ_METHODS,
    "/api/shutdown": ("POST",),
}
REFUSED_STATUSES = (400, 401, 403, 404, 405, 415, 501)


def exchange(port, message=b"", timeout=5.0, size=4096):
    """The first bytes that a listener sends after a message; empty where it sends none in time, or
    hangs up."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=timeout) as s,
    ):
        s.sendall(message)
        return s.recv(size)
    return b""


def certificate_names(port):
    """The names in the certificate of a server that speaks TLS; None where it does not."""
    from cryptography import x509

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=5) as plain,
            context.wrap_socket(plain) as s,
        ):
            der = s.getpeercert(binary_form=True)
    except OSError:
        return None
    names = (
        x509.load_der_x509_certificate(der)
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )
    return {str(name.value) for name in names}


def is_trusted(port):
    """Whether a client that knows the usual issuers takes the server's certificate for
    page.example."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
            ssl.create_default_context().wrap_socket(plain, server_hostname="page.example").close()
    except ssl.SSLError:
        return False
    return True


def _speaks_spark(port):
    """Spark's RPC (TransportServer): a request that it cannot read is answered by a failure of the
    same number."""
    body = struct.pack("!BqI", 3, 7, 1) + b"x"
    return exchange(port, struct.pack("!q", 8 + len(body)) + body)[8:17] == struct.pack("!Bq", 5, 7)


def _speaks_kafka(port):
    """ApiVersions, version 0, of a client without a name."""
    return exchange(port, struct.pack("!IhhIh", 10, 18, 0, 7, -1))[4:8] == struct.pack("!I", 7)


GREETINGS = {
    "MariaDB": lambda first: first[4:5] == b"\x0a" and b"MariaDB" in first,
    "ZeroMQ": lambda first: first[:1] == b"\xff" and first[9:10] == b"\x7f",
}
# Of the protocols of bytes: a page can send them only HTTP, which none of them takes for a request
# of its own.
BINARY = {
    "gRPC": lambda port: (
        exchange(port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4" + bytes(5))[3:4] == b"\4"
    ),
    "PostgreSQL": lambda port: exchange(port, struct.pack("!II", 8, 80877103)) in (b"S", b"N"),
    "Kafka": _speaks_kafka,
    "Spark": _speaks_spark,
    "Py4J": lambda port: exchange(port, b"A\nguess\ne\n").startswith(b"!x"),
}
# Those that say nothing to a stranger, by a part of their process's command line.
SILENT_PROCESSES = {
    "pyspark.daemon": "a Python worker: it says its process id, and wants the secret of its Java first",
    "io.quarkus.runner.GeneratedMain": "a socket on which no thread of the registry's Java accepts anything",
    "workbench.spark.server": "PySpark's accumulators: they want the token of their Java first",
}


def detect_protocol(process, port):
    """The protocol that a listener speaks. AssertionError where it is none that this module can
    judge."""
    answer = exchange(port, b"GET / HTTP/1.1\r\nHost: page.example\r\nConnection: close\r\n\r\n")
    for name, greets in GREETINGS.items():
        if greets(answer):
            return name
    if answer.startswith(b"HTTP/"):
        return "HTTP"
    if certificate_names(port):
        return "HTTPS"
    command = " ".join(process.cmdline())
    silent = next((part for part in SILENT_PROCESSES if part in command), None)
    if silent and len(answer) <= 4:
        return silent
    for name, speaks in BINARY.items():
        if speaks(port):
            return name
    raise AssertionError(
        f"nobody knows how to judge port {port} ({answer[:40]!r}) of {command[:200]}"
    )


def find_accepted_requests(port, secrets_=(), pages=PAGES):
    """What a server of HTTP did not refuse: [(method, path, page, status, text)], empty where it is
    safe.

    Args:
        secrets_: texts that no answer may hold.
    """
    faults = []
    for path, methods in REQUESTS.items():
        for method, (number, page) in itertools.product(methods, enumerate(pages)):
            try:
                answer = _final_response(method, port, path, page)
            except requests.ConnectionError:  # it hangs up
                continue
            to_https = answer.is_redirect and answer.headers["Location"].startswith("https://")
            readable = answer.headers.get("Access-Control-Allow-Origin") in (
                "*",
                "null",
                FOREIGN_HEADERS["Origin"],
            )
            told = [text for text in secrets_ if text in answer.text]
            # what comes from our own name a browser shows to no page of another, unless the answer
            # allows it
            unseen = "Host" not in page and method in READ_METHODS
            refused = (
                answer.status_code in REFUSED_STATUSES or to_https and not answer.text or unseen
            )
            if not refused or readable or told:
                faults.append((method, path, number, answer.status_code, answer.text[:120]))
    return faults


def _final_response(method, port, path, page):
    """What a server answers in the end, over a connection of its own: redirects to itself are
    followed."""
    headers = page if method in READ_METHODS else {"Content-Type": "application/json", **page}
    body = None if method in READ_METHODS else "[]"
    answer = requests.request(
        method,
        f"http://127.0.0.1:{port}{path}",
        headers=headers,
        timeout=60,
        data=body,
        allow_redirects=False,
    )
    if answer.is_redirect and answer.headers["Location"].startswith("/"):
        return _final_response("GET", port, answer.headers["Location"], page)
    return answer


def listening_sockets(processes):
    """{port: process} of the listening sockets of these processes."""
    found = {}
    for p in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.update(
                {
                    c.laddr.port: p
                    for c in p.net_connections("inet")
                    if c.status == psutil.CONN_LISTEN
                }
            )
    return found


def check_listeners(processes, secrets_=(), pages=PAGES):
    """Judge every listener of these processes: ({port: protocol}, {port: what a web page gets}).

    Raises:
        AssertionError: a listener speaks a protocol that this module does not know.
    """
    spoken, faults = {}, {}
    for port, process in sorted(listening_sockets(processes).items()):
        try:
            spoken[port] = detect_protocol(process, port)
        except psutil.NoSuchProcess:  # a Python worker that has ended
            continue
        if spoken[port] == "HTTP":
            faults[port] = find_accepted_requests(port, secrets_, pages)
        elif spoken[port] == "HTTPS":
            faults[port] = sorted(certificate_names(port) - {"127.0.0.1", "localhost"}) + [
                "trusted"
            ] * is_trusted(port)
    return spoken, {port: found for port, found in faults.items() if found}
