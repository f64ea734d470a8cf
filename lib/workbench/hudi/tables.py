"""What a Hudi table is (`Table`), its Hudi options, and the paths of its state in the workbench.

Everything is written as table version 6, which Athena v3 reads. Hudi 1.x upgrades a table silently
if a writer omits the version. Therefore each ingest checks it afterwards (timeline.check_version).
"""

import hashlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template
from typing import Any, ContextManager, Mapping

from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql import types as T

from ..base import LakeError, World, did_you_mean, files, yaml_files
from ..base.added_columns import COMBINED_ORDERING_COLUMN, ENCODED_KEY_COLUMN
from ..base.paths import join_uri

TABLE_TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
ALLOWED_VALUES = {
    "type": tuple(TABLE_TYPES),
    "index": ("SIMPLE", "GLOBAL_SIMPLE", "BUCKET"),
    "deletes": ("hard", "soft"),
}
TABLE_VERSION = "6"
# Digits of a number in COMBINED_ORDERING_COLUMN, so that texts sort as the numbers do.
ORDERING_DIGITS = 20
# Debezium's column with the operation, and its value for a row of a snapshot.
OP_COLUMN, SNAPSHOT_OP = "__op", "r"
# Key in a commit's extra metadata, where Hudi keeps options that begin with _: the number of buckets of a
# table with the index BUCKET
BUCKETS_KEY = "_workbench_buckets"
# {group: {Hudi option: value}}, all text
OPTION_GROUPS: dict[str, dict[str, str]] = yaml_files.load(Path(__file__).with_name("options.yaml"))


