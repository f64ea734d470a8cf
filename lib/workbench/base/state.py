"""What a world keeps while its process runs: its clients, sessions and caches."""

import threading
from typing import Any, Callable, Hashable


class State:
    """Values that are created when they are first needed."""

    def __init__(self) -> None:
        """Create an empty state."""
        self._lock = threading.RLock()
        self._values: dict[Hashable, Any] = {}

    def get(self, key: Hashable, create: Callable[[], Any]) -> Any:
        """Return the value of a key.

        Args:
            key: name of the value; other modules must not use the same one.
            create: returns the value when it is needed for the first time.
        """
        with self._lock:
            if key not in self._values:
                self._values[key] = create()
            return self._values[key]
