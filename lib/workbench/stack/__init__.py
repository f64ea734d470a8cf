"""The embedded stack: start what is needed, say what runs, stop it."""
from .verbs import down, gone, known, lost, need, restart, running, status, stop, up, watch, watched
