"""The dialects of sqlglot that parse Athena's SQL and generate Spark's.

sqlglot parses the grammar. The functions stay calls without a meaning: athena_functions.yaml has their
Spark SQL, and a function that is not in it is rejected.
"""

import re
from typing import Any, Callable

from sqlglot import exp
from sqlglot.dialects.dialect import if_sql
from sqlglot.dialects.spark import Spark
from sqlglot.dialects.trino import Trino
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.athena import AthenaTrinoParser

from ..base import LakeError
from . import athena_types
from .athena_functions import (
    CASTS,
    DATE_SPECIFIERS,
    FUNCTIONS,
    TEXT_FORMS,
    WINDOW_PLACEHOLDER,
    depends_on_type,
    fill,
    find_template,
)

EXTRACTED_FIELDS = frozenset(
    """
    year quarter month week day day_of_month day_of_week dow day_of_year doy year_of_week yow hour minute
    second
    """.split()
)
# Functions to which the order of the keys of a JSON object does not matter
ORDERLESS_JSON_FUNCTIONS = frozenset(
    "json_extract_scalar json_size json_array_length is_json_scalar".split()
)
JSON_PATH = re.compile(r'\$(\.[\w:-]+|\[\d+\]|\["[^"\']+"\])*')
TIME_KINDS = ("timestamp", "zoned")
ROW_NODES = (exp.Tuple, exp.Struct)


def _parse_date(arguments: list[Any]) -> exp.Expr:
    """Parse date(x), which is a cast."""
    if len(arguments) != 1:
        return exp.Anonymous(this="date", expressions=arguments)
    return exp.cast(arguments[0], exp.DType.DATE)


def _parse_decimal_literal(parser: Any, text: exp.Expr, kind: exp.DataType) -> exp.Expr:
    """Return DECIMAL '…' as a number with a point, which has the digits of its text."""
    number = text.name if "." in text.name else f"{text.name}."
    if not re.fullmatch(r"-?(\d+\.\d*|\.\d+)", number):
        raise LakeError(f"DECIMAL {text.name!r} is not a decimal number", expected="DECIMAL '9.99'")
    return exp.Literal.number(number)


class AthenaDialect(Trino):
    """Parse Athena SQL. Functions stay anonymous."""

    INDEX_OFFSET = 0
    SUPPORTS_NULL_TYPE = True
    EXPRESSION_METADATA = athena_types.EXPRESSION_METADATA

    class Parser(AthenaTrinoParser):
        """A parser without functions, except those with a syntax of their own."""

        FUNCTIONS = {"DATE": _parse_date}
        FUNCTION_PARSERS = {
            name: AthenaTrinoParser.FUNCTION_PARSERS[name]
            for name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "SUBSTRING")
        }
        TYPE_LITERAL_PARSERS = {
            **AthenaTrinoParser.TYPE_LITERAL_PARSERS,
            exp.DType.DECIMAL: _parse_decimal_literal,
            exp.DType.JSON: lambda parser, text, kind: exp.Anonymous(
                this="json_parse", expressions=[text]
            ),
        }


def unsupported(clause: str, node: Any) -> LakeError:
    """Return the error of a clause that has no counterpart in Spark."""
    return LakeError(
        f"{clause} cannot be translated to Spark",
        location=node.sql(AthenaDialect)[:300],
        hint="rewrite it with other functions, or use Spark directly: spark.sql(…)",
    )


def _translate(self: SparkGenerator, name: str, node: exp.Expr, arguments: list[Any]) -> str:
    """Return the Spark SQL of a function, by its table.

    Raises:
        LakeError: the function is unknown, has other arguments, or depends on a type that is unknown.
    """
    kind = ""
    if depends_on_type(name):
        if not node.type or node.is_type(exp.DType.UNKNOWN):
            raise LakeError(
                f"the translation of {name} to Spark depends on the type of its argument, which is unknown",
                location=node.sql(AthenaDialect)[:300],
                expected="columns of tables in the catalog, or values with a type",
                hint="register the table (hudi.register), correct the name of the column, or write CAST(… AS type)",
            )
        kind = athena_types.kind_of(node.type)
    template = find_template(name, len(arguments), kind)
    if template is None:
        raise unsupported(f"{name} of {len(arguments)} arguments", node)
    texts = [self.sql(argument) for argument in arguments]
    values = {str(number): text for number, text in enumerate(texts)}
    return fill(template, {**values, "all": ", ".join(texts), "over": WINDOW_PLACEHOLDER})


