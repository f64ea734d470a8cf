"""Operation of the captured flows: freshness, lag, retained log, and reconciliation with the source."""

from ..flow.reconciliation import Reconciliation, last_reconciliation
from .lake import pending
from .recapturing import recapture, reconcile, resources_to_remove
from .watching import Watcher, frame, lines, to_json, watch
