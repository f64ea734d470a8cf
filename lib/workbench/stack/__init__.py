"""The embedded stack: start what is needed, say what runs, stop it."""
from .verbs import down, down_with, instances_running, log, lost, need, only_run, restart, running, status, up

__all__ = ["down", "down_with", "instances_running", "log", "lost", "need", "only_run", "restart", "running", "status",
           "up"]
