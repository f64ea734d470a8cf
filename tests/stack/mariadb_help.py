"""A MariaDB database with its connector, for one test."""

import contextlib
import zlib
from types import SimpleNamespace

from workbench import connect, hudi, stack
from workbench.checks import check
from workbench.source import mariadb
from workbench.topic import registry, topics

ORDERING = "__source_file,__source_pos,__source_row"


def source_config(world, name):
    """Return the connector of all tables of a database; its messages have their log position."""
    return {
        **connect.config(world, "movies_source"),
        "topic.prefix": name,
        "table.include.list": rf"{name}\..*",
        "database.server.id": str(1000 + zlib.crc32(name.encode()) % 10**6),
        "schema.history.internal.kafka.topic": f"{name}.history",
        # by default it checks only every minute whether the server is back
        "connect.keep.alive.interval.ms": "500",
        "transforms.unwrap.add.fields": "op,source.ts_ms,source.file,source.pos,source.row",
    }


@contextlib.contextmanager
def captured_database(world, name, *statements):
    """Yield a database that these statements create, and its connector `name`.

    The yielded object has `execute` and `frame`, `topic` and `table` (both for one of its tables),
    and `config`.
    """
    stack.ensure_running(world, "apicurio", "mariadb")
    mariadb.create_database(world, name)
    mariadb.grant_replication(world, [f"{name}.any"])
    made = []

    def execute(*texts):
        with mariadb.session(world, name) as c:
            return [c.execute(text).rowcount for text in texts][-1]

    def table(of, **fields):
        made.append(
            hudi.table(world, f"{name}_{of}_{len(made)}", key=("id",), ordering=ORDERING, **fields)
        )
        return made[-1]

    try:
        if statements:
            execute(*statements)
        config = source_config(world, name)
        connect.apply(world, name, config)
        yield SimpleNamespace(
            world=world,
            name=name,
            config=config,
            execute=execute,
            table=table,
            query=lambda text: mariadb.query(world, text, database=name),
            topic=lambda of: f"{name}.{name}.{of}",
        )
    finally:
        connect.delete(world, name)
        for each in made:
            hudi.drop(None, world, each)
        topics.delete(world, *(t for t in topics.names(world) if t.startswith(name)))
        registry.delete(world, *(a for a in registry.names(world) if a.startswith(name)))
        stack.ensure_running(world, "mariadb")
        mariadb.execute(world, f"DROP DATABASE IF EXISTS {name}")


def assert_lake_equals_source(spark, lab, of, table, what):
    """Check that a lake table has the current columns and all rows of the source."""
    truth = lab.query(f"SELECT * FROM {of}")
    rows = hudi.read(spark, table).select(*(f"`{c}`" for c in truth.columns)).toPandas()
    check.same_rows(truth, rows, key="id", claim=what)
