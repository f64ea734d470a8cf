"""Schemas in the registry, and a museum in a database of its own with its connector, for the lake's
tests."""

import contextlib
from types import SimpleNamespace

from workbench import connect, stack
from workbench.base import http
from workbench.source import postgres
from workbench.topic import topics
from worlds import with_settings


def register_schema(world, avsc, artifact):
    """Put a schema into the registry; its ids."""
    base = f"{world.registry.url}/apis/registry/v2/groups/default/artifacts"
    answer = http.call(
        "the registry",
        "POST",
        f"{base}?ifExists=RETURN_OR_UPDATE",
        avsc,
        headers={"X-Registry-ArtifactId": artifact, "X-Registry-ArtifactType": "AVRO"},
    )
    answer.raise_for_status()
    return SimpleNamespace(glob=answer.json()["globalId"], content=answer.json()["contentId"])


def source_config(lab, database, slot=""):
    """The museum's source connector as that of another database, whose name its topics and its slot
    begin with."""
    own = {"database.dbname": database, "topic.prefix": database}
    return {**connect.config(lab, "moma_source", slot_prefix=slot or database), **own}


def sink_config(lab, database):
    """The museum's sink as that of another database's topics."""
    return {**connect.config(lab, "moma_sink"), "topics.regex": rf"{database}\.public\.(.*)"}


@contextlib.contextmanager
def museum(world, name, script, tables=("artists", "artworks"), **changes):
    """The world with a museum in database `name`, made by an SQL script, and its connector `name`
    RUNNING, with `changes` of its settings, None for one that goes; afterwards every connector
    whose name begins so is deleted."""
    stack.ensure_running(world, "apicurio")
    lab = with_settings(world, postgres={"database": name})
    postgres.create_database(lab)
    postgres.execute(lab, script)
    full = [f"public.{t}" for t in tables]
    postgres.grant_replication(lab, full)
    postgres.create_publication(lab, "moma_publication", full)
    try:
        config = {**source_config(lab, name), **changes}
        connect.apply(lab, name, {k: v for k, v in config.items() if v is not None})
        yield lab
    finally:
        for each in connect.names(lab):
            if each.startswith(name):
                connect.delete(lab, each)
        for slot in postgres.slots(lab)["slot_name"]:
            postgres.drop_slot(lab, slot)
        topics.delete(lab, *(t for t in topics.names(lab) if name in t))
        postgres.execute(lab, f"DROP DATABASE {name} WITH (FORCE)", database="postgres")
