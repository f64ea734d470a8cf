"""Queries of the lake, checks against the source, tables and pictures."""
