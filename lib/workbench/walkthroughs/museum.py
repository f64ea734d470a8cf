"""What is particular to the museum walkthrough (notebooks/50_time_travel): its captures, its
tables, and what S5 does to its rows. `flow` has what every walkthrough has.
"""

from typing import Any

import yaml

from .. import hudi
from ..base import ROOT, World
from . import moma
from .flow import Capture
from .walkthrough import Walkthrough

DATABASE = moma.loader.database
CONNECTOR = "moma_source"
ENVELOPE_CONNECTOR = "moma_source_envelope"  # shows the raw change event, before it is flattened
SINK = "moma_sink"
LOADED_LABEL = "after_load"  # the label of every table's first commit
SCRATCH_DATABASE = "moma_scratch"  # the catalog's database of the experiments
# Both are called in the notebooks, to be seen. A Spark job compacts when it is told to; it is said
# all the same. It cleans after each commit, and keeps the files of ten: too few for tables that are
# there to be asked for their past.
MANUAL_TABLE_SERVICES = {"hoodie.compact.inline": "false", "hoodie.clean.automatic": "false"}

PICADOR, BAKKER = moma.PICADOR, 299
_CHANGES = yaml.safe_load((moma.DATA / "changes.yaml").read_text(encoding="utf-8"))
UPDATES, RECORD_HISTORY = (
    _CHANGES["updates"],
    {label: tuple(changes) for label, changes in _CHANGES["life"].items()},
)


def _lake_table(name: str, partition: str, kind: str) -> dict[str, Any]:
    """A table of a kind, "cow" or "mor".

    A global index: a record whose partition value changes moves, instead of being there twice. S5
    has GLOBAL_BLOOM, made for large tables; in small files it is all overhead.
    """
    return dict(
        name=f"moma_{name}_{kind}",
        base=f"moma/{name}_{kind}",
        database=f"moma_{kind}",
        catalog=name,
        partition=(partition,),
        ordering="__lsn",
        type=kind,
        index="GLOBAL_SIMPLE",
        deletes="soft",
        extra=MANUAL_TABLE_SERVICES,
    )


def _capture(name: str, key: str, partition: str) -> Capture:
    return Capture(
        f"{moma.loader.schema}.{name}",
        key,
        CONNECTOR,
        SINK,
        "avro",
        tuple(_lake_table(name, partition, kind) for kind in ("cow", "mor")),
    )


def _has_history_labels(world: World) -> bool:
    """Whether notebook 56 has put its labels on the table that the later ones ask for its past."""
    travelled = flow.table(world, "artists", "mor")
    return {"t0", *RECORD_HISTORY} <= set(hudi.labels(world, travelled)["label"])


def scratch_table(world: World, kind: str = "mor") -> hudi.Table:
    """A table of the artists of a kind, "cow" or "mor", in a database of its own, from which
    deletes remove the row.
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


def column_stats_table(world: World) -> hudi.Table:
    """A table with the column statistics that Hudi 1.x writes by default; notebook 57 shows what
    comes of it.
    """
    return hudi.table(
        world,
        "moma_skipping",
        key=("id",),
        ordering="__lsn",
        database=SCRATCH_DATABASE,
        extra={
            "hoodie.metadata.enable": "true",
            "hoodie.metadata.index.column.stats.enable": "true",
        },
    )


def cdc_table(world: World) -> hudi.Table:
    """A table that keeps the row before and after each change, for Hudi's own change query;
    notebook 57 asks it.
    """
    return hudi.table(
        world,
        "moma_imaging",
        key=("id",),
        ordering="__lsn",
        database=SCRATCH_DATABASE,
        extra={
            "hoodie.table.cdc.enabled": "true",
            "hoodie.table.cdc.supplemental.logging.mode": "data_before_after",
        },
    )


flow = Walkthrough(
    captures=(
        _capture("artists", "artist_id", "nationality"),
        _capture("artworks", "artwork_id", "classification"),
    ),
    database=DATABASE,
    watermark=False,  # the notebooks count the events
    folder=ROOT / "notebooks" / "50_time_travel",
    publication="moma_publication",
    loader=moma.loader,
    extra_connectors=(ENVELOPE_CONNECTOR,),
    scratch_tables=lambda world: [
        scratch_table(world),
        scratch_table(world, "cow"),
        column_stats_table(world),
        cdc_table(world),
    ],
    label=LOADED_LABEL,
    completion_checks={"56_time_travel": _has_history_labels},
    services=("postgres", "kafka", "connect", "spark", "apicurio"),
)
