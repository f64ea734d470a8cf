"""Copies of a loaded world with other settings, and a world that is active for a block only."""

import contextlib
from unittest import mock

from workbench.base import aws, environment, params
from workbench.base.state import State


def with_settings(world, **parts):
    """Return a copy of a world with other values; those of its parts as `connect={"kind": "msk"}`."""
    changed = world.model_copy(
        update={
            name: getattr(world, name).model_copy(update=new) if isinstance(new, dict) else new
            for name, new in parts.items()
        }
    )
    changed._state = State()
    return changed


@contextlib.contextmanager
def no_world():
    """Run a block with the environment of the user; afterwards it is as before."""
    with mock.patch.dict("os.environ"), mock.patch.dict(environment.user_values):
        environment.apply(lambda user_environment: {})
        aws.client.cache_clear()
        aws.secret.cache_clear()
        yield
    aws.client.cache_clear()
    aws.secret.cache_clear()


@contextlib.contextmanager
def activated(world):
    """Activate a world for a block."""
    with no_world():
        params.activate(world)
        yield world
