"""Validation of the settings of connectors and transforms by settings.yaml."""

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Callable, Optional

from ..base import ConnectorError, did_you_mean, yaml_files

SUPPORTED = yaml_files.load(Path(__file__).with_name("settings.yaml"))
CLASS_KEYS = {
    "sink": "connector.class",
    "source": "connector.class",
    "transform": "type",
    "kcql": "SELECT",
}
USE_CONNECTOR_HINT = "other values are supported only by the connector itself, in Kafka Connect"
REMOVE_HINT = "remove the setting, or run the connector in Kafka Connect"


@dataclass(frozen=True)
class Settings:
    """Validated settings of a connector, a transform or a KCQL statement.

    `settings["flush.size"]` is the parsed value: a whole number, a list of names, a text, or the name
    that settings.yaml gives to a value. A missing setting has its default, or None without one.

    Attributes:
        config: the JSON, for a transform the settings of this transform.
        location: the connector, for errors.
        prefix: prefix of the names of the settings, for errors.
        values: {name: parsed value}.
    """

    config: dict[str, str]
    location: str
    prefix: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Any:
        """Return the parsed value of a setting."""
        return self.values[key]

    def error_for(self, key: str, expected: str, hint: str = "") -> ConnectorError:
        """Return the error for a setting, with its value and the expected value."""
        value = f"is {self.config[key]!r}" if key in self.config else "is missing"
        return ConnectorError(
            f"{self.prefix}{key} {value}", location=self.location, expected=expected, hint=hint
        )

    def parse_with(self, key: str, parse: Callable[[str], Any], expected: str) -> Any:
        """Return the result of a function for the value of a setting.

        Raises:
            ConnectorError: the function rejects the value.
        """
        try:
            return parse(self[key])
        except (ValueError, KeyError, OSError, re.error) as e:
            raise self.error_for(key, f"{expected} ({e})") from e


def validate(kind: str, config: dict[str, str], location: str, prefix: str = "") -> Settings:
    """Check the settings of a plugin, and add the defaults.

    Args:
        kind: a section of settings.yaml: "sink", "source", "transform" or "kcql".
        config: the settings.
        location: the connector, for errors.
        prefix: prefix of the names of the settings, for errors.

    Raises:
        ConnectorError: a setting is unknown, missing or without effect, or its value is not
            supported.
    """
    settings = Settings(config, location, prefix)
    plugin, plugins = config.get(CLASS_KEYS[kind], ""), SUPPORTED[kind]
    if plugin not in plugins:
        raise settings.error_for(
            CLASS_KEYS[kind], did_you_mean(plugin, plugins), USE_CONNECTOR_HINT
        )
    rules = plugins[plugin]["settings"]
    allowed = [*rules, *plugins[plugin]["ignored"]]
    mistakes = plugins[plugin].get("known_mistakes", {})
    for key in config:
        if not any(fnmatchcase(key, pattern) for pattern in allowed):
            raise ConnectorError(
                f"{prefix}{key} is not supported",
                location=location,
                expected=mistakes.get(key) or did_you_mean(key, allowed),
                hint=REMOVE_HINT,
            )
    for key, rule in rules.items():
        if not _has_effect(rule, settings):
            if config.get(key):
                required = rule["requires"][0]
                raise settings.error_for(
                    key,
                    f"no value: the setting has no effect with {required}={config.get(required)}",
                    "remove the setting",
                )
            settings.values[key] = rule.get("default")
            continue
        try:
            settings.values[key] = _parse_value(rule, config.get(key))
        except ValueError as e:
            raise settings.error_for(key, str(e), USE_CONNECTOR_HINT) from None
    return settings


def _has_effect(rule: dict[str, Any], settings: Settings) -> bool:
    if "requires" not in rule:
        return True
    required, *values = rule["requires"]
    return settings[required] in values


def _parse_value(rule: dict[str, Any], text: Optional[str]) -> Any:
    """Return the parsed value of a setting.

    Raises:
        ValueError: the value is not supported. The message describes the expected value.
    """
    if text is None:
        if "default" in rule:
            return rule["default"]
        text = ""
    if "enum" in rule:
        values = rule["enum"]
        if text not in values:
            raise ValueError(did_you_mean(text, values))
        return values[text] if isinstance(values, dict) else text
    if "minimum" in rule:
        if not re.fullmatch(r"-?\d+", text, re.ASCII) or int(text) < rule["minimum"]:
            raise ValueError(f"a whole number from {rule['minimum']}")
        return int(text)
    value = split_list(text) if "list" in rule else text
    parts = value if "list" in rule else [text]
    is_missing = "default" not in rule and not any(parts)
    pattern = re.compile(rule.get("pattern", "(?s).*"))
    if is_missing or not all(map(pattern.fullmatch, parts)):
        raise ValueError(rule["expected"])
    return value


def split_list(text: str) -> list[str]:
    """Return the names in a comma-separated text, without duplicates."""
    names = [name.strip() for name in text.split(",")]
    return list(dict.fromkeys(name for name in names if name))
