"""What both kinds of Connect have to say of a connector: what is refused before it is deployed, why
one has failed.
"""

import contextlib
import re
import time
from typing import Any, Callable, Optional

from ..base import ConnectorError, SourceError, StackError, World, did_you_mean
from ..source import postgres
from .configs import CONNECTOR_CATALOG, plaintext_secret_keys


def require_plugin(
    config: dict[str, str], name: str, have: list[dict[str, str]], where: str, install: str
) -> str:
    """Return the connector class of `config`, having made sure that it is among the plugins that a
    Connect has.

    install: what to do about it where it is not, and where no job of ours does its work.
    """
    wanted, classes = config.get("connector.class", ""), [plugin["class"] for plugin in have]
    if wanted in classes:
        return wanted
    short = wanted.rsplit(".", 1)[-1].lower()
    known = next(
        (
            step
            for start, step in CONNECTOR_CATALOG["without_plugin"].items()
            if short.startswith(start)
        ),
        "",
    )
    raise ConnectorError(
        f"this Connect has no plugin {wanted!r}" if wanted else "'connector.class' is missing",
        location=f"connector {name!r} at {where}",
        expected="" if known else did_you_mean(wanted, classes),
        hint=known or install,
    )


def reject_plaintext_secrets(world: World, name: str, config: dict[str, str]) -> None:
    """Raise ConnectorError where a secret stands in plain text: before anything is sent, for a
    Connect stores and logs what it is sent.
    """
    literal = plaintext_secret_keys(config)
    if literal:
        raise ConnectorError(
            f"connector {name!r} is refused: '{literal[0]}' holds a secret as plain text",
            location=f"{name}: {literal[0]}",
            expected=f"a reference that the Connect worker resolves, as {world.connect.password_reference}",
        )


def reject_error_tolerance(name: str, config: dict[str, str]) -> None:
    """Refuse errors.tolerance=all of a source: it would pass over what it cannot send, a row too
    large or of a schema that the registry refuses, and stay RUNNING. (A dead-letter topic is for
    sinks: KIP-298.)
    """
    if config.get("errors.tolerance") == "all" and not {"topics", "topics.regex"} & config.keys():
        raise ConnectorError(
            f"connector {name!r} is refused: a source would lose what it cannot send, without a word",
            location="errors.tolerance: all",
            expected="none, with which it fails and says why",
        )


def require_free_slot(name: str, config: dict[str, str], others: dict[str, dict[str, str]]) -> None:
    """Refuse a replication slot that another connector reads: Debezium would retry for ever, and
    look RUNNING.

    others: the configurations of all connectors, by their names.
    """
    keys = ("slot.name", "database.hostname", "database.port")
    mine = [config.get(k) for k in keys]
    for other, known in others.items():
        if other != name and mine[0] and [known.get(k) for k in keys] == mine:
            raise ConnectorError(
                f"connector {name!r} is refused; nothing was deployed: connector {other!r} reads its replication slot",
                location=f"slot.name: {mine[0]}",
                expected="a slot.name of its own for each connector",
            )


def require_root_publication(world: World, name: str, config: dict[str, str]) -> None:
    """Refuse a publication of the world's PostgreSQL that publishes the changes of a captured table
    under the names of its partitions: table.include.list would drop them, and the connector stay
    RUNNING.

    Where that server cannot be reached from here, nothing is refused.
    """
    publication, host, port = (
        config.get(key) for key in ("publication.name", "database.hostname", "database.port")
    )
    if not publication or (host, port) != (world.postgres.host, str(world.postgres.port)):
        return
    database, split = config.get("database.dbname"), []
    with contextlib.suppress(SourceError, StackError):
        roots = postgres.tables_published_by_partition(world, database)
        split = list(roots[roots["publication"] == publication]["table"])
    captured = [table for table in split if _includes(config.get("table.include.list", ""), table)]
    if captured:
        raise ConnectorError(
            f"connector {name!r} is refused; nothing was deployed: publication {publication} publishes the changes of "
            f"{', '.join(captured)} under the names of the partitions, and table.include.list would drop them",
            location=f"publication.name: {publication}, database {database}",
            expected="publish_via_partition_root = true",
            hint=f"ALTER PUBLICATION {publication} SET (publish_via_partition_root = true), which "
            "postgres.create_publication does, too; then apply again. A connector that has run before has "
            "lost changes: connect.delete and postgres.drop_slot make the next one take a new snapshot",
        )


def _includes(patterns: str, table: str) -> bool:
    """Whether a list of regular expressions, as Debezium takes them, holds a table."""
    with contextlib.suppress(re.error):
        return any(re.fullmatch(pattern.strip(), table, re.I) for pattern in patterns.split(","))
    return False


def unknown_key_message(wanted: str, guess: str) -> str:
    """What is said of a key that a connector class does not know; guess: what is nearest to it."""
    return f"{wanted.rsplit('.', 1)[-1]} has no such key and would ignore it; {guess}".rstrip("; ")


def raise_for_problems(name: str, wanted: str, problems: dict[str, list[str]]) -> None:
    """Raise ConnectorError where there are problems: one, that lists every refused key with its
    messages.
    """
    if problems:
        lines = "".join(
            f"\n    {key}: {' '.join(dict.fromkeys(m.strip() for m in errors))}"
            for key, errors in problems.items()
        )
        raise ConnectorError(
            f"connector {name!r} is refused for {len(problems)} key(s); nothing was deployed{lines}",
            location=wanted,
            hint=likely_causes(lines) or "correct the keys and apply again",
        )


def summarize_stacktrace(trace: str) -> str:
    """Return a Java stack trace's first line and, where it has one, its innermost cause."""
    lines = [line.strip() for line in trace.strip().splitlines()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    # a lost offset is told with its whole inner state, a screenful
    return re.sub(r"\[.{120,}\]", "[…]", " … ".join(lines[:1] + causes[-1:]))


def likely_causes(text: str) -> str:
    """What is likely behind a message of Connect or of a plugin; "" where nothing is known of
    it.
    """
    found = [
        cause
        for pattern, cause in CONNECTOR_CATALOG["likely_causes"]
        if re.search(pattern, text, re.I)
    ]
    return "likely: " + "; or ".join(found) if found else ""


def states(seen: dict[str, Any]) -> set[str]:
    """The states of a connector and of its tasks, of what `status` returns."""
    return {seen["state"], *(t["state"] for t in seen["tasks"] or [{"state": "NO TASK"}])}


def failure_message(name: str, seen: Optional[dict[str, Any]]) -> Optional[str]:
    """What connect.failure tells of a connector: of what `status` returns, None where there is no
    such connector.
    """
    if seen is None:
        return f"there is no connector {name!r}"
    for what, part in [("it", seen), *((f"its task {t['id']}", t) for t in seen["tasks"])]:
        if part["state"] == "FAILED":
            likely = likely_causes(part["error"])
            return f"{what} is FAILED: {part['error']}" + (f"\n  {likely}" if likely else "")
    return None


def running_for(
    status: Callable[[], dict[str, Any]], steady: float
) -> Callable[[], Optional[dict[str, Any]]]:
    """A condition to wait for: what `status` returns, once a connector and its tasks were RUNNING
    for `steady` seconds.
    """
    since: Optional[float] = (
        None  # when it was first seen so, without a look between that saw otherwise or nothing
    )

    def running() -> Optional[dict[str, Any]]:
        nonlocal since
        first, since = since, None
        seen = status()
        if states(seen) == {"RUNNING"}:
            since = time.monotonic() if first is None else first
        return seen if since is not None and time.monotonic() - since >= steady else None

    return running
