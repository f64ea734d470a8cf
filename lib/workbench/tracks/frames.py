"""Messages and landed files as pandas data frames, read without Spark."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pandas
from pyarrow import parquet

from ..base import LakeError, files


def events(messages: pandas.DataFrame) -> pandas.DataFrame:
    """Return the payloads of messages as columns, without tombstones.

    Args:
        messages: the result of `topics.read`.

    Returns:
        Columns partition, offset, then the fields of the payloads.
    """
    full = messages[messages["value"].notna()]
    rows = [json.loads(value)["payload"] for value in full["value"]]
    payloads = pandas.DataFrame(rows, index=full.index)
    return full[["partition", "offset"]].join(payloads).reset_index(drop=True)


def landed_files(uri: str) -> pandas.DataFrame:
    """Return the landed JSON files below a folder.

    Returns:
        One row for each file: folder, file, records, text (its JSON lines).
    """
    infos = {path: i for path, i in files.list_files(uri).items() if i.extension == "json"}
    with ThreadPoolExecutor(8) as pool:
        texts = pool.map(files.read_text, (f"{uri}/{path}" for path in infos))
        rows = [
            (*i.path.rpartition("/")[::2], len(_lines(text or "")), text or "")
            for i, text in zip(infos.values(), texts)
        ]
    return pandas.DataFrame(rows, columns=["folder", "file", "records", "text"])


def landed_rows(uri: str) -> pandas.DataFrame:
    """Return the records of all landed JSON files below a folder, in the order of the log.

    Raises:
        LakeError: nothing landed yet; or a line is not JSON, and the error names the file.
    """
    rows: list[dict[str, Any]] = []
    for landed in landed_files(uri).itertuples():
        try:
            rows += map(json.loads, _lines(landed.text))
        except ValueError as e:
            raise LakeError(
                f"a line of a landed file is not JSON: {e}",
                location=f"{landed.folder}/{landed.file}",
                hint="remove the file: it was not written by the landing",
            ) from None
    if not rows:
        raise LakeError("nothing landed yet", location=uri, hint="land the topic, then repeat this")
    return pandas.DataFrame(rows).sort_values("__lsn", ignore_index=True)


def parquet_files(uri: str) -> pandas.DataFrame:
    """Return the landed Parquet files below a folder, in the order of their offsets.

    Returns:
        One row for each file: folder, file, offset (of its first record), records, codec, bytes,
        written (UTC).
    """
    system, root = files.open_filesystem(uri)
    rows = []
    for path, info in sorted(files.list_files(uri).items()):
        if info.extension != "parquet":
            continue
        with system.open_input_file(f"{root}/{path}") as f:
            metadata = parquet.ParquetFile(f).metadata
            codec = metadata.row_group(0).column(0).compression if metadata.num_row_groups else ""
        folder, _, name = f"{uri}/{path}".rpartition("/")
        offset = int(name.rpartition("+")[2].partition(".")[0])
        rows.append((folder, name, offset, metadata.num_rows, codec, info.size, info.mtime))
    columns = ["folder", "file", "offset", "records", "codec", "bytes", "written"]
    return pandas.DataFrame(rows, columns=columns)


def _lines(text: str) -> list[str]:
    """Return the lines of a JSON lines file.

    splitlines() would also split at U+2028 and similar characters, which JSON texts may contain.
    """
    return [line for line in text.split("\n") if line]