def _by_table(name: str) -> Callable[[SparkGenerator, Any], str]:
    """Return the generator of a clause that is a function in the table."""
    return lambda self, node: _translate(self, name, node, list(node.iter_expressions()))


def _call_sql(self: SparkGenerator, call: exp.Anonymous) -> str:
    name, arguments = call.name.lower(), list(call.expressions)
    first = arguments[0] if arguments else exp.null()
    with_unit = f"{name} {first.name.lower()}"
    if isinstance(first, exp.Distinct):
        name, arguments = f"distinct {name}", first.expressions
    elif first.is_string and with_unit in FUNCTIONS:
        name = with_unit
    elif name in ("date_format", "date_parse"):
        arguments[1:2] = [_date_pattern(argument) for argument in arguments[1:2]]
    elif name in ("json_extract", "json_extract_scalar", "json_size"):
        arguments[1:2] = [_json_path(argument) for argument in arguments[1:2]]
    elif name == "to_iso8601" and _is_time_literal(first):
        raise unsupported("the text of a literal TIMESTAMP", call)
    text = _translate(self, name, call, arguments)
    if name == "json_parse" and not _ignores_key_order(call.parent):
        return fill(str(FUNCTIONS["json_format"]), {"0": text})
    return text


def _ignores_key_order(node: Any) -> bool:
    """Whether the order of the keys of a JSON object does not matter to a cast or function."""
    is_function = isinstance(node, exp.Anonymous) and node.name.lower() in ORDERLESS_JSON_FUNCTIONS
    return is_function or isinstance(node, exp.Cast)


def _date_pattern(pattern: exp.Expr) -> exp.Expr:
    """Translate a date pattern of MySQL into one of Java, in which other text is quoted."""
    java = ""
    for specifier, text in re.findall("(%.?)|([^%]+)", pattern.name, re.S):
        if not pattern.is_string or specifier not in DATE_SPECIFIERS:
            raise unsupported("this pattern", pattern)
        java += DATE_SPECIFIERS[specifier] or "'{}'".format(text.replace("'", "''"))
    return exp.Literal.string(java)


def _json_path(path: exp.Expr) -> exp.Expr:
    """Translate a JSON path of names, quoted names and indexes: Spark takes single quotes only."""
    if not path.is_string or not JSON_PATH.fullmatch(path.name):
        raise unsupported("this path", path)
    return exp.Literal.string(path.name.replace('"', "'"))


def _bracket_sql(self: SparkGenerator, bracket: exp.Bracket) -> str:
    """Translate x[key]; whether it is a map or an array may be known by the key only."""
    key = bracket.expressions[0]
    if not bracket.type or bracket.is_type(exp.DType.UNKNOWN):
        kinds = {True: exp.DType.MAP, False: exp.DType.ARRAY}
        bracket.type = kinds[key.is_string] if key.is_string or key.is_number else None
    return _translate(self, "operator []", bracket, [bracket.this, key])


def _unnest_sql(self: SparkGenerator, unnest: exp.Unnest) -> str:
    alias, number, arguments = (
        unnest.args.get("alias"),
        unnest.args.get("offset"),
        unnest.expressions,
    )
    name = "unnest"
    if number:
        name = "unnest numbered"
        alias = alias and exp.TableAlias(this=alias.this, columns=[*alias.columns, number])
    elif alias and len(alias.columns) > len(arguments) == 1:
        name = "unnest rows"  # the fields of an array's rows, or the pairs of a map
    text = _translate(self, name, unnest, arguments)
    if isinstance(unnest.parent, exp.Join):
        text = f"LATERAL {text}"
    return f"{text} AS {self.sql(alias)}" if alias else text


