"""Load generation for the storefront: sample documents, random operations, expected results."""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Iterable, NamedTuple, Optional

import pandas
import requests
from workbench.base import ROOT, StackError, World, wait_until

from .client import raise_if_lost, request
from .domain import ALL, KEY, STATUSES, Document, published

DATA = ROOT / "data" / "storefront"
TIMEOUT_SECONDS = 120
WORKERS = 12  # threads; all operations of a document run in one thread, in order


def sample_documents() -> Document:
    """Return the published customer and his orders: {"customer": …, "orders": […]}."""
    documents: Document = json.loads((DATA / "john_doe.json").read_text(encoding="utf-8"))
    return documents


class Operation(NamedTuple):
    """A command for a service, about one document.

    Attributes:
        service: name of the service, or of one of its client.
        method: HTTP method.
        path: path of the request, without a leading slash.
        body: the JSON object of the request.
        key: key of the document.
    """

    service: str
    method: str
    path: str
    body: Document
    key: str


def random_operations(seed: int, count: int) -> list[Operation]:
    """Return random operations of a shop; a seed always gives the same ones.

    They create customers, change contacts and addresses, create orders and advance their status.
    """
    rng, sample = random.Random(seed), sample_documents()
    customers: list[str] = []
    open_orders: dict[str, int] = {}  # {guid: number of its statuses}

    def operation(timestamp: int) -> Operation:
        draw = rng.random()
        if draw < 0.1 or not customers:
            key = f"{seed:08x}{len(customers):016x}"
            customers.append(key)
            return Operation(
                "accounts", "POST", "customers", {**sample["customer"], "id": key}, key
            )
        if draw < 0.4:
            key = rng.choice(customers)
            contact = {"email": f"{rng.getrandbits(32):08x}@internet.com"}
            addresses = [
                {**address, "city": f"City {rng.randrange(1000)}"}
                for address in sample["customer"]["addresses"]
            ]
            change = {"contact": contact} if rng.random() < 0.5 else {"addresses": addresses}
            return Operation("accounts", "PATCH", f"customers/{key}", change, key)
        if draw < 0.55 or not open_orders:
            key = f"{rng.getrandbits(128):032x}"
            open_orders[key] = 1
            order, customer = rng.choice(sample["orders"]), rng.choice(customers)
            fields = {"guid": key, "customerId": customer, "timestamp": timestamp}
            return Operation("orders", "POST", "orders", {**order, **fields}, key)
        key = rng.choice(list(open_orders))
        status = STATUSES[open_orders[key]]
        open_orders[key] += 1
        if status == STATUSES[-1]:
            del open_orders[key]
        service = "orders" if status == "APPROVED" else "fulfillment"
        body = {"timestamp": timestamp, "orderStatusType": status}
        return Operation(service, "POST", f"orders/{key}/status", body, key)

    return [operation(1_528_339_278_058 + number) for number in range(count)]


def expected_state(operations: Iterable[Operation]) -> dict[str, pandas.DataFrame]:
    """Return the collections that result if one store runs these operations in sequence.

    Returns:
        {collection: data frame with id, version and document (the published fields)}.
    """
    state: dict[str, dict[str, tuple[int, Document]]] = {"customers": {}, "orders": {}}
    for operation in operations:
        context = ALL[operation.service]
        command = context.commands[operation.method, operation.path.replace(operation.key, KEY)]
        stored = state[context.owned_collection]
        version, before = stored.get(operation.key, (0, None))
        after = command.run(before, operation.body)
        if after != before:
            stored[operation.key] = version + 1, after
    return {
        name: pandas.DataFrame(
            [(key, version, published(name, row)) for key, (version, row) in sorted(rows.items())],
            columns=["id", "version", "document"],
        )
        for name, rows in state.items()
    }


def run(world: World, operations: list[Operation], rate: float = 0) -> float:
    """Run operations. The operations of one document run in their order.

    Args:
        world: the world.
        operations: the operations.
        rate: operations per second; 0 for as fast as possible.

    Returns:
        The duration in seconds.

    Raises:
        WorkbenchError: an operation was rejected, or not done in time. No other operation starts
            then.
        ServiceLost: PostgreSQL, Kafka or a service is lost.
    """
    started, failed = time.monotonic(), threading.Event()

    def run_share(share: int) -> None:
        for number, operation in enumerate(operations):
            if hash(operation.key) % WORKERS != share:
                continue
            due = started + number / rate - time.monotonic() if rate else 0
            if failed.wait(max(0, due)):
                return
            try:
                _run_operation(world, operation)
            except BaseException:
                failed.set()
                raise

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(run_share, range(WORKERS)))
    return time.monotonic() - started


def _run_operation(world: World, operation: Operation) -> None:
    """Run an operation, for at most TIMEOUT_SECONDS.

    It is retried while a service is down, or has not consumed an event that the operation needs.
    """
    location = f"{operation.method} /{operation.path}"

    def attempt() -> Optional[requests.Response]:
        """Return the response, or None if the operation must be retried."""
        response = request(world, *operation[:4])
        if response.status_code not in (409, 503):
            return response
        raise_if_lost(world, "postgres", "kafka", *ALL)
        return None

    response = wait_until(attempt, location, timeout=TIMEOUT_SECONDS, interval=0.02)
    if response.status_code != 200:
        raise StackError(
            f"{operation.service} rejected the operation: {response.text}", location=location
        )
