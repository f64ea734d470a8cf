"""PostgreSQL's types, their values in the lake, and Debezium's errors.

docs/types.md shows these two lists, and tests/stack/test_types.py checks the lake against them. A
value is PostgreSQL's text of it. A rule converts it to what Spark shows in JSON, with dates as days
and timestamps as microseconds since 1970.
"""

import base64
import json
import re
import struct
from dataclasses import dataclass
from decimal import Decimal

VARIABLE_SCALE_DECIMAL = "struct<scale:int,value:binary>"
POINT = "struct<x:double,y:double,wkb:binary,srid:int>"
SCALE = 10  # of the analyst type of a numeric without precision


@dataclass(frozen=True)
class Type:
    """A type of PostgreSQL.

    Attributes:
        name: its name.
        json: the Spark type of its column, read from JSON.
        avro: the Spark type of its column, read from Avro.
        rule: name of its rule.
        values: values in SQL.

    The analyst type is `analyst`; it is the same from JSON and from Avro.
    """

    name: str
    json: str
    avro: str
    rule: str
    values: tuple

    @property
    def analyst(self):
        kind = ANALYST_RULES.get(self.rule, (None,))[0]
        return kind and self.name.endswith("[]") and f"array<{kind}>" or kind or self.avro

    @property
    def accepted(self):
        """The values that a column of the analyst type can hold."""
        return tuple(v for v in self.values if v not in REFUSED.get(self.name, ()))


def days(text):
    """Return days since 1970-01-01 in the Gregorian calendar, for every year.

    "0044-03-15 BC" is in the year -43.
    """
    year, month, day = (int(n) for n in text.split()[0].split("-"))
    year = (1 - year if text.endswith("BC") else year) - (month <= 2)
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def clock(text):
    """Return the microseconds of "10:00:00.5"."""
    hours, minutes, seconds = text.split(":")
    return (int(hours) * 3600 + int(minutes) * 60) * 1_000_000 + int(Decimal(seconds) * 1_000_000)


def instant(text):
    return days(text) * 86_400_000_000 + clock(text.split()[1])


