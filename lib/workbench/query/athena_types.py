"""Infer the types of an Athena query with sqlglot, from the types of its tables' columns."""

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.dialects.trino import Trino
from sqlglot.errors import OptimizeError, ParseError
from sqlglot.optimizer.annotate_types import TypeAnnotator, annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import MappingSchema, Schema
from sqlglot.typing import ExprMetadataType

TableKey = tuple[str, str, str]  # catalog, database, name
CATALOG, DATABASE = "spark_catalog", "default"  # of a table without them

UNKNOWN = exp.DType.UNKNOWN.into_expr()
# {type in Athena's words: functions that return it and that sqlglot does not type}. {first} and {last}
# are the types of the arguments, {key} and {item} those of the keys and items of the first,
# {last_item} that of the items of the last.
RESULT_TYPES = {
    "BIGINT": """approx_distinct bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_xor
        codepoint crc32 date_diff day_of_month day_of_week dow from_base json_array_length json_size
        millisecond regexp_count regexp_position url_extract_port year_of_week yow""",
    "DOUBLE": """avg e geometric_mean infinity log10 log2 nan regr_intercept regr_slope to_unixtime
        var_samp""",
    "DATE": "date from_iso8601_date",
    "TIMESTAMP": "at_timezone date_parse",
    "TIMESTAMP WITH TIME ZONE": "from_iso8601_timestamp from_unixtime now with_timezone",
    "{first}": """any_value approx_percentile arbitrary array_remove array_union ceil ceiling floor
        map_concat map_filter max max_by min min_by sign trim_array truncate""",
    "{last}": "date_add date_trunc reduce",
    "{item}": "array_max array_min element_at flatten",
    "ARRAY({first})": "array_agg ngrams repeat",
    "ARRAY({last})": "transform zip_with",
    "ARRAY({key})": "map_keys",
    "ARRAY({item})": "map_values",
    "ARRAY(ROW(key {key}, value {item}))": "map_entries",
    "MAP": "map_from_entries",
    "MAP({first}, {last})": "map_agg",
    "MAP({item}, {last_item})": "map",
    "MAP({key}, {last})": "map_zip_with transform_values",
    "MAP({last}, {item})": "transform_keys",
}
RESULT_TYPE_OF = {name: kind for kind, names in RESULT_TYPES.items() for name in names.split()}


def _annotate_call(annotator: TypeAnnotator, call: exp.Expr) -> None:
    name, arguments = call.name.lower(), call.expressions
    result = RESULT_TYPE_OF.get(name, "UNKNOWN")
    first, last = (arguments[n].type if arguments else None for n in (0, -1))
    if name in ("greatest", "least", "mod"):
        annotator._annotate_by_args(call, "expressions")
        return
    if name == "avg" and first and first.is_type(exp.DType.DECIMAL):
        result = "DECIMAL"
    if name == "from_unixtime" and len(arguments) == 2:
        result = "TIMESTAMP"
    items, last_items = (getattr(kind, "expressions", None) or [UNKNOWN] for kind in (first, last))
    kinds = {
        "first": first,
        "last": last,
        "key": items[0],
        "item": items[-1],
        "last_item": last_items[-1],
    }
    names = {name: (kind or UNKNOWN).sql(Trino) for name, kind in kinds.items()}
    call.type = exp.DataType.build(result.format(**names), dialect=Trino)


def _annotate_bracket(annotator: TypeAnnotator, bracket: exp.Expr) -> None:
    if bracket.this.type.expressions:
        bracket.type = bracket.this.type.expressions[-1]


def _annotate_cast(annotator: TypeAnnotator, cast: exp.Expr) -> None:
    """Use the type without sizes: sqlglot does not widen a type that has one."""
    cast.type = cast.args["to"].copy()
    for size in list(cast.type.find_all(exp.DataTypeParam)):
        size.pop()


def _annotate_literal(annotator: TypeAnnotator, literal: exp.Expr) -> None:
    """A number with a point is a decimal, and one with an exponent is a double."""
    if literal.is_string:
        literal.type = exp.DType.VARCHAR
    elif literal.is_int:
        literal.type = exp.DType.INT
    else:
        is_double = "e" in literal.name.lower()
        literal.type = exp.DType.DOUBLE if is_double else exp.DType.DECIMAL


def _annotate_unnest(annotator: TypeAnnotator, unnest: exp.Expr) -> None:
    """Set the type to a struct of the columns."""
    types = [argument.type for argument in unnest.expressions if argument.type]
    names = unnest.alias_column_names
    columns = [t.expressions[-1] for t in types if t.expressions]
    if len(names) > len(types) == len(columns) == 1:
        is_map = types[0].is_type(exp.DType.MAP)
        columns = (
            types[0].expressions
            if is_map
            else [f.args.get("kind") or f for f in columns[0].expressions]
        )
    fields = [exp.ColumnDef(this=exp.to_identifier(n), kind=t) for n, t in zip(names, columns)]
    unnest.type = exp.DataType(this=exp.DType.STRUCT, expressions=fields, nested=True)


