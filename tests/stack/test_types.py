"""What becomes of PostgreSQL's types on the way to the lake; lists, structs and decimals in both
kinds of table."""

import base64
import json
from decimal import Decimal
from random import Random

import avro_help
import numpy as np
import pytest
from lake_help import INLINE_COMPACTION, change_record, new_table, new_topic, produce
from pg_types import REFUSED, TYPES, expected, expected_analyst
from pyspark.sql import functions as F
from pyspark.sql import types as T
from workbench import connect, hudi, query, stack
from workbench.checks import check
from workbench.hudi import timeline
from workbench.source import postgres
from workbench.topic import topics
from worlds import with_settings

# name: (type in Spark, values of the first three rows; the fourth has none)
LISTS = {
    "texts": ("array<string>", ["a", None, ""], [None], []),
    "ints": ("array<int>", [1, None, 3], [None], []),
    "matrix": ("array<array<int>>", [[1, None], None, []], [None], []),
    "pairs": (
        "array<struct<a: int, b: array<string>>>",
        [{"a": 1, "b": [None, "x"]}, None, {"a": None, "b": None}],
        [None],
        [],
    ),
    "one": (
        "struct<x: array<double>, y: int>",
        {"x": [1.5, None], "y": None},
        {"x": [None], "y": 1},
        {"x": [], "y": 2},
    ),
    "named": ("map<string, array<int>>", {"k": [1, None], "n": None}, {"k": [None]}, {}),
}
DECIMALS = {
    "small": ("decimal(5,2)", Decimal("-0.01"), Decimal("999.99"), Decimal("0.00")),
    "middle": ("decimal(18,3)", Decimal("-1.001"), Decimal("123456789012345.678"), None),
    "large": (
        "decimal(38,10)",
        Decimal("1234567890123456789012345678.0123456789"),
        Decimal("-1E-10"),
        None,
    ),
    "inside": (
        "struct<d: decimal(5,2), e: decimal(38,0)>",
        {"d": Decimal("1.50"), "e": Decimal(10**37)},
        {"d": None, "e": None},
        {"d": Decimal("0.01"), "e": None},
    ),
    "priced": (
        "map<string, decimal(10,2)>",
        {"k": Decimal("1.50"), "n": None},
        {"k": Decimal("-1.00")},
        {},
    ),
}
BOTH = {
    **LISTS,
    **DECIMALS,
    "prices": ("array<decimal(10,2)>", [Decimal("1.50"), None], [None], []),
}


@pytest.mark.parametrize(
    "kind, shapes, by_commits",
    [
        pytest.param(
            kind,
            shapes,
            by_commits,
            id=f"{kind}-{name}{'-by commits' if by_commits else ''}",
            marks=[] if often else pytest.mark.drill,
        )
        for kind, name, shapes, by_commits, often in (
            ("cow", "lists", LISTS, False, True),
            ("mor", "both", BOTH, False, True),
            ("mor", "lists", LISTS, False, False),
            ("mor", "decimals", DECIMALS, False, False),
            ("cow", "both", BOTH, False, False),
            ("mor", "both", BOTH, True, False),
        )
    ],
)
def test_every_shape_is_written_merged_and_compacted(world, spark, kind, shapes, by_commits):
    """The first load is written by Hudi's writer of rows, what is merged or compacted by its writer
    of records; one has to be able to read, and to write again, what the other wrote. hudi-rs reads
    the files of both."""
    extra = INLINE_COMPACTION if by_commits else {}
    topic = new_topic(world)
    table = new_table(world, type=kind, extra=extra, parallelism=1)  # one file
    types = ", ".join(f"{name} {values[0]}" for name, values in shapes.items())
    schema = spark.createDataFrame(
        [], f"id int, part string, __op string, __deleted string, __lsn long, {types}"
    ).schema

    def ingest(lsn, keys, op="c"):
        rows = {
            key: {
                **change_record(key, lsn, op=op),
                **{name: (*values[1:], None)[(key + lsn) % 4] for name, values in shapes.items()},
            }
            for key in keys
        }
        produce(world, topic, *((str(key), as_json(row)) for key, row in rows.items()))
        done = hudi.ingest(spark, world, hudi.Topic(topic), table, schema=schema)
        assert (done.dead_letters, done.messages) == (0, len(rows))
        return rows

    def same(lake, what):
        seen = {
            row["id"]: {name: plain(row[name], shapes[name][0]) for name in shapes}
            for row in lake.to_dict("records")
        }
        check.equal(
            f"{kind}, {what}",
            seen,
            {key: {name: row[name] for name in shapes} for key, row in truth.items()},
        )

    try:
        truth = ingest(1, range(8))
        same(hudi.read(spark, table).toPandas(), "first load")
        for lsn in (2, 3):
            ingest(lsn, [lsn], op="d")
            truth = {
                **{key: row for key, row in truth.items() if key != lsn},
                **ingest(lsn, (0, lsn + 2, lsn + 10)),
            }
            if kind == "mor" and lsn == 2 and not by_commits:
                same(hudi.read(spark, table).toPandas(), "base files and logs")
                hudi.compact(spark, table)
            elif kind == "cow" and lsn == 2:
                entry = hudi.register(spark, table)
                hudi.call_procedure(
                    spark, "run_clustering", op="scheduleAndExecute", order="id", table=entry
                )
        same(hudi.read(spark, table).toPandas(), "the end")
        if kind == "mor" and not by_commits:
            hudi.compact(spark, table)
        assert kind == "cow" or timeline.completed_actions(table, "commit"), "no compaction"
        same(hudi.read_arrow(table).to_pandas(), "the end, hudi-rs")
    finally:
        hudi.drop(spark, world, table)
        topics.delete(world, topic)


