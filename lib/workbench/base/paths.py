"""Where things lie: the checkout, the state of one instance of the stack, and links that services
can take.
"""

import hashlib
import os
import re
import stat
import threading
from pathlib import Path
from typing import Optional

from .errors import LakeError, ParamsError

ROOT = Path(os.environ.get("WORKBENCH_ROOT") or Path(__file__).resolve().parents[3])
USER_RUNTIME_DIR = (
    Path("/tmp") / f"workbench-{os.geteuid()}"
)  # named by nothing that differs between two terminals


def _shell_safe_link(folder: Path) -> Path:
    """Return a path to `folder` that is of letters, digits and _ . / - only: the folder itself, or
    a link to it.

    Spark splits its Java options at blanks, and Hudi makes no table at an address that holds one.
    The link lies in a folder that only we can enter, under a name that each of our processes finds
    again. Where that cannot be had, the folder itself is returned, and no embedded world is loaded
    (see `params.load_file`).
    """
    if is_shell_safe(folder):
        return folder
    try:
        link = user_runtime_dir() / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        if not link.is_symlink() or os.readlink(link) != str(folder):
            scratch = link.with_suffix(f".{os.getpid()}")
            scratch.symlink_to(folder)
            scratch.replace(link)
    except (OSError, ParamsError):
        return folder
    return link


def user_runtime_dir() -> Path:
    """Return the folder of this machine that all our processes find, and only we can enter.

    Raises: ParamsError: another user has made it before us.
    """
    USER_RUNTIME_DIR.mkdir(mode=0o700, exist_ok=True)
    seen = USER_RUNTIME_DIR.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
        raise ParamsError(
            f"{USER_RUNTIME_DIR} is not yours alone",
            expected="a folder of yours, mode 0700",
            hint="remove it, or have its owner do so",
        )
    return USER_RUNTIME_DIR


def is_shell_safe(path: Path) -> bool:
    return re.fullmatch(r"[\w./-]+", str(path), re.ASCII) is not None


SAFE_ROOT = _shell_safe_link(ROOT)  # ROOT as services are given it; people are shown ROOT
VAR_DIR = SAFE_ROOT / "var"


def service_path(path: Path) -> Path:
    """Return a path below ROOT as services can take it; any other as it is."""
    return SAFE_ROOT / path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def display_path(path: Path) -> str:
    """A path as people are shown it: below ROOT without it."""
    for root in (ROOT, SAFE_ROOT):
        if path.is_relative_to(root):
            return str(path.relative_to(root))
    return str(path)


def instance_name() -> str:
    """The name of the running copy of the stack: `main`, or what WORKBENCH_INSTANCE says (tests use
    their own).
    """
    name = os.environ.get("WORKBENCH_INSTANCE", "main")
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,30}", name):
        raise ParamsError(
            f"WORKBENCH_INSTANCE is {name!r}", expected="lower-case letters, digits, - and _"
        )
    return name


def state_dir() -> Path:
    """Where this instance keeps service data, logs, pid files, secrets and the local lake."""
    return VAR_DIR / instance_name()


def ensure_private_dir(folder: Path) -> Path:
    """Make a folder that nobody else may enter, or mend one of ours that others may; return it.

    For what is wholly the workbench's own, var/ and runs/: rows of the source lie there, in logs
    and notebooks too. Where a link stands in its place, what it leads to is the user's, and stays
    as it is.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = folder.stat()
    if not folder.is_symlink() and seen.st_uid == os.geteuid() and seen.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file as a whole that nobody else may read, mode 0600, in a folder that nobody else
    may enter.
    """
    scratch = (
        ensure_private_dir(path.parent) / f".{path.name}.{os.getpid()}.{threading.get_ident()}"
    )  # two may write side by side
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
        f.write(content)
    scratch.replace(path)


def parse_s3_uri(address: str) -> tuple[str, str]:
    """Return what an s3: or s3a: address names: the bucket, and the way in it."""
    bucket, _, key = re.sub(r"^s3a?://", "", address).partition("/")
    return bucket, key


def is_safe_relative_path(path: str) -> bool:
    """Whether a relative path stays below any folder that it is joined to: it has no empty, `.` or
    `..` part, and no control character.
    """
    return not {"", ".", ".."} & {*path.split("/")} and re.search(r"[\x00-\x1f\x7f]", path) is None


def join_uri(root: str, path: str) -> str:
    """Join a URI of the lake and a path that comes from JSON, KCQL, a topic's name or an argument.

    Every such path is joined here: a folder of the lake is removed as a whole, and locks and files
    are made in it.

    Args:
        root: URI of a folder. path: relative to it.

    Raises:
        LakeError: the path leads out of the folder, or names the folder itself (see
            `is_contained`).
    """
    if not is_safe_relative_path(path):
        raise LakeError(
            f"{path!r} is not a path below {root}",
            expected="names with / between them, none of them empty, . or ..",
        )
    return f"{root.rstrip('/')}/{path}"


def local_path(address: str) -> Optional[Path]:
    """Return the folder that a `file:` address names, None for any other file system."""
    return Path(re.sub(r"^file:(//)?", "", address)) if address.startswith("file:") else None
