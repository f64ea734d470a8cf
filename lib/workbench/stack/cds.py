"""Class-data sharing (CDS): archives of the classes that a Java service loads when it starts.

With an archive Java maps its classes instead of parsing and verifying them, which is most of the
work of a start. Java 17 writes an archive when a process ends, on top of a base archive with the
classes of Java itself. So a service without an archive writes one when it is stopped for the first
time, and every later start of any instance uses it. Without a usable archive Java starts as usual.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Sequence

from ..base.paths import ensure_private_dir
from . import artifacts

FOLDER = artifacts.LIB / "cds"
# The first bytes of an archive. Java writes them last: a killed Java leaves zeros.
MAGIC = 0xF00BABA8.to_bytes(4, "little")
MAX_ARCHIVES = 2  # of one service: for two combinations of world and settings


def _archive(name: str, options: Sequence[str], files: Sequence[Path]) -> Path:
    """Return the path of an archive, with a checksum of what it depends on.

    Java rejects an archive if a file of the class path has another path, size or time.
    """
    states = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    digest = hashlib.sha256(repr((options, states)).encode()).hexdigest()
    return FOLDER / f"{name}-{digest[:16]}.jsa"


def _base_archive() -> Path:
    return _archive("java", [], [artifacts.java_home() / "lib" / "modules"])


def _use(archive: Path) -> list[str]:
    """Return the options to use an archive; Java logs nothing if it cannot."""
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"]


def create_base_archive() -> None:
    """Create the archive of Java's own classes, unless it exists. It takes a second or two.

    If that fails, services start without archives.
    """
    base = _base_archive()
    if base.exists():
        return
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        scratch = ensure_private_dir(FOLDER) / f"java.{os.getpid()}"
        dump = ["-XX:+UseSerialGC", "-Xshare:dump", f"-XX:SharedArchiveFile={scratch}"]
        java = artifacts.java_home() / "bin" / "java"
        subprocess.run([java, *dump], check=True, capture_output=True)
        _store(scratch, base)


def _store(file: Path, archive: Path) -> None:
    """Move a complete archive to its place: Java crashes when it maps a truncated one."""
    with file.open("rb") as content:
        os.fsync(content.fileno())
    file.replace(archive)


def base_options() -> list[str]:
    """Return the options of a Java that uses only the archive of Java's own classes."""
    base = _base_archive()
    return _use(base) if base.exists() else []


def options(scratch: Path, java_options: Sequence[str], class_path: Sequence[Path]) -> list[str]:
    """Return the options with which a service uses its archive, or writes one when it ends.

    Args:
        scratch: the service's folder for temporary files; its name is that of the service.
        java_options: options of Java that the archive may depend on.
        class_path: the jars of the service.
    """
    base = base_options()
    if not base:
        return []
    archive = _archive(scratch.name, java_options, [_base_archive(), *class_path])
    if archive.exists():
        return _use(archive)  # it names the base archive
    scratch.mkdir(parents=True, exist_ok=True)
    new = scratch / archive.name
    new.touch()  # so that `process.writes_archive` finds it
    return [*base, f"-XX:ArchiveClassesAtExit={new}"]


def keep(scratch: Path) -> None:
    """Move the complete archive of a stopped service to its place, and remove older ones."""
    for file in scratch.glob("*.jsa"):
        # without an archive the next start takes longer
        with contextlib.suppress(OSError), file.open("rb") as content:
            if content.read(len(MAGIC)) != MAGIC:
                continue
            _store(file, FOLDER / file.name)
            stored = FOLDER.glob(f"{scratch.name}-*.jsa")
            for old in sorted(stored, key=lambda path: path.stat().st_mtime)[:-MAX_ARCHIVES]:
                old.unlink()


def jar_of(folder: Path) -> Path:
    """Return a jar with the files of a folder, since CDS accepts no folder on a class path.

    If it cannot be written, the folder is returned: the service then starts without an archive.
    """
    jar = _archive(folder.name, [], sorted(folder.iterdir())).with_suffix(".jar")
    try:
        if not jar.exists():
            os.replace(shutil.make_archive(f"{jar}.{os.getpid()}", "zip", folder), jar)
    except OSError:
        return folder
    return jar
