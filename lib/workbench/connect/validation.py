"""Checks before a deployment, and reasons of failures, for both backends of Connect."""

import contextlib
import re
import time
from typing import Callable, Optional, TypedDict

from ..base import ConnectorError, SourceError, StackError, World, did_you_mean
from ..base.text import plural
from ..source import postgres
from .configs import CONNECTOR_CATALOG, misplaced_references, plaintext_secret_keys

# of a ParsingException; the innermost cause has another message without the statement
UNKNOWN_STATEMENT = re.compile(r"with the statement '(.+?)'\s*\n", re.DOTALL)
MAX_STATEMENT_CHARS = 1000


class PartStatus(TypedDict):
    """The status of a connector or a task.

    Attributes:
        state: RUNNING, FAILED, PAUSED, STOPPED, UNASSIGNED …
        worker: address of the worker that runs the connector or task.
        error: a summary of the stack trace, empty if the state is not FAILED.
    """

    state: str
    worker: str
    error: str


class TaskStatus(PartStatus):
    """The status of a task, and its number."""

    id: int


class ConnectorStatus(PartStatus):
    """The status of a connector; its type is "source" or "sink"."""

    name: str
    type: str
    tasks: list[TaskStatus]


def require_plugin(
    config: dict[str, str],
    name: str,
    plugins: list[dict[str, str]],
    location: str,
    install_hint: str,
) -> str:
    """Return the connector class of a configuration, which must be one of the plugins.

    Args:
        config: the configuration.
        name: name of the connector.
        plugins: the plugins of the Connect cluster.
        location: the Connect cluster, for the error.
        install_hint: hint for a missing plugin that the built-in runner does not replace.

    Raises:
        ConnectorError: the Connect cluster does not have the plugin.
    """
    class_name = config.get("connector.class", "")
    classes = [plugin["class"] for plugin in plugins]
    if class_name in classes:
        return class_name
    short_name = class_name.rsplit(".", 1)[-1].lower()
    expected, hint = did_you_mean(class_name, classes), install_hint
    for prefix, replacement in CONNECTOR_CATALOG["plugin_hints"].items():
        if short_name.startswith(prefix):
            expected, hint = "", replacement
    raise ConnectorError(
        f"this Connect has no plugin {class_name!r}"
        if class_name
        else "'connector.class' is missing",
        location=f"connector {name!r} at {location}",
        expected=expected,
        hint=hint,
    )


def reject_exposed_secrets(world: World, name: str, config: dict[str, str]) -> None:
    """Reject a configuration that could show a secret, before anything is sent.

    Connect stores and logs its configurations. It puts the text of a secret in the place of a reference,
    and sends it to the server, which logs users and queries.

    Raises:
        ConnectorError: a key contains a secret in plain text, a key that is no password has a
            reference, or a password is that of another server.
    """
    classes = CONNECTOR_CATALOG["mysql_connectors"].values()
    is_mysql = config.get("connector.class") in classes
    own = (world.mysql if is_mysql else world.connect).password_reference
    plaintext = plaintext_secret_keys(config)
    for key in [
        *plaintext,
        *misplaced_references(config, own, {each.name for each in world.secrets}),
    ]:
        fault = "contains a secret as plain text"
        if key not in plaintext:
            fault = "refers to a secret that is not for this key"
        raise ConnectorError(
            f"connector {name!r} is rejected: '{key}' {fault}",
            location=f"{name}: {key}",
            expected=f"in a password, a reference that the Connect worker resolves: {own}; elsewhere none",
        )


def reject_error_tolerance(name: str, config: dict[str, str]) -> None:
    """Reject errors.tolerance=all of a source connector.

    With this setting, a source connector skips records that it cannot produce, and stays RUNNING:
    for example a row that is too large, or one whose schema the registry rejects. Only sink
    connectors have dead-letter topics (KIP-298).

    Raises:
        ConnectorError: the source connector has this setting.
    """
    is_source = not {"topics", "topics.regex"} & config.keys()
    if is_source and config.get("errors.tolerance") == "all":
        raise ConnectorError(
            f"connector {name!r} is rejected: a source would silently lose records that it cannot produce",
            location="errors.tolerance: all",
            expected="none: the connector then fails and reports the reason",
        )


def require_free_slot(
    name: str, config: dict[str, str], deployed: dict[str, dict[str, str]]
) -> None:
    """Reject a replication slot that another connector reads.

    Debezium would retry without end, and stay RUNNING.

    Args:
        name: name of the connector.
        config: its configuration.
        deployed: {connector: configuration} of all connectors.

    Raises:
        ConnectorError: another connector reads the slot.
    """
    slot = config.get("slot.name")
    keys = ("slot.name", "database.hostname", "database.port")
    for other_name, other_config in deployed.items():
        is_same = all(other_config.get(key) == config.get(key) for key in keys)
        if slot and other_name != name and is_same:
            raise ConnectorError(
                f"connector {name!r} is rejected; nothing was deployed: "
                f"connector {other_name!r} reads its replication slot",
                location=f"slot.name: {slot}",
                expected="a slot.name of its own for each connector",
            )


