"""What a Hudi table is (`Table`), the Hudi options that it becomes, and where what the workbench
keeps of it lies.

Everything is written as table version 6, which Athena v3 reads; Hudi 1.x upgrades a table without a
word when a writer forgets to say so, therefore the version is looked up after each ingest
(timeline.check_version).
"""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, ContextManager, Mapping

import yaml
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql import types as T

from ..base import LakeError, World, did_you_mean, files
from ..base.paths import join_uri

TABLE_TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
ALLOWED_VALUES = {
    "type": TABLE_TYPES,
    "index": ("SIMPLE", "GLOBAL_SIMPLE", "BLOOM", "GLOBAL_BLOOM", "BUCKET"),
    "deletes": ("hard", "soft"),
}
TABLE_VERSION = "6"
ORDERING_DIGITS = 20  # of a number in POSITION, so that texts are ordered as numbers are
COMBINED_ORDERING_COLUMN = (
    "__position"  # column of a table that is ordered by several fields: what they say, as one text
)
BUCKETS_KEY = "_workbench_buckets"  # in a commit's extra metadata how many the table has
# Of Hudi's options: {part: {option: value}}, all text
OPTION_GROUPS = yaml.load(
    Path(__file__).with_name("options.yaml").read_text(encoding="utf-8"), yaml.BaseLoader
)


@dataclass(frozen=True)
class Table:
    """A Hudi table. `options()` shows the Hudi options that it becomes.

    name: of the table. database, catalog: of its entry in the catalog, the table's name by default
        (see `entries`).
    base: address of its folder. key: record key fields. partition: partition fields.
    ordering: of two versions of a key the one with the greater value wins, whichever comes last,
        deletes too. Several
    fields, "__source_file,__source_pos,__source_row", where a place in the source's log is in none
    alone (MariaDB's, MySQL's): the first that differs counts. They are whole numbers, or texts
        whose order is the log's. The
    ordering field of a "mor" table is no decimal and no date.
    type: "cow" or "mor". parallelism: tasks of a shuffle.
    index: how the file of a key is found. SIMPLE and BLOOM look into the files of the key's
        partition, GLOBAL_SIMPLE
    and GLOBAL_BLOOM into all, so that a row may move to another partition. BUCKET reckons the file
    from the key and reads none, which keeps an upsert into a large table quick; it knows the key's
    own partition only.
    buckets: how many files a partition has then. It cannot be changed later: the ingest refuses
        another number.
    deletes: "hard" removes the row of a key; "soft" keeps it as the delete event has it (S5: the
        key, `__deleted`
    "true" and nulls, in Hudi's partition for null), so that it is still there to be read.
    extra: options that go before the ones made here.

    Limits. Hudi has one partition for null and for an empty text, and Spark takes the value from
    the partition's name: an empty text in a partition field reads as null. A delete that was
    committed to a "cow" table leaves nothing behind, so an older event of the same key that comes
    in a later batch brings the row back. A "mor" table remembers the delete until it is compacted.
    Within one batch the order does not matter, and a topic and landed files are read in the order
    of their offsets, so this needs a source that sends out of order.
    """

    name: str
    base: str
    key: tuple[str, ...]
    ordering: str
    partition: tuple[str, ...] = ()
    database: str = "datalake"
    catalog: str = ""
    type: str = "cow"
    index: str = "SIMPLE"
    buckets: int = 2
    parallelism: int = 2
    deletes: str = "hard"
    extra: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = vars(self)
        names = {
            name: isinstance(given[name], tuple) and all(isinstance(f, str) for f in given[name])
            for name in ("key", "partition")
        }
        for name, right, expected in (
            ("key", names["key"] and self.key, "a tuple of field names, one at least"),
            ("partition", names["partition"], "a tuple of field names"),
            (
                "ordering",
                all(self.ordering_fields),
                "the name of a field, or several with commas between",
            ),
            ("buckets", type(self.buckets) is int and self.buckets > 0, "a whole number from 1 on"),
            *(
                (name, given[name] in of, did_you_mean(str(given[name]), of))
                for name, of in ALLOWED_VALUES.items()
            ),
        ):
            if not right:
                raise LakeError(
                    f"{name} of table {self.name} is {given[name]!r}", expected=expected
                )

    @property
    def ordering_fields(self) -> list[str]:
        """The fields that `ordering` names."""
        return [name.strip() for name in self.ordering.split(",")]

    @property
    def ordering_column(self) -> str:
        """The column that Hudi orders by: the field itself, or what decode.classify makes of
        several.
        """
        return COMBINED_ORDERING_COLUMN if len(self.ordering_fields) > 1 else self.ordering

    def ordering_value(self, record: Mapping[str, Any]) -> Any:
        """Which version of its key a row or a record is: what stands, or will stand, in the
        ordering column.
        """
        values = [record[name] for name in self.ordering_fields]
        return (
            values[0]
            if len(values) == 1
            else "/".join(
                value if isinstance(value, str) else f"{int(value):0{ORDERING_DIGITS}}"
                for value in values
            )
        )

    def options(self) -> dict[str, str]:
        """The Hudi write options of this table: parts of options.yaml, then `extra`."""
        several = len(self.partition) > 1 or len(self.key) > 1
        keys = "Nonpartitioned" if not self.partition else "Complex" if several else "Simple"
        said = {
            **vars(self),
            "type": TABLE_TYPES[self.type],
            "key": ",".join(self.key),
            "keys": keys,
            "partition": ",".join(self.partition),
            "version": TABLE_VERSION,
            "ordering": self.ordering_column,
        }
        parts = [
            "every table",
            "base files",
            "bloom filter" if self.index.endswith("BLOOM") else "no bloom filter",
            *(["partitions"] if self.partition else []),
            *(["buckets"] if self.index == "BUCKET" else []),
        ]
        made = {
            option: Template(value).substitute(said)
            for part in parts
            for option, value in OPTION_GROUPS[part].items()
        }
        return {**made, **self.extra}


