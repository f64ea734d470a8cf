"""The dialects of sqlglot that parse Athena's SQL and generate Spark's.

`athena_functions` has the Spark SQL of functions that sqlglot does not translate correctly.
"""

import re
from typing import Any, Callable

from sqlglot import exp
from sqlglot.dialects.dialect import if_sql
from sqlglot.dialects.spark import Spark
from sqlglot.dialects.trino import Trino
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.athena import AthenaTrinoParser
from sqlglot.time import format_time

from ..base import LakeError
from . import athena_types
from .athena_functions import (
    ARGUMENT_COUNTS,
    FUNCTIONS,
    INTERVALS,
    SQLGLOT_FUNCTIONS,
    TEXT_FORMS,
    TYPED_FUNCTIONS,
    WINDOW_PLACEHOLDER,
    character,
    in_form,
    logarithm,
    raise_sql,
    replacement,
    rounded,
    substring,
    trimmed,
)

# Types whose kind decides about a translation
KINDS = {
    **dict.fromkeys(exp.DataType.SIGNED_INTEGER_TYPES, "integer"),
    exp.DType.BOOLEAN: "boolean",
    exp.DType.DECIMAL: "decimal",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "zoned",
    exp.DType.MAP: "map",
}
NAME_KEY = "athena_name"  # of the metadata of a call: the name in the query
DATE_SPECIFIERS = set(re.findall("%.", "%a%b%c%d%e%f%H%h%I%i%j%k%l%M%m%p%r%S%s%T%W%Y%%"))
# Functions to which the order of the keys of a JSON object does not matter
ORDERLESS_JSON_FUNCTIONS = (
    "json_extract_scalar",
    "json_size",
    "json_array_length",
    "is_json_scalar",
)
JAVA_SPECIFIERS = {"%j": "DDD", "%%": "%"}  # those that sqlglot translates differently


def _parser_of(name: str) -> Callable[..., exp.Expr]:
    """Return sqlglot's parser of a function; a call with other arguments than Athena's stays anonymous."""
    parse = AthenaTrinoParser.FUNCTIONS[name.upper()]

    def parse_checked(arguments: list[Any], **dialect: Any) -> exp.Expr:
        is_valid = len(arguments) in ARGUMENT_COUNTS.get(name, [len(arguments)])
        if name == "date_diff" and is_valid:
            is_valid = arguments[0].sql().lower() in INTERVALS
        if not is_valid:
            return exp.Anonymous(this=name, expressions=arguments)
        call: exp.Expr = parse(arguments, **dialect)
        return call

    return parse_checked


def _decimal_literal(text: exp.Expr) -> exp.Expr:
    """Return DECIMAL '…' as a number, which has the digits of its text."""
    match = re.fullmatch(r"\s*([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)\s*", text.name)
    if not match:
        raise LakeError(f"DECIMAL {text.name!r} is not a decimal number", expected="DECIMAL '9.99'")
    whole, _, fraction = match[2].partition(".")
    precision = max(len(whole.lstrip("0")) + len(fraction), 1)
    return exp.cast(exp.Literal.string(match[0].strip()), f"DECIMAL({precision}, {len(fraction)})")


def _parse_date(arguments: list[Any]) -> exp.Expr:
    """Parse date(x), which is a cast."""
    if len(arguments) != 1:
        return exp.Anonymous(this="date", expressions=arguments)
    return exp.cast(arguments[0], exp.DType.DATE)


class AthenaDialect(Trino):
    """Parse Athena SQL. A function that sqlglot does not translate correctly stays anonymous."""

    INDEX_OFFSET = 0
    SUPPORTS_NULL_TYPE = True
    ORIGINAL_NAME_META_KEY = NAME_KEY
    EXPRESSION_METADATA = athena_types.EXPRESSION_METADATA

    class Parser(AthenaTrinoParser):
        """A parser of the functions that are supported."""

        FUNCTIONS = {
            **{name.upper(): _parser_of(name) for name in SQLGLOT_FUNCTIONS},
            "JSON_PARSE": exp.ParseJSON.from_arg_list,
            "DATE": _parse_date,
        }
        FUNCTION_PARSERS = {
            name: AthenaTrinoParser.FUNCTION_PARSERS[name]
            for name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "SUBSTRING")
        }
        TYPE_LITERAL_PARSERS = {
            **AthenaTrinoParser.TYPE_LITERAL_PARSERS,
            exp.DType.DECIMAL: lambda self, this, kind: _decimal_literal(this),
        }


