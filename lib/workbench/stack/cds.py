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
import subprocess
import zipfile
from pathlib import Path
from typing import Iterable, Optional, Sequence

import psutil

from ..base.paths import ensure_private_dir
from ..base.wait import file_lock
from . import artifacts

FOLDER = artifacts.LIB / "cds"
# An archive that Java cannot use is ignored, without a warning in the service's log.
QUIET = "-Xlog:cds*=off"
ARCHIVE_OPTION = "-XX:ArchiveClassesAtExit"
# The first bytes of a dynamic archive. Java writes them last: a killed Java leaves zeros.
MAGIC = 0xF00BABA8.to_bytes(4, "little")
MAX_ARCHIVES = 3  # of one service: for as many worlds and settings


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
        if path.stem.rpartition("-")[2] == str(path.stat().st_size):
            return path
    return None


def _store(file: Path, name: str) -> None:
    """Move a complete archive to its place, and remove the oldest ones of the same service."""
    with file.open("rb") as content:
        os.fsync(content.fileno())
    file.replace(FOLDER / f"{name}-{file.stat().st_size}.jsa")
    stored = FOLDER.glob(f"{name.partition('-')[0]}-*.jsa")
    for old in sorted(stored, key=lambda path: path.stat().st_mtime)[:-MAX_ARCHIVES]:
        old.unlink()


def _base_archive() -> Optional[Path]:
    return _find(f"java-{_checksum([], [])}")


def create_base_archive() -> None:
    """Create the archive of Java's own classes, unless it exists. It takes about a second.

    If that fails, services start without archives.
    """
    if _base_archive():
        return
    with contextlib.suppress(OSError), file_lock(ensure_private_dir(FOLDER) / "lock"):
        if _base_archive():  # another process has created it meanwhile
            return
        scratch = FOLDER / "java.new"
        scratch.unlink(missing_ok=True)
        java = str(artifacts.java_home() / "bin" / "java")
        command = [java, "-XX:+UseSerialGC", "-Xshare:dump", f"-XX:SharedArchiveFile={scratch}"]
        result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if result.returncode == 0:
            _store(scratch, f"java-{_checksum([], [])}")


def base_options() -> list[str]:
    """Return the options of a Java that uses only the archive of Java's own classes."""
    base = _base_archive()
    return [f"-XX:SharedArchiveFile={base}", QUIET] if base else []


def options(scratch: Path, java_options: Sequence[str], class_path: Sequence[Path]) -> list[str]:
    """Return the options with which a service uses its archive, or writes one when it ends.

    Args:
        scratch: the service's folder for temporary files; its name is that of the service.
        java_options: options of Java that the archive may depend on.
        class_path: the jars of the service.
    """
    base = _base_archive()
    if not base:
        return []
    name = f"{scratch.name}-{_checksum(java_options, [base, *class_path])}"
    archive = _find(name)
    if archive:  # it names the base archive
        return [f"-XX:SharedArchiveFile={archive}", QUIET]
    return [*base_options(), f"{ARCHIVE_OPTION}={scratch / name}.jsa"]


def writes_archive(process: psutil.Process) -> bool:
    """Return whether a service writes an archive when it ends. That takes it some seconds more."""
    with contextlib.suppress(psutil.Error):
        family = [process, *process.children(recursive=True)]
        return any(ARCHIVE_OPTION in text for each in family for text in each.cmdline())
    return False


def keep_archive(scratch: Path) -> None:
    """Move the archive that a stopped service has written to its place, if it is complete."""
    for archive in scratch.glob(f"{scratch.name}-*.jsa"):
        with contextlib.suppress(OSError):
            with archive.open("rb") as file:
                is_complete = file.read(len(MAGIC)) == MAGIC
            if is_complete:
                _store(archive, archive.stem)


def jar_of(folder: Path) -> Path:
    """Return a jar with the files of a folder: CDS accepts no folder on a class path.

    Its name is a checksum of its content.
    """
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    digest = hashlib.sha256(repr(files).encode()).hexdigest()[:16]
    jar = ensure_private_dir(FOLDER) / f"{folder.name}-{digest}.jar"
    with file_lock(FOLDER / "lock"):
        if not jar.exists():
            scratch = jar.with_suffix(".new")
            with zipfile.ZipFile(scratch, "w") as archive:
                for name, content in files.items():
                    archive.writestr(name, content)
            scratch.replace(jar)
    return jar
