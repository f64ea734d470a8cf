"""What is particular to the walkthrough on eventual consistency
(notebooks/70_eventual_consistency): its services (see `workbench.storefront`), what is asked of
them, and how far their stores agree. storefront_load has what happens there.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Iterator, Optional

import pandas
import requests

from .. import connect, stack
from ..base import ROOT, StackError, World, wait_until
from ..results import check
from ..source import postgres
from ..source.names import format_sql
from ..stack import storefront as rows
from ..storefront import contexts
from ..storefront.contexts import DLQ_TOPIC, PUBLICATION, PUBLISHED_FIELDS, Document
from ..storefront.store import Store
from ..topic import groups, topics
from .walkthrough import Walkthrough

if TYPE_CHECKING:
    from ..results.draw import Picture

PARTITIONS = 3  # of each topic, as published
CONNECTORS = tuple(f"storefront_{name}" for name in rows.CONTEXTS)
COPIES = {
    "customers": ("accounts", "orders"),
    "orders": ("orders", "fulfillment"),
}  # {collection: owner, who copies}


# --- the services
# ----------------------------------------------------------------------------------------------------


def require_embedded(world: World) -> None:
    """Raises: StackError: the world has its services elsewhere; the published storefront is not on
    AWS either.
    """
    if not world.stack.embedded:
        raise StackError(
            "the storefront runs on one machine only",
            location=f"world {world.name}",
            expected="a world whose stack is embedded",
            hint='world = "local"',
        )


def require_created(world: World) -> None:
    """Raises: StackError: there is no storefront, or the world is none for it."""
    require_embedded(world)
    if not _is_created(world):
        raise StackError("there is no storefront", hint="`workbench storefront up` makes it")


def up(world: World, instances: int = 1) -> None:
    """Make the stores and topics that are missing, and start so many instances of each service, two
    at most.
    """
    require_embedded(world)
    stack.ensure_running(world, "postgres", "kafka")
    for context in contexts.ALL.values():
        postgres.create_service_database(world, context.name)
        Store(world, context).create_tables()
        topics.create(world, context.topic, PARTITIONS)
        if connector_publishes(world, context.name):
            stack.ensure_running(world, "connect")
    start(world, *rows.CONTEXTS, instances=instances)


def start(world: World, *names: str, instances: int = 1) -> None:
    """Start services that do not run, and wait until they listen."""
    stack.ensure_running(
        world,
        *(
            rows.service_name(name, n + 1)
            for n in range(instances)
            for name in names or rows.CONTEXTS
        ),
    )


_supervised: set[str] = (
    set()
)  # the services that `kept_running` starts again: to wait for one of them is not pointless


@contextmanager
def supervised(world: World, instances: int = 1) -> Iterator[list[str]]:
    """In this block a service that dies is started again; gives the names of those, in order, one
    for each death.
    """
    ours = [rows.service_name(name, n + 1) for n in range(instances) for name in rows.CONTEXTS]
    done, restarted = threading.Event(), []  # type: ignore[var-annotated]

    def look() -> None:
        while not done.wait(0.1):
            dead = sorted({*ours} - {*stack.running()})
            if dead:
                restarted.extend(dead)
                with suppress(StackError):  # it died once more while it was started: the next look
                    stack.ensure_running(world, *dead)

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        _supervised.update(ours)
        try:
            yield restarted
        finally:
            _supervised.difference_update(ours)
            done.set()
        looking.result()


def stop(*names: str) -> None:
    """Stop services, all instances of them."""
    stack.stop(*(rows.service_name(name, n) for n in (1, 2) for name in names or rows.CONTEXTS))


def restart_clean(world: World) -> None:
    """Begin anew: empty stores, empty topics, one instance of each service."""
    require_embedded(world)
    stack.ensure_running(world, *flow.services)
    flow.reset(world)
    up(world)


def call(
    world: World,
    service: str,
    method: str,
    path: str,
    body: Optional[Document] = None,
    *,
    instance: int = 1,
) -> Document:
    """What a service answers. Raises: StackError: it refuses, or does not answer."""
    answer = request(world, service, method, path, body, instance=instance)
    if answer.status_code != 200:
        raise StackError(
            f"{service} refuses: {answer.json()['refused']}", location=f"{method} /{path}"
        )
    return answer.json()


def request(
    world: World,
    service: str,
    method: str,
    path: str,
    body: Optional[Document] = None,
    *,
    instance: int = 1,
    client: Any = requests,
) -> requests.Response:
    """The same as HTTP has it, whatever the status. Raises: StackError: it does not answer."""
    address = rows.address(world, service, instance)
    try:
        return client.request(method, f"{address}/{path}", json=body, timeout=(5, 30))
    except requests.RequestException as e:
        lost = None
        with suppress(
            StackError
        ):  # one that was killed a moment ago may still be there for an instant
            lost = wait_until(
                lambda: stack.service_down_error(
                    world, rows.service_name(service, instance), address
                ),
                "",
                timeout=1,
                error=StackError,
            )
        kept = rows.service_name(service, instance) in _supervised
        error = type(lost) if lost and not kept else StackError
        raise error(
            lost.message if lost else f"{service} does not answer: {type(e).__name__}",
            location=f"{method} {address}/{path}",
            hint="`workbench storefront up` starts what does not run",
        ) from None


def instance_states(world: World) -> list[tuple[str, str, str]]:
    """Of each instance that was started: its name, its address, how it is."""
    found = []
    for context, n in ((context, n) for n in (1, 2) for context in rows.CONTEXTS):
        name = rows.service_name(context, n)
        if n == 1 or name in stack.running():
            try:
                said = call(world, context, "GET", "health", instance=n)["events"]
            except StackError as e:
                said = e.message
            found.append((name, rows.address(world, context, n), said))
    return found


def metrics(world: World, service: str, instance: int = 1) -> dict[str, float]:
    """What a service tells of itself: {name{labels}: figure}, as Prometheus would read it."""
    text = request(world, service, "GET", "metrics", instance=instance).text
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(figure) for name, _, figure in lines}


def lag(world: World) -> dict[str, int]:
    """{service: how many events of its topics it has not taken yet}."""
    return {
        c.name: sum(groups.lag(world, c.group, *c.subscribed_topics).values())
        for c in contexts.ALL.values()
        if c.subscribed_topics
    }


def wait_until_consistent(world: World, timeout: float = 60) -> None:
    """Wait until every event that a connector or a living service has to send is in its topic, and
    every one in a topic has been taken. Raises: WorkbenchError: after `timeout` seconds.
    ServiceLost: Kafka, Connect, or every instance of a service that has events to take, is gone.
    """
    ids = {name: EventIds(world, context.topic) for name, context in contexts.ALL.items()}

    def sent() -> bool:
        raise_if_lost(
            world, "kafka"
        )  # a service that is asked for its metrics looks for Kafka for some seconds
        waiting = [
            name
            for name, context in contexts.ALL.items()
            if _count_pending(world, context, ids[name])
        ]
        if any(connector_publishes(world, name) for name in waiting):
            raise_if_lost(world, "connect")
        return not waiting

    def taken() -> bool:
        waiting = [name for name, events in lag(world).items() if events]
        for context in waiting:
            if not {rows.service_name(context, n) for n in (1, 2)} & {*stack.running()}:
                raise_if_lost(world, context)
        return not waiting

    wait_until(
        sent,
        "what was said to be sent",
        timeout=timeout,
        interval=0.1,
        hint='where connectors send it, look at them: connect.status(world, "storefront_orders")',
    )
    wait_until(taken, "the services to take every event", timeout=timeout, interval=0.1)


def raise_if_lost(world: World, *services: str) -> None:
    """Raise ServiceLost where one of these services is gone, and nobody starts it again."""
    for service in services:
        lost = (
            None
            if rows.service_name(service, 1) in _supervised
            else stack.process_down_error(world, service)
        )
        if lost:
            raise lost


def connector_publishes(world: World, store: str) -> bool:
    """Whether a connector sends what a store's outbox holds."""
    return PUBLICATION in set(postgres.publications(world, store)["publication"])


