"""The source databases: connections, loaders, and the health of change data capture."""

from .loading import sql_file as sql_file