def as_json(row):
    """JSON with decimals as numbers, each digit of them."""
    found = []
    text = json.dumps(row, default=lambda d: found.append(d) or f"@{len(found) - 1}@")
    for n, d in enumerate(found):
        text = text.replace(f'"@{n}@"', f"{d:f}")
    return text


def plain(value, kind=""):
    """Rows, maps and arrays of any reader as plain Python."""
    if value is None or isinstance(value, (str, Decimal)):
        return value
    if hasattr(value, "asDict"):
        value = value.asDict()
    if kind.startswith("map"):
        value = dict(value)  # hudi-rs gives a list of pairs
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, (list, np.ndarray)) else value


# --- PostgreSQL's types
# ----------------------------------------------------------------------------------------------

NAME, SEED = "types_test", 12
COLUMNS = {f"c{n:02d}": kind for n, kind in enumerate(TYPES)}
OWN = """
    CREATE EXTENSION IF NOT EXISTS vector; CREATE TYPE mood AS ENUM ('happy', 'sad');
    CREATE DOMAIN positive AS int CHECK (VALUE > 0); CREATE DOMAIN loose AS numeric;
    """
TABLES = ("types", "analyst")  # the second one has only values that its analyst types can hold
LARGE = "E" * 3 + "".join(
    Random(1).choices("abcdefghijklmnop", k=20_000)
)  # kept outside its row (TOAST)