def pending_events(world: World) -> dict[str, int]:
    """{service: how many of its events are not in its topic yet}."""
    return {
        name: _count_pending(world, context, EventIds(world, context.topic))
        for name, context in contexts.ALL.items()
    }


def _count_pending(world: World, context: contexts.Context, sent: "EventIds") -> int:
    """How many events are to be sent yet: of the outbox, where a connector reads it, else by the
    service's processes.
    """
    if connector_publishes(world, context.name):
        said = postgres.query(world, "SELECT id::text FROM outbox", database=context.name)["id"]
        return len(set(said) - set(sent.read()))
    running = [n for n in (1, 2) if rows.service_name(context.name, n) in stack.running()]
    return int(sum(metrics(world, context.name, n)["storefront_unsent"] for n in running))


def event_ids(world: World, topic: str) -> list[str]:
    """The ids of the events in a topic, by partition and offset; "" of a message that has none."""
    return EventIds(world, topic).read()


class EventIds:
    """The ids of the events in a topic. Each `read` consumes only the messages that came since the
    last one.
    """

    def __init__(self, world: World, topic: str):
        self._world, self._topic = world, topic
        self._next: dict[
            int, int
        ] = {}  # {partition: offset of the first message that was not read yet}
        self._ids: list[str] = []

    def read(self) -> list[str]:
        """Return the ids of all messages that were read so far, "" for a message without an id."""
        for message in topics.read_all(self._world, self._topic, start_offsets=self._next):
            self._next[message.partition()] = message.offset() + 1
            self._ids.append(dict(message.headers() or []).get("id", b"").decode())
        return self._ids


