"""The settings of connectors: what is honoured, what is refused, and how; and settings.yaml keeps its rules."""

import json
import re
import runpy

import pytest
from workbench import connect
from workbench.base import params, paths
from workbench.base.errors import ConnectorError
from workbench.landing.settings import SUPPORTED, ConnectorConfig

FROM_0 = {"pattern": "[0-9]+", "is": "a whole number from 0"}
FRUIT = {
    "connector.class": {"default": ""},
    "kind": {"default": "a.Apple"},
    "names": {"default": "", "names": True, "pattern": r"\w+", "is": "names"},
    "size": {"one of": ["big", "small"]},
    "ripe": {"default": "true", "one of": ["true", "false"]},
    "note": {"is": "a text"},
    "label": {"no effect": "fruit is sold without"},
    "colour": {"rejected": "fruit has none"},
    "kind.": {"no effect": "it is of the kind"},
    "key.": {"no effect": "no key is stored"},
}
KINDS = {"a.Apple": {"worms": FROM_0}, "a.Pear": {}}
GOOD = {"connector.class": "Fruit", "kind.worms": "3", "size": "big", "note": "x\ny"}


def read(**change):
    given = {key.replace("_", "."): value for key, value in change.items()}
    config = ConnectorConfig({k: v for k, v in {**GOOD, **given}.items() if v is not None}, "here")
    fruit = config.parse(config.choose("connector.class", {"Fruit": FRUIT}))
    return fruit, config.parse(config.choose("kind", KINDS, "a.Apple"), "kind.")


def test_values_and_defaults():
    values = {"connector.class": "Fruit", "kind": "a.Apple", "size": "big", "note": "x\ny"}
    assert read(label="x") == ({**values, "names": "", "ripe": "true"}, {"worms": "3"})
    fruit, kind = read(kind="a.Pear", kind_worms=None, names="a, b,,a", key_x="1", ripe="false")
    assert (fruit["names"], fruit["ripe"], kind) == ("a, b,,a", "false", {})


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
        ({"kind_worms": "1_000"}, "kind.worms is '1_000'"),
        ({"kind_worms": "3.0"}, "kind.worms is '3.0'"),
        ({"ripe": "maybe"}, "ripe is 'maybe'.*true, false|false, true"),
        ({"kind": "a.Pear"}, "kind.worms is not supported.*remove the setting"),
        ({"kind": "a.Peer"}, "kind is 'a.Peer'.*did you mean 'a.Pear'"),
        ({"names": "a, b c"}, "names is 'a, b c'.*expected: +names"),
        ({"note": ""}, "note is ''.*a text"),
        ({"note": None}, "note is missing.*a text"),
    ],
)
def test_what_is_refused(change, says):
    with pytest.raises(ConnectorError, match="(?s)" + says):
        read(**change)


def supported():
    """Yield (name, rules) of all settings."""
    for part in ("sinks", "sources"):
        for by_converter in SUPPORTED[part].values():
            for model in by_converter.values():
                yield from model["settings"].items()
    for model in SUPPORTED["transforms"].values():
        yield from model["settings"].items()


def test_each_rule_is_one_that_the_file_explains_and_each_default_is_valid():
    valid = {"default", "one of", "pattern", "names", "is", "no effect", "rejected"}
    for name, rules in supported():
        assert rules.keys() <= valid, name
        assert not rules.keys() & {"no effect", "rejected"} or len(rules) == 1, name
        assert "is" in rules or "pattern" not in rules, f"{name} has to say what is valid"
        if "default" in rules and not rules.get("names"):
            config = ConnectorConfig({}, "here")
            assert config.parse({name: rules}) == {name: rules["default"]}


# --- docs/settings.md, docs/settings.schema.json

listed = runpy.run_path(str(paths.ROOT / ".ci" / "list_settings.py"))


def test_the_page_and_the_schema_are_current():
    for path, text in listed["files"]().items():
        assert path.read_text(encoding="utf-8") == text, f"run .ci/list_settings.py: {path}"


def test_the_page_has_exactly_the_supported_settings_and_each_reason():
    page = listed["PAGE"].read_text(encoding="utf-8")
    rows = {*re.findall(r"^\| `([^`*]+)\*?` \|", page, re.M)}
    accepted = {name for name, rules in supported() if "rejected" not in rules}
    assert rows == accepted - {"transforms."}, "its settings have a section of their own"
    for name, rules in supported():
        reason = rules.get("no effect") or rules.get("rejected", "")
        assert name == "transforms." or (f"`{name}" in page and reason in page)


def test_the_schema_accepts_our_connectors_and_refuses_what_they_do_not_have():
    import jsonschema

    schema = json.loads(listed["SCHEMA"].read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    world, seen = params.load("local"), set()
    classes = {*SUPPORTED["sinks"], *SUPPORTED["sources"]}
    for path in sorted(connect.CONNECTORS_DIR.glob("*.json")):
        config = json.loads(path.read_text(encoding="utf-8"))
        if config["connector.class"] in classes:
            config = connect.config(world, path.stem)
            assert not [*validator.iter_errors(config)], path
            assert [*validator.iter_errors({**config, "flush.sise": "3"})]
            assert [*validator.iter_errors({**config, "connector.class": "x"})]
            seen.add(config["connector.class"])
    assert seen == classes
