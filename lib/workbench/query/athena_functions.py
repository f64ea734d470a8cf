"""The Spark SQL of Athena's functions (engine version 3: Trino's functions).

A function of Athena is in one of these tables:

- `SQLGLOT_FUNCTIONS`: sqlglot parses, types and generates it correctly.
- `FUNCTIONS`: its Spark SQL, because sqlglot does not know it or differs in an edge case (a null, a
  type, an index).
- `TYPED_FUNCTIONS`: the same, where the Spark SQL depends on the type of the last argument.

Athena's timestamp is Spark's TIMESTAMP. Its timestamp with time zone is Spark's TIMESTAMP_NTZ, in
UTC. So Spark's types distinguish the two, and only the second has a zone in its text.
"""

import re
from typing import Callable

from sqlglot import exp
from sqlglot.dialects.spark import Spark

Translation = Callable[..., str]  # from the SQL of the arguments to the SQL of the call

WINDOW_PLACEHOLDER = "\0"  # where FILTER and OVER go, if they do not go to the end

NOT_TRANSLATED = "workbench: "  # begins the messages that a translated query raises itself

# Functions that sqlglot translates correctly
SQLGLOT_FUNCTIONS = frozenset(
    """
    abs acos asin atan atan2 cbrt cos cosh degrees exp ln log pi pow power radians round
    sin sinh sqrt tan tanh width_bucket is_nan coalesce nullif row
    chr concat concat_ws length levenshtein_distance lower lpad ltrim replace reverse rpad rtrim
    soundex starts_with strpos substr substring translate trim upper regexp_extract_all regexp_split
    from_base64 from_hex from_utf8 to_base64 to_hex to_utf8
    current_timezone date_diff day day_of_year doy hour last_day_of_month minute month quarter second week
    week_of_year year
    array_distinct array_except array_intersect array_position cardinality contains
    sequence shuffle slice
    bitwise_and_agg bitwise_or_agg bitwise_xor_agg bool_and bool_or corr count count_if covar_pop
    covar_samp grouping stddev stddev_pop stddev_samp sum var_pop variance
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
    """.split()
)

# {function of these: the numbers of its arguments}, where sqlglot or Spark takes other numbers with another
# meaning. Spark rejects wrong numbers of the rest.
ARGUMENT_COUNTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(["cardinality", "from_base64", "from_hex", "from_utf8", "is_nan"], (1,)),
    **dict.fromkeys(["to_base64", "to_hex", "to_utf8", "week", "week_of_year", "doy"], (1,)),
    **dict.fromkeys(["contains", "levenshtein_distance", "log", "starts_with", "strpos"], (2,)),
    **dict.fromkeys(["regexp_extract_all", "replace"], (2, 3)),
    **dict.fromkeys(
        """crc32 log10 log2 url_decode url_encode json_array_length flatten map_entries
        map_from_entries map_keys map_values max min var_samp codepoint day_of_month every from_iso8601_date
        chr grouping ln sqrt""".split(),
        (1,),
    ),
    **dict.fromkeys(
        """array_remove array_union arrays_overlap filter transform map_filter transform_keys transform_values
        max_by min_by regexp_count regr_intercept regr_slope all_match any_match bitwise_left_shift repeat
        array_position array_except array_intersect""".split(),
        (2,),
    ),
    "array_sort": (1, 2),
    **dict.fromkeys(["zip_with", "map_zip_with", "date_diff"], (3,)),
    **dict.fromkeys(["array_join", "substr", "substring"], (2, 3)),
    "reduce": (4,),
    "regexp_split": (2,),
    "width_bucket": (4,),
}