# --- what the stores hold
# --------------------------------------------------------------------------------------------


def documents(world: World, store: str, collection: str) -> pandas.DataFrame:
    """A collection in a store: id, version, document."""
    return postgres.query(
        world,
        format_sql("SELECT id, version, document FROM {} ORDER BY id", collection),
        database=store,
    )


def owner_documents(world: World, collection: str) -> pandas.DataFrame:
    """The same in the store of its owner, as others shall have it: without what they are not
    told.
    """
    found = documents(world, COPIES[collection][0], collection)
    found["document"] = [
        {name: document[name] for name in PUBLISHED_FIELDS[collection]}
        for document in found["document"]
    ]
    return found


def _expected_copy(world: World, collection: str) -> pandas.DataFrame:
    """What a copy of a collection is to hold: of its owner's what it takes (fulfillment: what is
    approved).
    """
    mine, copy = owner_documents(world, collection), contexts.ALL[COPIES[collection][1]]
    return mine[mine["version"] >= (copy.min_version if collection == copy.owned_collection else 1)]


def find_divergent(world: World) -> pandas.DataFrame:
    """Documents of which the stores do not agree: collection, id, owner's version, copy's version
    (0: it has none).
    """
    found = []
    for collection, (_, copy) in COPIES.items():
        both = _expected_copy(world, collection).merge(
            documents(world, copy, collection), "outer", "id", suffixes=("_owner", "_copy")
        )
        apart = both[both["document_owner"] != both["document_copy"]].fillna(
            {"version_owner": 0, "version_copy": 0}
        )
        found.append(apart.assign(collection=collection, copy=copy))
    shown = pandas.concat(found, ignore_index=True)[
        ["collection", "id", "copy", "version_owner", "version_copy"]
    ]
    return shown.astype({"version_owner": int, "version_copy": int})


