"""Nouns with two sides have the same public functions on both, with the same parameters."""

import inspect

import pytest
from workbench.connect import msk, rest
from workbench.results import athena, spark_sql
from workbench.source import mariadb, postgres
from workbench.topic import apicurio, glue_registry

SIDES = {
    "connect": (rest, msk),
    "registry": (apicurio, glue_registry),
    "query": (spark_sql, athena),
    "source": (postgres, mariadb),
}
# Beside those that are chosen: what is asked of Spark in every world; and what only PostgreSQL has.
# Its log is read by slots, which hold it back until they are dropped, and has the tables of a
# publication; whoever reads MariaDB's says where he is, and takes what he wants
ALONE = {
    spark_sql: {"translate", "columns"},
    postgres: {
        "create_publication",
        "drop_publication",
        "publications",
        "split_roots",
        "slots",
        "all_slots",
        "own_slots",
        "slot_prefix",
        "drop_slot",
        "create_own",
        "drop_own",
    },
}


def functions(module):
    return {
        name: str(inspect.signature(f)).replace(of(module), "Connection")
        for name, f in vars(module).items()
        if inspect.isfunction(f)
        and f.__module__ == module.__name__
        and not name.startswith("_")
        and name not in ALONE.get(module, ())
    }


def of(module):
    """What a connection of a module is called in a signature: its driver's own."""
    return {postgres: "psycopg.Connection", mariadb: "workbench.source.mariadb.Connection"}.get(
        module, "-"
    )


@pytest.mark.parametrize("noun", SIDES)
def test_both_sides_have_the_same_functions(noun):
    one, other = map(functions, SIDES[noun])
    assert one and one == other