LITERAL = r"'[^',]*'|-?[0-9.]+"
DATE_TIME = (
    r"[+-]?[0-9]{4,}-[0-9]{1,2}-[0-9]{1,2}( +[0-9]{1,2}:[0-9]{1,2}(:[0-9]{1,2}(\.[0-9]+)?)?)?"
)
# The form of a text that a cast to these types takes; Spark takes others, too
TEXT_FORMS = {
    "integer": r"[+-]?[0-9]+",
    "boolean": "(?i)(t|true|1|f|false|0)",
    "date": r"\s*[+-]?[0-9]+-[0-9]{1,2}-[0-9]{1,2}\s*",
    "decimal": r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?",
    "timestamp": rf"\s*{DATE_TIME}\s*",
    "zoned": rf"\s*{DATE_TIME}(\s*(Z|[+-][0-9]{{1,2}}(:[0-9]{{2}})?|[A-Za-z][A-Za-z0-9_+/-]+))?\s*",
}
ISO_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
ISO_TIME = r"T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?(Z|[+-][0-9]{2}:[0-9]{2})?"
ISO_TIMESTAMP = rf"[0-9]{{4}}(-[0-9]{{2}}(-[0-9]{{2}}({ISO_TIME})?)?)?"

# The form of an address that Java parses: scheme, IPv6 host, path, query, fragment
ADDRESS_TEXT = r"(?:[^\s\p{javaSpaceChar}\p{javaISOControl}\"<>\\^`{|}%\[\]?#]++|%[0-9A-Fa-f]{2})*+"
ADDRESS_FORM = (
    r"^(?:[A-Za-z][A-Za-z0-9+.-]*:(?!#|$)|(?![^/?#]*:))(?!//(?:$|[?#]))(?://(?:[^/?#@]*@)?\[[0-9A-Fa-f:.]+\])?"
    rf"{ADDRESS_TEXT}(?:\?{ADDRESS_TEXT}(?:[\[\]?]{ADDRESS_TEXT})*)?(?:#{ADDRESS_TEXT}(?:[\[\]?]{ADDRESS_TEXT})*)?$"
)
# Functions that have the same name in Spark
SAME_NAMES = """
    crc32 e url_decode url_encode uuid regexp_count json_array_length
    array_remove array_sort array_union arrays_overlap filter transform zip_with
    map_concat map_entries map_filter map_keys map_values map_zip_with
    transform_keys transform_values
    max max_by min min_by regr_intercept regr_slope var_samp
    """.split()
# {function: its name in Spark}
RENAMES = {
    "all_match": "FORALL",
    "any_match": "EXISTS",
    "codepoint": "ASCII",
    "day_of_month": "DAY",
    "every": "BOOL_AND",
    "reduce": "AGGREGATE",
    "repeat": "ARRAY_REPEAT",
    "zip": "ARRAYS_ZIP",
}
# {unit of date_add: what is added; a date stays a date}
INTERVALS = {
    "'millisecond'": "({}) * INTERVAL '0.001' SECOND",
    "'second'": "({}) * INTERVAL '1' SECOND",
    "'minute'": "({}) * INTERVAL '1' MINUTE",
    "'hour'": "({}) * INTERVAL '1' HOUR",
    "'day'": "CAST(({}) * INTERVAL '1' DAY AS INTERVAL DAY)",
    "'week'": "CAST(({}) * INTERVAL '7' DAY AS INTERVAL DAY)",
    "'month'": "({}) * INTERVAL '1' MONTH",
    "'quarter'": "({}) * INTERVAL '3' MONTH",
    "'year'": "({}) * INTERVAL '1' YEAR",
}

TIME_UNITS = {unit: unit for unit in ("'millisecond'", "'second'", "'minute'", "'hour'")}
DATE_UNITS = {unit: unit for unit in INTERVALS if unit not in TIME_UNITS}


def _call(name: str) -> Translation:
    return lambda *arguments: f"{name}({', '.join(arguments)})"


def _operator(symbol: str) -> Translation:
    return lambda a, b: f"(({a}) {symbol} ({b}))"


def raise_sql(message: str) -> str:
    """Return the SQL that fails with a message in our words (see `spark_sql`)."""
    return f"RAISE_ERROR('{NOT_TRANSLATED}{message}')"


def _distinct(call: str, keys: str, entries: str = "") -> str:
    """Return a map; fail if a key occurs twice, of which Spark keeps the last one (as map_concat must)."""
    literals = re.fullmatch(rf"ARRAY\((({LITERAL})(, ({LITERAL}))*)\)", keys)
    if literals and len(set(items := literals[1].split(", "))) == len(items):
        return call
    size = f"SIZE({entries or keys})"
    error = raise_sql("duplicate map keys are not allowed")
    return f"CASE WHEN SIZE(ARRAY_DISTINCT({keys})) < {size} THEN {error} ELSE {call} END"


