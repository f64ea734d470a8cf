"""The outbox walkthrough: what its runs say of themselves."""

from workbench.hudi.ingesting import Ingested
from workbench.landing import LandingCounts


def test_what_a_run_says_of_itself():
    assert str(LandingCounts(messages=830, records=829, dead_letters=1, objects=829)) == (
        "landed 830 messages: 829 files, 829 records, 0 tombstones, 1 dead letter"
    )
    assert str(Ingested(messages=1, upserts=1)) == (
        "ingested 1 message: 1 upsert, 0 deletes, 0 tombstones, 0 dead letters"
    )
    assert str(LandingCounts()) == "landed nothing: no message was new"
