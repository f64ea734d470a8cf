"""Check what a web page can do to the listeners of this machine, with DNS rebinding.

In DNS rebinding the host name of a page resolves to 127.0.0.1. Each listening socket is checked by
its protocol, which is detected at the socket: there is no list of ports.
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
# headers of a page: after rebinding; with a guessed password; and from its own origin to our host,
# as a form sends it
PAGES = [
    FOREIGN_HEADERS,
    {**FOREIGN_HEADERS, "Authorization": "Basic d29ya2JlbmNoOmd1ZXNz"},
    {
        "Origin": "http://page.example",
        "Referer": "http://page.example/page",
        "Content-Type": "text/plain",
    },
    # what moto takes for an unsigned operation, on the bucket in the host name
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
REQUESTS = {  # {path: methods} that list, read files and secrets, write, change or stop something
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
    """Send a message to a listener, and return the first bytes of its response.

    They are empty after a timeout, or if the listener closes the connection.
    """
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=timeout) as s,
    ):
        s.sendall(message)
        return s.recv(size)
    return b""


def certificate_names(port):
    """Return the names in the certificate of a TLS server; None for another server."""
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
    """Return whether a client with the usual CAs accepts the server's certificate for
    page.example."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
            ssl.create_default_context().wrap_socket(plain, server_hostname="page.example").close()
    except ssl.SSLError:
        return False
    return True


def _speaks_spark(port):
    """Return whether a listener is Spark's RPC (TransportServer).

    It responds to a malformed request with a failure of the same number.
    """
    body = struct.pack("!BqI", 3, 7, 1) + b"x"
    return exchange(port, struct.pack("!q", 8 + len(body)) + body)[8:17] == struct.pack("!Bq", 5, 7)


def _speaks_kafka(port):
    """Return whether a listener responds to ApiVersions, version 0, of an unnamed client."""
    return exchange(port, struct.pack("!IhhIh", 10, 18, 0, 7, -1))[4:8] == struct.pack("!I", 7)


GREETINGS = {
    "MariaDB": lambda first: first[4:5] == b"\x0a" and b"MariaDB" in first,
    "ZeroMQ": lambda first: first[:1] == b"\xff" and first[9:10] == b"\x7f",
}
# Binary protocols: a page can only send HTTP, which none of them accepts as a request.
BINARY = {
    "gRPC": lambda port: (
        exchange(port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4" + bytes(5))[3:4] == b"\4"
    ),
    "PostgreSQL": lambda port: exchange(port, struct.pack("!II", 8, 80877103)) in (b"S", b"N"),
    "Kafka": _speaks_kafka,
    "Spark": _speaks_spark,
    "Py4J": lambda port: exchange(port, b"A\nguess\ne\n").startswith(b"!x"),
}
# Listeners that send nothing to an unknown client: {part of their command line: reason}.
SILENT_PROCESSES = {
    "pyspark.daemon": "a Python worker: it sends its process id, and expects the secret of its Java first",
    "io.quarkus.runner.GeneratedMain": "a socket on which no thread of the registry's Java accepts connections",
    "workbench.spark.server": "PySpark's accumulators: they expect the token of their Java first",
}


def detect_protocol(process, port):
    """Return the protocol of a listener.

    Raises:
        AssertionError: this module does not know the protocol.
    """
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
    raise AssertionError(f"unknown protocol at port {port} ({answer[:40]!r}) of {command[:200]}")


def find_accepted_requests(port, secrets_=(), pages=PAGES):
    """Return the requests that an HTTP server did not reject; none if it is safe.

    Args:
        port: port of the server.
        secrets_: texts that no response may contain.
        pages: headers of the pages.

    Returns:
        [(method, path, number of the page, status, text)].
    """
    faults = []
    for path, methods in REQUESTS.items():
        for method, (number, page) in itertools.product(methods, enumerate(pages)):
            try:
                answer = _final_response(method, port, path, page)
            except requests.ConnectionError:  # it closes the connection
                continue
            to_https = answer.is_redirect and answer.headers["Location"].startswith("https://")
            readable = answer.headers.get("Access-Control-Allow-Origin") in (
                "*",
                "null",
                FOREIGN_HEADERS["Origin"],
            )
            told = [text for text in secrets_ if text in answer.text]
            # a browser shows a response of our host to no page of another, unless the response
            # allows it
            unseen = "Host" not in page and method in READ_METHODS
            refused = (
                answer.status_code in REFUSED_STATUSES or to_https and not answer.text or unseen
            )
            if not refused or readable or told:
                faults.append((method, path, number, answer.status_code, answer.text[:120]))
    return faults


def _final_response(method, port, path, page):
    """Send a request over a new connection, and follow redirects to the same server."""
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
    own = f"http://{page.get('Host', f'127.0.0.1:{port}')}"
    target = answer.headers.get("Location", "").removeprefix(own)
    if answer.is_redirect and target.startswith("/"):
        return _final_response("GET", port, target, page)
    return answer


def listening_sockets(processes):
    """Return {port: process} of the listening sockets of these processes."""
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
    """Check all listeners of these processes.

    Args:
        processes: the processes.
        secrets_: texts that no response may contain.
        pages: headers of the pages.

    Returns:
        {port: protocol}, and {port: what a web page can do}, empty if all are safe.

    Raises:
        AssertionError: this module does not know the protocol of a listener.
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
