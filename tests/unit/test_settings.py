"""What settings.yaml says is checked: of each way to say it, what is honoured, what is refused, and
how."""

import pytest
from workbench.base.errors import ConnectorError
from workbench.landing import settings

RULES = {
    "settings": {
        "kind": {"enum": {"a.Apple": "apple", "a.Pear": "pear"}, "default": "apple"},
        "worms": {"minimum": 0, "requires": ["kind", "apple"]},
        "names": {"list": True, "pattern": r"\w+", "expected": "names", "default": []},
        "size": {"enum": ["big", "small"]},
        "note": {"expected": "a text"},
    },
    "ignored": ["connector.class", "key.*"],
    "known_mistakes": {"colour": "fruit has none"},
}
GOOD = {"connector.class": "Fruit", "worms": "3", "size": "big", "note": "x\ny"}


@pytest.fixture(autouse=True)
def fruit(monkeypatch):
    monkeypatch.setitem(settings.SUPPORTED, "sink", {"Fruit": RULES})


def read(**change):
    given = {key.replace("_", "."): value for key, value in change.items()}
    return settings.validate(
        "sink", {k: v for k, v in {**GOOD, **given}.items() if v is not None}, "here", "my "
    )


def test_values_and_defaults():
    assert read().values == {
        "kind": "apple",
        "worms": 3,
        "names": [],
        "size": "big",
        "note": "x\ny",
    }
    assert read(kind="a.Pear", worms=None, names="a, b,,a", key_x="1").values == {
        "kind": "pear",
        "worms": None,
        "names": ["a", "b"],
        "size": "big",
        "note": "x\ny",
    }


@pytest.mark.parametrize(
    "change, says",
    [
        ({"connector_class": None}, "my connector.class is missing.*valid: Fruit"),
        (
            {"sise": "big"},
            "my sise is not supported.*here.*did you mean 'size'.*remove the setting",
        ),
        ({"keys": "1"}, "my keys is not supported"),
        ({"colour": "red"}, "my colour is not supported.*fruit has none"),
        ({"size": None}, "my size is missing.*big, small"),
        ({"size": "bigg"}, "my size is 'bigg'.*did you mean 'big'"),
        ({"worms": None}, "my worms is missing.*a whole number from 0"),
        ({"worms": "-1"}, "my worms is '-1'.*from 0"),
        ({"worms": "\u00b2"}, "my worms is"),
        ({"worms": ""}, "my worms is ''"),
        ({"kind": "a.Pear"}, "my worms is '3'.*no effect with kind=a.Pear.*remove the setting"),
        ({"names": "a, b c"}, "my names is 'a, b c'.*expected: +names"),
        ({"note": ""}, "my note is ''.*a text"),
    ],
)
def test_what_is_refused(change, says):
    with pytest.raises(ConnectorError, match="(?s)" + says):
        read(**change)


def test_the_file_says_nothing_that_is_not_read(monkeypatch):
    monkeypatch.undo()
    for kind, plugins in settings.SUPPORTED.items():
        for name, plugin in plugins.items():
            assert (
                plugin.keys() <= {*RULES, "modes", "types"}
                and settings.CLASS_KEYS[kind] in plugin["ignored"]
            ), name
            above = []
            for key, rule in plugin["settings"].items():
                assert rule.keys() <= {
                    "enum",
                    "minimum",
                    "list",
                    "pattern",
                    "expected",
                    "default",
                    "requires",
                }, key
                assert not rule.get("requires") or rule["requires"][0] in above, key
                assert rule.keys() & {"enum", "minimum", "expected", "default"}, (
                    f"{key}: what is expected?"
                )
                assert "pattern" not in rule or "expected" in rule, key
                above.append(key)
