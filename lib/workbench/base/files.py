"""Files of the lake by URI (`file:`, `s3:`, `s3a:`).

Spark Connect can neither read a single file nor remove a folder.
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


def open_filesystem(uri: str) -> tuple[Any, str]:
    """Return the pyarrow file system of a URI, and the path in it."""
    from pyarrow import fs

    if uri.startswith("file:"):
        return fs.LocalFileSystem(), re.sub(r"^file:(//)?", "", uri)
    bucket, key = parse_s3_uri(uri)
    # params.activate and the embedded Spark set the variables (see params.lake_variables).
    region = os.environ.get("AWS_REGION") or fs.resolve_s3_region(bucket)
    filesystem = fs.S3FileSystem(
        region=region,
        endpoint_override=os.environ.get("AWS_ENDPOINT_URL_S3"),
        connect_timeout=10,
        request_timeout=60,
        allow_delayed_open=True,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=10),
    )
    return filesystem, f"{bucket}/{key}" if key else bucket


def object_store_options(uri: str) -> dict[str, str]:
    """Return the credentials with which hudi-rs reads a URI in S3.

    hudi-rs reads neither profiles nor credentials files.

    Returns:
        Options of Rust's object_store; empty for a `file:` URI, and without credentials.
    """
    if uri.startswith("file:"):
        return {}
    import boto3

    credentials = boto3.Session().get_credentials()
    if credentials is None:
        return {}
    key = credentials.get_frozen_credentials()
    options = {
        "aws_access_key_id": key.access_key,
        "aws_secret_access_key": key.secret_key,
        "aws_session_token": key.token,
    }
    return {name: value for name, value in options.items() if value}


def read_text(uri: str) -> Optional[str]:
    """Return the text of a small file, or None if it does not exist."""
    try:
        return read_bytes(uri).decode("utf-8")
    except FileNotFoundError:
        return None


def read_bytes(uri: str) -> bytes:
    """Return the content of a file.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    filesystem, path = open_filesystem(uri)
    with filesystem.open_input_stream(path, compression=None) as f:
        content: bytes = f.read()
    return content


def list_dir(uri: str, *, recursive: bool = False) -> list[Any]:
    """Return the pyarrow FileInfo of each entry of a folder; none if the folder does not exist."""
    from pyarrow import fs

    filesystem, path = open_filesystem(uri)
    selector = fs.FileSelector(path, allow_not_found=True, recursive=recursive)
    entries: list[Any] = filesystem.get_file_info(selector)
    return entries


def list_files(uri: str) -> dict[str, Any]:
    """Return the pyarrow FileInfo of all files below a folder, by their path relative to it."""
    root = open_filesystem(uri)[1].rstrip("/") + "/"
    return {info.path[len(root) :]: info for info in list_dir(uri, recursive=True) if info.is_file}


def remove(uri: str) -> None:
    """Remove a file, or a folder with all its content; it need not exist."""
    filesystem, path = open_filesystem(uri)
    if filesystem.get_file_info(path).is_file:
        filesystem.delete_file(path)
        return
    filesystem.delete_dir_contents(path, missing_dir_ok=True)
    if uri.startswith("file:"):
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(path)


def move(uri: str, target: str) -> None:
    """Move the files of a folder into another one, and remove the folder.

    Each file is whole in one of both folders at any time, so an interrupted move can be repeated.
    """
    filesystem, path = open_filesystem(uri)
    _, target_path = open_filesystem(target)
    for name in list_files(uri):
        filesystem.create_dir(f"{target_path}/{name}".rpartition("/")[0])
        filesystem.move(f"{path}/{name}", f"{target_path}/{name}")
    remove(uri)


def write_text(uri: str, text: str) -> None:
    """Write a small file atomically; its folder is created if it does not exist."""
    write_bytes(*open_filesystem(uri), text.encode("utf-8"))


def write_bytes(filesystem: Any, path: str, data: bytes) -> None:
    """Write a small file atomically; its folder is created if it does not exist.

    Args:
        filesystem: a pyarrow file system (see `open_filesystem`).
        path: the path in it.
        data: the content.
    """
    # S3 shows an object when it is complete. On a disk the old file stays until the new one is
    # complete, even if the process is killed or the disk is full.
    is_local = filesystem.type_name == "local"
    folder = path.rpartition("/")[0]
    target = path
    if is_local:
        filesystem.create_dir(folder, recursive=True)
        # Spark's listings skip names with a leading dot. The name is short because that of the file
        # may already have the maximum length.
        target = f"{folder}/.{uuid.uuid5(uuid.NAMESPACE_URL, path).hex}.{os.getpid()}"
    with filesystem.open_output_stream(target, compression=None) as f:
        f.write(data)
    if is_local:
        os.replace(target, path)


def exclusive_lock(uri: str, task: str = "", hint: str = "") -> ContextManager[object]:
    """Hold `<uri>.lock`, so that only one job at a time writes to this URI.

    The lock is a file that the kernel locks, or an object in S3 (see `lease`).

    Args:
        uri: URI of a file or folder.
        task: the work under the lock as a noun, such as `ingest into t`, for the error of a second
            caller. If it is empty, a second caller waits.
        hint: hint of that error.

    Raises:
        LakeError: (on entering) another process holds the lock; the error names the process.
        StackError: (on entering) S3 rejects a request or cannot be reached.
    """
    local = local_path(uri)
    lock = f"{local or uri}.lock"

    def locked_error(owner: str) -> LakeError:
        return LakeError(
            f"another {task} is running", location=f"process {owner} holds {lock}", hint=hint
        )

    on_locked = locked_error if task else None
    return wait.file_lock(Path(lock), on_locked) if local else lease.hold(lock, on_locked)
