"""Worlds that differ from a loaded one."""


def with_settings(world, **parts):
    """A copy of a world: values of it, and of its parts as dicts, `connect={"kind": "msk"}`."""
    return world.model_copy(
        update={
            name: getattr(world, name).model_copy(update=new) if isinstance(new, dict) else new
            for name, new in parts.items()
        }
    )
