"""A source whose schema changes, on the real registry, Spark and Hudi: what the registry lets through under which mode,
and what a table of either kind makes of it."""
import io
import uuid
from types import SimpleNamespace

import fastavro
import pytest
from avro_bytes import framed
from confluent_kafka import Producer
from evolutions import CHANGES, FIRST, allowed
from lake_help import new_topic
from workbench import hudi, stack
from workbench.topic import avro, registry, topics

# --- the registry ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def artifact(world):
    """An artifact whose one version is FIRST."""
    stack.need(world, "apicurio")
    name = f"evolution_{uuid.uuid4().hex[:8]}-value"
    registry.register(world, name, FIRST)
    yield name
    registry.delete(world, name)


@pytest.mark.parametrize("kind", ["globalId", "ccompat"])
@pytest.mark.parametrize("mode", avro.MODES)
def test_the_registry_and_avros_rules_agree(world, artifact, mode, kind):
    before = registry.names(world)
    said = {change: registry.check(world, artifact, avsc, mode, kind) for change, avsc in CHANGES.items()}
    print(mode, kind, {c: w for c, w in said.items() if w})
    assert {change for change, why in said.items() if not why} == {c for c in CHANGES if allowed(c, mode)}, said
    assert registry.names(world) == before and registry.versions(world, artifact) == [FIRST]


# --- the table -------------------------------------------------------------------------------------------------------

ROW = {"title": "x", "year": 2000, "views": 5, "genre": "drama", "__op": "c"}


@pytest.fixture(params=["cow", "mor"])
def bench(request, world, spark):
    """A topic, a table of each kind, `send(schema, rows …)`, which registers it, `go()`, `rows()`."""
    stack.need(world, "apicurio")
    topic = new_topic(world)
    table = hudi.table(world, f"t_{uuid.uuid4().hex[:8]}", key=("id",), ordering="__lsn", type=request.param)

    def send(avsc, *rows, artifact=f"{topic}-value"):
        id = registry.register(world, artifact, avsc)
        producer = Producer(topics.settings(world))
        for row in rows:
            out = io.BytesIO()
            given = {**ROW, **row}
            fastavro.schemaless_writer(out, fastavro.parse_schema(avsc), {
                f["name"]: given.get(f["name"]) for f in avsc["fields"]})
            producer.produce(topic, key=str(row["id"]), value=framed(id, out.getvalue()))
        assert producer.flush(20) == 0
        return id

    def rows(of=None):
        found = (of or hudi.read(spark, table)).collect()
        return {r["id"]: {k: v for k, v in r.asDict(True).items() if not k.startswith(("_hoodie", "__", "id"))}
                for r in found}

    def go(**knobs):
        return hudi.ingest(spark, world, hudi.Topic(topic, format="avro"), table, **knobs)

    yield SimpleNamespace(topic=topic, table=table, send=send, go=go, rows=rows, spark=spark, world=world)
    hudi.drop(spark, world, table)
    topics.delete(world, topic)
    registry.delete(world, f"{topic}-value")
