"""Files of the lake by address (`file:`, `s3:`, `s3a:`): what Spark Connect cannot do, read one or
remove a folder.
"""

import contextlib
import os
import re
import uuid
from pathlib import Path
from typing import Any, ContextManager, Optional

from . import lease, wait
from .errors import LakeError
from .paths import local_path, parse_s3_uri


def open_filesystem(address: str) -> tuple[Any, str]:
    """Return (pyarrow file system, path in it) of an address."""
    from pyarrow import fs

    if address.startswith("file:"):
        return fs.LocalFileSystem(), re.sub(r"^file:(//)?", "", address)
    bucket, key = parse_s3_uri(address)
    path = f"{bucket}/{key}" if key else bucket
    # where a world is loaded, and in its Spark's workers, these are set (see environment.s3_environment)
    region = os.environ.get("AWS_REGION") or fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        region=region,
        endpoint_override=os.environ.get("AWS_ENDPOINT_URL_S3"),
        connect_timeout=10,
        request_timeout=60,
        allow_delayed_open=True,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=10),
    ), path


def object_store_options(address: str) -> dict[str, str]:
    """The key by which hudi-rs reads an address in S3: it knows no profiles, no files of keys."""
    if address.startswith("file:"):
        return {}
    import boto3

    key = boto3.Session().get_credentials()
    found = {} if key is None else key.get_frozen_credentials()._asdict()
    names = {
        "access_key": "aws_access_key_id",
        "secret_key": "aws_secret_access_key",
        "token": "aws_session_token",
    }
    return {option: found[name] for name, option in names.items() if found.get(name)}


def read_text(address: str) -> Optional[str]:
    """The text of a small file, or None when there is none."""
    try:
        return read_bytes(address).decode("utf-8")
    except FileNotFoundError:
        return None


def read_bytes(address: str) -> bytes:
    """What a file holds. Raises FileNotFoundError."""
    system, path = open_filesystem(address)
    with system.open_input_stream(path, compression=None) as f:
        return f.read()


def list_dir(address: str, *, recursive: bool = False) -> list[Any]:
    """The pyarrow FileInfo of what lies in a folder; an absent folder holds nothing."""
    from pyarrow import fs

    system, path = open_filesystem(address)
    return system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=recursive))


def list_files(address: str) -> dict[str, Any]:
    """{path below the folder: its pyarrow FileInfo} of all files in a folder and below it."""
    root = open_filesystem(address)[1].rstrip("/") + "/"
    return {
        info.path[len(root) :]: info for info in list_dir(address, recursive=True) if info.is_file
    }


def remove(address: str) -> None:
    """Remove a file, or a folder with all that is in it; an absent one is fine."""
    system, path = open_filesystem(address)
    if system.get_file_info(path).is_file:
        system.delete_file(path)
        return
    system.delete_dir_contents(path, missing_dir_ok=True)
    if address.startswith("file:"):
        with contextlib.suppress(FileNotFoundError):
            system.delete_dir(path)


def write_text(address: str, text: str) -> None:
    """Write a small file, all of it or nothing; the folder is made where it is missing."""
    write_bytes(*open_filesystem(address), text.encode("utf-8"))


def write_bytes(system: Any, path: str, data: bytes) -> None:
    """The same of what `open_address` returns. (It travels into Spark tasks.)"""
    # S3 shows an object when it is complete; on a disk a kill, or a full one, leaves the file that
    # was there
    local, folder = system.type_name == "local", path.rpartition("/")[0]
    # Spark's listings skip names with a dot; it is short, for that of the file may be as long as a
    # name can be
    unfinished = (
        f"{folder}/.{uuid.uuid5(uuid.NAMESPACE_URL, path).hex}.{os.getpid()}" if local else path
    )
    if local:
        system.create_dir(folder, recursive=True)
    with system.open_output_stream(unfinished, compression=None) as f:
        f.write(data)
    if local:
        os.replace(unfinished, path)


def exclusive_lock(address: str, what: str = "", next_step: str = "") -> ContextManager[None]:
    """Hold `<address>.lock`, which keeps two jobs that write to one place apart: a file that the
    kernel locks, or an object in S3 (see lease). Without `what` whoever comes second waits.

    Raises (when it is entered): LakeError: another `what` is going on; names its process.
        StackError: S3 says no.
    """
    place = local_path(address)
    lock = f"{place or address}.lock"
    busy = (
        (
            lambda pid: LakeError(
                f"another {what} is going on",
                hint=next_step,
                location=f"process {pid} holds {lock}",
            )
        )
        if what
        else None
    )
    return wait.file_lock(Path(lock), busy) if place else lease.hold(lock, busy)
