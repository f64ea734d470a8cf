"""The instance's certificate: which servers it verifies, and who may read its key."""

import contextlib
import socket
import ssl
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
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
    assert {file.name for file in before} == {"certificate.pem", "key.pem"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in before} == {0o600}
    tls.ensure()
    assert made() == before


@pytest.mark.parametrize(
    "name, trusted", [("127.0.0.1", True), ("localhost", True), ("evil", False)]
)
def test_a_server_with_it_is_trusted_by_who_has_it_and_under_loopback_names_only(name, trusted):
    certificate, key = tls.certificate_files()
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate, key)
    client = ssl.create_default_context(cafile=str(certificate))
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def serve():
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                server_side.wrap_socket(connection, server_side=True).close()

        served = pool.submit(serve)
        with socket.create_connection(server.getsockname()) as plain:
            refused = pytest.raises(ssl.SSLCertVerificationError)
            with contextlib.nullcontext() if trusted else refused:
                client.wrap_socket(plain, server_hostname=name).close()
        served.result(10)
