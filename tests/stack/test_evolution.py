"""A source whose schema changes, on the real registry, Spark and Hudi: what the registry lets
through under which mode, and what a table of either kind makes of it."""

import io
import uuid
from dataclasses import replace
from types import SimpleNamespace

import fastavro
import lake_help
import pytest
from avro_bytes import wire_message
from confluent_kafka import Producer
from evolutions import CHANGES, FIRST, is_allowed
from lake_help import new_topic
from pyspark.sql import types as T
from workbench import hudi, query, stack
from workbench.base import http
from workbench.base.errors import LakeError
from workbench.topic import avro, registry, topics

# --- the registry
# ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def artifact(world):
    """An artifact whose one version is FIRST."""
    stack.ensure_running(world, "apicurio")
    name = f"evolution_{uuid.uuid4().hex[:8]}-value"
    registry.register(world, name, FIRST)
    yield name
    registry.delete(world, name)


@pytest.mark.parametrize("mode", avro.COMPATIBILITY_MODES)
def test_the_registry_and_avros_rules_agree(world, artifact, mode):
    before = registry.names(world)
    said = {
        change: registry.check_compatibility(world, artifact, avsc, mode)
        for change, avsc in CHANGES.items()
    }
    predicted = {
        change: avro.check_compatibility([FIRST], avsc, mode) for change, avsc in CHANGES.items()
    }
    assert {c: not why for c, why in said.items()} == {
        c: not why for c, why in predicted.items()
    }, said
    assert {c for c, why in said.items() if not why} == {c for c in CHANGES if is_allowed(c, mode)}
    assert registry.names(world) == before and registry.versions(world, artifact) == [FIRST]


def test_a_schema_that_breaks_the_mode_is_refused_and_adds_no_version(world, artifact):
    registry.set_compatibility(world, artifact, "FORWARD")
    assert registry.compatibility(world, artifact) == "FORWARD"
    with pytest.raises(
        LakeError,
        match=f"(?s)rejects the schema as next version of '{artifact}': title at /fields/1"
        ".*a schema with FORWARD compat.*set_compatibility",
    ):
        registry.register(world, artifact, CHANGES["drop"])
    assert registry.versions(world, artifact) == [FIRST]
    assert registry.check_compatibility(
        world, artifact, CHANGES["drop"]
    ) == "title at /fields/1" and not registry.check_compatibility(
        world, artifact, CHANGES["drop"], "NONE"
    )
    registry.set_compatibility(world, artifact, "NONE")


@pytest.fixture
def versions(world, artifact):
    """An artifact with two versions, FIRST and the one that drops a field."""
    name = f"two-{artifact}"
    for avsc in (FIRST, CHANGES["drop"]):
        registry.register(world, name, avsc)
    yield name
    registry.delete(world, name)


# the field that was dropped comes back as another type: fine for the last version, not for the
# first
AGAIN = {
    **CHANGES["drop"],
    "fields": [*CHANGES["drop"]["fields"], {"name": "title", "type": "int", "default": 0}],
}


@pytest.mark.parametrize("mode", avro.COMPATIBILITY_MODES)
def test_a_transitive_mode_looks_at_all_versions(world, versions, mode):
    predicted = avro.check_compatibility(registry.versions(world, versions), AGAIN, mode)
    told = registry.check_compatibility(world, versions, AGAIN, mode)
    assert [not why for why in (predicted, told)] == [not mode.endswith("_TRANSITIVE")] * 2, told


def test_where_apicurio_and_avros_rules_differ(world, versions):
    """A default that is no value of its field's type, which Avro's library for Python overlooks."""
    wrong = {**FIRST, "fields": [*FIRST["fields"], {"name": "n", "type": "int", "default": "x"}]}
    assert avro.check_compatibility([FIRST], wrong, "FULL") == ""
    assert "invalid Avro schema" in registry.check_compatibility(world, versions, wrong, "FULL")
    with pytest.raises(LakeError, match="invalid Avro schema"):
        registry.set_compatibility(world, versions, "BACKWARD")
        registry.register(world, versions, wrong)


