"""Which schema may follow another by Avro's rules, and what a change of it does to the columns of a
table."""

import json
from types import SimpleNamespace

import pytest
from evolutions import CHANGES, FIRST, is_allowed
from pyspark.sql import types as T
from workbench.base.errors import LakeError
from workbench.hudi import evolution
from workbench.topic import avro

# --- Avro's rules
# ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", avro.COMPATIBILITY_MODES)
@pytest.mark.parametrize("change", CHANGES)
def test_what_avro_says_of_each_change(change, mode):
    why = avro.check_compatibility([FIRST], CHANGES[change], mode)
    assert (why == "") is is_allowed(change, mode), why


def test_a_transitive_mode_looks_at_all_versions():
    """Two steps that are backward compatible each: a field goes, and comes back as another type,
    with a default."""
    without = CHANGES["drop"]
    again = {
        **without,
        "fields": [*without["fields"], {"name": "title", "type": "int", "default": 0}],
    }
    assert avro.check_compatibility([FIRST, without], again, "BACKWARD") == ""
    assert "string" in avro.check_compatibility([FIRST, without], again, "BACKWARD_TRANSITIVE")
    assert avro.check_compatibility([], again, "FULL_TRANSITIVE") == ""


def test_what_is_no_mode_or_no_schema():
    with pytest.raises(
        LakeError, match="(?s)no compatibility mode 'BACKWARDS'.*did you mean 'BACKWARD'"
    ):
        avro.check_compatibility([FIRST], FIRST, "BACKWARDS")
    with pytest.raises(LakeError, match="not an Avro schema"):
        avro.check_compatibility([FIRST], {"type": "recrod"}, "FULL")
    assert "missing default value: COUNTRY" in avro.check_compatibility(
        [FIRST], CHANGES["add required"], "FULL"
    )


# --- the columns of a table
# ------------------------------------------------------------------------------------------

NAMED = {
    kind.simpleString(): kind
    for kind in (
        T.ByteType(),
        T.ShortType(),
        T.IntegerType(),
        T.LongType(),
        T.FloatType(),
        T.DoubleType(),
        T.StringType(),
        T.BinaryType(),
        T.DateType(),
        T.TimestampType(),
    )
}


