"""The interfaces with several backends: a backend of one's own works, and mypy refuses a wrong one."""

import re
import sqlite3
from dataclasses import dataclass, field

import pandas
import pytest
from mypy import api
from workbench import query
from workbench.base import params
from workbench.base.errors import LakeError
from workbench.base.paths import ROOT
from workbench.connect import operations
from workbench.query import engines
from workbench.topic import registry

WORLD = params.load("local")
ROW = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "int"}]}
NEXT = {**ROW, "fields": [*ROW["fields"], {"name": "day", "type": "int", "default": 0}]}


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


@dataclass(frozen=True)
class MemoryRegistry:
    """A third schema registry. Its schemas may only get more fields."""

    schemas: dict[str, list] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    location: str = "memory"

    def artifacts(self, artifact_names):
        named = self.schemas if artifact_names is None else artifact_names
        return [
            ("", name, "AVRO", str(n + 1), id, id)
            for name in named
            for n, (id, _) in enumerate(self.schemas.get(name, []))
        ]

    def names(self):
        return list(self.schemas)

    def find(self, id):
        versions = [version for versions in self.schemas.values() for version in versions]
        return dict(versions).get(int(id))

    def find_latest(self, artifact):
        return self.schemas[artifact][-1][1] if artifact in self.schemas else None

    def delete(self, *artifacts):
        for artifact in artifacts:
            self.schemas.pop(artifact, None)

    def add(self, artifact, schema):
        latest = self.find_latest(artifact)
        is_checked = latest and self.compatibility(artifact) != "NONE"
        if is_checked and len(schema["fields"]) < len(latest["fields"]):
            return 0, "fewer fields"
        id = 1 + sum(map(len, self.schemas.values()))
        self.schemas.setdefault(artifact, []).append((id, schema))
        return id, ""

    def compatibility(self, artifact):
        return self.modes.get(artifact, "NONE")

    def set_compatibility(self, artifact, mode):
        self.modes[artifact] = mode


def test_a_schema_registry_of_ones_own_has_all_functions(monkeypatch):
    own: registry.SchemaRegistry = MemoryRegistry()
    monkeypatch.setattr(registry, "backend", lambda world: own)
    assert registry.register(WORLD, "t-value", ROW) == 1
    assert registry.register(WORLD, "t-value", NEXT) == 2
    registry.set_compatibility(WORLD, "t-value", "BACKWARD")
    with pytest.raises(LakeError, match="(?s)t-value.: fewer fields.*memory.*with BACKWARD"):
        registry.register(WORLD, "t-value", ROW)
    assert registry.check_compatibility(WORLD, "t-value", ROW) == "fewer fields"
    assert registry.check_compatibility(WORLD, "t-value", ROW, "NONE") == ""
    assert registry.versions(WORLD, "t-value") == [ROW, NEXT]
    message = registry.encode(WORLD, registry.latest_id(WORLD, "t-value"), {"id": 7, "day": 1})
    seen = registry.inspect_message(WORLD, message)
    assert (seen["schema_id"], seen["record"]) == (2, {"id": 7, "day": 1})
    registry.delete(WORLD, "t-value")
    with pytest.raises(LakeError, match="(?s)no artifact 't-value'.*the registry is empty"):
        registry.latest(WORLD, "t-value")


INCOMPLETE = """
import pandas
from typing import Any
from workbench.query.engines import QueryEngine
from workbench.topic.registry import SchemaRegistry

class RightEngine:
    def sql(self, text: str, values: dict[str, Any]) -> pandas.DataFrame:
        return pandas.DataFrame()

class WrongEngine:
    def sql(self, text: str) -> pandas.DataFrame:
        return pandas.DataFrame()

class Registry:
    location = "memory"
    def names(self) -> list[str]: return []

right: QueryEngine = RightEngine()
engine: QueryEngine = WrongEngine()
registry: SchemaRegistry = Registry()
"""


def test_mypy_refuses_a_backend_without_a_method_or_with_other_parameters(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    file = tmp_path / "incomplete.py"
    file.write_text(INCOMPLETE)
    found, problem, _ = api.run([str(file)])
    refused = re.findall(r'expression has type "(\w+)", variable has type "(\w+)"', found)
    assert refused == [
        ("WrongEngine", "QueryEngine"),
        ("Registry", "SchemaRegistry"),
    ], found + problem
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
