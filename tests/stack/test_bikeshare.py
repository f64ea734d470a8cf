"""The bike-share database on a real PostgreSQL: the same rows in each load, its types, its changes."""

import psycopg
import pytest
from workbench import own
from workbench.base.errors import SourceError
from workbench.source import postgres
from workbench.tracks import bikeshare, pagila

COUNTS = {"stations": 60, "bikes": 480, "riders": 1700, "trips": 17000, "weather": 1460}
DATABASE = bikeshare.loader.database
# all rows of a table as one text; times are shown in UTC
DIGEST = """
    SELECT md5(string_agg(row_text, chr(10) ORDER BY row_text)) AS digest
    FROM (SELECT t::text AS row_text FROM {} AS t) AS rows"""


def load(world):
    bikeshare.loader.unload(world)
    return bikeshare.loader.load(world, confirm=lambda question: True, progress=lambda line: None)


def query(world, text):
    return postgres.query(world, text, database=DATABASE)


def digests(world):
    return {table: query(world, DIGEST.format(table)).loc[0, "digest"] for table in COUNTS}


@pytest.fixture(scope="module")
def loaded(world):
    assert load(world) == COUNTS
    yield world
    bikeshare.loader.unload(world)


def set_database(world, setting, value):
    change = f"SET {setting} TO '{value}'" if value else f"RESET {setting}"
    postgres.execute(world, f"ALTER DATABASE {DATABASE} {change}", database=DATABASE)


def test_two_loads_give_the_same_rows_in_any_time_zone(loaded):
    assert sum(COUNTS.values()) == 20_700
    before = digests(loaded)
    assert len(set(before.values())) == len(COUNTS)
    settings = {"timezone": "Asia/Kolkata", "datestyle": "German, DMY"}
    for setting, value in settings.items():
        set_database(loaded, setting, value)
    # the workbench's own sessions set what they need; another one has the database's settings
    with postgres.session(loaded, DATABASE) as session:
        session.execute("RESET TimeZone; RESET DateStyle")
        shown = session.execute("SELECT timestamptz '2025-01-01 00:00+00'::text").fetchone()
    assert shown == ("01.01.2025 05:30:00 IST",)
    assert load(loaded) == COUNTS
    for setting in settings:
        set_database(loaded, setting, None)
    assert digests(loaded) == before
    with pytest.raises(SourceError, match="exists already"):
        bikeshare.loader.load(loaded, confirm=lambda question: True)


def test_all_types_and_no_key(loaded):
    columns = query(
        loaded,
        """SELECT DISTINCT format_type(atttypid, atttypmod) AS type FROM pg_attribute
        WHERE attrelid = ANY (ARRAY['stations', 'bikes', 'riders', 'trips', 'weather']::regclass[])
        AND attnum > 0""",
    )
    assert set(columns["type"]) == {
        *(
            "bigint",
            "integer",
            "smallint",
            "numeric",
            "double precision",
            "boolean",
            "text",
            "bytea",
        ),
        *("date", "timestamp with time zone", "time without time zone", "interval"),
        *("uuid", "point", "jsonb", "text[]", "bike_state", "rider_plan"),
    }
    keyed = query(
        loaded,
        """SELECT relname, relkind FROM pg_class WHERE relname IN ('trips', 'weather')
        AND EXISTS (SELECT FROM pg_index WHERE indrelid = pg_class.oid AND indisprimary)""",
    )
    assert keyed.to_dict("records") == [{"relname": "trips", "relkind": "p"}]


