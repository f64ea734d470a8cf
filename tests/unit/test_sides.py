"""Nouns with two sides have the same public functions on both, with the same parameters."""
import inspect

import pytest
from workbench.connect import msk, rest
from workbench.results import athena, spark_sql
from workbench.topic import apicurio, glue_registry

SIDES = {"connect": (rest, msk), "registry": (apicurio, glue_registry), "query": (spark_sql, athena)}
# Beside those that are chosen: what is asked of Spark in every world
OF_SPARK = {spark_sql: {"translate", "columns"}}


def functions(module):
    return {name: inspect.signature(f) for name, f in vars(module).items()
            if inspect.isfunction(f) and f.__module__ == module.__name__ and not name.startswith("_")
            and name not in OF_SPARK.get(module, ())}


@pytest.mark.parametrize("noun", SIDES)
def test_both_sides_have_the_same_functions(noun):
    one, other = map(functions, SIDES[noun])
    assert one and one == other
