"""Athena's dialect (engine version 3: Trino's functions) to Spark's.

sqlglot knows the grammar of both. What a function, an operator or a cast becomes stands in one table, `athena.txt`:
sqlglot's own counterparts often differ in an edge (a null, a type, an index). What is in neither is an error that
quotes it. Where the answer depends on types, as that of a division does, the table has several forms; Spark is asked.
"""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable, Optional

from sqlglot import ErrorLevel, exp, parse
from sqlglot.dialects.spark import Spark
from sqlglot.dialects.trino import Trino
from sqlglot.errors import SqlglotError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.athena import AthenaTrinoParser

from ..base import LakeError, first_line

FORMS: dict[tuple[str, str, int], tuple[list[str], list[str]]] = {}  # name, literal, count: arguments' names, texts
for _line in Path(__file__).with_name("athena.txt").read_text(encoding="utf-8").splitlines():
    _head, _arrow, _text = _line.partition(" -> ")
    _name, _, _list = _head.rstrip(")").partition("(")
    _names = _list.replace("*", "").split(", ") if _list else []
    if _arrow:
        FORMS[_name, _list.split("'")[1] if "'" in _list else "", -1 if "*" in _list else len(_names)] = (
            _names, _text.split(" ;; "))
    elif not _line.startswith("#"):
        FORMS.update({(n, "", -1): (["args"], [f"{n.upper()}({{distinct}}{{args}})"]) for n in _line.split()})

CALLS: dict[type, tuple[str, ...]] = {  # what of the grammar is a call of the table's, and its arguments
    exp.Div: ("operator /", "this", "expression"), exp.Bracket: ("operator []", "this", "expressions"),
    exp.Extract: ("", "expression"), exp.StrPosition: ("strpos", "this", "substr"),
    exp.ParseJSON: ("json_parse", "this")}
WHOLE = (exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT)
ABSENT = (exp.DType.TIME, exp.DType.TIMETZ, exp.DType.CHAR)  # of Athena's types those for which sqlglot has others
# Of what sqlglot calls functions those that are grammar, and whose counterpart in Spark is right
GRAMMAR = (exp.Anonymous, exp.Array, exp.Case, exp.Cast, exp.Connector, exp.CurrentDate, exp.CurrentTimestamp,
           exp.Exists, exp.Extract, exp.If, exp.Localtimestamp, exp.ParseJSON, exp.StrPosition, exp.Trim, exp.Unnest)
# Of date_format and date_parse (Trino's documentation, "MySQL date functions"), in Java's letters
MYSQL = dict(zip("abcdefHhIijklMmprSsTWYy%", [java.replace("_", " ") for java in (
    "EEE MMM M dd d SSSSSS HH hh hh mm DDD H h MMMM MM a hh:mm:ss_a ss ss HH:mm:ss EEEE yyyy yy %").split()]))
BEHIND = "\0"  # stands for an aggregate while FILTER and OVER behind it are written


class AthenaText(Trino):
    """The grammar of what is read. No function is known to it: each call stays what is written."""

    INDEX_OFFSET = 0

    class Parser(AthenaTrinoParser):
        FUNCTIONS: dict = {}
        FUNCTION_PARSERS = {name: AthenaTrinoParser.FUNCTION_PARSERS[name] for name in (
            "CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION")}


def read(text: str) -> Any:
    """The one statement of a text. Raises SqlglotError; LakeError: there are several, or none."""
    trees = [t for t in parse(text, read=AthenaText) if t is not None]
    if len(trees) != 1:
        raise LakeError(f"{len(trees)} statements where one is expected", where=text.strip()[:200])
    return trees[0]


def write(tree: Any, accepts: Optional[Callable[[str], bool]] = None) -> str:
    """The Spark SQL of a query.

    Args:
        accepts: whether Spark takes a text, that is, whether its types fit.

    Raises:
        LakeError: a clause has no counterpart; or it depends on types what it becomes, and there is nobody to ask.
    """
    tree = tree.copy()
    for node in tree.walk():
        if (isinstance(node, (exp.Func, exp.Any, exp.All)) and not isinstance(node, GRAMMAR)
                or isinstance(node, exp.DataType) and node.this in ABSENT or node.args.get("with_ties")):
            raise _no("this clause", node)
    for node in reversed(list(tree.walk(bfs=False))):
        call = _as_call(node)
        if call is not node:
            node.replace(call)
    try:
        for call in reversed([c for c in tree.find_all(exp.Anonymous, bfs=False) if len(_entry(c)[1]) > 1]):
            if accepts is None:  # from within; those around take any types meanwhile, in their last form
                raise _no("which types this has, only Spark knows: query.sql(spark, …); it", call)
            for call.meta["form"] in range(len(_entry(call)[1])):  # noqa: B020
                if call.meta["form"] == len(_entry(call)[1]) - 1 or accepts(_text(tree)):
                    break
        return _text(tree)
    except SqlglotError as e:
        raise _no(first_line(e), tree) from None


