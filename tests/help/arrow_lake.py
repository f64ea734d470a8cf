"""Hudi tables of version 6, Copy-on-Write, that pyarrow writes: Spark is not needed."""

import json
import zlib
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from workbench import hudi
from workbench.base.paths import local_path
from workbench.hudi.tables import table_state_dir
from worlds import with_settings

_keys_by_base = {}  # those of the last commit
FIRST_INSTANT = 20260101120000000  # a commit each minute


def world_in(world, folder):
    """Return a copy of a world whose lake is in a local folder."""
    root = f"file:{folder}"
    parts = {
        part: f"{root}/{part}" for part in ("landing", "tables", "dead_letters", "checkpoints")
    }
    return with_settings(world, lake={"root": root, **parts})


def _escaped(text):
    """Return a value as Java writes it to a properties file."""
    return "".join(c if c.isascii() else f"\\u{ord(c):04X}" for c in text).replace(":", "\\:")


def new_table(world, name, key=("id",), partition=(), path=""):
    """Create a table without commits."""
    table = hudi.Table(
        name,
        f"{world.lake.tables}/{path or f'datalake/{name}'}",
        key or ("?",),
        "v",
        partition=partition,
        index="GLOBAL_SIMPLE",
    )
    properties = {
        "hoodie.table.name": name,
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.version": "6",
        "hoodie.timeline.layout.version": "1",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.archivelog.folder": "history",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
        "hoodie.table.precombine.field": "v",
    }
    if key:
        properties["hoodie.table.recordkey.fields"] = ",".join(key)
    if partition:
        properties["hoodie.table.partition.fields"] = ",".join(partition)
    meta = local_path(table.base) / ".hoodie"
    meta.mkdir(parents=True)
    text = "".join(f"{k}={_escaped(v)}\n" for k, v in properties.items())
    (meta / "hoodie.properties").write_text(text)
    return table


def commit(world, table, rows, number, label="", position=""):
    """Write the rows as the table's content as of one instant, a new base file in each partition.

    A partition that has no row any more gets an empty file.
    """
    folder, instant = local_path(table.base), str(FIRST_INSTANT + 100_000 * number)
    rows = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)
    groups = {"": rows}
    if table.partition:
        (field,) = table.partition
        values = sorted(set(rows[field].to_pylist()))
        groups = {
            f"{field}={quote(v, '')}": rows.filter(pa.compute.equal(rows[field], v)) for v in values
        }
        earlier = {p.name for p in folder.iterdir() if p.name.startswith(f"{field}=")}
        groups.update({name: rows.slice(0, 0) for name in earlier - set(groups)})
    stats, all_keys = {}, set()
    for number_, (path, part) in enumerate(sorted(groups.items())):
        keys = [
            ",".join(map(str, values))
            for values in zip(*(part[k].to_pylist() for k in table.key if k in part.column_names))
        ]
        keys = keys or [str(n) for n in range(len(part))]
        all_keys.update(keys)
        group = f"{zlib.crc32(path.encode()):08x}-0000-0000-0000-000000000000-0"
        file = f"{group}_0-{number_}-0_{instant}.parquet"
        meta = {
            "_hoodie_commit_time": [instant] * len(part),
            "_hoodie_commit_seqno": [f"{instant}_{n}" for n in range(len(part))],
            "_hoodie_record_key": keys,
            "_hoodie_partition_path": [path] * len(part),
            "_hoodie_file_name": [file] * len(part),
        }
        columns = {name: pa.array(values, pa.string()) for name, values in meta.items()}
        columns.update(zip(part.column_names, part.columns))
        (folder / path).mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), folder / path / file)
        stats[path] = [
            {
                "fileId": group,
                "path": f"{path}/{file}".lstrip("/"),
                "prevCommit": "null",
                "numWrites": len(part),
                "numInserts": 0,
                "numDeletes": 0,
                "numUpdateWrites": 0,
                "totalWriteBytes": (folder / path / file).stat().st_size,
                "fileSizeInBytes": (folder / path / file).stat().st_size,
            }
        ]
    earlier = _keys_by_base.get(table.base, set())
    for stat in stats[min(stats)]:  # the sums matter
        stat.update(numInserts=len(all_keys - earlier), numDeletes=len(earlier - all_keys))
    _keys_by_base[table.base] = all_keys
    commit_ = {"partitionToWriteStats": stats, "operationType": "UPSERT", "extraMetadata": {}}
    for suffix in ("commit.requested", "inflight", "commit"):
        text = json.dumps(commit_) if suffix == "commit" else ""
        (folder / ".hoodie" / f"{instant}.{suffix}").write_text(text)
    if label:
        hudi.label(world, table, label, position)
    return instant


def remove_files(table, instant):
    """Remove the base files of an instant, as the cleaner does."""
    for file in local_path(table.base).rglob(f"*_{instant}.parquet"):
        file.unlink()


def labels_file(world, table):
    """Return the path of a table's labels."""
    return local_path(f"{table_state_dir(world, table)}/labels.json")
