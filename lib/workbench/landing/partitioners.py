"""The folder of a record by the values of its fields.

It works like Lenses' PARTITIONBY and Confluent's FieldPartitioner, but values are escaped as Hive does it.
"""

import json
from typing import Any, Sequence

# the characters that Hive escapes in partition folders
# (org.apache.hadoop.hive.common.FileUtils.charToEscape), and NUL, which file systems reject
HIVE_ESCAPES = {ord(c): f"%{ord(c):02X}" for c in (*map(chr, range(32)), *"\"#%'*/:=?\\\x7f{[]^")}
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
MAX_NAME_BYTES = 255  # a limit of file systems
MAX_FOLDER_BYTES = 900  # a key in S3 has at most 1024 bytes


def folder_by_fields(fields: Sequence[str], record: dict[str, Any]) -> str:
    """Return the folder of a record, `a=1/b=x`; "" without fields.

    A null, empty or missing value becomes Hive's default partition.

    Raises:
        ValueError: the name of the folder is too long.
    """
    names = []
    for field in fields:
        value = record.get(field)
        text = value if isinstance(value, str) else json.dumps(value)
        is_empty = value is None or not text
        names.append(f"{field}={DEFAULT_PARTITION if is_empty else text.translate(HIVE_ESCAPES)}")
    folder = "/".join(names)
    is_long = any(len(name.encode()) > MAX_NAME_BYTES for name in names)
    if is_long or len(folder.encode()) >= MAX_FOLDER_BYTES:
        raise ValueError("a partition value is too long for the name of a folder")
    return folder
