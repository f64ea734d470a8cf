"""The embedded stack: start what is needed, say what runs, stop it."""

from .verbs import (
    down,
    gone,
    known,
    load_plugins,
    lost,
    need,
    restart,
    running,
    status,
    stop,
    unload_plugins,
    up,
    watch,
    watched,
)
