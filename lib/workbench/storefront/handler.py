"""The HTTP interface of a service, on loopback.

POST /customers · PATCH /customers/<id> · POST /orders · POST /orders/<guid>/status
                      commands (see contexts)
GET /health · GET /metrics
POST /faults          {"at": a fault point, "after": 2}: kill the process when it reaches the fault
                      point for the second time
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import psycopg

from ..base import WorkbenchError, first_line, split_host_port
from .contexts import ID_FIELDS, CommandRejected, Document
from .events import MAX_NESTING_LEVELS, is_too_deep
from .service import Service
from .store import NON_RETRYABLE_ERRORS

MAX_BODY_BYTES = 1 << 20
MAX_KEY_LENGTH = 200  # characters


class ForeignRequest(CommandRejected):
    """The request of a foreign web page: its Host or Origin header is not this service's."""


class Handler(BaseHTTPRequestHandler):
    """Routes HTTP requests to the methods of a Service."""

    protocol_version = "HTTP/1.1"  # clients keep their connections
    wbufsize, disable_nagle_algorithm = 1 << 16, True  # a response is one packet
    service: Service
    server: ThreadingHTTPServer

    def _handle_request(self) -> None:
        response: Any
        try:
            body = self._read_body()
            self._reject_foreign()
            status, response = 200, self._route(body)
        except ForeignRequest as e:
            status, response = 403, {"error": str(e)}
        except CommandRejected as e:
            status, response = (409 if e.retryable else 400), {"error": str(e)}
        except (*NON_RETRYABLE_ERRORS, ValueError, RecursionError) as e:
            status, response = 400, {"error": first_line(e)}
        except (psycopg.Error, WorkbenchError) as e:
            status, response = 503, {"error": first_line(e)}
        is_text = isinstance(response, bytes)
        raw = response if is_text else json.dumps(response).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if is_text else "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST = do_PATCH = _handle_request

    def _reject_foreign(self) -> None:
        """Reject requests of web pages with another origin, or with a rebound host name.

        In DNS rebinding the host name of a page resolves to 127.0.0.1.

        Raises:
            ForeignRequest: Host or Origin is not this service's.
        """
        port = self.server.server_port
        hosts = [f"127.0.0.1:{port}", f"localhost:{port}"]
        if self.headers.get_all("Host") not in [[host] for host in hosts]:
            raise ForeignRequest("the service responds to 127.0.0.1 and localhost only")
        if self.headers.get_all("Origin", []) not in [[], *([f"http://{host}"] for host in hosts)]:
            raise ForeignRequest("the service does not respond to a web page of another origin")

    def _route(self, body: Document) -> Any:
        service = self.service
        collection, _, subpath = self.path.strip("/").partition("/")
        route = (self.command, collection)
        if route == ("GET", "health"):
            return service.health()
        if route == ("GET", "metrics"):
            return service.export_metrics()
        if route == ("POST", "faults"):
            return service.arm_fault(body.get("at"), body.get("after", 1))
        key, _, action = subpath.partition("/")
        path = f"id/{action}".strip("/") if key else ""
        context = service.context
        if collection != context.owned_collection or (self.command, path) not in context.commands:
            raise CommandRejected(f"{context.name} has no command {self.command} {self.path}")
        id_field = ID_FIELDS[collection]
        document_key = unquote(key) or body.get(id_field)
        if not isinstance(document_key, str) or not 0 < len(document_key) <= MAX_KEY_LENGTH:
            raise CommandRejected(
                f"a document needs its {id_field}, a text of at most {MAX_KEY_LENGTH} characters"
            )
        return service.command(self.command, path, document_key, body)

    def _read_body(self) -> Document:
        """Return the JSON object in the body.

        If the length is invalid or too large, the connection is closed, because the body would be
        read as the next request.

        Raises:
            CommandRejected: the length is invalid or too large, or the body is not a JSON object.
        """
        lengths = self.headers.get_all("Content-Length", ["0"])
        is_number = len(lengths) == 1 and lengths[0].isascii() and lengths[0].isdigit()
        if not is_number or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise CommandRejected(
                "Content-Length is not one whole number, or there is a Transfer-Encoding"
            )
        # int() rejects texts of thousands of digits
        length = int(lengths[0].lstrip("0")[:20] or 0)
        if length > MAX_BODY_BYTES:
            self.close_connection = True
            raise CommandRejected(f"the body has more than {MAX_BODY_BYTES:,} bytes")
        raw = self.rfile.read(length)
        if not raw and self.command == "GET":
            return {}
        body = json.loads(raw)
        # an HTML form cannot send application/json
        if not isinstance(body, dict) or self.headers.get_content_type() != "application/json":
            raise CommandRejected(
                "the body is not a JSON object, or its Content-Type is not application/json"
            )
        if is_too_deep(body):
            raise CommandRejected(f"the body has more than {MAX_NESTING_LEVELS} nesting levels")
        return body

    def log_message(self, *_: Any) -> None:
        """Log no requests: errors are logged where they occur."""


def create_server(service: Service, url: str) -> ThreadingHTTPServer:
    """Return an HTTP server for a service."""
    handler = type("Handler", (Handler,), {"service": service})
    return ThreadingHTTPServer(split_host_port(url), handler)