def needs_record_writer(schema: T.StructType) -> bool:
    """Whether only Hudi's writer of records writes files of these columns that a merge can read:
    there is a list or a map, and a decimal of at most 18 digits, for which the writer of rows
    changes to Spark's old format (Hudi 1.0.2).
    """
    text = schema.simpleString()
    small = any(int(digits) <= 18 for digits in re.findall(r"decimal\((\d+),", text))
    return small and ("array<" in text or "map<" in text)


def table(world: World, name: str, **fields: Any) -> Table:
    """A Table in the world's lake and catalog database; `fields` are those of Table. By default its
    folder is called after it, in one that is called after its database.
    """
    base = join_uri(world.lake.tables, f"{fields.get('database', Table.database)}/{name}")
    return Table(**{"name": name, "base": base, "parallelism": world.spark.parallelism, **fields})


def catalog_names(table: Table) -> dict[str, str]:
    """The table's names in the catalog and what each shows: `snapshot`, and of a Merge-on-Read
    table two views.

    `…_ro` is read-optimised (base files only: fast, and as old as the last compaction), `…_rt`
    real-time (base files and logs). The names are those that Hudi's Hive sync gives.
    """
    name = f"{table.database}.{table.catalog or table.name}"
    return (
        {f"{name}_ro": "read_optimized", f"{name}_rt": "snapshot"}
        if table.type == "mor"
        else {name: "snapshot"}
    )


def all_catalog_names(table: Table) -> list[str]:
    """Every name that the catalog may have for the table: its entries, and those that Hudi's own
    sync adds after UPDATE, DELETE, MERGE or INSERT in SQL, under the name that stands in the
    table's properties (Hudi 1.0.2).
    """
    return sorted(
        {
            *catalog_names(table),
            *(f"{table.database}.{table.name}{view}" for view in ("", "_ro", "_rt")),
        }
    )


def table_state_dir(world: World, table: Table) -> str:
    """Folder of what the workbench keeps of a table: labels, lists of landed files. It goes with
    hudi.drop.
    """
    return join_uri(world.lake.checkpoints, _relative_path(world, table))


def dead_letters_path(world: World, table: Table) -> str:
    """Folder of the dead letters of a table."""
    return join_uri(world.lake.dead_letters, _relative_path(world, table))


def _relative_path(world: World, table: Table) -> str:
    """Of each base one, for two tables may have the same name: the way below the lake's tables, or
    else the address as one name; a checksum keeps apart what differs in a / only.
    """
    start = world.lake.tables.rstrip("/") + "/"
    if table.base.startswith(start):
        return table.base[len(start) :].strip("/")
    return f"elsewhere/{safe_file_name(table.base)}-{hashlib.sha256(table.base.encode()).hexdigest()[:8]}"


def spark_reader(spark: SparkSession) -> DataFrameReader:
    """How every Hudi table is read here: without data skipping, which answers wrong (a test shows
    it).
    """
    return spark.read.format("hudi").option("hoodie.enable.data.skipping", "false")


def safe_file_name(text: str) -> str:
    """A text as the name of a file."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)


def table_lock(world: World, table: Table) -> ContextManager[None]:
    """Hold a table: two jobs that write one would read the same progress, and each roll the other's
    commit back.

    Raises (when it is entered): LakeError: an ingest into it is going on; names its process.
    """
    return files.exclusive_lock(
        table_state_dir(world, table),
        f"ingest into {table.database}.{table.name}",
        "wait until it is done; a continuous one ends with stop()",
    )


def commit_lock(table: Table) -> ContextManager[None]:
    """Hold a table while a commit is written, or a compaction planned; whoever comes second waits.

    A plan that is made while a commit begins may not see it, and then the commit's log goes to
    files that the compaction replaces: its rows are lost (seen with 1.0.2). In table version 6 a
    log belongs to a base file, not to a time of completion as in version 8 (Hudi's RFC-66). What a
    plan found may be run beside commits, which know of it. For a table that has a commit: the first
    one makes the folder, and there is nothing to compact before it.
    """
    return files.exclusive_lock(f"{table.base}/.hoodie/.writing")
