"""What comes out: queries, claims checked against the source, tables and pictures."""
