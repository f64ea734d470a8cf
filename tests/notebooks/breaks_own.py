"""Breaks for the checks of notebooks 91 to 93; breaking.py describes breaks."""

from breaking import Break, Run

FIVE = ("stations", "bikes", "riders", "trips", "weather")
# each table is read without its last row, in the order of its record keys
SHORTER = """
_read = hudi.read


def _shorter(spark, table):
    rows = _read(spark, table)
    return rows.orderBy("_hoodie_record_key").limit(max(0, rows.count() - 1))


hudi.read = _shorter"""
WHOLE = "hudi.read = _read"
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
            "captured = own.capture(world, source, *names)\n",
            SHORTER,
            {
                f"first copy of public.{name} = lake, row by row": "missing"
                for name in FIVE
                if name != "weather"
            },
            undo=WHOLE,
        ),
    ),
    Run(
        Break(
            "rejected, reason =",
            'postgres.execute(at, "ALTER TABLE weather ADD PRIMARY KEY (measured_at, sensor)")',
            {"the table is rejected": "no failure"},
            undo='postgres.execute(at, "ALTER TABLE weather DROP CONSTRAINT weather_pkey")',
        ),
        Break(
            'names.append("weather")',
            SHORTER,
            {"first copy of public.weather = lake, row by row": "missing"},
            undo=WHOLE,
        ),
        Break(
            "own.compare(world, source)",
            LOST,
            {
                "public.stations = lake, row by row": "Hafen",
                "public.bikes = lake, row by row": "bike_id=7",
                "public.riders = lake, row by row": "rider_id=7",
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
            "moved_trips = query.sql",
            "spark.sql(\"DELETE FROM bikeshare.trips WHERE trip_id <= 17000 AND started_at >= timestamp '2026-01-01'\")",
            {"trips with one row": "trips", "the trips that moved": "lake []"},
            also_red=(
                "rows of each table, by Spark",
                "rows of each table, by hudi-rs",
                "different keys of each table",
            ),
        ),
    ),
]
EXPLORE: list[Run] = []
DASHBOARD: list[Run] = []
BREAKS = {"91_capture": CAPTURE, "92_explore": EXPLORE, "93_dashboard": DASHBOARD}
