"""Topics, and the registry of their schemas."""
