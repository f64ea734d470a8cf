"""Own flows: tables of the user's databases, captured by `workbench capture`.

A flow is a folder params/own/<flow>/ with flow.yaml, which lists the tables, and the JSON of its connector, which
the user may edit. Both are written before anything is created, so an interrupted capture continues when it is
repeated, and `forget` finds everything. Another instance of the stack keeps its flows in its own folder.

The ids of connector, slot, publication and topics begin with own_<flow>. The lake tables are in the catalog
database <flow>. Nothing is written into the user's tables.
"""

from ..flow.resources import OWN_PREFIX
from .capturing import capture, recapture
from .comparing import compare
from .files import Declaration, OwnTable, declaration, folder
from .flow import (
    OwnFlow,
    declarations,
    describe_slots,
    forget,
    load,
    load_all,
    names,
    remaining,
)
from .following import follow