def in_form(x: str, form: str) -> str:
    """Return a text if it has a form; otherwise one that Spark rejects, because Spark takes other forms, too."""
    pattern = exp.Literal.string(f"^(?!({form})$)").sql(Spark)
    return f"REGEXP_REPLACE(CAST({x} AS STRING), {pattern}, '?')"


def trimmed(x: str, start: bool, end: bool) -> str:
    """Return a text without white space at its ends; Spark's TRIM removes blanks only."""
    space = r"\\p{javaWhitespace}++"
    ends = [*([f"^{space}"] if start else []), *([rf"{space}\\z"] if end else [])]
    return f"REGEXP_REPLACE({x}, '{'|'.join(ends)}', '')"


def rounded(x: str, *digits: str) -> str:
    """Round a number; a decimal that is rounded to a number of digits keeps its type."""
    call = _call("ROUND")(x, *digits)
    return f"IF(FALSE, {x}, {call})" if digits else call


def _shift_left(x: str, n: str) -> str:
    error = raise_sql(
        "bitwise_left_shift by less than 0 or more bits than the INTEGER or BIGINT has"
    )
    bits = f"CASE TYPEOF({x}) WHEN 'int' THEN 31 WHEN 'bigint' THEN 63 ELSE -1 END"
    return f"IF(({n}) NOT BETWEEN 0 AND {bits}, {error}, SHIFTLEFT({x}, {n}))"


def _array_join(x: str, *others: str) -> str:
    error = raise_sql("array_join takes texts, whole numbers, decimals, dates and BOOLEAN only")
    kinds = "^array<(string|[a-z]*int|decimal.*|date|boolean|void)>$"
    return f"IF(TYPEOF({x}) RLIKE '{kinds}', {_call('ARRAY_JOIN')(x, *others)}, {error})"


def _positive(n: str, call: str) -> str:
    """Return an index that is at least 1; Spark counts a negative one from the end."""
    if n.isdigit() and n != "0":
        return n
    error = raise_sql(f"the index of {call} must be greater than zero")
    return f"CASE WHEN ({n}) <= 0 THEN {error} ELSE {n} END"


def logarithm(call: str, x: str) -> str:
    """Return a logarithm that is minus infinity for 0, and NaN for less, where Spark has null."""
    return f"CASE WHEN ({x}) = 0 THEN -DOUBLE('Infinity') WHEN ({x}) < 0 THEN DOUBLE('NaN') ELSE {call} END"


def substring(x: str, start: str, *length: str) -> str:
    """Return a part of a text, which is empty from 0 or from before the text."""
    call = _call("SUBSTRING")(x, start, *length)
    if start.isdigit() and start != "0":
        return call
    return f"CASE WHEN ({start}) = 0 OR ({start}) < -LENGTH({x}) THEN LEFT({x}, 0) ELSE {call} END"


def character(code: str) -> str:
    """Return the character of a code point; Spark's CHR takes it modulo 256."""
    return f"DECODE(UNHEX(LPAD(HEX({code}), 8, '0')), 'UTF-32BE')"


def replacement(x: str, old: str, new: str = "''") -> str:
    """Replace a text; Trino inserts at every place if it is empty, Spark nowhere."""
    call = _call("REPLACE")(x, old, new)
    if old.startswith("'") and old != "''":
        return call
    return f"CASE WHEN ({old}) = '' THEN {raise_sql('replace of an empty text is not translated')} ELSE {call} END"


def _from_base(x: str, radix: str) -> str:
    """Return a number by its digits; CONV ignores wrong ones, and returns negative ones as positive."""
    digits = f"REGEXP_REPLACE(LOWER({x}), '^-?0*(?=.)', '')"
    number = f"CONV({digits}, {radix}, 10)"
    error = raise_sql("from_base of a text that is no number of this radix")
    return (
        f"CASE WHEN LOWER(CONV({number}, 10, {radix})) <> {digits} THEN {error} "
        f"ELSE CAST(CONCAT(IF(({x}) LIKE '-%', '-', ''), {number}) AS BIGINT) END"
    )


