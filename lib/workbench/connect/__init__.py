"""Connectors: their configurations, and the verbs of a Connect.

`rest` has the verbs of a Kafka Connect, and refuses a world of another kind. MSK Connect's are to be a module beside it
with the same functions."""
from .configs import FOLDER, config, placeholders
from .rest import apply, delete, failure, names, plugins, restart, status, validate, wait_running