@pytest.fixture(scope="module")
def own(world):
    """A database with two tables of every type, and two connectors: JSON and Avro."""
    stack.ensure_running(world, "apicurio")
    lab = with_settings(world, postgres={"database": NAME})
    postgres.create_database(lab)
    columns = ", ".join(f"{name} {kind.name}" for name, kind in COLUMNS.items())
    postgres.execute(lab, OWN)
    for table in TABLES:
        postgres.execute(lab, f"CREATE TABLE {table} (id int PRIMARY KEY, {columns})")
        postgres.execute(lab, f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    captured = [f"public.{table}" for table in TABLES]
    postgres.grant_replication(lab, captured)
    postgres.create_publication(lab, "moma_publication", captured)
    made = {table: Changes(table) for table in TABLES}
    for each in made.values():
        each.apply(lab, 120)
        each.messages = len(each.keys)  # those of the snapshot
    avro = avro_help.source_config(lab, NAME)
    avro |= {
        "table.include.list": ",".join(captured),
        "slot.name": f"{NAME}_avro",
        "topic.prefix": f"{NAME}_avro",
    }
    by_json = {
        "": "org.apache.kafka.connect.json.JsonConverter",
        ".schemas.enable": "true",
        ".decimal.format": "NUMERIC",
    }
    plain_json = {k: v for k, v in avro.items() if "converter" not in k}
    plain_json |= {
        f"{side}.converter{k}": v for side in ("key", "value") for k, v in by_json.items()
    }
    plain_json |= {"slot.name": f"{NAME}_json", "topic.prefix": f"{NAME}_json"}
    try:
        for form, config in (("avro", avro), ("json", plain_json)):
            connect.apply(lab, f"{NAME}_{form}", config)
        yield lab, made
    finally:
        for form in ("avro", "json"):
            connect.delete(lab, f"{NAME}_{form}")
        for slot in postgres.slots(lab)["slot_name"]:
            postgres.drop_slot(lab, slot)
        topics.delete(lab, *(t for t in topics.names(lab) if NAME in t))
        postgres.execute(lab, f"DROP DATABASE {NAME} WITH (FORCE)", database="postgres")


class Changes:
    """Random statements; knows which keys there are, and how many messages the source sends for all
    of them."""

    def __init__(self, table):
        self.table = table
        self.refused = 0  # changes that become dead letters
        self.random, self.keys, self.next, self.messages = Random(SEED), [], 1, 0
        self.counts = dict.fromkeys(("insert", "update", "delete"), 0)

    def value(self, kind):
        if kind.name == "text" and self.random.random() < 0.2:
            return f"'{LARGE}'"
        # a serial has no null
        values = kind.accepted if self.table == "analyst" else kind.values
        return self.random.choice([*values, *([] if "serial" in kind.name else ["NULL"])])

    def apply(self, world, n):
        """Change something n times, ten times in each transaction."""
        with postgres.connect(world) as c:
            for at in range(n):
                if at % 10 == 0:
                    c.execute("BEGIN")
                assert c.execute(self.statement()).rowcount == 1
                if at % 10 == 9 or at == n - 1:
                    c.execute("COMMIT")

    def statement(self):
        r = self.random
        kind = r.choices(list(self.counts), (25, 55, 20))[0] if len(self.keys) > 60 else "insert"
        self.counts[kind] += 1
        self.messages += 2 if kind == "delete" else 1  # and a tombstone
        if kind == "insert":
            self.keys.append(self.next)
            self.next += 1
            values = ", ".join(map(self.value, COLUMNS.values()))
            return f"INSERT INTO {self.table} VALUES ({self.keys[-1]}, {values})"
        key = r.choice(self.keys)
        if kind == "delete":
            self.keys.remove(key)
            return f"DELETE FROM {self.table} WHERE id = {key}"
        some = r.sample(list(COLUMNS), 12)
        return f"UPDATE {self.table} SET {', '.join(f'{c} = {self.value(COLUMNS[c])}' for c in some)} WHERE id = {key}"


@pytest.mark.parametrize(
    "which",
    [
        pytest.param([("avro", "mor")], id="one table"),
        pytest.param(
            [("json", "cow"), ("json", "mor"), ("avro", "cow"), ("avro", "mor")],
            marks=pytest.mark.drill,
            id="four tables",
        ),
    ],
)
def test_the_lake_equals_the_source_or_the_table_of_types(own, spark, world, which):
    lab, made = own[0], own[1]["types"]
    tables = {(form, kind): new_table(world, partition=(), type=kind) for form, kind in which}
    assert made.counts["insert"] >= 60
    try:
        for number in range(3):
            if number:
                made.apply(lab, 200)
            for (form, kind), table in tables.items():
                topic = f"{NAME}_{form}.public.types"
                topics.wait_for_messages(lab, topic, made.messages, connector=f"{NAME}_{form}")
                source = hudi.Topic(topic, format=form, types="raw")
                done = hudi.ingest(spark, lab, source, table)
                assert done.dead_letters == 0, hudi.dead_letters(spark, lab, table).collect()
                if (
                    number == 1 and kind == "mor"
                ):  # what comes after is merged into the files of the compaction
                    hudi.compact(spark, table)
        truth = source_rows(lab, "types")
        for (form, kind), table in tables.items():
            types = dict(hudi.read(spark, table).dtypes)
            check.equal(
                f"types, {form}, {kind}",
                {c: types[c] for c in COLUMNS},
                {c: getattr(kind_, form) for c, kind_ in COLUMNS.items()},
            )
            compared = compare(
                truth,
                lake_rows(hudi.read(spark, table)),
                lambda *value, avro=form == "avro": expected(*value, avro),
            )
            assert not compared, f"{form}, {kind}: " + "\n".join(compared[:20])
        assert sum(made.counts.values()) >= 500 and min(made.counts.values()) >= 60, made.counts
    finally:
        for table in tables.values():
            hudi.drop(spark, world, table)


@pytest.mark.parametrize(
    "which",
    [
        [("avro", "mor")],
        pytest.param(
            [("json", "cow"), ("json", "mor"), ("avro", "cow")],
            marks=pytest.mark.drill,
        ),
    ],
    ids=["one table", "the other three"],
)
def test_analyst_types(own, spark, world, which):
    """Full rows of the lake equal the source's, and what a column cannot hold is a dead letter."""
    lab, made = own[0], own[1]["analyst"]
    tables = {(form, kind): new_table(world, partition=(), type=kind) for form, kind in which}

    def ingest(form, table):
        topic = f"{NAME}_{form}.public.analyst"
        topics.wait_for_messages(lab, topic, made.messages, connector=f"{NAME}_{form}")
        hudi.ingest(spark, lab, hudi.Topic(topic, format=form, types="analyst"), table)
        dead = hudi.dead_letters(spark, lab, table).orderBy("offset").collect()
        reasons = [row["reason"] for row in dead]
        assert len(reasons) == made.refused, reasons
        return reasons

    try:
        for number in range(3):
            if number:
                made.apply(lab, 200)
            for (form, kind), table in tables.items():
                ingest(form, table)
                if number == 1 and kind == "mor":
                    hudi.compact(spark, table)
        truth = source_rows(lab, "analyst")
        assert sum(made.counts.values()) >= 500 and min(made.counts.values()) >= 60, made.counts
        for (form, kind), table in tables.items():
            rows = hudi.read(spark, table)
            types = {c: t for c, t in rows.dtypes if c in COLUMNS}
            wanted = {c: kind_.analyst for c, kind_ in COLUMNS.items()}
            check.equal(f"types, {form}, {kind}", types, wanted)
            compared = compare(
                truth, lake_rows(rows), lambda kind, text, _: expected_analyst(kind, text)
            )
            assert not compared, f"{form}, {kind}: " + "\n".join(compared[:20])
        query_as_an_analyst(spark, next(iter(tables.values())))
        refused = [(name, value) for name, values in REFUSED.items() for value in values]
        names = {kind.name: name for name, kind in COLUMNS.items()}
        for n, (name, value) in enumerate(refused):
            key, column = 1_000_000 + n, names[name]
            good = f"INSERT INTO analyst (id, c05) VALUES ({key}, 1)"
            postgres.execute(lab, good)  # then a value that is refused, then a delete
            postgres.execute(lab, f"UPDATE analyst SET {column} = {value} WHERE id = {key}")
            if n % 2:
                postgres.execute(lab, f"DELETE FROM analyst WHERE id = {key}")
            made.messages += 4 if n % 2 else 2
        made.refused += len(refused)
        for (form, _), table in tables.items():
            reasons = ingest(form, table)[-len(refused) :]
            assert sorted(r.partition(":")[0] for r in reasons) == sorted(
                f'{{"{names[name]}"' for name, _ in refused
            )
            rows = hudi.read(spark, table).where("id >= 1000000").select("id").collect()
            assert {row["id"] for row in rows} == {
                1_000_000 + n for n in range(len(refused)) if not n % 2
            }, "a delete needs its key only"
    finally:
        left = postgres.execute(lab, "DELETE FROM analyst WHERE id >= 1000000")
        made.messages += 2 * left
        for table in tables.values():
            hudi.drop(spark, world, table)


def query_as_an_analyst(spark, table):
    """SQL in Athena's dialect, and the dtypes of a frame that a chart takes."""
    column = {kind.name: name for name, kind in COLUMNS.items()}
    name = hudi.register(spark, table)
    json_ = query.sql(
        spark,
        f"SELECT json_extract_scalar({column['jsonb']}, '$.a[0]') AS a, "
        f"json_extract({column['json']}, '$.a') AS b, count(*) AS n FROM {name} "
        f"WHERE {column['jsonb']} LIKE '{{%' AND {column['json']} LIKE '{{%' GROUP BY 1, 2",
    )
    assert json_.to_dict("records")[0]["a"] == "1" and json_["b"][0] == "1"
    moments = query.sql(
        spark,
        f"SELECT {column['timestamptz']} AS z, {column['timestamp']} AS t, "
        f"{column['numeric']} AS n, {column['interval']} AS i, {column['point']}.x AS x, "
        f"element_at({column['timestamptz[]']}, 1) AS first FROM {name} "
        f"WHERE year({column['timestamptz']}) = 2001 AND year({column['timestamp']}) = 2001",
    )
    assert len(moments)
    for name in "zt":
        assert moments[name].dtype.kind == "M", moments.dtypes


def source_rows(world, table):
    """{id: {column: PostgreSQL's text of the value; of a list, JSON of its texts}}."""

    def text(name, kind):
        if kind.name.endswith("[]"):
            return (
                f"CASE WHEN {name} IS NOT NULL THEN (SELECT coalesce(json_agg(CASE WHEN e IS NOT NULL THEN "
                f"concat(e) END ORDER BY n), '[]')::text FROM unnest({name}) WITH ORDINALITY u(e, n)) END"
            )
        # a cast to text takes a char's blanks away
        return f"CASE WHEN {name} IS NOT NULL THEN concat({name}) END"

    with postgres.connect(world) as c:
        c.execute("SET intervalstyle = iso_8601; SET timezone = UTC")
        rows = c.execute(
            f"SELECT id, {', '.join(text(*each) for each in COLUMNS.items())} FROM {table}"
        ).fetchall()
    return {row[0]: dict(zip(COLUMNS, row[1:])) for row in rows}


def lake_rows(rows):
    """{id: (whether the row is of the first snapshot, {column: value})}, numbers exact."""
    fields = {f.name: f.dataType for f in rows.schema}
    shown = F.to_json(
        F.struct(*[as_number(F.col(c), fields[c]).alias(c) for c in COLUMNS]),
        {"ignoreNullFields": "false"},
    )
    return {
        row["id"]: (
            row["op"] == "r",
            json.loads(row["shown"], parse_float=Decimal, object_hook=exact),
        )
        for row in rows.select("id", F.col("__op").alias("op"), shown.alias("shown")).collect()
    }


def as_number(column, kind):
    """Dates as days, timestamps as microseconds."""
    if isinstance(kind, T.ArrayType):
        return F.transform(column, lambda each: as_number(each, kind.elementType))
    if isinstance(kind, T.DateType):
        return F.unix_date(column)
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(column)
    return column


def exact(found):
    """A numeric without precision as the decimal that its scale and bytes say; any other struct as
    it is."""
    if found.keys() != {"scale", "value"}:
        return found
    return Decimal(
        f"{int.from_bytes(base64.b64decode(found['value']), 'big', signed=True)}E{-found['scale']}"
    )


def compare(truth, seen, expected):
    found = [f"id={key}: in one of both only" for key in truth.keys() ^ seen.keys()]
    for key in truth.keys() & seen.keys():
        snapshot, row = seen[key]
        for column, kind in COLUMNS.items():
            wanted = expected(kind, truth[key][column], snapshot)
            if not alike(row[column], wanted):
                found.append(
                    f"{kind.name}, id={key}, {truth[key][column]!r}: lake {row[column]!r}, wanted {wanted!r}, "
                    f"snapshot {snapshot}"
                )
    return found


def alike(a, b):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
    if isinstance(b, float) and not isinstance(a, (str, type(None))):
        return float(a) == b
    return a == b and isinstance(a, bool) == isinstance(b, bool)
