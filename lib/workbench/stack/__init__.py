"""The embedded stack: start what is needed, say what runs, stop it."""

from .lifecycle import (
    down,
    ensure_running,
    get_service,
    load_plugins,
    process_down_error,
    restart,
    run_watched,
    running,
    service_down_error,
    status,
    stop,
    unload_plugins,
    up,
    watch,
)