def test_a_rule_for_all_artifacts_keeps_no_version_from_the_copy(world, versions):
    """It would refuse the second version for the copy, and the answer be against the first
    alone."""
    rules = f"{world.registry.url}/apis/registry/v2/admin/rules"
    http.call(
        "the registry", "POST", rules, {"type": "COMPATIBILITY", "config": "FORWARD"}
    ).raise_for_status()
    try:
        assert registry.check_compatibility(world, versions, AGAIN, "BACKWARD") == ""
        assert registry.check_compatibility(world, versions, AGAIN, "BACKWARD_TRANSITIVE") != ""
    finally:
        http.call("the registry", "DELETE", f"{rules}/COMPATIBILITY").raise_for_status()


def test_an_artifact_or_a_mode_that_is_not_there(world, artifact):
    for ask in (
        lambda: registry.check_compatibility(world, artifact[1:], FIRST),
        lambda: registry.versions(world, artifact[1:]),
        lambda: registry.set_compatibility(world, artifact[1:], "FULL"),
    ):
        with pytest.raises(LakeError, match=f"(?s)no artifact .*did you mean '{artifact}'"):
            ask()
    with pytest.raises(LakeError, match="did you mean 'FORWARD_TRANSITIVE'"):
        registry.set_compatibility(world, artifact, "FORWARD_TRANSITVE")


# --- the table
# -------------------------------------------------------------------------------------------------------

ROW = {"title": "x", "year": 2000, "views": 5, "genre": "drama", "__op": "c"}


@pytest.fixture(params=["cow", "mor"])
def bench(request, world, spark):
    """A topic, a table of each kind, `send(schema, rows …)`, which registers it, `go()`,
    `rows()`."""
    stack.ensure_running(world, "apicurio")
    topic = new_topic(world)
    table = hudi.table(
        world, f"t_{uuid.uuid4().hex[:8]}", key=("id",), ordering="__lsn", type=request.param
    )

    def send(avsc, *rows, artifact=f"{topic}-value"):
        id = registry.register(world, artifact, avsc)
        producer = Producer(topics.settings(world))
        for row in rows:
            out = io.BytesIO()
            given = {**ROW, **row}
            fastavro.schemaless_writer(
                out,
                fastavro.parse_schema(avsc),
                {f["name"]: given.get(f["name"]) for f in avsc["fields"]},
            )
            producer.produce(topic, key=str(row["id"]), value=wire_message(id, out.getvalue()))
        assert producer.flush(20) == 0
        return id

    def rows(of=None):
        found = (of or hudi.read(spark, table)).collect()
        return {
            r["id"]: {
                k: v for k, v in r.asDict(True).items() if not k.startswith(("_hoodie", "__", "id"))
            }
            for r in found
        }

    def go(**knobs):
        return hudi.ingest(spark, world, hudi.Topic(topic, format="avro"), table, **knobs)

    def letters():
        return hudi.dead_letters(spark, world, table).collect()

    yield SimpleNamespace(
        topic=topic,
        table=table,
        send=send,
        go=go,
        rows=rows,
        letters=letters,
        spark=spark,
        world=world,
    )
    hudi.drop(spark, world, table)
    topics.delete(world, topic)
    registry.delete(world, f"{topic}-value")


NEW = {"id": 2, "__lsn": 10, "title": "new", "COUNTRY": "NZ", "order": "renamed", "year": 2001}
SAID = {  # by the commit
    "add required": "added COUNTRY string",
    "add nullable": "added COUNTRY string",
    "drop": "dropped title string, which stays and is null in new rows",
    "rename": "added order string; dropped title string, which stays and is null in new rows",
    "widen int to long": "widened year int to bigint",
    "narrow long to int": "changed views bigint to int, in a column of bigint",
}
WROTE = {  # what the new row holds beside what all do; and the old ones
    "add required": ({"COUNTRY": "NZ"}, {"COUNTRY": None}),
    "add nullable": ({"COUNTRY": "NZ"}, {"COUNTRY": None}),
    "drop": ({"title": None}, {}),
    "rename": ({"title": None, "order": "renamed"}, {"order": None}),
    "widen int to long": ({"year": 2**40}, {}),
    "enum grown": ({"genre": "horror"}, {}),
}


