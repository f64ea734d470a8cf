"""Athena's statements that are no query: tables over files, and where the rows of a query go.

A location is an address of the world's lake, which its caller writes into the statement (f"… LOCATION '{address}'").
"""
from __future__ import annotations

import re
from typing import Any, Optional, Sequence

import sqlglot
from sqlglot import exp

from ..base import LakeError, first_line
from . import dialect

ABOVE = re.compile(r"\A(\s*--[^\n]*\n|\s*/\*.*?\*/)*", re.S)  # comments
# Athena's DDL in words that are Spark's, too
PLAIN = re.compile(r"\s*(MSCK\s+REPAIR\s+TABLE|SHOW\s+(TABLES|PARTITIONS|COLUMNS|DATABASES|SCHEMAS|TBLPROPERTIES|CREATE"
                   r"\s+TABLE)|DESC(RIBE)?|DROP\s+(TABLE|DATABASE|SCHEMA)|CREATE\s+(DATABASE|SCHEMA))\b", re.I)
EXTERNAL = re.compile(r"\s*CREATE\s+EXTERNAL\s+TABLE\b", re.I)
TABLE = re.compile(r"\s*CREATE\s+TABLE\s+(?P<table>[\w.`\"]+)(?:\s+WITH\s*\((?P<settings>.*?)\))?\s+AS\b(?P<query>.*)",
                   re.I | re.S)
UNLOAD = re.compile(r"\s*UNLOAD\s*\((?P<query>.*)\)\s*TO\s*'(?P<place>[^']+)'\s*WITH\s*\((?P<settings>.*)\)\s*;?\s*",
                    re.I | re.S)
SETTING = re.compile(r"(\w+)\s*=\s*(?:'([^']*)'|ARRAY\s*\[(.*?)\]|\S+)", re.I | re.S)
CODECS = ("compression", "write_compression", "parquet_compression", "orc_compression")
WRITTEN = {"parquet": "gzip", "orc": "zlib", "json": "gzip"}  # formats, and how Athena compresses them if not told
SERDE = "org.openx.data.jsonserde.JsonSerDe"
SERDES = {SERDE: "json", "org.apache.hive.hcatalog.data.JsonSerDe": "json"}
KEPT = (exp.PartitionedByProperty, exp.LocationProperty, exp.SchemaCommentProperty, exp.Property)
Goal = tuple[str, str, str, str, list[str]]  # table, location, format, codec, partitions


def read(text: str) -> tuple[Any, Optional[Goal]]:
    """A query (its tree), or another statement (a text of Spark's own); and where a query's rows go, if kept.

    Raises: LakeError: it is none of them, or has a clause or a setting that is not honoured.
    """
    text = ABOVE.sub("", text).strip()
    try:
        if PLAIN.match(text) or EXTERNAL.match(text):
            return external(text) if EXTERNAL.match(text) else text.rstrip(";"), None
        found = TABLE.fullmatch(text) or UNLOAD.fullmatch(text)
        tree = dialect.read(found["query"] if found else text)
    except sqlglot.errors.SqlglotError as e:
        raise LakeError(f"the query is not Athena SQL: {first_line(e)}", where=text[:200]) from None
    if not isinstance(tree, exp.Query):
        raise LakeError("this statement is none of those that query.sql has", where=text[:200],
                        next_step="what changes rows is for spark.sql, in Spark's own dialect")
    return tree, _goal(**{k: v or "" for k, v in found.groupdict().items()}) if found else None


def _goal(query: str, settings: str, table: str = "", place: str = "") -> Goal:
    given = {name.lower(): one or re.findall(r"'([^']*)'", more.lower())
             for name, one, more in SETTING.findall(settings)}
    codec = [given.pop(name).lower() for name in CODECS if name in given]
    form, by = given.pop("format", "parquet").lower(), given.pop("partitioned_by", [])
    place = given.pop("external_location", place)
    if given or form not in WRITTEN:
        raise LakeError(f"WITH ({settings.strip()}) is not honoured", where=", ".join(given) or form, expected="format "
                        f"({', '.join(WRITTEN)}), partitioned_by, external_location, {', '.join(CODECS)}")
    return table.replace('"', "`"), place, form, (codec or [WRITTEN[form]])[0], by


def external(text: str) -> str:
    """CREATE EXTERNAL TABLE as Spark's CREATE TABLE … USING: such a table finds columns by their names, and knows the
    partitions that it was told of, as Athena's does. Raises LakeError."""
    tree = sqlglot.parse_one(text, read="hive")
    given = {type(p): p for p in tree.args["properties"].expressions} if isinstance(tree, exp.Create) else {}
    serde, stored = given.get(exp.RowFormatSerdeProperty), given.get(exp.FileFormatProperty)
    form = SERDES.get(serde.name, "") if serde else stored.name.lower() if stored else ""
    settings = {s.name: s.text("value") for s in tree.find_all(exp.Property)
                if isinstance(s.parent, exp.SerdeProperties)}
    lenient = settings.pop("ignore.malformed.json", "false").lower() == "true"
    known = (exp.ExternalProperty, exp.RowFormatSerdeProperty, exp.FileFormatProperty, *KEPT)
    strange = [p.sql("hive") for kind, p in given.items() if kind not in known] + list(settings)
    strange += [p.name for p in tree.find_all(exp.Property) if p.name.startswith("projection.")]
    if form not in WRITTEN or strange or exp.LocationProperty not in given:
        raise LakeError("a clause of this table is not honoured, or a necessary one is not there",
                        where=", ".join(strange) or text[:300], expected=f"STORED AS PARQUET | STORED AS ORC | ROW "
                        f"FORMAT SERDE '{SERDE}', LOCATION '…'; partitions are told by MSCK REPAIR TABLE")
    tree.args["properties"].set("expressions", [exp.FileFormatProperty(this=exp.var(form)), *(
        p for p in tree.args["properties"].expressions if type(p) in KEPT)])
    mode = f" USING JSON OPTIONS (mode '{'PERMISSIVE' if lenient else 'FAILFAST'}') "
    return tree.sql("spark", identify=True).replace(" USING JSON ", mode, 1)


def declared(table: str, columns: dict[str, str], partitions: Sequence[str], form: str, address: str) -> str:
    """The CREATE EXTERNAL TABLE of files, in Athena's words; types are Spark's (`simpleString`)."""
    types = ", ".join(f"`{name}` {type}" for name, type in columns.items())
    by = f"PARTITIONED BY ({', '.join(f'`{name}` string' for name in partitions)})\n" * bool(partitions)
    stored = "STORED AS PARQUET" if form == "parquet" else f"ROW FORMAT SERDE '{SERDE}'"
    return f"CREATE EXTERNAL TABLE {table} (\n  {types})\n{by}{stored}\nLOCATION '{address}'"
