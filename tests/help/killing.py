"""A process that is killed before one of its changes."""

import itertools


class Killed(BaseException):
    """Not an Exception: nothing recovers from it."""


def kill_before(monkeypatch, number, functions):
    """Raise Killed before the call of this number, from 1, of the functions, (owner, name) each."""
    calls = itertools.count(1)

    def counted(function):
        def call(*args, **options):
            if next(calls) == number:
                raise Killed
            return function(*args, **options)

        return call

    for owner, name in functions:
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