def compare(world: World) -> None:
    """Check the copies of customers and orders against their owners', document by document."""
    for collection, (owner, copy) in COPIES.items():
        what = "customers" if collection == "customers" else "approved orders"
        check.same_rows(
            _expected_copy(world, collection),
            documents(world, copy, collection),
            key="id",
            claim=f"{what} in {copy} = in {owner}",
            lake_label=copy,
            source_label=owner,
            allow_empty=collection == "orders",
        )


def replication_lag(world: World) -> pandas.DataFrame:
    """How long it took until all copies had a change: id, topic, key, version, said, heard (by the
    last of the other services), seconds. Both are times of commits, by the server's own clock
    (pg_xact_commit_timestamp).
    """
    asked = "SELECT id::text, {} AS key, version, pg_xact_commit_timestamp(xmin) AS at, {} AS topic FROM {}"
    said, heard = [], []
    for context in contexts.ALL.values():
        own = asked.format("aggregateid", f"'{context.topic}'", "outbox")
        said.append(postgres.query(world, own, database=context.name))
        found = postgres.query(world, asked.format("key", "topic", "inbox"), database=context.name)
        heard.append(found[found["topic"] != context.topic])
    last = (
        pandas.concat(heard)
        .groupby("id", as_index=False)["at"]
        .max()
        .rename(columns={"at": "heard"})
    )
    both = pandas.concat(said).rename(columns={"at": "said"}).merge(last, "left", "id")
    both["seconds"] = (both["heard"] - both["said"]).dt.total_seconds()
    return both.sort_values("said", ignore_index=True)


def watch(world: World, key: str, email: str) -> pandas.DataFrame:
    """Change a customer's e-mail, and look into both stores again and again meanwhile, until both
    have it: ms since the command was sent, owner (what accounts has), copy (what orders has).
    Raises: StackError: it is refused, or after 30 s.
    """
    asked = "SELECT document->'contact'->>'email' FROM customers WHERE id = %s"
    seen: list[tuple] = []
    with (
        postgres.session(world, "accounts") as owner,
        postgres.session(world, "orders") as copy,
        ThreadPoolExecutor(1) as pool,
    ):
        begun = time.monotonic()
        sent = pool.submit(
            call, world, "accounts", "PATCH", f"customers/{key}", {"contact": {"email": email}}
        )

        def both() -> bool:
            values = [c.execute(asked, [key]).fetchone()[0] for c in (owner, copy)]
            seen.append((1000 * (time.monotonic() - begun), *values))
            return values == [email, email]

        wait_until(
            both,
            "both stores to have it",
            timeout=30,
            interval=0,
            error=StackError,
            failure_reason=lambda: (
                str(sent.exception()) if sent.done() and sent.exception() else None
            ),
        )
    return pandas.DataFrame(seen, columns=["ms", "owner", "copy"])


def wipe_store(world: World, store: str) -> None:
    """Stop a service, and empty its store, but for its outbox. Started again it hears its topics
    from the beginning. Its rows go when Kafka has confirmed that the committed offsets are gone:
    with them nothing would be read again.
    Raises: StackError: nobody would say again what it holds; or Kafka confirms nothing. Nothing is
        emptied then.
    """
    context = contexts.ALL[store]
    if context.topic not in context.subscribed_topics:
        raise StackError(
            f"{store} cannot be built anew from its topics", expected="orders or fulfillment"
        )
    stop(store)
    groups.delete(world, context.group)
    tables = (
        *context.collections,
        "inbox",
    )  # together: what is in the inbox still is not taken once more
    statement = f"TRUNCATE {', '.join(['{}'] * len(tables))}"
    postgres.execute(world, format_sql(statement, *tables), database=store)


def enable_outbox_connectors(world: World) -> None:
    """Let connectors send what the outboxes hold, in place of the services: the publication tells
    these to send no more. What is in an outbox already is sent, too; who has heard it knows it by
    its id.
    """
    user = world.postgres.replication_user
    stack.ensure_running(world, "connect")
    for name, connector in zip(rows.CONTEXTS, CONNECTORS):
        postgres.grant_replication(world, ["outbox"], name)
        postgres.execute(
            world, format_sql("GRANT CONNECT ON DATABASE {} TO {}", name, user), database=name
        )
        postgres.create_publication(world, PUBLICATION, ["outbox"], name)
        connect.apply(world, connector, flow.config(world, connector))
    for connector in CONNECTORS:
        connect.wait_running(world, connector)