def _no(what: str, node: Any) -> LakeError:
    return LakeError(f"{what} cannot be translated to Spark", where=node.sql(AthenaText)[:300],
                     next_step="write it with other means, or ask Spark itself: spark.sql(…)")


def _text(tree: Any) -> str:
    return tree.sql(dialect=SparkText, unsupported_level=ErrorLevel.RAISE)


def _call(name: str, *arguments: Any) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _as_call(node: Any) -> Any:
    """An operator or the like as a call of what the table has for it; what it holds is one already."""
    key = isinstance(node, exp.Bracket) and node.expressions[0].is_string  # of a map
    if type(node) in CALLS and not key:
        name, *arguments = CALLS[type(node)]
        values = [node.args[a] for a in arguments]
        return _call(name or node.name.lower(), *(v[0] if isinstance(v, list) else v for v in values))
    if isinstance(node, exp.If) and not isinstance(node.parent, exp.Case) and not node.args.get("false"):
        node.set("false", exp.null())
    if isinstance(node, exp.Anonymous) and node.name.lower() == "try":
        return exp.Paren(this=_tried(node))
    return _cast(node) if isinstance(node, exp.Cast) else _unnest(node) if isinstance(node, exp.Unnest) else node


def _cast(node: Any) -> Any:
    value, to, tries = node.this, node.to, "try " if isinstance(node, exp.TryCast) else ""
    maker = value.name.lower() if isinstance(value, exp.Anonymous) else ""
    if to.is_type("json"):
        return _call("cast to json", value)
    if maker in ("json_parse", "json_extract", "cast to json"):
        text = value.expressions[0] if maker == "json_parse" else value
        if to.this in exp.DataType.NESTED_TYPES:
            kind = re.sub(r"VARCHAR\(\d+\)|JSON", "STRING", to.sql(Spark))
            return _call(f"{tries}cast json", text, exp.Literal.string(kind))
        value = _call("json_extract_scalar", *(
            value.expressions if maker == "json_extract" else (text, exp.Literal.string("$"))))
        node.set("this", value)
    if to.this in WHOLE:
        return _call(f"{tries}cast to whole", value, to)
    if to.this in exp.DataType.TEXT_TYPES and (to.expressions or not value.is_string):
        return _call("cast to text", value, *(n.this for n in to.expressions))
    return node


def _tried(call: Any) -> Any:
    """What try(…) holds, each part of it null where it would fail."""
    for part in list(call.expressions[0].walk()):
        name = part.name.lower() if isinstance(part, exp.Anonymous) else ""
        if any(known == f"try {name}" for known, _, _ in FORMS):
            part.set("this", f"try {name}")
        elif isinstance(part, exp.Cast):
            part.replace(exp.TryCast(this=part.this, to=part.to, safe=True))
        elif isinstance(part, (exp.Func, exp.Is, exp.Mod, exp.Query)):  # may fail by itself, or be more than null
            raise _no(f"try() around {name or part.key.upper()}", call)
    return call.expressions[0]


def _unnest(node: Any) -> Any:
    """Athena takes an array of rows for one column where one is named (its documentation, "Flatten nested arrays"),
    else for a column for each field."""
    given, alias, number = node.expressions, node.args.get("alias"), node.args.get("offset")
    kind = "numbered" if number else "columns" if len(given) == 1 and alias and len(alias.columns) > 1 else "arrays"
    if number and alias:
        alias.append("columns", number)
    if number or len(given) > 1:  # ARRAYS_ZIP is null where one of them is
        given = [_call("coalesce", array, exp.Array()) for array in given]
    relation = exp.Lateral if isinstance(node.parent, exp.Join) else exp.Table
    return relation(this=_call(f"unnest {kind}", *given), alias=alias)


def _entry(call: Any) -> tuple[list[str], list[str]]:
    """What the table has for a call: the arguments' names, the forms."""
    arguments, _, order = _arguments(call)
    name, count = "ordered " * bool(order) + call.name.lower(), len(arguments)
    literal = arguments[0].name.lower() if arguments and arguments[0].is_string else ""
    for key in ((name, literal, count), (name, "", count), (name, "", -1)):
        if key in FORMS:
            return FORMS[key]
    raise _no(f"the function {name} of {count} arguments", call)


def _arguments(call: Any) -> tuple[list[Any], bool, Any]:
    """Of a call: the arguments, whether DISTINCT was said, the order."""
    arguments = list(call.expressions)
    order = call.parent.expression if isinstance(call.parent, exp.WithinGroup) else None
    if arguments and isinstance(arguments[-1], exp.Order):
        order, arguments[-1] = arguments[-1], arguments[-1].this
    distinct = bool(arguments) and isinstance(arguments[0], exp.Distinct)
    return (arguments[0].expressions + arguments[1:] if distinct else arguments), distinct, order


