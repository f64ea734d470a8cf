"""The changes of a schema that the compatibility matrix asks about, kind by kind, of a table of movies."""
import yaml
from workbench.base import ROOT

META = [{"name": "__op", "type": ["null", "string"], "default": None},
        {"name": "__lsn", "type": ["null", "long"], "default": None}]
_KINDS = yaml.safe_load((ROOT / "data" / "movies" / "changes.yaml").read_text(encoding="utf-8"))


def _record(fields):
    return {"type": "record", "name": "Value", "namespace": "m.movies", "fields": [*fields, *META]}


FIRST, CHANGES = _record(_KINDS["first"]), {name: _record(fields) for name, fields in _KINDS["changes"].items()}
BOTH = {"change order"}
BACKWARD = BOTH | {"add nullable", "drop", "widen int to long", "enum grown"}  # the new schema reads what was written
FORWARD = BOTH | {"add required", "add nullable", "narrow long to int"}  # the old schema reads what will be
ALLOWED = {"NONE": {*CHANGES}, "BACKWARD": BACKWARD, "FORWARD": FORWARD, "FULL": BACKWARD & FORWARD}


def allowed(change, mode):
    """Whether Avro's rules let a change through, by their text (specification, "Schema Resolution")."""
    return change in ALLOWED[mode.partition("_")[0]]
