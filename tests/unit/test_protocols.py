"""The interfaces with several backends: a backend of one's own works, and mypy refuses a wrong one."""

import re
import sqlite3
from dataclasses import dataclass

import pandas
import pytest
from mypy import api
from workbench import query
from workbench.base import params
from workbench.base.paths import ROOT
from workbench.connect import operations
from workbench.query import engines
from workbench.topic import registry

WORLD = params.load("local")


@dataclass(frozen=True)
class SqliteEngine:
    """A third query engine."""

    database: sqlite3.Connection

    def sql(self, text: str, values: dict[str, object]) -> pandas.DataFrame:
        return pandas.read_sql_query(text, self.database, params=values)


def test_a_query_engine_of_ones_own_runs_queries(monkeypatch):
    engine: engines.QueryEngine = SqliteEngine(sqlite3.connect(":memory:"))
    monkeypatch.setattr(engines, "backend", lambda target: engine)
    rows = query.sql(WORLD, "SELECT upper(:name) AS name, 1 AS n", name="a")
    assert rows.to_dict("records") == [{"name": "A", "n": 1}]


INCOMPLETE = """
import pandas
from typing import Any
from workbench.query.engines import QueryEngine

class RightEngine:
    def sql(self, text: str, values: dict[str, Any]) -> pandas.DataFrame:
        return pandas.DataFrame()

class WrongEngine:
    def sql(self, text: str) -> pandas.DataFrame:
        return pandas.DataFrame()

right: QueryEngine = RightEngine()
engine: QueryEngine = WrongEngine()
"""


def test_mypy_refuses_a_backend_without_a_method_or_with_other_parameters(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    file = tmp_path / "incomplete.py"
    file.write_text(INCOMPLETE)
    found, problem, _ = api.run([str(file)])
    refused = re.findall(r'expression has type "(\w+)", variable has type "(\w+)"', found)
    assert refused == [("WrongEngine", "QueryEngine")], found + problem
    assert found.count(" error: ") == len(refused), found
    assert "def sql(self, text: str, values: dict[str, Any])" in found, "the expected signature"


@pytest.mark.parametrize(
    "module, section, kinds",
    [
        (operations, "connect", ("rest", "msk")),
        (registry, "registry", ("apicurio", "glue")),
        (engines, "query", ("spark", "athena")),
    ],
)
def test_each_kind_that_a_world_may_name_has_its_class(module, section, kinds):
    declared = params.World.model_fields[section].annotation.model_fields["kind"].annotation
    assert set(declared.__args__) == set(kinds)
    classes = set()
    for kind in kinds:
        part = getattr(WORLD, section).model_copy(update={"kind": kind})
        classes.add(type(module.backend(WORLD.model_copy(update={section: part}))))
    assert len(classes) == len(kinds)
