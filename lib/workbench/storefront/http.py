"""The HTTP interface of a service, on loopback.

POST /customers · PATCH /customers/<id> · POST /orders · POST /orders/<guid>/status
                      commands (see domain)
GET /health · GET /metrics
POST /faults          {"at": a fault point, "after": 2}: kill the process when it reaches the fault
                      point for the second time
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable

import psycopg
from prometheus_client import CONTENT_TYPE_LATEST

from ..base import WorkbenchError, first_line, split_host_port
from ..base.http import foreign_reason
from .domain import ID_FIELDS, CommandRejected, Document, RetryLater
from .events import MAX_NESTING_LEVELS, is_too_deep
from .service import Service
from .store import NON_RETRYABLE_ERRORS

if TYPE_CHECKING:  # imported by `create_server`: only the process of a service needs these packages
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

MAX_BODY_BYTES = 1 << 20
MAX_KEY_LENGTH = 200  # characters
INVALID_REQUEST = (CommandRejected, ValueError, RecursionError, *NON_RETRYABLE_ERRORS)


def create_server(service: Service, url: str) -> uvicorn.Server:
    """Return the server of a service.

    Its `run` serves until `should_exit` is set; it then waits for the running requests.
    """
    import uvicorn

    host, port = split_host_port(url)
    config = uvicorn.Config(
        _only_own_pages(_create_app(service), port),
        host,
        port,
        http="h11",
        access_log=False,  # errors are logged where they occur
        log_config=None,
        timeout_keep_alive=60,  # clients keep their connections
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)


def _only_own_pages(app: ASGIApp, port: int) -> ASGIApp:
    """Return an application that answers a request of a foreign web page with 403."""
    from starlette.requests import Request
    from starlette.responses import JSONResponse

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        foreign = ""
        if scope["type"] == "http":  # the other events are those of the server's life
            headers = Request(scope).headers
            # Starlette's TrustedHostMiddleware ignores the port, and the header Origin
            foreign = foreign_reason(headers.getlist("host"), headers.getlist("origin"), port)
        answer = JSONResponse({"error": foreign}, 403) if foreign else app
        await answer(scope, receive, send)

    return guard


def _create_app(service: Service) -> Starlette:
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    context = service.context
    id_field = ID_FIELDS[context.owned_collection]

    def route(path: str, method: str, run: Callable[[Request, Document], object]) -> Route:
        async def respond(request: Request) -> Response:
            body = {} if method == "GET" else await _read_body(request)
            result = await run_in_threadpool(run, request, body)
            if isinstance(result, bytes):
                return Response(result, media_type=CONTENT_TYPE_LATEST)
            return JSONResponse(result)

        return Route(path, respond, methods=[method])

    def command_route(method: str, path: str) -> Route:
        def run(request: Request, body: Document) -> Document:
            key = request.path_params.get("key", body.get(id_field))
            if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_LENGTH:
                raise CommandRejected(
                    f"a document needs its {id_field}, a text of at most {MAX_KEY_LENGTH} characters"
                )
            return service.command(method, path, key, body)

        return route(f"/{context.owned_collection}{path}", method, run)

    def reject(_: Request, error: Exception) -> Response:
        status = 400 if isinstance(error, INVALID_REQUEST) else 503
        if isinstance(error, RetryLater):
            status = 409
        return JSONResponse({"error": first_line(error)}, status)

    def no_command(request: Request, error: Any) -> Response:  # 404 or 405
        reason = f"{context.name} has no command {request.method} {request.url.path}"
        return JSONResponse({"error": reason}, error.status_code, error.headers)

    errors = (*INVALID_REQUEST, psycopg.Error, WorkbenchError, Exception)
    return Starlette(
        routes=[
            route("/health", "GET", lambda *_: service.health()),
            route("/metrics", "GET", lambda *_: service.export_metrics()),
            route(
                "/faults",
                "POST",
                lambda _, body: service.faults.set_point(body.get("at"), body.get("after", 1)),
            ),
            *(command_route(method, path) for method, path in context.commands),
        ],
        exception_handlers={**dict.fromkeys(errors, reject), 404: no_command, 405: no_command},
    )


async def _read_body(request: Request) -> Document:
    """Return the JSON object in the body.

    Raises:
        CommandRejected: the body is too large, or is not a JSON object.
    """
    raw = b""
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MAX_BODY_BYTES:
            raise CommandRejected(f"the body has more than {MAX_BODY_BYTES:,} bytes")
    body = json.loads(raw)
    # an HTML form cannot send application/json
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not isinstance(body, dict) or media_type != "application/json":
        raise CommandRejected(
            "the body is not a JSON object, or its Content-Type is not application/json"
        )
    if is_too_deep(body):
        raise CommandRejected(f"the body has more than {MAX_NESTING_LEVELS} nesting levels")
    return body
