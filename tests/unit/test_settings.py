"""The base of the models of settings: what is honoured, what is refused, and how; and all models keep
its rules."""

import json
import re
import runpy
from typing import Annotated, Literal, get_args

import pytest
from pydantic import Field
from workbench import connect
from workbench.base import params, paths
from workbench.base.errors import ConnectorError
from workbench.landing import models
from workbench.landing.settings import (
    Boolean,
    ConnectorConfig,
    Ignored,
    Integer,
    List,
    PositiveInteger,
    Settings,
    Text,
    valid_values,
)


class Fruit(Settings):
    connector_class: str = ""
    kind: str = "a.Apple"
    names: List[Annotated[str, Field(pattern=r"^\w+$")]] = ()
    """names"""
    size: Literal["big", "small"]
    ripe: Boolean = True
    weight: PositiveInteger = 1
    note: Text
    """a text"""
    label: Ignored
    """fruit is sold without"""
    REJECTED = {"colour": "fruit has none"}
    SECTIONS = ("kind.", "key.")


class Apple(Settings):
    worms: Integer = Field(ge=0)
    """a whole number from 0"""


class Pear(Settings):
    """Has no settings."""


GOOD = {"connector.class": "Fruit", "kind.worms": "3", "size": "big", "note": "x\ny"}


def read(**change):
    given = {key.replace("_", "."): value for key, value in change.items()}
    config = ConnectorConfig({k: v for k, v in {**GOOD, **given}.items() if v is not None}, "here")
    fruit = config.parse(config.choose("connector.class", {"Fruit": Fruit}))
    kinds = {"a.Apple": Apple, "a.Pear": Pear}
    return fruit, config.parse(config.choose("kind", kinds, "a.Apple"), "kind.")


def test_values_and_defaults():
    assert read() == (
        Fruit.model_construct(
            connector_class="Fruit",
            kind="a.Apple",
            names=(),
            size="big",
            ripe=True,
            weight=1,
            note="x\ny",
            label="",
        ),
        Apple.model_construct(worms=3),
    )
    fruit, kind = read(
        kind="a.Pear", kind_worms=None, names="a, b,,a", key_x="1", ripe="false", weight="12"
    )
    assert (fruit.names, fruit.ripe, fruit.weight, kind) == (("a", "b"), False, 12, Pear())


@pytest.mark.parametrize(
    "change, says",
    [
        ({"connector_class": None}, "connector.class is missing.*valid: Fruit"),
        (
            {"sise": "big"},
            "sise is not supported.*here.*did you mean 'size'.*remove the setting",
        ),
        ({"sise": "big", "size": None}, "sise is not supported.*did you mean 'size'"),
        ({"keys": "1"}, "keys is not supported"),
        ({"colour": "red"}, "colour is not supported.*fruit has none"),
        ({"size": None}, "size is missing.*big, small.*in Kafka Connect"),
        ({"size": "bigg"}, "size is 'bigg'.*did you mean 'big'"),
        ({"kind_worms": None}, "kind.worms is missing.*a whole number from 0"),
        ({"kind_worms": "-1"}, "kind.worms is '-1'.*from 0"),
        ({"kind_worms": "\u00b2"}, "kind.worms is"),
        ({"kind_worms": ""}, "kind.worms is ''"),
        ({"weight": "0"}, "weight is '0'.*a whole number from 1"),
        ({"weight": "1_000"}, "weight is '1_000'"),
        ({"weight": "3.0"}, "weight is '3.0'"),
        ({"weight": "true"}, "weight is 'true'"),
        ({"ripe": "maybe"}, "ripe is 'maybe'.*true or false"),
        ({"ripe": "1"}, "ripe is '1'"),
        ({"kind": "a.Pear"}, "kind.worms is not supported.*remove the setting"),
        ({"kind": "a.Peer"}, "kind is 'a.Peer'.*did you mean 'a.Pear'"),
        ({"names": "a, b c"}, "names is 'a, b c'.*expected: +names"),
        ({"note": ""}, "note is ''.*a text"),
    ],
)
def test_what_is_refused(change, says):
    with pytest.raises(ConnectorError, match="(?s)" + says):
        read(**change)


def all_models(base=Settings):
    for model in base.__subclasses__():
        if model.__module__ == models.__name__:
            yield model
            yield from all_models(model)


def test_the_models_tell_what_they_expect_and_why_they_ignore():
    seen = {*all_models()}
    assert {models.ConfluentSink, models.JdbcSource, models.InsertField} <= seen
    for model in seen:
        assert model.model_config["extra"] == "forbid" and model.__doc__
        for name, field in model.model_fields.items():
            is_free_text = field.annotation is str and not field.metadata
            assert valid_values(field) or (is_free_text and not field.exclude), (model, name)


def test_each_default_is_a_value_that_the_setting_may_have():
    for model in {*all_models()}:
        for name, field in model.model_fields.items():
            choices = [choice for choice in get_args(field.annotation) if isinstance(choice, str)]
            assert field.is_required() or not choices or field.default in choices, (model, name)


# --- docs/settings.md, docs/settings.schema.json

listed = runpy.run_path(str(paths.ROOT / ".ci" / "list_settings.py"))


def test_the_page_and_the_schema_are_current():
    for path, text in listed["files"]().items():
        assert path.read_text(encoding="utf-8") == text, f"run .ci/list_settings.py: {path}"


def test_the_page_names_each_setting_and_each_reason():
    page = listed["PAGE"].read_text(encoding="utf-8")
    for model in all_models():
        for field in model.model_fields.values():
            assert re.search(rf"`[\w.]*{re.escape(field.alias)}`", page), (model, field.alias)
            if field.exclude:
                assert f"no effect: {field.description}" in page, (model, field.alias)
        for name, reason in model.REJECTED.items():
            assert f"`{name}`" in page and reason in page


def test_the_schema_accepts_our_connectors_and_refuses_what_they_do_not_have():
    import jsonschema

    schema = json.loads(listed["SCHEMA"].read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    world, seen = params.load("local"), set()
    for path in sorted(connect.CONNECTORS_DIR.glob("*.json")):
        config = json.loads(path.read_text(encoding="utf-8"))
        if config["connector.class"] in {**models.SINKS, **models.SOURCES}:
            config = connect.config(world, path.stem)
            assert not [*validator.iter_errors(config)], path
            assert [*validator.iter_errors({**config, "flush.sise": "3"})]
            assert [*validator.iter_errors({**config, "connector.class": "x"})]
            seen.add(config["connector.class"])
    assert seen == {*models.SINKS, *models.SOURCES}


def test_a_setting_on_the_page_is_one_of_a_model():
    page = listed["PAGE"].read_text(encoding="utf-8")
    names = {field.alias for model in all_models() for field in model.model_fields.values()}
    assert {*re.findall(r"^\| `([^`]+)` \|", page, re.M)} <= names
