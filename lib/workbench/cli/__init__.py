"""The command `workbench`."""