def test_trips_show_rush_hours_a_season_rain_and_popular_stations(loaded):
    hours = query(
        loaded,
        """SELECT extract(hour FROM started_at AT TIME ZONE 'UTC')::int AS hour, count(*) AS trips
        FROM trips WHERE extract(isodow FROM started_at AT TIME ZONE 'UTC') < 6 GROUP BY 1""",
    ).set_index("hour")["trips"]
    assert hours[8] > 3 * hours[10] and hours[17] > 2 * hours[13]
    months = query(
        loaded, "SELECT tableoid::regclass::text AS p, count(*) AS n FROM trips GROUP BY 1"
    )
    months = months.set_index("p")["n"]
    assert months["trips_2025_07"] > 3 * months["trips_2025_01"] and len(months) == 12
    days = query(
        loaded,
        """SELECT rain > 10 AS is_wet, avg(n)::float AS trips
        FROM (SELECT (measured_at AT TIME ZONE 'UTC')::date AS day, sum(rain_mm) AS rain FROM weather
              GROUP BY 1) AS w
        JOIN (SELECT (started_at AT TIME ZONE 'UTC')::date AS day, count(*) AS n FROM trips GROUP BY 1) AS t
        USING (day) WHERE extract(month FROM day) BETWEEN 5 AND 9 GROUP BY 1""",
    ).set_index("is_wet")["trips"]
    assert days[True] < 0.7 * days[False]
    stations = query(
        loaded, "SELECT count(*) AS n FROM trips GROUP BY from_station ORDER BY 1 DESC"
    )
    assert stations["n"].head(10).sum() > 17_000 / 3


def test_trips_are_consistent(loaded):
    wrong = query(
        loaded,
        """SELECT trip_id FROM trips JOIN riders USING (rider_id) JOIN bikes USING (bike_id)
        WHERE joined_at > started_at OR bought > started_at OR ended_at - started_at <> duration
        OR duration <= interval '0' OR fare < 0 OR distance_km <= 0""",
    )
    assert wrong.empty
    assert query(loaded, "SELECT max(trip_id) - count(*) AS n FROM trips").loc[0, "n"] == 0


def test_changes_continue_the_ids(loaded):
    """A sequence is not rolled back, so this test comes before the next one."""
    with postgres.session(loaded, DATABASE) as c, c.transaction(force_rollback=True):
        new_trip = "INSERT INTO trips (started_at, bike_id, rider_id, from_station) SELECT now(), 1, 1, station_id FROM stations LIMIT 1 RETURNING trip_id"
        assert c.execute(new_trip).fetchone() == (17_001,)


def test_each_kind_of_change_changes_rows_and_trips_change_their_partition(loaded):
    changed = {}
    with postgres.session(loaded, DATABASE) as c, c.transaction(force_rollback=True):
        for transaction in pagila.random_changes(36, 2_000, path=bikeshare.CHANGES):
            for statement, values in transaction:
                rows = c.execute(statement, values).rowcount
                assert rows <= 1, statement
                changed[statement] = changed.get(statement, 0) + rows
        assert min(changed.values()) > 0 and len(changed) == 21, changed
        moved = c.execute(
            "SELECT count(*) FROM trips WHERE trip_id <= 17000 AND started_at > '2026-01-01 00:00+00'"
        ).fetchone()[0]
    assert moved > 0
    published = "CREATE PUBLICATION p FOR TABLE weather"
    with postgres.session(loaded, DATABASE) as c, c.transaction(force_rollback=True):
        c.execute(published)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="replica identity"):
            c.execute("UPDATE weather SET temperature = 0")


@pytest.mark.drill
def test_after_500_changes_the_lake_tables_equal_the_source(loaded):
    """All types, a partitioned table with a timestamp in its key, and a table without key."""
    from workbench import stack

    stack.ensure_running(loaded, "apicurio")
    assert load(loaded) == COUNTS
    try:
        own.capture(loaded, "bikeshare", *bikeshare.KEYED)
        postgres.execute(loaded, "ALTER TABLE weather REPLICA IDENTITY FULL", database=DATABASE)
        own.capture(loaded, "bikeshare", "weather", key=("measured_at", "sensor"))
        changes = list(pagila.random_changes(36, 500, path=bikeshare.CHANGES))
        with postgres.session(loaded, DATABASE) as connection:
            changed = pagila.apply(connection, changes)
        assert set(changed) == set(COUNTS) and min(changed.values()) > 10
        counts = own.follow(loaded, "bikeshare")
        assert sum(count.messages for count in counts.values()) >= sum(changed.values())
        own.compare(loaded, "bikeshare")
    finally:
        own.forget(loaded, "bikeshare")
    assert "bikeshare" not in own.names(loaded)
