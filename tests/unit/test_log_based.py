"""The log-based walkthrough's declaration and queries; what needs services is in tests/stack and
tests/notebooks."""

import pandas
import pytest
from workbench import connect, landing
from workbench.base import params
from workbench.tracks import log_based

TABLES = ("actor", "film", "film_actor", "category", "film_category", "language")


@pytest.fixture
def world():
    return params.load("local")


def test_both_deployments_differ_by_the_transform_alone(world):
    first, second = (
        connect.config(world, name) for name in (log_based.ENVELOPE_CONNECTOR, log_based.CONNECTOR)
    )
    assert {key: second[key] for key in first} == first
    assert all(key.startswith("transforms") for key in set(second) - set(first))


def test_one_connector_and_one_sink_serve_its_six_tables_and_no_other_topic(world):
    assert log_based.flow.names == TABLES
    topics = [log_based.flow.topic(world, name) for name in TABLES]
    assert topics == [f"pagila.public.{name}" for name in TABLES]
    sink = landing.parse(connect.config(world, log_based.SINK), world)
    assert (
        sink.matching_topics(
            [*topics, "pagila.public.address", "pagila.public.alt.address", "pagila.query"]
        )
        == topics
    )
    assert log_based.flow.landing_folder(world, "film").endswith("/topics/pagila.public.film")


def test_the_latest_state_is_asked_by_key_and_place_and_a_large_value_where_it_was_sent_last(
    world, monkeypatch
):
    columns = {"film": ["film_id", "description"], "film_actor": ["actor_id", "film_id"]}
    monkeypatch.setattr(
        type(log_based.flow),
        "rows",
        lambda self, world, name, where: pandas.DataFrame(columns=columns[name]),
    )
    film, actors = (log_based.latest_sql(name, world) for name in columns)
    assert (
        'PARTITION BY film_id ORDER BY "__lsn" DESC' in film
        and "SELECT film_id, known AS description FROM" in film
    )
    assert "IS DISTINCT FROM '__debezium_unavailable_value'" in film
    assert (
        "PARTITION BY actor_id, film_id ORDER BY" in actors
        and "SELECT actor_id, film_id FROM" in actors
    )