def _cast_sql(self: SparkGenerator, cast: exp.Cast) -> str:
    """Translate a cast: Spark's takes other texts, and writes other texts."""
    to_sql = _type_sql(self, cast.to)
    if isinstance(cast.this, exp.Null):
        return f"CAST(NULL AS {to_sql})"
    kind = _cast_kind(cast)
    if kind == "nested":
        return _nested_cast_sql(self, cast)
    x, is_try = self.sql(cast.this), isinstance(cast, exp.TryCast)
    pattern = exp.Literal.string(f"^(?!({TEXT_FORMS.get(kind)})$)").sql(Spark)
    values = {
        "x": x,
        "to": to_sql,
        "cast": "TRY_CAST" if is_try else "CAST",
        "mode": "PERMISSIVE" if is_try else "FAILFAST",
        "text": f"REGEXP_REPLACE(CAST({x} AS STRING), {pattern}, '?')",
        "size": "".join(self.sql(size) for size in cast.to.expressions[:1]),
    }
    return fill(CASTS[kind], values)


def _type_sql(self: SparkGenerator, to: exp.DataType) -> str:
    """Return the SQL of a type. sqlglot removes the size of a type that it generates, so it gets a copy."""
    if to.is_type(exp.DType.DECIMAL) and not to.expressions:
        return "DECIMAL(38, 0)"
    return self.sql(to.copy())


def _cast_kind(cast: exp.Cast) -> str:
    """Return the name of the template of a cast (`casts` in athena_functions.yaml), or "nested".

    Raises:
        LakeError: the cast has no counterpart in Spark.
    """
    value, to, kind = cast.this, cast.to, athena_types.kind_of(cast.to)
    form = TEXT_FORMS.get(kind)
    is_literal = form and value.is_string and re.fullmatch(form, value.name)
    if _is_json(value):
        return _json_cast_kind(cast, kind)
    if to.this in exp.DataType.NESTED_TYPES:
        return "nested"
    if kind == "text":
        return _text_cast_kind(cast)
    if kind == "json" and isinstance(cast, exp.TryCast):
        raise unsupported("TRY_CAST to JSON", cast)
    if kind in TIME_KINDS and to.expressions:
        if not is_literal:
            raise unsupported("a cast to a TIMESTAMP with a precision", cast)
        return "time literal"  # which may have microseconds
    is_plain = is_literal and kind not in TIME_KINDS
    return "other" if is_plain or kind not in CASTS else kind


def _text_cast_kind(cast: exp.Cast) -> str:
    """Return the name of the template of a cast to text."""
    if _is_time_literal(cast.this):
        raise unsupported("the text of a literal TIMESTAMP", cast)
    return "sized text" if cast.to.expressions else "text"


def _json_cast_kind(cast: exp.Cast, kind: str) -> str:
    """Return the name of the template of a cast from JSON."""
    if kind in ("json", "zoned") or (kind == "text" and cast.to.expressions):
        raise unsupported(f"a cast from JSON to {cast.to.sql(AthenaDialect)}", cast)
    is_nested = cast.to.this in exp.DataType.NESTED_TYPES
    return "nested from json" if is_nested else "from json"


def _is_json(value: exp.Expr) -> bool:
    """Whether an expression has the type JSON, which is a text in Spark."""
    is_function = isinstance(value, exp.Anonymous) and value.name.lower() in (
        "json_parse",
        "json_extract",
    )
    return is_function or (isinstance(value, exp.Cast) and value.to.this == exp.DType.JSON)


def _is_time_literal(value: exp.Expr) -> bool:
    """Whether an expression is TIMESTAMP '…', whose text has as many digits as the literal."""
    return (
        isinstance(value, exp.Cast)
        and bool(value.to.expressions)
        and value.to.is_type(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ)
    )


