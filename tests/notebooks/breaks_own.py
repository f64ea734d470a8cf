"""Breaks for the checks of notebooks 91 to 93; breaking.py describes breaks."""

from breaking import Break, Run

FIVE = ("stations", "bikes", "riders", "trips", "weather")
# the second reader, with which tables are compared, misses a row
SHORTER = """
_read = hudi.read_arrow
hudi.read_arrow = lambda *args, **options: _read(*args, **options).slice(1)"""
WHOLE = "hudi.read_arrow = _read"
# a row of each table that only the lake loses
LOST = """
for _statement in (
    "DELETE FROM bikeshare.stations WHERE name = 'Hafen Square'",
    "DELETE FROM bikeshare.bikes WHERE bike_id = 7",
    "DELETE FROM bikeshare.riders WHERE rider_id = 7",
    "UPDATE bikeshare.trips SET fare = 77.77 WHERE trip_id = 7",
    "DELETE FROM bikeshare.weather WHERE measured_at = timestamp '2025-03-01 06:00:00'",
):
    spark.sql(_statement)"""
CAPTURE = [
    Run(
        Break(
            "captured = own.capture(world, source, *names)",
            SHORTER,
            {
                f"first copy of public.{name} = lake, row by row": "missing"
                for name in FIVE
                if name != "weather"
            },
            undo=WHOLE,
        ),
        Break(
            "rejected, reason =",
            'postgres.execute(at, "ALTER TABLE weather ADD PRIMARY KEY (measured_at, sensor)")',
            {"the table is rejected": "no failure"},
        ),
    ),
    Run(
        Break(
            'key = ("measured_at", "sensor")',
            SHORTER,
            {"first copy of public.weather = lake, row by row": "missing"},
            undo=WHOLE,
        ),
        Break(
            "own.compare(world, source)",
            LOST,
            {
                "public.stations = lake, row by row": "missing in the lake",
                "public.bikes = lake, row by row": "1 missing in the lake",
                "public.riders = lake, row by row": "1 missing in the lake",
                "public.trips = lake, row by row": "77.77",
                "public.weather = lake, row by row": "2025-03-01",
                "rows of each table, by Spark": "bikes",
                "rows of each table, by hudi-rs": "bikes",
                "different keys of each table": "riders",
                "mornings by quarter": "Hafen",
            },
        ),
    ),
    Run(
        Break(
            "moved, in_lake =",
            'MOVE = "UPDATE trips SET rating = 5 WHERE trip_id = %s"',
            {"the trip moved": "trips_2025_01"},
        ),
        Break(
            "in_lake = query.sql(",
            """
_late = "UPDATE trips SET started_at = started_at + interval '1 hour' WHERE trip_id = %s"
postgres.execute(at, _late, [trip])""",
            {"times of the moved trip": "lake"},
        ),
        Break(
            "flow = own.load(world, source)",
            """
_table = own.load(world, source).table(at, "trips")
_rows = hudi.read(spark, _table).where(f"trip_id = {trip}")
_hudi = [c for c in _rows.columns if c.startswith("_hoodie_") and c != "_hoodie_is_deleted"]
_rows = _rows.drop(*_hudi)
_rows = _rows.withColumn("__key", _rows["started_at"].cast("string"))
_rows.write.format("hudi").options(**_table.options()).mode("append").save(_table.base)""",
            {"most rows of a trip": "2", "commits after the repeated capture": "trips"},
            also_red=(
                "rows of each table, by Spark",
                "rows of each table, by hudi-rs",
                "different keys of each table",
                "mornings by quarter",
            ),
        ),
        Break(
            'prefix = f"{own.OWN_PREFIX}{source}."',
            """
_remaining = own.remaining
own.remaining = lambda *args: {**_remaining(*args), "publications": ["bikeshare"]}
from workbench.connect import rest

rest.KafkaConnect(world).call("PUT", f"/connectors/{connector}/pause")
rest.KafkaConnect(world).wait(lambda: rest.validation.states(connect.status(world, connector)) == {"PAUSED"}, "a pause")
topics.create(world, f"own_{source}.public.trips_2025_03")""",
            {
                "names with the prefix": "bikeshare",
                "topics of rows": "trips_2025_03",
                "states of connector and task": "'PAUSED', 'PAUSED'",
            },
            undo='own.remaining = _remaining\ntopics.delete(world, f"own_{source}.public.trips_2025_03")',
        ),
        reset_from="91_capture",
    ),
]
# a label that the table gets after the slider was made
LABELED = """
from workbench.base import files as _files

_path = hudi.labeling._labels_path(world, explore.find(world, name))
_stored = _files.read_text(_path)
hudi.label(world, explore.find(world, name), "late")"""
EXPLORE = [
    Run(
        Break(
            "tables = explore.tables(world)",
            """
import pathlib

_folder = pathlib.Path(explore.find(world, "bikeshare/weather").base.removeprefix("file:"))
_folder.rename(_folder.with_name("hidden"))""",
            {"the bike-share tables are listed": "bikeshare/trips"},
            undo='_folder.with_name("hidden").rename(_folder)',
        ),
        Break(
            "listed = tables.set_index",
            'tables["rows"] = tables["rows"] + 1',
            {"rows in the list": "list"},
            undo='tables["rows"] = tables["rows"] - 1',
        ),
        Break(
            "slider = explore.slider(",
            'where = "artist_id < 100"',
            {
                "rows of the selected frame": "slider",
                "values of the selected frame": "missing in slider",
            },
            undo='where = "true"',
        ),
        Break(
            "an unknown label is rejected",
            "_at, explore.at = explore.at, lambda *args, **kwargs: None",
            {"an unknown label is rejected": "no failure"},
            undo="explore.at = _at",
        ),
        Break(
            "difference = explore.diff(",
            'since, until = "t4", "t5"',
            {"artists added and removed": "299", "changed cells": "299"},
            undo='since, until = "t0", "t4"',
        ),
        Break(
            "until_t5 = explore.diff(",
            '_until, until = until, "t5"',
            {"artists deleted until t5": "299"},
            undo="until = _until",
        ),
        Break(
            "profile = explore.profile(",
            'table, since, until = "bikeshare/trips", "captured", "captured"',
            {"columns of the profile": "trip_id"},
            undo='table, since, until = "artists_mor", "t0", "t4"',
        ),
        Break(
            "%%sql quarters <<",
            "hour = 9",
            {"trips at 8 o'clock by quarter": "Altstadt"},
            undo="hour = 8",
        ),
        Break(
            'check.equal("rows of the selected frame"',
            LABELED,
            {"labels of the slider": "late"},
            undo="_files.write_text(_path, _stored)",
        ),
    )
]
SOURCE = """
def _source(statement):
    postgres.execute(world.source(bikeshare.FLOW), statement)
"""
RELABELED = "UPDATE stations SET attributes = jsonb_set(attributes, '{quarter}', '\"%s\"') WHERE name = 'Hafen Square'"
WET = "UPDATE weather SET rain_mm = rain_mm %s 50 WHERE measured_at = '2025-03-01 06:00+00'"
DASHBOARD = [
    Run(
        Break(
            'times = trips["started_at"]',
            'trips = trips[trips["station"] != "Altstadt Station"]',
            {
                "trips of the charts": "stations",
                "shares of the hours": "chart",
                "trips of each week": "season",
                "trips of the ten busiest stations": "bars",
            },
        ),
        Break(
            'check.equal("mm of rain"',
            SOURCE + f"_source({RELABELED % 'Eßling'!r})\n_source({WET % '+'!r})",
            {"mm of rain": "source", "titles of the pages": "Hafen"},
            undo=f"_source({RELABELED % 'Hafen'!r})\n_source({WET % '-'!r})",
        ),
        parameters={"compare": "Hafen"},
    ),
    Run(
        Break(
            "first_copy = explore.at(",
            """
from workbench import hudi
from workbench.base import files as _files

_trips = explore.find(world, "bikeshare/trips")
_path = hudi.labeling._labels_path(world, _trips)
_stored = _files.read_text(_path)
hudi.label(world, _trips, "captured")
from types import SimpleNamespace

_at = explore.at
_view = _at(world, "bikeshare/trips", "captured")
explore.at = lambda *args: SimpleNamespace(rows=_view.rows[1:], changed=_view.changed)""",
            {
                "trips of the first copy": "17000",
                "cells that changed before": "seen 0",
            },
            undo="_files.write_text(_path, _stored)\nexplore.at = _at",
        ),
        Break(
            "trips = explore.sql(",
            'filters["first"] = Timestamp("2025-07-01")',
            {"trips of the page": "≠", "readings of rain": "≠"},
            also_red=("trips of each week",),
        ),
        parameters={"compare": ""},
    ),
]
BREAKS = {"91_capture": CAPTURE, "92_explore": EXPLORE, "93_dashboard": DASHBOARD}
