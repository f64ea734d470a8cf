"""The instance's own certificate, for its services that speak HTTPS on loopback.

A web page whose name resolves to 127.0.0.1 (DNS rebinding) is refused by the browser there: the certificate is not for
that name, and no browser knows its issuer.
"""
import datetime
import ipaddress
import os
from pathlib import Path
from typing import Union
from urllib.parse import urlsplit

from .paths import closed, state_dir

NAMES = ("127.0.0.1", "localhost")
VALID = datetime.timedelta(days=3650)


def files() -> tuple[Path, Path]:
    """Paths of the certificate and of its private key, both PEM."""
    return state_dir() / "tls" / "certificate.pem", state_dir() / "tls" / "key.pem"


def ensure() -> None:
    """Make the certificate and its key unless they exist."""
    certificate, key = files()
    if certificate.exists():
        return
    from cryptography import x509  # only who starts services has it
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "lakehouse workbench, this instance")])
    begin = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    names = [x509.IPAddress(ipaddress.ip_address(NAMES[0])), x509.DNSName(NAMES[1])]
    builder = x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number(), begin,
                                      begin + VALID)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    pem, der = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    closed(certificate.parent)
    _write(key, private.private_bytes(pem, der, serialization.NoEncryption()))
    _write(certificate, builder.sign(private, hashes.SHA256()).public_bytes(pem))  # last: it says that both are there


def _write(path: Path, content: bytes) -> None:
    scratch = path.with_suffix(".new")
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
        f.write(content)
    scratch.replace(path)


def verify(url: str) -> Union[bool, str]:
    """What a client verifies the server at `url` with, as `requests` takes it: this instance's certificate for HTTPS
    on loopback, else True (the issuers that the machine trusts)."""
    address, certificate = urlsplit(url), files()[0]
    ours = address.scheme == "https" and address.hostname in NAMES and certificate.exists()
    return str(certificate) if ours else True
