"""What a world keeps while it is open: its clients, sessions and caches."""

import contextlib
import threading
from typing import Any, Callable, Hashable


class State:
    """Values that are created when they are first needed, and closed together.

    A state is no part of the value of its world: all states are equal, and a copy of a world, or a
    pickled one, begins with an empty state.
    """

    def __init__(self) -> None:
        """Create an empty state."""
        self._lock = threading.RLock()
        self._values: dict[Hashable, Any] = {}
        self._closers = contextlib.ExitStack()

    def get(
        self, key: Hashable, create: Callable[[], Any], close: Callable[[Any], object] = id
    ) -> Any:
        """Return the value of a key.

        Args:
            key: name of the value; other modules must not use the same one.
            create: returns the value when it is needed for the first time.
            close: called with the value when the state is closed; by default `id`, which does
                nothing.
        """
        with self._lock:
            if key not in self._values:
                self._values[key] = create()
                self._closers.callback(close, self._values[key])
            return self._values[key]

    def forget(self, key: Hashable) -> None:
        """Let the next `get` create the value of a key anew."""
        with self._lock:
            self._values.pop(key, None)

    def close(self) -> None:
        """Close and forget all values, the newest first. The state can be used again."""
        with self._lock:
            self._values.clear()
            self._closers.close()

    def __eq__(self, other: object) -> bool:
        """Return True for any state."""
        return isinstance(other, State)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as an empty state."""
        return State, ()
