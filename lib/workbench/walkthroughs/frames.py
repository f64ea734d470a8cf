"""Messages and landed files as data frames, read without Spark."""

import json
from concurrent.futures import ThreadPoolExecutor

import pandas
from pyarrow import parquet

from ..base import LakeError, files


def events(messages: pandas.DataFrame) -> pandas.DataFrame:
    """The payloads of messages (see topics.read) as columns beside their offset; tombstones are
    left out.
    """
    full = messages[messages["value"].notna()]
    payloads = pandas.DataFrame(
        [json.loads(value)["payload"] for value in full["value"]], index=full.index
    )
    return full[["partition", "offset"]].join(payloads).reset_index(drop=True)


def landed_files(place: str) -> pandas.DataFrame:
    """One row for each file landed below a folder: folder, file, records, text (its JSON lines)."""
    found = {path: i for path, i in files.list_files(place).items() if i.extension == "json"}
    with ThreadPoolExecutor(8) as pool:
        texts = [
            text or "" for text in pool.map(files.read_text, (f"{place}/{path}" for path in found))
        ]
    rows = [
        (*i.path.rpartition("/")[::2], len(_lines(text)), text)
        for i, text in zip(found.values(), texts)
    ]
    return pandas.DataFrame(rows, columns=["folder", "file", "records", "text"])


def landed_rows(place: str) -> pandas.DataFrame:
    """The records of all files landed below a folder, in the order of the log.

    Raises: LakeError: a line is not JSON, with its file.
    """
    rows: list[dict] = []
    for landed in landed_files(place).itertuples():
        try:
            rows += map(json.loads, _lines(landed.text))
        except ValueError as e:
            raise LakeError(
                f"a line of a landed file is not JSON: {e}",
                location=f"{landed.folder}/{landed.file}",
                hint="remove the file: the landing writes none like it",
            ) from None
    return pandas.DataFrame(rows).sort_values("__lsn", ignore_index=True)


def parquet_files(place: str) -> pandas.DataFrame:
    """One row for each Parquet file landed below a folder, in the order of their offsets: folder,
    file, offset (of its first record), records, codec, bytes, written (UTC).
    """
    system, root = files.open_filesystem(place)
    rows = []
    for path, i in sorted(
        (path, i) for path, i in files.list_files(place).items() if i.extension == "parquet"
    ):
        with system.open_input_file(f"{root}/{path}") as f:
            of = parquet.ParquetFile(f).metadata
            codec = of.row_group(0).column(0).compression if of.num_row_groups else ""
        folder, _, name = f"{place}/{path}".rpartition("/")
        rows.append(
            (
                folder,
                name,
                int(name.rpartition("+")[2].partition(".")[0]),
                of.num_rows,
                codec,
                i.size,
                i.mtime,
            )
        )
    return pandas.DataFrame(
        rows, columns=["folder", "file", "offset", "records", "codec", "bytes", "written"]
    )


def _lines(text: str) -> list[str]:
    """The lines of a file of JSON lines. Not splitlines(): that ends a line at U+2028 and others,
    too, which JSON holds as they are.
    """
    return [line for line in text.split("\n") if line]