def unsupported(clause: str, node: Any) -> LakeError:
    """Return the error of a clause that has no counterpart in Spark."""
    return LakeError(
        f"{clause} cannot be translated to Spark",
        location=node.sql(AthenaDialect)[:300],
        hint="rewrite it with other functions, or use Spark directly: spark.sql(…)",
    )


def wrong_arguments(name: str, arguments: list[Any], call: exp.Expr) -> LakeError:
    """Return the error of a function that is unknown or takes other arguments."""
    return unsupported(f"{name} of {len(arguments)} arguments", call)


def _typed_sql(name: str, call: exp.Expr, arguments: list[str]) -> str:
    """Translate a call by the type that `athena_types.annotate` has set."""
    if not call.type or call.is_type(exp.DType.UNKNOWN):
        raise LakeError(
            f"the translation of {name} to Spark depends on the type of its argument, which is unknown",
            location=call.sql(AthenaDialect)[:300],
            expected="columns of tables in the catalog, or values with a type",
            hint="register the table (hudi.register), correct the name of the column, or write CAST(… AS type)",
        )
    translations = TYPED_FUNCTIONS[name]
    return translations.get(KINDS.get(call.type.this, ""), translations[""])(*arguments)


def _call_sql(self: SparkGenerator, call: exp.Anonymous) -> str:
    name, arguments = call.name.lower(), call.expressions
    generate = _collect_sql if name == "array_agg" else type(self).sql
    texts = [generate(self, argument) for argument in arguments]
    if name in LITERAL_CONVERTERS and len(arguments) == 2:
        texts[1] = LITERAL_CONVERTERS[name](arguments[1])
    try:
        if name == "to_iso8601":
            return _typed_sql(name, call, texts).replace(".SSS", _fraction(arguments[0]))
        if name in TYPED_FUNCTIONS:
            return _typed_sql(name, call, texts)
        if name not in FUNCTIONS:  # a function of Spark, by sqlglot
            return self.anonymous_sql(call)
        return FUNCTIONS[name](*texts)
    except (KeyError, TypeError):  # another unit or number of arguments
        raise wrong_arguments(name, arguments, call) from None


def _collect_sql(self: SparkGenerator, value: exp.Expr) -> str:
    """Collect the values of array_agg as fields v of structs, because a list keeps no nulls.

    Ordered structs begin with what they are sorted by.
    """
    key = value.expressions[0] if isinstance(value, exp.Order) else None
    value = value.this if key else value
    distinct = ""
    if isinstance(value, exp.Distinct):
        distinct, value = "DISTINCT ", value.expressions[0]
    fields = f"{self.sql(value)} AS v"
    if key:
        is_ascending = not key.args.get("desc")
        is_last = is_ascending != bool(key.args.get("nulls_first"))
        key_sql = self.sql(key, "this")
        fields = f"(({key_sql}) IS NULL) = {str(is_last).upper()} AS n, {key_sql} AS k, {fields}"
    items = f"COLLECT_LIST({distinct}STRUCT({fields})){WINDOW_PLACEHOLDER}"
    return f"SORT_ARRAY({items}, {str(is_ascending).upper()})" if key else items


def _div_sql(self: SparkGenerator, division: exp.Div) -> str:
    arguments = [self.sql(division, "this"), self.sql(division, "expression")]
    return _typed_sql("operator /", division, arguments)


def _unnest_sql(self: SparkGenerator, unnest: exp.Unnest) -> str:
    alias, number, arguments = (
        unnest.args.get("alias"),
        unnest.args.get("offset"),
        unnest.expressions,
    )
    texts = [self.sql(argument) for argument in arguments]
    if len(arguments) == 2 and not number:  # ARRAYS_ZIP is null if one of the arrays is null
        arrays = ", ".join(f"COALESCE({text}, ARRAY())" for text in texts)
        text = f"INLINE(ARRAYS_ZIP({arrays}))"
    elif len(arguments) > 1:
        raise wrong_arguments("unnest numbered" if number else "unnest", arguments, unnest)
    elif number:
        text = f"INLINE(TRANSFORM({texts[0]}, (__v, __i) -> STRUCT(__v, __i + 1)))"
        alias = alias and exp.TableAlias(this=alias.this, columns=[*alias.columns, number])
    elif alias and len(alias.columns) > 1:  # the fields of an array's rows, or the pairs of a map
        text = _typed_sql("unnest rows", unnest, texts)
    else:
        text = f"EXPLODE({texts[0]})"
    if isinstance(unnest.parent, exp.Join):
        text = f"LATERAL {text}"
    return f"{text} AS {self.sql(alias)}" if alias else text


