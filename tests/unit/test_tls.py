"""The instance's certificate: which servers it verifies, and who may read its key."""

import stat

import pytest
from cryptography import x509
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


def test_they_are_made_once_and_nobody_else_may_read_them():
    def made():
        return {file: file.read_bytes() for file in tls.certificate_files()[0].parent.iterdir()}

    before = made()
    (text, *_) = x509.load_pem_x509_certificates(tls.certificate_files()[0].read_bytes())
    names = text.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["127.0.0.1", "localhost"], "not for a web page's"
    assert {file.name for file in before} == {"certificate.pem", "key.pem"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in before} == {0o600}
    tls.ensure()
    assert made() == before
