"""What several unit tests need."""

import functools
import http.server
import os
import threading
from types import SimpleNamespace

import on_aws
import pytest
import worlds


@pytest.fixture(autouse=True)
def an_instance_of_its_own():
    """Beside the stack that other tests of this process have running: none of its services, none of
    its ports.

    It does not use the fixture `monkeypatch`, which a test may undo.
    """
    base = int(os.environ["WORKBENCH_PORT_BASE"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_INSTANCE", f"{os.environ['WORKBENCH_INSTANCE']}-unit")
        patch.setenv("WORKBENCH_PORT_BASE", str(base + 150))
        patch.setenv("WORKBENCH_SECRET_CONNECT_ADMIN", "a password of this test's Connect")
        with worlds.no_world():
            yield


@pytest.fixture(scope="session", autouse=True)
def models_of_aws_read_once():
    """The sessions of botocore share one loader: otherwise each reads megabytes of JSON again."""
    import botocore.session

    with pytest.MonkeyPatch.context() as patch:
        create = functools.cache(botocore.session.create_loader)
        patch.setattr(botocore.session, "create_loader", create)
        yield


@pytest.fixture
def account(monkeypatch):
    """An account of AWS with nothing in it, which moto answers for; a maker of its clients."""
    import boto3  # here, and moto: they take a second, and few tests need them
    import moto

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # it would read hundreds of images
    with moto.mock_aws():
        yield lambda service: boto3.client(service, region_name=on_aws.REGION)


@pytest.fixture
def answering():
    """A maker of an HTTP server on loopback: {path: (status, text), or a list of those, one for
    each time}.

    Everything else is a 404. Returns its `url` and the paths that were `asked`."""
    made = []

    def make(answers):
        asked = []

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                found = answers.get(self.path, (404, ""))
                status, text = found.pop(0) if isinstance(found, list) else found
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode("utf-8"))

            do_DELETE = do_GET  # noqa: N815 - the name that http.server looks for

            def do_PUT(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        made.append(server)
        return SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}", asked=asked)

    yield make
    for server in made:
        server.shutdown()
        server.server_close()