def _call_sql(self: SparkGenerator, call: Any, over: str = "") -> str:
    if call.meta.get("behind"):
        return BEHIND
    names, forms = _entry(call)
    form, (arguments, distinct, order) = forms[call.meta.get("form", -1)], _arguments(call)
    if distinct and "{distinct}" not in form:
        raise _no(f"DISTINCT in {call.name}", call)
    texts = {**dict(zip(names, map(self.sql, arguments))), **_keys(self, order), "distinct": "DISTINCT " * distinct,
             "over": over, "args": ", ".join(map(self.sql, arguments[max(len(names) - 1, 0):]))}

    def fill(found: Any) -> str:
        if not found[2]:
            return texts[found[1]]
        given = arguments[names.index(found[1])]
        if not given.is_string:
            raise _no("a pattern or path that is no literal", given)
        try:
            return exp.Literal.string(LITERALS[found[2]](given.name)).sql(Spark)
        except LookupError as e:
            raise _no(f"{e} in this pattern or path", given) from None

    return re.sub(r"{(\w+)(?::(\w+))?}", fill, form) + ("" if "{over}" in form else over)


def _keys(self: SparkGenerator, order: Any) -> dict[str, str]:
    """What SORT_ARRAY sorts by in place of an aggregate's order: nulls, then the key, in one direction for all."""
    keys = order.expressions if order else []
    down = any(o.args.get("desc") for o in keys)
    if any(bool(o.args.get("desc")) != down for o in keys):
        raise _no("an order with both directions within an aggregate", order)
    return {"ascending": str(not down).upper(), "keys": ", ".join(
        f"({self.sql(o, 'this')}) IS {'' if bool(o.args.get('nulls_first')) == down else 'NOT '}NULL AS n{i}, "
        f"{self.sql(o, 'this')} AS k{i}" for i, o in enumerate(keys))}


def _behind_sql(self: SparkGenerator, node: Any) -> str:
    """An aggregate with FILTER or OVER, which stand behind Spark's own aggregate, wherever its form has that."""
    call = node.this
    while isinstance(call, (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)):
        call = call.this
    plain = SparkGenerator.window_sql if isinstance(node, exp.Window) else SparkGenerator.filter_sql
    if not isinstance(call, exp.Anonymous) or call.meta.get("behind"):
        return plain(self, node)
    call.meta["behind"] = True
    text = plain(self, node).partition(BEHIND)[2]
    call.meta["behind"] = False
    return _call_sql(self, call, text)


class SparkText(Spark):
    """What is written."""

    class Generator(SparkGenerator):
        TRANSFORMS = {
            **{kind: how for kind, how in SparkGenerator.TRANSFORMS.items() if kind is not exp.Select},
            exp.Anonymous: _call_sql, exp.Filter: _behind_sql, exp.Window: _behind_sql,
            exp.WithinGroup: lambda self, node: self.sql(node, "this")}


def _mysql(pattern: str, patterns: dict[str, str] = MYSQL) -> str:
    return re.sub(r"%(.)|[A-Za-z'\[\]{}#]+",
                  lambda m: patterns[m[1]] if m[1] else "'" + m[0].replace("'", "''") + "'", pattern)


def _parsing(pattern: str) -> str:
    """One digit will do for two, unless the next number follows at once. %y has another century in Java."""
    patterns = {mark: java for mark, java in MYSQL.items() if mark != "y"}
    if not re.search(r"%\w%\w", pattern):
        patterns = {mark: re.sub(r"\b([MdHhms])\1\b", r"\1", java) for mark, java in patterns.items()}
    return _mysql(pattern, patterns)


def _joda(pattern: str) -> str:
    """Of Joda-Time (DateTimeFormat) what Java has by the same letters, and Y."""
    known = dict(zip("YGyDMdaKhHkmsSEz", "yGyDMdaKhHkmsSEz"))
    return re.sub(r"'[^']*'|[A-Za-z]", lambda found: found[0] if found[0][0] == "'" else known[found[0]], pattern)


def _path(path: str, start: str = "$") -> str:
    """Spark has names in brackets in single quotes."""
    if path[0] != "$":
        raise LookupError(path)
    return start + re.sub(r"\[\"?([^\]\"\d*][^\]\"]*)\"?\]", r"['\1']", path)[1:]


LITERALS: dict[str, Callable[[Any], str]] = {"mysql": _mysql, "parsing": _parsing, "joda": _joda, "path": _path,
                                             "inside": lambda path: _path(path, "$[*]")}
