"""Own flows: tables of the user's databases, captured by `workbench capture`.

A flow is a folder params/own/<flow>/ with flow.yaml, which lists the tables, and the JSON of its connector, which
the user may edit. Both are written before anything is created, so an interrupted capture continues when it is
repeated, and `forget` finds everything. Another instance of the stack keeps its flows in its own folder.

The ids of connector, slot, publication and topics begin with own_<flow>. The lake tables are in the catalog
database <flow>. Nothing is written into the user's tables.
"""

from .capturing import capture as capture
from .capturing import register as register
from .comparing import compare as compare
from .files import Declaration as Declaration
from .files import OwnTable as OwnTable
from .files import declaration as declaration
from .files import folder as folder
from .flow import OwnFlow as OwnFlow
from .flow import declarations as declarations
from .flow import describe_slots as describe_slots
from .flow import follow as follow
from .flow import forget as forget
from .flow import load as load
from .flow import load_all as load_all
from .flow import names as names
from .flow import remaining as remaining
