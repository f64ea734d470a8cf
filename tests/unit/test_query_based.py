"""The query-based walkthrough's declaration; what needs services is in tests/notebooks."""

import pytest
from workbench import connect, landing, tracks
from workbench.base import params
from workbench.base.errors import LakeError
from workbench.flow import flow as flows
from workbench.landing import sources
from workbench.tracks import log_based, query_based


@pytest.fixture
def world():
    return params.load("local")


def test_each_pair_has_its_topics_and_no_other_pairs(world):
    topics = [
        *query_based.POLLED_TOPICS.values(),
        query_based.ALT_TOPIC,
        query_based.QUERY_TOPIC,
        *(log_based.flow.topic(world, name) for name in log_based.flow.names),
    ]
    for (source, sink), ours in zip(query_based.PAIRS, (topics[:3], topics[3:4], topics[4:5])):
        config = connect.config(world, source)
        assert [
            sources.topic_name(config, table) for table in sources.parse(config, world).tables
        ] == ours
        assert landing.parse(connect.config(world, sink), world).matching_topics(topics) == ours


def test_a_table_may_be_polled_several_times(world):
    """Each by its own name, connectors and topic; what is told of the source is that of the
    table."""
    flow = query_based.flow
    assert [flow.topic(world, name) for name in flow.names] == [
        *query_based.POLLED_TOPICS.values(),
        query_based.ALT_TOPIC,
        query_based.QUERY_TOPIC,
    ]
    assert (
        flow.landing_folder(world, "query")
        == f"{world.lake.landing}/topics/{query_based.QUERY_TOPIC}"
    )
    assert flow.deployed_connectors == [
        *query_based.SOURCES,
        *query_based.SINKS,
    ] and log_based.flow.deployed_connectors == ["pagila_source"]
    assert query_based.TRACK.resources.topics(world) >= {
        *query_based.POLLED_TOPICS.values(),
        query_based.ALT_TOPIC,
        query_based.QUERY_TOPIC,
    }


def test_what_is_polled_is_not_traced(world):
    with pytest.raises(LakeError, match="address cannot be traced: the table is polled"):
        tracks.traced_table(world, "address")


def test_polled_connectors_work_once_when_they_are_deployed(world, monkeypatch):
    """Sources and sinks, each with its own configuration, and all topics are waited for."""
    did = []
    monkeypatch.setattr(
        flows.landing,
        "apply",
        lambda world, name, config: did.append(
            (name, config["topic.prefix"]) if "source" in name else name
        ),
    )
    monkeypatch.setattr(
        flows.landing, "run_once", lambda world, *names: did.append(("step", *names))
    )
    monkeypatch.setattr(flows.CaptureFlow, "count", lambda self, world, name: 7)
    monkeypatch.setattr(flows.topics, "wait_for_messages", lambda world, topic, n, connector: n)
    assert query_based.flow.deploy(world) == dict.fromkeys(
        [*query_based.POLLED_TOPICS.values(), query_based.ALT_TOPIC, query_based.QUERY_TOPIC], 7
    )
    prefixes = ("pagila.public.", "pagila.public.alt.", "pagila.query")
    assert did == [
        *zip(query_based.SOURCES, prefixes),
        *query_based.SINKS,
        ("step", *query_based.flow.deployed_connectors),
    ]


def test_both_walkthroughs_on_pagila_are_loaded_into_their_own_databases(world):
    asked = []
    for loader in (log_based.flow.loader, query_based.flow.loader):
        assert (
            loader.load(world, confirm=lambda question: asked.append(question)) == {}
        )  # None: not confirmed
        assert f"in {loader.database} on" in asked[-1]
    assert (log_based.flow.loader.database, query_based.flow.loader.database) == (
        "pagila",
        "pagila_polled",
    )
    assert query_based.TRACK.owns.databases != log_based.TRACK.owns.databases, (
        "a reset drops its own tables of the catalog"
    )
