"""Topics, consumer groups, dead letters, and the schema registry."""
