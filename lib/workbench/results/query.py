"""Queries in Athena's dialect, answered as pandas in every world.

Where the engine is Spark, sqlglot translates; what it knows no counterpart of is an error. Two things to mind: Athena
divides integers to an integer where Spark gives a fraction, and a cast that fails is an error there and null here.
"""
from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Sequence

import pandas
import sqlglot
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope

from .. import hudi, stack
from ..base import LakeError, World, first_line, nearest
from ..spark import answered, session

REFUSED = {  # of an UNNEST, what sqlglot would translate to something else
    "UNNEST with an ON condition": lambda join: join.args.get("on") and not isinstance(join.args["on"], exp.Boolean),
    "LEFT JOIN UNNEST": lambda join: (join.side or "").upper() == "LEFT",
    "UNNEST of several arrays": lambda join: len(join.this.expressions) > 1,
    "UNNEST WITH ORDINALITY": lambda join: join.this.args.get("offset"),  # counts from 1 there, from 0 here
}


def sql(where: SparkSession | World, text: str, **values: Any) -> pandas.DataFrame:
    """Run one query and return its rows.

    Args:
        where: a Spark session, or a world (whose `query.kind` says which engine answers).
        text: one statement in Athena's dialect. `:name` stands for a value.
        values: the values, bound as literals, never pasted into the text.

    Raises:
        LakeError: not one query, not translatable, a value missing or left over, a table or column that is not there.
        StackError: Spark was restarted or is gone; `spark.session(world)` gives a new session.
    """
    if hasattr(where, "query"):
        stack.must_be_there(where, "query.")
    tree = _parse(text)
    named = {p.name for p in tree.find_all(exp.Placeholder)}
    for name in sorted(named ^ set(values)):
        what = f"the query names :{name}, no value is given" if name in named else f"value {name!r} is not in the query"
        raise LakeError(what, expected=nearest(name, values if name in named else named))
    translated = _generate(tree)
    spark = session(where) if hasattr(where, "query") else where
    with answered(spark, "the query failed", translated,
                  "see whether the table is registered (hudi.register) and the column exists"):
        for name in _tables(tree):  # a catalog table remembers its files: look anew, a stream may have committed
            with contextlib.suppress(AnalysisException):  # there is none: the query itself says it better
                spark.sql(f"REFRESH TABLE {name}")
        return spark.sql(translated, args=values or None).toPandas()


def record(spark: SparkSession, tables: Sequence[hudi.Table], key: Any, /, *columns: str) -> pandas.DataFrame:
    """A record of these tables, by their key, as each of their names in the catalog shows it: seen_in, columns, __op,
    file (base or log), then Hudi's file name and commit time. A record that comes from a log bears the name of its file
    group, without `.parquet`.

    Raises: LakeError: there is no such table or column.
    """
    asked = [exp.column(c, quoted=True) for c in (*columns, "__op", "_hoodie_file_name", "_hoodie_commit_time")]

    def one(view: str, field: str) -> pandas.DataFrame:  # built, not written: a name stays a name, whatever it holds
        table = exp.table_(*reversed(view.split(".")), quoted=True)
        text = exp.select(exp.Literal.string(view).as_("seen_in"), *asked).from_(table).where(
            exp.column(field, quoted=True).eq(exp.Placeholder(this="id"))).sql("athena")
        return sql(spark, text, id=key)

    asks = [(view, table.key[0]) for table in tables for view in hudi.entries(table)]
    with ThreadPoolExecutor(2) as pool:  # sooner than one query with UNION ALL: Spark plans its parts one by one
        parts = list(pool.map(one, *zip(*asks)))
    found = pandas.concat([p for p in parts if len(p)] or parts, ignore_index=True)
    base = found["_hoodie_file_name"].str.endswith(".parquet")
    found.insert(found.columns.get_loc("__op") + 1, "file", base.map({True: "base", False: "log"}))
    return found.sort_values(["seen_in", "_hoodie_commit_time"], ignore_index=True)


def translate(text: str) -> str:
    """Return the Spark SQL for a query in Athena's dialect. Raises LakeError when it cannot be translated."""
    return _generate(_parse(text))


def _parse(text: str) -> Any:
    try:
        trees = [t for t in sqlglot.parse(text, read="athena") if t is not None]
    except sqlglot.errors.SqlglotError as e:
        raise LakeError(f"the query is not Athena SQL: {first_line(e)}", where=text.strip()[:200]) from None
    if len(trees) != 1:
        raise LakeError(f"{len(trees)} statements where one is expected", where=text.strip()[:200])
    if not isinstance(trees[0], (exp.Query, exp.Describe)):
        raise LakeError("this statement is no query", where=text.strip()[:200], expected="SELECT … or DESCRIBE …",
                        next_step="a statement that changes something is for spark.sql, in Spark's own dialect")
    return trees[0]


def _generate(tree: Any) -> str:
    unnests = [join for join in tree.find_all(exp.Join) if isinstance(join.this, exp.Unnest)]
    no = [what for join in unnests for what, holds in REFUSED.items() if holds(join)]
    no += [f"the function {node.name}" for node in tree.find_all(exp.Anonymous)]
    try:
        if no:
            raise sqlglot.errors.UnsupportedError(no[0])
        return tree.sql(dialect="spark", unsupported_level=sqlglot.ErrorLevel.RAISE)
    except sqlglot.errors.SqlglotError as e:
        raise LakeError(f"the query cannot be translated to Spark: {first_line(e)}", next_step="write it with other "
                        "means, or ask Spark itself: spark.sql(…)", where=tree.sql(dialect="athena")[:300]) from None


def _tables(tree: Any) -> list[str]:
    """Names of the tables that the query reads, without those it defines itself."""
    read = [t for scope in traverse_scope(tree) for t in scope.sources.values() if isinstance(t, exp.Table)]
    return sorted({exp.table_(t.name, t.db, t.catalog, quoted=True).sql("spark") for t in read})
