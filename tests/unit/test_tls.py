"""The instance's certificate: which servers it verifies, and who may read its key."""

import stat

import pytest
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate
from workbench.base import paths, tls


@pytest.fixture(autouse=True)
def made(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    tls.ensure()
    paths.port_base_file().write_text("21400")


@pytest.mark.parametrize(
    ("url", "ours"),
    [
        ("https://127.0.0.1:21404/apis", True),
        ("https://localhost:21405", True),
        ("http://127.0.0.1:21404", False),
        ("https://127.0.0.1:8443", False),
        ("https://127.0.0.1", False),
        ("https://registry.example:21404", False),
    ],
    ids=["ours", "by name", "without TLS", "a tunnel", "a tunnel at 443", "elsewhere"],
)
def test_only_a_listener_of_the_instance_is_verified_by_its_certificate(url, ours):
    assert tls.verify(url) == (str(tls.certificate_files()[0]) if ours else True)


def test_the_store_for_java_holds_the_certificate_and_its_key():
    key, certificate, more = pkcs12.load_key_and_certificates(
        tls.keystore().read_bytes(), tls.KEYSTORE_PASSWORD.encode()
    )
    assert (
        certificate == load_pem_x509_certificate(tls.certificate_files()[0].read_bytes())
        and not more
    )
    assert key.public_key() == certificate.public_key()


def test_they_are_made_once_and_nobody_else_may_read_them():
    def made():
        return {file: file.read_bytes() for file in tls.keystore().parent.iterdir()}

    before = made()
    assert {file.name for file in before} == {"certificate.pem", "key.pem", "keystore.p12"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in before} == {0o600}
    tls.ensure()
    assert made() == before
    tls.keystore().unlink()  # an instance of before there was one
    tls.ensure()
    assert {**made(), tls.keystore(): b""} == {**before, tls.keystore(): b""}