def _cast_sql(self: SparkGenerator, cast: exp.Cast) -> str:
    """Translate a cast; of a value that is not JSON.

    A cast to an integer rounds, but rejects a text with a fraction. A cast of a time to text has
    milliseconds.
    """
    kind, x = cast.to.this, self.sql(cast.this)
    name = "TRY_CAST" if isinstance(cast, exp.TryCast) else "CAST"
    if _is_json(cast.this):
        return _json_cast_sql(self, cast, name)
    if isinstance(cast.this, exp.Null) and kind != exp.DType.TIMESTAMPTZ:
        return f"CAST(NULL AS {_type_sql(self, cast.to)})"
    if kind in exp.DataType.NESTED_TYPES:
        return _nested_cast_sql(self, cast)
    if kind == exp.DType.JSON and name == "CAST":
        return _json_sql(x)
    if kind in exp.DataType.TEXT_TYPES:
        return _text_cast_sql(self, cast, x)
    if kind == exp.DType.TIMESTAMPTZ:
        return f"CAST({_scalar_cast_sql(cast, name, x, 'TIMESTAMP')} AS TIMESTAMP_NTZ)"
    if kind == exp.DType.DECIMAL and not cast.to.expressions:
        return _scalar_cast_sql(cast, name, x, "DECIMAL(38, 0)")
    return _scalar_cast_sql(cast, name, x, _type_sql(self, cast.to))


def _type_sql(self: SparkGenerator, to: exp.DataType) -> str:
    """Return the SQL of a type. sqlglot removes the size of a type that it generates, so it gets a copy."""
    return self.sql(to.copy())


def _scalar_cast_sql(cast: exp.Cast, name: str, x: str, to: str) -> str:
    """Cast to a number, a truth value or a time; `to` is Spark's type."""
    kind = cast.to.this
    form = TEXT_FORMS.get(KINDS.get(kind, ""))
    if form and not _has_form(cast, form):
        rounds = kind in exp.DataType.SIGNED_INTEGER_TYPES
        return _strict_cast_sql(form, name, x, to, rounds=rounds)
    return f"{name}({x} AS {to})"


def _has_form(cast: exp.Cast, form: str) -> bool:
    """Return whether the value is a literal that Spark casts as Athena does; only TIMESTAMP '…' has microseconds."""
    text = cast.this.name
    is_rounded = (
        cast.to.this != exp.DType.DECIMAL
        and not cast.to.expressions
        and re.search(r"\.\d{4}", text)
    )
    return bool(cast.this.is_string and re.fullmatch(form, text) and not is_rounded)


def _strict_cast_sql(form: str, name: str, x: str, to: str, *, rounds: bool) -> str:
    """Cast a text only if it has a form. A time from a text has milliseconds."""
    text, other = f"{name}({in_form(x, form)} AS {to})", f"{name}({x} AS {to})"
    if to == "TIMESTAMP":
        text = f"DATE_TRUNC('MILLISECOND', {text} + INTERVAL '0.0005' SECOND)"
    if rounds:
        other = f"{name}({name}({x} AS DECIMAL(38, 0)) AS {to})"
    return f"IF(TYPEOF({x}) = 'string', {text}, {other})"


def _nested_cast_sql(self: SparkGenerator, cast: exp.Cast) -> str:
    """Translate a cast to an array by its items; to a map or row if Spark casts each part as Trino does."""
    x, to = self.sql(cast.this), _type_sql(self, cast.to)
    if isinstance(cast, exp.TryCast):
        raise unsupported("TRY_CAST to an array, a map or a row", cast)
    if cast.to.this == exp.DType.ARRAY and cast.to.expressions:
        item = exp.cast(exp.Var(this="__v"), cast.to.expressions[0])
        return f"TRANSFORM({x}, __v -> {self.sql(item)})"
    error = raise_sql(
        "a cast inside a map or a row that Spark does otherwise: cast its parts one by one"
    )
    return f"IF(TYPEOF({x}) RLIKE '^{_source_pattern(cast.to)}$', CAST({x} AS {to}), {error})"


