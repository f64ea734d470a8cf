"""The certificate of an instance, for its HTTPS services on loopback.

It protects against DNS rebinding. If the host name of a web page resolves to 127.0.0.1, the browser
rejects the connection: the certificate is not for that name, and no browser trusts its issuer.
"""

from pathlib import Path
from typing import Union
from urllib.parse import urlsplit

from .paths import MAX_PORTS, state_dir, stored_port_base, write_private_file

LOOPBACK_NAMES = ("127.0.0.1", "localhost")


def certificate_files() -> tuple[Path, Path]:
    """Return the paths of the certificate, with its issuer, and of its private key, both PEM."""
    return state_dir() / "tls" / "certificate.pem", state_dir() / "tls" / "key.pem"


def ensure() -> None:
    """Create the certificate and its key unless they exist. The key of the issuer is not kept."""
    certificate, key = certificate_files()
    if certificate.exists():
        return
    import trustme  # installed only with the embedded stack

    issuer = trustme.CA()
    issued = issuer.issue_cert(*LOOPBACK_NAMES)
    write_private_file(key, issued.private_key_pem.bytes())
    # last, because its existence means that both files are complete
    chain = [*issued.cert_chain_pems, issuer.cert_pem]
    write_private_file(certificate, b"".join(pem.bytes() for pem in chain))


def verify(url: str) -> Union[bool, str]:
    """Return how a client verifies the server at a URL, as the `verify` argument of `requests`.

    Returns:
        The path of this instance's certificate for HTTPS on loopback at a port of this instance.
        Otherwise True: the issuers that the machine trusts, for example for a tunnel to another
        registry.
    """
    parts = urlsplit(url)
    is_own_service = (
        parts.scheme == "https"
        and parts.hostname in LOOPBACK_NAMES
        and (parts.port or 443) - (stored_port_base() or 0) in range(MAX_PORTS)
    )
    return str(certificate_files()[0]) if is_own_service else True