def split(text):
    """The parts between commas that stand in no brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "<(") - (c in ">)")
        parts, more = ([*parts, ""], "") if c == "," and not depth else (parts, c)
        parts[-1] += more
    return [part.strip() for part in parts]


def kind(text):
    name, _, inner = text.partition("<")
    if name == "struct":
        return row(inner[:-1], ":")
    if name == "array":
        return T.ArrayType(kind(inner[:-1]))
    if name == "map":
        return T.MapType(T.StringType(), kind(inner[:-1].partition(",")[2]))
    if name.startswith("decimal"):
        return T.DecimalType(*map(int, name[8:-1].split(",")))
    return NAMED[name]


def row(text, sign=" "):
    """A StructType by its text. (Spark's own parser of it wants a session.)"""
    fields = (each.partition(sign) for each in split(text))
    return T.StructType([T.StructField(name, kind(of)) for name, _, of in fields])


@pytest.mark.parametrize(
    "old, new, both",
    [
        ("a int, b string", "a int, b string", "a int, b string"),
        ("a int, b string", "b string, a int", "a int, b string"),
        ("a int, b string", "a int, b string, COUNTRY string", "a int, b string, COUNTRY string"),
        ("a int, b string", "a int", "a int, b string"),
        ("a int, b string", "a int, order string", "a int, b string, order string"),
        ("a int, b float", "a bigint, b double", "a bigint, b double"),
        ("a bigint, b double", "a int, b float", "a bigint, b double"),
        ("a int", "a double", "a double"),
        ("a decimal(10,2)", "a decimal(12,2)", "a decimal(12,2)"),
        ("a decimal(12,4)", "a decimal(10,2)", "a decimal(12,4)"),
        ("a struct<x:int>", "a struct<y:int,x:bigint>", "a struct<x:bigint,y:int>"),
        ("a array<struct<x:int>>", "a array<struct<x:bigint>>", "a array<struct<x:bigint>>"),
        ("a map<string,int>", "a map<string,bigint>", "a map<string,bigint>"),
        ("a map<string,bigint>", "a map<string,int>", "a map<string,bigint>"),
        (
            "a struct<x:int>, b array<struct<x:int>>",
            "a struct<y:int,x:int>, b array<struct<x:int,y:int>>",
            "a struct<x:int,y:int>, b array<struct<x:int,y:int>>",
        ),
        (
            "a int, b int, c array<int>, d bigint",
            "a smallint, b tinyint, c array<smallint>, d smallint",
            "a int, b int, c array<int>, d bigint",
        ),  # as Hudi gives back a smallint that was written
        (
            "a smallint, b tinyint, c tinyint",
            "a int, b smallint, c double",
            "a int, b smallint, c double",
        ),
    ],
)
def test_columns_hold_the_values_of_both_schemas(old, new, both):
    assert evolution.merge_schemas("t", row(old), row(new)) == row(both)


@pytest.mark.parametrize(
    "old, new",
    [
        ("a decimal(10,2)", "a decimal(12,2)"),
        ("a decimal(10,2)", "a decimal(12,4)"),
        ("a decimal(10,2)", "a decimal(26,8)"),
        ("a struct<x:int>", "a struct<x:bigint>"),
        ("a array<int>", "a array<bigint>"),
        ("a map<string,int>", "a map<string,bigint>"),
        ("a array<struct<x:int>>", "a array<struct<x:bigint>>"),
        ("a struct<d:decimal(5,2)>", "a struct<d:decimal(6,2)>"),
    ],
)
def test_what_no_reader_of_hudi_sees_as_wider_rewrites_a_table(old, new):
    assert evolution.merge_schemas("t", row(old), row(new)) == row(new) and evolution.merge_schemas(
        "t", row(new), row(old)
    ) == row(new)
    assert evolution.needs_rewrite(row(f"id int, {old}"), row(f"id int, {new}, more string"))


@pytest.mark.parametrize(
    "old, new",
    [
        ("a int, b float", "a bigint, b double"),
        ("a struct<x:int>", "a struct<x:int,y:string>"),
        ("a array<struct<x:int>>", "a array<struct<x:int,y:int>>"),
        ("a decimal(10,2)", "a decimal(10,2), b string"),
    ],
)
def test_what_hudi_reads_as_it_is_rewrites_nothing(old, new):
    assert not evolution.needs_rewrite(row(old), row(new))


@pytest.mark.parametrize(
    "old, new",
    [
        ("a decimal(10,2)", "a decimal(10,4)"),
        ("a decimal(12,4)", "a decimal(14,2)"),
        ("a int", "a string"),
        ("a array<int>", "a array<string>"),
        ("a double", "a string"),
        ("a timestamp", "a string"),
    ],
)
def test_a_type_that_does_not_hold_the_old_values_stops_a_table(old, new):
    with pytest.raises(LakeError, match=r"(?s)its column cannot follow.*workbench recapture FLOW"):
        evolution.merge_schemas("t", row(old), row(new))


@pytest.mark.parametrize(
    "old, new",
    [
        ("a bigint", "a string"),
        ("a bigint", "a decimal(20,0)"),
        ("a int", "a double"),
        ("a decimal(20,0)", "a decimal(22,0)"),
        ("a string", "a int"),
    ],
)
def test_a_key_column_keeps_its_type(old, new):
    with pytest.raises(
        LakeError,
        match="(?s)a key column keeps its type.*bigint.unsigned.handling.mode"
        r".*workbench recapture FLOW",
    ):
        evolution.check_key_types("t", row(f"{old}, b int"), row(f"{new}, b double"), ["a"])


def test_a_key_column_of_int_becomes_bigint():
    old = row("a int, b int")
    for new in ("a int, b double", "a bigint, b int"):
        evolution.check_key_types("t", old, row(new), ["a"])


@pytest.mark.parametrize(
    "old, new, told",
    [
        ("a int", "a string", "t.a was int and becomes string"),
        ("a string", "a int", "t.a was string and becomes int"),
        ("a bigint", "a double", "t.a was bigint and becomes double"),
        ("a string", "a binary", "t.a was string and becomes binary"),
        ("a smallint", "a string", "t.a was smallint and becomes string"),
        ("a date", "a timestamp", "t.a was date and becomes timestamp"),
        (
            "a decimal(10,2)",
            "a decimal(10,4)",
            r"t.a was decimal\(10,2\) and becomes decimal\(10,4\)",
        ),
        ("a struct<x:int>", "a struct<x:string>", "t.a.x was int and becomes string"),
        ("a array<int>", "a array<string>", r"t.a\[\] was int and becomes string"),
        ("a map<string,int>", "a map<string,string>", r"t.a\{\} was int and becomes string"),
        ("a int", "a struct<x:int>", "t.a was int and becomes struct<x:int>"),
    ],
)
def test_what_no_column_holds_is_told_with_the_choices(old, new, told):
    with pytest.raises(
        LakeError,
        match=f"(?s){told}: its column cannot follow.*int to bigint.*handling.mode"
        r".*workbench recapture FLOW",
    ):
        evolution.merge_schemas("t", row(old), row(new))


def test_names_that_differ_in_case_only_are_one_name():
    with pytest.raises(
        LakeError, match="(?s)t has country and COUNTRY, which Spark and Athena.*rename one"
    ):
        evolution.merge_schemas("t", row("id int, country string"), row("id int, COUNTRY string"))
    with pytest.raises(LakeError, match=r"t\.a has x and X"):
        evolution.merge_schemas("t", row("a struct<x:int,X:int>"))


def test_every_column_may_be_null():
    required = T.StructType([T.StructField("a", T.ArrayType(T.IntegerType(), False), False)])
    assert evolution.merge_schemas("t", required) == row("a array<int>")


def said(before, now, table):
    return evolution.describe_change(
        *(evolution.field_types(row(text)) for text in (before, now, table))
    )


def test_what_is_said_of_a_change():
    assert said("a int, b string", "b string, a int", "a int, b string") == ""
    assert said("a int", "a int, COUNTRY string", "a int, COUNTRY string") == "added COUNTRY string"
    assert said("n int", "n bigint", "n bigint") == "widened n int to bigint"
    assert said("n bigint", "n int", "n bigint") == "changed n bigint to int, in a column of bigint"
    assert said("a int, b string", "a int, order string", "a int, b string, order string") == (
        "added order string; dropped b string, which stays and is null in new rows"
    )


def commit(schema):
    return SimpleNamespace(metadata={"extraMetadata": {"schema": schema and json.dumps(schema)}})


def test_the_columns_of_a_table_are_those_of_its_last_commit_that_says_them():
    def record(*fields):
        return {
            "type": "record",
            "name": "t_record",
            "namespace": "hoodie.t",
            "fields": [
                {"name": name, "type": ["null", kind], "default": None} for name, kind in fields
            ],
        }

    price = {
        "type": "fixed",
        "name": "fixed",
        "namespace": "hoodie.t.t_record.price",
        "size": 5,
        "logicalType": "decimal",
        "precision": 10,
        "scale": 2,
    }
    last = record(
        ("_hoodie_commit_time", "string"),
        ("id", "int"),
        ("price", price),
        ("_hoodie_is_deleted", "boolean"),
    )
    done = [commit(record(("id", "int"))), commit(last), commit("")]
    assert evolution.table_columns(done) == row("id int, price decimal(10,2)")
    assert evolution.table_columns([]) is evolution.table_columns([commit(None)]) is None
