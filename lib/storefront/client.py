"""Sends requests to the instances of the services."""

from contextlib import suppress
from typing import Optional

import requests
from workbench import stack
from workbench.base import StackError, World, http, wait_until

from .domain import Document
from .instances import is_supervised


def call(
    world: World, instance: str, method: str, path: str, body: Optional[Document] = None
) -> Document:
    """Send a request to an instance of a service, and return the JSON object of its response.

    Args:
        world: the world.
        instance: name of the instance: `orders`, or `orders_2`.
        method: the HTTP method.
        path: the path, without a leading slash.
        body: the JSON object to send.

    Raises:
        StackError: the service rejects the request, or does not respond.
    """
    response = request(world, instance, method, path, body)
    if response.status_code != 200:
        raise StackError(
            f"{instance} rejected the request: {response.text}", location=f"{method} /{path}"
        )
    document: Document = response.json()
    return document


def request(
    world: World, instance: str, method: str, path: str, body: Optional[Document] = None
) -> requests.Response:
    """Send a request as `call` does, and return the response, whatever the status.

    Raises:
        StackError: the service does not respond.
    """
    url = stack.get_service(instance).address(world)
    try:
        return http.session(url).request(method, f"{url}/{path}", json=body, timeout=(5, 30))
    except requests.RequestException as e:
        error = StackError(f"{instance} does not respond: {type(e).__name__}")
        with suppress(StackError):  # a killed process may exist for another moment
            error = wait_until(
                lambda: stack.service_down_error(world, instance), "", timeout=1, error=StackError
            )
        error_class = StackError if is_supervised(world, instance) else type(error)
        raise error_class(
            error.message,
            location=f"{method} {url}/{path}",
            hint="`python -m storefront up` starts the stopped services",
        ) from None


def metrics(world: World, instance: str) -> dict[str, float]:
    """Return the metrics of an instance: {name{labels}: value}."""
    lines = request(world, instance, "GET", "metrics").text.splitlines()
    samples = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in samples}