def _source_pattern(to: exp.DataType) -> str:
    """Return the regular expression of the types that Spark casts to a type as Trino does."""
    parts = [_source_pattern(getattr(part, "kind", part)) for part in to.expressions]
    if to.this == exp.DType.ARRAY:
        return f"(void|array<{parts[0]}>)"
    if to.this == exp.DType.MAP:
        return f"(void|map<{','.join(parts)}>)"
    if to.this in exp.DataType.STRUCT_TYPES:
        fields = ",".join(f"[^:<>]+:{part}" for part in parts)
        return f"(void|struct<{fields}>)"
    sources = {
        "integer": "boolean|[a-z]*int",
        "boolean": "boolean|[a-z]*int",
        "date": "date|timestamp",
        "timestamp": "date|timestamp",
        "decimal": r"boolean|[a-z]*int|decimal\\([0-9,]+\\)" if to.expressions else "",
    }
    if to.this in exp.DataType.TEXT_TYPES:
        text = "" if to.expressions else r"string|boolean|date|[a-z]*int|decimal\\([0-9,]+\\)"
        return f"(void|{text})"
    if to.this in exp.DataType.FLOAT_TYPES:
        return r"(void|boolean|[a-z]*int|decimal\\([0-9,]+\\)|float|double)"
    return f"(void|{sources.get(KINDS.get(to.this, ''), '')})"


def _json_sql(x: str) -> str:
    """Cast to JSON."""
    error = raise_sql("a cast of a TIMESTAMP to JSON: cast it to VARCHAR first")
    json = f"GET_JSON_OBJECT(TO_JSON(ARRAY({x}), MAP('ignoreNullFields', 'false')), '$[*]')"
    return f"CASE WHEN ({x}) IS NULL THEN NULL WHEN TYPEOF({x}) LIKE '%timestamp%' THEN {error} ELSE {json} END"


def _text_cast_sql(self: SparkGenerator, cast: exp.Cast, x: str) -> str:
    """Cast to text. Spark writes a double in another way than Athena, and shortens a number."""
    to, value = cast.to, cast.this
    if value.is_string or (value.is_int and not to.expressions):
        return _shortened(self, f"CAST({x} AS STRING)", to)
    time = f"DATE_FORMAT(CAST(CAST({x} AS STRING) AS TIMESTAMP), 'yyyy-MM-dd HH:mm:ss{_fraction(value)}')"
    time = f"CONCAT({time}, IF(TYPEOF({x}) = 'timestamp_ntz', ' UTC', ''))"
    interval = raise_sql("the text of an INTERVAL is not translated")
    double = raise_sql(
        "the text of a DOUBLE differs in Athena (1.5E0): cast it to DECIMAL(p, s) first"
    )
    plain = f"IF(TYPEOF({x}) IN ('double', 'float'), {double}, CAST({x} AS STRING))"
    text = f"CASE WHEN TYPEOF({x}) LIKE 'timestamp%' THEN {time} WHEN TYPEOF({x}) LIKE 'interval%' THEN {interval} "
    text += f"ELSE {plain} END"
    shortened = _shortened(self, text, to)
    if not to.expressions:
        return shortened
    size = self.sql(to.expressions[0])
    long = raise_sql(f"a number is longer than VARCHAR({size})")
    is_number = f"(TYPEOF({x}) LIKE '%int' OR TYPEOF({x}) LIKE 'decimal%')"
    return f"IF({is_number} AND LENGTH(CAST({x} AS STRING)) > {size}, {long}, {shortened})"


def _fraction(time: exp.Expr) -> str:
    """Return the pattern of a time's fraction: a literal has its own number of digits, all others milliseconds."""
    digits = (
        time.to.expressions[0].name if isinstance(time, exp.Cast) and time.to.expressions else "3"
    )
    return "." + "S" * int(digits) if digits != "0" else ""


def _json_cast_sql(self: SparkGenerator, cast: exp.Cast, name: str) -> str:
    kind, to = cast.to.this, self.sql(cast.to)
    # A cast validates its value
    value = cast.this.this if isinstance(cast.this, exp.ParseJSON) else cast.this
    x = self.sql(value)
    if kind == exp.DType.JSON:
        return x
    if kind in exp.DataType.NESTED_TYPES:
        mode = ", MAP('mode', 'FAILFAST')" if name == "CAST" else ""
        return f"FROM_JSON({x}, '{to}'{mode})"
    text = f"GET_JSON_OBJECT(CONCAT('{{\"v\":', {x}, '}}'), '$.v')"
    if kind in exp.DataType.TEXT_TYPES:
        return _shortened(self, text, cast.to)
    if kind == exp.DType.TIMESTAMPTZ:
        raise unsupported("a cast from JSON to a timestamp with time zone", cast)
    return f"{name}({text} AS {to})"


