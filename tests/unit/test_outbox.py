"""The outbox walkthrough: what its texts say of the published one, and what its runs say of themselves."""
import re

import nbformat
from workbench import connect, outbox, params
from workbench.ingest import Ingested
from workbench.landing import Landed


def test_notebook_12_explains_every_key_that_differs_from_the_published_configuration():
    different = outbox.against_published(connect.config(params.load("local"), outbox.CONNECTOR))
    path = params.ROOT / "notebooks" / "10_outbox" / "12_connectors.ipynb"
    (text,) = [c.source for c in nbformat.read(path, as_version=4).cells if c.source.startswith("Why? ")]
    keys = [row.partition("`: ")[0] for row in text.splitlines() if row.startswith("- `")]
    named = {key for row in keys for key in re.findall(r"`([\w.]+)", row)}
    assert named == set(different["key"])
    assert "schema.include" in named and "plugin.name" not in named


def test_address_and_user_are_not_differences():
    assert not any(key.startswith("database.") and key != "database.server.name"
                   for key in outbox.against_published({"database.hostname": "elsewhere"})["key"])


def test_what_a_run_says_of_itself():
    assert str(Landed(messages=830, records=829, dead_letters=1, objects=829)) == (
        "landed 830 messages: 829 files, 829 records, 0 tombstones, 1 dead letter")
    assert str(Ingested(messages=1, upserts=1)) == (
        "ingested 1 message: 1 upsert, 0 deletes, 0 tombstones, 0 dead letters")
    assert str(Landed()) == "landed nothing: no message was new"
