"""Notebooks run headless, in order, to a report."""