def bits(text):
    return base64_text(int(text, 2).to_bytes(-(-len(text) // 8), "little")) if text else ""


def base64_text(data):
    return base64.b64encode(data).decode()


def to_utc(text):
    """Return "10:00:00.5+02" as "08:00:00.5Z"."""
    time, hours, minutes = re.fullmatch(r"(.*?)([+-]\d\d)(?::(\d\d))?", text).groups()
    shift = (int(hours) * 60 + int(f"{hours[0]}{minutes or 0}")) * 60_000_000
    seconds, micros = divmod((clock(time) - shift) % 86_400_000_000, 1_000_000)
    part = f".{micros:06d}" if micros else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{part}Z"


def zoned_timestamp(text, digits):
    day, time = text.removesuffix("+00").split()
    seconds, _, part = time.partition(".")
    return f"{day}T{seconds}.{part.ljust(digits, '0')}Z"


def duration(text):
    """Return the microseconds of "P1Y2M3DT4H5M6.5S"; a month has 365.25 / 12 days."""
    date, _, time = text[1:].partition("T")
    found = {
        k: Decimal(n)
        for n, k in [
            *re.findall(r"([-\d.]+)([YMWD])", date),
            *((n, k.lower()) for n, k in re.findall(r"([-\d.]+)([HMS])", time)),
        ]
    }
    months = found.get("Y", 0) * 12 + found.get("M", 0)
    seconds = (months * Decimal("30.4375") + found.get("D", 0)) * 86_400
    seconds += found.get("h", 0) * 3600 + found.get("m", 0) * 60 + found.get("s", 0)
    return int(seconds * 1_000_000)


def point(text):
    x, y = (float(n) for n in text.strip("()").split(","))
    return {"x": x, "y": y, "wkb": base64_text(struct.pack("<BIdd", 1, 1, x, y)), "srid": None}


def parse_float(text):
    return text if text[-1] in "Ny" else float(text)


# {name: (description, function of a value; `avro`: whether it is read from Avro)}
RULES = {
    "same": (
        "the same value",
        lambda text, avro: {"t": True, "f": False}[text] if text in "tf" else int(text),
    ),
    "bit": ("true where it is 1", lambda text, avro: text == "1"),
    "float": ("the same value; NaN and the infinities, too", lambda text, avro: parse_float(text)),
    "text": ("the same text", lambda text, avro: text),
    "bits": ("the bits as bytes, the lowest bits first", lambda text, avro: bits(text)),
    "bytes": ("the same bytes", lambda text, avro: base64_text(bytes.fromhex(text[2:]))),
    "date": (
        "JSON: days since 1970-01-01 (`date_from_unix_date(x)`); Avro: the same day",
        lambda text, avro: days(text),
    ),
    "micro": (
        "JSON: microseconds since 1970-01-01 as if in UTC (`timestamp_micros(x)`); Avro: the same time",
        lambda text, avro: instant(text),
    ),
    "milli": (
        "JSON: milliseconds since 1970-01-01 as if in UTC (`timestamp_millis(x)`); Avro: the same time",
        lambda text, avro: instant(text) // (1 if avro else 1000),
    ),
    "time": ("microseconds since midnight", lambda text, avro: clock(text)),
    "time3": ("milliseconds since midnight", lambda text, avro: clock(text) // 1000),
    "timetz": (
        "a text, in UTC: `08:00:00.5Z`; 24:00 is `00:00:00Z`",
        lambda text, avro: to_utc(text),
    ),
    "zoned": (
        "a text, in UTC: `2001-02-03T02:05:06.789012Z` (`to_timestamp(x)`)",
        lambda text, avro: zoned_timestamp(text, 6),
    ),
    "zoned3": (
        "a text, in UTC: `2001-02-03T02:05:06.789Z` (`to_timestamp(x)`)",
        lambda text, avro: zoned_timestamp(text, 3),
    ),
    "interval": (
        "microseconds; a month counts as 365.25 / 12 days",
        lambda text, avro: duration(text),
    ),
    "loose": ("a struct of scale and bytes (below)", lambda text, avro: Decimal(text)),
    "decimal": (
        "the same value; JSON: with `value.converter.decimal.format=NUMERIC`",
        lambda text, avro: Decimal(text),
    ),
    "money": (
        "the amount; JSON: with `value.converter.decimal.format=NUMERIC`",
        lambda text, avro: Decimal(text.replace("$", "").replace(",", "")),
    ),
    "point": (
        "the coordinates, and the point as well-known binary",
        lambda text, avro: point(text),
    ),
    "vector": ("the same numbers", lambda text, avro: json.loads(text)),
}


def clock_text(text):
    hours, minutes, seconds = text.split(":")
    return f"{hours}:{minutes}:{Decimal(seconds):09.6f}"


# {name: (analyst type, description, function of a value)} of the rules with another analyst type
ANALYST_RULES = {
    "date": ("date", "the same day", days),
    "micro": ("timestamp", "the same time", instant),
    "milli": ("timestamp", "the same time", instant),
    "zoned": ("timestamp", "the same instant, in UTC", lambda text: instant(text[:-3])),
    "zoned3": ("timestamp", "the same instant, in UTC", lambda text: instant(text[:-3])),
    "time": ("string", "`10:00:00.123456`: `CAST(x AS time)` in Athena", clock_text),
    "time3": ("string", "`10:00:00.123000`: `CAST(x AS time)` in Athena", clock_text),
    "interval": (
        "decimal(19,6)",
        "seconds; a month counts as 365.25 / 12 days",
        lambda text: Decimal(duration(text)).scaleb(-6),
    ),
    "loose": (
        f"decimal(38,{SCALE})",
        "the same number; another scale: `scales={column: digits}`",
        Decimal,
    ),
    "point": (
        "struct<x:double,y:double>",
        "the coordinates",
        lambda text: {name: point(text)[name] for name in "xy"},
    ),
}
# {type: values in SQL with which a row becomes a dead letter}
REFUSED = {
    "date": (
        "'infinity'",
        "'-infinity'",
        "'0044-03-15 BC'",
        "'1582-10-10'",
        "'1582-10-15'",
    ),
    "timestamp": (
        "'0001-01-01'",
        "'1582-10-14'",
        "'infinity'",
        "'-infinity'",
        "'0044-03-15 BC'",
    ),
    "timestamp(3)": ("'0001-01-01'", "'infinity'"),
    "timestamptz": (
        "'0001-01-01 00:00+00'",
        "'infinity'",
        "'-infinity'",
        "'0044-03-15 00:00+00 BC'",
    ),
    "numeric": ("1e28", "-1e28", "0.12345678901", "1e40"),
    "timestamp[]": ("'{2001-02-03,infinity}'",),
    "numeric[]": ("'{1,1e28}'",),
}

TYPES = (
    Type("boolean", "boolean", "boolean", "same", ("true", "false")),
    Type("bit(1)", "boolean", "boolean", "bit", ("B'1'", "B'0'")),
    Type("bit(10)", "binary", "binary", "bits", ("B'1010101010'", "B'1000000000'")),
    Type("bit varying", "binary", "binary", "bits", ("B'101'", "B''", "B'100000000'")),
    Type("smallint", "int", "int", "same", ("32767", "-32768")),
    Type("integer", "int", "int", "same", ("2147483647", "-2147483648", "0")),
    Type("bigint", "bigint", "bigint", "same", ("9223372036854775807", "-9223372036854775808")),
    Type("smallserial", "int", "int", "same", ("1", "2")),
    Type("serial", "int", "int", "same", ("1", "2")),
    Type("bigserial", "bigint", "bigint", "same", ("1", "2")),
    Type("oid", "bigint", "bigint", "same", ("4294967295", "0")),
    Type(
        "real", "float", "float", "float", ("1.1", "'NaN'", "'Infinity'", "'-Infinity'", "3.4e38")
    ),
    Type(
        "double precision",
        "double",
        "double",
        "float",
        ("0.1", "'NaN'", "'Infinity'", "'-Infinity'", "1e308"),
    ),
    Type("char(5)", "string", "string", "text", ("'ab'", "''")),
    Type("varchar(20)", "string", "string", "text", ("''", "'ab '", "'☃'")),
    Type("text", "string", "string", "text", ("''", "'null'", "E'\\U0001F600 \"\\\\ \\n'")),
    Type("bytea", "binary", "binary", "bytes", ("'\\x00ff'", "''")),
    Type(
        "date",
        "int",
        "date",
        "date",
        (
            "'2001-02-03'",
            "'0001-01-01'",
            "'9999-12-31'",
            "'1582-10-15'",
            "'infinity'",
            "'-infinity'",
            "'0044-03-15 BC'",
            "'1582-10-10'",
        ),
    ),
    Type("time", "bigint", "bigint", "time", ("'10:00:00.123456'", "'24:00'", "'00:00'")),
    Type("time(3)", "int", "int", "time3", ("'10:00:00.123'", "'24:00'")),
    Type(
        "timetz",
        "string",
        "string",
        "timetz",
        ("'10:00:00.123456+02'", "'24:00+00'", "'00:30+05:30'"),
    ),
    Type(
        "timestamp",
        "bigint",
        "timestamp",
        "micro",
        (
            "'2001-02-03 04:05:06.789012'",
            "'1969-12-31 23:59:59.999999'",
            "'9999-12-31 23:59:59.999999'",
            "'0001-01-01'",
            "'1582-10-14'",
            "'infinity'",
            "'-infinity'",
            "'0044-03-15 BC'",
        ),
    ),
    Type(
        "timestamp(3)",
        "bigint",
        "timestamp",
        "milli",
        ("'2001-02-03 04:05:06.789'", "'9999-12-31 23:59:59.999'", "'0001-01-01'", "'infinity'"),
    ),
    Type(
        "timestamptz",
        "string",
        "string",
        "zoned",
        (
            "'2001-02-03 04:05:06.789012+02'",
            "'9999-12-31 23:59:59.999999+00'",
            "'0001-01-01 00:00+00'",
            "'infinity'",
            "'-infinity'",
            "'0044-03-15 00:00+00 BC'",
        ),
    ),
    Type("timestamptz(3)", "string", "string", "zoned3", ("'2001-02-03 04:05:06.78+02'",)),
    Type(
        "interval",
        "bigint",
        "bigint",
        "interval",
        ("'1 year 2 months 3 days 04:05:06.789'", "'-1 day'"),
    ),
    Type(
        "numeric",
        VARIABLE_SCALE_DECIMAL,
        VARIABLE_SCALE_DECIMAL,
        "loose",
        (
            "1.5",
            "-1234567890123456789012345.678",
            "0",
            "12300",
            "-0.00000001",
            "'NaN'",
            "'Infinity'",
        ),
    ),
    Type(
        "numeric(10,2)",
        "decimal(10,2)",
        "decimal(10,2)",
        "decimal",
        ("12345678.90", "-0.01", "'NaN'"),
    ),
    Type(
        "numeric(38,10)",
        "decimal(38,10)",
        "decimal(38,10)",
        "decimal",
        ("1234567890123456789012345678.0123456789", "-0.0000000001"),
    ),
    Type("money", "decimal(38,2)", "decimal(38,2)", "money", ("'$1,234.50'", "'-$0.01'")),
    Type("json", "string", "string", "text", ("'{\"a\":  1}'", "'\"x\"'", "'null'")),
    Type("jsonb", "string", "string", "text", ("'{\"a\": [1, null]}'", "'null'")),
    Type("xml", "string", "string", "text", ()),
    Type("uuid", "string", "string", "text", ("'00112233-4455-6677-8899-aabbccddeeff'",)),
    Type("point", POINT, POINT, "point", ("'(1.5,-2)'", "'(0,1e100)'")),
    Type("inet", "string", "string", "text", ("'192.168.0.1/24'", "'::1'")),
    Type("cidr", "string", "string", "text", ("'192.168.0.0/24'",)),
    Type("macaddr", "string", "string", "text", ("'08:00:2b:01:02:03'",)),
    Type("macaddr8", "string", "string", "text", ("'08:00:2b:01:02:03:04:05'",)),
    Type("int4range", "string", "string", "text", ("'[1,5)'", "'empty'", "'(,)'")),
    Type("int8range", "string", "string", "text", ("'[1,5)'",)),
    Type("numrange", "string", "string", "text", ("'[1.5,2.5]'",)),
    Type("tsrange", "string", "string", "text", ("'[2001-02-03 04:05:06, infinity)'",)),
    Type("tstzrange", "string", "string", "text", ("'[2001-02-03 04:05:06+02,)'",)),
    Type("daterange", "string", "string", "text", ("'[2001-02-03, 2001-02-05)'",)),
    Type("tsvector", "string", "string", "text", ("'a fat:2 cat'",)),
    Type("mood", "string", "string", "text", ("'happy'", "'sad'")),
    Type("positive", "int", "int", "same", ("1", "5")),
    Type("loose", VARIABLE_SCALE_DECIMAL, VARIABLE_SCALE_DECIMAL, "loose", ("1.5",)),
    Type("boolean[]", "array<boolean>", "array<boolean>", "same", ("'{t,NULL}'", "'{}'")),
    Type("smallint[]", "array<int>", "array<int>", "same", ("'{1,NULL}'",)),
    Type("integer[]", "array<int>", "array<int>", "same", ("'{1,NULL,3}'", "'{}'", "'{NULL}'")),
    Type("bigint[]", "array<bigint>", "array<bigint>", "same", ("'{1,NULL}'",)),
    Type("oid[]", "array<bigint>", "array<bigint>", "same", ("'{1,NULL}'",)),
    Type("real[]", "array<float>", "array<float>", "float", ("'{1.5,NULL,NaN}'",)),
    Type(
        "double precision[]", "array<double>", "array<double>", "float", ("'{1.5,NULL,-Infinity}'",)
    ),
    Type(
        "numeric(10,2)[]",
        "array<decimal(10,2)>",
        "array<decimal(10,2)>",
        "decimal",
        ("'{1.50,NULL}'", "'{NaN,1}'"),
    ),
    Type(
        "numeric[]",
        f"array<{VARIABLE_SCALE_DECIMAL}>",
        f"array<{VARIABLE_SCALE_DECIMAL}>",
        "loose",
        ("'{1.50,NULL,2}'", "'{NaN,1}'"),
    ),
    Type("char(3)[]", "array<string>", "array<string>", "text", ("'{a,NULL}'",)),
    Type("varchar(5)[]", "array<string>", "array<string>", "text", ("'{a,NULL,\"\"}'",)),
    Type(
        "text[]",
        "array<string>",
        "array<string>",
        "text",
        ('\'{a,NULL,"","NULL"}\'', "'{}'", "'{NULL}'"),
    ),
    Type("bytea[]", "array<binary>", "array<binary>", "bytes", ("ARRAY['\\x00ff'::bytea, NULL]",)),
    Type("date[]", "array<int>", "array<date>", "date", ("'{2001-02-03,NULL,0001-01-01}'",)),
    Type("time(3)[]", "array<int>", "array<int>", "time3", ("'{10:00:00.123,NULL}'",)),
    Type("timetz[]", "array<string>", "array<string>", "timetz", ("'{10:00+02,NULL}'",)),
    Type(
        "timestamp[]",
        "array<bigint>",
        "array<timestamp>",
        "micro",
        ("'{2001-02-03 04:05:06.5,NULL}'",),
    ),
    Type(
        "timestamptz[]",
        "array<string>",
        "array<string>",
        "zoned",
        ("'{2001-02-03 04:05:06+00,NULL}'",),
    ),
    Type("json[]", "array<string>", "array<string>", "text", ("ARRAY['{\"a\":  1}'::json, NULL]",)),
    Type(
        "jsonb[]",
        "array<string>",
        "array<string>",
        "text",
        ("ARRAY['{\"a\": [1, null]}'::jsonb, NULL]",),
    ),
    Type(
        "uuid[]",
        "array<string>",
        "array<string>",
        "text",
        ("'{00112233-4455-6677-8899-aabbccddeeff,NULL}'",),
    ),
    Type("inet[]", "array<string>", "array<string>", "text", ("'{192.168.0.1,NULL}'",)),
    Type("cidr[]", "array<string>", "array<string>", "text", ("'{10.0.0.0/8,NULL}'",)),
    Type("macaddr[]", "array<string>", "array<string>", "text", ("'{08:00:2b:01:02:03,NULL}'",)),
    Type(
        "int4range[]",
        "array<string>",
        "array<string>",
        "text",
        ("ARRAY['[1,5)'::int4range, NULL]",),
    ),
    Type(
        "numrange[]", "array<string>", "array<string>", "text", ("ARRAY['[1,5)'::numrange, NULL]",)
    ),
    Type(
        "tsrange[]",
        "array<string>",
        "array<string>",
        "text",
        ("ARRAY['[2001-01-01,)'::tsrange, NULL]",),
    ),
    Type(
        "daterange[]",
        "array<string>",
        "array<string>",
        "text",
        ("ARRAY['[2001-01-01,)'::daterange, NULL]",),
    ),
    Type(
        "mood[]",
        "array<string>",
        "array<string>",
        "text",
        ("'{happy,sad}'", "'{}'", "'{happy,NULL}'"),
    ),
    Type("vector(3)", "array<double>", "array<double>", "vector", ("'[1,2.5,3]'",)),
)

# {(type, PostgreSQL's text): (value from the snapshot, value from the log)}, both as in JSON
DEBEZIUM_ERRORS = {
    ("date", "infinity"): (-622191234, -2147472692),
    ("date", "-infinity"): (-625821272, -2147472691),
    ("date", "0044-03-15 BC"): (days("0044-03-15"), days("0044-03-15 BC")),
    ("date", "1582-10-10"): (days("1582-10-20"), days("1582-10-10")),
    ("timestamp", "0001-01-01 00:00:00"): (
        instant("0001-12-30 00:00:00 BC"),
        instant("0001-01-01 00:00:00"),
    ),
    ("timestamp", "1582-10-14 00:00:00"): (
        instant("1582-10-24 00:00:00"),
        instant("1582-10-14 00:00:00"),
    ),
    ("timestamp", "infinity"): (9223372036825200000, 9223372036825200000),
    ("timestamp", "-infinity"): (-9223372036832400000, -9223372036832400000),
    ("timestamp", "0044-03-15 00:00:00 BC"): (
        instant("0044-03-13 00:00:00 BC"),
        instant("0044-03-15 00:00:00 BC"),
    ),
    ("timestamp(3)", "0001-01-01 00:00:00"): (-62135769600000, -62135596800000),
    ("timestamp(3)", "infinity"): (9223372036825200, 9223372036825200),
    ("timestamptz", "0001-01-01 00:00:00+00"): (
        "0000-12-30T00:00:00.000000Z",
        "0001-01-01T00:00:00.000000Z",
    ),
    ("timestamptz", "infinity"): ("infinity", "infinity"),
    ("timestamptz", "-infinity"): ("-infinity", "-infinity"),
    ("timestamptz", "0044-03-15 00:00:00+00 BC"): (
        "-0043-03-13T00:00:00.000000Z",
        "-0043-03-15T00:00:00.000000Z",
    ),
    ("numeric", "NaN"): (None, None),
    ("numeric", "Infinity"): (None, None),
    ("numeric(10,2)", "NaN"): (None, None),
    ("numeric(10,2)[]", '["NaN", "1.00"]'): (None, None),
    ("numeric[]", '["NaN", "1"]'): (None, None),
    ("mood[]", '["happy", null]'): (None, None),
}


def expected(kind, text, snapshot, avro):
    """Return the expected value in the lake.

    Args:
        kind: the Type.
        text: PostgreSQL's text; for a list, JSON of its texts.
        snapshot: whether it comes from the snapshot.
        avro: whether it is read from Avro.
    """
    if text is None:
        return None
    if (kind.name, text) in DEBEZIUM_ERRORS:
        said = DEBEZIUM_ERRORS[kind.name, text][0 if snapshot else 1]
        return said * 1000 if avro and kind.name == "timestamp(3)" else said
    rule = RULES[kind.rule][1]
    if kind.name.endswith("[]"):
        return [None if each is None else rule(each, avro) for each in json.loads(text)]
    return rule(text, avro)


def expected_analyst(kind, text):
    """Return the expected value of a column of the analyst type; the arguments are as for `expected`."""
    if kind.rule not in ANALYST_RULES or text is None:
        return expected(kind, text, False, True)
    if (kind.name, text) in DEBEZIUM_ERRORS:
        assert DEBEZIUM_ERRORS[kind.name, text] == (None, None)
        return None
    rule = ANALYST_RULES[kind.rule][2]
    if kind.name.endswith("[]"):
        return [None if each is None else rule(each) for each in json.loads(text)]
    return rule(text)


def _element(name, kind):
    """Return the type of a list's items; another type is returned as it is."""
    return kind[len("array<") : -1] if name.endswith("[]") else kind


def doc_tables():
    """Return the rows of the tables of docs/types.md: analyst types, Debezium's types, wrong values.

    Types with the same description are in one row, a list with its items' type. Debezium's types are those
    that are other ones than the analyst types.
    """
    analyst, debezium = {}, {}
    for t in TYPES:
        text = RULES[t.rule][0]
        kind = _element(t.name, t.analyst)
        analyst.setdefault((kind, ANALYST_RULES.get(t.rule, (None, text))[1]), []).append(t.name)
        if t.rule in ANALYST_RULES:
            kinds = _element(t.name, t.json), _element(t.name, t.avro)
            debezium.setdefault((*kinds, text), []).append(t.name)
        else:
            assert t.json == t.avro == t.analyst, t.name
    wrong = [
        f"| `{kind}` | `{text}` | `{json.dumps(first)}` | `{json.dumps(later)}` |"
        for (kind, text), (first, later) in DEBEZIUM_ERRORS.items()
    ]
    return [*map(_doc_row, analyst.items())], [*map(_doc_row, debezium.items())], wrong


def _doc_row(group):
    (*kinds, text), names = group
    cells = [", ".join(f"`{name}`" for name in names), *(f"`{kind}`" for kind in kinds), text]
    return f"| {' | '.join(cells)} |"
