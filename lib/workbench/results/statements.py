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

# Athena's DDL in words that are Spark's, too
PLAIN = re.compile(r"\s*(MSCK\s+REPAIR\s+TABLE|SHOW\s+(TABLES|PARTITIONS|COLUMNS|DATABASES|SCHEMAS|TBLPROPERTIES|CREATE"
                   r"\s+TABLE)|DESC(RIBE)?|DROP\s+(TABLE|DATABASE|SCHEMA)|CREATE\s+(DATABASE|SCHEMA))\b", re.I)
TABLE = re.compile(r"\s*CREATE\s+TABLE\s+(?P<table>[\w.`\"]+)(\s+WITH\s*\((?P<settings>.*?)\))?\s+AS\b(?P<query>.*)",
                   re.I | re.S)
UNLOAD = re.compile(r"\s*UNLOAD\s*\((?P<query>.*)\)\s*TO\s*'(?P<external_location>[^']+)'\s*WITH\s*\((?P<settings>.*)\)"
                    r"\s*;?\s*", re.I | re.S)
SETTING = re.compile(r"(\w+)\s*=\s*(?:'([^']*)'|ARRAY\s*\[(.*?)\])\s*(?:,|$)", re.I | re.S)
PLACES = ("table", "external_location")
CODECS = ("compression", "write_compression", "parquet_compression", "orc_compression")
WRITTEN = {"parquet": "gzip", "orc": "zlib", "json": "gzip"}  # formats, and how Athena compresses them if not told
SERDE = "org.openx.data.jsonserde.JsonSerDe"
SERDES = {SERDE: "json", "org.apache.hive.hcatalog.data.JsonSerDe": "json",
          "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe": "parquet"}
HONOURED = (exp.ExternalProperty, exp.RowFormatSerdeProperty, exp.FileFormatProperty, exp.PartitionedByProperty,
            exp.LocationProperty, exp.SchemaCommentProperty, exp.Property)


def read(text: str) -> tuple[Any, Optional[dict[str, Any]]]:
    """A query (its tree), or another statement (a text of Spark's own); and where the query's rows go, if not to who
    asks: table, external_location, format, compression, partitioned_by.

    Raises: LakeError: it is none of them, or has a clause or a setting that is not honoured.
    """
    text = re.sub(r"\A(\s*--[^\n]*\n|\s*/\*.*?\*/)*", "", text, flags=re.S)  # comments above it
    if PLAIN.match(text):
        return text.strip().rstrip(";"), None
    if re.match(r"\s*CREATE\s+EXTERNAL\s+TABLE\b", text, re.I):
        return external(text), None
    found = TABLE.fullmatch(text) or UNLOAD.fullmatch(text)
    tree = dialect.read(found["query"] if found else text)
    if not isinstance(tree, exp.Query):
        raise LakeError("this statement is none of those that query.sql has", where=text.strip()[:200],
                        expected="a query, CREATE TABLE … AS, CREATE EXTERNAL TABLE, UNLOAD, MSCK REPAIR TABLE, SHOW, "
                        "DESCRIBE, DROP TABLE", next_step="what changes rows is for spark.sql, in Spark's own dialect")
    return tree, _goal(found.groupdict()) if found else None


def _goal(given: dict[str, Any]) -> dict[str, Any]:
    """A statement's parts with its settings read. Raises LakeError."""
    text = given["settings"] or ""
    settings = {name.lower(): one.lower() if name.lower() in CODECS else one or re.findall(r"'([^']*)'", many.lower())
                for name, one, many in SETTING.findall(text)}
    form = str(settings.get("format", "parquet")).lower()
    strange = sorted(set(settings) - {"format", "external_location", "partitioned_by", *CODECS})
    if strange or form not in WRITTEN or SETTING.sub("", text).strip():
        raise LakeError(f"WITH ({text.strip()}) is not honoured", where=", ".join(strange) or form, expected="external_"
                        f"location, partitioned_by, {', '.join(CODECS)}, format ({', '.join(WRITTEN)})")
    codec = next((settings[name] for name in CODECS if name in settings), WRITTEN[form])
    return {"table": "", "external_location": "", "partitioned_by": [], **settings, "format": form,
            "compression": codec, **{name: given[name].replace('"', "`") for name in given if name in PLACES}}


def external(text: str) -> str:
    """CREATE EXTERNAL TABLE as Spark's CREATE TABLE … USING: such a table finds columns by their names, and knows the
    partitions that it was told of, as Athena's does. Raises LakeError."""
    try:
        tree = sqlglot.parse_one(text, read="hive")
    except sqlglot.errors.SqlglotError as e:
        raise LakeError(f"this is not Athena's DDL: {first_line(e)}", where=text.strip()[:200]) from None
    serde, stored = tree.find(exp.RowFormatSerdeProperty), tree.find(exp.FileFormatProperty)
    form = SERDES.get(serde.name, "") if serde else stored.name.lower() if stored else ""
    settings = {s.name: s.text("value").lower() for s in (serde or exp.null()).find_all(exp.Property)
                if type(s) is exp.Property}
    clauses = list(tree.args["properties"].expressions) if isinstance(tree, exp.Create) else [tree]
    strange = [p.sql("hive") for p in clauses if type(p) not in HONOURED or p.name.startswith("projection.")]
    strange += sorted(set(settings) - {"ignore.malformed.json", "serialization.format"})
    if form not in WRITTEN or strange or not tree.find(exp.LocationProperty):
        raise LakeError("a clause of this table is not honoured, or a necessary one is not there",
                        where=", ".join(strange)[:300] or text.strip()[:300],
                        expected="(column type, …) [PARTITIONED BY (…)] STORED AS PARQUET | STORED AS ORC | ROW FORMAT "
                                 f"SERDE '{SERDE}' LOCATION '…' [TBLPROPERTIES (…)]",
                        next_step="partitions are told to the catalog by MSCK REPAIR TABLE")
    tree.args["properties"].set("expressions", [exp.FileFormatProperty(this=exp.var(form)),
                                                *(p for p in clauses if type(p) not in HONOURED[:3])])
    mode = "PERMISSIVE" if settings.get("ignore.malformed.json") == "true" else "FAILFAST"
    return tree.sql("spark", identify=True).replace(" USING JSON ", f" USING JSON OPTIONS (mode '{mode}') ", 1)


def declared(table: str, columns: dict[str, str], partitions: Sequence[str], form: str, address: str) -> str:
    """The CREATE EXTERNAL TABLE of files, in Athena's words; types are Spark's (`simpleString`)."""
    types = [f"`{name}` {type}" for name, type in columns.items()]
    by = f"PARTITIONED BY ({', '.join(f'`{name}` string' for name in partitions)})\n" * bool(partitions)
    stored = "STORED AS PARQUET" if form == "parquet" else f"ROW FORMAT SERDE '{SERDE}'"
    return f"CREATE EXTERNAL TABLE {table} (\n  {', '.join(types)})\n{by}{stored}\nLOCATION '{address}'"
