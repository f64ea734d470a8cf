"""Copies of a loaded world with other settings."""


def with_settings(world, **parts):
    """Return a copy of a world with other values; those of its parts as `connect={"kind": "msk"}`."""
    return world.model_copy(
        update={
            name: getattr(world, name).model_copy(update=new) if isinstance(new, dict) else new
            for name, new in parts.items()
        }
    )
