"""Connectors: their configurations, and the verbs of a Connect."""
from .configs import (
    FOLDER,
    apply,
    config,
    delete,
    failure,
    names,
    placeholders,
    plugins,
    restart,
    status,
    validate,
    wait_running,
)

__all__ = ["FOLDER", "apply", "config", "delete", "failure", "names", "placeholders", "plugins", "restart", "status",
           "validate", "wait_running"]