def _extreme(name: str, array: str) -> str:
    """Return an extreme of an array, which is null if one of the items is null."""
    return f"CASE WHEN NOT EXISTS({array}, v -> v IS NULL) THEN {name}({array}) END"


def _hash(sql: str) -> Translation:
    return lambda x: f"UNHEX({sql.format(x)})"


def _if_address(x: str, value: str) -> str:
    """Return a value; null if a text is no address, for which PARSE_URL would end the query."""
    return f"IF(({x}) RLIKE {exp.Literal.string(ADDRESS_FORM).sql(Spark)}, {value}, NULL)"


def _url_part(name: str, is_encoded: bool = False) -> Translation:
    """Return a part of an address, which is empty if it is missing."""

    def part(x: str) -> str:
        value = _if_address(x, f"COALESCE(PARSE_URL({x}, '{name}'), '')")
        # a plus sign is a space in URL_DECODE
        return f"URL_DECODE(REPLACE({value}, '+', '%2B'))" if is_encoded else value

    return part


def _url_parameter(x: str, name: str) -> str:
    """Return the value of the first parameter of a name, which is empty without an equals sign."""
    pairs = (
        f"FILTER(SPLIT(PARSE_URL({x}, 'QUERY'), '&'), __p -> SUBSTRING_INDEX(__p, '=', 1) = {name})"
    )
    return _if_address(x, f"URL_DECODE(SUBSTRING(TRY_ELEMENT_AT({pairs}, 1), LENGTH({name}) + 2))")


def _quoted(text: str) -> str:
    """Return the regular expression that matches a text literally."""
    return rf"CONCAT('\\Q', {text}, '\\E')"


def _date_add(unit: str, n: str, x: str) -> str:
    sum_sql = f"(({x}) + {INTERVALS[unit.lower()].format(n)})"
    if unit.lower() not in TIME_UNITS:
        return sum_sql
    error = raise_sql("date_add adds no hours to a date: cast it to TIMESTAMP")
    return f"CASE WHEN TYPEOF({x}) = 'date' THEN {error} ELSE {sum_sql} END"


def _truncation(units: dict[str, str], sql: str) -> Translation:
    return lambda unit, x: sql.format(units[unit.lower()], x)


def _format(pattern: str, *values: str) -> str:
    error = raise_sql("format of a date or a time is not translated: use date_format")
    checked = [
        value
        if value[:1].isdigit() or value.startswith("'")
        else f"CASE WHEN TYPEOF({value}) RLIKE '^(date|timestamp)' THEN {error} ELSE {value} END"
        for value in values
    ]
    return _call("FORMAT_STRING")(pattern, *checked)


def _from_unixtime(x: str, zone: str = "") -> str:
    if zone:
        return f"FROM_UTC_TIMESTAMP(TIMESTAMP_SECONDS({x}), {zone})"
    return f"CAST(TIMESTAMP_SECONDS({x}) AS TIMESTAMP_NTZ)"


def _regexp_extract(x: str, regex: str, group: str = "0") -> str:
    return f"CASE WHEN ({x}) RLIKE {regex} THEN REGEXP_EXTRACT({x}, {regex}, {group}) END"


def _json_element(x: str, path: str) -> str:
    """Return an element as JSON: GET_JSON_OBJECT removes the quotes of a text, not of an element."""
    return f"GET_JSON_OBJECT(CONCAT('[', {x}, ']'), CONCAT('$[*]', SUBSTR({path}, 2)))"


def _json_parse(x: str) -> str:
    error = f"RAISE_ERROR(CONCAT('Cannot convert value to JSON: ', {x}))"
    valid = f"GET_JSON_OBJECT(CONCAT('[', {x}, ']'), '$[*]')"
    return f"IF(({x}) IS NULL, NULL, COALESCE({valid}, {error}))"