def _shortened(self: SparkGenerator, text: str, to: exp.DataType) -> str:
    return f"SUBSTR({text}, 1, {self.sql(to.expressions[0])})" if to.expressions else text


def _is_json(value: exp.Expr) -> bool:
    """Whether a call returns the type JSON, which is a text in Spark."""
    return (
        isinstance(value, exp.ParseJSON)
        or (isinstance(value, exp.Cast) and value.to.this == exp.DType.JSON)
        or (isinstance(value, exp.Anonymous) and value.name.lower() == "json_extract")
    )


def _parse_json_sql(self: SparkGenerator, parse: exp.ParseJSON) -> str:
    """Translate JSON_PARSE; where the result is a text, the keys of its objects must be in order."""
    text = FUNCTIONS["json_parse"](self.sql(parse, "this"))
    parent = parse.parent
    if isinstance(parent, exp.Anonymous) and parent.name.lower() in ORDERLESS_JSON_FUNCTIONS:
        return text
    return FUNCTIONS["json_format"](text)


def _bracket_sql(self: SparkGenerator, bracket: exp.Bracket) -> str:
    """Translate x[key]; whether it is a map or an array may be known by the key only."""
    x, key = self.sql(bracket, "this"), bracket.expressions[0]
    by_kind = TYPED_FUNCTIONS["operator []"]
    if key.is_string or (bracket.type and bracket.is_type(exp.DType.MAP)):
        return by_kind["map"](x, self.sql(key))
    if key.is_number:
        return by_kind[""](x, self.sql(key))
    return _typed_sql("operator []", bracket, [x, self.sql(key)])


def _like_sql(self: SparkGenerator, like: exp.Like) -> str:
    """Translate LIKE; without ESCAPE a backslash is a character as any other."""
    pattern = like.expression
    if not isinstance(like.parent, exp.Escape):
        like = like.copy()
        if pattern.is_string:
            like.set("expression", exp.Literal.string(pattern.name.replace("\\", "\\\\")))
        else:
            doubled = f"REPLACE({self.sql(pattern)}, '\\\\', '\\\\\\\\')"
            like.set("expression", exp.Var(this=doubled))
    return SparkGenerator.like_sql(self, like)


def _null_sql(self: SparkGenerator, null: Any) -> str:
    """Give a condition that is NULL its type."""
    condition = isinstance(null.parent, exp.If) and null.arg_key == "this"
    is_value = condition and isinstance(null.parent.parent, exp.Case) and null.parent.parent.this
    return "CAST(NULL AS BOOLEAN)" if condition and not is_value else "NULL"


def _equal_sql(self: SparkGenerator, node: Any) -> str:
    """Compare rows part by part: a null inside makes the comparison null, which Spark takes for a value."""
    pairs = [node.this, node.expression]
    if all(isinstance(side, (exp.Tuple, exp.Struct)) for side in pairs):
        equal = f"({self.sql(_equal_parts(*pairs))})"
        return equal if isinstance(node, exp.EQ) else f"(NOT {equal})"
    _require_no_nulls(node, pairs)
    return self.binary(node, "=" if isinstance(node, exp.EQ) else "<>")


def _equal_parts(a: exp.Expr, b: exp.Expr) -> exp.Expr:
    if len(a.expressions) != len(b.expressions):
        raise unsupported("a comparison of rows of different lengths", a)
    return exp.and_(*(exp.EQ(this=x, expression=y) for x, y in zip(a.expressions, b.expressions)))


def _require_no_nulls(node: exp.Expr, sides: list[exp.Expr]) -> None:
    """Raise LakeError if arrays or rows are compared that may have a null inside."""
    lists = [side for side in sides if isinstance(side, (exp.Array, exp.Tuple, exp.Struct))]
    if any(not isinstance(item, exp.Literal) for side in lists for item in side.expressions):
        raise unsupported("a comparison of arrays or rows, which may have nulls inside,", node)


