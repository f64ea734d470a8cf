"""Run notebooks headless, in order, and write a report."""
