"""The embedded stack: start the required services, show their status, stop them."""

from .lifecycle import (
    down,
    ensure_running,
    kill,
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
from .services import get_service
