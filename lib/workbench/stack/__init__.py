"""The embedded stack: start the required services, show their status, stop them."""

from .lifecycle import (
    down,
    ensure_running,
    running,
    service_down_error,
    status,
    stop,
    up,
)
from .process import kill
from .services import get_service
