"""The settings of connectors and of their transforms: settings.yaml has the supported ones.

`ConnectorConfig.parse` validates a connector's JSON by them. Its errors name the setting and what was expected.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, TypeVar

from ..base import ConnectorError, did_you_mean, yaml_files

T = TypeVar("T")
SUPPORTED = yaml_files.load(Path(__file__).with_suffix(".yaml"))
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"  # the default of the embedded worker
USE_CONNECTOR_HINT = "other values are supported only by the connector itself, in Kafka Connect"
REMOVE_HINT = "remove the setting, or run the connector in Kafka Connect"
Setting = dict[str, Any]  # the rules of a setting, as settings.yaml describes them
# {setting without the prefix of its transform: its text, or the default}
Values = dict[str, str]


@dataclass(frozen=True)
class ConnectorConfig:
    """The JSON of a connector.

    Attributes:
        values: {setting: text}.
        location: the connector, for errors.
    """

    values: Mapping[str, str]
    location: str

    def error(self, key: str, expected: str, hint: str = "", problem: str = "") -> ConnectorError:
        """Return the error for a setting; by default the problem is its value, or that it is missing."""
        value = f"is {self.values[key]!r}" if key in self.values else "is missing"
        return ConnectorError(
            f"{key} {problem or value}", location=self.location, expected=expected, hint=hint
        )

    def choose(self, key: str, choices: Mapping[str, T], default: str = "") -> T:
        """Return what a setting chooses.

        Args:
            key: the setting.
            choices: {value of the setting: choice}.
            default: the value if the setting is missing.

        Raises:
            ConnectorError: the setting has another value.
        """
        value = self.values.get(key, default)
        if value not in choices:
            raise self.error(key, did_you_mean(value, choices), USE_CONNECTOR_HINT)
        return choices[value]

    def parse_connector(self, connectors: Mapping[str, Mapping[str, Any]]) -> Values:
        """Return the settings of a connector: {class: {class of the value converter: model}} in settings.yaml."""
        by_converter = self.choose("connector.class", connectors)
        model = self.choose("value.converter", by_converter, JSON_CONVERTER)
        return self.parse(model["settings"])

    def parse(self, supported: Mapping[str, Setting], prefix: str = "") -> Values:
        """Return the settings whose names have a prefix, with their defaults.

        Args:
            supported: {name without the prefix: rules of the setting}.
            prefix: prefix of the names.

        Raises:
            ConnectorError: a setting is unknown, rejected or missing, or its value is not supported.
        """
        sections = tuple(key for key in supported if key.endswith("."))
        own = {
            key[len(prefix) :]: text for key, text in self.values.items() if key.startswith(prefix)
        }
        # an unknown setting first: it may be the misspelled name of a missing one
        for key in own:
            reason = supported.get(key, {}).get("rejected")
            if reason or not (key in supported or key.startswith(sections)):
                valid = [name for name in supported if "rejected" not in supported[name]]
                expected = reason or did_you_mean(key, valid)
                raise self.error(prefix + key, expected, REMOVE_HINT, "is not supported")
        values = {}
        for key, setting in supported.items():
            if setting.keys() & {"no effect", "rejected"}:
                continue
            text: Any = own.get(key, setting.get("default"))
            if type(text) is int:
                text = str(text)
            if not isinstance(text, str) or not _is_valid(setting, text):
                expected = valid_values(setting, str(text or ""))
                raise self.error(prefix + key, expected, USE_CONNECTOR_HINT)
            values[key] = text
        return values


def _is_valid(setting: Setting, text: str) -> bool:
    if "one of" in setting:
        return text in setting["one of"]
    names = split_list(text) if "names" in setting else [text]
    pattern = setting.get("pattern", ".*")
    is_complete = any(names) or "default" in setting
    return is_complete and all(re.fullmatch(pattern, name, re.S) for name in names)


def valid_values(setting: Setting, text: str = "") -> str:
    """Return the valid values of a setting, with a suggestion if they are a fixed set."""
    if "one of" in setting:
        return did_you_mean(text, setting["one of"])
    return str(setting.get("is", "a text"))


def split_list(text: str) -> list[str]:
    """Return the names in a comma-separated text, without duplicates."""
    names = [name.strip() for name in text.split(",")]
    return list(dict.fromkeys(name for name in names if name))
