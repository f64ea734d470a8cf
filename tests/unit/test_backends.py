"""The backends of an interface have the same public functions, with the same parameters."""

import inspect

import pytest
from workbench.connect import msk, rest
from workbench.query import athena, spark_sql
from workbench.topic import apicurio, glue_registry

INTERFACES = {
    "connect": (rest, msk),
    "registry": (apicurio, glue_registry),
    "query": (spark_sql, athena),
}
# Functions of one backend only: those of Spark that every world uses.
EXTRA_FUNCTIONS = {
    spark_sql: {"translate", "columns"},
}


def functions(module):
    """The signature of each public function of a backend."""
    return {
        name: str(inspect.signature(f))
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
