"""The backends of an interface have the same public functions, with the same parameters."""

import inspect

import pytest
from workbench.connect import msk, rest
from workbench.query import athena, spark_sql
from workbench.source import mariadb, postgres
from workbench.topic import apicurio, glue_registry

INTERFACES = {
    "connect": (rest, msk),
    "registry": (apicurio, glue_registry),
    "query": (spark_sql, athena),
    "source": (postgres, mariadb),
}
# Functions of one backend only: those of Spark that every world uses, and those that only
# PostgreSQL has. Its log is read through slots, which retain it until they are dropped, and
# contains the tables of a publication. A reader of MariaDB's log states its position, and selects
# tables itself.
EXTRA_FUNCTIONS = {
    spark_sql: {"translate", "columns"},
    postgres: {
        "create_publication",
        "drop_publication",
        "publications",
        "tables_published_by_partition",
        "slots",
        "all_slots",
        "connector_slots",
        "slot_prefix",
        "drop_slot",
        "create_service_database",
        "drop_service_databases",
    },
}
# The drivers' connections, which differ in signatures.
CONNECTIONS = {
    postgres: "psycopg.Connection",
    mariadb: "workbench.source.mariadb.Connection",
}


def functions(module):
    """The signature of each public function of a backend."""
    return {
        name: str(inspect.signature(f)).replace(CONNECTIONS.get(module, "-"), "Connection")
        for name, f in vars(module).items()
        if inspect.isfunction(f)
        and f.__module__ == module.__name__
        and not name.startswith("_")
        and name not in EXTRA_FUNCTIONS.get(module, ())
    }


@pytest.mark.parametrize("interface", INTERFACES)
def test_all_backends_have_the_same_functions(interface):
    first, second = map(functions, INTERFACES[interface])
    assert first and first == second