def _json_ordered(x: str) -> str:
    """Return a JSON text; fail if it has objects whose keys are not sorted, as Athena sorts them.

    Objects without objects inside are checked and replaced by 0, ten levels deep.
    """
    inner = r"'\\{[^{}]*\\}'"
    keys = "JSON_OBJECT_KEYS(o)"
    are_sorted = f"FORALL(REGEXP_EXTRACT_ALL(s.t, {inner}, 0), o -> COALESCE({keys} = ARRAY_SORT({keys}), FALSE))"
    step = f"STRUCT(REGEXP_REPLACE(s.t, {inner}, '0') AS t, s.ok AND {are_sorted} AS ok)"
    start, end = f"STRUCT({x} AS t, TRUE AS ok)", "s.ok AND NOT s.t LIKE '%{%'"
    is_sorted = f"AGGREGATE(SEQUENCE(1, 10), {start}, (s, i) -> {step}, s -> {end})"
    error = raise_sql(
        "JSON: Athena sorts the keys of objects, which is not translated; select them with json_extract_scalar"
    )
    return f"CASE WHEN NOT {is_sorted} THEN {error} ELSE {x} END"


def _json_size(x: str, path: str) -> str:
    item = f"GET_JSON_OBJECT({x}, {path})"
    size = f"COALESCE(JSON_ARRAY_LENGTH({item}), SIZE(JSON_OBJECT_KEYS({item})), 0)"
    return f"IF({item} IS NULL, NULL, {size})"


def _first_entries(k: str, v: str) -> str:
    """Return the map of all keys but null; MAP_FROM_ENTRIES keeps the last value of a key, not the first."""
    entries = f"COLLECT_LIST(STRUCT({k} AS k, {v} AS v)){WINDOW_PLACEHOLDER}"
    last_first = f"REVERSE(FILTER({entries}, __e -> __e.k IS NOT NULL))"
    return f"MAP_FROM_ENTRIES(REVERSE(MAP_ENTRIES(MAP_FROM_ENTRIES({last_first}))))"


def _scale(x: str) -> str:
    """Return the number of digits behind the point of a decimal."""
    return f"CAST(REGEXP_EXTRACT(TYPEOF({x}), ',([0-9]+)', 1) AS INT)"


