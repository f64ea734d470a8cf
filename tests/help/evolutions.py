"""The changes of a schema that the compatibility matrix asks about, kind by kind, of a table of
movies."""

from workbench.walkthroughs import movies

FIRST, CHANGES = movies.schema_changes()
BOTH = {"change order"}
BACKWARD = BOTH | {
    "add nullable",
    "drop",
    "widen int to long",
    "enum grown",
}  # the new schema reads what was written
FORWARD = BOTH | {
    "add required",
    "add nullable",
    "narrow long to int",
}  # the old schema reads what will be
ALLOWED = {"NONE": {*CHANGES}, "BACKWARD": BACKWARD, "FORWARD": FORWARD, "FULL": BACKWARD & FORWARD}


def is_allowed(change, mode):
    """Whether Avro's rules let a change through, by their text (specification, "Schema
    Resolution")."""
    return change in ALLOWED[mode.partition("_")[0]]