EXPRESSION_METADATA: ExprMetadataType = {
    **Spark.EXPRESSION_METADATA,
    **Trino.EXPRESSION_METADATA,
    exp.Anonymous: {"annotator": _annotate_call},
    exp.AtTimeZone: {"returns": exp.DType.TIMESTAMP},
    exp.Bracket: {"annotator": _annotate_bracket},
    exp.Cast: {"annotator": _annotate_cast},
    exp.TryCast: {"annotator": _annotate_cast},
    **dict.fromkeys(
        (exp.Div, exp.DPipe, exp.Concat),
        {"annotator": lambda self, e: self._annotate_by_args(e, *e.iter_expressions())},
    ),
    exp.Identifier: {"annotator": lambda self, e: self._set_type(e, e.meta.get("type"))},
    exp.Lambda: {"annotator": lambda self, e: self._set_type(e, e.this.type)},
    exp.Literal: {"annotator": _annotate_literal},
    exp.Localtimestamp: {"returns": exp.DType.TIMESTAMP},
    exp.CurrentTimestamp: {"returns": exp.DType.TIMESTAMPTZ},
    exp.Tuple: Trino.EXPRESSION_METADATA[exp.Struct],
    exp.Unnest: {"annotator": _annotate_unnest},
}


def _bind_parameters(call: exp.Expr) -> bool:
    """Set the types of the parameters of a call's lambda functions; return whether any is new."""
    arguments = list(call.iter_expressions())
    lambdas = [argument for argument in arguments if isinstance(argument, exp.Lambda)]
    types = [a.type for a in arguments if a.type and a not in lambdas]
    nested = [t.expressions for t in types if t.expressions]
    # The elements of each array, or the key and the values of each map
    parameters = [*(nested[0][:-1] if nested else []), *(items[-1] for items in nested)]
    if call.name.lower() == "reduce":
        parameters = [*types[1:], *parameters]
    is_new = False
    for function in lambdas:
        for parameter, kind in zip(function.expressions, parameters * 2):
            for node in function.find_all(exp.Identifier):
                if node.name == parameter.name and node.meta.get("type") != kind:
                    node.meta["type"] = kind
                    is_new = True
    return is_new


def new_schema(tables: Mapping[TableKey, Mapping[str, str]], dialect: type[Trino]) -> MappingSchema:
    """Return the columns of tables as sqlglot takes them.

    Args:
        tables: {(catalog, database, table): {column: its type in Spark}}.
        dialect: the dialect of the query, with `EXPRESSION_METADATA`.
    """
    schema = MappingSchema(dialect=dialect)
    for (catalog, database, name), columns in tables.items():
        table = exp.table_(name, database or DATABASE, catalog or CATALOG, quoted=True)
        schema.add_table(table, {column: _column_type(text) for column, text in columns.items()})
    return schema


def _column_type(text: str) -> exp.DataType:
    """Convert a type of Spark; a timestamp without zone is one with a zone in Athena."""
    text = re.sub(r"decimal\(\d+,\d+\)", "decimal", text.lower())
    text = text.replace("timestamp_ntz", "timestamptz")
    try:
        return exp.DataType.build(text, dialect=Trino)
    except ParseError:  # a field name with special characters
        return UNKNOWN.copy()


def annotate(tree: exp.Expr, schema: Schema, values: Mapping[str, Any]) -> None:
    """Set the types of the calls in a query, and of their arguments.

    Args:
        tree: the query.
        schema: the types of the columns of its tables, in a dialect with `EXPRESSION_METADATA`.
        values: the values of its placeholders.
    """
    nodes = list(tree.walk())
    for position, node in enumerate(nodes):
        node.meta["position"] = position
    typed = tree.copy()
    for placeholder in list(typed.find_all(exp.Placeholder)):
        value = values.get(placeholder.name)
        is_float = isinstance(value, float)
        placeholder.replace(exp.cast("0", "double") if is_float else exp.convert(value))
    with contextlib.suppress(OptimizeError):  # a table or column is not in the schema
        typed = qualify(
            typed,
            catalog=CATALOG,
            db=DATABASE,
            schema=schema,
            expand_alias_refs=False,
            allow_partial_qualification=True,
            validate_qualify_columns=False,
            quote_identifiers=False,
            identify=False,
        )
    is_new = True
    while is_new:  # once for each level of lambda functions
        typed = annotate_types(typed, schema)
        calls = {id(f.parent): f.parent for f in typed.find_all(exp.Lambda)}
        is_new = any([_bind_parameters(call) for call in calls.values() if call])
    for node in typed.walk():
        if "position" in node.meta and isinstance(node, (exp.Func, exp.Div, exp.Unnest)):
            original = nodes[node.meta["position"]]
            original.type = node.type
            for argument, typed_argument in zip(
                original.iter_expressions(), node.iter_expressions()
            ):
                argument.type = typed_argument.type
