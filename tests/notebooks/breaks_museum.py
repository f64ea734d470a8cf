"""What is broken behind the checks of notebooks 51 to 58; how a break is written stands in breaking.py."""

BREAKS: dict = {}
