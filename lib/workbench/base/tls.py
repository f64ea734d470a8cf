"""The certificate of an instance, for its HTTPS services on loopback.

It protects against DNS rebinding. If the host name of a web page resolves to 127.0.0.1, the browser
rejects the connection: the certificate is not for that name, and no browser trusts its issuer.
"""

import datetime
import ipaddress
from pathlib import Path
from typing import Union, cast
from urllib.parse import urlsplit

from .paths import MAX_PORTS, state_dir, stored_port_base, write_private_file

LOOPBACK_NAMES = ("127.0.0.1", "localhost")
KEYSTORE_PASSWORD = "changeit"  # noqa: S105 - Java requires one; the mode of the file protects the key
VALIDITY = datetime.timedelta(days=3650)


def certificate_files() -> tuple[Path, Path]:
    """Return the paths of the certificate and of its private key, both PEM."""
    return state_dir() / "tls" / "certificate.pem", state_dir() / "tls" / "key.pem"


def keystore() -> Path:
    """Return the path of the PKCS12 store with certificate and key, for Java."""
    return state_dir() / "tls" / "keystore.p12"


def ensure() -> None:
    """Create the certificate, its key and the store of both unless they exist."""
    certificate, key = certificate_files()
    if not certificate.exists():
        _create_certificate(certificate, key)
    if not keystore().exists():
        write_private_file(keystore(), _to_pkcs12(certificate.read_bytes(), key.read_bytes()))


def _to_pkcs12(certificate: bytes, key: bytes) -> bytes:
    """Return a certificate and its key, both PEM, as a PKCS12 store."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import pkcs12

    return pkcs12.serialize_key_and_certificates(
        b"instance",
        cast(ec.EllipticCurvePrivateKey, serialization.load_pem_private_key(key, None)),
        x509.load_pem_x509_certificate(certificate),
        None,
        serialization.BestAvailableEncryption(KEYSTORE_PASSWORD.encode()),
    )


def _create_certificate(certificate_file: Path, key_file: Path) -> None:
    from cryptography import x509  # installed only with the embedded stack
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(x509.NameOID.COMMON_NAME, "lakehouse workbench, this instance")]
    )
    start = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    address, host = LOOPBACK_NAMES
    alternative_names = [x509.IPAddress(ipaddress.ip_address(address)), x509.DNSName(host)]
    certificate = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), start, start + VALIDITY
        )
        .add_extension(x509.SubjectAlternativeName(alternative_names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    pkcs8 = serialization.PrivateFormat.PKCS8
    write_private_file(key_file, key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    # last, because its existence means that both files are complete
    write_private_file(certificate_file, certificate.public_bytes(pem))


def verify(url: str) -> Union[bool, str]:
    """Return how a client verifies the server at a URL, as the `verify` argument of `requests`.

    Returns:
        The path of this instance's certificate for HTTPS on loopback at a port of this instance.
        Otherwise True: the issuers that the machine trusts, for
        example for a tunnel to another registry.
    """
    parts = urlsplit(url)
    is_own_service = (
        parts.scheme == "https"
        and parts.hostname in LOOPBACK_NAMES
        and (parts.port or 443) - (stored_port_base() or 0) in range(MAX_PORTS)
    )
    return str(certificate_files()[0]) if is_own_service else True
