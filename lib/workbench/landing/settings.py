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

SUPPORTED = yaml.safe_load(Path(__file__).with_name("settings.yaml").read_text(encoding="utf-8"))
CLASS_KEYS = {
    "sink": "connector.class",
    "source": "connector.class",
    "transform": "type",
    "kcql": "SELECT",
}
USE_CONNECTOR_HINT, REMOVE_HINT = (
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

    config: dict[str, str]
    location: str
    prefix: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def error_for(self, key: str, expected: str, hint: str = "") -> ConnectorError:
        """The error that says what a setting is, and what was expected."""
        what = f"is {self.config[key]!r}" if key in self.config else "is missing"
        return ConnectorError(
            f"{self.prefix}{key} {what}", location=self.location, expected=expected, hint=hint
        )

    def parse_with(self, key: str, make: Callable[[str], Any], expected: str) -> Any:
        """What a function makes of a setting. Raises: ConnectorError: the function has refused
        it.
        """
        try:
            return make(self[key])
        except (ValueError, KeyError, OSError, re.error) as e:
            raise self.error_for(key, f"{expected} ({e})") from e


def validate(kind: str, given: dict[str, str], where: str, prefix: str = "") -> Settings:
    """Check the settings of a plugin, and fill in those that are not there.

    Args:
        kind: a part of settings.yaml: "sink", "source", "transform" or "kcql".

    Raises: ConnectorError: a setting is not known or not there, means nothing, or has a value that
        is not honoured.
    """
    settings, plugin = Settings(given, where, prefix), given.get(CLASS_KEYS[kind], "")
    if plugin not in SUPPORTED[kind]:
        raise settings.error_for(
            CLASS_KEYS[kind], did_you_mean(plugin, SUPPORTED[kind]), USE_CONNECTOR_HINT
        )
    rules, flaws = SUPPORTED[kind][plugin]["read"], SUPPORTED[kind][plugin].get("flaws", {})
    known = [*rules, *SUPPORTED[kind][plugin]["passed over"]]
    for key in given:
        if not any(fnmatchcase(key, name) for name in known):
            raise ConnectorError(
                f"{prefix}{key} is not honoured",
                location=where,
                hint=REMOVE_HINT,
                expected=flaws.get(key) or did_you_mean(key, known),
            )
    for key, rule in rules.items():
        other, *values = rule.get("only with", [None])
        idle = other is not None and settings[other] not in values
        if idle and given.get(key):
            raise settings.error_for(
                key, f"nothing: it has no effect with {other}={given.get(other)}", "remove it"
            )
        try:
            settings.values[key] = (
                rule.get("default") if idle else _parse_value(rule, given.get(key))
            )
        except ValueError as e:
            raise settings.error_for(key, str(e), USE_CONNECTOR_HINT) from None
    return settings


def _parse_value(rule: dict[str, Any], text: Optional[str]) -> Any:
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
