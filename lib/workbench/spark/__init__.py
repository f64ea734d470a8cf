"""Spark: the session that a world names, and the server that the embedded stack runs."""

from .sessions import (
    answered,
    causes,
    engine,
    gone,
    is_gone,
    is_remote,
    session,
    unreachable,
    world_of,
)
