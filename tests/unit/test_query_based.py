"""The query-based walkthrough's declaration; what needs services is in tests/notebooks."""
import pytest
from workbench import connect, landing, walkthroughs
from workbench.base import params
from workbench.landing import sources
from workbench.walkthroughs import log_based, query_based


@pytest.fixture
def world():
    return params.load("local")


def test_each_pair_has_its_topics_and_no_other_pairs(world):
    topics = [*query_based.POLLED.values(), query_based.ALT, query_based.QUERY,
              *(log_based.flow.topic(world, name) for name in log_based.flow.names)]
    for (source, sink), ours in zip(query_based.PAIRS, (topics[:3], topics[3:4], topics[4:5])):
        polled = sources.parse(connect.config(world, source), world)
        assert [polled.topic + table.rpartition(".")[2] for table in polled.tables] == ours
        assert landing.parse(connect.config(world, sink), world).matching(topics) == ours


def test_both_walkthroughs_on_pagila_are_loaded_by_name_into_their_own_databases():
    loaders = walkthroughs.LOADERS
    assert {name: loaders[name].database for name in ("pagila", "pagila_polled")} == {
        "pagila": "pagila", "pagila_polled": "pagila_polled"}
    assert query_based.flow.databases != log_based.flow.databases, "a reset drops its own tables of the catalog"
