"""Load generation for the storefront: sample documents, random operations, expected results."""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Iterable, NamedTuple, Optional

import pandas
import requests

from ..base import ROOT, StackError, World, http, wait_until
from .client import raise_if_lost, request
from .domain import ALL, PUBLISHED_FIELDS, STATUSES, Document
from .instances import address

DATA = ROOT / "data" / "storefront"
WORKERS = 12  # threads; all operations of a document run in one thread, in order


def sample_documents() -> Document:
    """Return the published customer and his orders: {"customer": …, "orders": […]}."""
    documents: Document = json.loads((DATA / "john_doe.json").read_text(encoding="utf-8"))
    return documents


class Operation(NamedTuple):
    """A command for a service, about one document.

    Attributes:
        service: name of the service.
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
    operations: list[Operation] = []
    while len(operations) < count:
        timestamp, draw = 1_528_339_278_058 + len(operations), rng.random()
        method = "POST"
        body: Document = {"timestamp": timestamp}
        if draw < 0.1 or not customers:
            service, path, key = "accounts", "customers", f"{seed:08x}{len(customers):016x}"
            customers.append(key)
            body = {**sample["customer"], "id": key}
        elif draw < 0.4:
            service, method, key = "accounts", "PATCH", rng.choice(customers)
            path = f"customers/{key}"
            contact = {"email": f"{rng.getrandbits(32):08x}@internet.com"}
            addresses = [
                {**address, "city": f"City {rng.randrange(1000)}"}
                for address in sample["customer"]["addresses"]
            ]
            body = {"contact": contact} if rng.random() < 0.5 else {"addresses": addresses}
        elif draw < 0.55 or not open_orders:
            service, path, key = "orders", "orders", f"{rng.getrandbits(128):032x}"
            open_orders[key] = 1
            order, customer = rng.choice(sample["orders"]), rng.choice(customers)
            body = {**order, "guid": key, "customerId": customer, **body}
        else:
            key = rng.choice(list(open_orders))
            status_number = open_orders[key]
            service = "orders" if status_number == 1 else "fulfillment"
            path = f"orders/{key}/status"
            body["orderStatusType"] = STATUSES[status_number]
            open_orders[key] += 1
            if open_orders[key] == len(STATUSES):
                del open_orders[key]
        operations.append(Operation(service, method, path, body, key))
    return operations


def expected_state(operations: Iterable[Operation]) -> dict[str, pandas.DataFrame]:
    """Return the collections that result if one store runs these operations in sequence.

    Returns:
        {collection: data frame with id, version and document (the published fields)}.
    """
    state: dict[str, dict[str, tuple[int, Document]]] = {"customers": {}, "orders": {}}
    for operation in operations:
        body = operation.body
        collection = state["customers" if operation.service == "accounts" else "orders"]
        version, before = collection.get(operation.key, (0, {}))
        if operation.method == "PATCH":
            after = {**before, **body}
            if "contact" in body:
                after["contact"] = {**before["contact"], **body["contact"]}
        elif operation.path.endswith("/status"):
            events = [*before["orderStatusEvents"], _status_event(body)]
            after = {**before, "orderStatusEvents": events}
        elif operation.service == "accounts":
            after = {name: body[name] for name in PUBLISHED_FIELDS["customers"]}
        else:
            created = _status_event({**body, "orderStatusType": STATUSES[0]})
            after = {
                "guid": operation.key,
                "customerId": body["customerId"],
                "orderItems": body["orderItems"],
                "orderStatusEvents": [created],
            }
        if after != before:
            collection[operation.key] = (version + 1, after)
    return {
        name: pandas.DataFrame(
            [(key, *collection[key]) for key in sorted(collection)],
            columns=["id", "version", "document"],
        )
        for name, collection in state.items()
    }


def _status_event(body: Document) -> Document:
    return {name: body[name] for name in ("timestamp", "orderStatusType")}


def load(
    world: World,
    operations: list[Operation],
    *,
    rate: float = 0,
    instances: int = 1,
    timeout: float = 60,
) -> float:
    """Run operations. The operations of one document run in their order.

    Args:
        world: the world.
        operations: the operations.
        rate: operations per second; 0 for as fast as possible.
        instances: number of instances of each service, which receive the operations in turn.
        timeout: seconds for which an operation is retried while a service is down, or has not
            consumed an event that the operation needs.

    Returns:
        The duration in seconds.

    Raises:
        WorkbenchError: an operation was rejected, or not done in time. No other operation starts
            then.
        ServiceLost: PostgreSQL, Kafka or a service is lost.
    """
    started, failed = time.monotonic(), threading.Event()

    def run(numbered: list[tuple[int, Operation]]) -> None:
        session = http.session(address(world, [*ALL][0], 1))
        for number, operation in numbered:
            due = started + number / rate - time.monotonic() if rate else 0
            if failed.wait(max(0, due)):
                return
            try:
                _run_operation(world, operation, number % instances + 1, session, timeout)
            except BaseException:
                failed.set()
                raise

    shares: list[list[tuple[int, Operation]]] = [[] for _ in range(WORKERS)]
    for number, operation in enumerate(operations):
        shares[hash(operation.key) % WORKERS].append((number, operation))
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(run, shares))
    return time.monotonic() - started


def _run_operation(
    world: World, operation: Operation, instance: int, session: requests.Session, timeout: float
) -> None:
    location = f"{operation.method} /{operation.path}"

    def attempt() -> Optional[requests.Response]:
        """Return the response, or None if the operation must be retried."""
        response = request(world, *operation[:4], instance=instance, client=session)
        if response.status_code not in (409, 503):
            return response
        raise_if_lost(world, "postgres", "kafka", *ALL)
        return None

    response = wait_until(attempt, location, timeout=timeout, interval=0.02)
    if response.status_code != 200:
        raise StackError(
            f"{operation.service} rejected the operation: {response.text}", location=location
        )
