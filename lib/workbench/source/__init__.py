"""The source databases."""
