"""Infer the types of an Athena query with sqlglot, from the types of its tables' columns."""

import contextlib
from collections.abc import Mapping
from typing import Any, Callable

from pyspark.sql import types as T
from sqlglot import exp
from sqlglot.dialects.trino import Trino
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import TypeAnnotator, annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.schema import Schema
from sqlglot.typing import ExprMetadataType

from .athena_functions import RESULTS

CATALOG, DATABASE = "spark_catalog", "default"  # of a table without them
UNKNOWN = exp.DType.UNKNOWN.into_expr()
# Kinds of types on which a translation depends; "other" is the kind of all others
KINDS = {
    **dict.fromkeys(exp.DataType.SIGNED_INTEGER_TYPES, "integer"),
    **dict.fromkeys(exp.DataType.TEXT_TYPES, "text"),
    exp.DType.BOOLEAN: "boolean",
    exp.DType.DATE: "date",
    exp.DType.DECIMAL: "decimal",
    exp.DType.JSON: "json",
    exp.DType.MAP: "map",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "zoned",
}
# Parts of a query whose types decide about a translation
TYPED_NODES = (exp.Anonymous, exp.Bracket, exp.Div, exp.Unnest)


def kind_of(data_type: exp.DataType) -> str:
    """Return the kind of a type."""
    return KINDS.get(data_type.this, "other")


def _item_type(data_type: exp.DataType) -> exp.DataType:
    """Return the type of the items of an array, or of the values of a map."""
    item: exp.DataType = (data_type.expressions or [UNKNOWN])[-1]
    return item


def _annotate_call(annotator: TypeAnnotator, call: exp.Expr) -> None:
    """Set the result type of a function (`results` in athena_functions.yaml)."""
    name = call.name.lower()
    result = RESULTS.get(name, "UNKNOWN")
    types = [argument.type or UNKNOWN for argument in call.expressions] or [UNKNOWN]
    if result == "common":
        annotator._annotate_by_args(call, "expressions")
    elif result in ("first", "last"):
        call.type = types[0] if result == "first" else types[-1]
    elif result == "items":
        call.type = _item_type(types[0])
    elif name == "avg":
        call.type = types[0] if kind_of(types[0]) == "decimal" else exp.DType.DOUBLE
    else:
        call.type = exp.DataType.build(result, dialect=Trino)


def _annotate_bracket(annotator: TypeAnnotator, bracket: exp.Expr) -> None:
    bracket.type = _item_type(bracket.this.type)


def _annotate_cast(annotator: TypeAnnotator, cast: exp.Expr) -> None:
    cast.type = _without_sizes(cast.args["to"])


def _annotate_literal(annotator: TypeAnnotator, literal: exp.Literal) -> None:
    """A number with a point is a decimal, and one with an exponent is a double."""
    annotator._annotate_literal(literal)
    if literal.is_type(exp.DType.DOUBLE) and "e" not in literal.name.lower():
        literal.type = exp.DType.DECIMAL


def _annotate_unnest(annotator: TypeAnnotator, unnest: exp.Expr) -> None:
    """Set the type to a struct of the columns; unknown if an array is several columns."""
    names, arrays = unnest.alias_column_names, unnest.expressions
    unnest.type = UNKNOWN
    if len(names) == len(arrays):
        items = [_item_type(array.type) for array in arrays]
        fields = [exp.ColumnDef(this=exp.to_identifier(n), kind=t) for n, t in zip(names, items)]
        unnest.type = exp.DataType(this=exp.DType.STRUCT, expressions=fields, nested=True)


def _annotate_division(annotator: TypeAnnotator, division: exp.Expr) -> None:
    annotator._annotate_by_args(division, "this", "expression")


ANNOTATORS: dict[type[exp.Expr], Callable[[TypeAnnotator, Any], None]] = {
    exp.Anonymous: _annotate_call,
    exp.Bracket: _annotate_bracket,
    exp.Cast: _annotate_cast,
    exp.Div: _annotate_division,
    exp.Literal: _annotate_literal,
    exp.TryCast: _annotate_cast,
    exp.Unnest: _annotate_unnest,
}
EXPRESSION_METADATA: ExprMetadataType = {
    **Trino.EXPRESSION_METADATA,
    exp.AtTimeZone: {"returns": exp.DType.TIMESTAMP},
    exp.CurrentTimestamp: {"returns": exp.DType.TIMESTAMPTZ},
    exp.Localtimestamp: {"returns": exp.DType.TIMESTAMP},
    **{kind: {"annotator": annotator} for kind, annotator in ANNOTATORS.items()},
}


def column_types(columns: T.StructType) -> dict[str, exp.DataType]:
    """Convert the types of a table's columns from Spark to Athena.

    A timestamp without zone is one with a zone in Athena (see athena_functions.yaml). The type of a
    column is unknown if a field of it has a name that would need quotes.
    """
    types = {}
    for column in columns:
        text = column.dataType.simpleString().lower().replace("timestamp_ntz", "timestamptz")
        types[column.name] = UNKNOWN
        with contextlib.suppress(SqlglotError, ValueError):
            types[column.name] = _without_sizes(exp.DataType.build(text, dialect=Trino))
    return types


def _without_sizes(data_type: exp.DataType) -> exp.DataType:
    """Return a type without sizes: sqlglot does not widen a type that has one."""
    plain = data_type.copy()
    for size in list(plain.find_all(exp.DataTypeParam)):
        size.pop()
    return plain


def annotate(tree: exp.Expr, schema: Schema, values: Mapping[str, Any]) -> None:
    """Set on each call of a query the type on which its translation depends.

    This is the type of its last argument, and of a division its own.

    Args:
        tree: the query.
        schema: the types of the columns of its tables, in a dialect with `EXPRESSION_METADATA`.
        values: the values of its placeholders.
    """
    calls = list(tree.find_all(*TYPED_NODES))
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
    for node in annotate_types(typed, schema).find_all(*TYPED_NODES):
        decisive = node.expressions[-1] if node.expressions else node
        if isinstance(node, exp.Bracket):
            decisive = node.this
        if "position" in node.meta:
            calls[node.meta["position"]].type = decisive.type
    # `qualify` replaces an expression of ORDER BY by the column that is equal
    types = {call: call.type for call in calls if call.type}
    for call in calls:
        call.type = call.type or types.get(call)
