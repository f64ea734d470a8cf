"""Infer the types of an Athena query with sqlglot, from the types of its tables' columns."""

import contextlib
from collections.abc import Mapping
from typing import Any, Callable

from pyspark.sql import types as T
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.dialects.trino import Trino
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import TypeAnnotator, annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import Schema
from sqlglot.typing import ExprMetadataType

CATALOG, DATABASE = "spark_catalog", "default"  # of a table without them

UNKNOWN = exp.DType.UNKNOWN.into_expr()
# {type in Athena's words: functions that return it and that sqlglot does not type}. {first} and {last}
# are the types of the arguments, {key} and {item} those of the keys and items of the first,
# {last_item} that of the items of the last, {first_field} and {last_field} those of the first's rows.
RESULT_TYPES = {
    "BIGINT": """approx_distinct bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_xor
        codepoint crc32 day_of_month day_of_week dow from_base json_array_length json_size
        millisecond regexp_count regexp_position url_extract_port year_of_week yow""",
    "DOUBLE": """avg e geometric_mean infinity log10 log2 nan regr_intercept regr_slope to_unixtime
        var_samp""",
    "DATE": "from_iso8601_date",
    "TIMESTAMP": "at_timezone date_parse",
    "TIMESTAMP WITH TIME ZONE": "from_iso8601_timestamp from_unixtime now with_timezone",
    "{first}": """any_value approx_percentile arbitrary array_remove array_sort array_union ceil ceiling
        filter floor map_concat map_filter max max_by min min_by sign trim_array truncate""",
    "{last}": "date_add date_trunc reduce",
    "{item}": "array_max array_min element_at flatten",
    "ARRAY({first})": "array_agg ngrams repeat",
    "ARRAY({last})": "transform zip_with",
    "ARRAY({key})": "map_keys",
    "ARRAY({item})": "map_values",
    "ARRAY(ROW(key {key}, value {item}))": "map_entries",
    "MAP({first_field}, {last_field})": "map_from_entries",
    "MAP({first}, {last})": "map_agg",
    "MAP({item}, {last_item})": "map",
    "MAP({key}, {last})": "map_zip_with transform_values",
    "MAP({last}, {item})": "transform_keys",
}
RESULT_TYPE_OF = {name: kind for kind, names in RESULT_TYPES.items() for name in names.split()}


def _annotate_call(annotator: TypeAnnotator, call: exp.Expr) -> None:
    name, arguments = call.name.lower(), call.expressions
    if name in ("greatest", "least", "mod"):
        annotator._annotate_by_args(call, "expressions")
        return
    _annotate_lambdas(annotator, call)
    first, last = (arguments[n].type if arguments else UNKNOWN for n in (0, -1))
    result = RESULT_TYPE_OF.get(name, "UNKNOWN")
    if name == "avg" and first.is_type(exp.DType.DECIMAL):
        result = "DECIMAL"
    elif name == "from_unixtime" and len(arguments) == 2:
        result = "TIMESTAMP"
    items, last_items = (kind.expressions or [UNKNOWN] for kind in (first, last))
    fields = [getattr(field, "kind", field) for field in items[-1].expressions] or [UNKNOWN]
    names = {
        "first": first,
        "last": last,
        "key": items[0],
        "item": items[-1],
        "last_item": last_items[-1],
        "first_field": fields[0],
        "last_field": fields[-1],
    }
    names = {name: kind.sql(Trino, identify=True) for name, kind in names.items()}
    call.type = exp.DataType.build(result.format(**names), dialect=Trino)


def _annotate_lambdas(annotator: TypeAnnotator, call: exp.Expr) -> None:
    """Annotate the lambda functions of a call again, with the types of their parameters."""
    types = [a.type for a in call.expressions if a.type and not isinstance(a, exp.Lambda)]
    nested = [kind.expressions for kind in types if kind.expressions]
    # The items of each array, or the keys and the items of each map
    parameters = [*(nested[0][:-1] if nested else []), *(items[-1] for items in nested)]
    if call.name.lower() == "reduce":
        parameters = [*types[1:], *parameters]
    for function in call.expressions:
        if isinstance(function, exp.Lambda):
            # array_sort compares two items
            kinds = {p.name: kind for p, kind in zip(function.expressions, parameters * 2)}
            for name in function.find_all(exp.Identifier):
                name.type = kinds.get(name.name, name.type)
            annotate_types(function, annotator.schema)


def _annotate_bracket(annotator: TypeAnnotator, bracket: exp.Expr) -> None:
    if bracket.this.type.expressions:
        bracket.type = bracket.this.type.expressions[-1]


def _annotate_cast(annotator: TypeAnnotator, cast: exp.Expr) -> None:
    """Use the type without sizes: sqlglot does not widen a type that has one."""
    cast.type = cast.args["to"].copy()
    for size in list(cast.type.find_all(exp.DataTypeParam)):
        size.pop()


def _annotate_literal(annotator: TypeAnnotator, literal: exp.Literal) -> None:
    """A number with a point is a decimal, and one with an exponent is a double."""
    annotator._annotate_literal(literal)
    if literal.is_type(exp.DType.DOUBLE) and "e" not in literal.name.lower():
        literal.type = exp.DType.DECIMAL


