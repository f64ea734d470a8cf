"""Operating flows: comparing them with their sources."""

from .reconcile_result import Reconciliation, last_reconciliation
from .reconciling import reconcile

__all__ = ["Reconciliation", "last_reconciliation", "reconcile"]
