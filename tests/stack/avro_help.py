"""Schemas in the registry, and a museum in a database of its own, for the tests of the lake."""

import contextlib
from types import SimpleNamespace

from workbench import connect, stack
from workbench.base import http
from workbench.source import postgres
from workbench.topic import topics
from worlds import with_settings


def register_schema(world, avsc, artifact):
    """Register a schema, and return its ids."""
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
    """Return the museum's source connector for another database.

    Its topics and its slot start with the name of the database.
    """
    own = {"database.dbname": database, "topic.prefix": database}
    return {**connect.config(lab, "moma_source", slot_prefix=slot or database), **own}


def sink_config(lab, database):
    """Return the museum's sink connector for the topics of another database."""
    return {**connect.config(lab, "moma_sink"), "topics.regex": rf"{database}\.public\.(.*)"}


@contextlib.contextmanager
def museum(world, name, script, tables=("artists", "artworks"), **changes):
    """Yield the world with a museum in database `name`, and its running connector `name`.

    At the end all connectors whose names start with `name` are deleted.

    Args:
        world: the world.
        name: name of the database and of the connector.
        script: SQL that creates the tables.
        tables: the captured tables.
        changes: changed settings of the connector; None removes one.
    """
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
