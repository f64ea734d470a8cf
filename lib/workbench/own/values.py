"""The values of a source table as the lake has them: their types, and SQL that returns them."""

import re

from .. import hudi
from ..base import World
from ..spark import session
from .files import TEMPLATES, Declaration, OwnTable


def changed_types(at: World, own: OwnTable, table: hudi.Table) -> dict[str, str]:
    """Return {column: "source type → lake type"} of the columns whose type is another one in the lake."""
    if not hudi.exists(table):
        return {}
    lake = dict(hudi.read(session(at), table).dtypes)
    changed = {}
    for column, kind in own.columns.items():
        same = TEMPLATES["same_types"].get(base_type(kind)) or kind.replace("numeric", "decimal")
        if lake.get(column) not in (same, kind):
            changed[column] = f"{kind} → {lake.get(column, 'missing')}"
    return changed


def comparable_columns(
    at: World, declared: Declaration, own: OwnTable, table: hudi.Table
) -> dict[str, str]:
    """Return {column: source type} of the columns that a lake table has with the same values.

    These are all, or with Debezium's types those that have the type of the source, or its text. MySQL cannot write
    all digits of a float. A column that the lake does not have yet is null there.
    """
    is_mysql = declared.engine == "mysql"
    if not (declared.raw or is_mysql):
        return own.columns
    changed = changed_types(at, own, table)
    converted = {*TEMPLATES["comparable"][declared.engine], *TEMPLATES["same_types"]}

    def is_comparable(column: str, kind: str) -> bool:
        change, base = changed.get(column, ""), base_type(kind)
        if change.endswith("→ missing"):
            return True
        if is_mysql and base in ("float", "double"):
            return False
        is_text = change.endswith("→ string") and base not in converted
        return not declared.raw or not change or is_text

    return {column: kind for column, kind in own.columns.items() if is_comparable(column, kind)}


def count_sql(declared: Declaration, source: str, columns: dict[str, str]) -> str:
    """Return the query for the number of rows, and of the values of each column that are not null in the lake."""
    values = _comparable_values(declared, columns)
    counts = {name: f"count({value})" for name, value in values.items()}
    return _select({"(rows)": "count(*)", **counts}, source)


def comparable_sql(declared: Declaration, source: str, columns: dict[str, str]) -> str:
    """Return the query for columns of a source table as the lake has them."""
    return _select(_comparable_values(declared, columns), source)


def _comparable_values(declared: Declaration, columns: dict[str, str]) -> dict[str, str]:
    """Return {column: SQL of its value as the lake has it}."""
    rules = TEMPLATES["comparable"][declared.engine]
    return {name: _comparable_value(rules, kind, _quoted(name)) for name, kind in columns.items()}


def _select(values: dict[str, str], source: str) -> str:
    schema, _, table = source.partition(".")
    columns = ", ".join(f"{value} AS {_quoted(name)}" for name, value in values.items())
    return f"SELECT {columns} FROM {_quoted(schema)}.{_quoted(table)}"  # noqa: S608


def _quoted(name: str) -> str:
    # tables.describe has accepted the names: letters, digits and _ only
    return f'"{name}"'


def _comparable_value(rules: dict[str, str], kind: str, value: str) -> str:
    rule = rules.get(kind) or rules.get(base_type(kind))
    if not rule and kind.endswith("[]"):
        rule = rules["[]"].replace("<>", _comparable_value(rules, kind[:-2], "e"))
    return (rule or rules[""]).replace("{}", value)


def base_type(kind: str) -> str:
    """Return a type of the source without its schema and digits, and without the fields of an interval.

    A type of an extension has its schema, if that is not in the database's search_path.
    """
    return re.sub(r'^("[^"]*"|\w+)\.|\(.*?\)|(?<=^interval) .*', "", kind)
