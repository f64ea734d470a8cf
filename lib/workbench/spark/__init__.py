"""Spark: the session of a world, and the embedded Spark Connect server."""

from .sessions import (
    innermost_cause,
    is_remote,
    is_session_lost,
    java_stacktraces,
    query_engine,
    session,
    session_lost_error,
    state_of,
    translate_errors,
    unreachable_reason,
    world_of,
)
