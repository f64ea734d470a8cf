"""The source databases."""

from .loading import sql_file
