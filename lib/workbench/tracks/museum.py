"""Time travel on a museum's collection (notebooks/50_time_travel): captures, tables, changes."""

from typing import Any, Sequence

import pandas
from pyspark.sql import SparkSession

from .. import hudi, query
from ..base import World, yaml_files
from ..flow.capture import Capture
from ..flow.flow import CaptureFlow
from ..flow.resources import Owns, Product
from ..hudi.tables import catalog_names
from . import moma
from .track import Step, Track

DATABASE = moma.loader.database
CONNECTOR = "moma_source"
ENVELOPE_CONNECTOR = "moma_source_envelope"  # shows the change event before it is flattened
SINK = "moma_sink"
LOADED_LABEL = "after_load"  # the label of each table's first commit
SCRATCH_DATABASE = "moma_scratch"  # the catalog database of the scratch tables
# The notebooks run compaction and cleaning explicitly. By default a Spark writer compacts a
# Merge-on-Read table in every fifth commit. By default it cleans after each commit and keeps the
# files of ten commits, which is too few for queries of the history.
MANUAL_TABLE_SERVICES = {"hoodie.compact.inline": "false", "hoodie.clean.automatic": "false"}

PICADOR, BAKKER = moma.PICADOR, 299
_CHANGES = yaml_files.load(moma.DATA / "changes.yaml")
UPDATES = _CHANGES["updates"]
RECORD_HISTORY = {label: tuple(changes) for label, changes in _CHANGES["life"].items()}


def _lake_table(name: str, partition: str, kind: str) -> dict[str, Any]:
    """Return the fields of a lake table of a type, "cow" or "mor".

    With a global index a record moves when its partition value changes; without one it would exist
    twice. S5 uses GLOBAL_BLOOM, which is for large tables, and only overhead for small files.
    """
    return {
        "name": f"moma_{name}_{kind}",
        "base": f"moma/{name}_{kind}",
        "database": f"moma_{kind}",
        "catalog": name,
        "partition": (partition,),
        "ordering": "__lsn",
        "type": kind,
        "index": "GLOBAL_SIMPLE",
        "deletes": "soft",
        "extra": MANUAL_TABLE_SERVICES,
    }


def _capture(name: str, key: str, partition: str) -> Capture:
    lake = tuple(_lake_table(name, partition, kind) for kind in ("cow", "mor"))
    return Capture(f"{moma.loader.schema}.{name}", key, CONNECTOR, SINK, "avro", lake)


def _has_history_labels(world: World) -> bool:
    """Return whether notebook 56 has labeled the table whose history the later ones query."""
    labels = hudi.labels(world, flow.table(world, "artists", "mor"))["label"]
    return {"t0", *RECORD_HISTORY} <= set(labels)


def scratch_table(world: World, kind: str = "mor") -> hudi.Table:
    """Return a table of artists in a database of its own, with hard deletes.

    Args:
        world: the world.
        kind: "cow" or "mor".
    """
    name = "scratch" if kind == "mor" else f"scratch_{kind}"
    return flow.table(
        world,
        "artists",
        kind,
        name=f"moma_{name}",
        base=f"moma/{name}",
        database=SCRATCH_DATABASE,
        deletes="hard",
    )


def record(
    spark: SparkSession, tables: Sequence[hudi.Table], key: Any, /, *columns: str
) -> pandas.DataFrame:
    """Return a record of several tables by its key, as each name in the catalog shows it.

    Returns:
        Columns seen_in (the name in the catalog), the requested ones, __op, file (base or log),
        then Hudi's file name and commit time. The file name of a record from a log is its file
        group, without `.parquet`.
    """
    selected = (*columns, "__op", "_hoodie_file_name", "_hoodie_commit_time")
    names = ", ".join('"{}"'.format(name.replace('"', '""')) for name in selected)
    queries = [
        f"SELECT '{view}' AS seen_in, {names} FROM {view} WHERE {table.key[0]} = :key"  # noqa: S608 - the names are quoted
        for table in tables
        for view in catalog_names(table)
    ]
    rows = query.sql(spark, " UNION ALL ".join(queries), key=key)
    is_base = rows["_hoodie_file_name"].str.endswith(".parquet")
    rows.insert(rows.columns.get_loc("__op") + 1, "file", is_base.map({True: "base", False: "log"}))
    return rows.sort_values(["seen_in", "_hoodie_commit_time"], ignore_index=True)


def column_stats_table(world: World) -> hudi.Table:
    """Return a table with the column statistics that Hudi 1.x writes by default (notebook 57)."""
    settings = ("hoodie.metadata.enable", "hoodie.metadata.index.column.stats.enable")
    return _simple_table(world, "moma_skipping", dict.fromkeys(settings, "true"))


def cdc_table(world: World) -> hudi.Table:
    """Return a table that stores each row before and after a change (notebook 57).

    Hudi's own change query reads these images.
    """
    settings = {
        "hoodie.table.cdc.enabled": "true",
        "hoodie.table.cdc.supplemental.logging.mode": "data_before_after",
    }
    return _simple_table(world, "moma_imaging", settings)


def _simple_table(world: World, name: str, extra: dict[str, str]) -> hudi.Table:
    return hudi.table(
        world, name, key=("id",), ordering="__lsn", database=SCRATCH_DATABASE, extra=extra
    )


flow = CaptureFlow(
    captures=(
        _capture("artists", "artist_id", "nationality"),
        _capture("artworks", "artwork_id", "classification"),
    ),
    database=DATABASE,
    publication="moma_publication",
    loader=moma.loader,
    label=LOADED_LABEL,
)
TRACK = Track(
    "50_time_travel",
    (
        "51_source_database",
        "52_connectors",
        "53_hudi_ingest",
        Step("56_time_travel", Product.TABLES, _has_history_labels),
    ),
    flow,
    Owns(
        connectors=(ENVELOPE_CONNECTOR,),
        tables=lambda world: [
            scratch_table(world),
            scratch_table(world, "cow"),
            column_stats_table(world),
            cdc_table(world),
        ],
    ),
    services=("postgres", "kafka", "connect", "spark", "apicurio"),
)