def _annotate_unnest(annotator: TypeAnnotator, unnest: exp.Expr) -> None:
    """Set the type to a struct of the columns."""
    items = [argument.type.expressions for argument in unnest.expressions if argument.type]
    names = unnest.alias_column_names
    columns = [each[-1] for each in items if each]
    if len(names) > len(items) == len(columns) == 1:  # the fields of rows, or the pairs of a map
        pairs = items[0] if len(items[0]) == 2 else columns[0].expressions
        columns = [getattr(item, "kind", item) for item in pairs]
    fields = [exp.ColumnDef(this=exp.to_identifier(n), kind=t) for n, t in zip(names, columns)]
    unnest.type = exp.DataType(this=exp.DType.STRUCT, expressions=fields, nested=True)


def _annotate_by_arguments(annotator: TypeAnnotator, node: exp.Expr) -> None:
    annotator._annotate_by_args(node, *node.iter_expressions())


ANNOTATORS: dict[type[exp.Expr], Callable[[TypeAnnotator, Any], None]] = {
    exp.Anonymous: _annotate_call,
    exp.Bracket: _annotate_bracket,
    exp.Cast: _annotate_cast,
    exp.Concat: _annotate_by_arguments,
    exp.Div: _annotate_by_arguments,
    exp.DPipe: _annotate_by_arguments,
    exp.Literal: _annotate_literal,
    exp.TryCast: _annotate_cast,
    exp.Unnest: _annotate_unnest,
}
EXPRESSION_METADATA: ExprMetadataType = {
    **Spark.EXPRESSION_METADATA,
    **Trino.EXPRESSION_METADATA,
    exp.AtTimeZone: {"returns": exp.DType.TIMESTAMP},
    exp.CurrentTimestamp: {"returns": exp.DType.TIMESTAMPTZ},
    exp.Localtimestamp: {"returns": exp.DType.TIMESTAMP},
    # Parameters have their types already, and columns where a lambda function is annotated again
    **dict.fromkeys(
        (exp.Column, exp.Identifier), {"annotator": lambda self, e: self._set_type(e, e.type)}
    ),
    exp.Lambda: {"annotator": lambda self, e: self._set_type(e, e.this.type)},
    exp.Tuple: Trino.EXPRESSION_METADATA[exp.Struct],
    **{kind: {"annotator": annotator} for kind, annotator in ANNOTATORS.items()},
}


def column_types(columns: T.StructType) -> dict[str, exp.DataType]:
    """Convert the types of a table's columns from Spark to Athena.

    A timestamp without zone is one with a zone in Athena (see `athena_functions`). Decimals have no
    size (see `_annotate_cast`).
    """
    return {column.name: _athena_type(column.dataType) for column in columns}


def _athena_type(kind: T.DataType) -> exp.DataType:
    """Convert a type of Spark. A field name may have any characters, so nested types are not parsed."""
    if isinstance(kind, T.StructType):
        fields = [
            exp.ColumnDef(
                this=exp.to_identifier(field.name.lower()), kind=_athena_type(field.dataType)
            )
            for field in kind
        ]
        return exp.DataType(this=exp.DType.STRUCT, expressions=fields, nested=True)
    if isinstance(kind, T.ArrayType):
        items = [_athena_type(kind.elementType)]
        return exp.DataType(this=exp.DType.ARRAY, expressions=items, nested=True)
    if isinstance(kind, T.MapType):
        items = [_athena_type(kind.keyType), _athena_type(kind.valueType)]
        return exp.DataType(this=exp.DType.MAP, expressions=items, nested=True)
    text = kind.simpleString().partition("(")[0].replace("timestamp_ntz", "timestamptz")
    return exp.DataType.build(text, dialect=Trino)


def annotate(tree: exp.Expr, schema: Schema, values: Mapping[str, Any]) -> None:
    """Set on each call of a query the type on which its translation depends.

    This is the type of its last argument, and of a division its own.

    Args:
        tree: the query.
        schema: the types of the columns of its tables, in a dialect with `EXPRESSION_METADATA`.
        values: the values of its placeholders.
    """
    kinds = (exp.Anonymous, exp.Bracket, exp.Div, exp.Unnest)
    calls = list(tree.find_all(*kinds))
    for position, call in enumerate(calls):
        call.meta["position"] = position
    typed = tree.copy()
    for placeholder in list(typed.find_all(exp.Placeholder)):
        value = values.get(placeholder.name)
        with contextlib.suppress(ValueError):  # sqlglot does not know such values
            is_float = isinstance(value, float)
            placeholder.replace(exp.cast("0", "double") if is_float else exp.convert(value))
    with contextlib.suppress(SqlglotError):  # a table or column is not in the schema
        typed = qualify(
            typed,
            dialect=schema.dialect,
            catalog=CATALOG,
            db=DATABASE,
            schema=schema,
            validate_qualify_columns=False,
        )
    for node in annotate_types(typed, schema).find_all(*kinds):
        decisive = node.expressions[-1] if node.expressions else node
        if isinstance(node, exp.Bracket):
            decisive = node.this
        if "position" in node.meta:
            calls[node.meta["position"]].type = decisive.type
    # `qualify` replaces an expression of ORDER BY by the column that is equal
    types = {call: call.type for call in calls if call.type}
    for call in calls:
        call.type = call.type or types.get(call)
