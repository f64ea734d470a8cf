"""The instance's own certificate, for its services that speak HTTPS on loopback.

A web page whose name resolves to 127.0.0.1 (DNS rebinding) is refused by the browser there: the
certificate is not for that name, and no browser knows its issuer.
"""

import datetime
import ipaddress
from pathlib import Path
from typing import Union
from urllib.parse import urlsplit

from . import pidfiles
from .paths import state_dir, write_private_file

LOOPBACK_NAMES = ("127.0.0.1", "localhost")
KEYSTORE_PASSWORD = "changeit"  # noqa: S105 - Java requires one; the mode of the file protects the key
VALIDITY = datetime.timedelta(days=3650)


def certificate_files() -> tuple[Path, Path]:
    """Paths of the certificate and of its private key, both PEM."""
    return state_dir() / "tls" / "certificate.pem", state_dir() / "tls" / "key.pem"


def keystore() -> Path:
    """Path of a PKCS12 store of both, for Java."""
    return state_dir() / "tls" / "keystore.p12"


def ensure() -> None:
    """Make the certificate, its key and the store of both unless they exist."""
    certificate, key = certificate_files()
    if not certificate.exists():
        _create_certificate(certificate, key)
    if not keystore().exists():
        write_private_file(keystore(), _to_pkcs12(certificate.read_bytes(), key.read_bytes()))


def _to_pkcs12(certificate: bytes, key: bytes) -> bytes:
    """Return a certificate and its key, both PEM, as a PKCS12 store."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    encryption = serialization.BestAvailableEncryption(KEYSTORE_PASSWORD.encode())
    return pkcs12.serialize_key_and_certificates(
        b"instance",
        serialization.load_pem_private_key(key, None),
        x509.load_pem_x509_certificate(certificate),
        None,
        encryption,
    )


def _create_certificate(certificate: Path, key: Path) -> None:
    from cryptography import x509  # only who starts services has it
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(x509.NameOID.COMMON_NAME, "lakehouse workbench, this instance")]
    )
    begin = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    names = [
        x509.IPAddress(ipaddress.ip_address(LOOPBACK_NAMES[0])),
        x509.DNSName(LOOPBACK_NAMES[1]),
    ]
    builder = x509.CertificateBuilder(
        name, name, private.public_key(), x509.random_serial_number(), begin, begin + VALIDITY
    )
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    pem, der = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    write_private_file(key, private.private_bytes(pem, der, serialization.NoEncryption()))
    # last: it says that both are there
    write_private_file(certificate, builder.sign(private, hashes.SHA256()).public_bytes(pem))


def verify(url: str) -> Union[bool, str]:
    """What a client verifies the server at `url` with, as `requests` takes it.

    Returns:
        The path of this instance's certificate for HTTPS at a port on loopback that a service of
        this instance was started with; else True: the issuers that the machine trusts. A tunnel to
        another registry is such a one.
    """
    address = urlsplit(url)
    ours = (
        address.scheme == "https"
        and address.hostname in LOOPBACK_NAMES
        and (address.port or 443) in pidfiles.recorded_ports()
    )
    return str(certificate_files()[0]) if ours else True