@dataclass(frozen=True)
class Table:
    """A Hudi table. `options()` returns its Hudi options.

    Limits. Hudi has one partition for null and for an empty text, and Spark takes the value from
    the partition's name: an empty text in a partition field reads as null. A delete that was
    committed to a "cow" table leaves no trace, so an older event of the same key in a later batch
    restores the row. A "mor" table without the index GLOBAL_SIMPLE keeps the delete until it is compacted.
    Within one batch the order does not matter, and a topic and landed files are read in the order of
    their offsets. So only a source that sends out of order is affected.

    Attributes:
        name: name of the table.
        base: URI of its folder.
        key: record key fields.
        ordering: ordering field. Of two versions of a key the one with the greater value wins,
            whichever comes last; this includes deletes. Several fields, separated by commas, are
            needed where no single one has the position in the source's log (MariaDB, MySQL):
            "__source_file,__source_pos,__source_row". The first that differs decides. They are
            whole numbers, or texts that sort as the log does; or `__op`, by which a row of a snapshot
            is older than any change: a change of a transaction that was open during the snapshot has
            an earlier position ("__op,__lsn"). The ordering field of a "mor" table
            is no decimal and no date.
        partition: partition fields. Those that are no key fields need the index GLOBAL_SIMPLE.
        database: database of its catalog entry.
        catalog: name of its catalog entry, the table's name by default (see `catalog_names`).
        type: "cow" (Copy-on-Write) or "mor" (Merge-on-Read). A Copy-on-Write table writes all of a file
            again to change one row. The ingest refuses another type than that of the existing table.
        index: how the file of a key is found. GLOBAL_SIMPLE searches the files of all partitions, so that a
            row may move to another one. SIMPLE searches those of the row's partition. BUCKET computes the
            file from the key and reads none: an upsert into a large table stays quick. The ingest refuses
            a change from or to BUCKET.
        buckets: files in a partition with index BUCKET. The ingest refuses another number later.
        parallelism: tasks of a shuffle.
        deletes: "hard" removes the row of a key. "soft" keeps it as the delete event has it (S5:
            the key, `__deleted` "true" and nulls, in Hudi's partition for null), so that it can
            still be read.
        extra: Hudi options that take precedence over the ones made here.
        encodes_key: whether Hudi finds a row by the column `__key`, which the ingest adds, in place of the
            key fields. Their values are in it as JSON. Hudi's own text of a key is ambiguous but for one
            whole number or uuid: ('x,b:y', 'z') and ('x', 'y,b:z') are one key, an empty text is none, and
            bytes have one text in the first load and another one in an upsert.
        checks_partition: whether a row is a dead letter if the name of its partition cannot have its text: an
            empty text reads as null, and the name of a folder has at most 255 bytes.
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
    encodes_key: bool = False
    checks_partition: bool = False

    def __post_init__(self) -> None:
        """Raise LakeError if a field is invalid."""
        if not (_is_tuple_of_names(self.key) and self.key):
            raise _invalid(self, "key", "a tuple of field names, one at least")
        if not _is_tuple_of_names(self.partition):
            raise _invalid(self, "partition", "a tuple of field names")
        if not all(self.ordering_fields):
            raise _invalid(self, "ordering", "the name of a field, or several with commas between")
        if type(self.buckets) is not int or self.buckets < 1:
            raise _invalid(self, "buckets", "a whole number from 1 on")
        for name, allowed in ALLOWED_VALUES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise _invalid(self, name, did_you_mean(str(value), allowed))
        changeable = [name for name in self.partition if name not in self.key]
        if changeable and self.index != "GLOBAL_SIMPLE":
            raise LakeError(
                f"table {self.name} has the index {self.index}, and its partition field {changeable[0]} is no key "
                "field: a row whose partition changes would be in both partitions",
                location=self.base,
                expected=f"an index that searches all partitions, or {changeable[0]} in the key",
                hint='a table without partitions, whose upserts stay quick with index="BUCKET"; or '
                'index="GLOBAL_SIMPLE", whose upserts take longer the larger the table is',
            )

    @property
    def record_key(self) -> tuple[str, ...]:
        """The columns by which Hudi finds a row: the key fields, or the column that has them all."""
        return (ENCODED_KEY_COLUMN,) if self.encodes_key else self.key

    @property
    def ordering_fields(self) -> list[str]:
        """The fields that `ordering` names."""
        return [name.strip() for name in self.ordering.split(",")]

    @property
    def ordering_column(self) -> str:
        """The column that Hudi orders by: the field itself, or the combination of several."""
        return self.ordering if len(self.ordering_fields) == 1 else COMBINED_ORDERING_COLUMN

    def ordering_value(self, record: Mapping[str, Any]) -> Any:
        """Return the value of the ordering column for a row, or for a record of the source."""
        values = [record[name] for name in self.ordering_fields]
        if len(values) == 1:
            return values[0]
        values = [
            str(int(value != SNAPSHOT_OP)) if name == OP_COLUMN else value
            for name, value in zip(self.ordering_fields, values)
        ]
        if record.get("__deleted") != "true" and record.get(OP_COLUMN) != "d":
            values.append("1")
        return "/".join(
            value if isinstance(value, str) else f"{int(value):0{ORDERING_DIGITS}}"
            for value in values
        )

    def options(self) -> dict[str, str]:
        """Return the Hudi write options of this table: groups of options.yaml, then `extra`."""
        if not self.partition:
            key_generator = "Nonpartitioned"
        elif len(self.partition) > 1 or len(self.record_key) > 1:
            key_generator = "Complex"
        else:
            key_generator = "Simple"
        values = {
            **vars(self),
            "type": TABLE_TYPES[self.type],
            "key": ",".join(self.record_key),
            "keys": key_generator,
            "partition": ",".join(self.partition),
            "version": TABLE_VERSION,
            "ordering": self.ordering_column,
        }
        groups = ["every table", "base files"]
        if self.partition:
            groups.append("partitions")
        if self.index == "BUCKET":
            groups.append("buckets")
        options = {
            option: Template(value).substitute(values)
            for group in groups
            for option, value in OPTION_GROUPS[group].items()
        }
        return {**options, **self.extra}


def _invalid(table: Table, name: str, expected: str) -> LakeError:
    return LakeError(f"{name} of table {table.name} is {getattr(table, name)!r}", expected=expected)


def _is_tuple_of_names(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(name, str) for name in value)


def needs_record_writer(schema: T.StructType) -> bool:
    """Return whether a merge can read files of these columns only if Hudi's record writer wrote them.

    This is so for a list or a map beside a decimal of at most 18 digits: for such a decimal the row
    writer changes to Spark's legacy format (Hudi 1.0.2).
    """
    text = schema.simpleString()
    has_small_decimal = any(int(digits) <= 18 for digits in re.findall(r"decimal\((\d+),", text))
    return has_small_decimal and ("array<" in text or "map<" in text)


def table(world: World, name: str, **fields: Any) -> Table:
    """Make a Table in the world's lake and catalog database.

    Args:
        world: the world.
        name: name of the table. By default its folder has this name, below the database's.
        fields: fields of Table.
    """
    base = join_uri(world.lake.tables, f"{fields.get('database', Table.database)}/{name}")
    return Table(**{"name": name, "base": base, "parallelism": world.spark.parallelism, **fields})


def catalog_names(table: Table) -> dict[str, str]:
    """Return {name in the catalog: query type}: one `snapshot`, or of a Merge-on-Read table two views.

    `…_ro` is read-optimized (base files only: fast, and as old as the last compaction). `…_rt` is
    real-time (base files and logs). Hudi's Hive sync uses the same names.
    """
    name = f"{table.database}.{table.catalog or table.name}"
    if table.type == "mor":
        return {f"{name}_ro": "read_optimized", f"{name}_rt": "snapshot"}
    return {name: "snapshot"}


def all_catalog_names(table: Table) -> list[str]:
    """Return every name that the catalog may have for the table, sorted.

    Besides `catalog_names` these are the ones that Hudi's own sync adds after UPDATE, DELETE, MERGE
    or INSERT in SQL, from the name in the table's properties (Hudi 1.0.2).
    """
    synced = {f"{table.database}.{table.name}{suffix}" for suffix in ("", "_ro", "_rt")}
    return sorted(synced.union(catalog_names(table)))


def table_state_dir(world: World, table: Table) -> str:
    """Return the folder of a table's labels. hudi.drop removes it."""
    return join_uri(world.lake.checkpoints, _relative_path(world, table))


