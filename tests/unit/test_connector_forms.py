"""deploy/connectors.md: the differences between the embedded form of a configuration and that of MSK
Connect."""

import difflib
import json
import re

import on_aws
import pytest
from workbench import connect, landing
from workbench.base import params, paths
from workbench.connect import configs
from worlds import with_settings

pytestmark = pytest.mark.aws

PAGE = paths.ROOT / "deploy" / "connectors.md"
TEXT = PAGE.read_text(encoding="utf-8")
LOCAL, AWS = params.load("local"), on_aws.world()
AIVEN = "Aiven's S3 sink in place of Lenses' or Confluent's"


def lines(config):
    return [f"{key}={value}" for key, value in config.items()]


def difference(one, other, to):
    """How one configuration becomes the other, as a block of the page."""
    found = difflib.unified_diff(lines(one), lines(other), "embedded", to, lineterm="", n=0)
    changed = [line for line in found if not line.startswith("@@")]
    return "\n".join(["```diff", *changed, "```"]) if changed else "Nothing differs."


def form(world, name):
    """A configuration with its placeholders as they are."""
    used = set(
        configs.PLACEHOLDER.findall(
            (connect.CONNECTORS_DIR / f"{name}.json").read_text(encoding="utf-8")
        )
    )
    return connect.config(
        world, name, **{placeholder: f"${{{placeholder}}}" for placeholder in used}
    )


def section(title):
    return re.search(rf"^## {re.escape(title)}\n\n(.*?)(?=^## |\Z)", TEXT, re.S | re.M)[1].strip()


def groups():
    """{what differs: the connectors of which it does}, but for the one whose plugin MSK Connect has
    not"""
    found = {}
    for name in sorted(
        file.stem
        for file in connect.CONNECTORS_DIR.glob("*.json")
        if file.stem not in on_aws.EMBEDDED_ONLY
    ):
        differs = difference(form(LOCAL, name), form(AWS, name), "MSK Connect")
        found.setdefault(differs, []).append(f"`{name}`")
    return found


def test_the_page_shows_what_differs_and_of_which():
    shown = "\n\n".join(f"{', '.join(names)}:\n\n{differs}" for differs, names in groups().items())
    assert section("What differs") == shown, (
        f"deploy/connectors.md, What differs: it has to be\n\n{shown}"
    )


def test_what_the_sinks_are_told_of_glue_is_what_the_landing_honours():
    for name in ("moma_sink", "pagila_sink"):
        assert landing.parse(connect.config(AWS, name), AWS).message_format == "avro"


def test_the_page_knows_all_placeholders_and_no_others():
    assert set(re.findall(r"`\$\{(\w+)\}`", section("What the placeholders become"))) == set(
        connect.placeholders(AWS)
    )


def test_a_configuration_with_aivens_sink_is_shown_beside_ours():
    ours, text = form(LOCAL, "outbox_sink"), section(AIVEN)
    theirs = json.loads(re.search(r"```json\n(.*?)```", text, re.S)[1])
    assert text.endswith(difference(ours, theirs, "Aiven's")), difference(ours, theirs, "Aiven's")
    assert configs.plaintext_secret_keys(theirs) == [] and theirs["topics"] == ours["topics"]
    assert set(configs.PLACEHOLDER.findall("".join(theirs.values()))) <= set(
        connect.placeholders(AWS)
    )


def test_what_differs_between_mariadbs_and_mysqls_connector_is_told():
    text = section("MySQL's connector in place of MariaDB's")
    for kind, connector in configs.MYSQL_CONNECTORS.items():
        assert f"`{connector}`" in text
        world = with_settings(LOCAL, mysql={"engine": kind})
        assert connect.config(world, "movies_source")["connector.class"] == connector