def _nested_cast_sql(self: SparkGenerator, cast: exp.Cast) -> str:
    """Translate a cast to an array by its items, and a cast of ROW(…) by its fields."""
    value, to = cast.this, cast.to
    if isinstance(cast, exp.TryCast):
        raise unsupported("TRY_CAST to an array, a map or a row", cast)
    if to.this == exp.DType.ARRAY and to.expressions:
        item = exp.cast(exp.Var(this="__v"), to.expressions[0])
        return f"TRANSFORM({self.sql(value)}, __v -> {self.sql(item)})"
    is_row = isinstance(value, ROW_NODES) or value.name.lower() == "row"
    if to.this not in exp.DataType.STRUCT_TYPES or not is_row:
        raise unsupported("a cast to a map or a row, except of ROW(…): cast its parts", cast)
    if len(value.expressions) != len(to.expressions):
        raise unsupported("a row with another number of fields", cast)
    fields = [
        exp.alias_(exp.cast(part, field.kind), field.this)
        for part, field in zip(value.expressions, to.expressions)
    ]
    return f"STRUCT({', '.join(map(self.sql, fields))})"


def _like_sql(self: SparkGenerator, like: exp.Like) -> str:
    """Translate LIKE; without ESCAPE a backslash is a character as any other."""
    pattern = like.expression
    is_plain = pattern.is_string and "\\" not in pattern.name
    if is_plain or isinstance(like.parent, exp.Escape):
        return SparkGenerator.like_sql(self, like)
    return rf"{self.sql(like.this)} LIKE REPLACE({self.sql(pattern)}, '\\', '\\\\')"


def _trim_sql(self: SparkGenerator, trim: exp.Trim) -> str:
    if trim.expression:
        return str(SparkGenerator.TRANSFORMS[exp.Trim](self, trim))
    names = {"LEADING": "ltrim", "TRAILING": "rtrim"}
    name = names.get((trim.args.get("position") or "").upper(), "trim")
    return _translate(self, name, trim, [trim.this])


def _extract_sql(self: SparkGenerator, extract: exp.Extract) -> str:
    name = extract.name.lower()
    if name not in EXTRACTED_FIELDS or isinstance(extract.expression, exp.Interval):
        raise unsupported("this field", extract)
    return _translate(self, name, extract, [extract.expression])


def _window_sql(self: SparkGenerator, node: Any) -> str:
    """Generate FILTER or OVER after the aggregate in the Spark SQL, not after the whole form."""
    is_window = isinstance(node, exp.Window)
    text = SparkGenerator.window_sql(self, node) if is_window else self.filter_sql(node)
    inner = self.sql(node, "this")
    if WINDOW_PLACEHOLDER not in inner:
        return text
    return inner.replace(WINDOW_PLACEHOLDER, text[len(inner) :] + WINDOW_PLACEHOLDER)


class SparkDialect(Spark):
    """Generate Spark SQL of what `AthenaDialect` parsed."""

    class Generator(SparkGenerator):
        """A generator with Athena's results in edge cases."""

        TYPE_MAPPING = {
            **SparkGenerator.TYPE_MAPPING,
            exp.DType.JSON: "STRING",
            exp.DType.TIMESTAMPTZ: "TIMESTAMP_NTZ",
        }
        TRANSFORMS = {
            **SparkGenerator.TRANSFORMS,
            exp.Anonymous: _call_sql,
            exp.Bracket: _bracket_sql,
            exp.Cast: _cast_sql,
            exp.CurrentTimestamp: _by_table("now"),
            exp.Div: _by_table("operator /"),
            exp.Extract: _extract_sql,
            exp.Filter: _window_sql,
            exp.If: if_sql(false_value="NULL"),
            exp.Like: _like_sql,
            exp.Localtimestamp: _by_table("localtimestamp"),
            exp.StrPosition: _by_table("strpos"),
            exp.Substring: _by_table("substring"),
            exp.Trim: _trim_sql,
            exp.TryCast: _cast_sql,
            exp.Unnest: _unnest_sql,
            exp.Window: _window_sql,
        }
        del TRANSFORMS[exp.Select]  # it would rewrite UNNEST
