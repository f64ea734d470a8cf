"""Log-based capture without Hudi: what the raw files say of a table's latest state is what the
source has."""

import re

import pytest
from workbench import query, stack, tracks
from workbench.base.errors import CheckFailed
from workbench.checks import check
from workbench.source import postgres
from workbench.topic import topics
from workbench.tracks import log_based, pagila

FLOW, SEED = log_based.flow, 7


def load(world, **more):
    """What notebooks 31 and 32 do, without their looks."""
    stack.ensure_running(world, *log_based.TRACK.services)
    tracks.reset(world, log_based.TRACK)
    FLOW.loader.load(world, confirm=lambda question: True, **more)
    # a null of a column with a default arrives as the default (see below)
    postgres.execute(
        world, "ALTER TABLE film ALTER COLUMN rating DROP DEFAULT", database=FLOW.database
    )
    tables = [f"public.{name}" for name in FLOW.names]
    postgres.create_publication(
        world,
        FLOW.publication,
        tables,
        FLOW.database,
        excluded_columns=["public.film.revenue_projection"],
    )
    postgres.grant_replication(world, tables, FLOW.database)
    FLOW.deploy(world)


@pytest.fixture(scope="module")
def captured(world):
    """The world with a capture that the tests share, in their order."""
    load(world)
    yield world
    tracks.reset(world, log_based.TRACK)


def latest(spark, world, name):
    """The latest state of a table as the raw files have it, all of them landed and in the
    catalog."""
    query.create_table_from_files(
        spark, FLOW.landing_folder(world, name), log_based.catalog_table(name)
    )
    return log_based.latest(spark, world, name)


def as_the_source(spark, world):
    FLOW.land(spark, world)
    for name in FLOW.names:
        check.same_rows(
            FLOW.rows(world, name),
            latest(spark, world, name),
            key=FLOW.capture(name).keys,
            claim=f"{name} out of the raw files = source",
        )


def run(world, transactions):
    """Run them; return {topic: how many messages that makes}."""
    made = {name: FLOW.count(world, name) for name in FLOW.names}
    with postgres.session(world, FLOW.database) as c:
        for transaction in transactions:
            with c.transaction():
                for statement, values in transaction:
                    rows = c.execute(statement, values).rowcount
                    verb, table, column = re.match(
                        r"(?:INSERT INTO|(UPDATE)|(?:DELETE) FROM) (\w+)(?: SET (\w+))?", statement
                    ).groups()
                    # a delete has a tombstone, a new key is a delete and an insert
                    moved = verb and (table, column) == ("film_category", "category_id")
                    made[table] += rows * (
                        3 if moved else 2 if statement.startswith("DELETE") else 1
                    )
    return made


def test_after_5000_random_changes_the_latest_state_is_the_source(captured, spark):
    """Keys of two columns, new keys, keys that come again, large values that an update does not
    touch, enums, lists."""
    as_the_source(spark, captured)
    before = {name: FLOW.rows(captured, name) for name in FLOW.names}
    made = run(captured, pagila.random_changes(SEED, 5_000, FLOW.names))
    for name, count in made.items():
        topics.wait_for_messages(
            captured, FLOW.topic(captured, name), count, connector=log_based.CONNECTOR
        )
    as_the_source(spark, captured)
    assert {
        name: topics.offset_span(captured, FLOW.topic(captured, name)) for name in made
    } == made, "no more than was made"
    for name, rows in before.items():
        with pytest.raises(CheckFailed):
            check.same_rows(
                rows, latest(spark, captured, name), key=FLOW.capture(name).keys
            )  # each was changed
    raw = query.sql(
        spark,
        f"""SELECT count(*) AS n FROM {log_based.catalog_table("film")}
                                WHERE description = '__debezium_unavailable_value'""",
    )  # noqa: S608
    assert raw.loc[0, "n"] > 0, "some update did not touch a large value"


def test_a_column_that_is_added_while_files_are_landed(captured, spark):
    """Its events have a schema of their own, and so have their files; rows that were read before
    have none."""
    FLOW.land(spark, captured)
    postgres.execute(captured, "ALTER TABLE category ADD COLUMN shelf int", database=FLOW.database)
    FLOW.change(captured, "category", 1, shelf=7)
    as_the_source(spark, captured)
    assert latest(spark, captured, "category").set_index("category_id")[
        "shelf"
    ].dropna().to_dict() == {1: 7}


def test_a_truncate_is_not_sent_unless_it_is_asked_for(captured, spark):
    """docs/limits.md says so: Debezium skips it, and the raw files keep every row."""
    as_the_source(spark, captured)
    sent = topics.offset_span(captured, FLOW.topic(captured, "film_actor"))
    postgres.execute(captured, "TRUNCATE film_actor", database=FLOW.database)
    FLOW.execute(
        captured, "film_actor", "INSERT INTO film_actor (actor_id, film_id) VALUES (1, 1)"
    )  # and nothing else
    assert topics.offset_span(captured, FLOW.topic(captured, "film_actor")) == sent + 1
    with pytest.raises(CheckFailed, match="not in source"):
        as_the_source(spark, captured)


def test_a_null_where_the_column_has_a_default_arrives_as_the_default(captured, spark):
    """docs/limits.md says so; it is Apicurio's converter that writes it."""
    postgres.execute(
        captured, "ALTER TABLE film ALTER COLUMN rating SET DEFAULT 'G'", database=FLOW.database
    )
    FLOW.change(captured, "film", 9, rating=None)
    FLOW.land(spark, captured)
    assert latest(spark, captured, "film").set_index("film_id").loc[9, "rating"] == "G"
    assert FLOW.rows(captured, "film", "film_id = 9").loc[0, "rating"] is None


@pytest.mark.drill
def test_one_transaction_of_100_000_rows(world, spark):
    try:
        load(world, scale=100)
        FLOW.execute(world, "film", "UPDATE film SET rental_rate = mod(film_id, 900) / 100.0")
        events = log_based.events(world, "film").query("`__op` == 'u'")
        assert len(events) == FLOW.count(world, "film") == 100_000
        assert events["__source_ts_ms"].nunique() == 1 and events["__lsn"].is_unique, (
            "one time, and as many places"
        )
        as_the_source(spark, world)
    finally:
        tracks.reset(world, log_based.TRACK)