FUNCTIONS: dict[str, Translation] = {
    **{name: _call(name.upper()) for name in SAME_NAMES},
    **{name: _call(spark_name) for name, spark_name in RENAMES.items()},
    # Mathematical functions
    **dict.fromkeys(["rand", "random"], lambda: "RAND()"),
    "bitwise_and": _operator("&"),
    "bitwise_left_shift": _shift_left,
    "bitwise_not": lambda a: f"(~ ({a}))",
    "bitwise_or": _operator("|"),
    "bitwise_xor": _operator("^"),
    "format": _format,
    "from_base": _from_base,
    "greatest": lambda *values: _extreme("ARRAY_MAX", _call("ARRAY")(*values)),
    "infinity": lambda: "DOUBLE('Infinity')",
    "is_finite": lambda x: f"(NOT ISNAN({x}) AND ABS({x}) <> DOUBLE('Infinity'))",
    "is_infinite": lambda x: f"(ABS({x}) = DOUBLE('Infinity'))",
    "least": lambda *values: _extreme("ARRAY_MIN", _call("ARRAY")(*values)),
    "mod": _operator("%"),
    "nan": lambda: "DOUBLE('NaN')",
    "log10": lambda x: logarithm(f"LOG10({x})", x),
    "log2": lambda x: logarithm(f"LOG2({x})", x),
    "to_base": lambda x, radix: (
        f"CONCAT(IF(({x}) < 0, '-', ''), LOWER(CONV(ABS({x}), 10, {radix})))"
    ),
    # Strings and bytes
    "md5": _hash("MD5({})"),
    "regexp_extract": _regexp_extract,
    "regexp_like": _operator("RLIKE"),
    "regexp_position": lambda x, regex: f"COALESCE(NULLIF(REGEXP_INSTR({x}, {regex}), 0), -1)",
    "regexp_replace": lambda x, regex, new="''": f"REGEXP_REPLACE({x}, {regex}, {new})",
    "sha1": _hash("SHA1({})"),
    "sha256": _hash("SHA2({}, 256)"),
    "sha512": _hash("SHA2({}, 512)"),
    "split": lambda x, separator, *limit: _call("SPLIT")(x, _quoted(separator), *limit),
    "split_part": lambda x, separator, n: (
        f"TRY_ELEMENT_AT(SPLIT({x}, {_quoted(separator)}), {_positive(n, 'split_part')})"
    ),
    "split_to_map": lambda x, separator, eq: (
        f"STR_TO_MAP({x}, {_quoted(separator)}, {_quoted(eq)})"
    ),
    # Addresses
    "url_extract_fragment": _url_part("REF", is_encoded=True),
    "url_extract_host": _url_part("HOST"),
    "url_extract_parameter": _url_parameter,
    "url_extract_path": _url_part("PATH", is_encoded=True),
    "url_extract_port": lambda x: _if_address(
        x, f"TRY_CAST(REGEXP_EXTRACT(PARSE_URL({x}, 'AUTHORITY'), ':([0-9]+)$', 1) AS BIGINT)"
    ),
    "url_extract_protocol": _url_part("PROTOCOL"),
    "url_extract_query": _url_part("QUERY", is_encoded=True),
    # Dates and times
    "at_timezone": lambda x, zone: f"FROM_UTC_TIMESTAMP({x}, {zone})",
    "date_add": _date_add,
    "date_format": lambda x, pattern: f"DATE_FORMAT({x}, {pattern})",
    "date_parse": lambda x, pattern: f"TO_TIMESTAMP({x}, {pattern})",
    **dict.fromkeys(["day_of_week", "dow"], lambda x: f"(WEEKDAY({x}) + 1)"),
    "from_iso8601_date": lambda x: f"CAST({in_form(x, ISO_DATE)} AS DATE)",
    "from_iso8601_timestamp": lambda x: (
        f"CAST(CAST({in_form(x, ISO_TIMESTAMP)} AS TIMESTAMP) AS TIMESTAMP_NTZ)"
    ),
    "from_unixtime": _from_unixtime,
    "millisecond": lambda x: f"CAST(DATE_FORMAT({x}, 'SSS') AS BIGINT)",
    "now": lambda: "LOCALTIMESTAMP()",
    "to_unixtime": lambda x: f"(UNIX_MICROS(CAST({x} AS TIMESTAMP)) / 1e6)",
    "with_timezone": lambda x, zone: f"CAST(TO_UTC_TIMESTAMP({x}, {zone}) AS TIMESTAMP_NTZ)",
    **dict.fromkeys(["year_of_week", "yow"], lambda x: f"EXTRACT(YEAROFWEEK FROM {x})"),
    # JSON is a text in Spark
    "is_json_scalar": lambda x: rf"(({x}) RLIKE '^\\s*[^\\s\\[{{]')",
    "json_extract": _json_element,
    "json_extract_scalar": lambda x, path: (
        rf"CASE WHEN {_json_element(x, path)} RLIKE '^[^\\[{{]' THEN GET_JSON_OBJECT({x}, {path}) END"
    ),
    "json_format": _json_ordered,
    "json_parse": _json_parse,
    "json_size": _json_size,
    # Arrays and maps
    "array_join": _array_join,
    "array_max": lambda x: _extreme("ARRAY_MAX", x),
    "array_min": lambda x: _extreme("ARRAY_MIN", x),
    "element_at": lambda x, key: f"TRY_ELEMENT_AT({x}, {key})",
    "map": lambda *arrays: (
        _distinct(_call("MAP_FROM_ARRAYS")(*arrays), arrays[0]) if arrays else "MAP()"
    ),
    "map_from_entries": lambda x: _distinct(
        f"MAP_FROM_ENTRIES({x})",
        f"TRANSFORM(MAP_ENTRIES(MAP_FROM_ENTRIES({x})), __e -> __e.key)",
        x,
    ),
    "flatten": lambda x: f"FLATTEN(FILTER({x}, __a -> __a IS NOT NULL))",
    "ngrams": lambda x, n: (
        f"TRANSFORM(SEQUENCE(1, GREATEST(SIZE({x}) - ({n}) + 1, 1)), __i -> SLICE({x}, __i, {n}))"
    ),
    "none_match": lambda x, f: f"(NOT EXISTS({x}, {f}))",
    "trim_array": lambda x, n: f"SLICE({x}, 1, SIZE({x}) - ({n}))",
    # Aggregates
    **dict.fromkeys(["any_value", "arbitrary"], lambda x: f"ANY_VALUE({x}, TRUE)"),
    "approx_distinct": lambda x, error="0.023": f"APPROX_COUNT_DISTINCT({x}, {error})",
    "approx_percentile": lambda x, share: f"APPROX_PERCENTILE({x}, {share}, 10000)",
    # Without rows it is null
    "array_agg": lambda structs: (
        f"TRY_ELEMENT_AT(FILTER(ARRAY(TRANSFORM({structs}, r -> r.v)), a -> SIZE(a) > 0), 1)"
    ),
    "geometric_mean": lambda x: f"EXP(AVG({logarithm(f'LN({x})', x)}){WINDOW_PLACEHOLDER})",
    "map_agg": lambda k, v: (
        f"TRY_ELEMENT_AT(FILTER(ARRAY({_first_entries(k, v)}), __m -> SIZE(__m) > 0), 1)"
    ),
}


