"""Checks before a deployment, and reasons of failures, for both backends of Connect."""

import contextlib
import re
from typing import Optional, TypedDict

from ..base import ConnectorError, SourceError, StackError, World, did_you_mean
from ..base.text import plural
from ..source import postgres
from .configs import (
    CONNECTOR_CATALOG,
    MYSQL_CONNECTORS,
    misplaced_references,
    plaintext_secret_keys,
)

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


def require_plugin(class_name: str, classes: list[str], location: str, install_hint: str) -> None:
    """Require the plugin of a connector.

    Args:
        class_name: class of the connector.
        classes: classes of the plugins of the Connect cluster.
        location: the connector and the cluster, for the error.
        install_hint: hint for a missing plugin that the built-in runner does not replace.

    Raises:
        ConnectorError: the Connect cluster does not have the plugin.
    """
    if class_name in classes:
        return
    short_name = class_name.rpartition(".")[2].lower()
    hints = [
        hint
        for prefix, hint in CONNECTOR_CATALOG["plugin_hints"].items()
        if short_name.startswith(prefix)
    ]
    raise ConnectorError(
        f"this Connect has no plugin {class_name!r} (connector.class)",
        location=location,
        expected="" if hints else did_you_mean(class_name, classes),
        hint=" ".join(hints) or install_hint,
    )


def reject_exposed_secrets(world: World, name: str, config: dict[str, str]) -> None:
    """Reject a configuration that could show a secret, before anything is sent.

    Connect stores and logs its configurations. It puts the text of a secret in the place of a reference,
    and sends it to the server, which logs users and queries.

    Raises:
        ConnectorError: a key contains a secret in plain text, a key that is no password has a
            reference, or a password is that of another server.
    """
    is_mysql = config.get("connector.class") in MYSQL_CONNECTORS.values()
    own = (world.mysql if is_mysql else world.connect).password_reference
    misplaced = misplaced_references(config, own, {secret.name for secret in world.secrets})
    faults = {
        **dict.fromkeys(misplaced, "refers to a secret that is not for this key"),
        **dict.fromkeys(plaintext_secret_keys(config), "contains a secret as plain text"),
    }
    for key, fault in faults.items():
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


def require_free_slot(name: str, config: dict[str, str], others: dict[str, dict[str, str]]) -> None:
    """Reject a replication slot that another connector reads.

    Debezium would retry without end, and stay RUNNING.

    Args:
        name: name of the connector.
        config: its configuration, with a `slot.name`.
        others: {connector: configuration} of the other connectors.

    Raises:
        ConnectorError: another connector reads the slot.
    """
    keys = ("slot.name", "database.hostname", "database.port")
    for other, other_config in others.items():
        if all(other_config.get(key) == config.get(key) for key in keys):
            raise ConnectorError(
                f"connector {name!r} is rejected; nothing was deployed: "
                f"connector {other!r} reads its replication slot",
                location=f"slot.name: {config['slot.name']}",
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
    database, captured = config.get("database.dbname"), set()
    with contextlib.suppress(SourceError, StackError):
        published = postgres.tables_published_by_partition(world, database)
        tables = published[published["publication"] == publication]["table"]
        for pattern in config.get("table.include.list", "").split(","):
            with contextlib.suppress(re.error):  # Java has expressions that Python lacks
                captured |= {t for t in tables if re.fullmatch(pattern.strip(), t, re.I)}
    if captured:
        raise ConnectorError(
            f"connector {name!r} is rejected; nothing was deployed: publication {publication} "
            f"publishes the changes of {', '.join(sorted(captured))} under the names of the partitions, "
            "and table.include.list would drop them",
            location=f"publication.name: {publication}, database {database}",
            expected="publish_via_partition_root = true",
            hint=f"ALTER PUBLICATION {publication} SET (publish_via_partition_root = true), as "
            "postgres.create_publication does; then apply again. A connector that has run before "
            "has lost changes: after connect.delete and postgres.drop_slot the next one takes a "
            "new snapshot",
        )


def reject_invalid_keys(name: str, config: dict[str, str], problems: dict[str, list[str]]) -> None:
    """Reject a configuration with an error that lists all of its problems, if there are any.

    Args:
        name: name of the connector.
        config: its configuration.
        problems: {key: messages}.

    Raises:
        ConnectorError: there are problems.
    """
    if not problems:
        return
    lines = ""
    for key, messages in problems.items():
        lines += f"\n    {key}: {' '.join(dict.fromkeys(message.strip() for message in messages))}"
    keys = plural(len(problems), "key")
    raise ConnectorError(
        f"connector {name!r} is rejected for {keys}; nothing was deployed{lines}",
        location=config["connector.class"],
        hint=likely_causes(lines) or "correct the keys and apply again",
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


def states(status: Optional[ConnectorStatus]) -> set[str]:
    """Return the states of a connector and of its tasks; NO TASK if it has none.

    Args:
        status: the status of the connector; None, if it does not exist, has no state.
    """
    if status is None:
        return set()
    return {status["state"], *([task["state"] for task in status["tasks"]] or ["NO TASK"])}


def failure_message(name: str, status: Optional[ConnectorStatus]) -> Optional[str]:
    """Return why a connector or one of its tasks is FAILED, None if neither is.

    Args:
        name: name of the connector.
        status: its status, None if it does not exist.
    """
    if status is None:
        return f"there is no connector {name!r}"
    parts: dict[str, PartStatus] = {"it": status}
    for task in status["tasks"]:
        parts[f"its task {task['id']}"] = task
    for subject, part in parts.items():
        if part["state"] == "FAILED":
            causes = likely_causes(part["error"])
            return f"{subject} is FAILED: {part['error']}" + (f"\n  {causes}" if causes else "")
    return None
