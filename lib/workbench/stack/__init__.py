"""The embedded stack: start what is needed, say what runs, stop it."""
from .verbs import down, known, lost, need, restart, running, status, stop, up, watch, watched
