"""The folder of a record: by topic partition or by fields.

Partitioning by fields works like Lenses' PARTITIONBY and Confluent's FieldPartitioner.
"""

import json
from dataclasses import dataclass
from typing import Any, Callable, Protocol

# the characters that Hive escapes in partition folders
# (org.apache.hadoop.hive.common.FileUtils.charToEscape), and NUL, which file systems reject
HIVE_ESCAPES = {ord(c): f"%{ord(c):02X}" for c in (*map(chr, range(32)), *"\"#%'*/:=?\\\x7f{[]^")}
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
MAX_NAME_BYTES = 255  # a limit of file systems
MAX_FOLDER_BYTES = 900  # a key in S3 has at most 1024 bytes


def get_field(payload: Any, name: str) -> Any:
    """Return a field of a row; `after.country` is a nested field.

    Raises:
        ValueError: there is no such field.
    """
    is_name = isinstance(payload, dict) and name in payload
    for key in [name] if is_name else name.split("."):
        if not isinstance(payload, dict) or key not in payload:
            raise ValueError(f"there is no field {name}")
        payload = payload[key]
    return payload


class Partitioner(Protocol):
    """Selects the folder of a record."""

    def folder(self, value: Any, partition: int) -> str:
        """Return the folder of a record, relative to the folder of its topic.

        Args:
            value: the record.
            partition: partition of the message.

        Raises:
            ValueError: a partition field is missing or invalid, or the folder's name is too long.
        """


@dataclass(frozen=True)
class NumberPartitioner:
    """Folders by the number of the topic partition, `partition=0`."""

    def folder(self, value: Any, partition: int) -> str:
        """Return the folder of the message's topic partition."""
        return f"partition={partition}"


@dataclass(frozen=True)
class FieldPartitioner:
    """Folders by fields, `a=1/b=x`, escaped as Hive does it; no folders without fields.

    A null, empty or missing value becomes Hive's default partition.

    Attributes:
        fields: names of the partition fields.
        get: takes the row and the name of a field, and returns its value.
    """

    fields: tuple[str, ...]
    get: Callable[[Any, str], Any] = dict.get

    def folder(self, value: Any, partition: int) -> str:
        """Return the folder of a record."""
        names = []
        for field in self.fields:
            text = self.get(value, field)
            if text is None:
                text = ""
            elif not isinstance(text, str):
                text = json.dumps(text)
            names.append(f"{field}={text.translate(HIVE_ESCAPES) or DEFAULT_PARTITION}")
        folder = "/".join(names)
        is_long = any(len(name.encode()) > MAX_NAME_BYTES for name in names)
        if is_long or len(folder.encode()) >= MAX_FOLDER_BYTES:
            raise ValueError("a partition value is too long for the name of a folder")
        return folder