# --- pictures
# --------------------------------------------------------------------------------------------------------


def picture() -> "Picture":
    """Draw services, stores and topics, and which service publishes to or consumes from which
    topic.
    """
    from ..results import draw  # matplotlib: most who import this module draw nothing

    boxes, arrows = {}, []
    for column, (name, context) in enumerate(contexts.ALL.items()):
        store = f"database {name}"
        boxes[store] = draw.Box(f"{store}\n{', '.join(context.collections)}", column, 0, "store")
        boxes[name] = draw.Box(f"service {name}", column, 1, "service")
        boxes[context.topic] = draw.Box(context.topic, column, 2, "topic")
        arrows += [
            draw.Arrow(name, store, "reads, writes"),
            draw.Arrow(name, context.topic, "publishes"),
        ]
        arrows += [draw.Arrow(topic, name, "consumes") for topic in context.subscribed_topics]
    return draw.flow(boxes, arrows, _colors(), "Three services, three stores, three topics")


def delivery(connector: bool = False) -> "Picture":
    """Draw how an event gets from its service into the topic: published by the service, and by a
    connector, too.
    """
    from ..results import draw

    topic = contexts.ACCOUNTS.topic
    boxes = {
        "accounts": draw.Box("service accounts", 0, 1, "service"),
        "store": draw.Box("database accounts\ncustomers, outbox", 1, 0, "store"),
        "topic": draw.Box(topic.replace(".customer", "\n.customer"), 3, 1, "topic"),
        "orders": draw.Box("service orders", 4.5, 1, "service"),
    }
    arrows = [
        draw.Arrow("accounts", "store", "1. commits"),
        draw.Arrow("topic", "orders", "consumes"),
        draw.Arrow(
            "accounts",
            "topic",
            "2. publishes: lost if the process dies after the commit",
            lossy=True,
        ),
    ]
    if connector:
        boxes["connector"] = draw.Box("connector", 2, 0, "service")
        arrows.append(draw.Arrow("store", "connector", "log"))
        arrows.append(draw.Arrow("connector", "topic", "publishes what is committed"))
    return draw.flow(
        boxes,
        arrows,
        _colors(),
        "Two ways into the topic" if connector else "One command, two systems",
    )


def _colors() -> dict[str, str]:
    """Return the color of each kind of box."""
    from ..results.draw import PALETTE

    return {"service": PALETTE[3], "store": PALETTE[2], "topic": PALETTE[1]}


# --- the walkthrough
# -------------------------------------------------------------------------------------------------


def _is_created(world: World) -> bool:
    return {*rows.CONTEXTS} <= {*postgres.databases(world)} and {*contexts.TOPICS} <= {
        *topics.names(world)
    }


flow = Walkthrough(
    captures=(),
    watermark=False,
    folder=ROOT / "notebooks" / "70_eventual_consistency",
    config=lambda world, name: (
        connect.config(  # Debezium's router fills in the second placeholder by itself
            world,
            "storefront_outbox",
            service=name.partition("_")[2],
            routedByValue="${routedByValue}",
        )
    ),
    extra_connectors=CONNECTORS,
    own_topics=(*contexts.TOPICS, DLQ_TOPIC),
    completion_checks={"71_stores": _is_created},
    services=("postgres", "kafka", "connect"),
    owned_services=tuple(rows.service_name(name, n) for n in (1, 2) for name in rows.CONTEXTS),
    consumer_groups=tuple(
        context.group for context in contexts.ALL.values() if context.subscribed_topics
    ),
    service_databases=rows.CONTEXTS,
    local_only=True,
)
