"""Typed settings of connectors and of their transforms, parsed from a connector's JSON.

`Settings` is the base of the pydantic models in models.py. `ConnectorConfig.parse` validates a JSON by
such a model. Its errors name the setting and what was expected.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Mapping, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    Json,
    StrictBool,
    ValidationError,
)
from pydantic.fields import FieldInfo

from ..base import ConnectorError, did_you_mean

S = TypeVar("S", bound="Settings")
T = TypeVar("T")
USE_CONNECTOR_HINT = "other values are supported only by the connector itself, in Kafka Connect"
REMOVE_HINT = "remove the setting, or run the connector in Kafka Connect"


class Settings(
    BaseModel,
    frozen=True,
    extra="forbid",
    alias_generator=lambda name: name.replace("_", "."),
    use_attribute_docstrings=True,
):
    """The settings of a connector or a transform: the field `flush_size` is the setting `flush.size`.

    The docstring of a field describes the valid values, for errors and for docs/settings.md. A field with
    a fixed set of values needs none. The docstring of an `Ignored` field is the reason.

    Attributes:
        SECTIONS: prefixes of settings without an effect, and of those that other models have.
        REJECTED: settings of published connectors that the plugin does not have, {name: reason}.
    """

    SECTIONS: ClassVar[tuple[str, ...]] = ()
    REJECTED: ClassVar[dict[str, str]] = {}


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

    def parse(self, model: type[S], prefix: str = "") -> S:
        """Return the settings whose names have a prefix, parsed by a model.

        Args:
            model: the model.
            prefix: prefix of the names, which the model's fields lack.

        Raises:
            ConnectorError: a setting is unknown, missing or without effect, or its value is not
                supported.
        """
        other = tuple(prefix + section for section in model.SECTIONS)
        own_values = {
            key[len(prefix) :]: text
            for key, text in self.values.items()
            if key.startswith(prefix) and not key.startswith(other)
        }
        try:
            return model.model_validate(own_values)
        except ValidationError as e:
            fields = {str(field.alias): field for field in model.model_fields.values()}
            # an unknown setting first: it may be the misspelled name of a missing one
            problem = min(e.errors(), key=lambda error: error["type"] != "extra_forbidden")
            key = str(problem["loc"][0])
            if key not in fields:
                expected = model.REJECTED.get(key) or did_you_mean(key, fields)
                raise self.error(prefix + key, expected, REMOVE_HINT, "is not supported") from None
            expected = valid_values(fields[key], own_values.get(key, ""))
            if problem["type"] == "value_error":
                expected += f" ({problem['ctx']['error']})"
            raise self.error(prefix + key, expected, USE_CONNECTOR_HINT) from None


def valid_values(field: FieldInfo, text: str = "") -> str:
    """Return the valid values of a setting, with a suggestion if they are a fixed set."""
    choices = [choice for choice in get_args(field.annotation) if isinstance(choice, str)]
    return did_you_mean(text, choices) if choices else field.description or "a text"


def split_list(text: str) -> list[str]:
    """Return the names in a comma-separated text, without duplicates."""
    names = [name.strip() for name in text.split(",")]
    return list(dict.fromkeys(name for name in names if name))


List = Annotated[tuple[T, ...], BeforeValidator(split_list)]
Text = Annotated[str, Field(min_length=1)]
Ignored = Annotated[str, Field("", exclude=True)]  # accepted, without an effect
Boolean = Annotated[Json[StrictBool], Field(description="true or false")]


def _whole_number(text: Any) -> int:
    """Read a number as Kafka does, by Java's `Integer.parseInt`."""
    if not re.fullmatch("-?[0-9]+", str(text)):
        raise ValueError("a whole number")
    return int(text)


Integer = Annotated[int, BeforeValidator(_whole_number)]
PositiveInteger = Annotated[Integer, Field(ge=1, description="a whole number from 1")]