def _rounding(name: str) -> dict[str, Translation]:
    return {
        "integer": lambda x: f"({x})",
        "decimal": lambda x: f"ROUND({name}({x}), {_scale(x)})",
        "": lambda x: f"CAST({name}({x}) AS DOUBLE)",
    }


# {function: {kind of its last argument, "" for all others: its translation}}
TYPED_FUNCTIONS: dict[str, dict[str, Translation]] = {
    "avg": {
        "decimal": lambda x: (
            f"ROUND(AVG({x}){WINDOW_PLACEHOLDER}, {_scale(f'MAX({x}){WINDOW_PLACEHOLDER}')})"
        ),
        "": lambda x: f"AVG({x}){WINDOW_PLACEHOLDER}",
    },
    **dict.fromkeys(["ceil", "ceiling"], _rounding("CEIL")),
    "date_trunc": {
        "date": _truncation(DATE_UNITS, "CAST(DATE_TRUNC({}, {}) AS DATE)"),
        "timestamp": _truncation(DATE_UNITS | TIME_UNITS, "DATE_TRUNC({}, {})"),
        "": _truncation(DATE_UNITS | TIME_UNITS, "CAST(DATE_TRUNC({}, {}) AS TIMESTAMP_NTZ)"),
    },
    "floor": _rounding("FLOOR"),
    "operator []": {
        # Spark has null for a missing key
        "map": lambda x, key: (
            f"CASE WHEN NOT MAP_CONTAINS_KEY({x}, {key}) THEN {raise_sql('the key is not present in the map')} "
            f"ELSE ELEMENT_AT({x}, {key}) END"
        ),
        "": lambda x, n: f"ELEMENT_AT({x}, {_positive(n, 'an array')})",
    },
    # A division of integers gives an integer, one of decimals the larger number of decimals
    "operator /": {
        "integer": lambda a, b: f"(({a}) DIV ({b}))",
        "decimal": lambda a, b: f"ROUND(({a}) / ({b}), {_scale(f'({a}) + ({b})')})",
        "": lambda a, b: f"(({a}) / ({b}))",
    },
    "sign": {
        "integer": lambda x: f"CAST(SIGN({x}) AS BIGINT)",
        "": lambda x: f"SIGN({x})",
    },
    "to_iso8601": {
        "date": lambda x: f"DATE_FORMAT({x}, 'yyyy-MM-dd')",
        "timestamp": lambda x: f"DATE_FORMAT({x}, \"yyyy-MM-dd'T'HH:mm:ss.SSS\")",
        "": lambda x: f"DATE_FORMAT({x}, \"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\")",
    },
    "truncate": {
        "integer": lambda x: f"({x})",
        "": lambda x: f"CAST(IF(({x}) < 0, CEIL({x}), FLOOR({x})) AS DOUBLE)",
    },
    "unnest rows": {
        "map": lambda x: f"INLINE(MAP_ENTRIES({x}))",
        "": lambda x: f"INLINE({x})",
    },
}