def independent(bench, **knobs):
    found = hudi.read_arrow(bench.table, **knobs).to_pandas().to_dict("records")
    return {r["id"]: {k: v for k, v in r.items() if not k.startswith(("_", "id"))} for r in found}


# Copy-on-Write: also track 40_schema_evolution
@pytest.mark.parametrize(
    "bench", [pytest.param("cow", marks=pytest.mark.drill), "mor"], indirect=True
)
@pytest.mark.parametrize("change", CHANGES)
def test_what_the_table_makes_of_each_change(bench, change):
    bench.send(FIRST, *[{"id": n, "__lsn": n} for n in (1, 2, 3)])
    assert bench.go().upserts == 3
    first = bench.rows()
    hudi.label(bench.world, bench.table, "before")
    new, old = WROTE.get(change, ({}, {}))
    bench.send(
        CHANGES[change],
        *[
            {**NEW, **new, "year": new.get("year", "MMI" if "string" in change else 2001), **key}
            for key in ({"id": 2}, {"id": 4})
        ],
    )
    if change == "change int to string":
        for _ in "ab":  # the same again
            with pytest.raises(
                LakeError,
                match="(?s)m.movies.Value.year was int and becomes string: its column "
                r"cannot follow.*handling.mode.*workbench recapture FLOW",
            ):
                bench.go()
        assert bench.rows() == independent(bench) == first and len(hudi.commits(bench.table)) == 1
        assert not bench.letters()
        return
    assert bench.go().upserts == 2
    written = {"title": "new", "year": 2001, "views": 5, "genre": "drama", **new}
    now = {n: {**first[1], **old} if n in (1, 3) else written for n in (1, 2, 3, 4)}
    assert bench.rows() == independent(bench) == now
    assert bench.rows(hudi.as_of(bench.spark, bench.world, bench.table, "before")) == first
    assert {
        n: {k: v for k, v in row.items() if k in first[1]}
        for n, row in independent(bench, as_of=(bench.world, "before")).items()
    } == first  # it shows the new column too, as null
    assert bench.rows(hudi.between(bench.spark, bench.world, bench.table, "before")) == {
        n: now[n] for n in (2, 4)
    }
    assert hudi.schema_changes(bench.table)["change"].tolist() == [
        SAID[c] for c in SAID if c == change
    ]
    if bench.table.type == "mor":
        hudi.compact(bench.spark, bench.table)
        assert bench.rows() == independent(bench) == independent(bench, optimized=True) == now
        assert bench.rows(hudi.as_of(bench.spark, bench.world, bench.table, "before")) == first
    bench.send(CHANGES[change], {**NEW, **new, "year": written["year"], "id": 5})
    assert bench.go().upserts == 1 and bench.rows() == {**now, 5: written}
    assert len(hudi.schema_changes(bench.table)) == (change in SAID), "it is said once"


def test_versions_in_one_batch_lose_nothing_whatever_their_order(bench):
    """A message that was written before a column was dropped brings its value, also when it is read
    afterwards."""
    bench.send(CHANGES["add required"], {"id": 1, "__lsn": 1, "COUNTRY": "NZ"})
    bench.send(CHANGES["drop"], {"id": 2, "__lsn": 2})
    bench.send(CHANGES["widen int to long"], {"id": 3, "__lsn": 3, "year": 2**40})
    bench.send(FIRST, {"id": 4, "__lsn": 4})
    assert bench.go().upserts == 4
    assert {n: (r["title"], r["year"], r["COUNTRY"]) for n, r in bench.rows().items()} == {
        1: ("x", 2000, "NZ"),
        2: (None, 2000, None),
        3: ("x", 2**40, None),
        4: ("x", 2000, None),
    }