def require_root_publication(world: World, name: str, config: dict[str, str]) -> None:
    """Reject a publication that publishes changes of a captured table under partition names.

    table.include.list would drop these changes, and the connector would stay RUNNING. Only the
    world's PostgreSQL is checked. If it cannot be reached from here, nothing is rejected.

    Raises:
        ConnectorError: the publication publishes a captured table in this way.
    """
    publication = config.get("publication.name")
    server = config.get("database.hostname"), config.get("database.port")
    if not publication or server != (world.postgres.host, str(world.postgres.port)):
        return
    database, tables = config.get("database.dbname"), []
    with contextlib.suppress(SourceError, StackError):
        published = postgres.tables_published_by_partition(world, database)
        tables = list(published[published["publication"] == publication]["table"])
    patterns = config.get("table.include.list", "")
    captured = ", ".join(table for table in tables if _includes(patterns, table))
    if captured:
        raise ConnectorError(
            f"connector {name!r} is rejected; nothing was deployed: publication {publication} "
            f"publishes the changes of {captured} under the names of the partitions, "
            "and table.include.list would drop them",
            location=f"publication.name: {publication}, database {database}",
            expected="publish_via_partition_root = true",
            hint=f"ALTER PUBLICATION {publication} SET (publish_via_partition_root = true), as "
            "postgres.create_publication does; then apply again. A connector that has run before "
            "has lost changes: after connect.delete and postgres.drop_slot the next one takes a "
            "new snapshot",
        )


def _includes(patterns: str, table: str) -> bool:
    """Return whether a table matches a list of regular expressions (table.include.list)."""
    with contextlib.suppress(re.error):
        return any(re.fullmatch(pattern.strip(), table, re.I) for pattern in patterns.split(","))
    return False


def unknown_key_message(class_name: str, suggestion: str) -> str:
    """Return the message for a key that a connector class does not know."""
    message = f"{class_name.rsplit('.', 1)[-1]} has no such key and would ignore it; {suggestion}"
    return message.rstrip("; ")


def raise_for_problems(name: str, class_name: str, problems: dict[str, list[str]]) -> None:
    """Raise one ConnectorError that lists every rejected key with its messages, if there are any.

    Args:
        name: name of the connector.
        class_name: class of the connector.
        problems: {key: messages}.
    """
    if not problems:
        return
    lines = ""
    for key, messages in problems.items():
        lines += f"\n    {key}: {' '.join(dict.fromkeys(message.strip() for message in messages))}"
    keys = plural(len(problems), "key")
    raise ConnectorError(
        f"connector {name!r} is rejected for {keys}; nothing was deployed{lines}",
        location=class_name,
        hint=likely_causes(lines) or "correct the keys and apply again",
    )


def missing_connector_error(name: str, location: str, names: list[str]) -> ConnectorError:
    """Return the error for a connector that does not exist.

    Args:
        name: name of the connector.
        location: the Connect cluster.
        names: the names of its connectors.
    """
    return ConnectorError(
        f"there is no connector {name!r}",
        location=location,
        expected=did_you_mean(name, names),
        hint="deploy it with connect.apply",
    )


def summarize_stacktrace(trace: str) -> str:
    """Return the first line of a Java stack trace and, if it has one, its innermost cause.

    If Debezium cannot parse a statement of the log, the statement is the cause.
    """
    unknown = UNKNOWN_STATEMENT.search(trace)
    if unknown:
        return f"Debezium cannot parse the statement {unknown[1][:MAX_STATEMENT_CHARS]}"
    lines = [line.strip() for line in trace.strip().splitlines()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    # the error for a lost offset contains the whole internal state
    return re.sub(r"\[.{120,}\]", "[…]", " … ".join(lines[:1] + causes[-1:]))


def likely_causes(text: str) -> str:
    """Return the likely causes of a message of Connect or of a plugin; empty if none is known."""
    causes = [
        cause
        for pattern, cause in CONNECTOR_CATALOG["likely_causes"]
        if re.search(pattern, text, re.I)
    ]
    return "likely: " + "; or ".join(causes) if causes else ""


def states(status: ConnectorStatus) -> set[str]:
    """Return the states of a connector and of its tasks; NO TASK if it has none."""
    return {status["state"], *([task["state"] for task in status["tasks"]] or ["NO TASK"])}


def failure_message(name: str, status: Optional[ConnectorStatus]) -> Optional[str]:
    """Return why a connector or one of its tasks is FAILED, None if neither is.

    Args:
        name: name of the connector.
        status: its status, None if it does not exist.
    """
    if status is None:
        return f"there is no connector {name!r}"
    parts = [("it", status["state"], status["error"])]
    parts += [(f"its task {t['id']}", t["state"], t["error"]) for t in status["tasks"]]
    for subject, state, error in parts:
        if state == "FAILED":
            causes = likely_causes(error)
            return f"{subject} is FAILED: {error}" + (f"\n  {causes}" if causes else "")
    return None


def running_for(
    get_status: Callable[[], ConnectorStatus], stable_for: float
) -> Callable[[], Optional[ConnectorStatus]]:
    """Return a condition for `wait_until`: a connector and its tasks stay RUNNING for some time.

    Args:
        get_status: returns the status of the connector.
        stable_for: seconds for which they must be RUNNING. The period starts again after a call
            that fails, or returns another state.

    Returns:
        A function that returns the status once the condition is met, else None.
    """
    running_since: Optional[float] = None

    def condition() -> Optional[ConnectorStatus]:
        nonlocal running_since
        since, running_since = running_since, None
        status = get_status()
        if states(status) != {"RUNNING"}:
            return None
        now = time.monotonic()
        running_since = now if since is None else since
        return status if now - running_since >= stable_for else None

    return condition