def scratch_copy(world: World, table: Table) -> Table:
    """Return a table for a copy of a table's rows. `hudi.drop` of the table removes it, too.

    It is in no catalog: for a table without a commit, Hudi would take the columns that the catalog has under its name.
    """
    base = f"{table_state_dir(world, table)}/recapture"
    return replace(table, name=f"{table.name}_recapture", catalog="", base=base)


def dead_letters_path(world: World, table: Table) -> str:
    """Return the folder of a table's dead letters."""
    return join_uri(world.lake.dead_letters, _relative_path(world, table))


def _relative_path(world: World, table: Table) -> str:
    """Return a path that is unique for the table's base; two tables may have the same name.

    It is the path below the lake's tables, or else the URI as a file name with a checksum: URIs
    that differ only in a / have the same file name.
    """
    root = world.lake.tables.rstrip("/") + "/"
    if table.base.startswith(root):
        return table.base[len(root) :].strip("/")
    checksum = hashlib.sha256(table.base.encode()).hexdigest()[:8]
    return f"elsewhere/{safe_file_name(table.base)}-{checksum}"


def spark_reader(spark: SparkSession) -> DataFrameReader:
    """Return a reader of Hudi tables without data skipping, whose results are wrong (a test shows it)."""
    return spark.read.format("hudi").option("hoodie.enable.data.skipping", "false")


def safe_file_name(text: str) -> str:
    """Replace the characters that a file name may not have by _."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)


def table_lock(world: World, table: Table) -> ContextManager[object]:
    """Lock a table for one ingest.

    Two jobs that write one table would read the same progress and roll back each other's commit.

    Raises (on entering):
        LakeError: another ingest holds the lock; names its process.
    """
    return files.exclusive_lock(
        table_state_dir(world, table),
        f"ingest into {table.database}.{table.name}",
        "wait until it is done; a continuous one holds the lock only while it has something new",
    )


def commit_lock(table: Table) -> ContextManager[object]:
    """Lock a table while a commit is written or a compaction planned; wait for the lock.

    A plan that is made while a commit begins may not see it. Then the commit's log belongs to files
    that the compaction replaces, and its rows are lost (seen with 1.0.2). In table version 6 a log
    belongs to a base file, not to a completion time as in version 8 (Hudi's RFC-66). A plan may be
    executed beside commits, which know of it. Use this for a table that has a commit: the first one
    makes the folder, and there is nothing to compact before it.
    """
    return files.exclusive_lock(f"{table.base}/.hoodie/.writing")
