"""The kinds of schema changes of the compatibility matrix, for a table of movies."""

from workbench.tracks import movies

FIRST, CHANGES = movies.schema_changes()
BOTH = {"change order"}
BACKWARD = BOTH | {
    "add nullable",
    "drop",
    "widen int to long",
    "enum grown",
}  # the new schema reads old records
FORWARD = BOTH | {
    "add required",
    "add nullable",
    "narrow long to int",
}  # the old schema reads new records
ALLOWED = {"NONE": {*CHANGES}, "BACKWARD": BACKWARD, "FORWARD": FORWARD, "FULL": BACKWARD & FORWARD}


def is_allowed(change, mode):
    """Return whether Avro's specification ("Schema Resolution") allows a change in a mode."""
    return change in ALLOWED[mode.partition("_")[0]]
