"""Which settings of connectors, and of the transforms in them, are honoured: settings.yaml says it,
and here a JSON is checked by it.
"""

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Callable, Optional

import yaml

from ..base import ConnectorError, did_you_mean

HONOURED = yaml.safe_load(Path(__file__).with_name("settings.yaml").read_text(encoding="utf-8"))
CLASS = {
    "sink": "connector.class",
    "source": "connector.class",
    "transform": "type",
    "kcql": "SELECT",
}
REAL, REMOVE = (
    "nothing else is honoured here; run the real connector for it",
    "remove it, or run the real connector",
)


@dataclass(frozen=True)
class Settings:
    """Checked settings. `settings["flush.size"]` is a whole number, a list of names, a text, what
    settings.yaml calls it, or the default; None where it means nothing and has no default.

    given: the JSON, of a transform its part. where: the connector, prefix: of the settings' names;
        both for people.
    """

    given: dict[str, str]
    where: str
    prefix: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def refused(self, key: str, expected: str, next_step: str = "") -> ConnectorError:
        """The error that says what a setting is, and what was expected."""
        what = f"is {self.given[key]!r}" if key in self.given else "is missing"
        return ConnectorError(
            f"{self.prefix}{key} {what}", location=self.where, expected=expected, hint=next_step
        )

    def made(self, key: str, make: Callable[[str], Any], expected: str) -> Any:
        """What a function makes of a setting. Raises: ConnectorError: the function has refused
        it.
        """
        try:
            return make(self[key])
        except (ValueError, KeyError, OSError, re.error) as e:
            raise self.refused(key, f"{expected} ({e})") from e


def read(kind: str, given: dict[str, str], where: str, prefix: str = "") -> Settings:
    """Check the settings of a plugin, and fill in those that are not there.

    Args:
        kind: a part of settings.yaml: "sink", "source", "transform" or "kcql".

    Raises: ConnectorError: a setting is not known or not there, means nothing, or has a value that
        is not honoured.
    """
    settings, plugin = Settings(given, where, prefix), given.get(CLASS[kind], "")
    if plugin not in HONOURED[kind]:
        raise settings.refused(CLASS[kind], did_you_mean(plugin, HONOURED[kind]), REAL)
    rules, flaws = HONOURED[kind][plugin]["read"], HONOURED[kind][plugin].get("flaws", {})
    known = [*rules, *HONOURED[kind][plugin]["passed over"]]
    for key in given:
        if not any(fnmatchcase(key, name) for name in known):
            raise ConnectorError(
                f"{prefix}{key} is not honoured",
                location=where,
                hint=REMOVE,
                expected=flaws.get(key) or did_you_mean(key, known),
            )
    for key, rule in rules.items():
        other, *values = rule.get("only with", [None])
        idle = other is not None and settings[other] not in values
        if idle and given.get(key):
            raise settings.refused(
                key, f"nothing: it has no effect with {other}={given.get(other)}", "remove it"
            )
        try:
            settings.values[key] = rule.get("default") if idle else _value(rule, given.get(key))
        except ValueError as e:
            raise settings.refused(key, str(e), REAL) from None
    return settings


def _value(rule: dict[str, Any], text: Optional[str]) -> Any:
    """What a setting says. Raises: ValueError: that is not honoured; it says what is."""
    if text is None and "default" in rule:
        return rule["default"]
    text = text or ""
    if "one of" in rule:
        values = rule["one of"]
        if text not in values:
            raise ValueError(did_you_mean(text, values))
        return values[text] if isinstance(values, dict) else text
    if "number from" in rule:
        if not re.fullmatch(r"-?\d+", text, re.ASCII) or int(text) < rule["number from"]:
            raise ValueError(f"a whole number from {rule['number from']}")
        return int(text)
    parts = (
        list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
        if "list" in rule
        else [text]
    )
    if (
        not any(parts)
        and "default" not in rule
        or not all(re.fullmatch(rule.get("like", "(?s).*"), p) for p in parts)
    ):
        raise ValueError(rule["expected"])
    return parts if "list" in rule else text