def _in_sql(self: SparkGenerator, node: exp.In) -> str:
    if isinstance(node.this, (exp.Tuple, exp.Struct)) and node.expressions:
        return f"({self.sql(exp.or_(*(exp.EQ(this=node.this, expression=row) for row in node.expressions)))})"
    return SparkGenerator.in_sql(self, node)


def _trim_sql(self: SparkGenerator, trim: exp.Trim) -> str:
    if trim.expression:
        return str(SparkGenerator.TRANSFORMS[exp.Trim](self, trim))
    side = (trim.args.get("position") or "BOTH").upper()
    return trimmed(self.sql(trim, "this"), start=side != "TRAILING", end=side != "LEADING")


def _extract_sql(self: SparkGenerator, extract: exp.Extract) -> str:
    if isinstance(extract.expression, exp.Interval):
        raise unsupported("a field of an interval", extract)
    call = exp.func(extract.name, extract.expression, dialect=AthenaDialect)
    if isinstance(call, exp.Anonymous) and call.name.lower() not in FUNCTIONS:
        raise unsupported("this field", extract)
    return self.sql(call)


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

        TYPE_MAPPING = {**SparkGenerator.TYPE_MAPPING, exp.DType.JSON: "STRING"}
        TRANSFORMS = {
            **SparkGenerator.TRANSFORMS,
            exp.Anonymous: _call_sql,
            exp.Bracket: _bracket_sql,
            exp.Chr: lambda self, e: character(*map(self.sql, e.expressions)),
            exp.Like: _like_sql,
            exp.Ln: lambda self, e: logarithm(f"LN({self.sql(e, 'this')})", self.sql(e, "this")),
            exp.Log: lambda self, e: logarithm(
                self.func("LOG", e.this, e.expression), self.sql(e, "expression")
            ),
            exp.Null: _null_sql,
            exp.Replace: lambda self, e: replacement(*map(self.sql, e.iter_expressions())),
            exp.Substring: lambda self, e: substring(*map(self.sql, e.iter_expressions())),
            exp.Cast: _cast_sql,
            exp.TryCast: _cast_sql,
            exp.CurrentTimestamp: lambda self, e: "LOCALTIMESTAMP()",
            exp.Div: _div_sql,
            exp.EQ: _equal_sql,
            exp.Extract: _extract_sql,
            exp.Filter: _window_sql,
            exp.In: _in_sql,
            exp.NEQ: _equal_sql,
            exp.Round: lambda self, e: rounded(*map(self.sql, e.iter_expressions())),
            exp.Trim: _trim_sql,
            exp.If: if_sql(false_value="NULL"),
            exp.Localtimestamp: lambda self, e: "CURRENT_TIMESTAMP()",
            exp.ParseJSON: _parse_json_sql,
            exp.Unnest: _unnest_sql,
            exp.Window: _window_sql,
        }
        del TRANSFORMS[exp.Select]  # it would rewrite UNNEST


def _date_pattern_sql(pattern: Any) -> str:
    """Translate a date pattern of MySQL into one of Java."""
    if not pattern.is_string or set(re.findall("%.?", pattern.name)) - DATE_SPECIFIERS:
        raise unsupported("this pattern", pattern)

    def to_java(match: re.Match[str]) -> str:
        if not match[1]:
            return "'" + match[0].replace("'", "''") + "'"
        if match[1] in JAVA_SPECIFIERS:
            return JAVA_SPECIFIERS[match[1]]
        strftime = format_time(match[1], Trino.TIME_MAPPING) or ""
        return format_time(strftime, Spark.INVERSE_TIME_MAPPING) or ""

    java = re.sub(r"(%.)|[A-Za-z'\[\]{}#]+", to_java, pattern.name)
    return exp.Literal.string(java).sql(Spark)


def _json_path_sql(path: Any) -> str:
    """Translate a JSON path of names, quoted names and indexes: Spark takes single quotes only."""
    if not path.is_string or not re.fullmatch(r'\$(\.[\w:-]+|\[\d+\]|\["[^"\']+"\])*', path.name):
        raise unsupported("this path", path)
    return exp.Literal.string(path.name.replace('"', "'")).sql(Spark)


# {function: translation of its second argument, a literal}
LITERAL_CONVERTERS: dict[str, Callable[[Any], str]] = {
    "date_format": _date_pattern_sql,
    "date_parse": _date_pattern_sql,
    "json_extract": _json_path_sql,
    "json_extract_scalar": _json_path_sql,
    "json_size": _json_path_sql,
}
