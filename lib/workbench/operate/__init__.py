"""Operation of the captured flows: freshness, lag, retained log, and reconciliation with the source."""
