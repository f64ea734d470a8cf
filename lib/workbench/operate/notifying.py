"""Notifications: one when a signal of a flow changes its level, and one when it recovers."""

import time
from pathlib import Path
from typing import Sequence

from pydantic import FiniteFloat, TypeAdapter, ValidationError

from ..base import StackError, World, first_line, notices, paths
from .problems import Observation

PAUSE_S = 60.0  # at least, between two notifications of one signal
# {signal: (its level in the last message, when that was sent)}
Sent = dict[str, tuple[str, FiniteFloat]]
SENT = TypeAdapter(Sent)


def notify(world: World, channels: Sequence[str], observed: Sequence[Observation]) -> list[str]:
    """Send one message with all changes since the last one, which may be that of an earlier process.

    A signal that changes again within PAUSE_S is reported later, with its level then.

    Args:
        world: the world.
        channels: keys of `notices.CHANNELS`.
        observed: the observations.

    Returns:
        The changes that were sent.

    Raises:
        StackError: a message was not accepted, or what was sent cannot be stored; the next call repeats the
            message on all channels.
    """
    path = paths.state_dir() / "watch" / f"{world.name}.sent.json"
    sent, changes = _load(path)
    now = time.time()
    for signal, (level, text) in _signals(observed).items():
        before, since = sent.get(signal, ("", 0.0))
        is_due = abs(now - since) >= PAUSE_S  # a clock may be set back
        if level != before and is_due:
            changes.append(f"{level or 'recovered'}: {signal}{text}")
            sent[signal] = (level, now)
    for channel in channels if changes else ():
        notices.send(world, channel, "\n".join(changes))
    try:
        paths.write_private_file(path, SENT.dump_json(sent))
    except OSError as e:
        reason = f"what was sent cannot be stored: {first_line(e)}"
        raise StackError(reason, location=str(path)) from None
    return changes


def _load(path: Path) -> tuple[Sent, list[str]]:
    """Return what was sent; and, if the file with it is damaged, a line that says so."""
    if not path.exists():
        return {}, []
    try:
        return SENT.validate_json(path.read_bytes()), []
    except (OSError, ValidationError):
        return {}, [f"{path} is damaged: all problems are reported again"]


def _signals(observed: Sequence[Observation]) -> dict[str, tuple[str, str]]:
    """Return {`flow signal`: (worst level, texts)}; a signal without a problem has the level ""."""
    signals = {}
    for each in observed:
        for signal, level in each.levels().items():
            problems = [problem for problem in each.problems if problem.signal == signal]
            text = "".join(f"\n  {problem.text}\n  {problem.step}" for problem in problems)
            signals[f"{each.flow} {signal}"] = (level, text)
    return signals
