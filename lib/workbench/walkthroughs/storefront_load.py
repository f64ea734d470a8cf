"""What happens in the storefront: the published customer, and random operations with their
sequential model.
"""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Iterable

import pandas
import requests

from ..base import ROOT, StackError, World, wait_until
from ..stack.storefront import CONTEXTS
from ..storefront.contexts import PUBLISHED_FIELDS, STATUSES, Document
from . import storefront

DATA = ROOT / "data" / "storefront"
WORKERS = 12  # that ask at once; what concerns one document is asked by one of them, in order


def sample_documents() -> Document:
    """The published customer and his orders: {"customer": …, "orders": […]}."""
    return json.loads((DATA / "john_doe.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Operation:
    """Something that is asked of a service, about one document."""

    service: str
    method: str
    path: str
    body: Document
    key: str


def random_operations(seed: int, count: int) -> list[Operation]:
    """Random things that happen in a shop: new customers, other addresses, orders and their way. A
    seed has its own.
    """
    chance, john = random.Random(seed), sample_documents()
    customers, orders, found = [], {}, []  # type: ignore[var-annotated]
    while len(found) < count:
        at, what = 1_528_339_278_058 + len(found), chance.random()
        if what < 0.1 or not customers:
            customers.append(f"{seed:08x}{len(customers):016x}")
            body = {**john["customer"], "id": customers[-1]}
            found.append(Operation("accounts", "POST", "customers", body, customers[-1]))
        elif what < 0.4:
            key = chance.choice(customers)
            contact = {"email": f"{chance.getrandbits(32):08x}@internet.com"}
            addresses = [
                {**each, "city": f"City {chance.randrange(1000)}"}
                for each in john["customer"]["addresses"]
            ]
            body = {"contact": contact} if chance.random() < 0.5 else {"addresses": addresses}
            found.append(Operation("accounts", "PATCH", f"customers/{key}", body, key))
        elif what < 0.55 or not orders:
            guid = f"{chance.getrandbits(128):032x}"
            orders[guid] = 1
            body = {
                **chance.choice(john["orders"]),
                "guid": guid,
                "customerId": chance.choice(customers),
                "timestamp": at,
            }
            found.append(Operation("orders", "POST", "orders", body, guid))
        else:
            guid = chance.choice(list(orders))
            status, service = (
                STATUSES[orders[guid]],
                "orders" if orders[guid] == 1 else "fulfillment",
            )
            orders[guid] += 1
            if orders[guid] == len(STATUSES):
                del orders[guid]
            body = {"orderStatusType": status, "timestamp": at}
            found.append(Operation(service, "POST", f"orders/{guid}/status", body, guid))
    return found


def expected_state(done: Iterable[Operation]) -> dict[str, pandas.DataFrame]:
    """What the collections are after these operations, one after the other, in a shop that has one
    store: {collection: frame of id, version, document}, as others are told of them.
    """
    found: dict[str, dict[str, tuple[int, Document]]] = {"customers": {}, "orders": {}}
    for one in done:
        there = found["customers" if one.service == "accounts" else "orders"]
        version, before = there.get(one.key, (0, {}))
        if one.method == "PATCH":
            ((field, value),) = one.body.items()
            after = {**before, field: {**before[field], **value} if field == "contact" else value}
        elif one.path.endswith("/status"):
            after = {
                **before,
                "orderStatusEvents": [*before["orderStatusEvents"], _status_event(one.body)],
            }
        elif one.service == "accounts":
            after = {name: one.body[name] for name in PUBLISHED_FIELDS["customers"]}
        else:
            after = {
                "guid": one.key,
                "customerId": one.body["customerId"],
                "orderItems": one.body["orderItems"],
                "orderStatusEvents": [_status_event({**one.body, "orderStatusType": STATUSES[0]})],
            }
        there[one.key] = (version + (after != before), after)
    return {
        collection: pandas.DataFrame(
            [(key, *there[key]) for key in sorted(there)], columns=["id", "version", "document"]
        )
        for collection, there in found.items()
    }


def _status_event(body: Document) -> Document:
    return {name: body[name] for name in ("timestamp", "orderStatusType")}


def load(
    world: World,
    asked: list[Operation],
    *,
    rate: float = 0,
    instances: int = 1,
    timeout: float = 60,
) -> float:
    """Ask the services for all of it, each document's operations in order; return the seconds that
    it took.

    Args:
        rate: operations per second; 0: as fast as it goes. instances: of each service, taken in
            turn.
        patience: seconds for which one is asked again, of a service that is gone, or has not heard
            of it yet.
    Raises: WorkbenchError: one was refused, or not done in time; no other one begins then.
        ServiceLost: a service that is asked, or for whose events one waits, PostgreSQL or Kafka is
            gone.
    """
    begun, local, failed = time.monotonic(), threading.local(), threading.Event()

    def session() -> requests.Session:
        if not hasattr(local, "session"):
            local.session = requests.Session()
        return local.session

    def work(mine: list[tuple[int, Operation]]) -> None:
        for n, one in mine:
            if failed.wait(max(0.0, begun + n / rate - time.monotonic()) if rate else 0):
                return
            try:
                answer = wait_until(
                    lambda n=n, one=one: _try_operation(world, one, n % instances + 1, session()),
                    f"{one.method} /{one.path}",
                    timeout=timeout,
                    interval=0.02,
                )
                if answer.status_code != 200:
                    raise StackError(
                        f"{one.service} refuses: {answer.text}",
                        location=f"{one.method} /{one.path}",
                    )
            except BaseException:
                failed.set()
                raise

    shares: list[list[tuple[int, Operation]]] = [[] for _ in range(WORKERS)]
    for n, one in enumerate(asked):
        shares[hash(one.key) % WORKERS].append((n, one))
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, shares))
    return time.monotonic() - begun


def _try_operation(world: World, one: Operation, instance: int, client: Any) -> Any:
    """The answer, None where it is to be asked again. Raises: ServiceLost: what the service waits
    for is gone.
    """
    answer = storefront.request(
        world, one.service, one.method, one.path, one.body, instance=instance, client=client
    )
    if answer.status_code not in (409, 503):
        return answer
    storefront.raise_if_lost(world, "postgres", "kafka", *CONTEXTS)
    return None
