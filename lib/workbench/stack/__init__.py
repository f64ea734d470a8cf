"""The embedded stack: start what is needed, say what runs, stop it."""
from .verbs import down, known, lost, must_be_there, need, restart, running, status, up