def test_a_key_column_of_another_type_is_refused_before_anything_is_written(bench):
    bench.send(FIRST, *[{"id": n, "__lsn": n} for n in (1, 2, 3)])
    assert bench.go().upserts == 3
    first = bench.rows()
    fields = [{**f, "type": "double"} if f["name"] == "id" else f for f in FIRST["fields"]]
    bench.send({**FIRST, "fields": fields}, {"id": 2.0, "__lsn": 4, "title": "new"})
    for knobs in ({}, {"replay": True}):
        with pytest.raises(
            LakeError,
            match=f"(?s){bench.table.name}.id is int and would become double: a key "
            "column keeps its type.*bigint.unsigned.handling.mode",
        ):
            bench.go(**knobs)
    assert bench.rows() == first and len(hudi.commits(bench.table)) == 1 and not bench.letters()


def test_key_ordering_and_partition_become_wider(bench):
    def record(kind):
        return {
            "type": "record",
            "name": "Value",
            "fields": [{"name": n, "type": kind} for n in ("id", "n", "p")]
            + [{"name": "title", "type": "string"}],
        }

    it = replace(bench.table, ordering="n", partition=("p",), index="GLOBAL_SIMPLE")

    def go(avsc, *rows):
        bench.send(avsc, *[dict(zip(("id", "n", "title"), row), p=1) for row in rows])
        hudi.ingest(bench.spark, bench.world, hudi.Topic(bench.topic, format="avro"), it)
        return {n: r["title"] for n, r in bench.rows().items()}

    assert go(record("int"), (1, 5, "a"), (2, 5, "b")) == {1: "a", 2: "b"}
    assert go(record("long"), (1, 6, "newer"), (2, 4, "late"), (2**40, 2**40, "new")) == {
        1: "newer",
        2: "b",
        2**40: "new",
    }
    assert go(record("long"), (1, 5, "late"), (2, 6, "newer")) == {
        1: "newer",
        2: "newer",
        2**40: "new",
    }
    if it.type == "mor":
        hudi.compact(bench.spark, it)
        assert go(record("int"), (2, 5, "late")) == {1: "newer", 2: "newer", 2**40: "new"}


def test_the_catalogs_entries_follow(bench):
    bench.send(FIRST, {"id": 1, "__lsn": 1})
    bench.go()
    hudi.register(bench.spark, bench.table)
    bench.send(CHANGES["widen int to long"], {"id": 2, "__lsn": 2, "year": 2**40})
    bench.go()
    hudi.register(bench.spark, bench.table)
    for entry in hudi.catalog_names(bench.table):
        told = {r[0]: r[1] for r in bench.spark.sql(f"DESCRIBE {entry}").collect()}
        assert told["year"] == "bigint", entry
        assert set(query.sql(bench.spark, f"SELECT year FROM {entry}")["year"]) == {2000, 2**40}


def test_rows_of_json_follow_the_schema_that_is_given(bench):
    """Whatever the format: the ingest compares the rows with the table."""

    def go(*rows, **kinds):
        topic = f"{bench.topic}_json"
        lake_help.produce(bench.world, topic, *rows)
        kinds = {"id": T.IntegerType(), "__lsn": T.LongType(), **kinds}
        schema = T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])
        return hudi.ingest(bench.spark, bench.world, hudi.Topic(topic), bench.table, schema=schema)

    try:
        new_topic(bench.world, f"{bench.topic}_json")
        go({"id": 1, "__lsn": 1, "n": 1}, n=T.IntegerType())
        go({"id": 2, "__lsn": 2, "n": 2**40, "more": "m"}, n=T.LongType(), more=T.StringType())
        with pytest.raises(LakeError, match="n was bigint and becomes double"):
            go({"id": 3, "__lsn": 3, "n": 1.5}, n=T.DoubleType())
        assert bench.rows() == {1: {"n": 1, "more": None}, 2: {"n": 2**40, "more": "m"}}
        assert hudi.schema_changes(bench.table)["change"].tolist() == [
            "added more string; widened n int to bigint"
        ]
    finally:
        topics.delete(bench.world, f"{bench.topic}_json")
