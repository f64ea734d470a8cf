"""The process of a service: `python -m storefront.server <world> <service> <url>`.

Its HTTP interface, on loopback:

POST /customers · PATCH /customers/<id> · POST /orders · POST /orders/<guid>/status
                      commands (see domain)
GET /health · GET /metrics
POST /faults          {"at": a fault point, "after": 2}: kill the process when it reaches the fault
                      point for the second time
"""

import logging
import sys
import threading
import time
from functools import partial
from typing import Any

import psycopg
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp, Receive, Scope, Send
from workbench.base import WorkbenchError, first_line, params, split_host_port, wait
from workbench.base.http import foreign_reason

from . import faults
from .domain import ALL, ID_FIELDS, Command, CommandRejected, Document, RetryLater
from .service import Service
from .store import NON_RETRYABLE_ERRORS

ERROR_STATUSES: dict[type[Exception], int] = {
    CommandRejected: 400,
    RetryLater: 409,
    **dict.fromkeys(NON_RETRYABLE_ERRORS, 400),
    psycopg.Error: 503,
    WorkbenchError: 503,
}


def create_app(service: Service, port: int) -> ASGIApp:
    """Return the application of a service, which listens on a port of loopback."""
    app = FastAPI(openapi_url=None)

    async def reject_foreign_page(scope: Scope, receive: Receive, send: Send) -> None:
        # Starlette's TrustedHostMiddleware ignores the port, and the header Origin
        reason = ""
        if scope["type"] == "http":
            headers = Request(scope).headers
            reason = foreign_reason(headers.getlist("host"), headers.getlist("origin"), port)
        answer = JSONResponse({"detail": reason}, 403) if reason else app
        await answer(scope, receive, send)

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(service.export_metrics(), media_type=CONTENT_TYPE_LATEST)

    app.add_api_route("/health", service.health, methods=["GET"])
    app.add_api_route("/faults", faults.arm, methods=["POST"])

    def run(command: Command, request: Request, body: dict[str, Any]) -> Document:
        key = request.path_params.get("key", body.get(id_field))
        return service.command(command, str(key), body)

    id_field = ID_FIELDS[service.context.owned_collection]
    for (method, path), command in service.context.commands.items():
        app.add_api_route(f"/{path}", partial(run, command), methods=[method])

    def reject(status: int, request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": first_line(error)}, status)

    for error_class, status in ERROR_STATUSES.items():
        app.add_exception_handler(error_class, partial(reject, status))
    return reject_foreign_page


def main(world_name: str, context: str, url: str) -> None:
    """Run a service until SIGTERM, then leave its consumer group and flush its producer."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.Formatter.converter = time.gmtime
    world = params.load(world_name)
    params.activate(world)
    service = Service(world, ALL[context])
    with service.store.transaction():  # fails at once if the store does not exist
        pass
    host, port = split_host_port(url)
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(service, port),
            host,
            port,
            http="h11",
            access_log=False,  # errors are logged where they occur
            log_config=None,
            timeout_keep_alive=60,  # clients keep their connections
        )
    )

    def consume(stop: threading.Event) -> None:
        try:
            service.run_consumer(stop)
        finally:  # without its consumer the process ends
            server.should_exit = True

    # uvicorn stops at SIGTERM, and then raises the signal again
    with wait.stop_on_signal(), wait.background(consume):
        server.run()
    service.producer.flush(10)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except WorkbenchError as e:
        sys.exit(f"{e}\n  hint:     `python -m storefront up` creates a missing store")
