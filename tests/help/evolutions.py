"""The changes of a schema that the compatibility matrix asks about, kind by kind, of a table of movies."""
import copy

META = [{"name": "__op", "type": ["null", "string"], "default": None},
        {"name": "__lsn", "type": ["null", "long"], "default": None}]
GENRES = ["drama", "comedy"]


def _field(name, type, **more):
    return {"name": name, "type": type, **more}


def _record(fields):
    return {"type": "record", "name": "Value", "namespace": "m.movies", "fields": [*fields, *META]}


def _genre(*symbols):
    return {"type": "enum", "name": "Genre", "symbols": list(symbols)}


FIELDS = [_field("id", "int"), _field("title", "string"), _field("year", "int"), _field("views", "long"),
          _field("genre", _genre(*GENRES))]
FIRST = _record(FIELDS)


def _changed(name, type):
    return _record([_field(name, type) if f["name"] == name else f for f in copy.deepcopy(FIELDS)])


CHANGES = {
    "add required": _record([*FIELDS, _field("COUNTRY", "string")]),
    "add nullable": _record([*FIELDS, _field("COUNTRY", ["null", "string"], default=None)]),
    "drop": _record([f for f in FIELDS if f["name"] != "title"]),
    "rename": _record([_field("order", "string") if f["name"] == "title" else f for f in FIELDS]),  # a reserved word
    "widen int to long": _changed("year", "long"),
    "narrow long to int": _changed("views", "int"),
    "change int to string": _changed("year", "string"),
    "change order": _record([FIELDS[0], FIELDS[2], FIELDS[1], *FIELDS[3:]]),
    "enum grown": _changed("genre", _genre(*GENRES, "horror")),
}
BOTH = {"change order"}
BACKWARD = BOTH | {"add nullable", "drop", "widen int to long", "enum grown"}  # the new schema reads what was written
FORWARD = BOTH | {"add required", "add nullable", "narrow long to int"}  # the old schema reads what will be
ALLOWED = {"NONE": {*CHANGES}, "BACKWARD": BACKWARD, "FORWARD": FORWARD, "FULL": BACKWARD & FORWARD}


def allowed(change, mode):
    """Whether Avro's rules let a change through, by their text (specification, "Schema Resolution")."""
    return change in ALLOWED[mode.partition("_")[0]]
