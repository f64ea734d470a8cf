"""Class-data sharing (CDS): archives of the classes that a Java service loads when it starts.

With an archive Java maps its classes instead of parsing and verifying them, which is most of the
work of a start. Java 17 writes an archive when a process ends, on top of a base archive with the
classes of Java itself. So a service without an archive writes one when it is stopped for the first
time, and every later start of any instance uses it. Without a usable archive Java starts as usual.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Iterable, Optional, Sequence

import psutil

from ..base.paths import ensure_private_dir
from ..base.wait import file_lock
from . import artifacts

FOLDER = artifacts.LIB / "cds"
# A service logs nothing about an archive that it cannot use.
QUIET = "-Xlog:cds*=off"
ARCHIVE_OPTION = "-XX:ArchiveClassesAtExit="
# The first bytes of a dynamic archive. Java writes them last: a killed Java leaves zeros.
MAGIC = 0xF00BABA8.to_bytes(4, "little")
BASE_MAGIC = 0xF00BABA2.to_bytes(4, "little")
MAX_ARCHIVES = 2  # of one service: for two combinations of world and settings
MIN_FREE_BYTES = 2 << 30  # the archives of all services take about 450 MB
RETRY_SECONDS = 24 * 3600.0  # after an archive that could not be written


def _checksum(options: Sequence[str], class_path: Iterable[Path]) -> str:
    """Return a checksum of Java, its options and its class path.

    Java rejects an archive if a file of the class path has another path, size or time.
    """
    home = artifacts.java_home()
    states: list[object] = [*options]
    for path in (home / "release", home / "lib" / "modules", *class_path):
        states.append(str(path))
        with contextlib.suppress(FileNotFoundError):
            info = os.stat(path)
            states += [info.st_size, info.st_mtime_ns]
    return hashlib.sha256(json.dumps(states).encode()).hexdigest()[:16]


def _find(name: str) -> Optional[Path]:
    """Return the archive of this name, None if there is none.

    Java crashes when it maps an archive that is shorter than its header says, for example after a
    crash of the machine. So the size is part of the file name.
    """
    for path in FOLDER.glob(f"{name}-*.jsa"):
        with contextlib.suppress(FileNotFoundError):  # another instance has just removed it
            if path.stem.rpartition("-")[2] == str(path.stat().st_size):
                return path
    return None


def _store(file: Path, name: str) -> None:
    """Move a complete archive to its place, and remove the service's archives unused for longest."""
    with file_lock(FOLDER / "lock"):
        if _find(name):  # another instance has stored it meanwhile
            return
        scratch = FOLDER / f"{name}.new"
        shutil.move(file, scratch)  # copies between file systems
        with scratch.open("rb") as content:
            os.fsync(content.fileno())
        scratch.replace(FOLDER / f"{name}-{scratch.stat().st_size}.jsa")
        stored = FOLDER.glob(f"{name.partition('-')[0]}-*.jsa")
        for old in sorted(stored, key=lambda path: path.stat().st_mtime)[:-MAX_ARCHIVES]:
            old.unlink()


def _failure_marker(name: str) -> Path:
    return FOLDER / f"{name}.failed"


def _can_write(name: str) -> bool:
    """Return whether there is room for an archive, and writing it has not failed lately."""
    if not os.access(FOLDER, os.W_OK) or shutil.disk_usage(FOLDER).free < MIN_FREE_BYTES:
        return False
    marker = _failure_marker(name)
    return not marker.exists() or time.time() - marker.stat().st_mtime > RETRY_SECONDS


def _base_name() -> str:
    return f"java-{_checksum([], [])}"


def _use(archive: Path) -> list[str]:
    return [f"-XX:SharedArchiveFile={archive}", QUIET]


def create_base_archive() -> None:
    """Create the archive of Java's own classes, unless it exists. It takes a second or two.

    If that fails, services start without archives.
    """
    name = _base_name()
    if _find(name):
        return
    with contextlib.suppress(OSError):
        ensure_private_dir(FOLDER)
        if not _can_write(name):
            return
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            scratch = Path(folder) / "java.jsa"
            java = str(artifacts.java_home() / "bin" / "java")
            command = [java, "-XX:+UseSerialGC", "-Xshare:dump", f"-XX:SharedArchiveFile={scratch}"]
            result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if result.returncode != 0:
                scratch.unlink(missing_ok=True)
            keep_archive(scratch, name)


def base_options() -> list[str]:
    """Return the options of a Java that uses only the archive of Java's own classes."""
    base = _find(_base_name())
    return _use(base) if base else []


def options(
    scratch: Path, java_options: Sequence[str], class_path: Sequence[Path], can_write: bool = True
) -> list[str]:
    """Return the options with which a service uses its archive, or writes one when it ends.

    Args:
        scratch: the service's folder for temporary files; its name is that of the service.
        java_options: options of Java that the archive may depend on.
        class_path: the jars of the service.
        can_write: false with a Java agent: Java uses an archive with it, but refuses to write one.
    """
    base = _find(_base_name())
    if not base:
        return []
    name = f"{scratch.name}-{_checksum(java_options, [base, *class_path])}"
    archive = _find(name)
    if archive:  # it names the base archive
        with contextlib.suppress(OSError):
            os.utime(archive)  # the archives unused for longest are removed first
        return _use(archive)
    if not (can_write and _can_write(name)):
        return _use(base)
    return [*_use(base), f"{ARCHIVE_OPTION}{scratch / name}.jsa"]


def archive_path(process: psutil.Process) -> Optional[Path]:
    """Return the archive that a service writes when it ends, which takes it some seconds.

    Returns:
        None if the service writes no archive.
    """
    family = [process]
    with contextlib.suppress(psutil.Error):
        family += process.children(recursive=True)
    for each in family:
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile; the others count
            for text in each.cmdline():
                if text.startswith(ARCHIVE_OPTION):
                    return Path(text[len(ARCHIVE_OPTION) :])
    return None


def keep_archive(archive: Path, name: str = "") -> None:
    """Move the archive that a stopped service has written to its place, if it is complete.

    If it is not, the next attempt is a day later, so that not every stop waits for an archive.

    Args:
        archive: path of the archive, which may be missing.
        name: name of the stored archive; by default the file's.
    """
    name = name or archive.stem
    with contextlib.suppress(OSError):
        with archive.open("rb") as file:
            is_complete = file.read(len(MAGIC)) in (MAGIC, BASE_MAGIC)
        if is_complete:
            _store(archive, name)
            return
    with contextlib.suppress(OSError):
        _failure_marker(name).touch()


def jar_of(folder: Path) -> Path:
    """Return a jar with the files of a folder, since CDS accepts no folder on a class path.

    Its name is a checksum of its content.

    Returns:
        The folder itself if no jar can be written.
    """
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    digest = hashlib.sha256(repr(files).encode()).hexdigest()[:16]
    jar = FOLDER / f"{folder.name}-{digest}.jar"
    if zipfile.is_zipfile(jar):
        return jar
    try:
        with file_lock(ensure_private_dir(FOLDER) / "lock"):
            if not zipfile.is_zipfile(jar):
                scratch = jar.with_suffix(".new")
                with zipfile.ZipFile(scratch, "w") as archive:
                    for name, content in files.items():
                        archive.writestr(name, content)
                scratch.replace(jar)
    except OSError:
        return folder
    return jar
