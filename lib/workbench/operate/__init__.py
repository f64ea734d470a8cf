"""Operation of the captured flows: freshness, lag, retained log, and reconciliation with the source."""

from ..flow.reconciliation import Reconciliation as Reconciliation
from ..flow.reconciliation import last_reconciliation as last_reconciliation
from .lake import pending as pending
from .recapturing import recapture as recapture
from .recapturing import reconcile as reconcile
from .recapturing import resources_to_remove as resources_to_remove
from .watching import Watcher as Watcher
from .watching import frame as frame
from .watching import lines as lines
from .watching import to_json as to_json
from .watching import watch as watch
