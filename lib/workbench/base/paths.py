"""Paths: the checkout, the state of one instance of the stack, and URIs of the lake."""

import hashlib
import os
import posixpath
import re
import stat
import threading
from pathlib import Path
from typing import Optional

from .errors import LakeError, ParamsError

ROOT = Path(os.environ.get("WORKBENCH_ROOT") or Path(__file__).resolve().parents[3])
OWN_NOTEBOOKS = ROOT / "notebooks" / "own"  # those of the user, which `workbench run` runs by name
MAX_PORTS = 40  # of an instance, from its port base on
# A URI, or a host, on this machine.
LOOPBACK_ADDRESS = re.compile(r"(\w+://)?(127\.0\.0\.1|localhost)(:\d+)?(/.*)?")
# TMPDIR and XDG_RUNTIME_DIR are not used: they can differ between two terminals of the same user.
USER_RUNTIME_DIR = Path("/tmp") / f"workbench-{os.geteuid()}"


def _shell_safe_path(folder: Path) -> Path:
    """Return a path of letters, digits and _ . / - only for a folder.

    Spark splits its Java options at blanks, and Hudi cannot create a table at a path with a blank.
    So the result is the folder if its path is such a path, else that of a symbolic link to it, which
    `link_safe_root` creates. Its name is a hash of the folder, so all processes use the same link.
    """
    if re.fullmatch(r"[\w./-]+", str(folder), re.ASCII):
        return folder
    return USER_RUNTIME_DIR / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]


def link_safe_root() -> None:
    """Create the link SAFE_ROOT to the checkout, if there is none and one is needed.

    Raises:
        ParamsError: see `user_runtime_dir`.
    """
    if _shell_safe_path(ROOT) == ROOT:
        return
    user_runtime_dir()
    if not SAFE_ROOT.is_symlink() or os.readlink(SAFE_ROOT) != str(ROOT):
        scratch = SAFE_ROOT.with_suffix(f".{os.getpid()}")
        scratch.symlink_to(ROOT)
        scratch.replace(SAFE_ROOT)


def user_runtime_dir() -> Path:
    """Return a private folder with a fixed path, shared by all processes of this user.

    Raises:
        ParamsError: the folder belongs to another user, or other users can enter it.
    """
    USER_RUNTIME_DIR.mkdir(mode=0o700, exist_ok=True)
    info = USER_RUNTIME_DIR.lstat()
    is_own_dir = stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()
    if not is_own_dir or info.st_mode & 0o077:
        raise ParamsError(
            f"{USER_RUNTIME_DIR} is open to other users",
            expected="a folder of this user, mode 0700",
            hint="remove it, or ask its owner to do so; or move the checkout to a path without blanks",
        )
    return USER_RUNTIME_DIR


SAFE_ROOT = _shell_safe_path(ROOT)  # the path of ROOT for services; messages show ROOT
VAR_DIR = SAFE_ROOT / "var"


def service_path(path: Path) -> Path:
    """Return a path for services: a path below ROOT becomes the same path below SAFE_ROOT."""
    return SAFE_ROOT / path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def display_path(path: Path) -> str:
    """Return a path for messages: relative to the checkout if it is inside."""
    for root in (ROOT, SAFE_ROOT):
        if path.is_relative_to(root):
            return str(path.relative_to(root))
    return str(path)


def instance_name() -> str:
    """Return the name of this instance of the stack: WORKBENCH_INSTANCE, `main` by default.

    Raises:
        ParamsError: the variable contains a character that a name cannot have.
    """
    name = os.environ.get("WORKBENCH_INSTANCE", "main")
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,30}", name):
        raise ParamsError(
            f"WORKBENCH_INSTANCE is {name!r}", expected="lower-case letters, digits, - and _"
        )
    return name


def state_dir() -> Path:
    """Return the folder with this instance's service data, logs, pid files, secrets and lake."""
    return VAR_DIR / "instances" / instance_name()


def port_base_file() -> Path:
    """Return the file with the port base that this instance was created with."""
    return state_dir() / "port_base"


def stored_port_base() -> Optional[int]:
    """Return the port base that this instance was created with, None before its first start.

    Raises:
        ParamsError: its file has no number.
    """
    file = port_base_file()
    try:
        return int(file.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        raise ParamsError(
            "the port base of this instance is no number",
            location=display_path(file),
            hint="write the number into it with which the instance was created, such as 21400",
        ) from None


def store_port_base(number: int) -> None:
    """Store the port base of an instance whose first service has started."""
    if not port_base_file().exists():
        write_private_file(port_base_file(), str(number).encode())


def ensure_private_dir(folder: Path) -> Path:
    """Create a folder, or restrict an existing one, so that only this user can enter it; return it.

    Used for var/ and runs/, which contain rows of the source, also in logs and notebooks. A folder
    behind a symbolic link was chosen by the user, so its mode stays.
    """
    link_safe_root()  # otherwise `mkdir` would create a folder in its place
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = folder.stat()
    if not folder.is_symlink() and info.st_uid == os.geteuid() and info.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def flows_dir() -> Path:
    """Return the folder with the flows of the user's own tables (see `own`)."""
    return (ROOT / "params" if instance_name() == "main" else state_dir()) / "own"


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file atomically, with mode 0600 and in a private folder.

    Args:
        path: path of the file; its folder is created or made private.
        content: the new content.
    """
    folder = ensure_private_dir(path.parent)
    # two threads may write at the same time
    scratch = folder / f".{path.name}.{os.getpid()}.{threading.get_ident()}"
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
        f.write(content)
    scratch.replace(path)


def parse_s3_uri(uri: str) -> tuple[str, str]:
    """Return (bucket, key) of an s3: or s3a: URI."""
    bucket, _, key = re.sub(r"^s3a?://", "", uri).partition("/")
    return bucket, key


def is_safe_relative_path(path: str) -> bool:
    """Return whether a relative path stays below any folder that it is joined to.

    Such a path has no empty, `.` or `..` part, and no control character.
    """
    return not {"", ".", ".."} & {*path.split("/")} and re.search(r"[\x00-\x1f\x7f]", path) is None


def join_uri(root: str, path: str) -> str:
    """Join a lake URI and an untrusted relative path, and reject a path that leaves the folder.

    Untrusted are paths from JSON, KCQL, topic names and arguments. The library writes to the joined
    URI and removes whole folders there, so each such path must be joined by this function.

    Args:
        root: URI of a folder.
        path: path relative to the folder.

    Returns:
        The joined URI.

    Raises:
        LakeError: `path` is not safe (see `is_safe_relative_path`).
    """
    if not is_safe_relative_path(path):
        raise LakeError(
            f"{path!r} is not a path below {root}",
            expected="names separated by /, none of them empty, . or ..",
        )
    return f"{root.rstrip('/')}/{path}"


def is_below(uri: str, folder: str) -> bool:
    """Return whether a URI is a folder or lies below it; links and `..` are followed, s3: is s3a:."""

    def resolved(address: str) -> str:
        scheme, _, path = address.rpartition("://")
        if scheme.lower() in ("s3", "s3a"):
            return f"s3://{posixpath.normpath(path)}/"
        return f"{os.path.realpath(local_path(address) or address)}/"

    return resolved(uri).startswith(resolved(folder))


def local_path(uri: str) -> Optional[Path]:
    """Return the path of a `file:` URI, None for any other scheme."""
    return Path(re.sub(r"^file:(//)?", "", uri)) if uri.startswith("file:") else None
